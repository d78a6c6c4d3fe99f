"""Its user stories run to the end, and its rules one by one.

Design: topology-budgets, AZ-sequential disruption budget for drift.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from dovetail.api.rolling import NOT_ROLLING
from dovetail.decide.in_flight import InFlight, LeavingNode, Resting
from dovetail.decide.rollouts.status import DomainState
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.plan.to_end import plan_to_end
from tests.support.design_world import NOW, Town, kind, moved, stamp

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
        while (command := town.act(keeps_rolls=True)) is not None:
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
    """docs/rules.md#budgets: a topology budget without `sequential` caps every domain the same way, all at once."""
    budget = {"nodes": "1", "topologyKey": names.ZONE, "reasons": ["Drifted"]}
    town = _town([budget])
    started = []
    while (command := town.act()) is not None:
        town.mark(command)
        started.extend(command.nodes)
    assert started == ["a0", "b0", "c0"]


def test_the_smallest_of_several_topology_budgets() -> None:
    """docs/rules.md#budgets: the smallest topology budget without `sequential` counts."""
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
    """Topology-budgets, Zone Selection, and docs/rules.md#budgets for several zones in flight."""
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
    """docs/rules.md#budgets: nodes that lack the label form a domain of their own."""
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
    """docs/rules.md#budgets: a topology budget whose reasons leave out Drifted does nothing, and a warning says so."""
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
    """docs/rules.md#budgets: a node whose pods find no place does not use up the allowance."""
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


def test_an_empty_key_is_no_key() -> None:
    """A budget with `topologyKey: ""` is a flat one, for all its reasons."""
    town = _town([{"nodes": "2", "topologyKey": ""}])
    while (command := town.act()) is not None:
        town.mark(command)
    assert sorted(town.leaving) == ["a0", "a1"]
    assert {row.allowed for row in town.round().budgets} == {2}


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
    """Where no node of the active domain can go the roll waits there at first, and says for what.

    Design: topology-budgets, Sequential.
    """
    town = _town([ONE_PER_ZONE])
    _nail(town, "a0", "a1", "a2")
    assert town.act() is None
    told = town.verdicts()
    assert [told[name] for name in ("a0", "a1", "a2", "b0")] == ["simulation"] * 3 + ["topology-budget"]


def test_a_node_that_may_not_be_touched_is_no_candidate() -> None:
    """docs/rules.md#budgets: the oldest candidate sets the active domain; a node behind a PDB is no candidate."""
    town = _town([ONE_PER_ZONE])
    for number in range(3):
        town.pod(f"a{number}-kept", f"a{number}", labels={"app": "kept"})
    town.pdb("kept", {"app": "kept"}, allowed=0)
    assert moved(town.act()) == ("deleteDrifted", ("b0",))


# ---------------------------------------------------------------- a zone is finished before the next


def _order(flights: Iterable[list[str]]) -> str:
    """Return the zones in the order in which their nodes began to leave."""
    return "".join(name[0] for name in dict.fromkeys(name for flight in flights for name in flight))


@pytest.mark.parametrize("nodes", ["1", "2", "40%"])
@pytest.mark.parametrize(
    "stamps",
    [
        pytest.param([0] * 12, id="equal stamps"),
        pytest.param([3, 0, 1, 4, 2, 2, 5, 1, 3, 0, 4, 5], id="stamps spread over five minutes"),
    ],
)
def test_a_roll_changes_zone_twice(stamps: list[int], nodes: str) -> None:
    """Twelve nodes of three zones change zone exactly twice, whatever the stamps of their drift.

    Design: topology-budgets, Rolling drift across AZs one at a time.
    """
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [{**ONE_PER_ZONE, "nodes": nodes}], "consolidateAfter": "Never"})
    for place, minute in enumerate(stamps):
        zone, number = "abc"[place % 3], place // 3
        town.node(f"{zone}{number}", "m", zone=zone, drifted=timedelta(hours=1) - minute * MINUTE)
        town.fill(f"{zone}{number}", 1)
    order = _order(_roll(town))
    assert sorted(order) == sorted("abc" * 4)
    assert sum(one != other for one, other in pairwise(order)) == 2
    assert names.ROLLING_DOMAIN not in town.pools["default"].metadata.annotations


def _mark(domain: str | None, **parts: Any) -> dict[str, str]:
    tree = {"key": names.ZONE, "value": domain, "since": stamp(NOW), **parts}
    return {names.ROLLING_DOMAIN: json.dumps(tree)}


def _marked_town(annotations: dict[str, str], **parts: Any) -> Town:
    town = _town([ONE_PER_ZONE], **parts)
    town.pool(disruption={"budgets": [ONE_PER_ZONE], "consolidateAfter": "Never"}, annotations=annotations)
    return town


@pytest.mark.parametrize(
    ("annotation", "goes"),
    [
        pytest.param(_mark("b"), "b0", id="a zone that was begun goes on, though another drifted earlier"),
        pytest.param(_mark("d"), "a0", id="a zone without drifted nodes is done"),
        pytest.param(_mark(None), "a0", id="so are the nodes without the label"),
        pytest.param({names.ROLLING_DOMAIN: "zone b"}, "a0", id="what can't be read is ignored"),
        pytest.param({names.ROLLING_DOMAIN: '{"key": 1, "value": "b"}'}, "a0", id="nor what has another shape"),
        pytest.param(
            {names.ROLLING_DOMAIN: '{"key": "example.com/rack", "value": "b", "since": "2026-05-13T15:30:00Z"}'},
            "a0",
            id="or is about another label",
        ),
        pytest.param({names.ROLLOUT: '{"turns": ["a"]}'}, "b0", id="a zone that had its turn comes last"),
        pytest.param({names.ROLLOUT: '{"turns": ["a", "b", "c"]}'}, "a0", id="until all had theirs"),
        pytest.param({names.ROLLOUT: '["a"]'}, "a0", id="unless that can't be read"),
    ],
)
def test_the_zone_that_was_begun(annotation: dict[str, str], goes: str) -> None:
    """The annotation on the NodePool says in which zone the roll goes on; `a` has the oldest drift."""
    town = _marked_town(annotation)
    assert moved(town.act()) == ("deleteDrifted", (goes,))


@pytest.mark.parametrize(
    ("own", "goes"),
    [
        pytest.param([], "b0", id="the zone that was begun still has drifted nodes"),
        pytest.param([("b0", Method.DRIFTED, 1)], "b1", id="or has one in flight, for a shorter time"),
        pytest.param([("c1", Method.DRIFTED, 1)], "c2", id="a command for drift elsewhere goes first"),
    ],
)
def test_karpenters_own_deletions_begin_no_zone(own: list[tuple[str, Method, int]], goes: str) -> None:
    """A drifted node that Karpenter ends elsewhere (expiry, interruption) does not take the turn of the zone begun."""
    budgets = [{**ONE_PER_ZONE, "nodes": "3"}]
    town = _town(budgets)
    town.pool(disruption={"budgets": budgets, "consolidateAfter": "Never"}, annotations=_mark("b"))
    ended = town.claims["c0"]
    meta = msgspec.structs.replace(ended.metadata, deletion_timestamp=NOW - 10 * MINUTE)
    town.claims["c0"] = msgspec.structs.replace(ended, metadata=meta)
    for name, method, since in own:
        _in_flight(town, name, method, since * MINUTE)
    assert moved(town.act()) == ("deleteDrifted", (goes,))


@pytest.mark.parametrize(
    ("value", "warned"),
    [
        ("zone b", True),
        ('{"key": "example.com/rack", "value": "b", "since": "2026-05-13T15:30:00Z"}', True),
        (_mark("b")[names.ROLLING_DOMAIN], False),
    ],
)
def test_what_is_ignored_is_said(value: str, warned: bool) -> None:
    """An annotation that can't be read, or is about another label, is named in a warning."""
    town = _marked_town({names.ROLLING_DOMAIN: value})
    assert any(names.ROLLING_DOMAIN in text for text in town.round().warnings) is warned


def test_cost_elsewhere_does_not_end_a_zone() -> None:
    """A node in flight for another reason in another zone takes no turn away from the zone that was begun."""
    town = _marked_town(_mark("b"))
    _in_flight(town, "c0", Method.EMPTY, MINUTE)
    assert moved(town.act()) == ("deleteDrifted", ("b0",))
    _in_flight(town, "c1", Method.DRIFTED, MINUTE)  # begun by somebody who knew nothing of the annotation
    assert town.act() is None
    assert "is in c now" in next(entry.why for entry in town.round().verdicts if entry.node == "b0")


def test_equal_stamps_begin_with_the_first_name() -> None:
    """Of zones with equally old drift the first by name is begun, whatever their nodes cost."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [ONE_PER_ZONE], "consolidateAfter": "Never"})
    for name, pods in (("a0", 9), ("b0", 1)):
        town.node(name, "m", zone=name[0], drifted=MINUTE)
        town.fill(name, pods)
    assert moved(town.act()) == ("deleteDrifted", ("a0",))


def _guard(town: Town, *nodes: str, allowed: int = 0) -> None:
    """Put a pod under a full PDB on nodes."""
    for name in nodes:
        town.pod(f"{name}-kept", name, labels={"app": "kept"})
    town.others.clear()
    town.pdb("kept", {"app": "kept"}, allowed=allowed)


def test_a_full_pdb_keeps_the_zone_for_a_while() -> None:
    """While their own gates hold all drifted nodes of the zone, it keeps its turn for `domainPatience`, not longer."""
    town = _marked_town(_mark("a"))
    _guard(town, "a0", "a1", "a2")
    assert town.act(keeps_rolls=True) is None
    assert town.verdicts()["b0"] == "topology-budget"
    assert town.round().next_change == NOW + 10 * MINUTE
    town.now = NOW + 10 * MINUTE - timedelta(seconds=1)
    assert town.act(keeps_rolls=True) is None
    town.now = NOW + 10 * MINUTE
    result = town.round()
    assert [change.left_behind for change in result.rolling] == [("a0", "a1", "a2")]
    assert any("zone a behind" in text and "a0, a1, a2" in text for text in result.warnings)
    states = {entry.domain: entry.state for entry in result.rollouts[0].domains}
    assert states == {"a": DomainState.LEFT_BEHIND, "b": DomainState.ACTIVE, "c": DomainState.WAITING}
    assert moved(town.act(keeps_rolls=True)) == ("deleteDrifted", ("b0",))
    assert json.loads(town.pools["default"].metadata.annotations[names.ROLLING_DOMAIN])["value"] == "b"
    kept = json.loads(town.pools["default"].metadata.annotations[names.ROLLOUT])
    assert (kept["turns"], kept["leftBehind"]) == (["a"], ["a"])


def test_a_zone_left_behind_has_its_turn_after_the_others() -> None:
    """A zone that was left behind comes again after the others, once one of its nodes can go."""
    town = _marked_town(_mark("a", idleSince=stamp(NOW - 10 * MINUTE)), per_zone=2)
    _guard(town, "a0", "a1")
    flights = list(_roll(town))
    assert _order(flights) == "bbcc"
    told = town.round()
    assert all(change.domain is None and not change.left_behind for change in told.rolling)
    assert names.ROLLING_DOMAIN not in town.pools["default"].metadata.annotations
    assert any("a0, a1" in text and "zone a behind" in text for text in told.warnings)
    assert told.warnings == town.round().warnings  # the same sentence as long as nothing changes: said once
    _guard(town, "a0", "a1", allowed=1)
    assert _order(_roll(town)) == "aa"
    assert not {names.ROLLING_DOMAIN, names.ROLLOUT} & set(town.pools["default"].metadata.annotations)


def test_a_zone_keeps_its_turn_while_something_goes_there() -> None:
    """One node that can't go holds up nothing: the clock runs only once nothing else can be done in the zone."""
    town = _marked_town(_mark("a"))
    _guard(town, "a1")
    flights = []
    for flight in _roll(town, step=9 * MINUTE):
        flights.append(flight)
        if flight[0][0] != "a":
            break
    assert flights[:2] == [["a0"], ["a2"]]
    assert len(flights) == 2  # nothing starts in b by itself: no time passes in this world while nothing is in flight
    assert json.loads(town.pools["default"].metadata.annotations[names.ROLLING_DOMAIN])["idleSince"]


@pytest.mark.parametrize(
    "held",
    [
        pytest.param({"budgets": [ONE_PER_ZONE, {"nodes": "0"}]}, id="a budget"),
        pytest.param(
            {"budgets": [ONE_PER_ZONE], "windows": [{"schedule": "0 3 * * *", "duration": "1h"}]}, id="a closed window"
        ),
        pytest.param({"budgets": [ONE_PER_ZONE], "health": {"notReadyNodes": "0"}}, id="the pool's health"),
        pytest.param({"budgets": [{**ONE_PER_ZONE, "nodes": "0"}]}, id="its own amount"),
    ],
)
def test_gates_of_the_pool_stop_the_clock(held: dict[str, Any]) -> None:
    """Time in which the pool itself lets nothing go does not count, and goes on where it stopped."""
    town = _marked_town(_mark("a", idleSince=stamp(NOW - 4 * MINUTE)))
    _guard(town, "a0", "a1", "a2")
    annotations = dict(town.pools["default"].metadata.annotations)
    town.node("sick", "m", zone="b", ready=False)
    town.pool(disruption={**held, "consolidateAfter": "Never"}, annotations=annotations)
    assert town.act(keeps_rolls=True) is None
    stopped = json.loads(town.pools["default"].metadata.annotations[names.ROLLING_DOMAIN])
    assert ("idleSince" in stopped, stopped["idleFor"]) == (False, "4m")
    town.now = NOW + 60 * MINUTE
    assert town.act(keeps_rolls=True) is None
    town.remove("sick")
    annotations = dict(town.pools["default"].metadata.annotations)
    town.pool(disruption={"budgets": [ONE_PER_ZONE], "consolidateAfter": "Never"}, annotations=annotations)
    assert town.act(keeps_rolls=True) is None
    running = json.loads(town.pools["default"].metadata.annotations[names.ROLLING_DOMAIN])
    assert running["idleSince"] == stamp(NOW + 56 * MINUTE)
    town.now = NOW + 66 * MINUTE
    assert moved(town.act()) == ("deleteDrifted", ("b0",))


def test_a_pause_stops_the_clock() -> None:
    """While the pool is paused, no zone loses its turn."""
    town = _marked_town({**_mark("a", idleSince=stamp(NOW - 60 * MINUTE)), names.PAUSED: "true"})
    _guard(town, "a0", "a1", "a2")
    assert [(change.left_behind, change.domain.idle_since) for change in town.round().rolling if change.domain] == [
        ((), None)
    ]


@pytest.mark.parametrize(("waited", "goes"), [(9, None), (10, ("deleteDrifted", ("b0",)))])
def test_nodes_that_back_off_by_themselves_do_not_stop_the_clock(waited: int, goes: Any) -> None:
    """A zone whose nodes were all refused at the last look loses its turn after the same patience."""
    town = _marked_town(_mark("a", idleSince=stamp(NOW - waited * MINUTE)))
    resting = {name: Resting(until=NOW + 20 * MINUTE, why="a PDB refused") for name in ("a0", "a1", "a2")}
    commands = town.round(in_flight=InFlight(resting=resting)).commands
    assert (moved(commands[0]) if commands else None) == goes


def test_a_node_that_opens_in_time_goes() -> None:
    """Patience that has run out takes no turn away from a zone in which a node can go now."""
    town = _marked_town(_mark("a", idleSince=stamp(NOW - 60 * MINUTE)))
    assert moved(town.act()) == ("deleteDrifted", ("a0",))


def test_a_zone_without_room_is_waited_for() -> None:
    """A zone whose nodes' pods find no place keeps its turn as long, though none of its nodes was tainted yet."""
    town = _town([ONE_PER_ZONE])
    _nail(town, "a0", "a1", "a2")
    assert town.act(keeps_rolls=True) is None
    assert json.loads(town.pools["default"].metadata.annotations[names.ROLLING_DOMAIN])["idleSince"] == stamp(NOW)
    town.now += 10 * MINUTE
    assert moved(town.act(keeps_rolls=True)) == ("deleteDrifted", ("b0",))


def test_a_node_that_drifts_later_waits_for_the_others() -> None:
    """A node that drifts in a zone that is done waits until the others had their turn."""
    town = _marked_town({**_mark("b"), names.ROLLOUT: '{"turns": ["a"]}'}, per_zone=1)
    town.node("a0", "m", zone="a", drifted=timedelta(hours=99))
    town.fill("a0", 1)
    assert _order(_roll(town)) == "bca"


@pytest.mark.parametrize(
    ("ago", "old", "goes"),
    [
        pytest.param(4, True, None, id="others of the zone may drift yet"),
        pytest.param(5, True, "a0", id="Karpenter has looked at all of them"),
        pytest.param(4, False, "a0", id="all its nodes are newer than the roll"),
    ],
)
def test_a_zone_waits_until_karpenter_has_looked_at_all(ago: int, old: bool, goes: str | None) -> None:
    """Karpenter finds drifted nodes one after the other: at first a zone is not finished with those it has found."""
    began = NOW - ago * MINUTE
    town = _marked_town({**_mark("b"), names.ROLLOUT: json.dumps({"began": stamp(began)})}, per_zone=1)
    town.remove("b0")
    town.node("b1", "m", zone="b", age=timedelta(hours=1) if old else MINUTE)
    assert moved(town.act()) == (None if goes is None else ("deleteDrifted", (goes,)))
    assert goes is not None or town.round().next_change == began + 5 * MINUTE


def test_a_roll_says_when_it_began() -> None:
    """The time of the oldest drift is kept on the NodePool from the first round on, until nothing is left to do."""
    town = _town([ONE_PER_ZONE], per_zone=1)
    (change,) = town.round().rolling
    assert (change.rollout.began, change.domain) == (NOW - timedelta(hours=30), None)
    town = _marked_town({names.ROLLOUT: json.dumps({"began": stamp(NOW - 9 * MINUTE), "turns": ["a"]})}, per_zone=0)
    assert [(change.domain, change.rollout) for change in town.round().rolling] == [(None, NOT_ROLLING)]


def test_nodes_without_the_label_are_null() -> None:
    """The domain of nodes without the label is kept as null."""
    town = Town(kind("m", "0.20"))
    budget = {**ONE_PER_ZONE, "topologyKey": "example.com/rack"}
    town.pool(disruption={"budgets": [budget], "consolidateAfter": "Never"})
    for name in ("n0", "n1"):
        town.node(name, "m", drifted=timedelta(hours=1))
        town.fill(name, 1)
    command = town.act(keeps_rolls=True)
    assert moved(command) == ("deleteDrifted", ("n0",))
    kept = json.loads(town.pools["default"].metadata.annotations[names.ROLLING_DOMAIN])
    assert kept == {"key": "example.com/rack", "value": None, "since": stamp(NOW)}


def test_without_a_sequential_budget_the_mark_goes() -> None:
    """A pool that has no sequential budget any more keeps no domain."""
    town = _town([{"nodes": "1"}])
    town.pool(disruption={"budgets": [{"nodes": "1"}], "consolidateAfter": "Never"}, annotations=_mark("b"))
    assert [(change.node_pool, change.domain) for change in town.round().rolling] == [("default", None)]


def test_the_plan_to_the_end_keeps_the_zone() -> None:
    """`plan --to-end` finishes a zone before the next, from whatever zone the capture says."""
    town = _marked_town(_mark("b"), per_zone=2)
    for name in town.claims:
        claim = town.claims[name]
        conditions = tuple(
            msgspec.structs.replace(entry, last_transition_time=NOW) if entry.type == "Drifted" else entry
            for entry in claim.status.conditions
        )
        status = msgspec.structs.replace(claim.status, conditions=conditions)
        town.claims[name] = msgspec.structs.replace(claim, status=status)
    steps = plan_to_end(town.question()).steps
    assert "".join(step.commands[0].nodes[0][0] for step in steps) == "bbaacc"


# ---------------------------------------------------------------- the order of nodes, and their verdicts


def test_oldest_drift_then_lower_cost_then_name() -> None:
    """docs/deviations.md: the oldest drift goes first, then the lower cost, then the name."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [{"nodes": "1"}], "consolidateAfter": "Never"})
    for name, hours, pods in (("d", 5, 1), ("c", 9, 2), ("b", 9, 1), ("a", 9, 1), ("e", 1, 0)):
        town.node(name, "m", drifted=timedelta(hours=hours))
        town.fill(name, pods)
    order = [entry.node for entry in town.round(every_method=True).methods[2].candidates]
    assert order == ["a", "b", "c", "d", "e"]
    assert moved(town.act()) == ("deleteDrifted", ("e",))  # empty nodes are simply deleted, and first
