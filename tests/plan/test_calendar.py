"""The calendar uses the same rules as a round, at every edge of every window."""

import itertools
import json
from datetime import UTC, datetime, timedelta

from dovetail.api.reading.decode import decode_objects
from dovetail.decide.outcome import UNLIMITED
from dovetail.decide.question import Question
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import cluster_of
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import DOVETAIL
from dovetail.plan.calendar import PoolCalendar, Stretch, calendar

NOW = datetime(2026, 5, 13, 7, 30, tzinfo=UTC)  # a Wednesday


def _question(budgets: str) -> Question:
    text = f"""
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: web}}
spec:
  disruption: {{budgets: {budgets}}}
  template: {{spec: {{requirements: [], nodeClassRef: {{group: g, kind: k, name: c}}}}}}
"""
    return _asked(text)


def _asked(text: str) -> Question:
    cluster = cluster_of(decode_objects(text.encode()).objects)
    return Question(cluster=cluster, catalogue=Catalogue(instance_types=()), settings=DOVETAIL, now=NOW)


def _at(stretches: tuple[Stretch, ...], moment: datetime) -> int:
    return next(s.allowed for s in stretches if s.begin <= moment < s.end)


def _only(budgets: str, days: int = 7) -> PoolCalendar:
    (pool,) = calendar(_question(budgets), days)
    return pool


def test_business_hours_around_their_edges() -> None:
    """Nothing from 9 to 17 on weekdays, else ten; the hit is inside, the end is not.

    Design: disruption-controls, Proposed Spec.
    """
    pool = _only('[{nodes: "0", schedule: "0 9 * * mon-fri", duration: 8h}, {nodes: "10"}]')
    stretches = pool.stretches[Reason.UNDERUTILIZED]
    nine = datetime(2026, 5, 13, 9, tzinfo=UTC)
    assert _at(stretches, nine - timedelta(seconds=1)) == 10
    assert _at(stretches, nine) == 0
    assert _at(stretches, nine + timedelta(hours=8, seconds=-1)) == 0
    assert _at(stretches, nine + timedelta(hours=8)) == 10
    saturday = datetime(2026, 5, 16, 12, tzinfo=UTC)
    assert _at(stretches, saturday) == 10


def test_the_deciding_budget_is_named() -> None:
    """Each period names the strictest active budget by its index in the list."""
    pool = _only('[{nodes: "5"}, {nodes: "2", schedule: "0 8 * * *", duration: 1h, reasons: [Empty]}]', days=1)
    named = [(s.allowed, s.budget.index if s.budget else None) for s in pool.stretches[Reason.EMPTY]]
    assert named == [(5, 0), (2, 1), (5, 0)]
    assert [s.allowed for s in pool.stretches[Reason.DRIFTED]] == [5]


def test_topology_budgets_take_no_part() -> None:
    """Topology-budgets, Interaction with NodePool-Level Budgets: a budget with a topologyKey does not cap the pool."""
    pool = _only('[{nodes: "1", topologyKey: topology.kubernetes.io/zone, sequential: true, reasons: [Drifted]}]')
    assert pool.now[Reason.DRIFTED].allowed == UNLIMITED


def test_a_broken_budget_closes_only_its_reasons() -> None:
    """An unreadable schedule allows 0 for the reasons it names and does not affect the others."""
    pool = _only('[{nodes: "3"}, {nodes: "5", schedule: "61 9 * * *", duration: 1h, reasons: [Drifted]}]')
    assert pool.now[Reason.DRIFTED].allowed == 0
    assert pool.now[Reason.EMPTY].allowed == 3


def test_stretches_cover_the_whole_time_without_gaps() -> None:
    """Each period begins at the end of the one before, from now to the end of the last day."""
    pool = _only('[{nodes: "1", schedule: "*/7 3-5 * * *", duration: 3m}, {nodes: "9"}]', days=2)
    for stretches in pool.stretches.values():
        assert stretches[0].begin == NOW
        assert stretches[-1].end == NOW + timedelta(days=2)
        assert all(a.end == b.begin for a, b in itertools.pairwise(stretches))
        assert all(a.allowed != b.allowed or a.budget != b.budget for a, b in itertools.pairwise(stretches))


def _with(disruption: str, **annotations: str) -> PoolCalendar:
    """Return the calendar of a pool over a day."""
    noted = json.dumps({f"dovetail.dev/{key.replace('_', '-')}": value for key, value in annotations.items()})
    text = f"""
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: web, annotations: {noted}}}
spec:
  disruption: {disruption}
  template: {{spec: {{requirements: [], nodeClassRef: {{group: g, kind: k, name: c}}}}}}
"""
    (pool,) = calendar(_asked(text), 1)
    return pool


def test_outside_every_window_nothing_may_leave() -> None:
    """Reasons that a window names are closed until it opens (docs/rules.md#windows)."""
    pool = _with('{budgets: [{nodes: "5"}], windows: [{schedule: "0 22 * * *", duration: 2h, reasons: [Drifted]}]}')
    drifted = [(s.begin.hour, s.allowed, s.closed) for s in pool.stretches[Reason.DRIFTED]]
    assert drifted == [(7, 0, True), (22, 5, False), (0, 0, True)]
    assert [(s.allowed, s.closed) for s in pool.stretches[Reason.EMPTY]] == [(5, False)]


def test_a_rate_gives_back_what_it_took() -> None:
    """Each of two departures frees its place an hour after it began (docs/rules.md#rates)."""
    gone = [
        {"at": "2026-05-13T06:50:00Z", "reason": "Empty", "nodes": 1, "command": "a"},
        {"at": "2026-05-13T07:20:00Z", "reason": "Empty", "nodes": 1, "command": "b"},
    ]
    pool = _with('{budgets: [{nodes: "5"}, {nodes: "3", per: 1h}]}', recent_disruptions=json.dumps(gone))
    found = [(s.begin.strftime("%H:%M"), s.allowed) for s in pool.stretches[Reason.EMPTY]]
    assert found == [("07:30", 1), ("07:50", 2), ("08:20", 3)]
    assert pool.used == 0, "nothing is leaving now"
