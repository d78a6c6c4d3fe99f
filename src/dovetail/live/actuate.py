"""Executes the engine's instructions on a real cluster.

`lifecycle.effects` decides what an instruction means; this module only reads and writes. Every write is conditional: on
the resource version that was read (patches), on the uid (deletions), on the name (creations). If something changed in
between, everything is read and decided again. Returns an event that names the instruction; never raises because of a
server's response.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, assert_never

import msgspec

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects.effect import effect
from dovetail.lifecycle.effects.effect_context import EffectContext
from dovetail.lifecycle.effects.objects import CONFLICT_TRIES, Answer
from dovetail.lifecycle.effects.public_effects import event_ref
from dovetail.lifecycle.effects.writes import (
    PDBS,
    PODS_ON,
    Create,
    Delete,
    Done,
    Failed,
    Patch,
    Read,
    Ref,
    Tree,
    Write,
    Writes,
    text,
)
from dovetail.lifecycle.messages import (
    ClusterInstruction,
    Failure,
    InstructionFailed,
    InstructionSucceeded,
    PublishEvent,
)
from dovetail.live.kubernetes.client import JSON, MERGE_PATCH, ApiClient, ApiError
from dovetail.live.kubernetes.credentials import UnreachableError
from dovetail.live.kubernetes.resources import BY_KIND, EVENT, Resource
from dovetail.live.last_look import read_pdbs, read_pods_on

__all__ = ["Actuator", "Answer"]

_FAILURES: Final = {403: Failure.FORBIDDEN, 404: Failure.NOT_FOUND, 409: Failure.CONFLICT, 429: Failure.THROTTLED}
_RESOURCES: Final[dict[str, Resource]] = {**BY_KIND, EVENT.kind: EVENT}


@dataclass(slots=True, kw_only=True)
class Actuator:
    """Acts for the engine. `identity` names this controller in events; `may_act` is called before every write."""

    client: ApiClient
    identity: str
    seal: Seal
    uid_of: Callable[[str, str], str] = lambda kind, name: ""
    may_act: Callable[[], bool] = lambda: True
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    writes: int = 0

    async def carry_out(self, instruction: ClusterInstruction) -> Answer:
        """Execute the instruction and return the resulting event."""
        try:
            return await self._carry_out(instruction)
        except ApiError as error:
            failure = _FAILURES.get(
                error.status, Failure.UNREACHABLE if error.status >= 500 or error.status == 401 else Failure.REFUSED
            )
            return InstructionFailed(id=instruction.id, failure=failure, detail=str(error))
        except UnreachableError as error:
            return InstructionFailed(id=instruction.id, failure=Failure.UNREACHABLE, detail=str(error))

    async def _carry_out(self, asked: ClusterInstruction) -> Answer:
        attempt = 0
        while True:
            attempt += 1
            context = EffectContext(now=self.clock(), seal=self.seal, identity=self.identity, uid_of=self.uid_of)
            # An event is new nearly always: it is read only where the server says that it is there.
            guess = asked if attempt == 1 and isinstance(asked, PublishEvent) else None
            known: dict[Ref, Tree | None] = {} if guess is None else {event_ref(guess, context): None}
            while isinstance(outcome := effect(asked, known, context), Read):
                known[outcome.ref] = await self._read(outcome.ref)
            match outcome:
                case Done():
                    return InstructionSucceeded(id=asked.id, uid=outcome.uid)
                case Failed():
                    return InstructionFailed(id=asked.id, failure=outcome.failure, detail=outcome.detail)
                case Writes():
                    uid = ""
                    try:
                        for write in outcome.writes:
                            uid = await self._write(write) or uid
                    except ApiError as error:
                        if not _has_changed(error, write) or attempt == CONFLICT_TRIES:
                            raise
                        if guess is None:
                            await asyncio.sleep(self.client.backoff(attempt, 1.0))
                    else:
                        return InstructionSucceeded(id=asked.id, uid=uid)
                case _:
                    assert_never(outcome)

    async def _read(self, ref: Ref) -> Tree | None:
        if ref.kind == PODS_ON:
            return await read_pods_on(self.client, ref.name)
        if ref.kind == PDBS:
            return await read_pdbs(self.client)
        path = _RESOURCES[ref.kind].path(ref.name, ref.namespace)
        try:
            tree = _tree(await self.client.request("GET", path))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        if text(tree, "metadata", "name") != ref.name or not text(tree, "metadata", "resourceVersion"):
            # Of `{}` an effect would conclude that the object is another one by now, or carries no taints.
            raise self.client.malformed(path, f"it is not {ref.kind} {ref.name}")
        return tree

    async def _write(self, write: Write) -> str:
        """Make one write and return the uid of what it created, or ""."""
        if not self.may_act():
            raise UnreachableError("no longer leading")
        self.writes += 1
        ref, resource = write.ref, _RESOURCES[write.ref.kind]
        match write:
            case Create():
                name = ref.name if write.subresource else ""
                path = resource.path(name, ref.namespace, write.subresource)
                return text(_tree(await self._send("POST", path, write.tree, JSON)), "metadata", "uid")
            case Patch():
                path = resource.path(ref.name, ref.namespace, write.subresource)
                await self._send("PATCH", path, write.body(), MERGE_PATCH)
            case Delete():
                options = {
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "propagationPolicy": "Background",
                    "preconditions": {"uid": write.uid},
                }
                await self._send("DELETE", resource.path(ref.name, ref.namespace), options, JSON)
                return write.uid
            case _:
                assert_never(write)
        return ""

    async def _send(self, method: str, path: str, tree: Tree, content_type: str) -> bytes:
        return await self.client.request(
            method,
            path,
            body=msgspec.json.encode(tree),
            content_type=content_type,
            params={"fieldManager": "dovetail"} if method != "DELETE" else None,
            fence=self.may_act,
        )


def _has_changed(error: ApiError, write: Write) -> bool:
    """Return whether the object is not as it was read, so that reading it again may help."""
    return error.status == 409 or (error.status == 404 and not isinstance(write, Create))


def _tree(body: bytes) -> Tree:
    tree: Tree = msgspec.json.decode(body)  # the client has checked that it is an object
    return tree
