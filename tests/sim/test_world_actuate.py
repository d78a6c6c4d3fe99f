"""The simulated API server, write by write: creations, conflicts, refusals, notifications."""

import msgspec
import pytest

from dovetail.lifecycle.commands.records import Record, encode_record
from dovetail.lifecycle.effects.objects import ConflictError
from dovetail.lifecycle.effects.writes import PODS_ON, Create, Delete, Patch, Ref
from dovetail.lifecycle.messages import (
    DeleteNodeClaim,
    EvictPod,
    Failure,
    InstructionFailed,
    InstructionSucceeded,
    PublishEvent,
)
from dovetail.model import names
from dovetail.model.command import Action, Method, Replacement
from dovetail.model.objects import Node, NodeClaim, ObjectMeta, PodDisruptionBudget
from dovetail.sim.world.actuate import SEAL, Actuator, claim_from, record_on
from dovetail.sim.world.world import World
from tests.support.rogue import settle, small_world, work


def actuator_of(world: World) -> Actuator:
    """Return Dovetail's actuator."""
    return Actuator(world.store, world.clock, world.karpenter, holds=True)


def world_of_one_pod() -> World:
    """Return a world with one node, `n0`, and a pod on it."""
    world = small_world(1)
    world.workloads.add(work(replicas=1))
    settle(world)
    return world


def test_objects_are_read_by_kind_and_name() -> None:
    """Objects are read with their namespace if they have one."""
    world = world_of_one_pod()
    actuator = actuator_of(world)
    [key] = world.store.pods
    namespace, _, name = key.partition("/")
    shown = actuator.read(Ref(kind="Pod", name=name, namespace=namespace))
    assert shown is not None
    assert shown["metadata"]["name"] == name
    assert actuator.read(Ref(kind="Pod", name=name)) is None
    assert actuator.read(Ref(kind="Node", name="nobody")) is None
    node = actuator.read(Ref(kind="Node", name="n0"))
    assert node is not None
    assert node["metadata"]["name"] == "n0"
    assert actuator.read(Ref(kind=PODS_ON, name="n0")) == {"pods": (world.store.pods[key],)}
    assert actuator.read(Ref(kind=PODS_ON, name="nobody")) == {"pods": ()}


def test_events_are_not_simulated() -> None:
    """Events are not simulated, but they are answered."""
    asked = PublishEvent(id="1", kind="Node", name="n0", reason="R", message="m")
    assert actuator_of(small_world(1)).carry_out(asked) == InstructionSucceeded(id="1")


def test_a_claim_is_made_once_and_launched() -> None:
    """Creating an existing name is a conflict."""
    world = small_world(1)
    actuator = actuator_of(world)
    pool = world.store.pools["blue"]
    made = claim_from(pool, "new", Replacement(node_pool="blue", instance_types=("medium",)))
    create = Create(ref=Ref(kind="NodeClaim", name="new"), tree=msgspec.to_builtins(made))
    uid = actuator.write(create)
    stored = world.store.claims["new"]
    assert (stored.metadata.uid, stored.metadata.finalizers) == (uid, (names.TERMINATION_FINALIZER,))
    assert stored.metadata.creation_timestamp == world.clock.instant()
    with pytest.raises(ConflictError, match="is there already"):
        actuator.write(create)
    settle(world, 300)
    assert world.store.claims["new"].status.node_name, "Karpenter has launched it"


def test_patches_and_deletions_meet_the_object_that_was_read() -> None:
    """Another version, another uid, or a missing object is a conflict."""
    world = small_world(1)
    actuator = actuator_of(world)
    ref, tree = Ref(kind="Node", name="n0"), {"metadata": {"annotations": {"k": "v"}}}
    version = world.store.nodes["n0"].metadata.resource_version
    assert actuator.write(Patch(ref=ref, resource_version=version, tree=tree)) == ""
    assert world.store.nodes["n0"].metadata.annotations["k"] == "v"
    with pytest.raises(ConflictError, match="has changed"):
        actuator.write(Patch(ref=ref, resource_version=version, tree=tree))
    with pytest.raises(ConflictError, match="is gone"):
        actuator.write(Patch(ref=Ref(kind="Node", name="nobody"), resource_version="1", tree=tree))
    [name] = world.store.claims
    claim = world.store.claims[name]
    gone = Ref(kind="NodeClaim", name="nobody")
    for wrong in (Delete(ref=Ref(kind="NodeClaim", name=name), uid="other"), Delete(ref=gone, uid="u")):
        with pytest.raises(ConflictError, match="is gone"):
            actuator.write(wrong)
    assert actuator.write(Delete(ref=Ref(kind="NodeClaim", name=name), uid=claim.metadata.uid)) == claim.metadata.uid
    assert world.store.claims[name].metadata.deletion_timestamp is not None


def test_evictions_obey_budgets() -> None:
    """An eviction is granted if the PDB allows it, throttled if not, and done if the pod is gone."""
    world = world_of_one_pod()
    actuator = actuator_of(world)
    [key] = world.store.pods
    namespace, _, name = key.partition("/")
    uid = world.store.pods[key].metadata.uid
    asked = EvictPod(id="1", command_id="c", namespace=namespace, name=name, uid=uid)
    budget = {
        "metadata": {"name": "guard", "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    world.store.put(msgspec.convert(budget, PodDisruptionBudget, strict=False))
    answer = actuator.carry_out(asked)
    assert isinstance(answer, InstructionFailed)
    assert (answer.failure, key in answer.detail) == (Failure.THROTTLED, True)
    assert world.store.pods[key].metadata.deletion_timestamp is None
    budget["spec"]["minAvailable"] = 0
    world.store.put(msgspec.convert(budget, PodDisruptionBudget, strict=False))
    assert isinstance(actuator.carry_out(asked), InstructionSucceeded)
    assert key not in world.store.pods or world.store.pods[key].metadata.deletion_timestamp is not None


def test_a_deletion_looks_at_the_pods_first() -> None:
    """Dovetail's deletion checks the pods first; the simulated Karpenter's does not."""
    for holds in (True, False):
        world = world_of_one_pod()
        [name] = world.store.claims
        uid = world.store.claims[name].metadata.uid
        asked = DeleteNodeClaim(id="1", command_id="c", name=name, uid=uid, node="n0", only_empty=True)
        answer = Actuator(world.store, world.clock, world.karpenter, holds=holds).carry_out(asked)
        assert isinstance(answer, InstructionFailed) == holds


def test_records_that_are_trusted() -> None:
    """Records are trusted if the world's own key sealed them."""
    plain = encode_record(
        Record(
            id="mine", action=Action.DELETE_COST, method=Method.EMPTY, phase="tainting",
            since=small_world(1).clock.instant(), nodes=(),
        )
    )  # fmt: skip
    assert record_on(None) is None
    assert record_on(Node(metadata=ObjectMeta(name="a"))) is None
    for text, trusted in ((SEAL.sealed(plain), True), (plain, False), ("junk", False)):
        found = record_on(NodeClaim(metadata=ObjectMeta(name="a", annotations={names.COMMAND: text})))
        assert (found is not None) == trusted
