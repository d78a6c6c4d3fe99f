"""Which nodes can be disrupted at all: gates 1 to 7 of spec section 4, as an ordered table of small rules.

Every node runs through the same table and records the result of each gate, with its numbers and one plain sentence;
nothing is dropped silently. Gates 1 to 6 are the same for all methods, with one exception: drift and expiry pass the
pods' gates if the NodeClaim has a terminationGracePeriod. Gate 7 holds each method's own conditions (spec section 5;
docs/designs). Budgets, simulation and prices come later and are not known here. Sits in decide, above facts and timers,
below the methods.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec

from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.node_facts import NodeFacts, is_length
from dovetail.decide.facts.roster import FirstClosed
from dovetail.decide.gates import method_rules, node_rules
from dovetail.decide.gates.gate_results import GateContext, Rule, pod_name, stopped
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, Pod
from dovetail.model.verdicts import Gate, GateResult

NODE_RULES: tuple[Rule, ...] = (
    node_rules.managed,
    node_rules.not_paused,
    node_rules.not_rebooting,
    node_rules.not_marked,
    node_rules.initialized,
    node_rules.not_nominated,
    node_rules.node_may_be_disrupted,
)
POD_RULES: tuple[Rule, ...] = (
    node_rules.pods_may_be_disrupted,
    node_rules.pdbs_allow,
    node_rules.pod_windows_open,
    node_rules.can_surge,
)


REPAIR_RULES: tuple[Rule, ...] = (
    node_rules.managed,
    node_rules.not_paused,
    node_rules.not_marked,
    node_rules.initialized,
    method_rules.unhealthy,
    method_rules.may_be_repaired,
)
OWN_RULES: dict[Method, tuple[Rule, ...]] = {
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
_PLANNED = tuple(method for method in Method if method is not Method.UNHEALTHY)
MAY_WAIT = (Method.EXPIRED, Method.DRIFTED)


class Chain(msgspec.Struct, frozen=True):
    """The gates of one method that a node has run so far, in order; all but the last are passed."""

    method: Method
    results: tuple[GateResult, ...]

    @property
    def open(self) -> bool:
        """Return whether every gate was passed."""
        return self.results[-1].passed

    def then(self, *results: GateResult) -> "Chain":
        """Return the chain with further gates."""
        return Chain(self.method, (*self.results, *results))


def _run(rules: tuple[Rule, ...], facts: NodeFacts, gate_context: GateContext) -> tuple[GateResult, ...]:
    results = []
    for rule in rules:
        result = rule(facts, gate_context)
        results.append(result)
        if not result.passed:
            break
    return tuple(results)


def _repair_chain(facts: NodeFacts, gate_context: GateContext) -> dict[Method, Chain]:
    """Run a node of a pool that repairs through its own gates: a bounded drain passes the pods' (spec section 19)."""
    if facts.policy is None or not facts.policy.repair:
        return {}
    results = _run(REPAIR_RULES, facts, gate_context)
    if results[-1].passed:
        assert facts.sickness is not None
        assert facts.claim is not None
        pods = _run(
            (node_rules.pods_may_be_disrupted, node_rules.pdbs_allow, node_rules.can_surge), facts, gate_context
        )  # a workload's window is for voluntary disruption
        bounded = facts.sickness.rule.drain_for is not None or is_bounded(facts.claim)
        results += tuple(_waived(result) for result in pods) if bounded else pods
    return {Method.UNHEALTHY: Chain(Method.UNHEALTHY, results)}


def gates_of(facts: NodeFacts, gate_context: GateContext) -> dict[Method, Chain]:
    """Run a node through gates 1 to 7 for every method."""
    chains = _repair_chain(facts, gate_context)
    common = _run(NODE_RULES, facts, gate_context)
    if not common[-1].passed:
        return chains | {method: Chain(method, common) for method in _PLANNED}
    assert facts.claim is not None
    strict = common + _run(POD_RULES, facts, gate_context)
    lenient = strict
    if is_bounded(facts.claim):
        lenient = (*common, *(_waived(result) for result in strict[len(common) :]))
    for method in _PLANNED:
        before = lenient if method in MAY_WAIT else strict
        if method is Method.SINGLE_NODE:
            chains[method] = Chain(method, chains[Method.MULTI_NODE].results)
        elif before[-1].passed:
            chains[method] = Chain(method, before + _run(OWN_RULES[method], facts, gate_context))
        else:
            chains[method] = Chain(method, before)
    return chains


def first_closed(facts: NodeFacts, gate_context: GateContext) -> FirstClosed:
    """Return the gate at which each chain of `gates_of` ends, without the chains; None: the node passes."""
    found: list[tuple[Method, Gate | None]] = []
    if facts.policy is not None and facts.policy.repair:
        chain = _repair_chain(facts, gate_context)[Method.UNHEALTHY]
        found.append((Method.UNHEALTHY, None if chain.open else chain.results[-1].gate))
    common = _stop(NODE_RULES, facts, gate_context)
    if common is not None:
        return (*found, *[(method, common) for method in _PLANNED])
    assert facts.claim is not None
    strict = _stop(POD_RULES, facts, gate_context)
    lenient = None if strict is None or is_bounded(facts.claim) else strict
    for method in _PLANNED:
        gate = lenient if method in MAY_WAIT else strict
        if method is Method.SINGLE_NODE:
            gate = dict(found)[Method.MULTI_NODE]
        elif gate is None:
            gate = _stop(OWN_RULES[method], facts, gate_context)
        found.append((method, gate))
    return tuple(found)


def _stop(rules: tuple[Rule, ...], facts: NodeFacts, gate_context: GateContext) -> Gate | None:
    for rule in rules:
        result = rule(facts, gate_context)
        if not result.passed:
            return result.gate
    return None


def awaited(chain: Chain, pods: Sequence[Pod]) -> Chain:
    """Return the chain of an empty node that waiting pods would go to: it ends at the gate `nominated`."""
    before = tuple(takewhile(lambda result: result.gate is not Gate.NOMINATED, chain.results))
    first, more = pod_name(pods[0]), len(pods) - 1
    if more:
        why = f"It is empty, but pod {first} and {more} more wait for a node and would land on it."
    else:
        why = f"It is empty, but pod {first} waits for a node and would land on it."
    return Chain(chain.method, (*before, stopped(Gate.NOMINATED, why, pod=first, pods=len(pods))))


class Chains(Mapping[str, dict[Method, Chain]]):
    """Gates 1 to 7 of nodes by name, each computed on first access.

    `awaited`: returns the nodes that waiting pods would go to; called only for nodes that could be deleted as empty.
    """

    def __init__(
        self,
        nodes: Lineup,
        gate_context: GateContext,
        awaited: Callable[[], Mapping[str, Sequence[Pod]]],
    ) -> None:
        self._nodes, self._gate_context, self._awaited = nodes, gate_context, awaited
        self._found: dict[str, dict[Method, Chain]] = {}

    def __getitem__(self, name: str) -> dict[Method, Chain]:
        """Return a node's chains, by method."""
        found = self.before_waiting(name)
        empty = found[Method.EMPTY]
        pods = self._awaited().get(name) if empty.open else None
        return found if pods is None else {**found, Method.EMPTY: awaited(empty, pods)}

    def before_waiting(self, name: str) -> dict[Method, Chain]:
        """Return a node's chains from its own objects and PDBs, ignoring waiting pods."""
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = gates_of(self._nodes.by_name[name], self._gate_context)
        return found

    def __iter__(self) -> Iterator[str]:
        """Iterate over the nodes by name."""
        return iter(self._nodes.by_name)

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self._nodes.by_name)


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
