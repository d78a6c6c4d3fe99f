"""What each instruction means for the objects in their current state: the only place that decides it.

`effect` is pure. A shell calls it with the objects it has read so far, reads the object it asks for, makes the writes
it returns, and starts again if something changed in between. So the real cluster, the simulated one and the test worlds
follow the same rules, and faults in the simulator test the rules of production (spec sections 9 and 10).

To add one: a class in `messages`, its name in `ClusterInstruction`, a case in `effect`; mypy finds what is missing.

| instruction | the object is gone | the object is another command's or a person's |
|---|---|---|
| TaintNode | not-found | taken |
| UntaintNode, ClearRecord | done | left alone, done |
| CreateNodeClaim | created; without its pool not-found | refused |
| DeleteNodeClaim | not-found, also if the uid differs | occupied, if a pod on its node forbids it |
| EvictPod | not-found, also if the uid differs | - |
| SurgeDeployment | done | refused if it no longer asks for it, or is paused |
| SetDisruptionReason | done, also if the uid differs | - |
| NoteDisruption, ForgetDisruption, HaltPool | done | - |
| HoldNode, ReleaseNode | done | left alone, done |
| MarkPod, UnmarkPod | done, also if the uid differs | left alone, done |
| CloseNode, OpenNode | done | - |
| SetPoolCondition | done | - |
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
    ClearRecord,
    CloseNode,
    ClusterInstruction,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    ForgetDisruption,
    HaltPool,
    HoldNode,
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
        case HoldNode():
            return about(
                node_ref(asked.node), known, lambda node: patched(node_ref(asked.node), node, node_effects.hold_patch)
            )
        case ReleaseNode():
            return about(
                node_ref(asked.node),
                known,
                lambda node: patched(node_ref(asked.node), node, node_effects.release_patch),
            )
        case MarkPod() | UnmarkPod() | CloseNode() | OpenNode():
            return _steer(asked, known)
        case EvictPod() | SurgeDeployment():
            return _move(asked, known)
        case NoteDisruption() | ForgetDisruption() | HaltPool():
            return about(pool_ref(asked.node_pool), known, lambda pool: pool_outcome(asked, pool))
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
        case SetPoolCondition():
            return about(
                pool_ref(asked.node_pool), known, lambda pool: public_effects.set_condition(asked, pool, context)
            )
        case PublishEvent():
            return about(
                public_effects.event_ref(asked, context),
                known,
                lambda event: public_effects.publish(asked, event, context),
            )
        case _:
            assert_never(asked)


def _move(asked: EvictPod | SurgeDeployment, known: Known) -> Outcome:
    """Return what to do about pods that must leave their node (spec sections 20 and 24)."""
    match asked:
        case EvictPod():
            return about(pod_ref(asked.namespace, asked.name), known, lambda pod: pod_effects.evict(asked, pod))
        case SurgeDeployment():
            ref = Ref(kind="Deployment", name=asked.name, namespace=asked.namespace)
            return about(ref, known, lambda item: pod_effects.surge(asked, ref, item))
        case _:
            assert_never(asked)


def _steer(asked: MarkPod | UnmarkPod | CloseNode | OpenNode, known: Known) -> Outcome:
    """Return what to do about an instruction of steering (spec section 23)."""
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
