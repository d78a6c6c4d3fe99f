"""Retire expired nodes: age >= expireAfter, oldest expiry first, gracefully and within budgets.

Spec section 5; lifecycle-controller (`deleteExpired`, `replaceExpired`), disruption-controls (`expireAfter`). Under
`karpenter-1.15` expiry is Karpenter's own and there are no candidates. Sits in decide, beside the other methods, which
it does not know.
"""

from datetime import datetime

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.leaving import first_command
from dovetail.decide.methods.method import MethodRun
from dovetail.model.command import Method


def candidates(context: RoundContext) -> list[NodeFacts]:
    """Return the expired nodes, oldest expiry first, then by name."""
    return sorted(context.passing(Method.EXPIRED), key=_expiry)


def _expiry(facts: NodeFacts) -> tuple[datetime, str]:
    assert facts.expires_at is not None
    return facts.expires_at, facts.name


def run(context: RoundContext) -> MethodRun:
    """Return the next command for expired nodes."""
    found = candidates(context)
    command, held = first_command(context, Method.EXPIRED, found)
    return MethodRun(method=Method.EXPIRED, commands=(command,) if command else (), held=held)
