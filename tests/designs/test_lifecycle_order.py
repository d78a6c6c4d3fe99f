"""Design lifecycle-controller: the order of the methods and the names of the actions."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.model import names
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from tests.support.design_world import Town, kind, moved

HOUR = timedelta(hours=1)


def _town() -> Town:
    """Return one node for every method: empty, expired, drifted, and two for cost."""
    town = Town(kind("m", "0.40"), kind("s", "0.10", cpu=1, memory=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0, "expireAfter": "100h"})
    town.node("empty", "m")
    town.node("expired", "m", age=101 * HOUR)
    town.node("drifted", "m", drifted=HOUR)
    town.node("cost-1", "m")
    town.node("cost-2", "m")
    for name in ("expired", "drifted", "cost-1", "cost-2"):
        town.fill(name, 1, cpu="200m")
    return town


def test_empty_then_expired_then_drifted_then_cost() -> None:
    """Lifecycle-controller, Order of Node Evaluation: emptiness, expired nodes, drifted nodes, then cost."""
    town = _town()
    seen = []
    for _ in range(10):
        command = town.act()
        if command is None:
            break
        seen.append(command.action.value)
        for name in command.nodes:
            town.remove(name)
    assert seen[:3] == ["deleteEmpty", "deleteExpired", "deleteDrifted"]
    assert set(seen[3:]) <= {"deleteCost", "replaceCost"}
    assert seen[3:]


def test_every_method_on_the_untouched_snapshot() -> None:
    """A round takes the first method that acts; on request each method answers separately."""
    result = _town().round(every_method=True)
    assert [entry.method.value for entry in result.methods] == [
        "empty", "expired", "drifted", "multiNode", "singleNode",
    ]  # fmt: skip
    assert [entry.action.value for entry in result.commands] == ["deleteEmpty"]
    first = {entry.method.value: entry.commands[0].action.value for entry in result.methods if entry.commands}
    assert first["expired"] == "deleteExpired"
    assert first["drifted"] == "deleteDrifted"
    assert first["singleNode"] in ("deleteCost", "replaceCost")


@pytest.mark.parametrize("why", ["expired", "drifted"])
def test_replace_where_pods_find_no_room(why: str) -> None:
    """Lifecycle-controller, LifecycleActions: an expired or drifted node whose pods find no room is replaced first."""
    town = Town(kind("m", "0.40"))
    town.pool(disruption={"expireAfter": "100h"})
    if why == "expired":
        town.node("n", "m", age=101 * HOUR)
    else:
        town.node("n", "m", drifted=HOUR)
    town.fill("n", 3, cpu="1000m")
    command = town.act()
    assert command is not None
    assert command.action.value == {"expired": "replaceExpired", "drifted": "replaceDrifted"}[why]
    assert [entry.instance_types for entry in command.replacements] == [("m",)]


def test_oldest_expiry_first() -> None:
    """docs/rules.md#methods: the node that expired first goes first."""
    town = Town(kind("m", "0.40"))
    town.pool(disruption={"expireAfter": "100h", "budgets": [{"nodes": "1"}]})
    for name, age in (("a", 101), ("b", 103), ("c", 102)):
        town.node(name, "m", age=age * HOUR)
        town.fill(name, 1)
    assert moved(town.act()) == ("deleteExpired", ("b",))


@pytest.mark.parametrize(("age", "goes"), [(timedelta(hours=100) - timedelta(seconds=1), False), (100 * HOUR, True)])
def test_expired_from_the_very_second(age: timedelta, goes: bool) -> None:
    """docs/rules.md#methods: a node is expired if age >= expireAfter."""
    town = Town(kind("m", "0.40"))
    town.pool(disruption={"expireAfter": "100h", "consolidateAfter": "Never"})
    town.node("n", "m", age=age)
    town.fill("n", 1)
    assert (town.act() is not None) is goes


def test_empty_expired_nodes_go_together() -> None:
    """docs/rules.md#methods: empty nodes that are expired or drifted are deleted together."""
    town = Town(kind("m", "0.40"))
    town.pool(disruption={"expireAfter": "100h", "consolidateAfter": "Never"})
    for name in ("a", "b", "c"):
        town.node(name, "m", age=101 * HOUR)
    assert moved(town.act()) == ("deleteExpired", ("a", "b", "c"))


def test_several_commands_side_by_side() -> None:
    """docs/rules.md#methods: a command takes one node, so a budget of three leads to three commands."""
    town = Town(kind("m", "0.40"))
    town.pool(disruption={"budgets": [{"nodes": "3"}], "consolidateAfter": "Never"})
    for number in range(6):
        town.node(f"n{number}", "m", drifted=HOUR)
        town.fill(f"n{number}", 1)
    count = 0
    while (command := town.act()) is not None:
        town.mark(command)
        count += 1
    assert count == 3


@pytest.mark.parametrize("blocked_by", ["pod", "pdb", "both allowed by a deadline"])
def test_blocked_by_pods_that_cannot_be_evicted(blocked_by: str) -> None:
    """Drift is blocked by pods that can't be evicted; a terminationGracePeriod lifts that (docs/deviations.md).

    Design: lifecycle-controller.
    """
    import msgspec

    town = Town(kind("m", "0.40"))
    town.pool(disruption={"consolidateAfter": "Never"})
    town.node("n", "m", drifted=HOUR)
    town.node("other", "m")
    if blocked_by == "pdb":
        town.pod("p", "n", labels={"app": "x"})
        town.pdb("guard", {"app": "x"}, allowed=0)
    else:
        town.pod("p", "n", annotations={names.DO_NOT_DISRUPT: "true"})
    if blocked_by.startswith("both"):
        claim = town.claims["n"]
        spec = msgspec.structs.replace(claim.spec, termination_grace_period="1h")
        town.claims["n"] = msgspec.structs.replace(claim, spec=spec)
        assert town.act() is not None
    else:
        assert town.act() is None
        assert town.verdicts()["n"] == {"pod": "pod-do-not-disrupt", "pdb": "pdb"}[blocked_by]


def test_cost_waits_for_the_cluster_to_settle() -> None:
    """Lifecycle-controller and docs/deviations.md: stabilization holds cost actions only."""
    town = _town()
    town.stabilized_until = town.now + timedelta(minutes=5)
    for _ in range(3):
        command = town.act()
        assert command is not None
        for name in command.nodes:
            town.remove(name)
    assert town.act() is None
    assert town.verdicts() == {"cost-1": "stabilization", "cost-2": "stabilization"}
    assert town.round().next_change == town.stabilized_until
    town.now = town.stabilized_until
    assert town.act() is not None


def test_lower_disruption_cost_first() -> None:
    """Lower disruption costs first; a setting brings Karpenter's order back.

    Design: lifecycle-controller, Order of Node Evaluation.
    """
    town = Town(kind("m", "0.40"), kind("l", "0.80", cpu=8))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name, type_name, pods in (("few", "m", 2), ("many-dear", "l", 3), ("many", "m", 4)):
        town.node(name, type_name)
        town.fill(name, pods)
    order = [entry.node for entry in town.round(every_method=True).methods[-1].candidates]
    assert order == ["few", "many-dear", "many"]
    from dovetail.model.settings import CandidateOrder

    town.settings = replace(DOVETAIL, candidate_order=CandidateOrder.SAVINGS_RATIO)
    order = [entry.node for entry in town.round(every_method=True).methods[-1].candidates]
    assert order == ["many-dear", "few", "many"]


def test_a_static_pool_terminates_first() -> None:
    """docs/rules.md#methods: a static pool's drifted node is deleted and Karpenter refills; its profile replaces it."""
    for settings, action, launched in ((DOVETAIL, "deleteDrifted", []), (KARPENTER_1_15, "replaceDrifted", [()])):
        town = Town(kind("m", "0.40"), settings=settings)
        town.pool("fixed", replicas=2, disruption={})
        town.node("a", "m", pool="fixed", drifted=HOUR)
        town.node("b", "m", pool="fixed")
        town.fill("a", 1)
        town.fill("b", 1)
        command = town.act()
        assert moved(command) == (action, ("a",))
        assert command is not None
        assert [entry.instance_types for entry in command.replacements] == launched
