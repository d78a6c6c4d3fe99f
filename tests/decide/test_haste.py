"""The savings that a node must reach to go at once, and the waste it must reach to go later (docs/rules.md#waste)."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dovetail.decide.facts.cost import UNIT
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.haste import Haste
from dovetail.decide.question import Question
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.objects import NodeClaim, ObjectMeta, OwnerReference, Pod
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.nodes import NOW, facts_of, minutes

HOUR = 3600 * 10**9
JOBS = replace(DOVETAIL, jobs_wait=True)
PRICED = DisruptionPolicy(savings_threshold=10, disruption_price=7)
JOB = Pod(metadata=ObjectMeta(owner_references=(OwnerReference(kind="Job"),)))


def _haste(settings: Settings = DOVETAIL, **restless: Any) -> Haste:
    catalogue = Catalogue(instance_types=())
    return Haste(Question(cluster=Cluster(), catalogue=catalogue, settings=settings, now=NOW, restless=restless))


def _node(policy: DisruptionPolicy | None = PRICED, *pods: Pod) -> NodeFacts:
    """Return a node that has its whole life of an hour left, with pods that cost two units."""
    claim = NodeClaim(metadata=ObjectMeta(creation_timestamp=NOW))
    return facts_of(policy=policy, claim=claim, expire_after=HOUR, pod_costs=2 * UNIT, reschedulable=pods)


@pytest.mark.parametrize(
    ("settings", "policy", "pods", "waits"),
    [
        (JOBS, PRICED, (JOB,), True),
        (DOVETAIL, PRICED, (JOB,), False),
        (JOBS, DisruptionPolicy(), (JOB,), False),
        (JOBS, None, (JOB,), False),
        (JOBS, PRICED, (Pod(),), False),
    ],
)
def test_jobs(settings: Settings, policy: DisruptionPolicy | None, pods: tuple[Pod, ...], waits: bool) -> None:
    """Nodes with Jobs wait if the setting is on and the pool has a price; the required waste doubles."""
    haste, node = _haste(settings), _node(policy, *pods)
    assert haste.waits_for_jobs(node) is waits
    priced = policy is not None and policy.disruption_price is not None
    asked = haste.asked_waste(node)
    assert (None if asked is None else Fraction(*asked)) == (None if not priced else 28 if waits else 14)


def test_karpenter_asks_for_no_waste() -> None:
    """Karpenter's profile requires no waste."""
    assert _haste(KARPENTER_1_15).asked_waste(_node()) is None


@pytest.mark.parametrize(
    ("until", "policy", "raised"),
    [(1, PRICED, True), (0, PRICED, False), (-1, PRICED, False), (1, DisruptionPolicy(savings_threshold=10), False)],
)
def test_restless_pools(until: int, policy: DisruptionPolicy, raised: bool) -> None:
    """A restless pool requires half as much again at once, and this falls faster by the same factor."""
    when, node = NOW + minutes(until), _node(policy)
    haste = _haste(default=when)
    assert haste.restless_until(node) == (when if raised else None)
    assert Fraction(*haste.asked_savings(node)) == (30 if raised else 20)
    assert Fraction(*haste.falls_by(node)) * HOUR == (30 if raised else 20)
    assert _haste(other=when).restless_until(node) is None
