"""The budget ledger on hand-made facts: flat budgets, budgets per domain and rate budgets (spec 7, 13 and 19)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from dovetail.api.pool_marks import Departure, History
from dovetail.api.rolling import NO_DOMAIN
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import (
    Allowance,
    BudgetLedger,
    amount_of,
    flat_allowance,
    is_active,
    names_reason,
    rate_allowance,
)
from dovetail.decide.gates.gate_results import GateContext
from dovetail.decide.gates.table import GateTable
from dovetail.decide.in_flight import InFlight, LeavingNode
from dovetail.decide.outcome import UNLIMITED
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Condition, Node, NodeClaim, NodeClaimStatus, NodeSpec
from dovetail.model.parts.metadata import Taint
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.timing.windows import window
from dovetail.model.verdicts import Gate, GateResult
from tests.support.nodes import NOW, facts_of, minutes

HOUR = 3600 * 10**9
OPEN, SHUT = window("0 15 * * *", HOUR), window("0 16 * * *", HOUR)
DRIFT = (Reason.DRIFTED,)


def _budget(amount: int, **parts: Any) -> Budget:
    return Budget(index=0, nodes=str(amount), amount=amount, **parts)


@pytest.mark.parametrize(
    ("allowed", "used", "left"), [(5, 3, 2), (3, 5, 0), (3, 3, 0), (0, 0, 0), (UNLIMITED, 3, UNLIMITED - 3)]
)
def test_what_is_left(allowed: int, used: int, left: int) -> None:
    """The remaining allowance is never negative."""
    assert Allowance(allowed=allowed, used=used).left == left


@pytest.mark.parametrize(
    ("budget", "nodes", "amount"),
    [
        (_budget(3), 10, 3),
        (_budget(10, is_percent=True), 10, 1),
        (_budget(10, is_percent=True), 11, 2),
        (_budget(10, is_percent=True), 20, 2),
        (_budget(1, is_percent=True), 1, 1),
        (_budget(1, is_percent=True), 101, 2),
        (_budget(0, is_percent=True), 50, 0),
        (_budget(50, is_percent=True), 0, 0),
        (_budget(7, problem="it can't be read"), 10, 0),
    ],
)
def test_what_a_budget_lets_go(budget: Budget, nodes: int, amount: int) -> None:
    """Percentages are rounded up; a budget that cannot be read allows nothing."""
    assert amount_of(budget, nodes) == amount


def test_when_a_budget_applies() -> None:
    """A budget applies always, or while its window is open."""
    assert [is_active(_budget(1, window=each), NOW) for each in (None, OPEN, SHUT)] == [True, True, False]


@pytest.mark.parametrize(
    ("reasons", "ours", "karpenters"),
    [(None, True, True), ((), True, False), (DRIFT, True, True), ((Reason.EMPTY,), False, False)],
)
def test_what_a_budget_is_about(reasons: tuple[Reason, ...] | None, ours: bool, karpenters: bool) -> None:
    """A budget without reasons covers all reasons; so does an empty list, except under Karpenter's profile."""
    budget = _budget(1, reasons=reasons)
    assert names_reason(budget, Reason.DRIFTED, DOVETAIL) is ours
    assert names_reason(budget, Reason.DRIFTED, KARPENTER_1_15) is karpenters


PLAIN, LESS, SAME = _budget(5), _budget(3), _budget(3)
TOPOLOGY, RATE = _budget(1, topology_key="zone"), _budget(1, per=HOUR)
BROKEN = _budget(9, problem="x", window=SHUT)


@pytest.mark.parametrize(
    ("settings", "budgets", "allowed", "tightest"),
    [
        (DOVETAIL, [], UNLIMITED, None),
        (DOVETAIL, [PLAIN, LESS, SAME], 3, LESS),
        (DOVETAIL, [LESS, PLAIN], 3, LESS),
        (DOVETAIL, [PLAIN, TOPOLOGY, RATE], 5, PLAIN),
        (KARPENTER_1_15, [PLAIN, TOPOLOGY], 1, TOPOLOGY),
        (KARPENTER_1_15, [PLAIN, RATE], 1, RATE),
        (DOVETAIL, [PLAIN, _budget(0, reasons=(Reason.EMPTY,))], 5, PLAIN),
        (DOVETAIL, [PLAIN, _budget(0, window=SHUT)], 5, PLAIN),
        (DOVETAIL, [PLAIN, _budget(1, window=OPEN)], 1, _budget(1, window=OPEN)),
        (DOVETAIL, [PLAIN, BROKEN], 0, BROKEN),
        (DOVETAIL, [PLAIN, replace(BROKEN, reasons=(Reason.EMPTY,))], 5, PLAIN),
        (
            KARPENTER_1_15,
            [PLAIN, replace(BROKEN, reasons=(Reason.EMPTY,))],
            0,
            replace(BROKEN, reasons=(Reason.EMPTY,)),
        ),
        (KARPENTER_1_15, [PLAIN, LESS], 3, LESS),
        (DOVETAIL, [_budget(10**12)], UNLIMITED, _budget(10**12)),
    ],
)
def test_the_tightest_flat_budget(settings: Settings, budgets: list[Budget], allowed: int, tightest: Budget) -> None:
    """The smallest open budget that names the reason counts; of equal budgets, the first."""
    policy = DisruptionPolicy(budgets=tuple(budgets))
    found = flat_allowance(policy, 10, 2, Reason.DRIFTED, settings, NOW)
    assert (found.allowed, found.used, found.budget) == (allowed, 2, tightest)
    if tightest is LESS:
        assert found.budget is LESS


def _gone(*entries: tuple[float, int], reason: Reason = Reason.DRIFTED) -> tuple[Departure, ...]:
    """Return a history in which this many nodes began to leave this many minutes ago."""
    return tuple(
        Departure(at=NOW - minutes(ago), nodes=count, reason=reason, command=f"c{ago}") for ago, count in entries
    )


@pytest.mark.parametrize(
    ("amount", "departures", "planned", "used", "free"),
    [
        (3, _gone(), 0, 0, None),
        (3, _gone((10, 1)), 1, 2, None),
        (3, _gone((10, 1), (20, 2)), 0, 3, 40),
        (3, _gone((20, 2), (10, 2)), 0, 4, 40),
        (3, _gone((10, 3), (20, 1)), 0, 4, 50),
        (3, _gone((10, 1), (20, 1)), 2, 4, 50),
        (3, _gone((10, 1)), 3, 4, None),
        (3, _gone((60, 3)), 0, 0, None),
        (3, _gone((59, 3)), 0, 3, 1),
        (3, _gone((0, 3)), 0, 3, 60),
        (3, _gone((-1, 3)), 0, 0, None),
        (0, _gone((10, 1)), 0, 1, None),
        (3, None, 0, 3, None),
    ],
)
def test_what_a_rate_has_left(
    amount: int, departures: Sequence[Departure] | None, planned: int, used: int, free: int | None
) -> None:
    """Nodes that began to leave within the last hour use up the rate until that hour is over."""
    budget = _budget(amount, per=HOUR)
    at = None if free is None else NOW + minutes(free)
    found = rate_allowance(budget, 10, departures, planned, NOW)
    assert found == Allowance(allowed=amount, used=used, budget=budget, free_at=at)


def test_a_span_is_rounded_up() -> None:
    """A span that is not a whole number of microseconds is rounded up."""
    entry = _gone((1, 1))
    assert rate_allowance(_budget(1, per=60 * 10**9), 10, entry, 0, NOW).used == 0
    assert rate_allowance(_budget(1, per=60 * 10**9 + 1), 10, entry, 0, NOW).used == 1


# ---------------------------------------------------------------- the ledger


def _ledger(
    nodes: Sequence[NodeFacts], *budgets: Budget, settings: Settings = DOVETAIL, leaving: Any = (), **more: Any
) -> BudgetLedger:
    policies = more.pop("policies", {"default": DisruptionPolicy(budgets=budgets, **more.pop("policy", {}))})
    in_flight = InFlight(leaving=tuple(leaving))
    return BudgetLedger(
        GateTable().renewed(nodes, GateContext(settings=settings, now=NOW)).members(),
        policies,
        settings,
        NOW,
        in_flight,
        **more,
    )


def _leaving(node: str, method: Method = Method.DRIFTED, command: str = "x") -> LeavingNode:
    return LeavingNode(node=node, method=method, since=NOW, command_id=command)


def test_who_is_counted() -> None:
    """Leaving, rebooting and unready nodes of existing pools use a place; repair counts leaving nodes only."""
    nodes = [
        facts_of(name="a"),
        facts_of(name="b", marked="x"),
        facts_of(name="c", ready=False),
        facts_of(name="d", initialized=False),
        facts_of(name="e", pool_name="gone", marked="x"),
    ]
    ledger = _ledger(nodes, _budget(100, is_percent=True))
    assert [facts.name for facts in ledger.members["default"].nodes] == ["a", "b", "c"]
    assert ledger.leaving("default") == 2
    found = ledger.allowance("default", Reason.DRIFTED)
    assert (found.allowed, found.used, found.left) == (3, 2, 1)
    assert ledger.allowance("default", Reason.DRIFTED) is found
    assert ledger.allowance("default", Reason.UNHEALTHY).used == 1
    assert ledger.left(Reason.DRIFTED) == {"default": 1}


def test_rows() -> None:
    """The table has a row for every pool by name and every reason; repair only if the pool repairs."""
    rule = RepairRule(index=0, condition="Ready", status="False", lasting=1)
    policies = {
        "b": DisruptionPolicy(budgets=(_budget(2),)),
        "a": DisruptionPolicy(budgets=(_budget(1, reasons=DRIFT),), repair=(rule,)),
    }
    rows = _ledger([facts_of(pool_name="b", marked="x")], policies=policies).rows()
    table = [(row.node_pool, row.reason.value, row.allowed, row.used, row.left) for row in rows]
    assert table == [
        ("a", "Empty", UNLIMITED, 0, UNLIMITED),
        ("a", "Expired", UNLIMITED, 0, UNLIMITED),
        ("a", "Drifted", 1, 0, 1),
        ("a", "Underutilized", UNLIMITED, 0, UNLIMITED),
        ("a", "Unhealthy", UNLIMITED, 0, UNLIMITED),
        ("b", "Empty", 2, 1, 1),
        ("b", "Expired", 2, 1, 1),
        ("b", "Drifted", 2, 1, 1),
        ("b", "Underutilized", 2, 1, 1),
    ]


def test_a_hold_stops_a_pool() -> None:
    """A hold stops its pool for the held reason, whatever the budgets allow."""
    held = GateResult(gate=Gate.HEALTH, passed=False, why="")
    budget = _budget(2)
    ledger = _ledger(
        [facts_of(marked="x")], budget, hold=lambda pool, reason: held if reason is Reason.DRIFTED else None
    )
    assert ledger.allowance("default", Reason.DRIFTED) == Allowance(allowed=0, used=1, budget=budget, held=held)
    assert ledger.allowance("default", Reason.EMPTY).left == 1


@pytest.mark.parametrize(
    ("history", "leaving", "left"),
    [
        ((), [], 2),
        (_gone((10, 1)), [], 1),
        (_gone((10, 1), reason=Reason.EMPTY), [], 2),
        (None, [], 0),
        ((), [_leaving("a")], 1),
        ((), [_leaving("a", Method.EMPTY)], 2),
        ((), [_leaving("stranger")], 2),
        (_gone((10, 1)), [_leaving("a", command="c10")], 1),
        (_gone((10, 1)), [_leaving("a")], 0),
    ],
)
def test_rates_in_the_ledger(history: History | None, leaving: list[LeavingNode], left: int) -> None:
    """Past and planned departures use up the rates for their reason, once per command; the smallest rest counts."""
    budget = _budget(2, per=HOUR, reasons=DRIFT)
    nodes = [facts_of(name=name) for name in "abc"]
    ledger = _ledger(nodes, _budget(3), budget, histories={"default": history}, leaving=leaving)
    assert ledger.allowance("default", Reason.DRIFTED).left == left
    assert ledger.allowance("default", Reason.EMPTY).left == 3
    assert [entry.left for entry in ledger.rates("default", Reason.DRIFTED, NOW)] == [left]


def test_which_rates_apply() -> None:
    """A rate applies if it is readable, open and names the reason; without a history nothing is counted."""
    budgets = [
        _budget(1, per=HOUR, window=SHUT),
        _budget(2, per=HOUR, problem="x"),
        _budget(3, per=HOUR, reasons=(Reason.EMPTY,)),
        _budget(4),
        _budget(50, per=HOUR, is_percent=True),
    ]
    ledger = _ledger([facts_of(name=name) for name in "abc"], *budgets)
    assert [entry.allowed for entry in ledger.rates("default", Reason.DRIFTED, NOW)] == [2]
    assert [entry.allowed for entry in ledger.rates("default", Reason.DRIFTED, NOW + minutes(31))] == [1, 2]


def test_when_rates_are_free_again() -> None:
    """A departure frees its place when the span of the rate, one or two hours, has passed."""
    budgets = (_budget(1, per=HOUR), _budget(9), _budget(5, per=2 * HOUR))
    histories: Mapping[str, History | None] = {"default": _gone((10, 1), (20, 1))}
    ledger = _ledger([], *budgets, histories=histories)
    assert list(ledger.rate_times()) == [NOW + minutes(each) for each in (50, 110, 40, 100)]
    assert list(_ledger([], *budgets, histories={"default": None}).rate_times()) == []
    assert list(_ledger([], *budgets).rate_times()) == []


# ---------------------------------------------------------------- domains


def _in(zone: str | None, name: str, **facts: Any) -> NodeFacts:
    return facts_of(name=name, labels={} if zone is None else {names.ZONE: zone}, **facts)


EACH = _budget(1, topology_key=names.ZONE)
TURN = replace(EACH, sequential=True)


def _taken(
    ledger: BudgetLedger, candidates: Sequence[NodeFacts], active: str | None = None
) -> tuple[str, dict[str, tuple[str, bool, bool]]]:
    kept, held = ledger.take_by_domain("default", candidates, active)
    told = {name: (entry.domain, entry.active, entry.in_line) for name, entry in held.items()}
    return " ".join(facts.name for facts in kept), told


def test_which_topology_budgets_apply() -> None:
    """Topology budgets for drift apply if they are open or unreadable; Karpenter's profile has none."""
    others = (
        _budget(1),
        replace(EACH, reasons=(Reason.EMPTY,)),
        replace(EACH, window=SHUT),
    )
    broken = replace(EACH, window=SHUT, problem="x")
    ledger = _ledger([], *others, EACH, broken, TURN, replace(TURN, amount=7))
    assert ledger.topology_budgets("default") == ((EACH, broken), TURN)
    assert _ledger([], EACH, TURN, settings=KARPENTER_1_15).topology_budgets("default") == ((), None)
    assert _ledger([], EACH).topology_budgets("default") == ((EACH,), None)


def test_one_of_each_domain() -> None:
    """Each domain may lose this many nodes; leaving nodes use a place; nodes without the label share a domain."""
    nodes = [_in("a", "a1"), _in("a", "a2"), _in("b", "b1"), _in(None, "n1"), _in(None, "n2"), _in("c", "c1")]
    busy = [_in("c", "c2", marked="x")]
    ledger = _ledger([*nodes, *busy], EACH)
    kept, held = _taken(ledger, nodes)
    assert kept == "a1 b1 n1"
    assert held == {"a2": ("a", True, True), "n2": (NO_DOMAIN, True, True), "c1": ("c", True, False)}
    _, entries = ledger.take_by_domain("default", nodes, None)
    told = entries["c1"]
    assert (told.nodes, told.in_flight, told.left, told.budget, told.active_domain) == (2, 1, 0, EACH, None)
    assert entries["a2"].left == 1
    two = _ledger([*nodes, *busy], replace(EACH, amount=2))
    assert _taken(two, nodes) == ("a1 a2 b1 n1 n2 c1", {})
    three = [_in("a", f"a{number}") for number in range(3)]
    assert _taken(_ledger(three, replace(EACH, amount=2)), three)[0] == "a0 a1"


def test_a_candidate_that_budgets_do_not_count() -> None:
    """In a domain without counted nodes a percentage allows nothing, but a number allows that number."""
    stranger = _in("z", "s", initialized=False)
    assert _taken(_ledger([stranger], replace(EACH, amount=50, is_percent=True)), [stranger])[0] == ""
    assert _taken(_ledger([stranger], EACH), [stranger])[0] == "s"


def test_one_domain_after_the_other() -> None:
    """Nodes go in the active domain only, within every topology budget; without one none is held by its domain."""
    nodes = [_in("b", "b1"), _in("a", "a1"), _in("b", "b2")]
    ledger = _ledger(nodes, TURN)
    assert _taken(ledger, nodes, "b") == ("b1", {"a1": ("a", False, False), "b2": ("b", True, True)})
    both = _ledger(nodes, replace(TURN, amount=5), EACH)
    assert _taken(both, nodes, "b") == ("b1", {"a1": ("a", False, False), "b2": ("b", True, True)})
    _, held = ledger.take_by_domain("default", nodes, "b")
    assert held["a1"].active_domain == "b"
    assert _taken(ledger, nodes)[0] == "b1 a1"
    assert _taken(ledger, []) == ("", {})


@pytest.mark.parametrize(
    ("marked", "leaving", "drift", "other"),
    [
        ({"a1": 5}, [_leaving("a1")], "a", None),
        ({"a1": 5, "c1": 9}, [_leaving("a1"), _leaving("c1", Method.EMPTY)], "a", "c"),
        ({"a1": 5, "c1": 9}, [_leaving("a1"), _leaving("c1")], "c", None),
        ({"a1": 5, "c1": 5}, [_leaving("a1"), _leaving("c1")], "a", None),
        ({"a1": 5, "c1": None}, [], "a", None),
        ({"a1": 5, "c1": 6, "c2": 4}, [_leaving("a1", Method.EMPTY), _leaving("c2", Method.EMPTY)], "c", "a"),
        ({"a1": 5, "c1": 6}, [_leaving("c1", Method.EMPTY), _leaving("a1", Method.EMPTY)], None, "c"),
        ({"a1": 5, "c1": 9, "c2": 4}, [_leaving("a1"), _leaving("c1", Method.EMPTY), _leaving("c2")], "a", None),
        ({}, [], None, None),
    ],
    ids=[
        "in flight",
        "drift and another",
        "longest",
        "by name",
        "no time is now",
        "its condition says",
        "no drift",
        "drift's own time",
        "none",
    ],
)
def test_the_domains_with_leaving_nodes(
    marked: dict[str, int | None], leaving: list[LeavingNode], drift: str | None, other: str | None
) -> None:
    """The domain with nodes in flight for drift, and that with nodes in flight for another reason: longest, by name."""
    times: dict[str, datetime | None] = {
        name: None if ago is None else NOW - minutes(ago) for name, ago in marked.items()
    }
    nodes = [
        _in(name[0], name, marked="x" if name in marked else "", marked_since=times.get(name), drifted_since=NOW)
        for name in ("a1", "a2", "b1", "c1", "c2", "c3")
    ]
    ledger = _ledger(nodes, TURN, leaving=leaving)
    assert ledger.busy_domains(ledger.domains("default", names.ZONE)) == (drift, other)


@pytest.mark.parametrize(
    ("begun", "leaving", "busy"),
    [
        (None, [_leaving("a1"), _leaving("c1")], ("c", None)),
        ("a", [_leaving("a1"), _leaving("c1")], ("a", None)),
        ("a", [_leaving("a1")], ("a", "c")),
        ("a", [_leaving("c1")], ("a", None)),
        ("b", [], (None, "c")),
        (None, [], ("c", None)),
    ],
    ids=["longest", "the one begun", "unsure elsewhere", "unsure in the one begun", "all unsure", "none is begun"],
)
def test_the_domain_that_was_begun_goes_first(
    begun: str | None, leaving: list[LeavingNode], busy: tuple[str | None, str | None]
) -> None:
    """Of several domains with nodes in flight the one begun counts, and elsewhere only what is known to be drift."""
    times = {"a1": NOW - minutes(5), "c1": NOW - minutes(9)}
    nodes = [_in(name[0], name, marked="x", marked_since=at, drifted_since=NOW) for name, at in times.items()]
    ledger = _ledger(nodes, TURN, leaving=leaving)
    assert ledger.busy_domains(ledger.domains("default", names.ZONE), begun) == busy


@pytest.mark.parametrize(("taint", "busy"), [(names.DISRUPTION_TAINT, ("c", None)), ("example.com/odd", (None, "c"))])
def test_our_taint_on_a_drifted_node_is_drift(taint: str, busy: tuple[str | None, str | None]) -> None:
    """A drifted node that carries Dovetail's taint is in flight for drift, whichever domain was begun."""
    tainted = Node(spec=NodeSpec(taints=(Taint(key=taint, value="disrupting", effect="NoSchedule"),)))
    ledger = _ledger([_in("c", "c1", marked="x", drifted_since=NOW, node=tainted), _in("b", "b1")], TURN)
    assert ledger.busy_domains(ledger.domains("default", names.ZONE), "b") == busy


@pytest.mark.parametrize(
    ("annotations", "conditions", "drift"),
    [
        ({names.COMMAND: '{"method": "drifted"}'}, [], True),
        ({names.COMMAND: '{"method": "multiNode"}'}, [], False),
        ({names.COMMAND: "odd"}, [], True),
        ({}, [("DisruptionReason", "Drifted")], True),
        ({}, [("DisruptionReason", "Underutilized")], False),
    ],
)
def test_why_a_node_leaves(annotations: dict[str, str], conditions: list[tuple[str, str]], drift: bool) -> None:
    """Without a command in flight, a node's record says why it leaves, else its NodeClaim's conditions."""
    told = tuple(Condition(type=kind, status="True", reason=reason) for kind, reason in conditions)
    claim = NodeClaim(status=NodeClaimStatus(conditions=told))
    node = _in("a", "a1", marked="x", drifted_since=NOW, annotations=annotations, claim=claim)
    ledger = _ledger([node], TURN)
    busy = ledger.busy_domains(ledger.domains("default", names.ZONE))
    assert busy == (("a", None) if drift else (None, "a"))


@pytest.mark.parametrize(
    ("budgets", "leaving", "allowed", "left"),
    [
        ((_budget(10),), (), 10, 10),
        ((_budget(10), _budget(1, topology_key="zone", sequential=True)), (), 1, 1),
        ((_budget(10), _budget(1, topology_key="zone", sequential=True)), ("a0",), 1, 0),
        ((_budget(10), _budget(2, topology_key="zone", sequential=True)), ("a0",), 2, 1),
        ((_budget(10), _budget(1, topology_key="zone")), (), 3, 3),
        ((_budget(10), _budget(1, topology_key="zone")), ("a0",), 3, 2),
        ((_budget(2), _budget(1, topology_key="zone")), (), 2, 2),
        ((_budget(10), _budget(50, topology_key="zone", sequential=True, is_percent=True)), (), 2, 2),
        ((_budget(10), _budget(0, topology_key="zone", sequential=True)), (), 0, 0),
        ((_budget(10), _budget(1, topology_key="zone", reasons=(Reason.EMPTY,))), (), 10, 10),
    ],
)
def test_rows_say_what_drift_may_take_within_topology_budgets(
    budgets: tuple[Budget, ...], leaving: tuple[str, ...], allowed: int, left: int
) -> None:
    """Three zones of three nodes: the rows of drift are capped by domain, those of other reasons are not."""
    nodes = [
        facts_of(name=f"{zone}{index}", labels={"zone": zone}, marked="x" if f"{zone}{index}" in leaving else "",
                 marked_since=NOW, drifted_since=NOW)
        for zone in "abc"
        for index in range(3)
    ]  # fmt: skip
    rows = {row.reason: row for row in _ledger(nodes, *budgets, leaving=map(_leaving, leaving)).rows()}
    assert (rows[Reason.DRIFTED].allowed_with_domains, rows[Reason.DRIFTED].left_with_domains) == (allowed, left)
    empty = rows[Reason.EMPTY]
    assert (empty.allowed_with_domains, empty.left_with_domains) == (empty.allowed, empty.left)
