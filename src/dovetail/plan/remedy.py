"""What to change first: the thing worth most that a person could do.

What opens by itself (a timer of minutes, a budget in use) and what nobody can change (no cheaper instance type fits the
pods) is no remedy. Up to `BLOCKERS_NODES_MAX` nodes the ranking and the money are those of `dovetail blockers`; above,
the gate that holds the dearest nodes decides. Decides nothing about nodes. Sits in plan.
"""

from collections.abc import Sequence
from typing import Final

from dovetail.api.policy import effective_policy
from dovetail.api.pool_marks import read_pause
from dovetail.decide.document import unpriced_nodes
from dovetail.decide.gates.budgets import flat_allowance
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult
from dovetail.decide.words import dollars
from dovetail.model.policies.policy import DisruptionPolicy, Reason
from dovetail.model.timing.duration import HOUR
from dovetail.model.verdicts import ELIGIBLE, Gate, NodeVerdict
from dovetail.plan.blocking.blockers import Blocker, find_blockers
from dovetail.plan.summary import first_step
from dovetail.plan.whole import monthly
from dovetail.report.words import count

BLOCKERS_NODES_MAX: Final = 300
_UNCHANGEABLE: Final = frozenset(
    {Gate.PRICE, Gate.NEW_NODES, Gate.SIMULATION, Gate.SAME_TYPE, Gate.UNINITIALIZED_DESTINATION}
)
"""Gates that no setting opens: the pods need the machines that they have."""
_TIMERS: Final = frozenset({Gate.CONSOLIDATE_AFTER, Gate.GRACE_PERIOD, Gate.MIN_NODE_AGE})
_PASSING: Final = frozenset(
    {
        Gate.WINDOW,
        Gate.POD_WINDOW,
        Gate.TOPOLOGY_BUDGET,
        Gate.WASTE,
        Gate.RESTART_PRICE,
        Gate.STABILIZATION,
        Gate.BACK_OFF,
        Gate.NOMINATED,
    }
    | {Gate.MARKED_FOR_DELETION, Gate.INITIALIZED, Gate.REBOOTING}
)
"""Gates that open by themselves."""
NOT_MANAGED: Final = "No NodePool here: Karpenter does not manage these nodes."


def first_remedy(question: Question, result: RoundResult, *, after: str = "") -> str:
    """Return what to change first, in one or two sentences; empty if nothing is held back.

    `after`: what will have happened by then, where the question is not today's ("after these rounds").
    """
    opening = f"First thing to change{after and f' {after}'}:"
    held = _held(result)
    if not held:
        return ""
    if not question.cluster.node_pools:
        return NOT_MANAGED
    unpriced = unpriced_nodes(result)
    if unpriced:
        lacking = f"It has no price for {count(len(unpriced), 'node')}, such as {unpriced[0]}"
        how = "give --catalog CLOUD:REGION or a file ('dovetail catalog show' lists what is built in)"
        return f"{opening} the catalogue. {lacking}; {how}."
    pools = _Pools(question)
    if len(question.cluster.nodes) <= BLOCKERS_NODES_MAX:
        ranked = sorted(find_blockers(question), key=lambda entry: (-entry.savings, -entry.by_themselves))
        for blocker in ranked:
            if max(blocker.savings, blocker.by_themselves) > 0 and _is_for_a_person(blocker, pools):
                return f"{opening} {_blocker_text(blocker)}"
    else:
        for gate, members in held:
            by_hand = (entry for entry in members if _opens_by_hand(gate, entry.node_pool, pools))
            step = next(filter(None, map(first_step, by_hand)), "")
            if step:
                return f"{opening} {step}. `dovetail blockers` ranks what to change by money."
    return _nothing({gate for gate, _ in held}, pools, held)


def _held(result: RoundResult) -> list[tuple[Gate, list[NodeVerdict]]]:
    """Return the nodes that stay, by gate, the dearest gate first."""
    taken = frozenset(name for command in result.commands for name in command.nodes)
    groups: dict[str, list[NodeVerdict]] = {}
    for entry in result.verdicts:
        if entry.node not in taken and entry.verdict != ELIGIBLE:
            groups.setdefault(entry.verdict, []).append(entry)
    prices = result.prices
    order = sorted(groups, key=lambda name: (-sum(prices.get(entry.node, 0) for entry in groups[name]), name))
    return [(Gate(name), groups[name]) for name in order]


class _Pools:
    """The policies of the pools, and whether their timers and budgets open by themselves soon."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._pools = {pool.metadata.name: pool for pool in question.cluster.node_pools}
        sizes: dict[str, int] = {}
        for claim in question.cluster.node_claims:
            name = claim.metadata.labels.get("karpenter.sh/nodepool", "")
            sizes[name] = sizes.get(name, 0) + 1
        self._sizes = sizes

    def policy(self, pool: str) -> DisruptionPolicy | None:
        found = self._pools.get(pool)
        return None if found is None else effective_policy(found, self._question.settings)

    def waits_long(self, pool: str, gate: Gate) -> bool:
        """Return whether a timer of a pool is so long that shortening it is worth a thought."""
        policy = self.policy(pool)
        if policy is None:
            return False
        length = {
            Gate.CONSOLIDATE_AFTER: policy.consolidate_after,
            Gate.GRACE_PERIOD: policy.grace_period,
            Gate.MIN_NODE_AGE: policy.min_node_age,
        }[gate]
        return length is None or length >= HOUR

    def resumes(self, pool: str) -> bool:
        """Return whether a pool's pause ends by itself."""
        found = self._pools.get(pool)
        pause = None if found is None or self._question.settings.paused else read_pause(found)
        return pause is not None and pause.until is not None

    def allows_nothing(self, pool: str) -> bool:
        """Return whether a pool's budgets allow no node now, even if none is leaving."""
        policy, question = self.policy(pool), self._question
        if policy is None:
            return False
        size = self._sizes.get(pool, 0)
        return any(
            flat_allowance(policy, size, 0, reason, question.settings, question.now).allowed == 0
            for reason in (Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED)
        )


def _opens_by_hand(gate: Gate, pool: str, pools: _Pools) -> bool:
    if gate in _TIMERS:
        return pools.waits_long(pool, gate)
    if gate is Gate.BUDGET:
        return pools.allows_nothing(pool)
    if gate is Gate.PAUSED:
        return not pools.resumes(pool)
    return gate not in _UNCHANGEABLE and gate not in _PASSING


def _is_for_a_person(blocker: Blocker, pools: _Pools) -> bool:
    if blocker.remedy.startswith("wait until"):
        return False
    return _opens_by_hand(Gate(blocker.gate), blocker.name if blocker.kind == "NodePool" else "", pools)


def _blocker_text(blocker: Blocker) -> str:
    saved = blocker.savings if blocker.savings > 0 else blocker.by_themselves
    worth = f"{dollars(saved)}/h ({monthly(saved)} a month)"
    if blocker.savings <= 0:
        worth += " once the others have gone"
    what = f"{blocker.kind} {blocker.name} ({blocker.gate})"
    return f"{what}, which holds back {worth}. {blocker.remedy[:1].upper()}{blocker.remedy[1:]}."


def _nothing(gates: set[Gate], pools: _Pools, held: Sequence[tuple[Gate, list[NodeVerdict]]]) -> str:
    """Return why there is nothing that a person should change."""
    waiting = [
        gate
        for gate, members in held
        if gate in _PASSING
        or (gate in _TIMERS | {Gate.BUDGET, Gate.PAUSED} and not _opens_by_hand(gate, members[0].node_pool, pools))
    ]
    fitting = gates & _UNCHANGEABLE
    if waiting and fitting:
        return (
            f"Nothing to change: what waits ({', '.join(gate.value for gate in waiting)}) opens by itself, and no "
            "cheaper instance type fits the pods of the others."
        )
    if waiting:
        return f"Nothing to change: what waits ({', '.join(gate.value for gate in waiting)}) opens by itself."
    if fitting:
        return "Nothing to change: no cheaper set of nodes fits the pods of those that stay."
    return "Nothing to change: nothing that holds these nodes back would save money alone."
