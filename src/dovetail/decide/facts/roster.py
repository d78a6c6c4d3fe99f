"""What a round asks of all nodes together, brought up to date by the nodes that changed since the last round.

Facts are immutable: a node that changed has other facts, so comparing identities tells what is new. Each view follows
the nodes by itself, and may be asked about earlier nodes or times again. A new roster gives the same answers, more
slowly. Sits in decide, above node_facts, below the cache and the context.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter
from typing import Final

from dovetail.decide.facts.cost_order import CostOrder
from dovetail.decide.facts.lineup import Lineup, step
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.oddities import Oddities
from dovetail.model.cached import cached
from dovetail.model.command import Method
from dovetail.model.listing import keys_changed
from dovetail.model.verdicts import Gate

FirstClosed = tuple[tuple[Method, Gate | None], ...]
"""For each method of a node, the first of gates 1 to 7 that is closed now; None: it passes them all."""
TimesOf = Callable[[NodeFacts], Sequence[datetime]]
"""Returns the times at which a node's answers may change."""

_name: Final = attrgetter("name")
_STALE_MAX: Final = 1000
"""How many outdated alarms are kept beside those of the nodes before they are cleared out."""


class _Followed:
    """The nodes that a view was last asked about."""

    def __init__(self) -> None:
        self.nodes: Sequence[NodeFacts] = ()

    def step(self, nodes: Sequence[NodeFacts]) -> tuple[Sequence[NodeFacts], Sequence[NodeFacts]]:
        """Follow to these nodes; return the facts that are not valid any more, and the new ones."""
        before, self.nodes = self.nodes, nodes
        return step(before, nodes)


class _Alarms:
    """The next time at which each followed node may change, soonest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, NodeFacts]] = []
        self._numbers = count()
        self._set: dict[int, int] = {}

    def set(self, facts: NodeFacts, times: Sequence[datetime], now: datetime) -> None:
        """Set a node's alarm to the first of these times after now."""
        number = self._set[id(facts)] = next(self._numbers)
        when = min([when for when in times if when > now], default=None)
        if when is not None:
            heappush(self._heap, (when, number, facts))

    def has(self, facts: NodeFacts) -> bool:
        """Return whether a node is known here."""
        return id(facts) in self._set

    def drop(self, gone: Sequence[NodeFacts]) -> None:
        """Forget nodes."""
        for facts in gone:
            del self._set[id(facts)]
        if len(self._heap) > 2 * len(self._set) + _STALE_MAX:
            self._heap = [entry for entry in self._heap if self._set.get(id(entry[2])) == entry[1]]
            heapify(self._heap)

    def pop(self, now: datetime) -> Iterator[NodeFacts]:
        """Return the nodes whose alarm has come; the caller sets the next one."""
        while (soonest := self.soonest()) is not None and soonest <= now:
            yield heappop(self._heap)[2]

    def soonest(self) -> datetime | None:
        """Return the time of the next alarm."""
        while self._heap and self._set.get(id(self._heap[0][2])) != self._heap[0][1]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None


class Timetable:
    """When the next timer of any node ends."""

    def __init__(self) -> None:
        self._followed, self._alarms = _Followed(), _Alarms()
        self._now: datetime | None = None

    def soonest(self, nodes: Sequence[NodeFacts], now: datetime, times_of: TimesOf) -> datetime | None:
        """Return the earliest time of a node after now."""
        if self._now is not None and now < self._now:
            self._followed, self._alarms = _Followed(), _Alarms()
        self._now = now
        gone, new = self._followed.step(nodes)
        self._alarms.drop(gone)
        for facts in (*new, *self._alarms.pop(now)):
            self._alarms.set(facts, times_of(facts), now)
        return self._alarms.soonest()


class ClosedGates:
    """Where the gates of each node end, by identity, as it was at one time.

    All of them share one dict, that of the latest; an earlier one knows what has been replaced in it since.
    """

    __slots__ = ("_found", "_later", "_replaced")

    def __init__(self, found: dict[int, FirstClosed]) -> None:
        self._found = found
        self._replaced: dict[int, FirstClosed] = {}
        self._later: ClosedGates | None = None

    def __getitem__(self, number: int) -> FirstClosed:
        """Return where the gates of a node end."""
        view = self
        while view._later is not None:
            if number in view._replaced:
                return view._replaced[number]
            view = view._later
        return view._found[number]

    def of(self, nodes: Iterable[NodeFacts]) -> list[FirstClosed]:
        """Return where the gates of nodes end."""
        closed = self if self._later is not None else self._found
        return [closed[id(facts)] for facts in nodes]

    def renewed(self, out: Iterable[NodeFacts]) -> "ClosedGates":
        """Return the next one, without some of the nodes; only the latest may be renewed, and put nodes into."""
        after = self._later = ClosedGates(self._found)
        for facts in out:
            if id(facts) in self._found:
                self._replaced[id(facts)] = self._found.pop(id(facts))
        return after

    def put(self, facts: NodeFacts, closed: FirstClosed) -> None:
        """Record where the gates of a node end."""
        self._found[id(facts)] = closed

    def before(self, facts: NodeFacts) -> FirstClosed:
        """Return where the gates of a node ended that was left out of the next one; nowhere if it was not there."""
        return self._replaced.get(id(facts), ())


class Openings:
    """How far each node gets in gates 1 to 7, asked again when one of its timers ends."""

    def __init__(self) -> None:
        self._managed: frozenset[str] | None = None
        self._now: datetime | None = None
        self._start_again()

    def _start_again(self) -> None:
        self._followed, self._alarms = _Followed(), _Alarms()
        self._closed = ClosedGates({})
        self._kinds: dict[FirstClosed, FirstClosed] = {}
        self._passing: dict[Method, Lineup] = dict.fromkeys(Method, Lineup.of(()))

    def look_at(
        self,
        nodes: Sequence[NodeFacts],
        managed: frozenset[str] | None,
        now: datetime,
        ask: Callable[[NodeFacts], FirstClosed],
    ) -> tuple[dict[Method, Lineup], ClosedGates]:
        """Return the nodes that are open to each method, by name, and the closed gates of each, by identity.

        `managed`: the managed pools, None: all. `ask` is called for nodes that may have changed.
        """
        if managed != self._managed or (self._now is not None and now < self._now):
            self._start_again()
        self._managed, self._now = managed, now
        gone, new = self._followed.step(nodes)
        self._alarms.drop(gone)
        asked = [*new, *self._alarms.pop(now)]
        out: dict[Method, dict[int, NodeFacts]] = {}
        coming: dict[Method, dict[int, NodeFacts]] = {}
        before, self._closed = self._closed, self._closed.renewed((*gone, *asked))
        for facts in (*gone, *asked):
            for method in _open_methods(before.before(facts)):
                out.setdefault(method, {})[id(facts)] = facts
        for facts in asked:
            closed = ask(facts)
            closed = self._kinds.setdefault(closed, closed)
            self._closed.put(facts, closed)
            for method in _open_methods(closed):
                if out.get(method, {}).pop(id(facts), None) is None:
                    coming.setdefault(method, {})[id(facts)] = facts
            times = (*facts.times, *facts.window_edges(now)) if facts.pod_windows else facts.times
            self._alarms.set(facts, times, now)
        made: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Lineup] = {}
        for method in {**out, **coming}:
            some, others, last = out.get(method, {}), coming.get(method, {}), self._passing[method]
            mark = id(last), tuple(some), tuple(others)
            if mark not in made:  # the two cost methods have the same nodes
                made[mark] = _edited(last, tuple(some.values()), tuple(others.values()), nodes)
            self._passing[method] = made[mark]
        return dict(self._passing), self._closed


def _edited(before: Lineup, gone: Sequence[NodeFacts], new: Sequence[NodeFacts], nodes: Sequence[NodeFacts]) -> Lineup:
    """Return a lineup without some nodes and with others; `nodes`: all of them, by name."""
    found = before.edited(gone, new)
    if found is None:
        here = {id(facts) for facts in (*before, *new)}.difference(map(id, gone))
        found = Lineup.of([facts for facts in nodes if id(facts) in here])
    return found


def openings_once(
    nodes: Sequence[NodeFacts], ask: Callable[[NodeFacts], FirstClosed]
) -> tuple[dict[Method, Lineup], ClosedGates]:
    """Return what `Openings` returns, without following the nodes any further."""
    closed = {id(facts): ask(facts) for facts in nodes}
    passing: dict[Method, list[NodeFacts]] = {method: [] for method in Method}
    for facts in nodes:
        for method in _open_methods(closed[id(facts)]):
            passing[method].append(facts)
    return {method: Lineup.of(found) for method, found in passing.items()}, ClosedGates(closed)


def _open_methods(closed: FirstClosed) -> list[Method]:
    return [method for method, gate in closed if gate is None]


class Unrefused:
    """The nodes of a lineup without those that have a veto."""

    def __init__(self) -> None:
        self._followed = _Followed()
        self._vetoes: Mapping[str, object] = {}
        self._left_out: dict[str, NodeFacts] = {}
        self._found = Lineup.of(())

    def of(self, nodes: Lineup, vetoes: Mapping[str, object]) -> Lineup:
        """Return the nodes whose names are not among the vetoes; no two of them have the same name."""
        gone, new = self._followed.step(nodes)
        turned = keys_changed(self._vetoes, vetoes)
        self._vetoes, left_out = vetoes, self._left_out
        leaving, coming = [], []
        for facts in gone:
            if left_out.get(facts.name) is facts:
                del left_out[facts.name]
            else:
                leaving.append(facts)
        for facts in new:
            if facts.name in vetoes:
                left_out[facts.name] = facts
            else:
                coming.append(facts)
        for name in turned:
            if name not in vetoes and name in left_out:
                coming.append(left_out.pop(name))
            elif name in vetoes and name not in left_out and name in nodes.by_name:
                left_out[name] = nodes.by_name[name]
                leaving.append(left_out[name])
        self._found = _edited(self._found, leaving, coming, nodes)
        return self._found


class Hidden:
    """The nodes that a timer closes to moved pods."""

    def __init__(self) -> None:
        self._now: datetime | None = None
        self._start_again()

    def _start_again(self) -> None:
        self._followed, self._alarms = _Followed(), _Alarms()
        self._hidden = Lineup.of(())

    def of(self, nodes: Sequence[NodeFacts], now: datetime, until_of: Callable[[NodeFacts], datetime | None]) -> Lineup:
        """Return the nodes that are closed now, by name; `until_of`: until when a node is, if at all."""
        if self._now is not None and now < self._now:
            self._start_again()
        self._now = now
        gone, new = self._followed.step(nodes)
        leaving = [facts for facts in gone if self._alarms.has(facts)]
        self._alarms.drop(leaving)
        ended = list(self._alarms.pop(now))
        self._alarms.drop(ended)
        coming = []
        for facts in new:
            until = until_of(facts)
            if until is not None and now < until:
                coming.append(facts)
                self._alarms.set(facts, (until,), now)
        found = self._hidden.edited([*leaving, *ended], coming)
        if found is None:
            found = Lineup.of([facts for facts in nodes if self._alarms.has(facts)])
        self._hidden = found
        return found


class Counted:
    """How many nodes of a pool budgets count, and how many of them use up budget; which ones is found if asked."""

    def __init__(self, pool: str, count: int, used: int, everybody: Sequence[NodeFacts]) -> None:
        self.count, self.used = count, used
        self._pool, self._everybody = pool, everybody

    @cached
    def nodes(self) -> Sequence[NodeFacts]:
        """Return these nodes, by name."""
        own = (facts for facts in self._everybody if facts.counted and facts.pool_name == self._pool)
        return sorted(own, key=_name)


NOBODY: Final = Counted("", 0, 0, ())


class Members:
    """How many nodes budgets count, by pool."""

    def __init__(self) -> None:
        self._followed = _Followed()
        self._count: Counter[str] = Counter()
        self._used: Counter[str] = Counter()

    def by_pool(self, nodes: Sequence[NodeFacts]) -> Mapping[str, Counted]:
        """Return the counted nodes of each pool that has some."""
        for some, sign in zip(self._followed.step(nodes), (-1, 1), strict=True):
            for facts in some:
                if facts.counted:
                    self._count[facts.pool_name] += sign
                    self._used[facts.pool_name] += sign * facts.used
        pools = [pool for pool, count in self._count.items() if count]
        return {pool: Counted(pool, self._count[pool], self._used[pool], nodes) for pool in pools}


class Roster:
    """The views of all nodes."""

    def __init__(self) -> None:
        self.openings, self.order, self.timetable, self.members = Openings(), CostOrder(), Timetable(), Members()
        self.hidden, self.oddities, self.unrefused = Hidden(), Oddities(), Unrefused()
