"""The possible results of an effect: what to read, what to write, done, failed.

Objects are JSON trees as the API server shows them, since a write must not lose fields that Dovetail doesn't know.
Trees are untrusted input: the readers below never raise, whatever the shape. Sits at the bottom of effects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from dovetail.lifecycle.messages import Failure

Tree = dict[str, Any]


PODS_ON: Final = "PodsOn"
"""The kind of a `Ref` that means all pods bound to a node, fresh from the server, as typed objects: `{"pods": (...)}`,
or `{"unreadable": why}` where one of them can't be read."""
PDBS: Final = "Pdbs"
"""The kind of a `Ref` that means all PodDisruptionBudgets, fresh from the server: `{"pdbs": (...)}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """An object by its kind and name."""

    kind: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """Create this object, or a subresource of the object that `ref` names; fails if the name is taken."""

    ref: Ref
    tree: Tree
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Apply a JSON merge patch, but only to the version that was read."""

    ref: Ref
    resource_version: str
    tree: Tree
    subresource: str = ""

    def body(self) -> Tree:
        """Return the merge patch with the version it depends on."""
        metadata = {**mapping(self.tree, "metadata"), "resourceVersion": self.resource_version}
        return {**self.tree, "metadata": metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete exactly the object with this uid."""

    ref: Ref
    uid: str


Write = Create | Patch | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Read this object first (None: there is none), then ask again with it."""

    ref: Ref


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """Make these writes in order. If one conflicts, read everything again and ask again."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Nothing is left to do. `uid`: of the object that the instruction created before, if it creates one."""

    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The instruction can't be executed on the objects in their current state."""

    failure: Failure
    detail: str = ""


Outcome = Read | Writes | Done | Failed


# ---------------------------------------------------------------- reading trees


def mapping(tree: Mapping[str, Any] | None, *path: str) -> Tree:
    """Return the map at a path of a tree, empty if there is none."""
    found: Any = tree
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def listing(tree: Mapping[str, Any] | None, *path: str) -> list[Tree]:
    """Return the maps in the list at a path of a tree; empty if there is none."""
    *parents, last = path
    found = mapping(tree, *parents).get(last)
    return [dict(entry) for entry in found if isinstance(entry, Mapping)] if isinstance(found, list | tuple) else []


def text(tree: Mapping[str, Any] | None, *path: str) -> str:
    """Return the string at a path of a tree, empty if there is none."""
    *parents, last = path
    found = mapping(tree, *parents).get(last)
    return found if isinstance(found, str) else ""


def annotation(tree: Mapping[str, Any] | None, key: str) -> str | None:
    """Return an annotation of an object, or None."""
    found = mapping(tree, "metadata", "annotations").get(key)
    return found if isinstance(found, str) else None


def apply_merge_patch(tree: Any, patch: Any) -> Any:
    """Return a tree with a JSON merge patch applied (RFC 7386), as the API server does it."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(tree) if isinstance(tree, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply_merge_patch(merged.get(key), value)
    return merged


def described(write: Write) -> str:
    """Return a write in a few words, for a log."""
    match write:
        case Create():
            verb = "create"
        case Patch():
            verb = "patch"
        case Delete():
            verb = "delete"
        case _:
            assert_never(write)
    return f"{verb} {write.ref.kind} {write.ref.name}"
