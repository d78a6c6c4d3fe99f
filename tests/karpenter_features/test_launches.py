"""A claim that can't be launched blocks Karpenter's provisioner: none is created, and one that hangs is deleted."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.effects.node_claims import launch_problem
from dovetail.lifecycle.messages import CreateNodeClaim, DeleteNodeClaim, InstructionFailed
from dovetail.model import names
from dovetail.model.command import Replacement
from dovetail.model.objects import Condition, NodeClaim, SelectorRequirement
from tests.karpenter_features.world import FREE, world_with
from tests.support.design_world import Town, kind
from tests.support.lifecycle_world import CALM, T0, Driver, ScriptedPlanner, World, engine_for

WANTED = Replacement(
    node_pool="web",
    instance_types=("m", "n"),
    requirements=(SelectorRequirement(key=names.ZONE, operator="In", values=("a", "b")),),
)


def _pool(**parts: Any) -> dict[str, Any]:
    reqs = parts.pop("requirements", [])
    spec = {"template": {"spec": {"requirements": reqs}}, "limits": parts.pop("limits", {})}
    return {"metadata": {"name": "web", **parts.pop("metadata", {})}, "spec": spec, "status": parts}


def _req(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


POOLS: dict[str, tuple[dict[str, Any], str]] = {
    "as planned": (_pool(), ""),
    "Ready": (_pool(conditions=[{"type": "Ready", "status": "True"}]), ""),
    "not Ready": (_pool(conditions=[{"type": "Ready", "status": "False"}]), "not Ready"),
    "not known to be Ready": (_pool(conditions=[{"type": "Ready", "status": "Unknown"}]), ""),
    "being deleted": (_pool(metadata={"deletionTimestamp": "x"}), "being deleted"),
    "below its limit": (_pool(limits={"cpu": "10"}, resources={"cpu": "9"}), ""),
    "at its limit": (_pool(limits={"cpu": "10"}, resources={"cpu": "10000m"}), "limit of 10 cpu"),
    "over its limit of nodes": (_pool(limits={"nodes": "2"}, resources={"nodes": "3"}), "limit of 2 nodes"),
    "a limit that can't be read": (_pool(limits={"cpu": "many"}, resources={"cpu": "1"}), ""),
    "types still allowed": (_pool(requirements=[_req(names.INSTANCE_TYPE, "In", "n", "o")]), ""),
    "types no longer allowed": (_pool(requirements=[_req(names.INSTANCE_TYPE, "In", "o")]), "no longer allows"),
    "types forbidden since": (_pool(requirements=[_req(names.INSTANCE_TYPE, "NotIn", "m", "n")]), "no longer allows"),
    "zone no longer allowed": (_pool(requirements=[_req(names.ZONE, "In", "c")]), "no longer allows"),
    "a label it does not ask for": (_pool(requirements=[_req("team", "In", "red")]), ""),
    "a requirement of no known kind": (_pool(requirements=[_req(names.ZONE, "Near", "c")]), ""),
}


@pytest.mark.parametrize("case", POOLS)
def test_what_the_pool_rules_out_now(case: str) -> None:
    """The creation checks the pool as it is on the server at that moment."""
    pool, words = POOLS[case]
    problem = launch_problem(WANTED, pool)
    assert words in problem
    assert bool(words) is bool(problem)


def test_such_a_claim_is_not_created() -> None:
    """The creation fails permanently, the command is rolled back and the pool backs off."""
    world = world_with(a="replace")
    from dovetail.model.objects import NodePool

    pool = world.get(NodePool, "web")
    assert pool is not None
    deleting = msgspec.structs.replace(pool.metadata, deletion_timestamp=T0)
    world.put(msgspec.structs.replace(pool, metadata=deleting))
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(60)
    assert world.created == []
    assert "failed" in driver.ends()


def test_nothing_that_fits_is_available() -> None:
    """A drifted node waits while no offering for its pods can be launched."""
    from dataclasses import replace as changed

    made = kind("m", "1", cpu=4)
    none_left = changed(
        made,
        offerings=tuple(
            changed(o, capacity_type=names.RESERVED, reservation_id="r", reservation_capacity=0) for o in made.offerings
        ),
    )
    town = Town(none_left)
    town.pool(capacity=(names.RESERVED, names.ON_DEMAND), disruption=FREE)
    town.node("n", "m", drifted=timedelta(hours=1))
    town.pod("p", "n", cpu="3")
    assert town.act() is None


def _hangs(world: World, *, reason: str | None, at: float) -> None:
    """Let Karpenter accept a claim without launching it."""

    def take_up() -> None:
        for name in world.created:
            claim = world.get(NodeClaim, name)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                continue
            said = Condition(type="Launched", status="Unknown", reason=reason, last_transition_time=world.now)
            status = msgspec.structs.replace(claim.status, conditions=(said,))
            world.put(msgspec.structs.replace(claim, status=status))

    world.later(at, take_up)


HANGS = {
    "it says that the launch failed": ("LaunchFailed", 20.0, 25.0),
    "any other reason": ("InstanceProfileNotReady", 20.0, 25.0),
    "it only waits": ("AwaitingReconciliation", 20.0, 80.0),
    "no reason": (None, 20.0, 80.0),
}


@pytest.mark.parametrize("case", HANGS)
def test_one_that_hangs_is_taken_back(case: str) -> None:
    """The claim is given up at once if Karpenter reports it, otherwise after launchTimeout without a provider id."""
    reason, at, by = HANGS[case]
    world = world_with(a="replace")
    world.launches = False
    _hangs(world, reason=reason, at=at)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(120)
    created = [item for _, item in driver.log if isinstance(item, CreateNodeClaim)]
    undone = [
        (when - T0).total_seconds()
        for when, item in driver.log
        if isinstance(item, DeleteNodeClaim) and item.name in {entry.name for entry in created}
    ]
    assert len(undone) == 1
    assert at <= undone[0] <= by + 1


def test_one_with_a_machine_is_waited_for() -> None:
    """With a provider id Karpenter is still launching: the replacement has its nine and a half minutes."""
    world = world_with(a="replace")
    world.launch_seconds = 300
    _hangs(world, reason="AwaitingReconciliation", at=20)

    def launched() -> None:
        for name in world.created:
            claim = world.get(NodeClaim, name)
            assert claim is not None
            world.put(msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, provider_id="p")))

    world.later(30, launched)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(400)
    assert driver.ends() == ["done"]
    assert not [item for _, item in driver.log if isinstance(item, InstructionFailed)]
