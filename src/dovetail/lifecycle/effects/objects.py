"""Executes instructions on objects in memory, for worlds without an API server.

`perform` reads, calls `effect`, writes, and starts again if a write conflicts; a world implements reading and writing.
The functions below convert typed objects to trees and back, so that such a world can store typed objects. Sits in
effects, above `effect`.
"""

from typing import Final, Protocol, assert_never

import msgspec

from dovetail.lifecycle.effects.effect import effect
from dovetail.lifecycle.effects.effect_context import EffectContext
from dovetail.lifecycle.effects.writes import (
    Done,
    Failed,
    Patch,
    Read,
    Ref,
    Tree,
    Write,
    Writes,
    apply_merge_patch,
)
from dovetail.lifecycle.messages import ClusterInstruction, Failure, InstructionFailed, InstructionSucceeded
from dovetail.model.objects import KINDS, AnyObject

Answer = InstructionSucceeded | InstructionFailed
CONFLICT_TRIES: Final = 5


class ConflictError(Exception):
    """The object is not the one that was read: another version, another uid, or a name that is taken."""


class RefusedError(Exception):
    """The world refuses a write for a reason that reading again does not change."""

    def __init__(self, failure: Failure, detail: str) -> None:
        self.failure, self.detail = failure, detail


class Objects(Protocol):
    """Where instructions are executed."""

    def read(self, ref: Ref) -> Tree | None:
        """Return an object as JSON, or None."""
        ...

    def write(self, write: Write) -> str:
        """Make a write and return the uid of what it created, or ""; raise `ConflictError` or `RefusedError`."""
        ...


def perform(asked: ClusterInstruction, objects: Objects, context: EffectContext) -> Answer:
    """Execute an instruction and return the resulting event."""
    detail = ""
    for _ in range(CONFLICT_TRIES):
        known: dict[Ref, Tree | None] = {}
        while isinstance(outcome := effect(asked, known, context), Read):
            known[outcome.ref] = objects.read(outcome.ref)
        match outcome:
            case Done():
                return InstructionSucceeded(id=asked.id, uid=outcome.uid)
            case Failed():
                return InstructionFailed(id=asked.id, failure=outcome.failure, detail=outcome.detail)
            case Writes():
                try:
                    uids = [objects.write(write) for write in outcome.writes]
                except ConflictError as error:
                    detail = str(error)
                except RefusedError as error:
                    return InstructionFailed(id=asked.id, failure=error.failure, detail=error.detail)
                else:
                    return InstructionSucceeded(id=asked.id, uid=next(filter(None, uids), ""))
            case _:
                assert_never(outcome)
    return InstructionFailed(id=asked.id, failure=Failure.CONFLICT, detail=detail)


def tree_of(item: AnyObject) -> Tree:
    """Return an object as JSON."""
    tree: Tree = msgspec.to_builtins(item)
    return tree


def object_of(tree: Tree) -> AnyObject:
    """Return the typed object that a tree describes."""
    item: AnyObject = msgspec.convert(tree, KINDS[tree["kind"]])
    return item


def patched(item: AnyObject, patch: Patch) -> AnyObject:
    """Return an object with a patch applied; parts that the patch doesn't name stay the same objects."""
    if item.metadata.resource_version != patch.resource_version:
        raise ConflictError(f"{patch.ref.kind} {patch.ref.name} has changed")
    parts = {}
    for part, change in patch.tree.items():
        before = getattr(item, part)
        after = apply_merge_patch(msgspec.to_builtins(before), change)
        parts[part] = msgspec.convert(after, type(before))
    return msgspec.structs.replace(item, **parts)
