"""What commands promised, and the result within an hour: money saved, nodes opened again, pods moved again.

A command that saves money promises dollars per hour. The price of each node that a provisioner opens in its pools
within the hour after its end is subtracted, from the last command of that pool that still has savings left. Successors
of moved pods that another command moves within the hour count as moved again. In memory and bounded; a restart forgets
it. No decision uses it. Sits in lifecycle, below `engine`; the live view keeps one too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heappop, heappush
from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.reports import CommandOutcome
from dovetail.model.command import Action

HOUR: Final = 3600 * SECOND
KEPT_MAX: Final = 1_000
"""How many commands are watched at once; beyond that the oldest is forgotten."""
SAVING: Final = (Action.DELETE_EMPTY, Action.DELETE_COST, Action.REPLACE_COST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """A pod that is about to be moved: its owner's uid, and when it was created."""

    owner: str
    created: datetime | None


@dataclass(slots=True, kw_only=True)
class _Watched:
    """A command. `owners`: how many pods of each owner have not been moved again so far."""

    action: Action
    pools: tuple[str, ...]
    pods: int
    owners: dict[str, int]
    began: datetime
    promised: float = 0.0
    left: float = 0.0
    ended: int | None = None
    opened: list[tuple[int, float]] = field(default_factory=list)
    moved_again: int = 0


class Outcomes:
    """Commands whose hour is not over."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._over: list[int] = []
        """When the hours of commands are over, as a heap."""
        self._coming: dict[str, None] = {}

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._watched, self._over, self._coming = {}, [], {}

    def begin(
        self,
        ident: str,
        action: Action,
        pools: tuple[str, ...],
        promised: float,
        movers: Iterable[Mover],
        now: datetime,
    ) -> None:
        """Record a command whose pods are about to leave; `promised`: dollars per hour."""
        if action not in SAVING or ident in self._watched:
            return
        owners: dict[str, int] = {}
        pods = 0
        for mover in movers:
            pods += 1
            self._blame(mover)
            owners[mover.owner] = owners.get(mover.owner, 0) + 1
        self._watched[ident] = _Watched(
            action=action, pools=pools, pods=pods, owners=owners, began=now, promised=promised, left=promised
        )
        while len(self._watched) > KEPT_MAX:
            del self._watched[next(iter(self._watched))]

    def _blame(self, mover: Mover) -> None:
        """Count a pod as moved again for the last command that moved a pod of its owner, if it is newer than that."""
        for watched in reversed(self._watched.values()):
            if watched.owners.get(mover.owner) and mover.created is not None and mover.created >= watched.began:
                watched.owners[mover.owner] -= 1
                watched.moved_again += 1
                return

    def end(self, ident: str, elapsed: int, *, well: bool, promised: float | None = None) -> None:
        """Record a command's end: its hour starts; a rolled-back one promised nothing. `promised`: known only now."""
        watched = self._watched.get(ident)
        if watched is None:
            return
        if not well:
            del self._watched[ident]
            return
        watched.ended = elapsed
        heappush(self._over, elapsed + HOUR)
        if promised is not None:
            watched.left += promised - watched.promised
            watched.promised = promised

    def came(self, claim: str) -> None:
        """Record a NodeClaim that a provisioner has just created; its price is known once it is launched."""
        if self._watched:
            self._coming[claim] = None

    def is_coming(self, claim: str) -> bool:
        """Return whether a NodeClaim is new and its price not known yet."""
        return claim in self._coming

    def opened(self, claim: str, pool: str, price: float, elapsed: int) -> None:
        """Record the price of a new NodeClaim: subtract it from the last command of its pool with savings left."""
        self._coming.pop(claim, None)
        for watched in reversed(self._watched.values()):
            if pool in watched.pools and watched.left > 0:
                lost = min(price, watched.left)
                watched.left -= lost
                watched.opened.append((elapsed, lost))
                return

    def gone(self, claim: str) -> None:
        """Forget a NodeClaim that was removed before its price was known."""
        self._coming.pop(claim, None)

    def due(self, elapsed: int) -> list[CommandOutcome]:
        """Return the outcomes of the commands whose hour is over, and forget them."""
        if not self._over or elapsed < self._over[0]:
            return []
        while self._over and elapsed >= self._over[0]:
            heappop(self._over)
        over = [
            ident for ident, watched in self._watched.items()
            if watched.ended is not None and elapsed >= watched.ended + HOUR
        ]  # fmt: skip
        return [_outcome(ident, self._watched.pop(ident)) for ident in over]


def _outcome(ident: str, watched: _Watched) -> CommandOutcome:
    assert watched.ended is not None
    until = watched.ended + HOUR
    lost = sum(amount * (until - max(at, watched.ended)) / HOUR for at, amount in watched.opened)
    return CommandOutcome(
        command_id=ident,
        action=watched.action,
        pools=watched.pools,
        promised=round(watched.promised, 6),
        saved=round(watched.promised - lost, 6),
        reopened=len(watched.opened),
        pods=watched.pods,
        moved_again=watched.moved_again,
    )
