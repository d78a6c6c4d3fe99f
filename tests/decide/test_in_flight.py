"""What is already in progress: leaving nodes, nominated nodes, backoff, and pools that Dovetail does not manage."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight, LeavingNode, Resting
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Condition, Taint
from dovetail.model.settings import DOVETAIL
from tests.support.design_world import NOW, Town, kind, moved

FREE = {"consolidationSavingsThreshold": 0}


def _empty(*nodes: str) -> Town:
    town = Town(kind("m", "0.20"))
    town.pool()
    for name in nodes:
        town.node(name, "m")
    return town


def test_the_snapshot_knows_what_is_in_flight() -> None:
    """Nodes in flight and nodes in the settings are merged and sorted in the snapshot."""
    leaving = LeavingNode(node="b", method=Method.EMPTY, since=NOW)
    settings = replace(DOVETAIL, marked_for_deletion_nodes=("a",), nominated_nodes=("z",))
    in_flight = InFlight(leaving=(leaving,), nominated=("z", "y"))
    found = _empty("a", "b").question(settings=settings, in_flight=in_flight).snapshot().settings
    assert found.marked_for_deletion_nodes == ("a", "b")
    assert found.nominated_nodes == ("y", "z")


def test_a_leaving_node_is_not_taken_twice() -> None:
    """A node of a command in flight is marked, with or without its taint."""
    town = _empty("a", "b")
    town.leaving["a"] = LeavingNode(node="a", method=Method.EMPTY, since=NOW)
    assert moved(town.act()) == ("deleteEmpty", ("b",))
    assert town.verdicts()["a"] == "marked-for-deletion"


def test_a_nominated_node_stays() -> None:
    """An empty replacement, or a destination of a command in flight, is not deleted before its pods come."""
    town = _empty("a", "b")
    town.nominated = ("a",)
    assert moved(town.act()) == ("deleteEmpty", ("b",))
    town.nominated = ("claim-b",)  # a replacement is known by its NodeClaim before its node has come
    assert moved(town.act()) == ("deleteEmpty", ("a",))


def test_a_node_that_the_scheduler_makes_room_on_stays() -> None:
    """A pod that waits for a preemption nominates its node."""
    town = _empty("a", "b")
    town.pod("waiting")
    pod = town.pods["waiting"]
    status = msgspec.structs.replace(pod.status, nominated_node_name="a")
    town.pods["waiting"] = msgspec.structs.replace(pod, status=status)
    assert moved(town.act()) == ("deleteEmpty", ("b",))
    assert town.verdicts()["a"] == "nominated"


def test_pods_of_leaving_nodes_take_room() -> None:
    """The simulation also places pods of leaving nodes, so their room is not free."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption=FREE)
    for name, cpu in (("a", "1000m"), ("b", "2500m"), ("c", "1000m")):
        town.node(name, "m")
        town.pod(f"{name}-0", name, cpu=cpu)
    assert town.act() is not None
    town.leaving["c"] = LeavingNode(node="c", method=Method.SINGLE_NODE, since=NOW)
    assert town.act() is None


def test_a_pool_that_backs_off_launches_nothing() -> None:
    """A pool in backoff launches nothing; deletions without a launch go on."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption=FREE)
    town.node("n", "l")
    town.fill("n", 2, cpu="1000m")
    assert moved(town.act()) == ("replaceCost", ("n",))
    until = NOW + timedelta(minutes=10)
    held = InFlight(back_off={"default": until})
    result = town.round(in_flight=held)
    assert result.commands == ()
    assert [entry.verdict for entry in result.verdicts] == ["back-off"]
    assert result.next_change == until
    assert town.round(now=until, in_flight=held).commands


def test_other_pools_are_only_observed() -> None:
    """Nodes of unmanaged pools stop at the first gate; Karpenter's profile manages all pools."""
    town = _empty("a")
    assert town.round(managed_pools=("other",)).commands == ()
    assert town.round(managed_pools=("other",)).verdicts[0].verdict == "managed"
    assert town.round(managed_pools=("default",)).commands


def test_the_hold_does_not_count() -> None:
    """Dovetail ignores its own hold; it respects a person's annotation and `dovetail.dev/do-not-disrupt`."""
    for annotations, goes in (
        ({names.DO_NOT_DISRUPT: "true"}, False),
        ({names.DO_NOT_DISRUPT: "true", names.HOLD: "x"}, True),
        ({names.DO_NOT_DISRUPT: "true", names.HOLD: "x", names.ALWAYS_DO_NOT_DISRUPT: "true"}, False),
        ({names.ALWAYS_DO_NOT_DISRUPT: "true"}, False),
    ):
        town = Town(kind("m", "0.20"))
        town.pool()
        town.node("n", "m", annotations=annotations)
        assert (town.act() is not None) is goes


def test_our_taint_marks_a_node() -> None:
    """A node with the disruption taint is leaving, even if another process added the taint."""
    town = _empty("a", "b")
    taint = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
    node = town.nodes["a"]
    town.nodes["a"] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(taint,)))
    assert town.verdicts()["a"] == "marked-for-deletion"
    row = next(row for row in town.round().budgets if row.reason.value == "Empty")
    assert row.used == 1


@pytest.mark.parametrize("memory", [True, False], ids=["memory", "oracle"])
def test_a_node_that_backs_off_is_left_alone(memory: bool) -> None:
    """A node whose last command was rolled back at the last moment stops at `back-off`, with the reason, until then."""
    town = _empty("a", "b")
    until = NOW + timedelta(minutes=2)
    decider = Decider(memory=memory)
    resting = {"a": Resting(until=until, why="pod d/p must not be disrupted")}
    assert decider.round(town.question()).commands[0].nodes == ("a", "b")
    held = decider.round(town.question(in_flight=InFlight(resting=resting)))
    assert held.commands[0].nodes == ("b",)
    [verdict] = [entry for entry in held.verdicts if entry.node == "a"]
    assert verdict.verdict == "back-off"
    assert verdict.why == (
        "Its last command was rolled back (pod d/p must not be disrupted); it is left alone for 2m more."
    )
    assert held.next_change == until
    again = decider.round(town.question(now=until, in_flight=InFlight(resting=resting)))
    assert again.commands[0].nodes == ("a", "b")
    assert decider.round(town.question()).commands[0].nodes == ("a", "b")


def test_repair_leaves_a_replacement_under_way_and_a_resting_node_alone() -> None:
    """An ill node that a command in flight sends pods to, or that backs off, is not repaired meanwhile."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"repair": [{"condition": "Bad", "status": "True", "for": "1m"}], "budgets": [{"nodes": "5"}]})
    for name in ("a", "b", "c", "d", "e", "f"):
        town.node(name, "m")
        town.pod(f"{name}-0", name, cpu="3000m")
    node = town.nodes["a"]
    bad = Condition(type="Bad", status="True", last_transition_time=NOW - timedelta(hours=1))
    status = msgspec.structs.replace(node.status, conditions=(*node.status.conditions, bad))
    town.nodes["a"] = msgspec.structs.replace(node, status=status)
    assert moved(town.act()) == ("replaceUnhealthy", ("a",))
    town.nominated = ("a",)
    assert town.act() is None
    town.nominated = ()
    resting = InFlight(resting={"a": Resting(until=NOW + timedelta(minutes=1), why="x")})
    assert town.round(in_flight=resting).commands == ()
