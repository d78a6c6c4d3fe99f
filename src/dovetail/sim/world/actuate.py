"""Carries out the engine's instructions on the simulated cluster, as the API server would, and says how it went.

Each instruction is one write, or two where the live shell would make two; asking twice for the same thing changes
nothing. What follows from a write (launch, drain, binding) is other modules' business.
"""

from typing import assert_never

from msgspec.structs import replace

from dovetail.lifecycle.commands.records import is_tainted, record_of
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    HoldNode,
    InstructionFailed,
    InstructionSucceeded,
    PublishEvent,
    ReleaseNode,
    SetPoolCondition,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.command import Replacement
from dovetail.model.objects import (
    Node,
    NodeClaim,
    NodeClaimSpec,
    NodePool,
    ObjectMeta,
    OwnerReference,
    ResourceRequirements,
    SelectorRequirement,
    Taint,
)
from dovetail.model.quantity import format_amount
from dovetail.sim.world.clock import Clock
from dovetail.sim.world.karpenter import Karpenter, pool_hash, with_condition
from dovetail.sim.world.store import Store

Acted = (
    TaintNode
    | UntaintNode
    | CreateNodeClaim
    | DeleteNodeClaim
    | ClearRecord
    | HoldNode
    | ReleaseNode
    | PublishEvent
    | SetPoolCondition
)
Answer = InstructionSucceeded | InstructionFailed

HOLD_MARKS = {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}


class Actuator:
    """The API server as one controller meets it. `holds`: whether what it creates is held back from Karpenter."""

    def __init__(self, store: Store, clock: Clock, karpenter: Karpenter, *, holds: bool) -> None:
        self.store = store
        self.clock = clock
        self.karpenter = karpenter
        self.holds = holds

    def carry_out(self, asked: Acted) -> Answer:
        """Do it now, and answer."""
        match asked:
            case TaintNode():
                return self._taint(asked)
            case UntaintNode():
                return self._untaint(asked)
            case CreateNodeClaim():
                return self._create(asked)
            case DeleteNodeClaim():
                return self._delete(asked)
            case ClearRecord():
                return self._clear(asked)
            case HoldNode():
                return self._annotate(asked.id, asked.node, HOLD_MARKS)
            case ReleaseNode():
                return self._release(asked)
            case SetPoolCondition():
                return self._pool_condition(asked)
            case PublishEvent():
                return InstructionSucceeded(id=asked.id)
            case _:
                assert_never(asked)

    def _missing(self, ident: str, what: str) -> InstructionFailed:
        return InstructionFailed(id=ident, failure=Failure.NOT_FOUND, detail=f"{what} is not there")

    def _taint(self, asked: TaintNode) -> Answer:
        node = self.store.nodes.get(asked.node)
        if node is None:
            return self._missing(asked.id, asked.node)
        if is_tainted(node) and _is_anothers(node, asked.command_id):
            return InstructionFailed(id=asked.id, failure=Failure.TAKEN, detail="another command holds it")
        ours = Taint(
            key=names.DISRUPTION_TAINT,
            value=names.DISRUPTION_TAINT_VALUE,
            effect="NoSchedule",
            time_added=self.clock.instant(),
        )
        annotations = {**node.metadata.annotations, names.COMMAND: asked.record}
        taints = node.spec.taints
        if not any(taint.key == names.DISRUPTION_TAINT for taint in taints):
            taints = (*taints, ours)
        self._put_node(node, annotations, taints)
        return InstructionSucceeded(id=asked.id)

    def _untaint(self, asked: UntaintNode) -> Answer:
        node = self.store.nodes.get(asked.node)
        if node is None:
            return self._missing(asked.id, asked.node)
        if asked.command_id and _is_anothers(node, asked.command_id):
            return InstructionSucceeded(id=asked.id)
        annotations = {key: text for key, text in node.metadata.annotations.items() if key != names.COMMAND}
        taints = tuple(taint for taint in node.spec.taints if taint.key != names.DISRUPTION_TAINT)
        self._put_node(node, annotations, taints)
        return InstructionSucceeded(id=asked.id)

    def _put_node(self, node: Node, annotations: dict[str, str], taints: tuple[Taint, ...]) -> None:
        if annotations != node.metadata.annotations or taints != node.spec.taints:
            metadata = replace(node.metadata, annotations=annotations)
            self.store.put(replace(node, metadata=metadata, spec=replace(node.spec, taints=taints)))

    def _create(self, asked: CreateNodeClaim) -> Answer:
        known = self.store.claims.get(asked.name)
        if known is not None:
            return InstructionSucceeded(id=asked.id, uid=known.metadata.uid)
        pool = self.store.pools.get(asked.replacement.node_pool)
        if pool is None:
            return self._missing(asked.id, f"NodePool {asked.replacement.node_pool}")
        annotations = {names.COMMAND: asked.record}
        if self.holds:
            annotations.update(HOLD_MARKS)
        claim = claim_from(pool, asked.name, asked.replacement, annotations)
        claim = replace(claim, metadata=replace(claim.metadata, creation_timestamp=self.clock.instant()))
        self.store.put(claim)
        self.karpenter.created(asked.name)
        return InstructionSucceeded(id=asked.id, uid=self.store.claims[asked.name].metadata.uid)

    def _delete(self, asked: DeleteNodeClaim) -> Answer:
        claim = self.store.claims.get(asked.name)
        if claim is None or claim.metadata.uid != asked.uid:
            return self._missing(asked.id, asked.name)
        self.karpenter.delete(asked.name)
        return InstructionSucceeded(id=asked.id)

    def _clear(self, asked: ClearRecord) -> Answer:
        claim = self.store.claims.get(asked.node_claim)
        if claim is None:
            return self._missing(asked.id, asked.node_claim)
        for item in (claim, self.store.nodes.get(claim.status.node_name)):
            if item is not None and names.COMMAND in item.metadata.annotations:
                kept = {key: text for key, text in item.metadata.annotations.items() if key != names.COMMAND}
                self.store.touch_meta(item, annotations=kept)
        return InstructionSucceeded(id=asked.id)

    def _annotate(self, ident: str, name: str, marks: dict[str, str]) -> Answer:
        node = self.store.nodes.get(name)
        if node is None:
            return self._missing(ident, name)
        if names.DO_NOT_DISRUPT not in node.metadata.annotations:
            self.store.touch_meta(node, annotations={**node.metadata.annotations, **marks})
        return InstructionSucceeded(id=ident)

    def _release(self, asked: ReleaseNode) -> Answer:
        node = self.store.nodes.get(asked.node)
        if node is None:
            return self._missing(asked.id, asked.node)
        if names.HOLD in node.metadata.annotations:
            kept = {key: text for key, text in node.metadata.annotations.items() if key not in HOLD_MARKS}
            self.store.touch_meta(node, annotations=kept)
        return InstructionSucceeded(id=asked.id)

    def _pool_condition(self, asked: SetPoolCondition) -> Answer:
        pool = self.store.pools.get(asked.node_pool)
        if pool is None:
            return self._missing(asked.id, asked.node_pool)
        conditions = with_condition(
            pool.status.conditions, asked.type, asked.status, self.clock.instant(), asked.reason
        )
        if conditions != pool.status.conditions:
            self.store.put(replace(pool, status=replace(pool.status, conditions=conditions)))
        return InstructionSucceeded(id=asked.id)


def _owner(pool: NodePool) -> OwnerReference:
    name, uid = pool.metadata.name, pool.metadata.uid
    return OwnerReference(api_version="karpenter.sh/v1", kind="NodePool", name=name, uid=uid)


def _is_anothers(node: Node, command_id: str) -> bool:
    """Return whether the node carries the record of another command."""
    record = record_of(node)
    return record is not None and record.id != command_id


def claim_from(pool: NodePool, name: str, wanted: Replacement, annotations: dict[str, str]) -> NodeClaim:
    """The NodeClaim that a replacement asks for, as Karpenter would write it for this pool."""
    template = pool.spec.template
    # The plan takes a new node for registered and initialized; a claim can't ask for that.
    passing = (names.INITIALIZED_LABEL, names.REGISTERED_LABEL)
    requirements = [entry for entry in wanted.requirements if entry.key not in passing]
    given = {entry.key for entry in requirements}
    for key, values in (
        (names.INSTANCE_TYPE, wanted.instance_types),
        (names.CAPACITY_TYPE, wanted.capacity_types),
        (names.ZONE, wanted.zones),
    ):
        if values and (key not in given or key == names.INSTANCE_TYPE):
            requirements = [entry for entry in requirements if entry.key != key or entry.min_values is not None]
            requirements.append(SelectorRequirement(key=key, operator="In", values=values))
    return NodeClaim(
        metadata=ObjectMeta(
            name=name,
            labels={**template.metadata.labels, names.NODEPOOL: pool.metadata.name},
            annotations={**template.metadata.annotations, **pool_hash(pool), **annotations},
            owner_references=(_owner(pool),),
            finalizers=("karpenter.sh/termination",),
        ),
        spec=NodeClaimSpec(
            requirements=tuple(requirements),
            resources=ResourceRequirements(
                requests={resource: format_amount(resource, amount) for resource, amount in wanted.requests.items()}
            ),
            taints=wanted.taints or template.spec.taints,
            startup_taints=wanted.startup_taints or template.spec.startup_taints,
            node_class_ref=template.spec.node_class_ref,
            expire_after=template.spec.expire_after,
            termination_grace_period=template.spec.termination_grace_period,
        ),
    )
