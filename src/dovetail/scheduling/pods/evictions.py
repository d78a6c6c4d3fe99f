"""What keeps a pod from being evicted: do-not-disrupt and PodDisruptionBudgets, and which pods would really move now.

Karpenter excludes pods from its simulations that a PDB blocks permanently or that have do-not-disrupt, since it is
unknown when they will move. Whether they block a node is a gate of `decide`, which reads the same annotations and the
same index of PDBs.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from dovetail.model import names
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.model.timing.duration import DurationError, later, parse_go_duration
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.surge import Owner, replica_set_of


def read_protection(value: str) -> int | None:
    """Return the nanoseconds for which a do-not-disrupt value protects a pod from its start, if it is a duration."""
    try:
        span = parse_go_duration(value)
    except DurationError:
        return None
    return span if span > 0 else None


def protected_until(pod: Pod, *, durations: bool = True) -> datetime | bool:
    """Return until when its do-not-disrupt protects a pod; True: it does not expire, False: it protects nothing.

    "true" does not expire, a positive duration counts from the pod's start; a pod that has not started is protected.
    `durations`: whether a duration counts, as in Karpenter v1.12 and later.
    """
    value = pod.metadata.annotations.get(names.DO_NOT_DISRUPT)
    if value is None or value == "true":
        return value is not None
    span = read_protection(value) if durations else None
    if span is None:
        return False
    return True if pod.status.start_time is None else later(pod.status.start_time, span)


def holds(until: datetime | bool, now: datetime) -> bool:
    """Return whether a protection that ends at a time holds now."""
    return until if isinstance(until, bool) else now < until


def is_protected(pod: Pod, now: datetime) -> bool:
    """Return whether a pod's do-not-disrupt keeps it out of simulations now."""
    return bool(pod.metadata.annotations) and filters.is_active(pod) and holds(protected_until(pod), now)


class ProtectionSpan(NamedTuple):
    """The period in which no do-not-disrupt starts or expires; None: unbounded."""

    since: datetime | None = None
    until: datetime | None = None

    def covers(self, now: datetime) -> bool:
        """Return whether a time is within it."""
        return (self.since is None or self.since <= now) and (self.until is None or now < self.until)


_FOR_EVER = ProtectionSpan()


def span_of(pods: Iterable[Pod], now: datetime) -> ProtectionSpan:
    """Return the period around now in which the same pods are protected; unbounded if time changes nothing."""
    untils = (protected_until(pod) for pod in pods if pod.metadata.annotations)
    ends = [until for until in untils if isinstance(until, datetime)]
    if not ends:
        return _FOR_EVER
    return ProtectionSpan(
        max((at for at in ends if at <= now), default=None), min((at for at in ends if at > now), default=None)
    )


class Guard(msgspec.Struct, frozen=True):
    """One PDB, compiled. `key`: `namespace/name`; `never_allows`: by its spec it allows no eviction, ever."""

    key: str
    selector: LabelSelector
    never_allows: bool
    spares_unready: bool

    def spares(self, pod: Pod) -> bool:
        """Return whether it lets a pod go because that is not ready."""
        return self.spares_unready and any(c.type == "Ready" and c.status == "False" for c in pod.status.conditions)


_NONE: Final[Mapping[str, Mapping[str | None, list[Guard]]]] = {}


class PdbIndex:
    """PDBs by namespace and by a label that their pods must carry, so that 80,000 pods are matched in one pass.

    A PDB that requires no label is found by the empty label, which no pod has: the value of that is None.
    """

    __slots__ = ("by_label",)

    def __init__(self, by_label: Mapping[str, Mapping[str, Mapping[str | None, list[Guard]]]]) -> None:
        self.by_label = by_label

    @staticmethod
    def of(pdbs: Iterable[PodDisruptionBudget]) -> "PdbIndex":
        """Compile PDBs; one without a selector selects nothing."""
        found: dict[str, dict[str, dict[str | None, list[Guard]]]] = {}
        for pdb in pdbs:
            spec = pdb.spec
            if spec.selector is None:
                continue
            guard = Guard(
                key=pdb.metadata.key,
                selector=LabelSelector.compile(spec.selector),
                never_allows=spec.max_unavailable in (0, "0%") or spec.min_available == "100%",
                spares_unready=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
            )
            key, value = guard.selector.equal[0] if guard.selector.equal else ("", None)
            found.setdefault(pdb.metadata.namespace, {}).setdefault(key, {}).setdefault(value, []).append(guard)
        return PdbIndex(found)

    def __bool__(self) -> bool:
        return bool(self.by_label)

    def narrowed(self, refuses: Callable[[Guard], bool]) -> "PdbIndex":
        """Return the PDBs whose pods an eviction may be refused to, given which PDBs refuse one by themselves.

        Two PDBs of one pod always refuse it. In a namespace with one key no pod has a PDB by one label and one by
        another.
        """
        found = {}
        for namespace, by_key in self.by_label.items():
            if len(by_key) == 1:
                ((key, by_value),) = by_key.items()
                left = {value: guards for value, guards in by_value.items() if len(guards) > 1 or refuses(guards[0])}
                by_key = {key: left} if left else {}
            if by_key:
                found[namespace] = by_key
        return PdbIndex(found)

    def may_select(self, pod: Pod) -> bool:
        """Return whether a PDB may select the pod, by its namespace and one label."""
        labels = pod.metadata.labels
        for key, by_value in self.by_label.get(pod.metadata.namespace, _NONE).items():
            if labels.get(key) in by_value:
                return True
        return False

    def matching(self, pod: Pod) -> list[Guard]:
        """Return the PDBs whose selector matches the pod, by name."""
        labels = pod.metadata.labels
        found: list[Guard] = []
        for key, by_value in self.by_label.get(pod.metadata.namespace, _NONE).items():
            near = by_value.get(labels.get(key))
            if near is not None:
                found += [guard for guard in near if guard.selector.matches(labels)]
        if len(found) > 1:
            found.sort(key=lambda guard: guard.key)
        return found


class Blockers:
    """PDBs that never allow an eviction; they don't apply to pods of the ReplicaSets in `surging`."""

    __slots__ = ("_surging", "index")

    def __init__(self, pdbs: Iterable[PodDisruptionBudget], surging: AbstractSet[Owner] = frozenset()) -> None:
        self._surging = surging
        self.index = PdbIndex.of(pdbs).narrowed(lambda guard: guard.never_allows)

    def block(self, pod: Pod) -> bool:
        """Return whether PDBs never allow its eviction."""
        matching = self.index.matching(pod) if self.index else ()
        if not matching or (len(matching) == 1 and not matching[0].never_allows):
            return False
        if self._surging and replica_set_of(pod) in self._surging:
            return False  # moved by its Deployment's rolling update, whatever the PDBs say (docs/rules.md#surge)
        if not filters.is_active(pod) or filters.is_mirror(pod) or filters.tolerates_disruption(pod):
            return False
        return len(matching) > 1 or not matching[0].spares(pod)
