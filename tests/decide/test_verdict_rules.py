"""Verdicts, rounds and validation: rules that show only in sentences, figures or skipped work."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dovetail.decide import round as rounds
from dovetail.decide import verdict
from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.refusal import Refusal
from dovetail.decide.round import decide
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.command import Action, Command, Method
from dovetail.model.karpenter import FeatureGate, KarpenterSettings
from dovetail.model.policies.policy import ConsolidationPolicy, DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.model.verdicts import Gate
from tests.support.design_world import NOW, Town, kind, moved
from tests.support.nodes import facts_of, minutes
from tests.support.scenes import scene_of

FREE = {"consolidationSavingsThreshold": 0}
HOUR = timedelta(hours=1)


def _town(*, pods: int = 1, cpu: str = "100m", **disruption: Any) -> Town:
    """Build a node `n` whose pods fit on `other`, which is protected."""
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={**FREE, **disruption})
    town.node("n", "m")
    town.fill("n", pods, cpu=cpu)
    town.node("other", "xl", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("q", "other")
    return town


def _gates(town: Town, name: str = "n", **question: Any) -> list[tuple[str, bool]]:
    found = next(entry for entry in town.round(every_method=True, **question).verdicts if entry.node == name)
    return [(result.gate.value, result.passed) for result in found.gates][-3:]


def test_which_gates_are_told() -> None:
    """A refusal by price shows a passed simulation; a refusal by the simulation does not."""
    assert _gates(_town())[1:] == [("simulation", True), ("savings-threshold", True)]
    full = _town(cpu="3900m")
    full.pod("big", "other", cpu="15900m")
    assert _gates(full) == [("budget", True), ("simulation", True), ("price", False)]
    nowhere = _town()
    nowhere.pod("p", "n", spec={"nodeSelector": {"example.com/rack": "9"}})
    assert _gates(nowhere)[1:] == [("budget", True), ("simulation", False)]


def test_what_is_told_of_savings() -> None:
    """Savings have a dollar sign in sentences and none in figures."""
    found = next(entry for entry in _town().round(every_method=True).verdicts if entry.node == "n")
    last = found.gates[-1]
    assert last.why == "It saves $0.20/h and has to save $0.00/h."
    assert last.figures == {"savingsPerHour": "0.20", "requiredSavingsPerHour": "0.00"}


def test_hasty_verdicts_ask_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a number of pods all gates are evaluated in order; above it the first certain refusal is used."""
    town = _town(pods=2, cpu="1900m")
    town.pod("big", "other", cpu="15900m")
    monkeypatch.setattr(verdict, "FIRST_GATE_PODS_MAX", 2)
    assert _gates(town)[1:] == [("simulation", True), ("price", False)]
    monkeypatch.setattr(verdict, "FIRST_GATE_PODS_MAX", 1)
    assert _gates(town)[1:] == [("budget", True), ("price", False)]


@pytest.mark.parametrize(
    ("spent", "empty", "asked", "waits"),
    [(0, False, False, False), (1, False, False, True), (1, True, False, False), (1, False, True, False)],
)
@pytest.mark.parametrize("method", [Method.SINGLE_NODE, Method.DRIFTED])
def test_who_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch, spent: int, empty: bool, asked: bool, waits: bool, method: Method
) -> None:
    """Above a number of pods, nodes that were not simulated wait for their turn."""
    monkeypatch.setattr(verdict, "PODS_MAX", 1)
    cost = method is Method.SINGLE_NODE
    town = Town(kind("m", "1"))
    town.pool()
    town.node("n", "m")
    if not empty:
        town.pod("p", "n")
    work = Work(Scene.of(town.question()))
    facts = work.scene.by_name["n"]
    if asked and cost:
        work.judged[facts.name] = None
    elif asked:
        work.simulate((facts,), for_cost=False)
    work.pods_simulated = spent
    assert verdict._waits_for_its_turn(work, method, facts) is waits


@pytest.mark.parametrize("most", range(1, 7))
def test_verdicts_do_not_depend_on_what_was_read_before(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """What other parts of a result simulate when they are read does not use up the pods of the verdicts."""
    monkeypatch.setattr(verdict, "PODS_MAX", most)
    monkeypatch.setattr(verdict, "FIRST_GATE_PODS_MAX", 0)
    town = _town(consolidationSavingsThreshold=9, disruptionPrice=100)
    town.node("idle", "m")
    for name in ("a", "b"):
        town.node(name, "m", drifted=HOUR)
        town.fill(name, 1)
    town.pod("stuck", "b", spec={"nodeSelector": {"no": "where"}})
    first, other = town.round(), town.round()
    assert first.could_save["n"]
    assert first.brief_verdicts == other.brief_verdicts
    assert first.verdicts == other.verdicts


def test_a_pool_whose_action_did_not_hold() -> None:
    """Cost actions of the pool wait until the given time; drift does not."""
    flight = InFlight(regrown={"default": NOW + minutes(7)})
    town = _town()
    found = next(entry for entry in town.round(every_method=True, in_flight=flight).verdicts if entry.node == "n")
    assert found.verdict == "stabilization"
    assert found.why.endswith("a node came back; it waits 7m more.")
    assert town.round(in_flight=flight).commands == ()
    assert town.round(in_flight=InFlight(regrown={"default": NOW})).commands
    assert town.round(in_flight=InFlight(regrown={"other": NOW + minutes(7)})).commands
    town.node("n", "m", drifted=HOUR)
    assert _gates(town, in_flight=flight)[-1] == ("simulation", True)


def test_a_batch_is_not_judged_alone() -> None:
    """A node of the batch has the batch's chain; other nodes have the chain of singleNode."""
    town = _town()
    town.node("n2", "m")
    town.fill("n2", 1)
    work = Work(Scene.of(town.question()))
    runs = {method: ask(work) for method, ask in rounds.METHODS.items() if method is not Method.UNHEALTHY}
    batch = frozenset(name for command in runs[Method.MULTI_NODE].commands for name in command.nodes)
    assert batch == {"n", "n2"}
    for name, there, not_there in (
        ("n", Method.MULTI_NODE, Method.SINGLE_NODE),
        ("other", Method.SINGLE_NODE, Method.MULTI_NODE),
    ):
        chains = verdict.chains_of(work, runs, work.scene.by_name[name], batch)
        assert there in chains
        assert not_there not in chains
    del runs[Method.DRIFTED]
    assert Method.DRIFTED not in verdict.chains_of(work, runs, work.scene.by_name["other"], batch)


def test_the_batch_is_told_as_such() -> None:
    """The verdict of a batch carries the figures of the whole batch."""
    town = _town()
    town.node("n2", "m")
    town.fill("n2", 1)
    found = next(entry for entry in town.round(every_method=True).verdicts if entry.node == "n2")
    assert found.why == "It would go together with others, to save money."
    assert found.gates[-1].why == "The batch saves $0.40/h and has to save $0.00/h."


# ---------------------------------------------------------------- the round


def test_methods_that_are_left_out() -> None:
    """Excluded methods are not evaluated."""
    town = _town()
    town.node("idle", "m")
    work = Work(Scene.of(town.question()))
    assert moved(decide(work).commands[0]) == ("deleteEmpty", ("idle",))
    assert moved(decide(work, without=(Method.EMPTY,)).commands[0]) == ("deleteCost", ("n",))


def test_blocked_moves_are_those_of_the_threshold() -> None:
    """Only moves that the threshold refused count as blocked."""
    assert [entry.nodes for entry in _town(consolidationSavingsThreshold=9).round().blocked] == [("n",)]
    full = _town(cpu="3900m")
    full.pod("big", "other", cpu="15900m")
    assert full.round().blocked == ()


def test_buffers_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are counted by node; buffers without room are left out."""
    town = _town()
    context = Scene.of(town.question())
    first, second = (context.snapshot.index.get(name) for name in ("n", "other"))
    monkeypatch.setattr(rounds, "buffers_by_name", lambda _: {"b": [second, first, None, second], "c": []})
    rows = [(row.name, row.replicas, row.nodes, row.carried) for row in decide(Work(context)).buffers]
    assert rows == [("b", 4, (("n", 1), ("other", 2)), 3), ("c", 0, (), 0)]


def _refused(*nodes: str) -> Any:
    return tuple(facts_of(name=name, pool_name=name[0]) for name in nodes), Refusal(gate=Gate.PRICE, why="")


def _command(*nodes: str) -> Command:
    return Command(action=Action.DELETE_COST, method=Method.MULTI_NODE, nodes=nodes)


@pytest.mark.parametrize(
    ("several", "one", "told"),
    [
        (None, None, []),
        (([_refused("a1", "b1"), _refused("a2")], []), None, [("a", False, None)]),
        (([_refused("a2"), _refused("a1", "b1")], []), None, [("a", False, 0.25), ("b", False, 0.5)]),
        (([_refused("a2")], [_command("a1", "b1")]), None, [("a", True, 0.25), ("b", True, 0.5)]),
        (
            None,
            ([_refused("a1"), _refused("b1"), _refused("a2")], []),
            [("a", False, None), ("b", False, 9.0), ("a", False, None)],
        ),
        (([], []), ([_refused("b2")], [_command("b1")]), [("b", False, None), ("b", True, 9.0)]),
    ],
)
def test_moves_that_were_judged(several: Any, one: Any, told: list[tuple[str, bool, float | None]]) -> None:
    """The result lists the last batch and all single nodes that were judged, by pool, with scores."""
    runs = {
        method: MethodRun(method=method, refused=tuple(entry[0]), commands=tuple(entry[1]))
        for method, entry in ((Method.MULTI_NODE, several), (Method.SINGLE_NODE, one))
        if entry is not None
    }
    nodes = [facts_of(name=name, pool_name=name[0]) for name in ("a1", "a2", "b1", "b2")]
    balanced = DisruptionPolicy(consolidation_policy=ConsolidationPolicy.BALANCED)
    work = Work(scene_of(nodes, {"a": DisruptionPolicy(), "b": balanced}))
    work.scores = {("a1", "b1"): {"a": 0.25, "b": 0.5}, ("b1",): {"b": 9.0}}
    found = list(rounds._judged_moves(work, runs))
    assert [(entry.node_pool, entry.approved, entry.score) for entry in found] == told
    policies = {"a": "WhenEmptyOrUnderutilized", "b": "Balanced"}
    assert all(entry.policy == policies[entry.node_pool] for entry in found)


def test_each_candidate_alone() -> None:
    """On request, each drift and singleNode candidate has its own result with a reason."""
    town = _town()
    town.node("d", "m", drifted=HOUR)
    town.fill("d", 1)
    assert all(entry.alone is None for entry in town.round(every_method=True).methods)
    found = {entry.method: entry.alone for entry in town.round(every_method=True, every_candidate=True).methods}
    assert {method for method, alone in found.items() if alone is not None} == {Method.DRIFTED, Method.SINGLE_NODE}
    (drifted,) = found[Method.DRIFTED] or ()
    assert (drifted.node, drifted.why, drifted.command is not None) == ("d", "Every pod finds a place.", True)


def _repairing(*pools: str, gates: Sequence[tuple[FeatureGate, bool]] = ()) -> Town:
    """Build pools of which some repair; `n` of the first pool has been unready for an hour."""
    settings = replace(DOVETAIL, karpenter=KarpenterSettings(feature_gates=tuple(gates)))
    town = Town(kind("m", "0.20"), settings=settings)
    rule = {"condition": "Ready", "status": "False", "for": "10m"}
    for pool in pools:
        town.pool(pool, disruption={"consolidateAfter": "Never", **({"repair": [rule]} if pool == "repairs" else {})})
    return town


def test_who_repairs() -> None:
    """Repair runs if a pool asks for it and Karpenter does not repair."""
    for pools, gates, asked in (
        (("plain",), (), False),
        (("plain", "repairs"), (), True),
        (("plain", "repairs"), ((FeatureGate.NODE_REPAIR, True),), False),
    ):
        context = Scene.of(_repairing(*pools, gates=gates).question())
        if "repairs" in pools:
            assert context.policies["repairs"].repair, context.policies["repairs"].problems
        assert (Method.UNHEALTHY in rounds._methods(context)) is asked


# ---------------------------------------------------------------- again


def _again(town: Town, command: Command) -> Command | Refusal:
    return Decider(memory=False).revalidate(command, town.question())


def test_budgets_are_counted_down_again() -> None:
    """A command that exceeds the budget waits as a whole, but empty nodes drop out one by one."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [{"nodes": "2"}]})
    for name in "abc":
        town.node(name, "m")
    command = Command(action=Action.DELETE_EMPTY, method=Method.EMPTY, nodes=("a", "b"))
    assert moved(_again(town, command)) == ("deleteEmpty", ("a", "b"))  # type: ignore[arg-type]
    again = _again(town, replace(command, nodes=("a", "b", "c")))
    assert isinstance(again, Command)
    assert again.nodes == ("a", "b")
    town.pool(disruption={"budgets": [{"nodes": "0"}]})
    refusal = _again(town, command)
    assert isinstance(refusal, Refusal)
    assert (refusal.gate, refusal.why.startswith("a: ")) == (Gate.BUDGET, True)


@pytest.mark.parametrize("method", [Method.EMPTY, Method.EXPIRED])
@pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter"])
def test_empties_of_any_method_drop_out(method: Method, settings: Any) -> None:
    """A command without pods and replacements keeps its empty nodes; Karpenter does not check this."""
    if method is Method.EXPIRED and settings is KARPENTER_1_15:
        return
    town = Town(kind("m", "0.20"), settings=settings)
    town.pool(disruption={"consolidateAfter": "0s", "expireAfter": "30m"} if settings is DOVETAIL else {})
    ready = [{"type": "Consolidatable", "status": "True"}]
    for name in "ab":
        town.node(name, "m", conditions=ready)
    command = Command(action=Action.DELETE_EMPTY, method=method, nodes=("a", "b"))
    town.pod("late", "b")
    again = _again(town, command)
    assert isinstance(again, Command)
    assert again.nodes == ("a",)


def _drifting(*kinds: Any) -> tuple[Town, Command]:
    town = Town(*(kinds or (kind("m", "0.20"), kind("l", "0.40", cpu=8))))
    town.pool(disruption={"consolidateAfter": "Never"})
    town.node("n", "m", drifted=HOUR)
    town.fill("n", 2, cpu="1500m")
    command = town.act()
    assert command is not None
    assert len(command.replacements) == 1
    return town, command


def test_a_planned_replacement_must_still_do() -> None:
    """The planned types must still fit in the planned pool, for forced moves too; fewer new nodes are fine."""
    town, command = _drifting()
    assert _again(town, command) == command
    town.pod("more", "n", cpu="1500m")
    refusal = _again(town, command)
    assert isinstance(refusal, Refusal)
    assert refusal.gate is Gate.NEW_NODES
    town, command = _drifting()
    other = replace(command, replacements=(replace(command.replacements[0], node_pool="elsewhere"),))
    assert isinstance(_again(town, other), Refusal)
    town.node("fresh", "l")
    again = _again(town, command)
    assert isinstance(again, Command)
    assert (again.replacements, again.action) == ((), Action.DELETE_DRIFTED)
    more = _again(town, replace(command, replacements=()))
    assert isinstance(more, Command)


def test_more_new_nodes_than_planned() -> None:
    """A command that now needs more new nodes is refused with both numbers."""
    town, command = _drifting(kind("m", "0.20"))
    town.pod("more", "n", cpu="1500m")
    refusal = _again(town, replace(command, replacements=()))
    assert isinstance(refusal, Refusal)
    assert refusal.figures["planned"] == 0
    assert refusal.instead is None


def test_only_the_planned_types_are_priced() -> None:
    """A planned type that became too expensive refuses the command; drift has no price gate."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4), kind("x", "0.10", cpu=4, memory=8))
    town.pool(disruption=FREE)
    town.node("n", "l")
    town.fill("n", 2, cpu="1000m")
    command = town.act()
    assert command is not None
    planned = replace(command, replacements=(replace(command.replacements[0], instance_types=("m",)),))
    again = _again(town, planned)
    assert isinstance(again, Command)
    assert (again.replacements[0].instance_types, again.savings) == (("m",), 2 * 10**17)
    town.kinds["m"] = kind("m", "0.40", cpu=4)
    refusal = _again(town, planned)
    assert isinstance(refusal, Refusal)
    assert refusal.gate is Gate.PRICE
    town, drift = _drifting()
    town.kinds["m"] = kind("m", "9.00", cpu=4)
    town.kinds["l"] = kind("l", "9.00", cpu=8)
    assert isinstance(_again(town, drift), Command)


@pytest.mark.parametrize("pods", [0, 1])
def test_a_static_pools_node_again(pods: int) -> None:
    """A static pool's node passes validation alone if it may still go, also an empty one."""
    town = Town(kind("m", "0.20"))
    town.pool("fixed", replicas=2, disruption={"budgets": [{"nodes": "1"}]})
    for name in ("a", "b"):
        town.node(name, "m", pool="fixed", drifted=HOUR)
        if pods:
            town.fill(name, pods)
    command = town.act()
    assert command is not None
    assert command.terminate_first
    assert _again(town, command) == command
    town.pool("fixed", replicas=1, disruption={"budgets": [{"nodes": "1"}]})
    assert isinstance(_again(town, command), Refusal)


def test_balanced_again() -> None:
    """Dovetail scores a command again at validation; Karpenter does not."""
    balanced = {**FREE, "consolidationPolicy": "Balanced"}
    for settings, stops in ((DOVETAIL, True), (KARPENTER_1_15, None)):
        town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64), settings=settings)
        ready = [{"type": "Consolidatable", "status": "True"}]
        town.pool(disruption=FREE)
        town.node("n", "m", conditions=ready)
        town.fill("n", 9)
        town.node("other", "xl", annotations={names.DO_NOT_DISRUPT: "true"}, conditions=ready)
        town.pod("q", "other")
        command = town.act()
        assert command is not None
        assert command.nodes == ("n",)
        town.pool(disruption=balanced)
        again = _again(town, command)
        if stops is None:
            stops = settings.rules.revalidates_balanced
        assert isinstance(again, Refusal) is stops
        if stops:
            assert isinstance(again, Refusal)
            assert again.gate is Gate.BALANCED
