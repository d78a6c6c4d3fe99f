"""Empty nodes stay if pending pods would land on them: Karpenter nominates them without any object (gate 4)."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight, LeavingNode
from dovetail.decide.refusal import Refusal
from dovetail.model import names
from dovetail.model.command import Command, Method, Placement
from dovetail.model.objects import Pod
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.model.verdicts import Gate
from dovetail.scheduling import simulate as simulation
from dovetail.scheduling.under_way import UnderWay
from tests.support.design_world import NOW, Town, kind, moved


def _town() -> Town:
    """Return two empty nodes, `a` and `b`, of four CPUs each, beside `old`, which is nearly full and protected."""
    town = Town(kind("m", "0.20"))
    town.pool()
    for name in ("a", "b"):
        town.node(name, "m")
    town.node("old", "m", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("big", "old", cpu="3500m")
    return town


def _leave(town: Town, node: str) -> None:
    claim = town.claims[node]
    metadata = msgspec.structs.replace(claim.metadata, deletion_timestamp=NOW - timedelta(minutes=1))
    town.claims[node] = msgspec.structs.replace(claim, metadata=metadata)


def _nothing(town: Town) -> None:
    pass


def _one_pending(town: Town) -> None:
    town.pod("waits", cpu="3000m")


def _two_pending(town: Town) -> None:
    town.pod("waits", cpu="3000m")
    town.pod("waits-too", cpu="3000m")


def _too_large(town: Town) -> None:
    town.pod("huge", cpu="30")


def _fits_elsewhere(town: Town) -> None:
    town.pod("small", cpu="100m")
    town.node("0", "m", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("there", "0")


def _gated(town: Town) -> None:
    town.pod("gated", cpu="3000m", spec={"schedulingGates": [{"name": "later"}]})
    pod = town.pods["gated"]
    said = tuple(msgspec.structs.replace(entry, reason="SchedulingGated") for entry in pod.status.conditions)
    town.pods["gated"] = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=said))


def _other_zone(town: Town) -> None:
    town.pod("far", cpu="3000m", spec={"nodeSelector": {names.ZONE: "c"}})


def _node_leaves(town: Town) -> None:
    _leave(town, "old")


def _pdb_holds_the_drain(town: Town) -> None:
    town.pod("big", "old", cpu="3500m", labels={"app": "big"})
    town.pdb("big", {"app": "big"}, allowed=0)
    _leave(town, "old")


def _empty_node_leaves(town: Town) -> None:
    town.node("gone", "m")
    _leave(town, "gone")


@pytest.mark.parametrize(
    ("change", "taken", "awaited"),
    [
        pytest.param(_nothing, ("a", "b"), {}, id="nothing waits"),
        pytest.param(_one_pending, ("b",), {"a": "pod default/waits waits"}, id="a pending pod"),
        pytest.param(
            _two_pending, (), {"a": "pod default/waits waits", "b": "pod default/waits-too waits"}, id="one on each"
        ),
        pytest.param(_too_large, ("a", "b"), {}, id="a pod that fits nowhere"),
        pytest.param(_fits_elsewhere, ("a", "b"), {}, id="a pod that fits on a node in use"),
        pytest.param(_gated, ("a", "b"), {}, id="a pod that does not want a node yet"),
        pytest.param(_other_zone, ("a", "b"), {}, id="a pod that may not run there"),
        pytest.param(_node_leaves, ("b",), {"a": "pod default/big waits"}, id="a pod of a leaving node"),
        pytest.param(_pdb_holds_the_drain, ("b",), {"a": "pod default/big waits"}, id="its PDB allows nothing now"),
        pytest.param(_empty_node_leaves, ("a", "b"), {}, id="a leaving node without pods"),
    ],
)
def test_an_empty_node_stays_for_pods_that_wait(
    change: Callable[[Town], None], taken: tuple[str, ...], awaited: dict[str, str]
) -> None:
    """The gate `nominated` names the pending pod; other empty nodes go."""
    town = _town()
    change(town)
    assert moved(town.act()) == (("deleteEmpty", taken) if taken else None)
    found = {entry.node: entry for entry in town.round(every_method=True).verdicts}
    assert {name for name in ("a", "b") if found[name].verdict == "nominated"} == set(awaited)
    for name, words in awaited.items():
        assert words in found[name].why
        gates = [result.gate for result in found[name].gates]
        assert gates.count(Gate.NOMINATED) == 1
        assert gates[-1] is Gate.NOMINATED
        assert not found[name].gates[-1].passed
    oracle = Decider(memory=False).round(town.question())
    shared = Decider()
    shared.round(_town().question(catalogue=town.catalogue))
    assert shared.round(town.question()).commands == oracle.commands


def test_the_count_of_pods_is_said() -> None:
    """With several pods the sentence names one and counts the others."""
    town = _town()
    town.fill("", 3, cpu="1000m")
    found = {entry.node: entry for entry in town.round().verdicts}["a"]
    assert "and 2 more wait" in found.why
    assert found.gates[-1].figures["pods"] == 3


def test_karpenter_looks_at_its_own_nominations_only() -> None:
    """Under karpenter-1.15 nominations are a setting and pending pods change nothing."""
    town = _town()
    town.settings = KARPENTER_1_15
    for name in ("a", "b"):
        town.node(name, "m", conditions=[{"type": "Consolidatable", "status": "True"}])
    _one_pending(town)
    assert moved(town.act()) == ("deleteEmpty", ("a", "b"))


def test_a_drifted_empty_node_goes_all_the_same() -> None:
    """Only the method `empty` waits for pending pods; a drifted node goes."""
    town = _town()
    _one_pending(town)
    town.node("a", "m", drifted=timedelta(hours=1))
    actions = {command.action.value: command.nodes for command in _commands(town)}
    assert actions == {"deleteEmpty": ("b",), "deleteDrifted": ("a",)}


def _commands(town: Town) -> list[Command]:
    return [command for method in town.round(every_method=True).methods for command in method.commands]


def test_a_pod_that_came_in_between_refuses_the_node_at_validation() -> None:
    """A node drops out of its command if a pod waits for it 15 seconds later; the other node goes."""
    town = _town()
    command = town.act()
    assert command is not None
    assert command.nodes == ("a", "b")
    _one_pending(town)
    again = Decider(memory=False).revalidate(command, town.question())
    assert not isinstance(again, Refusal)
    assert again.nodes == ("b",)
    town.pod("waits-too", cpu="3000m")
    refused = Decider(memory=False).revalidate(command, town.question())
    assert isinstance(refused, Refusal)
    assert refused.gate is Gate.NOMINATED
    assert "default/waits" in refused.why


def test_pods_of_a_command_under_way_wait_where_it_planned_them() -> None:
    """Pods of commands in flight have planned places and keep no other empty node."""
    town = _town()
    town.leaving["old"] = LeavingNode(node="old", method=Method.SINGLE_NODE, since=NOW)
    plans = UnderWay(placements=(Placement(node="b", pods=("default/big",)),))
    flight = InFlight(leaving=tuple(town.leaving.values()), nominated=("b",), under_way=plans)
    assert moved(town.round(in_flight=flight).commands[0]) == ("deleteEmpty", ("a",))


@pytest.mark.parametrize(
    ("change", "asked"),
    [
        pytest.param(_nothing, 0, id="nothing waits"),
        pytest.param(_two_pending, 1, id="once for all empty nodes"),
        pytest.param(lambda town: (_two_pending(town), town.fill("a", 1), town.fill("b", 1)), 0, id="no empty node"),
    ],
)
def test_it_is_asked_once_a_round_and_only_if_it_can_matter(
    change: Callable[[Town], None], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is simulated if no pod is pending or no node could go as empty."""
    town = _town()
    town.pool(disruption={"consolidationPolicy": "WhenEmpty"})
    change(town)
    seen: list[tuple[int, ...]] = []
    real = simulation.simulate

    def counted(snapshot: simulation.Snapshot, candidates: tuple[int, ...], *options: object) -> object:
        seen.append(tuple(candidates))
        return real(snapshot, candidates, *options)  # type: ignore[arg-type]

    monkeypatch.setattr("dovetail.decide.scene.simulate", counted)
    assert town.round(every_method=True).verdicts
    assert seen.count(()) == asked


def test_a_pod_with_its_own_scheduler_hint_is_left_to_the_scheduler() -> None:
    """A pod that the scheduler nominated for a node counts on that node."""
    town = _town()
    _one_pending(town)
    pod: Pod = town.pods["waits"]
    status = msgspec.structs.replace(pod.status, nominated_node_name="b")
    town.pods["waits"] = msgspec.structs.replace(pod, status=status)
    assert moved(town.act()) == ("deleteEmpty", ("a",))


def test_the_rule_belongs_to_the_default_profile() -> None:
    """The rule is one of the differences between the profiles."""
    assert DOVETAIL.rules.waiting_pods_nominate
    assert not KARPENTER_1_15.rules.waiting_pods_nominate
