"""Run a node through gates 1 to 7 by asking every rule, without the table that remembers their answers."""

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import RULES, Chain, chain_of, methods_of
from dovetail.decide.gates.gate_results import GateContext
from dovetail.model.command import Method


def gates_of(facts: NodeFacts, gates: GateContext) -> dict[Method, Chain]:
    """Return gates 1 to 7 of a node for every method."""
    closed = sum(1 << place for place, rule in enumerate(RULES) if rule.is_closed(facts, gates))
    return {method: chain_of(facts, gates, method, closed) for method in methods_of(facts)}
