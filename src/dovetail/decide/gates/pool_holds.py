"""What blocks a whole pool, whatever its budgets say: health limits, and allow windows that are closed.

See docs/rules.md#windows and #health. Each rule returns the gate that stops the pool for a reason, or None. The budget
ledger calls them; methods only see that nothing is left. Knows no prices and no simulation. Sits in decide, below
budgets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

import msgspec

from dovetail.api.pool_marks import Halt, read_halt
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import stopped
from dovetail.decide.words import clock, nanoseconds, seconds
from dovetail.model.labels.requirements import pod_requirements
from dovetail.model.objects import NodePool, Pod, condition
from dovetail.model.policies.controls import Health
from dovetail.model.policies.policy import DisruptionPolicy, Reason
from dovetail.model.timing.duration import later
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.launch.templates import pool_requirements
from dovetail.scheduling.pods.pod import is_active, tolerates


class PoolHolds(msgspec.Struct, frozen=True, kw_only=True):
    """What blocks whole pools: an alert, limits of health, moved pods that are not settled, closed windows."""

    alert: str
    health: Mapping[str, GateResult]
    unsettled: Mapping[str, str]
    policies: Mapping[str, DisruptionPolicy]
    now: datetime

    def of(self, pool: str, reason: Reason) -> GateResult | None:
        """Return what blocks a whole pool for a reason, whatever its budgets say; None: nothing does."""
        if reason is not Reason.UNHEALTHY:
            if self.alert:
                return stopped(Gate.HEALTH, self.alert, nodePool=pool)
            if pool in self.health:
                return self.health[pool]
            if pool in self.unsettled:
                return stopped(Gate.HEALTH, self.unsettled[pool], nodePool=pool)
        return window_hold(pool, self.policies[pool], reason, self.now)


def window_hold(pool: str, policy: DisruptionPolicy, reason: Reason, now: datetime) -> GateResult | None:
    """Return the gate that stops a reason outside its windows; None: a window is open, or none applies."""
    naming = [entry for entry in policy.windows if entry.names(reason)]
    if not naming:
        return None
    broken = next((entry for entry in naming if entry.problem is not None), None)
    if broken is not None:
        why = f"Window {broken.index + 1} of NodePool {pool} can't be read ({broken.problem}): it opens nothing."
        return stopped(Gate.WINDOW, why, nodePool=pool, reason=reason.value)
    if any(entry.window is not None and entry.window.active(now) for entry in naming):
        return None
    edges = [entry.window.next_change(now) for entry in naming if entry.window is not None]
    opens = min((at for at in edges if at is not None), default=None)
    when = "none opens again" if opens is None else f"the next opens at {clock(opens)}, in {seconds(opens - now)}"
    why = f"No window of NodePool {pool} is open for {reason.value}: {when}."
    until = None if opens is None else clock(opens)
    return stopped(Gate.WINDOW, why, nodePool=pool, reason=reason.value, opensAt=until)


def window_edges(policy: DisruptionPolicy, now: datetime) -> Iterator[datetime]:
    """Yield when each allow window next opens or closes."""
    for entry in policy.windows:
        edge = entry.window.next_change(now) if entry.window is not None else None
        if edge is not None:
            yield edge


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """The pods without a node, and the labels that any new node may have."""

    pods: Sequence[Pod]
    known_labels: AbstractSet[str]


def health_hold(
    pool: NodePool, health: Health | None, nodes: Sequence[NodeFacts], waiting: Waiting, now: datetime
) -> GateResult | None:
    """Return the gate that stops an unhealthy pool; None if all limits are met."""
    name = pool.metadata.name
    halt = read_halt(pool)
    if halt is not None:
        return _halted(name, halt)
    if health is None:
        return None
    if health.problem is not None:
        why = f"The health limits of NodePool {name} can't be read ({health.problem}): nothing starts."
        return stopped(Gate.HEALTH, why, nodePool=name)
    return _not_ready(name, health, nodes) or _pending(pool, health, waiting, now)


def health_holds(
    pools: Sequence[NodePool],
    policies: Mapping[str, DisruptionPolicy],
    nodes: Iterable[NodeFacts],
    waiting: Waiting,
    now: datetime,
) -> dict[str, GateResult]:
    """Return the gate that stops each unhealthy pool, by name."""
    asking = {name for name, policy in policies.items() if policy.health is not None}
    members: dict[str, list[NodeFacts]] = {}
    for facts in nodes if asking else ():
        if facts.pool_name in asking and facts.counted:
            members.setdefault(facts.pool_name, []).append(facts)
    found: dict[str, GateResult] = {}
    for pool in pools:
        name = pool.metadata.name
        held = health_hold(pool, policies[name].health, members.get(name, ()), waiting, now)
        if held is not None:
            found[name] = held
    return found


def _halted(name: str, halt: Halt) -> GateResult:
    who = f" ({', '.join(halt.owners[:3])})" if halt.owners else ""
    until = "when they are ready, or after" if halt.command else "after"
    why = f"NodePool {name} has halted: {halt.why}{who}. It goes on {until} dovetail resume."
    return stopped(Gate.HEALTH, why, nodePool=name, command=halt.command)


def _not_ready(name: str, health: Health, nodes: Sequence[NodeFacts]) -> GateResult | None:
    limit = health.not_ready_limit(len(nodes))
    sick = sorted(facts.name for facts in nodes if not facts.ready)
    if limit is None or len(sick) <= limit:
        return None
    why = (
        f"{len(sick)} of {len(nodes)} nodes of NodePool {name} are not ready, such as {sick[0]}; "
        f"its health allows {health.not_ready_nodes}."
    )
    return stopped(Gate.HEALTH, why, nodePool=name, notReady=len(sick), allowed=limit, node=sick[0])


def _pending(pool: NodePool, health: Health, waiting: Waiting, now: datetime) -> GateResult | None:
    limit = health.pending_pods
    if limit is None:
        return None
    stuck = [
        pod for pod in stuck_pods(waiting.pods, limit.lasting, now) if could_run_on(pod, pool, waiting.known_labels)
    ]
    if len(stuck) < limit.count:
        return None
    first = min(pod.metadata.key for pod in stuck)
    name = pool.metadata.name
    why = (
        f"{len(stuck)} pods that could run on NodePool {name} have been unschedulable for "
        f"{nanoseconds(limit.lasting)} or longer, such as {first}; its health allows fewer than {limit.count}."
    )
    return stopped(Gate.HEALTH, why, nodePool=name, pending=len(stuck), limit=limit.count, pod=first)


def unschedulable_since(pod: Pod) -> datetime | None:
    """Return since when the scheduler has found no place for a pod; None if it has, or has not tried."""
    entry = condition(pod.status.conditions, "PodScheduled")
    if not is_active(pod) or pod.spec.node_name or entry is None:
        return None
    return entry.last_transition_time if entry.status == "False" and entry.reason == "Unschedulable" else None


def stuck_pods(waiting: Sequence[Pod], lasting: int, now: datetime) -> Iterator[Pod]:
    """Yield the pods that have been unschedulable for at least the given nanoseconds."""
    for pod in waiting:
        since = unschedulable_since(pod)
        if since is not None and now >= later(since, lasting):
            yield pod


def could_run_on(pod: Pod, pool: NodePool, known_labels: AbstractSet[str]) -> bool:
    """Return whether a pod tolerates a pool's taints and is compatible with its requirements."""
    spec = pool.spec.template.spec
    if not tolerates(pod.spec.tolerations, spec.taints):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    wanted = pod_requirements(pod.spec.node_selector, affinity, preferences=False)
    return pool_requirements(pool).is_compatible(wanted, allow_undefined=known_labels)


def pending_times(health: Health | None, waiting: Sequence[Pod]) -> Iterator[datetime]:
    """Yield when waiting pods start to count against a pool's health."""
    if health is not None and health.pending_pods is not None:
        lasting = health.pending_pods.lasting
        yield from (later(since, lasting) for pod in waiting if (since := unschedulable_since(pod)) is not None)
