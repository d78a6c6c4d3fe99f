"""Which pods of each node would move if it were removed, prepared for simulations and cached between snapshots.

A node's result stays valid while its pods are the same objects and the PDBs block the same pods, until a pod's
do-not-disrupt expires. The cache never changes an answer. Sits in scheduling, below the snapshot.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import compress
from operator import attrgetter

from dovetail.model.cached import cached
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.changes import changes
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.bindings import Bindings, ByNode
from dovetail.scheduling.pods.classes import RESCHEDULABLE, Classes, PodClass, SpecInfo
from dovetail.scheduling.pods.coming_sizes import ComingSizes
from dovetail.scheduling.pods.evictions import Blockers, ProtectionSpan, is_protected, span_of
from dovetail.scheduling.pods.surge import Owner

Leaving = list[tuple[PodClass, int, int]]
"""Class, node and flags of pods that leave their node."""

_by_key = attrgetter("key")
_GONE_MAX = 100
"""The movers of how many nodes that are gone may be kept before they are dropped."""

Specs = tuple[tuple[SpecInfo, int], ...]
"""How many pods of each spec."""


class Movers:
    """The pods of one node that would move: `pods`, in the cluster's order, each with its class and flags.

    `at`: their places among `of`, all pods of the node. `classes`: as they come back; `was`: as they are.
    """

    def __init__(
        self,
        of: tuple[Pod, ...],
        pods: tuple[Pod, ...],
        classes: list[PodClass],
        flags: list[int],
        at: tuple[int, ...],
        span: ProtectionSpan,
        was: list[PodClass],
    ) -> None:
        self.was = was
        self.of = of
        self.at = at
        self.pods = pods
        self.classes = classes
        self.flags = flags
        self.span = span
        self._leaving: Leaving = []
        self._index = -1

    @cached
    def queue(self) -> list[Entry]:
        """Return the pods as queue entries of a candidate, in the order in which they are placed."""
        pairs = zip(self.pods, self.classes, strict=True)
        found = [Entry(pod, cls, exempt=filters.is_pending(pod), pending=False) for pod, cls in pairs]
        found.sort(key=_by_key)
        return found

    @cached
    def alike(self) -> list[list[Entry]]:
        """Return the pods of each class, started or not, in the order in which they are placed."""
        found: dict[tuple[int, bool], list[Entry]] = {}
        for entry in self.queue:
            found.setdefault(entry.kind, []).append(entry)
        return list(found.values())

    @cached
    def waiting(self) -> list[Entry]:
        """Return the pods as queue entries of a node that is already leaving: they may go anywhere."""
        pairs = zip(self.pods, self.classes, strict=True)
        return [Entry(pod, cls, exempt=True, pending=False, leaving=True) for pod, cls in pairs]

    @cached
    def waiting_by_name(self) -> dict[str, Entry]:
        """Return these entries by the pods' `namespace/name`; don't modify them."""
        return {entry.name: entry for entry in self.waiting}

    def leaving(self, index: int) -> Leaving:
        """Return what the packer removes from its counts when the node, now at this index, goes."""
        if self._index != index:
            self._leaving = [(cls, index, flags) for cls, flags in zip(self.was, self.flags, strict=True)]
            self._index = index
        return self._leaving

    @cached
    def specs(self) -> Specs:
        """Return how many pods there are of each spec."""
        return _count(self.classes)

    @cached
    def started(self) -> Specs:
        """Return how many started pods there are of each spec: closed nodes refuse these."""
        pairs = zip(self.pods, self.classes, strict=True)
        started = [cls for pod, cls in pairs if pod.status.phase != "Pending"]
        return self.specs if len(started) == len(self.classes) else _count(started)


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
        coming: "ComingClasses | None" = None,
    ) -> None:
        """Create a registry; `keys`: the labels by which pods are classed (another set may give other classes).

        `coming`: the classes of pods that come back with another size.
        """
        self._coming = coming
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
            if old._keys is keys and _come_back_the_same(old._coming, coming):
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
                held = self._held_on(index, bindings)
                found = _movers(index, pods, bindings, held, self.blockers, now, self._coming)
            self._by_node[name] = found
        return found

    def _held_on(self, index: int, bindings: Bindings) -> list[bool] | None:
        """Return which pods of a node PDBs may block for good; None: it may be any."""
        if self._held is None or self._held[0] is not bindings:
            self._held = bindings, bindings.might(self.blockers.index.may_select)
        held = self._held[1]
        return None if held is None else held[index]


def _movers(
    index: int,
    of: tuple[Pod, ...],
    bindings: Bindings,
    held: list[bool] | None,
    blockers: Blockers,
    now: datetime,
    coming: "ComingClasses | None",
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
    pods, was = tuple([of[at] for at in moving]), bindings.classes_at([places[at] for at in moving])
    return Movers(
        of,
        pods,
        was if coming is None else [coming.of(pod, cls) for pod, cls in zip(pods, was, strict=True)],
        [flags[at] for at in moving],
        moving,
        span_of(compress(of, odd), now),
        was,
    )


class ComingClasses:
    """The classes of pods that come back with another size than they have, of all pods of a snapshot."""

    def __init__(self, sizes: ComingSizes, classes: Classes, pods: Iterable[Pod], bindings: Bindings) -> None:
        self.sizes = sizes
        self._by_pod: dict[int, PodClass] = {}
        for place, pod in enumerate(pods):
            if pod.metadata.owner_references and (sizes.advice_of(pod) or sizes.grown_of(pod)):
                own = bindings.class_at(place)
                found = sizes.class_of(pod, own, classes)
                if found is not own:
                    self._by_pod[id(pod)] = found

    def of(self, pod: Pod, own: PodClass) -> PodClass:
        """Return the class with which a pod of the snapshot comes back."""
        return self._by_pod.get(id(pod), own)

    def ids(self) -> list[int]:
        """Return the numbers of these classes."""
        return sorted({cls.id for cls in self._by_pod.values()})


def _come_back_the_same(one: ComingClasses | None, other: ComingClasses | None) -> bool:
    return one is other or (one is not None and other is not None and one.sizes is other.sizes)


def _block_the_same(one: Sequence[PodDisruptionBudget], other: Sequence[PodDisruptionBudget]) -> bool:
    """Return whether two lists of PDBs block the same pods permanently: only their specs matter, not their counts."""
    if len(one) != len(other):
        return False
    gone, new = changes(one, other)
    return len(gone) == len(new) and all(
        a.metadata.namespace == b.metadata.namespace and a.spec == b.spec for a, b in zip(gone, new, strict=True)
    )
