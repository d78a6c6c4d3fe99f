"""A roster that follows its nodes from round to round answers like a new one, whatever came, went or changed."""

from collections.abc import Sequence
from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from dovetail.decide.facts.cost_order import CostOrder
from dovetail.decide.facts.lineup import Lineup, step
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.roster import (
    NOBODY,
    ClosedGates,
    FirstClosed,
    Hidden,
    Members,
    Openings,
    Timetable,
    openings_once,
)
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, ObjectMeta
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import CandidateOrder
from dovetail.model.verdicts import Gate
from tests.support.nodes import NOW, facts_of, minutes

MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
NAMES = "abcdefgh"

_Change = tuple[str, int, int, str]
_CHANGE = st.tuples(
    st.sampled_from(NAMES), st.integers(0, 3), st.integers(0, 12), st.sampled_from(["web", "db", "gone"])
)
"""A node, how many pods it has now, the minute of its last pod event, and its pool; the last pool: it is gone."""
_ROUNDS = st.lists(
    st.tuples(st.integers(0, 30), st.lists(_CHANGE, max_size=4), st.sampled_from([None, frozenset({"web"})])),
    min_size=1,
    max_size=8,
)
"""Rounds: the minute of each (the clock may be set back), what changed before it, and the managed pools."""


def _facts(name: str, pods: int, event: int, pool: str) -> NodeFacts:
    return facts_of(
        name=name,
        pods=pods,
        pool_name=pool,
        claim=NodeClaim(metadata=ObjectMeta(creation_timestamp=NOW)),
        expire_after=HOUR,
        policy=DisruptionPolicy(consolidate_after=5 * MINUTE, grace_period=10 * MINUTE),
        last_event=NOW + minutes(event),
        marked="leaves" if pods == 3 else "",
    )


def _ask(facts: NodeFacts, now: datetime, managed: frozenset[str] | None) -> FirstClosed:
    """Return the gates of a node by its timers alone."""
    assert facts.consolidate_after is not None
    assert facts.grace_period is not None
    if managed is not None and facts.pool_name not in managed:
        return ((Method.EMPTY, Gate.MANAGED), (Method.SINGLE_NODE, Gate.MANAGED))
    idle = None if facts.consolidate_after.until <= now else Gate.CONSOLIDATE_AFTER
    seen = idle if idle is not None or facts.grace_period.until <= now else Gate.GRACE_PERIOD
    return ((Method.EMPTY, idle), (Method.SINGLE_NODE, seen))


def _names(nodes: Sequence[NodeFacts]) -> str:
    return "".join(facts.name for facts in nodes)


@given(_ROUNDS)
def test_what_is_kept_equals_what_is_new(
    rounds: list[tuple[int, list[tuple[str, int, int, str]], frozenset[str]]],
) -> None:
    """Openings, timetable, order, members and hidden nodes agree with new ones in every round."""
    openings, timetable, members, hidden = Openings(), Timetable(), Members(), Hidden()
    orders = {order: CostOrder() for order in CandidateOrder}
    views: list[tuple[ClosedGates, Lineup, list[FirstClosed]]] = []
    here = {name: _facts(name, 1, 0, "web") for name in NAMES[:4]}
    lineup = Lineup.of([here[name] for name in sorted(here)])
    for minute, changes, managed in rounds:
        before = dict(here)
        for change in changes:
            here.pop(change[0], None)
            if change[3] != "gone":
                here[change[0]] = _facts(*change)
        now = NOW + minutes(minute)
        followed = lineup.edited(*step(tuple(before.values()), tuple(here.values())))
        assert followed is not None
        nodes = lineup = followed
        assert _names(nodes) == "".join(sorted(here))
        assert nodes.by_name == here

        def ask(facts: NodeFacts, at: datetime = now, pools: frozenset[str] | None = managed) -> FirstClosed:
            return _ask(facts, at, pools)

        passing, stopped = openings.look_at(nodes, managed, now, ask)
        fresh, closed_now = openings_once(nodes, ask)
        assert passing == fresh
        views.append((stopped, nodes, [closed_now[id(facts)] for facts in nodes]))
        for view, those, answers in views:
            assert [view[id(facts)] for facts in those] == answers
        times = [when for facts in nodes for when in facts.times if when > now]
        assert timetable.soonest(nodes, now, lambda facts: facts.times) == min(times, default=None)
        for order, kept in orders.items():
            key = (
                (lambda f: (-f.savings_ratio, f.name))
                if order is CandidateOrder.SAVINGS_RATIO
                else (lambda f, at=now: (f.disruption_cost_float(at), f.name))
            )
            assert _names(kept.of(nodes, order, now)) == _names(sorted(nodes, key=key))
        found = members.by_pool(nodes)
        for pool in ("web", "db"):
            counted = [facts for facts in nodes if facts.pool_name == pool and facts.counted]
            assert list(found.get(pool, NOBODY).nodes) == counted
            assert found.get(pool, NOBODY).count == len(counted)
            assert found.get(pool, NOBODY).used == sum(facts.used for facts in counted)
        closed = hidden.of(nodes, now, lambda facts: facts.hidden_until)
        assert list(closed) == [facts for facts in nodes if facts.hidden_until and now < facts.hidden_until]


def test_a_node_is_asked_again_only_when_it_may_have_changed() -> None:
    """Its facts changed, or one of its timers ended."""
    openings, asked = Openings(), ""
    one, two, other = _facts("a", 1, 0, "web"), _facts("b", 1, 2, "web"), _facts("b", 2, 2, "web")

    def ask(facts: NodeFacts) -> FirstClosed:
        nonlocal asked
        asked += facts.name
        return ((Method.EMPTY, None),)

    for minute, nodes, told in (
        (0, (one, two), "ab"),
        (4, (one, two), ""),
        (5, (one, two), "a"),
        (6, (one, two), ""),
        (7, (one, other), "b"),
        (12, (one, other), "ab"),
        (11, (one, other), "ab"),
    ):
        asked = ""
        openings.look_at(nodes, None, NOW + minutes(minute), ask)
        assert asked == told, minute


def test_a_node_and_a_claim_of_one_name() -> None:
    """Both stay in the order when one of them changes."""
    order, one, two, three = CostOrder(), *(_facts("a", 1, at, "web") for at in (0, 1, 2))
    others = tuple(_facts(name, 1, 0, "web") for name in NAMES[1:])
    assert order.of((one, two, *others), CandidateOrder.SAVINGS_RATIO, NOW)[:2] == (one, two)
    found = order.of((one, three, *others), CandidateOrder.SAVINGS_RATIO, NOW)
    assert len(found) == len(others) + 2
    assert [facts for facts in found if facts is one or facts is three]
    assert all(facts is not two for facts in found)


def test_alarms_of_forgotten_nodes_are_cleared_out() -> None:
    """A timetable does not grow with the number of changes."""
    timetable = Timetable()
    for number in range(3000):
        timetable.soonest((_facts("a", 1, number % 12, "web"),), NOW, lambda facts: facts.times)
    assert len(timetable._alarms._heap) <= 1003


def test_nodes_that_come_back_are_hidden_until_their_time() -> None:
    """A view that is asked about earlier nodes again sets one alarm for each."""
    hidden, one, two = Hidden(), _facts("a", 1, 1, "web"), _facts("b", 1, 0, "web")
    both, fewer = Lineup.of([one, two]), Lineup.of([two])
    for nodes in (both, fewer, both):
        assert _names(hidden.of(nodes, NOW + minutes(2), lambda facts: facts.hidden_until)) == _names(nodes)
    assert one.hidden_until is not None
    assert _names(hidden.of(both, one.hidden_until, lambda facts: facts.hidden_until)) == ""
