"""Which nodes can be disrupted at all: gates 1 to 7 of docs/rules.md#gates, as an ordered table of small rules.

Every node runs through the same table and records the result of each gate, with its numbers and one plain sentence;
nothing is dropped silently. Gates 1 to 6 are the same for all methods, with two exceptions: drift and expiry pass the
pods' gates if the NodeClaim has a terminationGracePeriod, and an empty node asks no PDB. Gate 7 holds each method's own
conditions (docs/rules.md#methods; docs/designs). Budgets, simulation and prices come later and are not known here. Sits
in decide, above facts and timers, below the methods.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts, is_length
from dovetail.decide.gates import method_rules, node_rules
from dovetail.decide.gates.gate_results import GateContext, GateRule, stopped
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, Pod
from dovetail.model.verdicts import Gate, GateResult

NODE_RULES: tuple[GateRule, ...] = (
    node_rules.managed,
    node_rules.not_paused,
    node_rules.not_rebooting,
    node_rules.not_marked,
    node_rules.initialized,
    node_rules.not_nominated,
    node_rules.node_may_be_disrupted,
)
POD_RULES: tuple[GateRule, ...] = (
    node_rules.pods_may_be_disrupted,
    node_rules.pdbs_allow,
    node_rules.pod_windows_open,
    node_rules.can_surge,
)
POD_RULES_OF_EMPTY: tuple[GateRule, ...] = (node_rules.pods_may_be_disrupted,)
"""An empty node has only pods that go with it, so no PDB is asked."""
REPAIR_RULES: tuple[GateRule, ...] = (
    node_rules.managed,
    node_rules.not_paused,
    node_rules.not_marked,
    node_rules.initialized,
    node_rules.not_nominated,
    method_rules.unhealthy,
    method_rules.may_be_repaired,
)
POD_RULES_OF_REPAIR: tuple[GateRule, ...] = (
    node_rules.pods_may_be_disrupted,
    node_rules.pdbs_allow,
    node_rules.can_surge,
)
"""A workload's window is for voluntary disruption."""
OWN_RULES: dict[Method, tuple[GateRule, ...]] = {
    Method.EMPTY: (
        method_rules.empty_only,
        method_rules.not_static,
        method_rules.no_buffer,
        method_rules.consolidate_after_passed,
        method_rules.old_enough,
    ),
    Method.EXPIRED: (method_rules.expired, method_rules.no_resource_claims),
    Method.DRIFTED: (method_rules.drifted, method_rules.no_resource_claims),
    Method.MULTI_NODE: (
        method_rules.occupied_only,
        method_rules.underutilized_allowed,
        method_rules.price_known,
        method_rules.consolidate_after_passed,
        method_rules.old_enough,
        method_rules.grace_period_passed,
        method_rules.no_resource_claims,
    ),
}
OWN_RULES[Method.SINGLE_NODE] = OWN_RULES[Method.MULTI_NODE]
RULES: tuple[GateRule, ...] = (
    *NODE_RULES,
    method_rules.unhealthy,
    method_rules.may_be_repaired,
    node_rules.not_resting,
    *POD_RULES,
    method_rules.empty_only,
    method_rules.occupied_only,
    method_rules.not_static,
    method_rules.underutilized_allowed,
    method_rules.price_known,
    method_rules.no_buffer,
    method_rules.consolidate_after_passed,
    method_rules.old_enough,
    method_rules.grace_period_passed,
    method_rules.expired,
    method_rules.drifted,
    method_rules.no_resource_claims,
)
"""All rules, in an order that agrees with every method's: the columns of the table."""
_PLANNED = tuple(method for method in Method if method is not Method.UNHEALTHY)
MAY_WAIT = (Method.UNHEALTHY, Method.EXPIRED, Method.DRIFTED)
"""The methods for which a terminationGracePeriod lifts the rules about pods."""


class Chain(msgspec.Struct, frozen=True):
    """The gates of one method that a node has run so far, in order; all but the last are passed."""

    method: Method
    results: tuple[GateResult, ...]

    @property
    def open(self) -> bool:
        """Return whether every gate was passed."""
        return self.results[-1].passed

    @property
    def passed_pods(self) -> bool:
        """Return whether gates 1 to 6 were passed."""
        return any(result.gate is Gate.PDB and result.passed for result in self.results)

    def then(self, *results: GateResult) -> "Chain":
        """Return the chain with further gates."""
        return Chain(self.method, (*self.results, *results))


_Step = tuple[int, GateRule, GateResult | None]
"""A rule, its bit, and its result for all nodes that pass it; None: that differs from node to node."""


@lru_cache(maxsize=64)
def _steps(method: Method, *, rests: bool, asks: bool) -> tuple[tuple[_Step, ...], ...]:
    """Return the rules of a method in three parts: before those about pods, about pods, and its own."""
    before = rules_before_pods(method)
    parts = (before if rests else before[:-1], pod_rules(method, empty_asks_pdbs=asks), OWN_RULES.get(method, ()))
    return tuple(tuple(map(_step, part)) for part in parts)


def _step(rule: GateRule) -> _Step:
    return 1 << RULES.index(rule), rule, rule.passes if isinstance(rule.passes, GateResult) else None


def _run(steps: tuple[_Step, ...], facts: NodeFacts, gate_context: GateContext, closed: int) -> tuple[GateResult, ...]:
    results = []
    for bit, rule, usual in steps:
        if closed & bit:
            results.append(rule.result(facts, gate_context, closed=True))
            break
        results.append(usual or rule.result(facts, gate_context, closed=False))
    return tuple(results)


def rules_before_pods(method: Method) -> tuple[GateRule, ...]:
    """Return the rules of a method that come before those about a node's pods, for nodes that back off too."""
    return (*(REPAIR_RULES if method is Method.UNHEALTHY else NODE_RULES), node_rules.not_resting)


def pod_rules(method: Method, *, empty_asks_pdbs: bool) -> tuple[GateRule, ...]:
    """Return the rules about a node's pods that count for a method (gate 6)."""
    if method is Method.UNHEALTHY:
        return POD_RULES_OF_REPAIR
    return POD_RULES_OF_EMPTY if method is Method.EMPTY and not empty_asks_pdbs else POD_RULES


def methods_of(facts: NodeFacts) -> tuple[Method, ...]:
    """Return the methods whose gates a node runs through; only a pool that repairs has a chain for that."""
    return tuple(Method) if facts.policy is not None and facts.policy.repair else _PLANNED


def chain_of(facts: NodeFacts, gate_context: GateContext, method: Method, closed: int) -> Chain:
    """Run a node through gates 1 to 7 of one method; `closed`: the rules that are closed for it, as bits by `RULES`."""
    asks = gate_context.settings.rules.empty_asks_pdbs
    before, pods, own = _steps(method, rests=facts.resting is not None, asks=asks)
    results = _run(before, facts, gate_context, closed)
    if results[-1].passed:
        found = _run(pods, facts, gate_context, closed)
        results += tuple(map(_waived, found)) if lifts_pod_rules(method, facts) else found
    if results[-1].passed:
        results += _run(own, facts, gate_context, closed)
    return Chain(method, results)


def awaited(chain: Chain, pods: Sequence[Pod]) -> Chain:
    """Return the chain of an empty node that waiting pods would go to: it ends at the gate `nominated`."""
    before = tuple(takewhile(lambda result: result.gate is not Gate.NOMINATED, chain.results))
    first, more = pods[0].metadata.key, len(pods) - 1
    if more:
        why = f"It is empty, but pod {first} and {more} more wait for a node and would land on it."
    else:
        why = f"It is empty, but pod {first} waits for a node and would land on it."
    return Chain(chain.method, (*before, stopped(Gate.NOMINATED, why, pod=first, pods=len(pods))))


class Chains:
    """Gates 1 to 7 of nodes, each computed on first access.

    `awaited`: returns the nodes that waiting pods would go to; called only for nodes that could be deleted as empty.
    `closed`: returns the rules that are closed for a node, as bits by `RULES`.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeFacts],
        gate_context: GateContext,
        awaited: Callable[[], Mapping[str, Sequence[Pod]]],
        closed: Callable[[str], int],
    ) -> None:
        self._nodes, self._gate_context, self._awaited, self._closed = nodes, gate_context, awaited, closed
        self._found: dict[tuple[str, Method], Chain] = {}

    def of(self, node: str, method: Method) -> Chain:
        """Return the gates of a node for a method."""
        found = self._found.get((node, method))
        if found is None:
            found = chain_of(self._nodes[node], self._gate_context, method, self._closed(node))
            pods = self._awaited().get(node) if method is Method.EMPTY and found.open else None
            found = self._found[node, method] = found if pods is None else awaited(found, pods)
        return found


def lifts_pod_rules(method: Method, facts: NodeFacts) -> bool:
    """Return whether a node's drain is bounded, so that its pods' rules don't count (docs/rules.md#gates, #repair)."""
    if method is Method.UNHEALTHY and facts.sickness is not None and facts.sickness.rule.drain_for is not None:
        return True
    return method in MAY_WAIT and facts.claim is not None and is_bounded(facts.claim)


def is_bounded(claim: NodeClaim) -> bool:
    """Return whether a NodeClaim has a terminationGracePeriod, which bounds every drain."""
    period = claim.spec.termination_grace_period
    return period is not None and is_length(period)  # an unreadable value has no effect


def _waived(result: GateResult) -> GateResult:
    if result.passed:
        return result
    return GateResult(
        gate=result.gate,
        passed=True,
        why=f"{result.why} The NodeClaim's terminationGracePeriod lifts that.",
        figures=result.figures,
    )
