"""PodDisruptionBudgets and the eviction API of the simulated cluster.

Keeps every budget's status (healthy, expected, desired, allowed) up to date with each pod that changes, and answers one
question: may this pod be evicted now? As Kubernetes' disruption controller and eviction subresource do. While there is
no controller, statuses are written when somebody looks. Doesn't know who evicts, or why.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final, cast

from dovetail.model.objects import Pod, PodDisruptionBudget, PodDisruptionBudgetStatus, ReplicaSet, StatefulSet, is_true
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.world.kubelet import Kubelets
from dovetail.sim.world.placement.matching import BudgetIndex
from dovetail.sim.world.placement.shapes import PodShape, Shapes
from dovetail.sim.world.steps import CAME, ENDED, LEAVING, READY, WENT
from dovetail.sim.world.store import Change, WorldStore

_OWNERS: Final = ("ReplicaSet", "StatefulSet")


class EvictionAnswer(StrEnum):
    """What the eviction API says."""

    EVICTED = "evicted"
    REFUSED = "refused"
    GONE = "gone"


def is_healthy(pod: Pod) -> bool:
    """Return whether a pod counts as healthy to a budget: ready and not on its way out."""
    return pod.metadata.deletion_timestamp is None and is_true(pod.status.conditions, "Ready")


@dataclass(slots=True)
class _Watched:
    """What a budget counts: which of its pods are healthy, and how many belong to each owner.

    `expected`: how many pods there should be, None if that has to be counted again; `desired`: how many healthy ones.
    """

    healthy: dict[str, bool] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    fit: int = 0
    expected: int | None = None
    desired: int = 0


class Evictions:
    """The budgets' statuses and the eviction API."""

    def __init__(self, store: WorldStore, shapes: Shapes, kubelets: Kubelets) -> None:
        self.store = store
        self.shapes = shapes
        self.kubelets = kubelets
        self.on_evicted: Callable[[str, Pod], None] = lambda key, pod: None
        self._watched: dict[str, _Watched] = {}
        self._guards: dict[PodShape, tuple[str, ...]] = {}
        self._index: BudgetIndex | None = None
        self._replicas: dict[str, int | None] = {}
        self._of_owner: dict[str, dict[str, None]] = {}
        self._budgets = cast("dict[str, PodDisruptionBudget]", store.by_kind["PodDisruptionBudget"])
        self._late: dict[str, None] = {}
        store.on_settle = self._settle
        store.listen(self._on_budget_change, "PodDisruptionBudget")
        store.listen_to_pods(self._on_pod_change, CAME | WENT | LEAVING | ENDED | READY)
        store.listen(self._on_owner_change, *_OWNERS)

    def guards_of(self, key: str, pod: Pod) -> tuple[str, ...]:
        """Return the budgets that a pod is under, by key."""
        shape = self.shapes.of(key, pod)
        found = self._guards.get(shape)
        if found is None:
            if self._index is None:
                self._index = BudgetIndex(self._budgets)
            found = self._guards[shape] = self._index.over(shape.namespace, shape.labels)
        return found

    def evict(self, key: str) -> EvictionAnswer:
        """Request an eviction; if it is granted the pod starts to terminate at once."""
        pod = self.store.pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return EvictionAnswer.GONE
        if pod.status.phase in ("Running", "") and not self._allowed(key, pod):
            return EvictionAnswer.REFUSED
        self.on_evicted(key, pod)
        self.kubelets.stop(key)
        return EvictionAnswer.EVICTED

    def _allowed(self, key: str, pod: Pod) -> bool:
        guards = self.guards_of(key, pod)
        if not guards:
            return True
        if len(guards) > 1:
            return False
        budget = self.store.pdbs[guards[0]]
        if not is_true(pod.status.conditions, "Ready"):
            if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
                return True
            if budget.status.current_healthy >= budget.status.desired_healthy > 0:
                return True
        return budget.status.disruptions_allowed > 0

    # ------------------------------------------------------------ statuses

    def _on_pod_change(self, change: Change) -> None:
        if not self._watched:
            return
        pod = cast("Pod", change.new or change.old)
        guards = self.guards_of(change.key, pod)
        if not guards:
            return
        healthy = None if change.new is None else _health(pod)
        for name in guards:
            if self._count(name, change.key, pod, healthy):
                self._update(name)

    def _on_owner_change(self, change: Change) -> None:
        old, new = (cast("ReplicaSet | StatefulSet | None", item) for item in (change.old, change.new))
        if old is not None:
            self._replicas.pop(old.metadata.uid, None)
            self._count_again(old.metadata.uid)
        if new is not None:
            self._replicas[new.metadata.uid] = new.spec.replicas
            for name in self._count_again(new.metadata.uid):
                self._update(name)

    def _count_again(self, owner: str) -> list[str]:
        """Return the budgets over the pods of an owner, in order; what they expect is counted again."""
        found = sorted(name for name in self._of_owner.get(owner, ()) if name in self._watched)
        for name in found:
            self._watched[name].expected = None
        return found

    def _on_budget_change(self, change: Change) -> None:
        key, old = change.key, cast("PodDisruptionBudget | None", change.old)
        new = cast("PodDisruptionBudget | None", change.new)
        if new is None:
            self._watched.pop(key, None)
            self._forget_guards()
        elif old is None or (old.spec is not new.spec and old.spec != new.spec):
            self._forget_guards()
            self._watched[key] = _Watched()
            for name, pod in self.store.pods.items():
                if key in self.guards_of(name, pod):
                    self._count(key, name, pod, _health(pod))
            self._update(key)

    def _forget_guards(self) -> None:
        self._guards.clear()
        self._index = None

    def _count(self, name: str, key: str, pod: Pod, healthy: bool | None) -> bool:
        """Count a pod as it is now (None: not any more, it went or ended); return whether that is new."""
        watched = self._watched[name]
        was = watched.healthy.get(key)
        if healthy is was:
            return False
        if healthy is None:
            del watched.healthy[key]
            watched.fit -= bool(was)
            owner = _owner(pod)
            watched.owners[owner] = watched.owners.get(owner, 1) - 1
            watched.expected = None
            return True
        if was is None:
            owner = _owner(pod)
            if owner not in watched.owners or self._replicas.get(owner) is None:
                self._of_owner.setdefault(owner, {})[name] = None
                watched.expected = None
            watched.owners[owner] = watched.owners.get(owner, 0) + 1
        watched.fit += healthy - bool(was)
        watched.healthy[key] = healthy
        return True

    def _expected(self, watched: _Watched) -> int:
        """Return how many pods there should be: what owners ask for, and every pod without one."""
        total = 0
        for owner, there in watched.owners.items():
            wanted = self._replicas.get(owner)
            total += there if wanted is None else wanted
        return total

    def _update(self, name: str) -> None:
        """Write a budget's status now, or before anybody looks."""
        if self.store.is_watched:
            self._write(name)
        else:
            self._late[name] = None

    def _settle(self) -> None:
        late, self._late = self._late, {}
        for name in late:
            self._write(name)

    def _write(self, name: str) -> None:
        budget = self._budgets.get(name)
        if budget is None:
            return
        watched = self._watched[name]
        expected = watched.expected
        if expected is None:
            expected = watched.expected = self._expected(watched)
            watched.desired = _desired(budget, expected)
        desired = watched.desired
        allowed = max(0, watched.fit - desired) if expected > 0 else 0
        status = PodDisruptionBudgetStatus(
            disruptions_allowed=allowed,
            current_healthy=watched.fit,
            desired_healthy=desired,
            expected_pods=expected,
            observed_generation=budget.metadata.generation,
        )
        if status != budget.status:
            self.store.put(budget, name, status=status)


def _health(pod: Pod) -> bool | None:
    """Return whether a pod counts as healthy; None if it has ended and counts no more."""
    return None if is_terminal(pod) else is_healthy(pod)


def _owner(pod: Pod) -> str:
    """Return the uid of the owner that says how many pods there should be, or ""."""
    for owner in pod.metadata.owner_references:
        if owner.kind in _OWNERS:
            return owner.uid
    return ""


def _desired(budget: PodDisruptionBudget, expected: int) -> int:
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(0, expected - _amount(spec.max_unavailable, expected))
    if spec.min_available is not None:
        return _amount(spec.min_available, expected)
    return max(0, expected - 1)


@lru_cache(4096)
def _amount(text: str | int, base: int) -> int:
    """Return a number, or a percentage rounded up as Kubernetes does for both fields."""
    shown = str(text)
    if shown.endswith("%"):
        return ceil(Fraction(int(shown[:-1]) * base, 100))
    return int(shown)
