"""Requests to replace nodes, how far a roll is, and when it ends (docs/operations.md, rolls)."""

import json
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api.roll_request import RollRequest, decode_request, write_request
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.rollouts.status import DomainState, RollStatus
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import KARPENTER_1_15
from dovetail.plan.calendar import calendar
from tests.support.design_world import NOW, Town, kind, moved, stamp

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FIRST_PACE = timedelta(seconds=65)
"""How long a node takes if neither the roll nor the launches of its pool have shown it: 15 s until it is validated."""
ZONAL = {"nodes": "1", "topologyKey": names.ZONE, "sequential": True}


def _request(before: timedelta, requested: timedelta | None = None, reason: str = "") -> str:
    """Return a request for nodes older than so long, made so long ago."""
    at = before if requested is None else requested
    return write_request(RollRequest(before=NOW - before, requested=NOW - at, reason=reason))


def _town(budgets: list[dict[str, Any]] | None = None, annotations: dict[str, str] | None = None) -> Town:
    """Return two nodes in each of two zones, an hour old, none of which has drifted."""
    town = Town(kind("m", "0.20"))
    disruption = {"budgets": budgets or [{"nodes": "1"}], "consolidateAfter": "Never"}
    town.pool(disruption=disruption, annotations=annotations or {})
    for name in ("a0", "a1", "b0", "b1"):
        town.node(name, "m", zone=name[0])
        town.fill(name, 1)
    return town


def _status(town: Town) -> RollStatus:
    (found,) = town.round().rollouts
    assert isinstance(found, RollStatus)
    assert found.total == found.replaced + found.in_flight + found.waiting + found.blocked
    return found


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        pytest.param(_request(MINUTE), "a0", id="nodes older than the request"),
        pytest.param(_request(2 * HOUR), None, id="no node is older"),
        pytest.param(_request(HOUR), None, id="as old is not older"),
        pytest.param(_request(-HOUR, MINUTE), "a0", id="a time after the request counts as the request"),
        pytest.param(_request(-HOUR), None, id="not before it was requested"),
        pytest.param("yes", None, id="what can't be read rolls nothing"),
        pytest.param('{"before": "2026-05-13T15:00:00Z"}', None, id="nor what lacks a part"),
    ],
)
def test_a_request_on_the_pool(value: str, goes: str | None) -> None:
    """Nodes whose NodeClaim was created before the request's time count as drifted since it was made."""
    town = _town(annotations={names.ROLL: value})
    assert moved(town.act()) == (None if goes is None else ("deleteDrifted", (goes,)))


def test_a_request_that_begins_later() -> None:
    """Its nodes wait, and the end is counted from that moment on: it is not said that it never ends."""
    found = _status(_town(annotations={names.ROLL: _request(-HOUR)}))
    assert (found.waiting, found.blocked) == (4, 0)
    assert found.expected_end is not None
    assert found.expected_end > NOW + HOUR


def test_a_request_on_one_node() -> None:
    """A request on a NodeClaim is about that node alone, and its verdict says who asked and why."""
    town = _town()
    claim = town.claims["b1"]
    annotations = {names.ROLL: _request(MINUTE, reason="kernel panic")}
    town.claims["b1"] = _annotated(claim, annotations)
    assert moved(town.act()) == ("deleteDrifted", ("b1",))
    verdict = next(entry for entry in town.round().verdicts if entry.node == "b1")
    assert any("kernel panic" in gate.why for gate in verdict.gates)
    assert _status(town).cause == "request"


def _annotated(item: Any, annotations: dict[str, str]) -> Any:
    from msgspec.structs import replace

    return replace(item, metadata=replace(item.metadata, annotations=annotations))


def test_what_can_not_be_read_is_said() -> None:
    """A request that can't be read is named in a warning, and so is one that is still to come."""
    for value in ("yes", _request(-HOUR)):
        assert any(names.ROLL in text for text in _town(annotations={names.ROLL: value}).round().warnings)
    assert not any(names.ROLL in text for text in _town(annotations={names.ROLL: _request(MINUTE)}).round().warnings)


def test_karpenter_knows_no_requests() -> None:
    """Under Karpenter's rules a request does nothing."""
    town = _town(annotations={names.ROLL: _request(MINUTE)})
    town.settings = KARPENTER_1_15
    assert not [gate for entry in town.round().methods if entry.method.value == "drifted" for gate in entry.candidates]


def test_a_request_keeps_its_text() -> None:
    """What is written can be read again; hostile text can't be read and breaks nothing."""
    made = RollRequest(before=NOW, requested=NOW, reason='"x"')
    assert decode_request(write_request(made)) == made
    assert decode_request("[" * 10_000) is None


@pytest.mark.parametrize(("ago", "over"), [(MINUTE, False), (2 * HOUR, True)])
def test_a_request_ends_when_no_node_is_older(ago: timedelta, over: bool) -> None:
    """The round says when the last node that a request asked for is gone."""
    changes = _town(annotations={names.ROLL: _request(ago)}).round().rolling
    assert [change.request_over for change in changes] == [over]


# ---------------------------------------------------------------- how far


def test_a_roll_by_zones() -> None:
    """Replaced, in flight, waiting and blocked add up; each domain has its state."""
    town = _town([ZONAL], {names.ROLL: _request(2 * MINUTE)})
    town.node("new", "m", zone="a", age=MINUTE)
    town.remove("a1")
    command = town.act()
    assert command is not None
    town.mark(command)
    found = _status(town)
    assert (found.total, found.replaced, found.in_flight, found.waiting, found.blocked) == (4, 1, 1, 2, 0)
    assert found.active_domain == "a"
    assert [(entry.domain, entry.replaced, entry.total, entry.state) for entry in found.domains] == [
        ("a", 1, 2, DomainState.ACTIVE),
        ("b", 0, 2, DomainState.WAITING),
    ]


@pytest.mark.parametrize(
    ("begun", "leaving", "left"),
    [(None, None, 1), ("a", None, 1), ("a", "new", 0), ("b", "new", 1), (None, "new", 0), ("gone", None, 1)],
)
def test_what_is_left_is_left_in_the_active_domain(begun: str | None, leaving: str | None, left: int) -> None:
    """The plan's budgets, the method's budget and `budgets` count only the domain in which drift may work now."""
    annotations = {names.ROLL: _request(2 * MINUTE)}
    if begun is not None:
        annotations[names.ROLLING_DOMAIN] = json.dumps({"key": names.ZONE, "value": begun, "since": stamp(NOW)})
    town = _town([{"nodes": "3"}, ZONAL], annotations)
    town.node("new", "m", zone="a", age=MINUTE)
    if leaving is not None:
        town.leaving[leaving] = LeavingNode(node=leaving, method=Method.EMPTY, since=NOW)
    used = int(leaving is not None)
    tree = town.round(every_method=True).to_dict()
    rows = {row["reason"]: (row["allowed"], row["used"], row["left"]) for row in tree["budgets"]}
    assert rows == {
        "Drifted": (3, used, left), **dict.fromkeys(("Empty", "Expired", "Underutilized"), (3, used, 3 - used))
    }  # fmt: skip
    budgets = {entry["method"]: entry["budget"]["default"] for entry in tree["methods"]}
    assert (budgets["drifted"], budgets["expired"]) == (left, 3 - used)
    (shown,) = calendar(town.question(), days=1)
    assert (shown.left[Reason.DRIFTED], shown.left[Reason.EXPIRED]) == (left, 3 - used)
    assert bool([entry for entry in tree["actions"] if "Drifted" in entry["action"]]) == (left > 0)
    going = [gate["why"] for row in tree["nodes"] for gate in row["gates"] if gate["gate"] == "budget"]
    assert set(going) <= {"NodePool default has budget left for Drifted, in its domain too."}
    assert bool(going) == (left > 0)


def test_the_total_on_the_pool_counts() -> None:
    """With a total on the NodePool, nodes of a scale-up don't count as replaced; more drift raises it."""
    kept = {"began": stamp(NOW - HOUR), "domains": [{"value": None, "total": 5, "replaced": 1}]}
    town = _town(annotations={names.ROLL: _request(MINUTE), names.ROLLOUT: json.dumps(kept)})
    for number in range(7):
        town.node(f"new{number}", "m", zone="a", age=timedelta(seconds=30))
    found = _status(town)
    assert (found.replaced, found.total) == (1, 5)
    kept["domains"] = [{"value": None, "total": 5, "replaced": 3}]
    again = _town(annotations={names.ROLL: _request(MINUTE), names.ROLLOUT: json.dumps(kept)})
    assert (_status(again).replaced, _status(again).total) == (3, 7)


def test_blockers_are_named() -> None:
    """A node that its own PDB holds is blocked, not waiting; the roll never ends while it is full."""
    town = _town([{"nodes": "100%"}], {names.ROLL: _request(MINUTE)})
    town.pod("kept", "b0", labels={"app": "kept"})
    town.pdb("api", {"app": "kept"}, allowed=0)
    found = _status(town)
    assert [(one.node, one.gate.value) for one in found.blockers] == [("b0", "pdb")]
    assert (found.blocked, found.expected_end) == (1, None)
    assert found.why == "never, while PDB default/api allows nothing"


def test_nothing_to_roll_is_no_roll() -> None:
    """A pool without drifted nodes has no roll, and nothing is written on it."""
    result = _town().round()
    assert (result.rollouts, result.rolling) == ((), ())


# ---------------------------------------------------------------- when it ends


def _end(budgets: list[dict[str, Any]], **disruption: Any) -> float | None:
    """Return in how many minutes a roll of four nodes ends that has just begun."""
    town = _town(budgets, {names.ROLL: _request(timedelta(0))})
    policy = {"budgets": budgets, "consolidateAfter": "Never", **disruption}
    town.pool(disruption=policy, annotations=dict(town.pools["default"].metadata.annotations))
    end = _status(town).expected_end
    return None if end is None else (end - NOW) / MINUTE


@pytest.mark.parametrize(
    ("budgets", "nodes", "later"),
    [
        pytest.param([{"nodes": "1"}], 4, 0, id="one after the other"),
        pytest.param([{"nodes": "2"}], 2, 0, id="two at once"),
        pytest.param([{"nodes": "100%"}], 1, 0, id="all at once"),
        pytest.param([{**ZONAL, "nodes": "100%"}], 2, 0, id="zone by zone"),
        pytest.param([{"nodes": "4"}, {"nodes": "1", "per": "1h"}], 1, 180, id="one an hour"),
        pytest.param([{"nodes": "0"}], None, 0, id="never"),
        pytest.param(
            [{"nodes": "1"}, {"nodes": "0", "schedule": "0 * * * *", "duration": "45m"}],
            4,
            15,
            id="after a closed window",
        ),
    ],
)
def test_budgets_and_windows_pace_it(budgets: list[dict[str, Any]], nodes: int | None, later: int) -> None:
    """The expected end follows from how many leave one after the other, and when; it is half past the hour."""
    assert _end(budgets) == (None if nodes is None else pytest.approx(later + nodes * FIRST_PACE / MINUTE))


def test_allow_windows_pace_it() -> None:
    """Nothing starts outside a window that allows drift."""
    window = {"schedule": "0 16 * * *", "duration": "1h", "reasons": ["Drifted"]}
    assert _end([{"nodes": "1"}], windows=[window]) == pytest.approx(30 + 4 * FIRST_PACE / MINUTE)


@pytest.mark.parametrize(("value", "said"), [("true", "never, while NodePool default is paused"), (None, "ends about")])
def test_a_pause_is_named(value: str | None, said: str) -> None:
    """A pause without an end keeps the roll from ending."""
    annotations = {names.ROLL: _request(MINUTE), **({names.PAUSED: value} if value else {})}
    assert _status(_town(annotations=annotations)).why.startswith(said)
