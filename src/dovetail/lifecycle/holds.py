"""Keeps Karpenter's own voluntary disruption away from the nodes of managed pools. See docs/rules.md#karpenter.

A hold is `karpenter.sh/do-not-disrupt: "true"` together with `dovetail.dev/hold`, which distinguishes it from a
person's own annotation; that one is left alone. Nodes of pools that are no longer managed, or whose own budgets allow
Karpenter nothing (`model.policies.quiet`), are released. Checks only nodes that changed, and all nodes of a pool that
changed. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable
from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.messages import HoldNode, InstructionFailed, InstructionSucceeded, ReleaseNode
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import Node

COME_FIRST: Final = 30 * SECOND
"""How long decisions wait for the holds of a newly managed pool."""


class Holds:
    """Which nodes still need a hold or a release."""

    def __init__(self) -> None:
        self._dirty: dict[str, None] = {}
        self._open: dict[str, None] = {}
        self._next_at: int | None = None
        self._attempts = Attempts()

    def look_at(self, node: str) -> None:
        """Record that a node is new or has changed."""
        self._dirty[node] = None

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about a hold."""
        known = self._attempts.answer(event, elapsed)
        attempt = self._attempts.get(event.id)
        if attempt is not None and self._next_at is not None:
            self._next_at = min(self._next_at, attempt.again_at)
        return known

    @property
    def is_open(self) -> bool:
        """Return whether a node still lacks what it needs."""
        return bool(self._open)

    def next_at(self) -> int | None:
        """Return when something is due again."""
        return self._next_at

    def wanted(self, store: Store, holds: Callable[[str], bool], elapsed: int) -> list[HoldNode | ReleaseNode]:
        """Build the holds and releases that are due, for changed nodes and for open ones that are due."""
        if self._next_at is not None and self._next_at <= elapsed:
            self._dirty |= self._open
            self._next_at = None
        asked: list[HoldNode | ReleaseNode] = []
        for name in sorted(self._dirty):
            node = store.get(Node, name)
            worded = None if node is None else _need(node, holds)
            self._settle(name, worded)
            if worded is None:
                continue
            if self._attempts.due(worded.id, elapsed):
                self._attempts.ask(worded.id, elapsed)
                asked.append(worded)
            attempt = self._attempts.get(worded.id)
            if attempt is not None:
                self._next_at = attempt.again_at if self._next_at is None else min(self._next_at, attempt.again_at)
        self._dirty = {}
        return asked

    def _settle(self, name: str, worded: HoldNode | ReleaseNode | None) -> None:
        """Keep a node open while it needs something; forget requests that are no longer needed."""
        for ident in (_hold_id(name), _release_id(name)):
            if worded is None or worded.id != ident:
                self._attempts.forget(ident)
        if worded is None:
            self._open.pop(name, None)
        else:
            self._open[name] = None


def _need(node: Node, holds: Callable[[str], bool]) -> HoldNode | ReleaseNode | None:
    """Return what a node needs, if anything. A leaving node needs nothing."""
    pool, annotations = node.metadata.labels.get(names.NODEPOOL, ""), node.metadata.annotations
    held = names.HOLD in annotations
    if node.metadata.deletion_timestamp is not None or not pool:
        return None
    if holds(pool):
        if names.DO_NOT_DISRUPT in annotations:
            return None  # held already, or a person's own annotation
        return HoldNode(id=_hold_id(node.metadata.name), node=node.metadata.name)
    return ReleaseNode(id=_release_id(node.metadata.name), node=node.metadata.name) if held else None


def _hold_id(node: str) -> str:
    return f"hold/{node}"


def _release_id(node: str) -> str:
    return f"release/{node}"
