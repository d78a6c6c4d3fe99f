"""The signs of regrowth: new nodes that carry, or wait for, pods of the moved pods' owners."""

from datetime import UTC, datetime

import pytest

from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.regrowth import LOOK_AFTER, Regrowth
from dovetail.lifecycle.store import Store
from dovetail.model.command import Action, Method
from dovetail.model.objects import NodeClaim, NodeClaimStatus, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus


def _pod(name: str, owner: str, node: str = "") -> Pod:
    references = (OwnerReference(kind="ReplicaSet", name=owner, uid=owner, api_version="apps/v1"),)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="d", uid=name, owner_references=references),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase="Running" if node else "Pending"),
    )


@pytest.mark.parametrize(
    ("owner", "node", "claim_on", "regrown"),
    [
        ("web", "new", "new", True),
        ("other", "new", "new", False),
        ("web", "", "", True),
        ("other", "", "", False),
        ("web", "", "new", False),
        ("web", "old", "new", False),
    ],
    ids=[
        "it carries one of the moved",
        "it carries another's",
        "one of the moved waits, and a node is on its way",
        "another's waits",
        "one waits, but the new node is there already",
        "the moved pod went to an old node",
    ],
)
def test_what_counts_as_a_node_that_came_back(owner: str, node: str, claim_on: str, regrown: bool) -> None:
    """Only new NodeClaims count, and only for pods of the same owners."""
    store, regrowth = Store(), Regrowth()
    for name in ("gone", "old"):
        store.observe(NodeClaim(metadata=ObjectMeta(name=name, uid=name), status=NodeClaimStatus(node_name=name)))
    store.observe(_pod("moved", "web", "gone"))
    run = Run(
        id="c1",
        action=Action.DELETE_COST,
        method=Method.SINGLE_NODE,
        candidates=(Candidate(node="gone", claim="gone", uid="gone", pool="pool"),),
        phase=Phase.DELETING,
        began=datetime(2026, 1, 1, tzinfo=UTC),
    )
    regrowth.begin(run, store)
    store.vanish("Pod", "d", "moved")
    store.vanish("NodeClaim", "", "gone")
    regrowth.end(run, 0, well=True)
    store.observe(NodeClaim(metadata=ObjectMeta(name="new", uid="new"), status=NodeClaimStatus(node_name=claim_on)))
    store.observe(_pod("again", owner, node))
    assert bool(regrowth.held(store, 1)) == regrown
    assert [pool for pool, _ in regrowth.judge(store, LOOK_AFTER)] == (["pool"] if regrown else [])
