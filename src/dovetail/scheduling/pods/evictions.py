"""Which pods would really move now: not those that a PDB blocks permanently or that have do-not-disrupt.

Karpenter excludes such pods from its simulations, since it is unknown when they will move. Whether they block a node is
a gate of `decide`; this module only says which pods take part in a simulation.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dovetail.model import names
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.model.timing.duration import DurationError, later, parse_go_duration
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.surge import Owner, replica_set_of


def do_not_disrupt(pod: Pod, now: datetime) -> bool:
    """Return whether the pod's annotation protects it now: "true", or a duration from its start that has not passed."""
    value = pod.metadata.annotations.get(names.DO_NOT_DISRUPT)
    if value is None:
        return False
    if value == "true":
        return True
    try:
        duration = parse_go_duration(value)
    except DurationError:
        return False
    if duration <= 0:
        return False
    started = pod.status.start_time
    if started is None:
        return True
    age = now - started
    return (age // timedelta(microseconds=1)) * 1000 < duration


def is_protected(pod: Pod, now: datetime) -> bool:
    """Return whether a pod's do-not-disrupt keeps it out of simulations now."""
    return bool(pod.metadata.annotations) and filters.is_active(pod) and do_not_disrupt(pod, now)


def _ends(pods: Iterable[Pod]) -> Iterator[datetime]:
    """Yield when the do-not-disrupt of pods expires; unlimited and unreadable values don't."""
    for pod in pods:
        annotations = pod.metadata.annotations
        value = annotations.get(names.DO_NOT_DISRUPT) if annotations else None
        if value is None or value == "true" or pod.status.start_time is None:
            continue
        try:
            duration = parse_go_duration(value)
        except DurationError:
            continue
        if duration > 0:
            yield later(pod.status.start_time, duration)


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
    ends = tuple(_ends(pods))
    if not ends:
        return _FOR_EVER
    return ProtectionSpan(
        max((at for at in ends if at <= now), default=None), min((at for at in ends if at > now), default=None)
    )


_NONE: Final[dict[str, dict[str | None, list[tuple[LabelSelector, bool, bool]]]]] = {}


class Blockers:
    """PDBs that never allow an eviction, by namespace; they don't apply to pods of the ReplicaSets in `surging`.

    Two PDBs of one pod never allow one either.
    """

    __slots__ = ("_by_label", "_surging")

    def __init__(self, pdbs: Iterable[PodDisruptionBudget], surging: AbstractSet[Owner] = frozenset()) -> None:
        self._surging = surging
        self._by_label: dict[str, dict[str, dict[str | None, list[tuple[LabelSelector, bool, bool]]]]] = {}
        for pdb in pdbs:
            selector = LabelSelector.compile(pdb.spec.selector)
            always = pdb.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
            row = (selector, _never_allows(pdb), always)
            namespace = pdb.metadata.namespace
            # Found by a label that its pods must carry, if there is one: a namespace may have hundreds of PDBs.
            key, value = selector.equal[0] if selector.equal else ("", None)
            self._by_label.setdefault(namespace, {}).setdefault(key, {}).setdefault(value, []).append(row)
        for namespace, by_key in [*self._by_label.items()]:
            if len(by_key) == 1:  # so no pod has one PDB by one label and one by another
                ((key, by_value),) = by_key.items()
                # The pods of others have one PDB, which allows evictions at times.
                left = {value: rows for value, rows in by_value.items() if len(rows) > 1 or rows[0][1]}
                self._by_label[namespace] = {key: left}
                if not left:
                    del self._by_label[namespace]

    def _matching(self, pod: Pod) -> list[tuple[LabelSelector, bool, bool]]:
        found: list[tuple[LabelSelector, bool, bool]] = []
        if not self._by_label:
            return found
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        for key, by_value in self._by_label.get(namespace, _NONE).items():
            rows = by_value.get(labels.get(key))
            if rows is not None:
                found += [row for row in rows if row[0].matches(labels)]
        return found

    def select(self, pod: Pod) -> bool:
        """Return whether PDBs that may never allow an eviction select the pod, by its namespace and labels."""
        return bool(self._matching(pod))

    def would_move(self, pod: Pod, now: datetime) -> bool:
        """Return whether a reschedulable pod takes part in a simulation."""
        return not is_protected(pod, now) and not self.block(pod)

    def block(self, pod: Pod) -> bool:
        """Return whether PDBs never allow its eviction."""
        matching = self._matching(pod)
        if not matching or (len(matching) == 1 and not matching[0][1]):
            return False
        if self._surging and replica_set_of(pod) in self._surging:
            return False  # moved by its Deployment's rolling update, whatever the PDBs say (docs/rules.md#surge)
        if not filters.is_active(pod) or filters.is_mirror(pod) or filters.tolerates_disruption(pod):
            return False
        if len(matching) > 1:
            return True
        always = matching[0][2]
        return not (always and any(c.type == "Ready" and c.status == "False" for c in pod.status.conditions))


def _never_allows(pdb: PodDisruptionBudget) -> bool:
    most, least = pdb.spec.max_unavailable, pdb.spec.min_available
    return most in (0, "0%") or least == "100%"
