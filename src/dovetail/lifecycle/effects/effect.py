"""What each instruction means for the objects as they are: the one place that decides it.

`effect` is pure. A shell asks it with what it has read so far, reads what it asks for, makes the writes it names, and
starts again if something changed in between. So the real cluster, the simulated one and the worlds of the tests obey
the same rules, and a fault in the simulator meets the rules that production has (spec sections 9 and 10).

To add an instruction: a class in `messages`, its name in `Acted`, and a case in `effect`; mypy finds what is missing.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, assert_never

from dovetail.lifecycle.commands.last_look import objection
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects.node_claims import launch_problem, node_claim_tree
from dovetail.lifecycle.effects.pool_history import pool_outcome
from dovetail.lifecycle.effects.writes import (
    PODS_ON,
    Create,
    Delete,
    Done,
    Failed,
    Outcome,
    Patch,
    Read,
    Ref,
    Tree,
    Writes,
    annotation,
    listing,
    mapping,
    text,
)
from dovetail.lifecycle.messages import (
    ClearRecord,
    CloseNode,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
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
from dovetail.model import names
from dovetail.model.duration import later
from dovetail.model.text import safe

Acted = (
    TaintNode
    | UntaintNode
    | CreateNodeClaim
    | DeleteNodeClaim
    | SetDisruptionReason
    | EvictPod
    | SurgeDeployment
    | ClearRecord
    | NoteDisruption
    | ForgetDisruption
    | HaltPool
    | HoldNode
    | ReleaseNode
    | MarkPod
    | UnmarkPod
    | CloseNode
    | OpenNode
    | PublishEvent
    | SetPoolCondition
)
NEXT_VICTIM: Final = "-100"
"""The deletion cost of the pod that a scale-down should take next; pods without one count as 0."""
STEERING_MARKS: Final = (names.POD_DELETION_COST, names.STEERING_MARK)
Known = Mapping[Ref, Tree | None]
EVENTS_IN: Final = "default"  # where events about objects without a namespace live
_EVENT_NAME_MAX: Final = 200
_NOTE_BYTES_MAX: Final = 1024
_MESSAGE_MAX: Final = 1000
_API_VERSIONS: Final = {"Node": "v1", "Pod": "v1", "NodeClaim": "karpenter.sh/v1", "NodePool": "karpenter.sh/v1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectContext:
    """All that an effect depends on besides the instruction and the objects.

    `identity` names this controller in events; `holds`: whether what it creates is kept from Karpenter's own
    disruption; `looks_last`: whether a node's pods are judged once more before its deletion; `uid_of` returns the uid
    of an object by kind and name, or "". Records are written under `seal`, and one that is not counts as no record.
    """

    now: datetime
    seal: Seal
    identity: str = "dovetail"
    holds: bool = True
    looks_last: bool = True
    uid_of: Callable[[str, str], str] = lambda kind, name: ""


def effect(asked: Acted, known: Known, context: EffectContext) -> Outcome:
    """Return what to do about an instruction, given the objects read so far."""
    match asked:
        case TaintNode():
            return _about(_node(asked.node), known, lambda node: _taint(asked, node, context))
        case UntaintNode():
            return _about(_node(asked.node), known, lambda node: _untaint(asked, node, context))
        case HoldNode():
            return _about(_node(asked.node), known, lambda node: _patched(_node(asked.node), node, hold_patch))
        case ReleaseNode():
            return _about(_node(asked.node), known, lambda node: _patched(_node(asked.node), node, release_patch))
        case MarkPod() | UnmarkPod() | CloseNode() | OpenNode():
            return _steer(asked, known)
        case EvictPod() | SurgeDeployment():
            return _move(asked, known)
        case NoteDisruption() | ForgetDisruption() | HaltPool():
            return _about(_pool(asked.node_pool), known, lambda pool: pool_outcome(asked, pool))
        case CreateNodeClaim():
            return _about(_claim(asked.name), known, lambda claim: _create(asked, claim, known, context))
        case DeleteNodeClaim():
            return _about(_claim(asked.name), known, lambda claim: _delete(asked, claim, known, context))
        case SetDisruptionReason():
            return _about(_claim(asked.name), known, lambda claim: _attribute(asked, claim, context))
        case ClearRecord():
            return _about(_claim(asked.node_claim), known, lambda claim: _clear(asked, claim, known, context))
        case SetPoolCondition():
            return _about(_pool(asked.node_pool), known, lambda pool: _condition(asked, pool, context))
        case PublishEvent():
            return _about(_event_ref(asked, context), known, lambda event: _publish(asked, event, context))
        case _:
            assert_never(asked)


def _move(asked: EvictPod | SurgeDeployment, known: Known) -> Outcome:
    """Return what to do about pods that are to leave their node (spec sections 20 and 24)."""
    match asked:
        case EvictPod():
            return _about(_pod(asked.namespace, asked.name), known, lambda pod: _evict(asked, pod))
        case SurgeDeployment():
            ref = Ref(kind="Deployment", name=asked.name, namespace=asked.namespace)
            return _about(ref, known, lambda item: _surge(asked, ref, item))
        case _:
            assert_never(asked)


def _steer(asked: MarkPod | UnmarkPod | CloseNode | OpenNode, known: Known) -> Outcome:
    """Return what to do about an instruction of steering (spec section 23)."""
    match asked:
        case MarkPod():
            return _about(_pod(asked.namespace, asked.name), known, lambda pod: _mark(asked, pod))
        case UnmarkPod():
            ref = _pod(asked.namespace, asked.name)
            return _about(ref, known, lambda pod: _patched(ref, pod, unmark_patch))
        case CloseNode():
            return _about(_node(asked.node), known, lambda node: _patched(_node(asked.node), node, close_patch))
        case OpenNode():
            return _about(_node(asked.node), known, lambda node: _patched(_node(asked.node), node, open_patch))
        case _:
            assert_never(asked)


def _about(ref: Ref, known: Known, decide: Callable[[Tree | None], Outcome]) -> Outcome:
    return decide(known[ref]) if ref in known else Read(ref=ref)


def _node(name: str) -> Ref:
    return Ref(kind="Node", name=name)


def _claim(name: str) -> Ref:
    return Ref(kind="NodeClaim", name=name)


def _pool(name: str) -> Ref:
    return Ref(kind="NodePool", name=name)


def _pod(namespace: str, name: str) -> Ref:
    return Ref(kind="Pod", name=name, namespace=namespace)


def _patch(ref: Ref, item: Tree, tree: Tree, subresource: str = "") -> Patch:
    version = text(item, "metadata", "resourceVersion")
    return Patch(ref=ref, resource_version=version, tree=tree, subresource=subresource)


def _patched(ref: Ref, item: Tree | None, change: Callable[[Tree], Tree | None]) -> Outcome:
    """Patch an object if it is there and needs it."""
    tree = None if item is None else change(item)
    return Done() if item is None or tree is None else Writes(writes=(_patch(ref, item, tree),))


# ---------------------------------------------------------------- nodes


def _taint(asked: TaintNode, node: Tree | None, context: EffectContext) -> Outcome:
    if node is None:
        return Failed(failure=Failure.NOT_FOUND, detail=f"Node {asked.node} is gone")
    taints = listing(node, "spec", "taints")
    tainted = any(map(_is_ours, taints))
    holder = _holder(node, context)
    if tainted and holder and holder != asked.command_id:
        return Failed(failure=Failure.TAKEN, detail=f"command {holder} holds node {asked.node}")
    foreign = next((taint for taint in taints if _clashes(taint)), None)
    if foreign is not None:
        detail = f"node {asked.node} carries {names.DISRUPTION_TAINT}={foreign.get('value', '')} of somebody else"
        return Failed(failure=Failure.TAKEN, detail=detail)
    record = context.seal.sealed(asked.record)
    if tainted and annotation(node, names.COMMAND) == record:
        return Done()
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: record}}}
    if not tainted:
        # The time is what "longest in flight" is judged by (spec section 7).
        ours = {
            "key": names.DISRUPTION_TAINT,
            "value": names.DISRUPTION_TAINT_VALUE,
            "effect": "NoSchedule",
            "timeAdded": _stamp(context.now),
        }
        tree["spec"] = {"taints": [*taints, ours]}
    return Writes(writes=(_patch(_node(asked.node), node, tree),))


def _untaint(asked: UntaintNode, node: Tree | None, context: EffectContext) -> Outcome:
    taints = listing(node, "spec", "taints")
    kept = [taint for taint in taints if not _is_ours(taint)]
    record = annotation(node, names.COMMAND)
    if node is None or (len(kept) == len(taints) and record is None):
        return Done()
    if record is not None and _holder(node, context) not in ("", asked.command_id):
        return Done()  # another command has taken the node since: its taint is not ours to remove
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: None}}}
    if len(kept) < len(taints):
        tree["spec"] = {"taints": kept or None}
    return Writes(writes=(_patch(_node(asked.node), node, tree),))


def _holder(item: Tree, context: EffectContext) -> str:
    """Return the id of the command whose record an object carries; empty where there is none that can be trusted."""
    record = context.seal.opened(annotation(item, names.COMMAND) or "")
    return "" if isinstance(record, str) else record.id


def _is_ours(taint: Tree) -> bool:
    return taint.get("key") == names.DISRUPTION_TAINT and taint.get("value") == names.DISRUPTION_TAINT_VALUE


def _clashes(taint: Tree) -> bool:
    """Return whether a taint has our key and effect but another value: one of both can be on a node, not two."""
    return taint.get("key") == names.DISRUPTION_TAINT and taint.get("effect") == "NoSchedule" and not _is_ours(taint)


def hold_patch(node: Tree) -> Tree | None:
    """Return the patch that holds a node, or None if it is held or a person said do-not-disrupt (spec section 10)."""
    if annotation(node, names.HOLD) is not None and annotation(node, names.DO_NOT_DISRUPT) == "true":
        return None
    if annotation(node, names.DO_NOT_DISRUPT) is not None and annotation(node, names.HOLD) is None:
        return None
    return {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}}}


def release_patch(item: Tree) -> Tree | None:
    """Return the patch that takes our hold off a node or claim, or None if it isn't ours."""
    if annotation(item, names.HOLD) is None:
        return None
    return {"metadata": {"annotations": {names.DO_NOT_DISRUPT: None, names.HOLD: None}}}


def close_patch(node: Tree) -> Tree | None:
    """Return the patch that puts the soft taint of steering on a node, or None if it is there (spec section 23)."""
    taints = listing(node, "spec", "taints")
    if any(taint.get("key") == names.CLOSING_TAINT for taint in taints):
        return None
    return {"spec": {"taints": [*taints, {"key": names.CLOSING_TAINT, "effect": "PreferNoSchedule"}]}}


def open_patch(node: Tree) -> Tree | None:
    """Return the patch that takes the soft taint of steering off a node, or None if it is not there."""
    taints = listing(node, "spec", "taints")
    kept = [taint for taint in taints if taint.get("key") != names.CLOSING_TAINT]
    return None if len(kept) == len(taints) else {"spec": {"taints": kept or None}}


# ---------------------------------------------------------------- claims


def _create(asked: CreateNodeClaim, claim: Tree | None, known: Known, context: EffectContext) -> Outcome:
    if claim is not None:
        if _holder(claim, context) == asked.command_id:
            return Done(uid=text(claim, "metadata", "uid"))
        return Failed(failure=Failure.REFUSED, detail=f"a NodeClaim {asked.name} of somebody else is there")
    ref = _pool(asked.replacement.node_pool)
    if ref not in known:
        return Read(ref=ref)
    pool = known[ref]
    if pool is None:
        return Failed(failure=Failure.NOT_FOUND, detail=f"NodePool {ref.name} is gone")
    hopeless = launch_problem(asked.replacement, pool)
    if hopeless:
        return Failed(failure=Failure.REFUSED, detail=hopeless)
    marks = {names.COMMAND: context.seal.sealed(asked.record)}
    if context.holds:
        marks |= {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}
    tree = node_claim_tree(asked.name, asked.replacement, pool, marks)
    return Writes(writes=(Create(ref=_claim(asked.name), tree=tree),))


def _delete(asked: DeleteNodeClaim, claim: Tree | None, known: Known, context: EffectContext) -> Outcome:
    if claim is None:
        return Failed(failure=Failure.NOT_FOUND, detail=f"NodeClaim {asked.name} is gone")
    if not asked.uid or text(claim, "metadata", "uid") != asked.uid:
        return Failed(failure=Failure.NOT_FOUND, detail=f"NodeClaim {asked.name} is another one by now")
    if mapping(claim, "metadata").get("deletionTimestamp") is not None:
        return Done(uid=asked.uid)
    if asked.node and context.looks_last:
        ref = Ref(kind=PODS_ON, name=asked.node)
        if ref not in known:
            return Read(ref=ref)
        pods = known[ref] or {"unreadable": f"the pods of {asked.node} can't be read"}
        why = text(pods, "unreadable") or objection(asked, pods["pods"], context.now)
        if why:
            return Failed(failure=Failure.OCCUPIED, detail=why)
    delete = Delete(ref=_claim(asked.name), uid=asked.uid)
    bound = None if asked.drain_for is None else drain_bound(claim, later(context.now, asked.drain_for))
    return Writes(writes=(delete,) if bound is None else (_patch(_claim(asked.name), claim, bound), delete))


def drain_bound(claim: Tree, until: datetime) -> Tree | None:
    """Return the patch that ends a claim's drain at a time; None if it ends no later already (spec section 19)."""
    present = annotation(claim, names.TERMINATION_TIMESTAMP)
    try:
        known = None if present is None else datetime.fromisoformat(present)
    except ValueError:
        known = None
    if known is not None and known.tzinfo is not None and known <= until:
        return None
    return {"metadata": {"annotations": {names.TERMINATION_TIMESTAMP: _stamp(until)}}}


def _attribute(asked: SetDisruptionReason, claim: Tree | None, context: EffectContext) -> Outcome:
    if claim is None or text(claim, "metadata", "uid") != asked.uid:
        return Done()
    if mapping(claim, "metadata").get("deletionTimestamp") is None:
        return Done()  # its deletion failed; it is asked for again when it is known to have begun
    wanted: Tree = {"type": names.CONDITION_DISRUPTION_REASON, "status": "True", "reason": asked.reason}
    wanted["message"] = asked.reason
    tree = _with_condition(claim, wanted, context)
    if tree is None:
        return Done()
    return Writes(writes=(_patch(_claim(asked.name), claim, tree, "status"),))


def _clear(asked: ClearRecord, claim: Tree | None, known: Known, context: EffectContext) -> Outcome:
    """Clear a claim and its Node. Without a command's id a record is meant that nobody can trust."""
    if claim is None:
        return Done()
    found = [(_claim(asked.node_claim), claim)]
    name = text(claim, "status", "nodeName")
    if name:
        ref = _node(name)
        if ref not in known:
            return Read(ref=ref)
        node = known[ref]
        found += [] if node is None else [(ref, node)]
    writes = tuple(
        _patch(ref, item, {"metadata": {"annotations": {names.COMMAND: None}}})
        for ref, item in found
        if annotation(item, names.COMMAND) is not None and _holder(item, context) == asked.command_id
    )
    return Writes(writes=writes) if writes else Done()


# ---------------------------------------------------------------- pods


def _evict(asked: EvictPod, pod: Tree | None) -> Outcome:
    if pod is None or not asked.uid or text(pod, "metadata", "uid") != asked.uid:
        return Failed(failure=Failure.NOT_FOUND, detail=f"Pod {asked.namespace}/{asked.name} is gone")
    if mapping(pod, "metadata").get("deletionTimestamp") is not None:
        return Done(uid=asked.uid)
    tree = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": asked.name, "namespace": asked.namespace},
        "deleteOptions": {"preconditions": {"uid": asked.uid}},
    }
    ref = _pod(asked.namespace, asked.name)
    return Writes(writes=(Create(ref=ref, tree=tree, subresource="eviction"),))


def _surge(asked: SurgeDeployment, ref: Ref, item: Tree | None) -> Outcome:
    if item is None:
        return Done()
    present = mapping(mapping(mapping(mapping(item, "spec"), "template"), "metadata"), "annotations")
    if present.get(names.SURGED_AT) == asked.mark:
        return Done()
    if annotation(item, names.SURGE) != "true" or mapping(item, "spec").get("paused"):
        detail = f"Deployment {asked.namespace}/{asked.name} is paused, or no longer asks to surge"
        return Failed(failure=Failure.REFUSED, detail=detail)
    marks = {names.SURGED_AT: asked.mark}
    return Writes(writes=(_patch(ref, item, {"spec": {"template": {"metadata": {"annotations": marks}}}}),))


def _mark(asked: MarkPod, pod: Tree | None) -> Outcome:
    gone = pod is None or text(pod, "metadata", "uid") != asked.uid
    leaving = mapping(pod, "metadata").get("deletionTimestamp") is not None
    if pod is None or gone or leaving or annotation(pod, names.POD_DELETION_COST) is not None:
        return Done()  # gone, going, marked already, or somebody else's value
    tree: Tree = {"metadata": {"annotations": dict.fromkeys(STEERING_MARKS, NEXT_VICTIM)}}
    return Writes(writes=(_patch(_pod(asked.namespace, asked.name), pod, tree),))


def unmark_patch(pod: Tree) -> Tree | None:
    """Return the patch that takes our deletion cost off a pod, or None if there is none of ours."""
    mark = annotation(pod, names.STEERING_MARK)
    if mark is None:
        return None
    ours = annotation(pod, names.POD_DELETION_COST) == mark
    keys = STEERING_MARKS if ours else (names.STEERING_MARK,)
    return {"metadata": {"annotations": dict.fromkeys(keys, None)}}


# ---------------------------------------------------------------- telling people


def _condition(asked: SetPoolCondition, pool: Tree | None, context: EffectContext) -> Outcome:
    if pool is None:
        return Done()
    wanted: Tree = {
        "type": asked.type,
        "status": asked.status,
        "reason": asked.reason,
        "message": safe(asked.message, _MESSAGE_MAX),
    }
    tree = _with_condition(pool, wanted, context)
    return Done() if tree is None else Writes(writes=(_patch(_pool(asked.node_pool), pool, tree, "status"),))


def _with_condition(item: Tree, wanted: Tree, context: EffectContext) -> Tree | None:
    """Return the patch that puts a condition beside the others of an object; None where it is there already."""
    conditions = listing(item, "status", "conditions")
    before = next((entry for entry in conditions if entry.get("type") == wanted["type"]), {})
    if all(before.get(key) == value for key, value in wanted.items()):
        return None
    since = before.get("lastTransitionTime") if before.get("status") == wanted["status"] else None
    stamped = {**wanted, "lastTransitionTime": since or _stamp(context.now)}
    others = [entry for entry in conditions if entry.get("type") != wanted["type"]]
    return {"status": {"conditions": [*others, stamped]}}


def _event_ref(asked: PublishEvent, context: EffectContext) -> Ref:
    """Name an event by what it says of what: the same again within the hour that events live is the same event."""
    uid = context.uid_of(asked.kind, asked.name)
    digest = sha256("\x00".join((uid, asked.reason, asked.message)).encode()).hexdigest()[:16]
    name = f"{asked.name[:_EVENT_NAME_MAX].rstrip('-.')}.{digest}"
    return Ref(kind="Event", name=name, namespace=EVENTS_IN)


def _publish(asked: PublishEvent, event: Tree | None, context: EffectContext) -> Outcome:
    ref, now = _event_ref(asked, context), context.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if event is not None:
        count: Any = mapping(event, "series").get("count", 1)
        again = {"series": {"count": count + 1 if isinstance(count, int) else 2, "lastObservedTime": now}}
        return Writes(writes=(_patch(ref, event, again),))
    regarding = {
        "apiVersion": _API_VERSIONS.get(asked.kind, "v1"),
        "kind": asked.kind,
        "name": asked.name,
        "uid": context.uid_of(asked.kind, asked.name),
    }
    tree = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": ref.name, "namespace": ref.namespace},
        "eventTime": now,
        "reportingController": "dovetail.dev/controller",
        "reportingInstance": _fitting(context.identity, 128),
        "action": "Disrupt",
        "reason": asked.reason,
        "note": _fitting(asked.message, _NOTE_BYTES_MAX),
        "type": "Warning" if asked.warning else "Normal",
        "regarding": regarding,
    }
    return Writes(writes=(Create(ref=ref, tree=tree),))


def _fitting(words: str, bytes_max: int) -> str:
    """Return safe text of at most so many bytes: the server counts bytes where people count characters."""
    return safe(words, bytes_max).encode()[:bytes_max].decode(errors="ignore")


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
