"""What each instruction means for the objects in their current state: the only place that decides it.

`effect` is pure. A shell calls it with the objects it has read so far, reads the object it asks for, makes the writes
it returns, and starts again if something changed in between. So the real cluster, the simulated one and the test worlds
follow the same rules, and faults in the simulator test the rules of production (docs/rules.md#carrying-out and
#karpenter).

To add one: a class in `messages`, its name in `ClusterInstruction`, a case in `effect`; mypy finds what is missing.

| instruction | the object is gone | the object is another command's or a person's |
|---|---|---|
| TaintNode | not-found | taken |
| UntaintNode, ClearRecord | done | left alone, done |
| CreateNodeClaim | created; without its pool not-found | refused |
| DeleteNodeClaim | not-found, also if the uid differs | occupied, if a pod on its node forbids it |
| LookAtPods | done | occupied, if a pod on one of the nodes, or a PDB over it, forbids it |
| EvictPod | not-found, also if the uid differs | taken; occupied, if the pod must not be disrupted |
| SurgeDeployment | done | refused if it no longer asks for it, or is paused |
| SetDisruptionReason | done, also if the uid differs | - |
| NoteDisruption, ForgetDisruption, HaltPool | done | - |
| BeginDomain, KeepRoll | done | left alone, done, if it says something else than was seen |
| DropRollRequest | done | - |
| HoldNode, ReleaseNode | done | left alone, done |
| MarkPod, UnmarkPod | done, also if the uid differs | left alone, done |
| CloseNode, OpenNode | done | - |
| SetPoolCondition, DropPoolCondition | done | RolloutComplete is not set to True if a person asks for a roll |
| PublishEvent | - | counted again |
"""

from typing import assert_never

from dovetail.lifecycle.effects import claim_effects, node_effects, pod_effects, public_effects
from dovetail.lifecycle.effects.effect_context import (
    EffectContext,
    Known,
    about,
    claim_ref,
    node_ref,
    patched,
    pod_ref,
    pool_ref,
)
from dovetail.lifecycle.effects.pool_history import pool_outcome
from dovetail.lifecycle.effects.writes import (
    Outcome,
    Ref,
)
from dovetail.lifecycle.messages import (
    BeginDomain,
    ClearRecord,
    CloseNode,
    ClusterInstruction,
    CreateNodeClaim,
    DeleteNodeClaim,
    DropPoolCondition,
    DropRollRequest,
    EvictPod,
    ForgetDisruption,
    HaltPool,
    HoldNode,
    KeepRoll,
    LookAtPods,
    MarkPod,
    NoteDisruption,
    OpenNode,
    PublishEvent,
    ReleaseNode,
    SetDisruptionReason,
    SetPoolCondition,
    SurgeDeployment,
    TaintNode,
    UnmarkPod,
    UntaintNode,
)


def effect(asked: ClusterInstruction, known: Known, context: EffectContext) -> Outcome:
    """Return what to do about an instruction, given the objects read so far."""
    match asked:
        case TaintNode():
            return about(node_ref(asked.node), known, lambda node: node_effects.taint(asked, node, context))
        case UntaintNode():
            return about(node_ref(asked.node), known, lambda node: node_effects.untaint(asked, node, context))
        case HoldNode() | ReleaseNode():
            ref = node_ref(asked.node)
            change = node_effects.hold_patch if isinstance(asked, HoldNode) else node_effects.release_patch
            return about(ref, known, lambda node: patched(ref, node, change))
        case MarkPod() | UnmarkPod() | CloseNode() | OpenNode():
            return _steer(asked, known)
        case EvictPod() | SurgeDeployment() | LookAtPods():
            return _move(asked, known, context)
        case NoteDisruption() | ForgetDisruption() | HaltPool() | BeginDomain() | KeepRoll():
            return about(pool_ref(asked.node_pool), known, lambda pool: pool_outcome(asked, pool))
        case DropRollRequest():
            ref = claim_ref(asked.node_claim)
            return about(ref, known, lambda claim: patched(ref, claim, claim_effects.unasked_patch))
        case CreateNodeClaim():
            return about(claim_ref(asked.name), known, lambda claim: claim_effects.create(asked, claim, known, context))
        case DeleteNodeClaim():
            return about(claim_ref(asked.name), known, lambda claim: claim_effects.delete(asked, claim, known, context))
        case SetDisruptionReason():
            return about(claim_ref(asked.name), known, lambda claim: claim_effects.attribute(asked, claim, context))
        case ClearRecord():
            return about(
                claim_ref(asked.node_claim), known, lambda claim: claim_effects.clear(asked, claim, known, context)
            )
        case SetPoolCondition() | DropPoolCondition():
            return about(
                pool_ref(asked.node_pool), known, lambda pool: public_effects.change_condition(asked, pool, context)
            )
        case PublishEvent():
            return about(
                public_effects.event_ref(asked, context),
                known,
                lambda event: public_effects.publish(asked, event, context),
            )
        case _:
            assert_never(asked)


def _move(asked: EvictPod | SurgeDeployment | LookAtPods, known: Known, context: EffectContext) -> Outcome:
    """Return what to do about pods that must leave their node (docs/rules.md#surge and #evictions)."""
    match asked:
        case EvictPod():
            ref = pod_ref(asked.namespace, asked.name)
            return about(ref, known, lambda pod: pod_effects.evict(asked, pod, known, context))
        case LookAtPods():
            return pod_effects.look(asked, known, context)
        case SurgeDeployment():
            ref = Ref(kind="Deployment", name=asked.name, namespace=asked.namespace)
            return about(ref, known, lambda item: pod_effects.surge(asked, ref, item))
        case _:
            assert_never(asked)


def _steer(asked: MarkPod | UnmarkPod | CloseNode | OpenNode, known: Known) -> Outcome:
    """Return what to do about an instruction of steering (docs/rules.md#steering)."""
    match asked:
        case MarkPod():
            return about(pod_ref(asked.namespace, asked.name), known, lambda pod: pod_effects.mark(asked, pod))
        case UnmarkPod():
            ref = pod_ref(asked.namespace, asked.name)
            return about(ref, known, lambda pod: patched(ref, pod, pod_effects.unmark_patch))
        case CloseNode():
            return about(
                node_ref(asked.node), known, lambda node: patched(node_ref(asked.node), node, node_effects.close_patch)
            )
        case OpenNode():
            return about(
                node_ref(asked.node), known, lambda node: patched(node_ref(asked.node), node, node_effects.open_patch)
            )
        case _:
            assert_never(asked)
