"""May the pods of a node be evicted? do-not-disrupt on pods, and PodDisruptionBudgets.

See docs/rules.md#gates, gate 6; what the designs leave open is as in Karpenter v1.15: any active pod may veto
with its annotation, DaemonSet and mirror pods too; PDBs apply to pods that would be evicted. Each veto is a value that
names the pod and the PDB. Knows nothing of budgets or savings. Sits in decide, at the bottom.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from datetime import datetime

import msgspec

from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.changes import changes
from dovetail.scheduling.pods.evictions import Guard, PdbIndex, holds, protected_until, read_protection
from dovetail.scheduling.pods.pod import is_active, is_mirror, tolerates_disruption


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's active do-not-disrupt. `until` is None if it does not expire."""

    pod: Pod
    value: str
    until: datetime | None = None


class PdbVeto(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that can't be evicted now: its PDB allows none, or it has several PDBs."""

    pod: Pod
    pdbs: tuple[str, ...]
    allowed: int = 0


def protection(pod: Pod, now: datetime, *, durations: bool = True) -> Protection | None:
    """Return its do-not-disrupt if it is active: "true", or a positive duration from its start that has not passed.

    `durations`: whether a duration counts, as in Karpenter v1.12 and later. A pod that has not started yet is
    protected; an unreadable value protects nothing (`unreadable_protection`).
    """
    value = pod.metadata.annotations.get(names.DO_NOT_DISRUPT)
    if value is None or not is_active(pod):
        return None
    until = protected_until(pod, durations=durations)
    if not holds(until, now):
        return None
    return Protection(pod=pod, value=value, until=None if isinstance(until, bool) else until)


def unreadable_protection(pod: Pod, *, durations: bool = True) -> str | None:
    """Return the do-not-disrupt value that is neither "true" nor a positive duration and so protects nothing."""
    value = pod.metadata.annotations.get(names.DO_NOT_DISRUPT)
    if value is None or value in ("true", "false"):
        return None
    return value if not durations or read_protection(value) is None else None


class Guards:
    """The cluster's PDBs, and how many evictions each allows now."""

    def __init__(self, pdbs: Sequence[PodDisruptionBudget], *, durations: bool = True) -> None:
        self.durations = durations
        self._index = PdbIndex.of(pdbs)
        self._pdbs = pdbs
        self._allowed = {pdb.metadata.key: pdb.status.disruptions_allowed for pdb in pdbs}

    @cached
    def refusing(self) -> PdbIndex:
        """Return the PDBs whose pods an eviction might be refused to now; no other's is."""
        return self._index.narrowed(lambda guard: self._allowed[guard.key] == 0)

    def renewed(self, pdbs: Sequence[PodDisruptionBudget]) -> "tuple[Guards, PdbChanges]":
        """Return the guards of newer PDBs, and what changed; if that is only status, compiled selectors are kept."""
        found = _compare(self._pdbs, pdbs)
        if found.namespaces:
            return Guards(pdbs, durations=self.durations), found
        if pdbs is self._pdbs:
            return self, found
        other = copy(self)
        other._pdbs = pdbs
        other._allowed = self._allowed | {pdb.metadata.key: pdb.status.disruptions_allowed for pdb in found.new}
        if found.turned:
            vars(other).pop("refusing", None)
        return other, found

    def matching(self, pod: Pod) -> list[Guard]:
        """Return the PDBs whose selector matches the pod, by name."""
        return self._index.matching(pod)

    def over(self, pods: Iterable[Pod]) -> frozenset[str]:
        """Return all PDBs whose selector matches one of the pods."""
        found: set[str] = set()
        for pod in pods:
            labels = pod.metadata.labels
            for key, by_value in self._index.by_label.get(pod.metadata.namespace, {}).items():
                for guard in by_value.get(labels.get(key), ()):
                    if guard.key not in found and guard.selector.matches(labels):
                        found.add(guard.key)
        return frozenset(found)

    def veto(self, pod: Pod, now: datetime) -> PdbVeto | None:
        """Return why the eviction API would refuse the pod now, or None."""
        if not self.refusing.may_select(pod):
            return None
        found = self.matching(pod)
        if not found or (len(found) == 1 and self._allowed[found[0].key] != 0) or not self._would_be_evicted(pod, now):
            return None
        if len(found) > 1:
            return PdbVeto(pod=pod, pdbs=tuple(guard.key for guard in found))
        return None if found[0].spares(pod) else PdbVeto(pod=pod, pdbs=(found[0].key,), allowed=0)

    def _would_be_evicted(self, pod: Pod, now: datetime) -> bool:
        """Return whether draining the node would call the eviction API for this pod."""
        if not is_active(pod) or tolerates_disruption(pod) or is_mirror(pod):
            return False
        return protection(pod, now, durations=self.durations) is None


def near(pdbs: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> list[PodDisruptionBudget]:
    """Return the PDBs that may select one of the pods: all others needn't be compiled."""
    there: dict[str, set[tuple[str, str]]] = {}
    for pod in pods:
        there.setdefault(pod.metadata.namespace, set()).update(pod.metadata.labels.items())
    return [
        pdb
        for pdb in pdbs
        if pdb.spec.selector is not None
        and (labels := there.get(pdb.metadata.namespace)) is not None
        and pdb.spec.selector.match_labels.items() <= labels
    ]


class PdbChanges(msgspec.Struct, frozen=True):
    """How PDBs differ from earlier ones: new objects, namespaces in which the set of PDBs or a spec is another.

    `turned`: those that started or stopped refusing evictions; what a PDB allows matters only when it is 0.
    """

    new: Sequence[PodDisruptionBudget]
    namespaces: set[str]
    turned: list[PodDisruptionBudget]


def _compare(before: Sequence[PodDisruptionBudget], after: Sequence[PodDisruptionBudget]) -> PdbChanges:
    gone, new = changes(before, after)
    old = {pdb.metadata.key: pdb for pdb in gone}
    namespaces: set[str] = set()
    turned = []
    for pdb in new:
        was = old.pop(pdb.metadata.key, None)
        if was is None or was.spec != pdb.spec:
            namespaces.add(pdb.metadata.namespace)
        elif (was.status.disruptions_allowed == 0) != (pdb.status.disruptions_allowed == 0):
            turned.append(pdb)
    namespaces.update(pdb.metadata.namespace for pdb in old.values())
    return PdbChanges(new, namespaces, turned)
