"""Blockers from a NodePool's policy or a setting, in words: why each blocks nodes, and what to do.

`decide.lifts` removes them, `decide.held_back` has what that saves. Sits in plan.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from dovetail.api.pool_marks import read_pause
from dovetail.decide.held_back import GateSavings
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.model.money import Money, format_money
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.model.timing.duration import format_duration
from dovetail.model.verdicts import Gate
from dovetail.plan.summary import MEND, OUT_OF_NEVER, UNPAUSED, resume_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """A removed blocker: the question without it, the nodes that it blocked, and its texts.

    `savings`: what the methods save more without it; None: nobody has asked yet.
    """

    kind: str
    name: str
    gate: str
    question: Question
    nodes: tuple[str, ...]
    why: str
    remedy: str
    savings: Money | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """Why a gate of a pool is closed, and what to do."""

    why: Callable[[DisruptionPolicy], str]
    remedy: str


_RULES: dict[Gate, _Rule] = {
    Gate.POOL_POLICY: _Rule(
        why=lambda policy: f"consolidationPolicy is {policy.consolidation_policy.value}.",
        remedy="set consolidationPolicy: WhenEmptyOrUnderutilized",
    ),
    Gate.CONSOLIDATE_AFTER: _Rule(
        why=lambda policy: (
            f"{policy.closed}."
            if policy.closed
            else "consolidateAfter is Never."
            if policy.consolidate_after is None
            else f"consolidateAfter is {format_duration(policy.consolidate_after)} and has not passed."
        ),
        remedy="wait, or shorten consolidateAfter",
    ),
    Gate.GRACE_PERIOD: _Rule(
        why=lambda policy: f"consolidationGracePeriod is {format_duration(policy.grace_period)} and has not passed.",
        remedy="wait, or shorten consolidationGracePeriod",
    ),
    Gate.MIN_NODE_AGE: _Rule(
        why=lambda policy: f"minNodeAge is {format_duration(policy.min_node_age)} and they are younger.",
        remedy="wait, or lower minNodeAge",
    ),
    Gate.WINDOW: _Rule(
        why=lambda policy: "No window is open for this reason.",
        remedy="wait for the next window, or add one",
    ),
    Gate.HEALTH: _Rule(
        why=lambda policy: "Its health limits are violated.",
        remedy="look at what is not healthy; after a halt, run dovetail resume",
    ),
    Gate.BUDGET: _Rule(
        why=lambda policy: _budgets_why(policy),
        remedy="raise the budget for this reason, or wait for its window",
    ),
    Gate.TOPOLOGY_BUDGET: _Rule(
        why=lambda policy: "A budget per topology domain lets other domains go first.",
        remedy="wait for the domain's turn, or raise the topology budget",
    ),
    Gate.SAVINGS_THRESHOLD: _Rule(
        why=lambda policy: (
            f"consolidationSavingsThreshold is {format_money(policy.savings_threshold)}: the savings are too small for "
            "the pods that they disturb."
        ),
        remedy="lower consolidationSavingsThreshold, if these savings are worth the restarts",
    ),
    Gate.BALANCED: _Rule(
        why=lambda policy: "consolidationPolicy Balanced asks for more savings per disruption than these moves bring.",
        remedy="use WhenEmptyOrUnderutilized where Balanced is too careful",
    ),
}


def pool_lifts(question: Question, scene: Scene, held: Iterable[GateSavings]) -> Iterator[Lift]:
    """Yield every pool and setting that blocks nodes, removed, in the order of `held`."""
    for entry in held:
        lift = entry.lift
        if lift.gate is Gate.PAUSED and lift.node_pool:
            words = _paused(question, lift.node_pool)
        elif lift.gate in _RULES:
            rule, policy = _RULES[lift.gate], scene.policies[lift.node_pool]
            words = ("NodePool", lift.node_pool, rule.why(policy), _remedy(rule, lift.gate, policy))
        elif lift.gate in _SETTINGS:
            words = _SETTINGS[lift.gate](question.settings)
        else:
            continue
        kind, name, why, remedy = words
        yield Lift(
            kind=kind,
            name=name,
            gate=lift.gate.value,
            question=lift.question,
            nodes=lift.nodes,
            why=why,
            remedy=remedy,
            savings=entry.savings,
        )


def _remedy(rule: _Rule, gate: Gate, policy: DisruptionPolicy) -> str:
    """Return what to do; nobody can wait for Never, nor for a window of a budget that has none."""
    if gate is Gate.CONSOLIDATE_AFTER and policy.consolidate_after is None:
        return MEND if policy.closed else OUT_OF_NEVER
    if gate is Gate.BUDGET:
        broken = next((entry for entry in policy.budgets if entry.problem is not None), None)
        if broken is not None:
            return f"mend budget {broken.index + 1}; dovetail validate says what is wrong with it"
        if all(entry.window is None for entry in policy.budgets):
            return "raise the budget for this reason"
    return rule.remedy


def _budgets_why(policy: DisruptionPolicy) -> str:
    broken = next((entry for entry in policy.budgets if entry.problem is not None), None)
    if broken is not None:
        return f"Budget {broken.index + 1} (nodes: {broken.nodes}) can't be read, so it allows nothing."
    return f"Its budgets ({', '.join(f'nodes: {entry.nodes}' for entry in policy.budgets)}) allow no more now."


def _paused(question: Question, name: str) -> tuple[str, str, str, str]:
    """Return the words about a paused pool."""
    pause = next(read_pause(pool) for pool in question.cluster.node_pools if pool.metadata.name == name)
    assert pause is not None
    until = "" if pause.until is None else clock(pause.until)
    reason = f" ({pause.reason})" if pause.reason else ""
    return "NodePool", name, f"It is paused until {until or 'it is resumed'}{reason}.", resume_step(name, until)


_SETTINGS: dict[Gate, Callable[[Settings], tuple[str, str, str, str]]] = {
    Gate.PAUSED: lambda _: ("Settings", "paused", "The setting `paused` is on: nothing starts anywhere.", UNPAUSED),
    Gate.SPOT_TO_SPOT: lambda _: (
        "Settings",
        "spotToSpotConsolidation",
        "Spot nodes are not replaced by cheaper spot nodes.",
        "switch the setting spotToSpotConsolidation on",
    ),
    Gate.SPOT_FLEXIBILITY: lambda settings: (
        "Settings",
        "spotMinimumTypes",
        f"Fewer than {settings.spot_minimum_types} cheaper spot types fit.",
        "allow more instance types in the spot pools",
    ),
}
