"""Carries out the engine's instructions on a real cluster, each of them so that twice is once.

Every write is conditional: on the resource version that was read (taints, annotations, conditions), on the uid
(deletions), on the name (creations). What was done already counts as done. Answers with an event that names the
instruction; never raises for what a server may say.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    HoldNode,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    PublishEvent,
    ReleaseNode,
    SetPoolCondition,
    TaintNode,
    UntaintNode,
)
from dovetail.live.claims import node_claim_tree
from dovetail.live.client import JSON, MERGE_PATCH, ApiClient, ApiError
from dovetail.live.credentials import UnreachableError
from dovetail.live.resources import BY_KIND, EVENT, Resource
from dovetail.model import names
from dovetail.report.words import safe

Tree = dict[str, Any]
Answer = InstructionSucceeded | InstructionFailed
_NODES: Final = BY_KIND["Node"]
_CLAIMS: Final = BY_KIND["NodeClaim"]
_POOLS: Final = BY_KIND["NodePool"]
_CONFLICT_TRIES: Final = 5
_EVENTS_IN: Final = "default"  # where events about objects without a namespace live
_EVENT_NAME_MAX: Final = 200
_FAILURES: Final = {403: Failure.FORBIDDEN, 404: Failure.NOT_FOUND, 409: Failure.CONFLICT, 429: Failure.THROTTLED}


class _TakenError(Exception):
    """Another command's taint and record are on the node: not ours to overwrite."""


@dataclass(slots=True, kw_only=True)
class Actuator:
    """Acts for the engine. `identity` names this controller in events; `may_act` is asked before every single write."""

    client: ApiClient
    identity: str
    uid_of: Callable[[str, str], str] = lambda kind, name: ""
    may_act: Callable[[], bool] = lambda: True
    writes: int = 0
    _handlers: dict[type, Callable[[Any], Awaitable[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._handlers = {
            TaintNode: self._taint,
            UntaintNode: self._untaint,
            CreateNodeClaim: self._create,
            DeleteNodeClaim: self._delete,
            ClearRecord: self._clear,
            HoldNode: self._hold,
            ReleaseNode: self._release,
            PublishEvent: self._publish,
            SetPoolCondition: self._condition,
        }

    def acts_on(self, instruction: Instruction) -> bool:
        """Return whether this instruction is for the cluster at all (a wake-up or a report is not)."""
        return type(instruction) in self._handlers

    async def carry_out(self, instruction: Any) -> Answer:
        """Does it and says how it went."""
        try:
            uid = await self._handlers[type(instruction)](instruction)
        except ApiError as error:
            failure = _FAILURES.get(
                error.status, Failure.UNREACHABLE if error.status >= 500 or error.status == 401 else Failure.REFUSED
            )
            return InstructionFailed(id=instruction.id, failure=failure, detail=str(error))
        except _TakenError as error:
            return InstructionFailed(id=instruction.id, failure=Failure.TAKEN, detail=str(error))
        except UnreachableError as error:
            return InstructionFailed(id=instruction.id, failure=Failure.UNREACHABLE, detail=str(error))
        return InstructionSucceeded(id=instruction.id, uid=uid)

    # ------------------------------------------------------------ nodes

    async def _taint(self, order: TaintNode) -> str:
        def change(node: Tree) -> Tree | None:
            taints = (node.get("spec") or {}).get("taints") or []
            theirs = [taint for taint in taints if taint.get("key") != names.DISRUPTION_TAINT]
            known = decode_record(_annotation(node, names.COMMAND) or "")
            if known is not None and known.id != order.command_id and len(theirs) < len(taints):
                raise _TakenError(f"command {known.id} holds node {order.node}")
            ours = {"key": names.DISRUPTION_TAINT, "value": names.DISRUPTION_TAINT_VALUE, "effect": "NoSchedule"}
            if _annotation(node, names.COMMAND) == order.record and len(theirs) < len(taints):
                return None
            return {
                "metadata": {"annotations": {names.COMMAND: order.record}},
                "spec": {"taints": [*theirs, ours]},
            }

        await self._change(_NODES, order.node, change)
        return ""

    async def _untaint(self, order: UntaintNode) -> str:
        def change(node: Tree) -> Tree | None:
            taints = (node.get("spec") or {}).get("taints") or []
            theirs = [taint for taint in taints if taint.get("key") != names.DISRUPTION_TAINT]
            record = _annotation(node, names.COMMAND)
            if len(theirs) == len(taints) and record is None:
                return None
            known = decode_record(record) if record is not None else None
            if known is not None and order.command_id and known.id != order.command_id:
                return None  # another command has taken the node since: its taint is not ours to remove
            return {"metadata": {"annotations": {names.COMMAND: None}}, "spec": {"taints": theirs or None}}

        await self._change(_NODES, order.node, change, gone_is_done=True)
        return ""

    async def _hold(self, order: HoldNode) -> str:
        await self._change(_NODES, order.node, hold_patch, gone_is_done=True)
        return ""

    async def _release(self, order: ReleaseNode) -> str:
        await self._change(_NODES, order.node, release_patch, gone_is_done=True)
        return ""

    # ------------------------------------------------------------ claims

    async def _create(self, order: CreateNodeClaim) -> str:
        pool = await self._get(_POOLS, order.replacement.node_pool)
        body = msgspec.json.encode(node_claim_tree(order.name, order.replacement, pool, order.record))
        try:
            made = msgspec.json.decode(await self._write("POST", _CLAIMS.path(), body, JSON))
        except ApiError as error:
            if error.status != 409:
                raise
            made = await self._get(_CLAIMS, order.name)
            known = decode_record(_annotation(made, names.COMMAND) or "")
            if known is None or known.id != order.command_id:
                raise ApiError(422, "AlreadyExists", f"a NodeClaim {order.name} of somebody else is there") from None
        return str(made["metadata"].get("uid", ""))

    async def _delete(self, order: DeleteNodeClaim) -> str:
        options: Tree = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if order.uid:
            options["preconditions"] = {"uid": order.uid}
        try:
            await self._write("DELETE", _CLAIMS.path(order.name), msgspec.json.encode(options), JSON)
        except ApiError as error:
            if error.status == 409:
                raise ApiError(404, "NotFound", f"NodeClaim {order.name} is another one by now") from None
            raise
        return order.uid

    async def _clear(self, order: ClearRecord) -> str:
        def change(item: Tree) -> Tree | None:
            record = _annotation(item, names.COMMAND)
            known = None if record is None else decode_record(record)
            # Without a command's id it is a record that can't be read: it belongs to nobody.
            if record is None or (known.id if known is not None else "") != order.command_id:
                return None
            return {"metadata": {"annotations": {names.COMMAND: None}}}

        claim = await self._change(_CLAIMS, order.node_claim, change, gone_is_done=True)
        node = str(((claim or {}).get("status") or {}).get("nodeName") or "")
        if node:
            await self._change(_NODES, node, change, gone_is_done=True)
        return ""

    # ------------------------------------------------------------ telling people

    async def _publish(self, order: PublishEvent) -> str:
        resource = BY_KIND[order.kind]
        uid = self.uid_of(order.kind, order.name)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        said = sha256("\x00".join((uid, order.reason, order.message)).encode()).hexdigest()[:16]
        name = f"{order.name[:_EVENT_NAME_MAX].rstrip('-.')}.{said}"
        tree = {
            "apiVersion": EVENT.api_version,
            "kind": "Event",
            "metadata": {"name": name, "namespace": _EVENTS_IN},
            "eventTime": now,
            "reportingController": "dovetail.dev/controller",
            "reportingInstance": _fitting(self.identity, 128),
            "action": "Disrupt",
            "reason": order.reason,
            "note": _fitting(order.message, 1024),
            "type": "Warning" if order.warning else "Normal",
            "regarding": {"apiVersion": resource.api_version, "kind": order.kind, "name": order.name, "uid": uid},
        }
        try:
            await self._write("POST", EVENT.path(namespace=_EVENTS_IN), msgspec.json.encode(tree), JSON)
        except ApiError as error:
            if error.status != 409:
                raise
            await self._say_again(name, now)
        return ""

    async def _say_again(self, name: str, now: str) -> None:
        """The same thing about the same object within the hour that events live: counted, not repeated."""

        def change(event: Tree) -> Tree | None:
            count = (event.get("series") or {}).get("count", 1)
            return {"series": {"count": count + 1, "lastObservedTime": now}}

        await self._change(EVENT, name, change, namespace=_EVENTS_IN, gone_is_done=True)

    async def _condition(self, order: SetPoolCondition) -> str:
        def change(pool: Tree) -> Tree | None:
            conditions = (pool.get("status") or {}).get("conditions") or []
            before = next((entry for entry in conditions if entry.get("type") == order.type), None)
            wanted = {"type": order.type, "status": order.status, "reason": order.reason}
            wanted["message"] = safe(order.message, 1000)
            if before is not None and all(before.get(key) == value for key, value in wanted.items()):
                return None
            moved = before is None or before.get("status") != order.status
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            wanted["lastTransitionTime"] = now if moved or before is None else before["lastTransitionTime"]
            others = [entry for entry in conditions if entry.get("type") != order.type]
            return {"status": {"conditions": [*others, wanted]}}

        await self._change(_POOLS, order.node_pool, change, subresource="status", gone_is_done=True)
        return ""

    # ------------------------------------------------------------ the ways to read and write

    async def _get(self, resource: Resource, name: str, namespace: str = "") -> Tree:
        tree: Tree = msgspec.json.decode(await self.client.request("GET", resource.path(name, namespace)))
        return tree

    async def _change(
        self,
        resource: Resource,
        name: str,
        change: Callable[[Tree], Tree | None],
        *,
        subresource: str = "",
        namespace: str = "",
        gone_is_done: bool = False,
    ) -> Tree | None:
        """Reads, computes the patch from what was read, writes only if nothing changed in between; else again."""
        for attempt in range(1, _CONFLICT_TRIES + 1):
            try:
                item = await self._get(resource, name, namespace)
                patch = change(item)
                if patch is None:
                    return item
                patch.setdefault("metadata", {})["resourceVersion"] = item["metadata"]["resourceVersion"]
                path = resource.path(name, namespace, subresource)
                answer: Tree = msgspec.json.decode(
                    await self._write("PATCH", path, msgspec.json.encode(patch), MERGE_PATCH)
                )
            except ApiError as error:
                if error.status == 404 and gone_is_done:
                    return None
                if error.status != 409 or attempt == _CONFLICT_TRIES:
                    raise
                await asyncio.sleep(self.client.backoff(attempt, 1.0))
            else:
                return answer
        raise AssertionError("the loop returns or raises")

    async def _write(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        if not self.may_act():
            raise UnreachableError("no longer leading")
        self.writes += 1
        return await self.client.request(
            method,
            path,
            body=body,
            content_type=content_type,
            params={"fieldManager": "dovetail"} if method != "DELETE" else None,
            fence=self.may_act,
        )


def hold_patch(node: Tree) -> Tree | None:
    """Puts the hold on a node that is not held, unless a person already said do-not-disrupt (spec section 10)."""
    if _annotation(node, names.HOLD) is not None and _annotation(node, names.DO_NOT_DISRUPT) == "true":
        return None
    if _annotation(node, names.DO_NOT_DISRUPT) is not None and _annotation(node, names.HOLD) is None:
        return None
    return {"metadata": {"annotations": {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}}}


def release_patch(item: Tree) -> Tree | None:
    """Takes our hold off a node or claim, and only ours."""
    if _annotation(item, names.HOLD) is None:
        return None
    return {"metadata": {"annotations": {names.DO_NOT_DISRUPT: None, names.HOLD: None}}}


def _fitting(text: str, bytes_max: int) -> str:
    """Safe text of at most so many bytes: the server counts bytes where people count characters."""
    shown = safe(text, bytes_max)
    return shown.encode()[:bytes_max].decode(errors="ignore")


def _annotation(item: Tree, key: str) -> str | None:
    value = (item["metadata"].get("annotations") or {}).get(key)
    return None if value is None else str(value)
