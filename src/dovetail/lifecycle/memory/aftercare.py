"""Aftercare: a roll that goes wrong stops by itself (docs/rules.md#health, `movedPodsReadyWithin`).

Before a command's pods leave, the ready pods of their owners are counted. Once its nodes are gone, its pools start no
voluntary disruption until the owners have as many ready pods again, or as many as they want by now. If that takes
longer than the pool allows, the pool halts: an annotation on it says why, survives a restart, and is removed when the
owners have recovered, or by `dovetail resume`. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from dovetail.api.pool_marks import Halt, read_halt, write_halt
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.memory.owners import Before, missing, ready_on
from dovetail.lifecycle.messages import HaltPool, InstructionFailed, InstructionSucceeded
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodePool, Pod

_LOOK_EVERY: Final = 2 * SECOND
_NAMED_MAX: Final = 5
_KEPT_MAX: Final = 2000
"""Owners in the annotation of a halt: 100 KB at most, of the 256 KB that an object's annotations may have."""


@dataclass(slots=True)
class _Moved:
    """The state before a command; the deadlines of its pools are set when its nodes are gone."""

    before: Before
    within: dict[str, int]
    due: dict[str, int] | None = None
    counted: tuple[int, dict[str, int]] | None = None

    def gaps(self, store: Store) -> dict[str, int]:
        """Return how many ready pods each owner lacks; counted once for each version of the store."""
        if self.counted is None or self.counted[0] != store.version:
            self.counted = (store.version, missing(self.before, store))
        return self.counted[1]


class Aftercare:
    """Commands whose moved pods are monitored."""

    def __init__(self) -> None:
        self._moved: dict[str, _Moved] = {}
        self._look_at = 0
        self._attempts = Attempts()

    def begin(self, run: Run, store: Store, limit_of: Callable[[str], int | None]) -> None:
        """Record the owners of the pods about to move, if a pool of the command has a limit."""
        within = {pool: limit for pool in run.source_pools if (limit := limit_of(pool)) is not None}
        if within and run.id not in self._moved:
            self._moved[run.id] = _Moved(before=ready_on(run.nodes, store), within=within)

    def left(self, ident: str, elapsed: int, stays: Iterable[Pod] = ()) -> None:
        """Start the deadlines: a command's nodes are gone, even if cleanup is not finished.

        `stays`: pods that a command which failed halfway did not move after all.
        """
        moved = self._moved.get(ident)
        if moved is not None:
            moved.due = {pool: elapsed + limit for pool, limit in moved.within.items()}
            leaving = moved.before.leaving - {pod.metadata.uid for pod in stays}
            moved.before, moved.counted = replace(moved.before, leaving=leaving), None

    def drop(self, ident: str) -> None:
        """Forget a command that moved nothing."""
        self._moved.pop(ident, None)

    def forget(self) -> None:
        """Forget everything: another process leads. Halts are recorded on the pools."""
        self._moved, self._attempts = {}, Attempts()

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about a halt."""
        return self._attempts.answer(event, elapsed)

    def next_at(self) -> int | None:
        """Return when to look again."""
        return self._look_at if any(moved.due is not None for moved in self._moved.values()) else None

    def unsettled(self, store: Store) -> dict[str, str]:
        """Return the pools that wait for moved pods, and which."""
        found: dict[str, str] = {}
        for ident, moved in self._moved.items():
            gaps = {} if moved.due is None else moved.gaps(store)
            if gaps:
                for pool in moved.due or ():
                    named = ", ".join(_names(gaps, store))
                    found[pool] = f"Pods that command {ident} moved are not ready yet ({named}): NodePool {pool} waits."
        return found

    def look(self, store: Store, elapsed: int, manages: Callable[[str], bool]) -> tuple[list[HaltPool], bool]:
        """Return the halts to write or remove, and whether an owner's pods have just become ready."""
        orders, settled = self._recovered(store, manages), False
        self._look_at = elapsed + _LOOK_EVERY
        for ident, moved in tuple(self._moved.items()):
            if moved.due is None:
                continue
            gaps = moved.gaps(store)
            if not gaps:
                del self._moved[ident]
                settled = True
                continue
            for pool in [pool for pool, at in moved.due.items() if at <= elapsed]:
                order = _halt(pool, ident, gaps, moved.before, store)
                if self._is_halted(pool, order.id, store, elapsed):
                    del moved.due[pool]
                else:
                    orders.append(order)
            if not moved.due:
                del self._moved[ident]
        due = []
        for order in orders:
            if self._attempts.due(order.id, elapsed):
                self._attempts.ask(order.id, elapsed)
                due.append(order)
        return due, settled

    def _is_halted(self, pool: str, ident: str, store: Store, elapsed: int) -> bool:
        """Return whether a pool is halted now, or was halted and resumed before it was seen."""
        found = store.get(NodePool, pool)
        if found is None or read_halt(found) is not None:
            return True
        return self._attempts.succeeded(ident) and self._attempts.due(ident, elapsed)

    def _recovered(self, store: Store, manages: Callable[[str], bool]) -> list[HaltPool]:
        """Build the instructions that end halts whose owners have recovered."""
        orders = []
        for pool in store.node_pools():
            halt = read_halt(pool) if manages(pool.metadata.name) else None
            if halt is not None and halt.ready and not missing(Before(ready=dict(halt.ready)), store):
                name = pool.metadata.name
                orders.append(HaltPool(id=f"halt/{name}/off/{halt.command}", node_pool=name, value=None))
        return orders


def _halt(pool: str, ident: str, gaps: dict[str, int], before: Before, store: Store) -> HaltPool:
    owners = tuple(_names(gaps, store))
    # All owners, not only those that lack pods now: one that loses pods while the pool is halted must recover too.
    first = sorted(before.ready, key=lambda owner: (owner not in gaps, owner))[:_KEPT_MAX]
    kept = tuple((owner, before.ready[owner]) for owner in first)
    halt = Halt(why="moved pods did not become ready in time", owners=owners, command=ident, ready=kept)
    return HaltPool(id=f"halt/{pool}/on/{ident}", node_pool=pool, value=write_halt(halt))


def _names(gaps: dict[str, int], store: Store) -> list[str]:
    """Return the owners by namespace, kind and name, the first few."""
    items = [item for item in map(store.workload, gaps) if item is not None]
    found = [f"{item.metadata.namespace}/{type(item).__name__}/{item.metadata.name}" for item in items]
    return sorted(found)[:_NAMED_MAX]
