"""Detects when the pods of a cost command run again, so that the pause after it can end early (docs/rules.md#landed).

Before its pods leave, a command records how many ready pods each of their owners has. They have landed when every owner
has as many again, or as many as it wants by now, and none of its pods waits for a node. The pause lasts at least half a
minute and at most the stabilization window. Sits in lifecycle, below `engine`.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.memory.owners import Before, missing, owners_of, ready_on
from dovetail.lifecycle.store import Store

LEAST: Final = 30 * SECOND
_LOOK_EVERY: Final = 5 * SECOND


@dataclass(slots=True)
class _Moved:
    """The state before a command; `until` and the pools that it touched are set at the command's end."""

    before: Before
    until: int = 0
    pools: tuple[str, ...] = ()


class Landing:
    """Commands whose pods have not landed yet."""

    def __init__(self) -> None:
        self._moved: dict[str, _Moved] = {}
        self._ended: dict[str, int] = {}
        """When the pods of ended commands are due."""
        self._look_at = 0

    def begin(self, run: Run, store: Store) -> None:
        """Record the owners of the pods about to move, and how many of their pods are ready."""
        self._moved[run.id] = _Moved(before=ready_on(run.nodes, store))

    def end(self, ident: str, elapsed: int, window: int, pools: tuple[str, ...] = ()) -> None:
        """Record a command's end: from now on its pods are monitored, for as long as the window."""
        moved = self._moved.get(ident)
        if moved is not None:
            self._ended[ident] = elapsed + LEAST
            moved.until, moved.pools = elapsed + window, pools

    def drop(self, ident: str) -> None:
        """Forget a command that moved nothing."""
        self._moved.pop(ident, None)
        self._ended.pop(ident, None)

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._moved, self._ended = {}, {}

    def next_at(self) -> int | None:
        """Return when to look again."""
        return max(min(self._ended.values()), self._look_at) if self._ended else None

    @property
    def is_over(self) -> bool:
        """Return whether the pods of all ended commands have landed."""
        return not self._ended

    def look(self, store: Store, elapsed: int) -> tuple[str, ...]:
        """Return the pools in which the last moved pods have just landed."""
        at = self.next_at()
        if at is None or elapsed < at:
            return ()
        self._look_at = elapsed + _LOOK_EVERY
        pools: dict[str, None] = {}
        waiting = {owner for pod in store.pending_pods() for owner in owners_of(pod)}
        for ident in [ident for ident, due in self._ended.items() if due <= elapsed]:
            moved = self._moved[ident]
            if elapsed >= moved.until or _has_landed(moved.before, waiting, store):
                self.drop(ident)
                pools |= dict.fromkeys(moved.pools)
        waited = {pool for ident in self._ended for pool in self._moved[ident].pools}
        return tuple(pool for pool in pools if pool not in waited)


def _has_landed(before: Before, waiting: AbstractSet[str], store: Store) -> bool:
    return waiting.isdisjoint(before.ready) and not missing(before, store)
