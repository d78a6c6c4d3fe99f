"""Retire expired nodes: oldest expiry first, gracefully, within budgets and before Karpenter ends them by force.

See docs/rules.md#methods and #expiry; lifecycle-controller (`deleteExpired`, `replaceExpired`), disruption-controls
(`expireAfter`). Under `karpenter-1.15` expiry is Karpenter's own and there are no candidates. Sits in decide, beside
the other methods, which it does not know.
"""

from datetime import datetime

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.leaving import first_command
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Method


def candidates(scene: Scene) -> list[NodeFacts]:
    """Return the expired nodes, oldest expiry first, then by name."""
    return sorted(scene.passing(Method.EXPIRED), key=_expiry)


def _expiry(facts: NodeFacts) -> tuple[datetime, str]:
    assert facts.expires_at is not None
    return facts.expires_at, facts.name


def run(work: Work) -> MethodRun:
    """Return the next command for expired nodes."""
    found = candidates(work.scene)
    command, held = first_command(work, Method.EXPIRED, found)
    return MethodRun(method=Method.EXPIRED, commands=(command,) if command else (), held=held)
