"""Detects when the pods of a cost command run again, so that the pause after it can end early (spec section 25).

Before its pods leave, a command records how many ready pods each of their owners has. They have landed when every owner
has as many again, or as many as it wants by now, and none of its pods waits for a node. The pause lasts at least half a
minute and at most the stabilization window. Sits in lifecycle, below `engine`.
"""

from dataclasses import dataclass
from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.owners import Before, missing, owners_of, ready_on
from dovetail.lifecycle.store import Store

LEAST: Final = 30 * SECOND
_LOOK_EVERY: Final = 5 * SECOND


@dataclass(slots=True)
class _Moved:
    """The state before a command; `due` is set at the command's end."""

    before: Before
    due: int | None = None
    until: int = 0


class Landing:
    """Commands whose pods have not landed yet."""

    def __init__(self) -> None:
        self._moved: dict[str, _Moved] = {}
        self._look_at = 0

    def begin(self, run: Run, store: Store) -> None:
        """Record the owners of the pods about to move, and how many of their pods are ready."""
        self._moved[run.id] = _Moved(before=ready_on(run.nodes, store))

    def end(self, ident: str, elapsed: int, window: int) -> None:
        """Record a command's end: from now on its pods are monitored, for as long as the window."""
        moved = self._moved.get(ident)
        if moved is not None:
            moved.due, moved.until = elapsed + LEAST, elapsed + window

    def drop(self, ident: str) -> None:
        """Forget a command that moved nothing."""
        self._moved.pop(ident, None)

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._moved = {}

    def next_at(self) -> int | None:
        """Return when to look again."""
        times = [max(moved.due, self._look_at) for moved in self._moved.values() if moved.due is not None]
        return min(times, default=None)

    def look(self, store: Store, elapsed: int) -> bool:
        """Return whether the last command has just landed: all pods have landed."""
        at = self.next_at()
        if at is None or elapsed < at:
            return False
        self._look_at = elapsed + _LOOK_EVERY
        for ident in [key for key, moved in self._moved.items() if moved.due is not None and moved.due <= elapsed]:
            if elapsed >= self._moved[ident].until or _has_landed(self._moved[ident].before, store):
                del self._moved[ident]
        return all(moved.due is None for moved in self._moved.values())


def _has_landed(before: Before, store: Store) -> bool:
    waiting = {owner for pod in store.pending_pods() for owner in owners_of(pod)}
    return not any(owner in waiting for owner in before.ready) and not missing(before, store)
