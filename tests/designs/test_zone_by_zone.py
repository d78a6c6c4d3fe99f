"""Its user stories run to the end, and its rules one by one.

Design: topology-budgets, AZ-sequential disruption budget for drift.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.decide.in_flight import LeavingNode
from dovetail.model import names
from dovetail.model.command import Method
from tests.support.design_world import NOW, Town, kind, moved

MINUTE = timedelta(minutes=1)
ONE_PER_ZONE = {"nodes": "1", "topologyKey": names.ZONE, "sequential": True, "reasons": ["Drifted"]}
WEDNESDAY_NOON = datetime(2026, 5, 13, 12, 0, tzinfo=UTC)


def _town(budgets: list[dict[str, Any]], per_zone: int = 3, now: datetime = NOW, pods: int = 1) -> Town:
    """Return three zones of drifted nodes; zone a drifted first, then b, then c, and in each the lower number first."""
    town = Town(kind("m", "0.20"), now=now)
    town.pool(disruption={"budgets": budgets, "consolidateAfter": "Never"})
    for place, zone in enumerate("abc"):
        for number in range(per_zone):
            name = f"{zone}{number}"
            town.node(name, "m", zone=zone, drifted=timedelta(hours=30 - 10 * place) - number * MINUTE)
            town.fill(name, pods)
    return town


def _roll(town: Town, step: timedelta = MINUTE, limit: int = 500) -> Iterator[list[str]]:
    """Play a roll: rounds until nothing more starts, then the oldest in flight ends; give who is in flight."""
    for _ in range(limit):
        while (command := town.act()) is not None:
            town.mark(command)
        if not town.leaving:
            return
        yield sorted(town.leaving)
        town.remove(min(town.leaving, key=lambda name: (town.leaving[name].since, name)))
        town.now += step
    raise AssertionError("the roll does not end")


def test_story_1_one_zone_after_the_other() -> None:
    """A, then b, then c, never two nodes and never two zones at once.

    Design: topology-budgets, Rolling drift across AZs one at a time.
    """
    flights = list(_roll(_town([ONE_PER_ZONE])))
    assert flights == [[f"{zone}{number}"] for zone in "abc" for number in range(3)]


def test_story_2_business_hours_and_a_cap() -> None:
    """Drift from 9 to 17 only, empty nodes at any time.

    Design: topology-budgets, Combining sequential drift with a global budget.
    """
    closed = {"nodes": "0", "schedule": "0 17 * * mon-fri", "duration": "16h", "reasons": ["Drifted"]}
    town = _town([closed, ONE_PER_ZONE, {"nodes": "10%"}], now=WEDNESDAY_NOON)
    assert moved(town.act()) == ("deleteDrifted", ("a0",))
    for hour, minute, goes in ((8, 59, False), (9, 0, True), (16, 59, True), (17, 0, False), (23, 0, False)):
        town.now = WEDNESDAY_NOON.replace(hour=hour, minute=minute)
        assert (town.act() is not None) is goes, (hour, minute)
    town.now = WEDNESDAY_NOON.replace(hour=9)
    flights = [(town.now.hour, flight) for flight in _roll(town, step=timedelta(hours=1))]
    assert all(9 <= hour < 17 for hour, _ in flights)
    assert [flight for _, flight in flights] == [[f"{zone}{n}"] for zone in "abc" for n in range(3)][: len(flights)]
    assert len(flights) == 8  # one an hour from 9 to 16 o'clock; the ninth waits for the next morning


def test_story_2_consolidation_goes_on_at_night() -> None:
    """Topology-budgets, Combining ...: consolidation can still proceed independently, outside the drift window."""
    closed = {"nodes": "0", "schedule": "0 17 * * mon-fri", "duration": "16h", "reasons": ["Drifted"]}
    town = _town([closed, ONE_PER_ZONE, {"nodes": "10%"}], now=WEDNESDAY_NOON.replace(hour=20))
    town.pool(disruption={"budgets": [closed, ONE_PER_ZONE, {"nodes": "10%"}], "consolidateAfter": "0s"})
    town.node("idle", "m", zone="a")
    assert moved(town.act()) == ("deleteEmpty", ("idle",))


def test_story_3_a_quarter_of_the_zone() -> None:
    """Topology-budgets, Percentage-based per-zone budget: two of eight at once in the active zone, zones in turn."""
    budget = {**ONE_PER_ZONE, "nodes": "25%"}
    flights = list(_roll(_town([budget], per_zone=8)))
    assert max(len(flight) for flight in flights) == 2
    assert all(len({name[0] for name in flight}) == 1 for flight in flights)
    seen = list(dict.fromkeys(name[0] for flight in flights for name in flight))
    assert seen == ["a", "b", "c"]
    assert {name for flight in flights for name in flight} == {f"{z}{n}" for z in "abc" for n in range(8)}


def test_without_sequential_each_domain_has_its_own() -> None:
    """Spec section 7: a topology budget without `sequential` caps every domain the same way, all at once."""
    budget = {"nodes": "1", "topologyKey": names.ZONE, "reasons": ["Drifted"]}
    town = _town([budget])
    started = []
    while (command := town.act()) is not None:
        town.mark(command)
        started.extend(command.nodes)
    assert started == ["a0", "b0", "c0"]


def test_the_smallest_of_several_topology_budgets() -> None:
    """Spec section 7: the smallest topology budget without `sequential` counts."""
    budgets = [{"nodes": nodes, "topologyKey": names.ZONE, "reasons": ["Drifted"]} for nodes in ("2", "1")]
    town = _town(budgets)
    while (command := town.act()) is not None:
        town.mark(command)
    assert sorted(town.leaving) == ["a0", "b0", "c0"]


def test_a_flat_budget_still_caps_the_whole() -> None:
    """The flat budget limits, the topology budget is no part of it.

    Design: topology-budgets, Interaction with NodePool-level budgets.
    """
    town = _town([{**ONE_PER_ZONE, "nodes": "3"}, {"nodes": "2"}])
    while (command := town.act()) is not None:
        town.mark(command)
    assert sorted(town.leaving) == ["a0", "a1"]
    rows = {row.reason.value: row.allowed for row in town.round().budgets}
    assert rows["Drifted"] == 2


def _in_flight(town: Town, name: str, method: Method, since: timedelta) -> None:
    town.leaving[name] = LeavingNode(node=name, method=method, since=town.now - since)


@pytest.mark.parametrize(
    ("in_flight", "turn"),
    [
        pytest.param([("c0", Method.DRIFTED, 5)], "c", id="the zone that has nodes in flight goes on"),
        pytest.param([("c0", Method.EMPTY, 5)], "c", id="whatever they are in flight for"),
        pytest.param([("b0", Method.EMPTY, 9), ("c0", Method.DRIFTED, 1)], "c", id="of several, one for drift"),
        pytest.param([("b0", Method.DRIFTED, 1), ("c0", Method.DRIFTED, 9)], "c", id="then the longest in flight"),
        pytest.param([("b0", Method.DRIFTED, 5), ("c0", Method.DRIFTED, 5)], "b", id="then by name"),
        pytest.param([], "a", id="none in flight: the oldest drift"),
    ],
)
def test_the_active_zone(in_flight: list[tuple[str, Method, int]], turn: str) -> None:
    """Topology-budgets, Zone Selection, and spec section 7 for several zones in flight."""
    town = _town([{**ONE_PER_ZONE, "nodes": "2"}])
    for name, method, since in in_flight:
        _in_flight(town, name, method, since * MINUTE)
    command = town.act()
    assert command is not None
    assert command.nodes[0][0] == turn


def test_the_allowance_counts_what_is_in_flight() -> None:
    """Topology-budgets, Zone Selection 3: the zone's allowance less the nodes in flight there."""
    town = _town([{**ONE_PER_ZONE, "nodes": "2"}])
    _in_flight(town, "a2", Method.EMPTY, MINUTE)
    assert moved(town.act()) == ("deleteDrifted", ("a0",))
    _in_flight(town, "a0", Method.DRIFTED, MINUTE)
    assert town.act() is None
    assert town.verdicts()["a1"] == "topology-budget"
    assert town.verdicts()["b0"] == "topology-budget"


def test_terminating_nodes_are_not_counted() -> None:
    """A node with condition InstanceTerminating is neither in the base nor in flight.

    Design: topology-budgets, Zone Selection 5.
    """
    town = _town([{**ONE_PER_ZONE, "nodes": "50%"}], per_zone=2)
    gone = [{"type": names.CONDITION_INSTANCE_TERMINATING, "status": "True"}]
    town.node("a9", "m", zone="a", drifted=timedelta(hours=40), conditions=gone)
    town.pod("a9-0", "a9")
    command = town.act()
    assert moved(command) == ("deleteDrifted", ("a0",))
    assert command is not None
    town.mark(command)
    assert town.act() is None  # 50 % of two, not of three


def test_nodes_without_the_label_are_a_domain() -> None:
    """Spec section 7: nodes that lack the label form a domain of their own."""
    town = Town(kind("m", "0.20"))
    town.pool(
        disruption={"budgets": [{**ONE_PER_ZONE, "topologyKey": "example.com/rack"}], "consolidateAfter": "Never"}
    )
    for name, rack, since in (("n0", None, 9), ("n1", None, 8), ("r0", "r", 7)):
        labels = {"example.com/rack": rack} if rack else {}
        town.node(name, "m", drifted=timedelta(hours=since), labels=labels)
        town.fill(name, 1)
    assert list(_roll(town)) == [["n0"], ["n1"], ["r0"]]


def test_only_the_first_active_sequential_budget_counts() -> None:
    """Topology-budgets, Limitations: of several sequential budgets the first that is active is used."""
    night = {**ONE_PER_ZONE, "nodes": "3", "schedule": "0 20 * * *", "duration": "2h"}
    town = _town([night, ONE_PER_ZONE], now=WEDNESDAY_NOON)
    for hour, count in ((12, 1), (20, 3)):
        town.now = WEDNESDAY_NOON.replace(hour=hour)
        town.leaving.clear()
        while (command := town.act()) is not None:
            town.mark(command)
        assert len(town.leaving) == count, hour


def test_without_drifted_it_does_nothing() -> None:
    """Spec section 7: a topology budget whose reasons leave out Drifted does nothing, and a warning says so."""
    town = _town([{**ONE_PER_ZONE, "reasons": ["Underutilized"]}])
    while (command := town.act()) is not None:
        town.mark(command)
    assert len(town.leaving) == 9
    assert any("topologyKey" in text or "Drifted" in text for text in town.round().warnings)


def _nail(town: Town, *nodes: str) -> None:
    """Add a pod to nodes that fits nowhere else."""
    for name in nodes:
        town.pod(f"{name}-nailed", name, spec={"nodeSelector": {names.HOSTNAME: name}})


def test_a_node_that_cannot_go_takes_no_ones_place() -> None:
    """Spec section 7: a node whose pods find no place does not use up the allowance."""
    town = _town([ONE_PER_ZONE])
    _nail(town, "a0", "a1")
    assert moved(town.act()) == ("deleteDrifted", ("a2",))


def test_nor_where_every_domain_has_its_own() -> None:
    """Without `sequential`, a node that cannot go lets other domains and then the next node of its own go."""
    town = _town([{"nodes": "1", "topologyKey": names.ZONE, "reasons": ["Drifted"]}])
    _nail(town, "a0", "a1")
    started = []
    while (command := town.act()) is not None:
        town.mark(command)
        started.extend(command.nodes)
    assert started == ["b0", "c0", "a2"]


def test_it_says_why_each_was_passed_over() -> None:
    """Skipped nodes carry their own reason; nodes behind the chosen one wait for their turn."""
    town = _town([ONE_PER_ZONE], per_zone=4)
    _nail(town, "a0", "a1")
    told = {entry.node: entry for entry in town.round(every_method=True).verdicts}
    assert [told[name].verdict for name in ("a0", "a1", "a2", "a3")] == [
        "simulation",
        "simulation",
        "eligible",
        "topology-budget",
    ]
    assert "a0-nailed finds no place" in told["a0"].why
    assert "drifted earlier and go first" in told["a3"].why


def test_a_roll_goes_past_a_node_that_cannot_go() -> None:
    """A roll skips nodes that cannot go and never exceeds the allowance."""
    town = _town([{**ONE_PER_ZONE, "nodes": "2"}], per_zone=4)
    _nail(town, "a1")
    flights = list(_roll(town))
    assert flights == [["a0", "a2"], ["a2", "a3"], ["a3"]]  # and b waits: zone a is not done


def test_a_zone_is_done_before_the_next_begins() -> None:
    """Where no node of the active domain can go the roll waits there, and says for what.

    Design: topology-budgets, Sequential.
    """
    town = _town([ONE_PER_ZONE])
    _nail(town, "a0", "a1", "a2")
    assert town.act() is None
    told = town.verdicts()
    assert [told[name] for name in ("a0", "a1", "a2", "b0")] == ["simulation"] * 3 + ["topology-budget"]


def test_a_node_that_may_not_be_touched_is_no_candidate() -> None:
    """Spec section 7: the oldest candidate sets the active domain; a node behind a PDB is no candidate."""
    town = _town([ONE_PER_ZONE])
    for number in range(3):
        town.pod(f"a{number}-kept", f"a{number}", labels={"app": "kept"})
    town.pdb("kept", {"app": "kept"}, allowed=0)
    assert moved(town.act()) == ("deleteDrifted", ("b0",))


def test_oldest_drift_then_lower_cost_then_name() -> None:
    """Spec section 12: the oldest drift goes first, then the lower cost, then the name."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [{"nodes": "1"}], "consolidateAfter": "Never"})
    for name, hours, pods in (("d", 5, 1), ("c", 9, 2), ("b", 9, 1), ("a", 9, 1), ("e", 1, 0)):
        town.node(name, "m", drifted=timedelta(hours=hours))
        town.fill(name, pods)
    order = [entry.node for entry in town.round(every_method=True).methods[2].candidates]
    assert order == ["a", "b", "c", "d", "e"]
    assert moved(town.act()) == ("deleteDrifted", ("e",))  # empty nodes are simply deleted, and first
