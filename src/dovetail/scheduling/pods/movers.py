"""Which pods of each node would move if it were removed, prepared for simulations and cached between snapshots.

A node's result stays valid while its pods are the same objects and the PDBs block the same pods, until a pod's
do-not-disrupt expires. The cache never changes an answer. Sits in scheduling, below the snapshot.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import compress
from operator import attrgetter

from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.by_node import ByNode
from dovetail.scheduling.pods.classes import RESCHEDULABLE, PodClass, SpecInfo
from dovetail.scheduling.pods.evictions import Blockers, ProtectionSpan, is_protected, span_of
from dovetail.scheduling.pods.surge import Owner
from dovetail.scheduling.reading.changes import changes

Leaving = list[tuple[PodClass, int, int]]
"""Class, node and flags of pods that leave their node."""

_by_key = attrgetter("key")
_GONE_MAX = 100
"""Of how many nodes that are gone movers may be kept until somebody sweeps."""

Specs = tuple[tuple[SpecInfo, int], ...]
"""How many pods of each spec."""
Mark = frozenset[tuple[int, int]]


class Demand:
    """The total requests of pods, by resource; `mark`: the minimum of each resource that all of them request."""

    __slots__ = ("mark", "total")

    def __init__(self, total: dict[int, int], mark: Mark) -> None:
        self.total = total
        self.mark = mark

    @staticmethod
    def of(specs: Sequence[tuple[SpecInfo, int]]) -> "Demand":
        """Return the demand of the given numbers of pods of these specs."""
        total: dict[int, int] = {}
        for info, count in specs:
            for column, amount in info.need:
                total[column] = total.get(column, 0) + count * amount
        return Demand(total, _least([dict(info.need) for info, _ in specs]))

    def plus(self, other: "Demand") -> "Demand":
        """Return the sum of two demands."""
        if not self.total or not other.total:
            return self if self.total else other
        total = self.total.copy()
        for column, amount in other.total.items():
            total[column] = total.get(column, 0) + amount
        mark = self.mark if self.mark == other.mark else _least([dict(self.mark), dict(other.mark)])
        return Demand(total, mark)


def _least(needs: Sequence[dict[int, int]]) -> Mark:
    """Return the minimum of each resource that all of these have."""
    if not needs:
        return frozenset()
    found, rest = [], needs[1:]
    for column, least in needs[0].items():
        for need in rest:
            amount = need.get(column)
            if amount is None:
                break
            if amount < least:
                least = amount
        else:
            found.append((column, least))
    return frozenset(found)


class Movers:
    """The pods of one node that would move: `pods`, in the cluster's order, each with its class and flags.

    `at`: their places among `of`, all pods of the node.
    """

    __slots__ = (
        "_alike",
        "_demand",
        "_index",
        "_kinds",
        "_leaving",
        "_most",
        "_named",
        "_queue",
        "_specs",
        "_started",
        "_started_demand",
        "_waiting",
        "at",
        "classes",
        "flags",
        "of",
        "pods",
        "span",
    )

    def __init__(
        self,
        of: tuple[Pod, ...],
        pods: tuple[Pod, ...],
        classes: list[PodClass],
        flags: list[int],
        at: tuple[int, ...],
        span: ProtectionSpan,
    ) -> None:
        self.of = of
        self.at = at
        self.pods = pods
        self.classes = classes
        self.flags = flags
        self.span = span
        self._queue: list[Entry] | None = None
        self._alike: list[list[Entry]] | None = None
        self._waiting: list[Entry] | None = None
        self._named: dict[str, Entry] | None = None
        self._leaving: Leaving = []
        self._index = -1
        self._kinds: int | None = None
        self._most: int | None = None
        self._specs: Specs | None = None
        self._started: Specs | None = None
        self._demand: Demand | None = None
        self._started_demand: Demand | None = None

    @property
    def queue(self) -> list[Entry]:
        """Return the pods as queue entries of a candidate, in the order in which they are placed."""
        if self._queue is None:
            pairs = zip(self.pods, self.classes, strict=True)
            found = [Entry(pod, cls, exempt=filters.is_pending(pod), pending=False) for pod, cls in pairs]
            found.sort(key=_by_key)
            self._queue = found
        return self._queue

    @property
    def alike(self) -> list[list[Entry]]:
        """Return the pods of each class, started or not, in the order in which they are placed."""
        if self._alike is None:
            found: dict[tuple[int, bool], list[Entry]] = {}
            for entry in self.queue:
                found.setdefault(entry.mark, []).append(entry)
            self._alike = list(found.values())
        return self._alike

    @property
    def waiting(self) -> list[Entry]:
        """Return the pods as queue entries of a node that is already leaving: they may go anywhere."""
        if self._waiting is None:
            pairs = zip(self.pods, self.classes, strict=True)
            self._waiting = [Entry(pod, cls, exempt=True, pending=False, leaving=True) for pod, cls in pairs]
        return self._waiting

    @property
    def waiting_by_name(self) -> dict[str, Entry]:
        """Return these entries by the pods' `namespace/name`; don't modify them."""
        if self._named is None:
            self._named = {entry.name: entry for entry in self.waiting}
        return self._named

    def leaving(self, index: int) -> Leaving:
        """Return what the packer removes from its counts when the node, now at this index, goes."""
        if self._index != index:
            self._leaving = [(cls, index, flags) for cls, flags in zip(self.classes, self.flags, strict=True)]
            self._index = index
        return self._leaving

    @property
    def specs(self) -> Specs:
        """Return how many pods there are of each spec."""
        if self._specs is None:
            self._specs = _count(self.classes)
        return self._specs

    @property
    def started(self) -> Specs:
        """Return how many started pods there are of each spec: closed nodes refuse these."""
        if self._started is None:
            pairs = zip(self.pods, self.classes, strict=True)
            started = [cls for pod, cls in pairs if pod.status.phase != "Pending"]
            self._started = self.specs if len(started) == len(self.classes) else _count(started)
        return self._started

    @property
    def kinds(self) -> int:
        """Return the specs of the started pods, as bits."""
        if self._kinds is None:
            self._kinds = 0
            for info, _ in self.started:
                self._kinds |= info.bit
        return self._kinds

    @property
    def most(self) -> int:
        """Return how many started pods there are of the most frequent spec."""
        if self._most is None:
            self._most = max([count for _, count in self.started], default=0)
        return self._most

    @property
    def demand(self) -> Demand:
        """Return the total requests of the pods."""
        if self._demand is None:
            self._demand = Demand.of(self.specs)
        return self._demand

    @property
    def started_demand(self) -> Demand:
        """Return the total requests of the pods that have been started."""
        if self._started_demand is None:
            self._started_demand = self.demand if self.started is self.specs else Demand.of(self.started)
        return self._started_demand


def _count(classes: Iterable[PodClass]) -> Specs:
    counts: dict[int, int] = {}
    infos: dict[int, SpecInfo] = {}
    for cls in classes:
        info = cls.info
        if info.claims:
            continue  # it is never placed, so it needs no room anywhere
        number = info.id
        if number in counts:
            counts[number] += 1
        else:
            counts[number], infos[number] = 1, info
    return tuple([(infos[number], count) for number, count in counts.items()])


class MoverRegistry:
    """The movers of every node that was looked up."""

    def __init__(
        self,
        pdbs: Sequence[PodDisruptionBudget],
        keys: frozenset[str],
        old: "MoverRegistry | None",
        surging: frozenset[Owner] = frozenset(),
    ) -> None:
        """Create a registry; `keys`: the labels by which pods are classed (another set may give other classes)."""
        self._pdbs = pdbs
        self._keys = keys
        self._surging = surging
        self._by_node: dict[str, Movers] = {}
        self._earlier: dict[str, Movers] = {}
        self._blockers: Blockers | None = None
        self._held: tuple[Bindings, ByNode[bool] | None] | None = None
        self.lineage = object()
        if old is not None and old._surging == surging and _block_the_same(old._pdbs, pdbs):
            self._blockers = old._blockers
            if old._keys is keys:
                # Everything known is kept, whether it is used in this round or not; pods tell what is still valid.
                self._earlier = old._earlier
                self._earlier.update(old._by_node)
                self.lineage = old.lineage

    @property
    def blockers(self) -> Blockers:
        """Return the PDBs that never allow an eviction."""
        if self._blockers is None:
            self._blockers = Blockers(self._pdbs, self._surging)
        return self._blockers

    def keep_only(self, nodes: Sequence[str]) -> None:
        """Forget nodes that are gone, when there are enough of them."""
        if len(self._earlier) > len(nodes) + _GONE_MAX:
            here = set(nodes)
            self._earlier = {name: movers for name, movers in self._earlier.items() if name in here}

    def of(self, name: str, index: int, pods: tuple[Pod, ...], bindings: Bindings, now: datetime) -> Movers:
        """Return the movers of a node."""
        found = self._by_node.get(name)
        if found is None or found.of is not pods:
            found = self._earlier.get(name)
            if found is None or found.of is not pods or not found.span.covers(now):
                found = _movers(index, pods, bindings, self._held_on(index, bindings), self.blockers, now)
            self._by_node[name] = found
        return found

    def _held_on(self, index: int, bindings: Bindings) -> list[bool] | None:
        """Return which pods of a node PDBs may block for good; None: it may be any."""
        if self._held is None or self._held[0] is not bindings:
            self._held = bindings, bindings.might(self.blockers.select)
        held = self._held[1]
        return None if held is None else held[index]


def _movers(
    index: int, of: tuple[Pod, ...], bindings: Bindings, held: list[bool] | None, blockers: Blockers, now: datetime
) -> Movers:
    """Return the movers of a node; `held`: the pods that PDBs may block for good, None: it may be any."""
    flags, odd = bindings.marks_on(index)
    places = bindings.on_node(index)
    moving = tuple(
        [
            at
            for at, (pod, bits, is_odd, is_held) in enumerate(
                zip(of, flags, odd, held or [True] * len(of), strict=True)
            )
            if bits & RESCHEDULABLE
            and not (is_odd and is_protected(pod, now))
            and not (is_held and blockers.block(pod))
        ]
    )
    return Movers(
        of,
        tuple([of[at] for at in moving]),
        bindings.classes_at([places[at] for at in moving]),
        [flags[at] for at in moving],
        moving,
        span_of(compress(of, odd), now),
    )


def _block_the_same(one: Sequence[PodDisruptionBudget], other: Sequence[PodDisruptionBudget]) -> bool:
    """Return whether two lists of PDBs block the same pods permanently: only their specs matter, not their counts."""
    if len(one) != len(other):
        return False
    gone, new = changes(one, other)
    return len(gone) == len(new) and all(
        a.metadata.namespace == b.metadata.namespace and a.spec == b.spec for a, b in zip(gone, new, strict=True)
    )
