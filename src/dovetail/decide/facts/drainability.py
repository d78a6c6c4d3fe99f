"""May the pods of a node be evicted? do-not-disrupt on pods, and PodDisruptionBudgets.

See docs/rules.md#gates, gate 6; what the designs leave open is as in Karpenter v1.15: any active pod may veto
with its annotation, DaemonSet and mirror pods too; PDBs apply to pods that would be evicted. Each veto is a value that
names the pod and the PDB. Knows nothing of budgets or savings. Sits in decide, at the bottom.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.cached import cached
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.model.timing.duration import DurationError, later, parse_go_duration
from dovetail.scheduling.changes import changes
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
    if value == "true":
        return Protection(pod=pod, value=value)
    span = _positive_span(value) if durations else None
    if span is None:
        return None
    if pod.status.start_time is None:
        return Protection(pod=pod, value=value)
    until = later(pod.status.start_time, span)
    return Protection(pod=pod, value=value, until=until) if now < until else None


def unreadable_protection(pod: Pod, *, durations: bool = True) -> str | None:
    """Return the do-not-disrupt value that is neither "true" nor a positive duration and so protects nothing."""
    value = pod.metadata.annotations.get(names.DO_NOT_DISRUPT)
    if value is None or value in ("true", "false"):
        return None
    return value if not durations or _positive_span(value) is None else None


def _positive_span(text: str) -> int | None:
    try:
        span = parse_go_duration(text)
    except DurationError:
        return None
    return span if span > 0 else None


class _Guard(msgspec.Struct, frozen=True):
    key: str
    selector: LabelSelector
    spares_unready: bool


_NONE: Final[dict[str, dict[str | None, list[_Guard]]]] = {}


class Guards:
    """The cluster's PDBs, found by a label that a pod must carry, so that 80,000 pods are matched in one pass.

    A PDB that requires no label is found by the empty label, which no pod has: the value of that is None.
    """

    def __init__(self, pdbs: Sequence[PodDisruptionBudget], *, durations: bool = True) -> None:
        self.durations = durations
        self._by_label: dict[str, dict[str, dict[str | None, list[_Guard]]]] = {}
        for pdb in pdbs:
            self._add(pdb)
        self._pdbs = pdbs
        self._allowed = {pdb_key(pdb): pdb.status.disruptions_allowed for pdb in pdbs}

    @cached
    def refusing(self) -> Mapping[str, Mapping[str, Mapping[str | None, Sequence[object]]]]:
        """Return, by namespace, labels and values of pods whose eviction might be refused now; no other's is."""
        return {namespace: found for namespace, by_key in self._by_label.items() if (found := self._may_refuse(by_key))}

    def _may_refuse(
        self, by_key: dict[str, dict[str | None, list[_Guard]]]
    ) -> Mapping[str, Mapping[str | None, Sequence[object]]]:
        """Return those labels and values of a namespace whose pods an eviction might be refused to."""
        if len(by_key) > 1:
            return by_key  # a pod may have one PDB by one label and one by another
        ((key, by_value),) = by_key.items()
        left = {
            value: guards for value, guards in by_value.items() if len(guards) > 1 or self._allowed[guards[0].key] == 0
        }
        return {key: left} if left else {}

    def renewed(self, pdbs: Sequence[PodDisruptionBudget]) -> "tuple[Guards, PdbChanges]":
        """Return the guards of newer PDBs, and what changed; if that is only status, compiled selectors are kept."""
        found = _compare(self._pdbs, pdbs)
        if found.namespaces:
            return Guards(pdbs, durations=self.durations), found
        if pdbs is self._pdbs:
            return self, found
        other = copy(self)
        other._pdbs = pdbs
        other._allowed = {**self._allowed, **{pdb_key(pdb): pdb.status.disruptions_allowed for pdb in found.new}}
        if found.turned:
            vars(other).pop("refusing", None)
        return other, found

    def _add(self, pdb: PodDisruptionBudget) -> None:
        spec, namespace = pdb.spec, pdb.metadata.namespace
        if spec.selector is None:
            return  # a null selector matches nothing
        guard = _Guard(
            key=pdb_key(pdb),
            selector=LabelSelector.compile(spec.selector),
            spares_unready=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
        )
        key, value = next(iter(spec.selector.match_labels.items()), ("", None))  # any of them will do
        by_value = self._by_label.setdefault(namespace, {}).setdefault(key, {})
        by_value.setdefault(value, []).append(guard)

    def matching(self, pod: Pod) -> list[_Guard]:
        """Return the PDBs whose selector matches the pod, by name."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        found: list[_Guard] = []
        for key, by_value in self._by_label.get(namespace, _NONE).items():
            near = by_value.get(labels.get(key))
            if near is not None:
                found += [guard for guard in near if guard.selector.matches(labels)]
        if len(found) > 1:
            found.sort(key=lambda g: g.key)
        return found

    def over(self, pods: Iterable[Pod]) -> frozenset[str]:
        """Return all PDBs whose selector matches one of the pods."""
        found: set[str] = set()
        for pod in pods:
            labels = pod.metadata.labels
            for key, by_value in self._by_label.get(pod.metadata.namespace, _NONE).items():
                for guard in by_value.get(labels.get(key), ()):
                    if guard.key not in found and guard.selector.matches(labels):
                        found.add(guard.key)
        return frozenset(found)

    def might_refuse(self, pod: Pod) -> bool:
        """Return whether the pod's namespace and labels are among those in `refusing`."""
        labels = pod.metadata.labels
        for key, by_value in self.refusing.get(pod.metadata.namespace, _NONE).items():
            if labels.get(key) in by_value:
                return True
        return False

    def veto(self, pod: Pod, now: datetime) -> PdbVeto | None:
        """Return why the eviction API would refuse the pod now, or None."""
        if not self.might_refuse(pod):
            return None
        found = self.matching(pod)
        if not found or (len(found) == 1 and self._allowed[found[0].key] != 0) or not self._would_be_evicted(pod, now):
            return None
        if len(found) > 1:
            return PdbVeto(pod=pod, pdbs=tuple(guard.key for guard in found))
        guard = found[0]
        if guard.spares_unready and any(c.type == "Ready" and c.status == "False" for c in pod.status.conditions):
            return None
        return PdbVeto(pod=pod, pdbs=(guard.key,), allowed=0)

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


def pdb_key(pdb: PodDisruptionBudget) -> str:
    """Return the name of a PDB with its namespace."""
    return f"{pdb.metadata.namespace}/{pdb.metadata.name}"


class PdbChanges(msgspec.Struct, frozen=True):
    """How PDBs differ from earlier ones: new objects, namespaces in which the set of PDBs or a spec is another.

    `turned`: those that started or stopped refusing evictions; what a PDB allows matters only when it is 0.
    """

    new: Sequence[PodDisruptionBudget]
    namespaces: set[str]
    turned: list[PodDisruptionBudget]


def _compare(before: Sequence[PodDisruptionBudget], after: Sequence[PodDisruptionBudget]) -> PdbChanges:
    gone, new = changes(before, after)
    old = {pdb_key(pdb): pdb for pdb in gone}
    namespaces: set[str] = set()
    turned = []
    for pdb in new:
        was = old.pop(pdb_key(pdb), None)
        if was is None or was.spec != pdb.spec:
            namespaces.add(pdb.metadata.namespace)
        elif (was.status.disruptions_allowed == 0) != (pdb.status.disruptions_allowed == 0):
            turned.append(pdb)
    namespaces.update(pdb.metadata.namespace for pdb in old.values())
    return PdbChanges(new, namespaces, turned)
