"""A small world and a controller that executes what a test requests, right or wrong."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record
from dovetail.lifecycle.messages import CreateNodeClaim, DeleteNodeClaim, TaintNode, UntaintNode
from dovetail.model import names
from dovetail.model.command import Action, Method, Replacement
from dovetail.model.objects import (
    Container,
    DisruptionSpec,
    NodeClaimSpec,
    NodeClaimTemplate,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    ObjectMeta,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
)
from dovetail.sim.checks.small_clusters import small_catalogue
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.actuate import Answer, ClusterInstruction
from dovetail.sim.world.clock import HOUR, SECOND, seconds
from dovetail.sim.world.cloud import CloudTimes
from dovetail.sim.world.workloads import Workload
from dovetail.sim.world.world import World, WorldConfig, managed

START = datetime(2026, 1, 5, tzinfo=UTC)
QUICK = CloudTimes(create=seconds(1), register=seconds(2), ready=seconds(1), shutdown=seconds(1), any_zone=False)


def pool_named(name: str = "blue", **disruption: Any) -> NodePool:
    """Return a pool for on-demand nodes that Dovetail manages."""
    on_demand = SelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=(names.ON_DEMAND,))
    written = {"consolidateAfter": "30s", "budgets": [{"nodes": "50%"}], **disruption}
    return managed(
        NodePool(
            metadata=ObjectMeta(name=name),
            spec=NodePoolSpec(
                template=NodeClaimTemplate(
                    spec=NodeClaimSpec(
                        requirements=(on_demand,),
                        node_class_ref=NodeClassReference(group="sim", kind="SimNodeClass", name="default"),
                    )
                ),
                disruption=msgspec.convert(written, DisruptionSpec),
            ),
        )
    )


def small_world(nodes: int = 4, *, seed: int = 1, times: CloudTimes = QUICK, **disruption: Any) -> World:
    """Return a world with one pool and some medium nodes, `n0`, `n1` ..., spread over the zones, two hours old."""
    world = World(WorldConfig(catalogue=small_catalogue(), seed=seed, times=times))
    world.karpenter.images["default"] = "image-1"
    world.add_pool(pool_named(**disruption))
    zones = ("zone-a", "zone-b", "zone-c")
    for index in range(nodes):
        world.add_node("blue", "medium", zones[index % 3], names.ON_DEMAND, age=2 * HOUR, name=f"n{index}")
    return world


def work(name: str = "web", replicas: int = 2, cpu: str = "500m", kind: str = "ReplicaSet", **spec: Any) -> Workload:
    """Return a workload with quick pods."""
    requests = ResourceRequirements(requests={"cpu": cpu, "memory": "256Mi"})
    return Workload(
        kind=kind,
        name=name,
        replicas=replicas,
        labels={"app": name},
        spec=PodSpec(containers=(Container(name="main", resources=requests),), **spec),
        start=seconds(1),
        stop=seconds(1),
    )


class Rogue:
    """A controller without rules: it executes any instruction, and the checkers watch it as any other."""

    def __init__(self, world: World, watch: Watch) -> None:
        self.world = world
        self.watch = watch
        self.host = world.add_engine(name="rogue")

    def do(self, asked: ClusterInstruction) -> Answer:
        """Execute one instruction, as a host would."""
        self.watch.instruction(self.host, asked)
        return self.host.actuator.carry_out(asked)

    def record(self, ident: str, nodes: tuple[str, ...], method: Method, replacements: tuple[str, ...] = ()) -> str:
        """Return the record of a command on these nodes."""
        claims = self.world.store.claims
        return encode_record(
            Record(
                id=ident,
                action=Action.DELETE_COST,
                method=method,
                phase="tainting",
                since=self.world.clock.instant(),
                nodes=tuple(
                    Candidate(node=name, claim=name, uid=claims[name].metadata.uid, pool="blue") for name in nodes
                ),
                replacements=replacements,
            )
        )

    def taint(self, ident: str, *nodes: str, method: Method = Method.SINGLE_NODE) -> None:
        """Taint nodes."""
        for node in nodes:
            record = self.record(ident, nodes, method)
            self.do(TaintNode(id=f"{ident}/taint/{node}", command_id=ident, node=node, record=record))

    def untaint(self, ident: str, node: str) -> None:
        """Remove the taint of a node."""
        self.do(UntaintNode(id=f"{ident}/untaint/{node}", command_id=ident, node=node))

    def delete(self, ident: str, name: str) -> None:
        """Delete a NodeClaim."""
        uid = self.world.store.claims[name].metadata.uid
        self.do(DeleteNodeClaim(id=f"{ident}/delete/{name}", command_id=ident, name=name, uid=uid))

    def replace(self, ident: str, node: str, name: str) -> None:
        """Launch a replacement."""
        record = self.record(ident, (node,), Method.SINGLE_NODE, (name,))
        wanted = Replacement(node_pool="blue", instance_types=("small", "small-b"))
        self.do(
            CreateNodeClaim(id=f"{ident}/create/{name}", command_id=ident, name=name, replacement=wanted, record=record)
        )


def rules(watch: Watch) -> list[str]:
    """Return the rules that were broken, in order."""
    return [violation.rule for violation in watch.violations]


def settle(world: World, length: int = 60) -> None:
    """Let some seconds pass."""
    world.run(world.now + length * SECOND)
