"""What the pods of each node come to: costs, who would move, who objects; and a memory of it from round to round.

Pods of a node that are the very same objects as in the round before, under the same PDBs, come to the same: only what
changed is counted again. The memory never changes an answer. Sits in decide, below reading.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.decide import cost
from dovetail.decide.drainability import Guards, PdbVeto, Protection, protection, unreadable_protection
from dovetail.model import names
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.classes import DAEMON, RESCHEDULABLE, TERMINAL, TERMINATING
from dovetail.scheduling.snapshot import Snapshot


class PodSums:
    """What the pods of one node come to."""

    __slots__ = ("all", "moving", "positive", "protection", "reschedulable", "tracked", "unreadable", "veto")

    def __init__(self) -> None:
        self.reschedulable: list[Pod] = []
        self.moving = self.positive = self.all = self.tracked = 0
        self.protection: Protection | None = None
        self.veto: PdbVeto | None = None
        self.unreadable: list[str] = []

    def add(self, pod: Pod, flags: int) -> None:
        """Count a pod's cost in."""
        amount = cost.eviction_cost(pod)
        self.all += amount
        if flags & TERMINAL:
            return
        if amount > 0 and not flags & DAEMON:
            self.tracked += amount
        if flags & RESCHEDULABLE:
            self.reschedulable.append(pod)
            self.moving += amount
            if amount > 0:
                self.positive += amount

    def ask(self, pod: Pod, guards: Guards, now: datetime) -> None:
        """Ask an active pod what it has against being disrupted."""
        annotations = pod.metadata.annotations
        if annotations:
            if self.protection is None and names.DO_NOT_DISRUPT in annotations:
                self.protection = protection(pod, now)
            self._note_unreadable(pod)
        if self.veto is None and pod.metadata.namespace in guards.namespaces:
            self.veto = guards.veto(pod, now)

    def _note_unreadable(self, pod: Pod) -> None:
        where = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
        value = unreadable_protection(pod)
        if value is not None:
            self.unreadable.append(
                f"{where}: {names.DO_NOT_DISRUPT}: {value!r} is neither true nor a duration; ignored"
            )
        bad = cost.unreadable_cost(pod)
        if bad is not None:
            self.unreadable.append(f"{where}: {bad} is not a 32-bit integer; ignored")


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """What was counted for a node: its pods, what they came to, and the namespaces whose PDBs were asked."""

    pods: tuple[Pod, ...]
    sums: PodSums
    namespaces: frozenset[str]


class PodMemory:
    """What pods came to, by node. Whoever asks round after round keeps one and hands it to each."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._pdbs: dict[str, list[PodDisruptionBudget]] = {}

    def look_at(self, pdbs: Sequence[PodDisruptionBudget], nodes: Iterable[str]) -> None:
        """Forget nodes that are gone, and those with pods in namespaces that have other PDBs than before."""
        by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for pdb in pdbs:
            by_namespace.setdefault(pdb.metadata.namespace, []).append(pdb)
        old = self._pdbs
        changed = frozenset(
            namespace
            for namespace in {**old, **by_namespace}
            if not _same(old.get(namespace, ()), by_namespace.get(namespace, ()))
        )
        self._pdbs = by_namespace
        known = ((name, self._entries.get(name)) for name in nodes)
        self._entries = {
            name: entry for name, entry in known if entry is not None and entry.namespaces.isdisjoint(changed)
        }

    def recall(self, node: str, pods: tuple[Pod, ...]) -> PodSums | None:
        """Give what these very pods came to before, if that still holds."""
        entry = self._entries.get(node)
        return entry.sums if entry is not None and entry.pods is pods else None

    def keep(self, node: str, pods: tuple[Pod, ...], sums: PodSums) -> None:
        """Remember what pods came to; not where time alone may change it."""
        if any(names.DO_NOT_DISRUPT in pod.metadata.annotations for pod in pods if pod.metadata.annotations):
            self._entries.pop(node, None)
            return
        asked = frozenset(pod.metadata.namespace for pod in pods)
        self._entries[node] = _Entry(pods, sums, asked)


def _same(one: Sequence[PodDisruptionBudget], other: Sequence[PodDisruptionBudget]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def sum_up(snapshot: Snapshot, index: int, guards: Guards, now: datetime) -> PodSums:
    """Count the pods of a node."""
    sums = PodSums()
    bindings, guarded = snapshot.bindings, guards.namespaces
    for pod, place in zip(snapshot.pods_on[index], bindings.on_node(index), strict=True):
        flags = bindings.bits[place]
        sums.add(pod, flags)
        meta = pod.metadata
        if not flags & (TERMINAL | TERMINATING) and (meta.annotations or meta.namespace in guarded):
            sums.ask(pod, guards, now)
    return sums
