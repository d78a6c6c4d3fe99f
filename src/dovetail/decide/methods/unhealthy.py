"""Repair: replace nodes with a broken condition, longest first, within budgets, with a circuit breaker.

See docs/rules.md#repair; actions `deleteUnhealthy` and `replaceUnhealthy`. The first method of a round, and only for
pools that set `repair`. If Karpenter repairs nodes itself, Dovetail does not. Sits in decide, beside the other methods,
which it does not know.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.waits import tripped
from dovetail.decide.methods.leaving import first_command
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Method
from dovetail.model.karpenter import FeatureGate

METHOD: Final = Method.UNHEALTHY


def candidates(scene: Scene) -> list[NodeFacts]:
    """Return the nodes to repair, longest unhealthy first, then by name."""
    return sorted(scene.passing(METHOD), key=_since)


def _since(facts: NodeFacts) -> tuple[datetime, str]:
    assert facts.sickness is not None
    return facts.sickness.since, facts.name


def run(work: Work) -> MethodRun:
    """Return the next command for nodes that are broken."""
    scene = work.scene
    found = [facts for facts in candidates(scene) if scene.waits.of(METHOD, facts) is None]
    command, held = first_command(work, METHOD, found)
    return MethodRun(method=METHOD, commands=(command,) if command else (), held=held)


def warnings(scene: Scene) -> Iterator[str]:
    """Yield warnings about repair: a breaker that tripped, and Karpenter repairing as well."""
    if not any(policy.repair for policy in scene.policies.values()):
        return
    if left_to_karpenter(scene):
        yield "Karpenter's feature gate NodeRepair is on: repair is left to Karpenter"
        return
    for pool, ill, nodes in scene.waits.ill:
        yield f"NodePool {pool}: {tripped(ill, nodes)}"


def left_to_karpenter(scene: Scene) -> bool:
    """Return whether Karpenter repairs nodes itself."""
    return dict(scene.settings.karpenter.feature_gates).get(FeatureGate.NODE_REPAIR, False)
