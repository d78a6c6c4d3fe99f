"""What instructions that inform people mean: conditions of NodePools, and events."""

from datetime import UTC
from hashlib import sha256
from typing import Any, Final

from dovetail.api.roll_request import decode_request
from dovetail.lifecycle.effects.effect_context import EffectContext, patch_of, pool_ref, with_condition
from dovetail.lifecycle.effects.writes import (
    Create,
    Done,
    Outcome,
    Ref,
    Tree,
    Writes,
    annotation,
    listing,
    mapping,
)
from dovetail.lifecycle.messages import (
    DropPoolCondition,
    PublishEvent,
    SetPoolCondition,
)
from dovetail.model.names import ROLL, ROLLOUT_COMPLETE
from dovetail.model.text import safe

EVENTS_IN: Final = "default"  # where events about objects without a namespace live
_EVENT_NAME_MAX: Final = 200
_NOTE_BYTES_MAX: Final = 1024
_MESSAGE_MAX: Final = 1000
_API_VERSIONS: Final = {"Node": "v1", "Pod": "v1", "NodeClaim": "karpenter.sh/v1", "NodePool": "karpenter.sh/v1"}


def change_condition(asked: SetPoolCondition | DropPoolCondition, pool: Tree | None, context: EffectContext) -> Outcome:
    """Set or remove a condition of a NodePool."""
    if pool is None:
        return Done()
    if isinstance(asked, DropPoolCondition):
        return _drop_condition(asked, pool)
    if (asked.type, asked.status) == (ROLLOUT_COMPLETE, "True") and _is_asked(pool):
        return Done()  # somebody has asked for a roll since; the next round looks at it
    wanted: Tree = {
        "type": asked.type,
        "status": asked.status,
        "reason": asked.reason,
        "message": safe(asked.message, _MESSAGE_MAX),
    }
    if asked.observed_generation:
        wanted["observedGeneration"] = asked.observed_generation
    tree = with_condition(pool, wanted, context)
    return Done() if tree is None else Writes(writes=(patch_of(pool_ref(asked.node_pool), pool, tree, "status"),))


def _is_asked(pool: Tree) -> bool:
    request = annotation(pool, ROLL)
    return request is not None and decode_request(request) is not None


def _drop_condition(asked: DropPoolCondition, pool: Tree) -> Outcome:
    conditions = listing(pool, "status", "conditions")
    kept = [entry for entry in conditions if entry.get("type") != asked.type]
    if len(kept) == len(conditions):
        return Done()
    tree: Tree = {"status": {"conditions": kept}}
    return Writes(writes=(patch_of(pool_ref(asked.node_pool), pool, tree, "status"),))


def event_ref(asked: PublishEvent, context: EffectContext) -> Ref:
    """Return the name of an event, derived from its text and object: repeated within the hour, it is the same event."""
    uid = context.uid_of(asked.kind, asked.name)
    digest = sha256("\x00".join((uid, asked.reason, asked.message)).encode()).hexdigest()[:16]
    name = f"{asked.name[:_EVENT_NAME_MAX].rstrip('-.')}.{digest}"
    return Ref(kind="Event", name=name, namespace=EVENTS_IN)


def publish(asked: PublishEvent, event: Tree | None, context: EffectContext) -> Outcome:
    """Create an event, or count it again."""
    ref, now = event_ref(asked, context), context.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if event is not None:
        count: Any = mapping(event, "series").get("count", 1)
        again = {"series": {"count": count + 1 if isinstance(count, int) else 2, "lastObservedTime": now}}
        return Writes(writes=(patch_of(ref, event, again),))
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
    """Return safe text of a maximum number of bytes: the server counts bytes, not characters."""
    return safe(words, bytes_max).encode()[:bytes_max].decode(errors="ignore")
