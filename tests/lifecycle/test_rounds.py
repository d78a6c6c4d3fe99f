"""The engine with the real planner: snapshot, methods, validation and the resulting commands."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import CreateNodeClaim, DeleteNodeClaim, RoundTook, TaintNode
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.objects import (
    Affinity,
    BudgetSpec,
    Condition,
    Container,
    DisruptionSpec,
    LabelSelectorSpec,
    Node,
    NodeClaim,
    NodeClaimStatus,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    SelectorRequirement,
)
from dovetail.model.settings import Settings, Stabilization
from tests.support.lifecycle_world import CALM, T0, Driver, World


def machine(name: str, cpu: int, dollars: int) -> InstanceType:
    """Build an instance type; the price is in tenths of a dollar."""
    pairs = (
        (names.INSTANCE_TYPE, name),
        (names.ZONE, "z1"),
        (names.CAPACITY_TYPE, "on-demand"),
        (names.ARCH, "amd64"),
        (names.OS, "linux"),
    )
    return InstanceType(
        name=name,
        requirements=tuple(SelectorRequirement(key=key, values=(value,)) for key, value in pairs),
        capacity={"cpu": cpu * 1000, "memory": cpu << 32, "pods": 110},
        overhead={},
        offerings=(Offering(capacity_type="on-demand", zone="z1", price=dollars * 10**17, price_float=dollars / 10),),
    )


CATALOGUE = Catalogue(instance_types=(machine("small", 2, 1), machine("large", 8, 4)))


class RealWorld(World):
    """Simulate the same world with nodes that a scheduler accepts."""

    def add_pool(self, name: str = "web", *, managed: bool = True, **disruption: object) -> None:
        """Add a NodePool that is ready."""
        spec = DisruptionSpec(consolidate_after="30s", budgets=(BudgetSpec(nodes="3"),))
        self.put(
            NodePool(
                metadata=ObjectMeta(name=name, labels={names.MANAGE: "true"} if managed else {}),
                spec=NodePoolSpec(disruption=msgspec.structs.replace(spec, **disruption)),
                status=NodePoolStatus(conditions=(Condition(type="Ready", status="True"),)),
            )
        )

    def add_machine(self, name: str, kind: str, *, drifted: bool = False, claim_name: str = "") -> None:
        """Add a node of an instance type, with its NodeClaim, an hour old."""
        cpu = {"small": 2, "large": 8}[kind]
        labels = {
            names.NODEPOOL: "web",
            names.INSTANCE_TYPE: kind,
            names.ZONE: "z1",
            names.CAPACITY_TYPE: "on-demand",
            names.ARCH: "amd64",
            names.OS: "linux",
            names.HOSTNAME: name,
            names.INITIALIZED_LABEL: "true",
            names.REGISTERED_LABEL: "true",
        }
        born = self.now - timedelta(hours=1)
        kinds = ("Launched", "Registered", "Initialized", "Consolidatable", *(("Drifted",) if drifted else ()))
        done = tuple(Condition(type=kind, status="True", last_transition_time=born) for kind in kinds)
        claim_name = claim_name or f"{name}-claim"
        known = self.get(NodeClaim, claim_name)
        room = {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "110"}
        meta = ObjectMeta(name=claim_name, labels=labels, creation_timestamp=born)
        if known is not None:
            meta = msgspec.structs.replace(known.metadata, labels=labels)
        status = NodeClaimStatus(
            node_name=name, provider_id=f"p://{name}", capacity=room, allocatable=room, conditions=done
        )
        self.put(NodeClaim(metadata=meta, status=status))
        ready = (Condition(type="Ready", status="True"),)
        self.put(
            Node(
                metadata=ObjectMeta(name=name, labels=labels, creation_timestamp=born, annotations=meta.annotations),
                spec=NodeSpec(provider_id=f"p://{name}"),
                status=NodeStatus(capacity=room, allocatable=room, conditions=ready),
            )
        )

    def add_pod(self, name: str, node: str, cpu: str) -> None:
        """Add a pod of a ReplicaSet that runs."""
        owner = OwnerReference(kind="ReplicaSet", name="app", uid="rs", controller=True, api_version="apps/v1")
        box = Container(name="c", resources=ResourceRequirements(requests={"cpu": cpu, "memory": "64Mi"}))
        meta = ObjectMeta(name=name, namespace="shop", owner_references=(owner,))
        status = PodStatus(phase="Running", start_time=self.now)
        self.put(Pod(metadata=meta, spec=PodSpec(node_name=node, containers=(box,)), status=status))

    def initialize(self, name: str) -> None:
        """Bring a replacement up as the smallest machine."""
        if self.get(NodeClaim, name) is not None:
            self.add_machine(f"{name}-node", "small", claim_name=name)

    def finish(self, name: str) -> None:
        """Drain the node: move its pods to the first other node."""
        claim = self.get(NodeClaim, name)
        assert claim is not None
        others = [node for node in self.all(Node) if node.metadata.name != claim.status.node_name]
        for pod in self.all(Pod):
            if pod.spec.node_name == claim.status.node_name:
                spec = msgspec.structs.replace(pod.spec, node_name=others[-1].metadata.name)
                self.put(msgspec.structs.replace(pod, spec=spec))
        super().finish(name)


def drive(world: RealWorld, settings: Settings = CALM) -> Driver:
    """Start an engine with the real planner."""
    return Driver(world, Engine(settings, CATALOGUE)).begin()


def test_empty_nodes_go_together() -> None:
    """All empty nodes past consolidateAfter leave in one command, within the budget, and the cluster is clean."""
    world = RealWorld()
    world.add_pool()
    for name in ("a", "b", "c"):
        world.add_machine(name, "small")
    world.add_pod("p", "a", "1")
    driver = drive(world).run(200)
    assert driver.ends() == ["done"]
    assert [node.metadata.name for node in world.all(Node)] == ["a"]
    assert world.tainted() == world.recorded() == []


def test_drifted_node_is_replaced_first() -> None:
    """A drifted node whose pods fit nowhere else goes after its replacement is ready."""
    world = RealWorld()
    world.add_pool()
    world.add_machine("old", "small", drifted=True)
    world.add_pod("p", "old", "1500m")
    driver = drive(world).run(300)
    assert driver.ends()[0] == "done"
    [creation] = driver.told(CreateNodeClaim)
    assert isinstance(creation, CreateNodeClaim)
    assert "small" in creation.replacement.instance_types
    order = [type(item) for _, item in driver.log if isinstance(item, (TaintNode, CreateNodeClaim, DeleteNodeClaim))]
    assert order == [TaintNode, CreateNodeClaim, DeleteNodeClaim]
    assert [node.metadata.name for node in world.all(Node)] == [f"{world.created[0]}-node"]


def test_dear_node_is_replaced_by_a_cheap_one() -> None:
    """A large node is replaced by a small one that fits its pods and saves enough."""
    world = RealWorld()
    world.add_pool()
    world.add_machine("big", "large")
    world.add_pod("p", "big", "1")
    driver = drive(world).run(300)
    assert driver.ends() == ["done"]
    [node] = world.all(Node)
    assert node.metadata.labels[names.INSTANCE_TYPE] == "small"


def test_cost_action_waits_for_stabilization() -> None:
    """After an empty node has gone, the next cost action starts no sooner than five minutes later.

    Design: lifecycle-controller.
    """
    world = RealWorld()
    world.add_pool(budgets=(BudgetSpec(nodes="1"),))
    world.add_machine("empty", "small")
    world.add_machine("big", "large")
    world.add_pod("p", "big", "1900m")
    five = 300 * 10**9
    settings = replace(CALM, stabilization=Stabilization(empty=five, expired=five, drifted=five, cost=five))
    driver = drive(world, settings).run(900)
    taints = [(item.node, (at - T0).total_seconds()) for at, item in driver.log if isinstance(item, TaintNode)]
    assert [node for node, _ in taints] == ["empty", "big"]
    assert taints[1][1] >= taints[0][1] + 300


@pytest.mark.parametrize("rooms", [0, 1, 2, 3])
def test_room_that_has_come_refuses_no_more_commands_than_it_serves(rooms: int) -> None:
    """Of replacements that are validated at one moment, those are found again for which there is room now.

    One node's room used to refuse them all, and all of them waited for the next round.
    """
    world = RealWorld()
    world.add_pool()
    apart = PodAffinityTerm(label_selector=LabelSelectorSpec(match_labels={"app": "x"}), topology_key=names.HOSTNAME)
    keep_apart = PodAffinity(required_during_scheduling_ignored_during_execution=(apart,))
    for name in ("a", "b", "c"):
        world.add_machine(name, "large")
        world.add_pod(f"p-{name}", name, "1")
        [pod] = [pod for pod in world.all(Pod) if pod.metadata.name == f"p-{name}"]
        spec = msgspec.structs.replace(pod.spec, affinity=Affinity(pod_anti_affinity=keep_apart))
        meta = msgspec.structs.replace(pod.metadata, labels={"app": "x"})
        world.put(msgspec.structs.replace(pod, metadata=meta, spec=spec))

    def make_room() -> None:
        for number in range(rooms):
            world.add_machine(f"fresh-{number}", "small")
            world.add_pod(f"q-{number}", f"fresh-{number}", "500m")

    world.later(5, make_room)
    delay = CALM.validation_delay // 10**9
    driver = drive(world).run(delay + 1)
    tainted = {item.node for item in driver.told(TaintNode) if isinstance(item, TaintNode)}
    assert driver.ends() == ["refused"] * rooms
    assert len(tainted) == 3 - rooms


def test_quiet_cluster_is_not_planned_again() -> None:
    """With nothing to do, rounds are skipped until a timer of the plan ends."""
    world = RealWorld()
    world.add_pool()
    world.add_machine("a", "small")
    world.add_pod("p", "a", "1500m")
    driver = drive(world).run(100)
    planned = driver.engine.rounds
    driver.run(3600)
    assert driver.engine.rounds - planned <= 5
    assert driver.engine.rounds_skipped > 300


def test_a_long_round_is_followed_by_a_rest_of_the_same_length() -> None:
    """After a round of 35 s none is made for 35 s, whatever changes; one follows then, though nothing happens."""
    world = RealWorld()
    world.add_pool()
    world.add_machine("a", "small")
    driver = drive(world).run(100)
    driver.send(RoundTook(nanoseconds=35 * 10**9))
    planned = driver.engine.rounds
    for number in range(34):
        world.add_pod(f"p{number}", "a", "1m")
        driver.run(1)
    assert driver.engine.rounds == planned
    driver.run(1)
    assert driver.engine.rounds == planned + 1


def test_commands_go_on_while_rounds_rest() -> None:
    """A drifted node is replaced to the end during the rest after a long round."""
    world = RealWorld()
    world.add_pool()
    world.add_machine("a", "small", drifted=True)
    world.add_pod("p", "a", "1500m")
    driver = drive(world).run(1)
    driver.send(RoundTook(nanoseconds=3600 * 10**9))
    planned = driver.engine.rounds
    driver.run(600)
    assert driver.engine.rounds == planned
    assert driver.ends() == ["done"]
