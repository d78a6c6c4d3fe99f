"""Which pods of each node would move if it went, ready for simulations, and kept from one snapshot to the next.

The pods of a node that are the very same objects as before, under PDBs that block the same, come to the same; only
where a pod's do-not-disrupt may run out is it looked at again. Remembering never changes an answer. Sits in
scheduling, below the snapshot.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter

from dovetail.model import names
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling import pods as filters
from dovetail.scheduling.bindings import Bindings
from dovetail.scheduling.classes import RESCHEDULABLE, PodClass, SpecInfo
from dovetail.scheduling.engine import Entry
from dovetail.scheduling.evictions import Blockers

Leaving = list[tuple[PodClass, int, int]]
"""Class, node and flags of pods that leave their node."""

_by_key = attrgetter("key")


class Movers:
    """The pods of one node that would move: `pods`, in the cluster's order, each with its class and flags."""

    __slots__ = ("_index", "_leaving", "_need", "_queue", "_settled", "_waiting", "classes", "flags", "of", "pods")

    def __init__(self, of: tuple[Pod, ...], pods: tuple[Pod, ...], classes: list[PodClass], flags: list[int]) -> None:
        self.of = of
        self.pods = pods
        self.classes = classes
        self.flags = flags
        self._queue: list[Entry] | None = None
        self._waiting: list[Entry] | None = None
        self._leaving: Leaving = []
        self._index = -1
        self._need: tuple[tuple[int, int], ...] | None = None
        self._settled: tuple[tuple[SpecInfo, int], ...] | None = None

    @property
    def queue(self) -> list[Entry]:
        """The pods as those of a candidate, in the order in which they are placed."""
        if self._queue is None:
            pairs = zip(self.pods, self.classes, strict=True)
            found = [Entry(pod, cls, exempt=filters.is_pending(pod), pending=False) for pod, cls in pairs]
            found.sort(key=_by_key)
            self._queue = found
        return self._queue

    @property
    def waiting(self) -> list[Entry]:
        """The pods as those of a node that is leaving already: they may land anywhere."""
        if self._waiting is None:
            pairs = zip(self.pods, self.classes, strict=True)
            self._waiting = [Entry(pod, cls, exempt=True, pending=False) for pod, cls in pairs]
        return self._waiting

    def leaving(self, index: int) -> Leaving:
        """What the engine takes out of its counts when the node, now at this place, goes."""
        if self._index != index:
            self._leaving = [(cls, index, flags) for cls, flags in zip(self.classes, self.flags, strict=True)]
            self._index = index
        return self._leaving

    @property
    def need(self) -> tuple[tuple[int, int], ...]:
        """What the pods ask for together, by resource."""
        if self._need is None:
            total: Counter[int] = Counter()
            for cls in self.classes:
                for column, amount in cls.info.need:
                    total[column] += amount
            self._need = tuple(total.items())
        return self._need

    @property
    def settled(self) -> tuple[tuple[SpecInfo, int], ...]:
        """How many pods of each spec have been started: those that closed nodes refuse."""
        if self._settled is None:
            pairs = zip(self.pods, self.classes, strict=True)
            counts = Counter(cls.info.id for pod, cls in pairs if pod.status.phase != "Pending")
            infos = {cls.info.id: cls.info for cls in self.classes}
            self._settled = tuple((infos[number], count) for number, count in counts.items())
        return self._settled


class MoverRegistry:
    """The movers of every node that was asked about."""

    def __init__(
        self,
        pdbs: Sequence[PodDisruptionBudget],
        keys: frozenset[str],
        old: "MoverRegistry | None",
    ) -> None:
        """`keys`: the labels by which pods are classed; another set of them may be other classes."""
        self._pdbs = pdbs
        self._keys = keys
        self._by_node: dict[str, Movers] = {}
        same = old is not None and old._keys is keys and _block_the_same(old._pdbs, pdbs)
        # All that was known goes on, whether it is asked for in this round or not; nodes that went are dropped.
        self._earlier: dict[str, Movers] = {**old._earlier, **old._by_node} if old is not None and same else {}

    def keep_only(self, nodes: Iterable[str]) -> None:
        """Forgets nodes that are gone."""
        known = ((name, self._earlier.get(name)) for name in nodes)
        self._earlier = {name: movers for name, movers in known if movers is not None}

    def of(self, name: str, index: int, pods: tuple[Pod, ...], bindings: Bindings, blockers: Blockers) -> Movers:
        """The movers of a node."""
        found = self._by_node.get(name)
        if found is None or found.of is not pods:
            found = self._earlier.get(name)
            if found is None or found.of is not pods or _may_run_out(pods):
                found = _movers(index, pods, bindings, blockers)
            self._by_node[name] = found
        return found


def _may_run_out(pods: Iterable[Pod]) -> bool:
    """Whether time alone may change who moves."""
    return any(names.DO_NOT_DISRUPT in pod.metadata.annotations for pod in pods if pod.metadata.annotations)


def _movers(index: int, of: tuple[Pod, ...], bindings: Bindings, blockers: Blockers) -> Movers:
    bits, all_pods = bindings.bits, bindings.pods
    places = [at for at in bindings.on_node(index) if bits[at] & RESCHEDULABLE and blockers.would_move(all_pods[at])]
    return Movers(
        of,
        tuple([all_pods[at] for at in places]),
        [bindings.class_at(at) for at in places],
        [bits[at] for at in places],
    )


def _block_the_same(one: Sequence[PodDisruptionBudget], other: Sequence[PodDisruptionBudget]) -> bool:
    """Whether two lists of PDBs block the same pods for good: their specs say so, their counts don't matter."""
    return len(one) == len(other) and all(
        a is b or (a.metadata.namespace == b.metadata.namespace and a.spec == b.spec)
        for a, b in zip(one, other, strict=True)
    )
