"""Blockers from a NodePool's policy or a setting: what to change in the input to remove each, and their texts.

Yields one changed question for every pool and gate that blocks nodes. `blockers` asks the core about each.
Sits in plan.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from dovetail.api.policy_change import with_policy_field
from dovetail.decide.context import RoundContext
from dovetail.decide.question import Question
from dovetail.model.money import format_money
from dovetail.model.objects import NodePool
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.timing.duration import format_duration
from dovetail.model.verdicts import Gate, NodeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """A removed blocker: the question without it, the nodes that it blocked, and its texts."""

    kind: str
    name: str
    gate: str
    question: Question
    nodes: tuple[str, ...]
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """How a gate of a pool is opened: fields to write, and texts for why and remedy."""

    fields: tuple[tuple[str, Any], ...]
    why: Callable[[DisruptionPolicy], str]
    remedy: str


_RULES: dict[Gate, _Rule] = {
    Gate.POOL_POLICY: _Rule(
        fields=(("consolidationPolicy", "WhenEmptyOrUnderutilized"),),
        why=lambda policy: f"consolidationPolicy is {policy.consolidation_policy.value}.",
        remedy="set consolidationPolicy: WhenEmptyOrUnderutilized",
    ),
    Gate.CONSOLIDATE_AFTER: _Rule(
        fields=(("consolidateAfter", "0s"),),
        why=lambda policy: f"consolidateAfter is {format_duration(policy.consolidate_after)} and has not passed.",
        remedy="wait, or shorten consolidateAfter",
    ),
    Gate.GRACE_PERIOD: _Rule(
        fields=(("consolidationGracePeriod", "Never"),),
        why=lambda policy: f"consolidationGracePeriod is {format_duration(policy.grace_period)} and has not passed.",
        remedy="wait, or shorten consolidationGracePeriod",
    ),
    Gate.MIN_NODE_AGE: _Rule(
        fields=(("minNodeAge", "0s"),),
        why=lambda policy: f"minNodeAge is {format_duration(policy.min_node_age)} and they are younger.",
        remedy="wait, or lower minNodeAge",
    ),
    Gate.WINDOW: _Rule(
        fields=(("windows", []),),
        why=lambda policy: "No window is open for this reason.",
        remedy="wait for the next window, or add one",
    ),
    Gate.HEALTH: _Rule(
        fields=(("health", {}),),
        why=lambda policy: "Its health limits are violated.",
        remedy="look at what is not healthy; after a halt, run dovetail resume",
    ),
    Gate.BUDGET: _Rule(
        fields=(("budgets", [{"nodes": "100%"}]),),
        why=lambda policy: (
            f"Its budgets ({', '.join(f'nodes: {entry.nodes}' for entry in policy.budgets)}) are used up."
        ),
        remedy="raise the budget for this reason, or wait for its window",
    ),
    Gate.TOPOLOGY_BUDGET: _Rule(
        fields=(("budgets", [{"nodes": "100%"}]),),
        why=lambda policy: "A budget per topology domain lets other domains go first.",
        remedy="wait for the domain's turn, or raise the topology budget",
    ),
    Gate.SAVINGS_THRESHOLD: _Rule(
        fields=(("consolidationSavingsThreshold", "0"),),
        why=lambda policy: (
            f"consolidationSavingsThreshold is {format_money(policy.savings_threshold)}: the savings are too small for "
            "the pods that they disturb."
        ),
        remedy="lower consolidationSavingsThreshold, if these savings are worth the restarts",
    ),
    Gate.BALANCED: _Rule(
        fields=(("consolidationPolicy", "WhenEmptyOrUnderutilized"),),
        why=lambda policy: "consolidationPolicy Balanced asks for more savings per disruption than these moves bring.",
        remedy="use WhenEmptyOrUnderutilized where Balanced is too careful",
    ),
}


def pool_lifts(question: Question, context: RoundContext, verdicts: Iterable[NodeVerdict]) -> Iterator[Lift]:
    """Yield every pool and setting that blocks nodes, removed, by pool and gate."""
    pools = {pool.metadata.name: pool for pool in question.cluster.node_pools}
    held: dict[tuple[str, str], list[str]] = {}
    for entry in verdicts:
        if entry.node_pool in pools:
            held.setdefault((entry.node_pool, entry.verdict), []).append(entry.node)
    for (name, verdict), nodes in sorted(held.items()):
        gate = next((gate for gate in _RULES if gate.value == verdict), None)
        policy = context.policies[name]
        if gate is None or policy.static:
            continue
        rule = _RULES[gate]
        yield Lift(
            kind="NodePool",
            name=name,
            gate=verdict,
            question=_with_pool(question, pools[name], rule.fields),
            nodes=tuple(nodes),
            why=rule.why(policy),
            remedy=rule.remedy,
        )
    yield from _setting_lifts(question, held)


def _with_pool(question: Question, pool: NodePool, fields: tuple[tuple[str, Any], ...]) -> Question:
    changed = pool
    for key, value in fields:
        changed = with_policy_field(changed, key, value)
    pools = tuple(changed if entry is pool else entry for entry in question.cluster.node_pools)
    return replace(question, cluster=replace(question.cluster, node_pools=pools))


def _setting_lifts(question: Question, held: dict[tuple[str, str], list[str]]) -> Iterator[Lift]:
    """Yield the settings that block spot nodes."""
    settings = question.settings
    for gate, name, lifted, why, remedy in (
        (
            Gate.SPOT_TO_SPOT,
            "spotToSpotConsolidation",
            replace(settings, spot_to_spot_consolidation=True),
            "Spot nodes are not replaced by cheaper spot nodes.",
            "switch the setting spotToSpotConsolidation on",
        ),
        (
            Gate.SPOT_FLEXIBILITY,
            "spotMinimumTypes",
            replace(settings, spot_minimum_types=1),
            f"Fewer than {settings.spot_minimum_types} cheaper spot types fit.",
            "allow more instance types in the spot pools",
        ),
    ):
        nodes = sorted(node for (_, verdict), some in held.items() if verdict == gate.value for node in some)
        if nodes:
            yield Lift(
                kind="Settings",
                name=name,
                gate=gate.value,
                question=replace(question, settings=lifted),
                nodes=tuple(nodes),
                why=why,
                remedy=remedy,
            )
