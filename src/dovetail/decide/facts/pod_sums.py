"""Sums over the pods of each node: costs, pods that would move, objections. Sits in decide, below reading."""

from datetime import datetime
from typing import Final

from dovetail.api.pod_windows import PodWindow, read_pod_window
from dovetail.decide.facts import cost
from dovetail.decide.facts.drainability import Guards, Protection, protection, unreadable_protection
from dovetail.model import names
from dovetail.model.karpenter import FeatureGate
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.classes import DAEMON, RESCHEDULABLE, TERMINAL, TERMINATING
from dovetail.scheduling.pods.surge import NO_SURGES, Surge, Surges
from dovetail.scheduling.snapshot import Snapshot


class PodSums:
    """The sums over the pods of one node."""

    __slots__ = (
        "all",
        "claiming",
        "moving",
        "pods",
        "positive",
        "protection",
        "reading",
        "reschedulable",
        "surges",
        "tracked",
        "unreadable",
        "windows",
    )

    def __init__(self, pods: tuple[Pod, ...] = (), reading: cost.CostReading = cost.ORDINARY) -> None:
        self.pods, self.reading = pods, reading
        self.reschedulable: list[Pod] = []
        self.moving = self.positive = self.all = self.tracked = 0
        self.protection: Protection | None = None
        self.claiming: Pod | None = None
        self.unreadable: list[str] = []
        self.windows: list[tuple[Pod, PodWindow]] = []
        self.surges: dict[str, tuple[Pod, Surge]] = {}

    def add(self, pod: Pod, flags: int) -> None:
        """Add a pod's cost."""
        amount = cost.eviction_cost(pod, self.reading)
        self.all += amount
        if flags & TERMINAL:
            return
        positive = max(0, amount)
        if not flags & DAEMON:
            self.tracked += positive
        if flags & RESCHEDULABLE:
            self.reschedulable.append(pod)
            if names.DISRUPTION_WINDOW in pod.metadata.annotations:
                self._note_window(pod)
            self.moving += amount
            self.positive += positive

    def add_ordinary(self, movers: int, daemons: int) -> None:
        """Add the costs of pods without annotations and priority: so many that would move, so many of DaemonSets."""
        amount = movers * cost.UNIT
        self.all += amount + daemons * cost.UNIT
        self.tracked += amount
        self.moving += amount
        self.positive += amount

    def _note_window(self, pod: Pod) -> None:
        entry = read_pod_window(pod.metadata.annotations[names.DISRUPTION_WINDOW])
        self.windows.append((pod, entry))
        if entry.problem:
            where = f"pod {pod.metadata.key}"
            self.unreadable.append(f"{where}: {names.DISRUPTION_WINDOW}: {entry.problem}; it never opens")

    def ask(self, pod: Pod, guards: Guards, surges: Surges, now: datetime) -> None:
        """Check whether an active pod objects to being disrupted."""
        annotations = pod.metadata.annotations
        if annotations:
            if self.protection is None and names.DO_NOT_DISRUPT in annotations:
                self.protection = protection(pod, now, durations=guards.durations)
            self._note_unreadable(pod, guards)
        surge = surges.of(pod)
        if surge is not None and (surge.is_single or guards.veto(pod, now) is not None):
            self.surges.setdefault(surge.name, (pod, surge))

    def count_surges(self, node: str) -> None:
        """Count every pod of the Deployments that roll, once: a rolling update replaces all (docs/rules.md#surge)."""
        for _, surge in self.surges.values():
            for pod in surge.pods:
                if pod.spec.node_name != node:
                    amount = cost.eviction_cost(pod, self.reading)
                    self.moving += amount
                    self.positive += max(amount, 0)

    def _note_unreadable(self, pod: Pod, guards: Guards) -> None:
        value, bad = unreadable_protection(pod, durations=guards.durations), cost.unreadable_cost(pod, self.reading)
        where = f"pod {pod.metadata.key}" if value is not None or bad is not None else ""
        if value is not None:
            self.unreadable.append(
                f"{where}: {names.DO_NOT_DISRUPT}: {value!r} is neither true nor a duration; ignored"
            )
        if bad is not None:
            self.unreadable.append(f"{where}: {bad} is not a 32-bit integer; ignored")


_GOING: Final = TERMINAL | TERMINATING
_ORDINARY: Final = frozenset({RESCHEDULABLE, DAEMON})


def reading_of(snapshot: Snapshot) -> cost.CostReading:
    """Return how the costs of a snapshot's pods are read."""
    ranked = snapshot.surroundings.features.has(FeatureGate.POD_DELETION_COST)
    return cost.cost_reading(snapshot.settings.rules, ranked=ranked)


def sum_up(snapshot: Snapshot, index: int, guards: Guards, now: datetime, reading: cost.CostReading) -> PodSums:
    """Count the pods of a node."""
    pods = snapshot.pods_on[index]
    sums = PodSums(pods, reading)
    bindings, surges = snapshot.bindings, snapshot.surges
    asks_all, reschedulable = surges is not NO_SURGES, sums.reschedulable
    movers = daemons = 0
    flags, odd = bindings.marks_on(index)
    for pod, bits, is_odd in zip(pods, flags, odd, strict=True):
        if is_odd or bits not in _ORDINARY:
            sums.add(pod, bits)
            if bits & _GOING:
                continue
        elif bits == DAEMON:
            daemons += 1
        else:
            reschedulable.append(pod)
            movers += 1
        if asks_all or (is_odd and pod.metadata.annotations):
            sums.ask(pod, guards, surges, now)
    sums.add_ordinary(movers, daemons)
    if bindings.has_claims and any(bindings.class_at(place).info.claims for place in bindings.on_node(index)):
        moving = snapshot.movers(index)
        pairs = zip(moving.pods, moving.classes, strict=True)
        sums.claiming = next((mover for mover, cls in pairs if cls.info.claims), None)
    sums.count_surges(snapshot.states[index].name)
    return sums
