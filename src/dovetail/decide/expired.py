"""Retire expired nodes: age >= expireAfter, oldest expiry first, gracefully and within budgets.

Spec section 5; S4 (`deleteExpired`, `replaceExpired`), S3 (`expireAfter`). Under `karpenter-1.15` expiry is
Karpenter's own and there are no candidates. Sits in decide, beside the other methods, which it does not know.
"""

from datetime import datetime

from dovetail.decide.facts import NodeFacts
from dovetail.decide.leaving import first_command
from dovetail.decide.method import MethodRun
from dovetail.decide.scene import Scene
from dovetail.model.command import Method


def candidates(scene: Scene) -> list[NodeFacts]:
    """Give the expired nodes, oldest expiry first, then by name."""
    return sorted(scene.passing(Method.EXPIRED), key=_expiry)


def _expiry(facts: NodeFacts) -> tuple[datetime, str]:
    assert facts.expires_at is not None
    return facts.expires_at, facts.name


def run(scene: Scene) -> MethodRun:
    """Give the next command for expired nodes."""
    found = candidates(scene)
    command, held = first_command(scene, Method.EXPIRED, found)
    return MethodRun(method=Method.EXPIRED, candidates=tuple(found), commands=(command,) if command else (), held=held)
