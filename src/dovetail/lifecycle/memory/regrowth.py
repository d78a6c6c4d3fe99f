"""Detects cost actions that were undone: a new node was opened for the pods that were moved.

The plan packs pods tightly, but the cluster's scheduler spreads them. Sometimes a moved pod finds no place, a node is
opened for it, and the next round would remove that node again, for ever. So every cost action is checked a minute after
its end: if there are new NodeClaims of another controller with pods of the moved pods' owners, the pools wait before
they try another cost action, twice as long each time. Other methods and other pools don't wait. Not for the profile
`karpenter-1.15`. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.memory.owners import owners_of
from dovetail.lifecycle.memory.pacing import BackOff
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.money import Money
from dovetail.model.objects import NodeClaim

LOOK_AFTER: Final = 60 * SECOND
FIRST_WAIT: Final = 600 * SECOND
LEAST_WAIT: Final = 60 * SECOND
LONGEST_WAIT: Final = 4 * 3600 * SECOND


@dataclass(slots=True)
class _Watched:
    """A cost action whose outcome is not known yet. `known`: how many NodeClaims had come before it.

    `worth`: what it cost, as the time in which its savings earn that; 0: nobody prices it. `due` is set at its end.
    """

    pools: tuple[str, ...]
    owners: dict[str, None]
    known: int
    promised: Money
    worth: int = 0
    due: int | None = None


class Regrowth:
    """Cost actions to check, and the pools that wait because the last one was undone."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._due: list[int] = []
        """When actions are to be checked, as a heap."""
        self.waits = BackOff(first=FIRST_WAIT, longest=LONGEST_WAIT)

    def begin(self, run: Run, store: Store) -> None:
        """Record the owners of the pods about to move, and which NodeClaims exist."""
        owners: dict[str, None] = {}
        for node in run.nodes:
            for pod in store.pods_on(node):
                owners |= dict.fromkeys(owners_of(pod))
        pools = tuple(dict.fromkeys(entry.pool for entry in run.candidates))
        promised, worth = (0, 0) if run.command is None else (run.command.savings, run.command.pays_after)
        self._watched[run.id] = _Watched(
            pools=pools, owners=owners, known=store.claims_seen, promised=promised, worth=worth
        )

    def end(self, run: Run, elapsed: int, *, well: bool) -> None:
        """Record the end of a cost action; one that was rolled back moved nothing."""
        watched = self._watched.get(run.id)
        if watched is None:
            return
        if well:
            watched.due = elapsed + LOOK_AFTER
            heappush(self._due, watched.due)
        else:
            del self._watched[run.id]

    def forget(self) -> None:
        """Forget the actions to check: another process leads."""
        self._watched, self._due = {}, []

    def next_at(self) -> int | None:
        """Return when the next outcome is known."""
        return self._due[0] if self._due else None

    def held(self, store: Store, elapsed: int) -> dict[str, int]:
        """Return the pools that try no cost action now, and until when: waiting ones, and those being checked."""
        held: dict[str, int] = {}
        news = _News.of(self._watched.values(), store)
        for watched in self._watched.values() if news.claims else ():
            if _back_for(watched, store, news):
                until = elapsed + LOOK_AFTER if watched.due is None else watched.due
                held |= dict.fromkeys(watched.pools, until)
        return {**held, **self.waits.active(elapsed)}

    def judge(
        self, store: Store, elapsed: int, price_of: Callable[[NodeClaim], Money | None] | None = None
    ) -> list[tuple[str, int]]:
        """Check the actions that are due; return the pools that must wait from now on, and for how long.

        `price_of`: the first wait is as long as the share of the savings that the new nodes cost.
        """
        waits: list[tuple[str, int]] = []
        if not self._due or elapsed < self._due[0]:
            return waits
        while self._due and elapsed >= self._due[0]:
            heappop(self._due)
        for ident in [key for key, entry in self._watched.items() if entry.due is not None and entry.due <= elapsed]:
            watched = self._watched.pop(ident)
            back = _back_for(watched, store, _News.of([watched], store))
            first = FIRST_WAIT if price_of is None else _wait_for(back, watched.promised, price_of)
            for pool in watched.pools:
                longest = max(LEAST_WAIT, watched.worth) if watched.worth else None
                pause = self.waits.failed(pool, elapsed, first, longest) if back else None
                if pause is not None:
                    waits.append((pool, pause))
                elif not back and pool not in self.waits.until:
                    self.waits.succeeded(pool)
        return waits


@dataclass(frozen=True, slots=True)
class _News:
    """The NodeClaims of other controllers that some of the watched don't know, and the owners of pods that wait."""

    claims: tuple[tuple[int, NodeClaim], ...]
    waiting: frozenset[str]

    @classmethod
    def of(cls, watched: Iterable[_Watched], store: Store) -> "_News":
        """Return what is new since the first of the watched began."""
        came = store.claims_after(min((entry.known for entry in watched), default=store.claims_seen))
        new = [(number, claim) for number, claim in came if not is_ours(claim)]
        waiting = (owner for pod in store.pending_pods() for owner in owners_of(pod)) if new else ()
        return cls(tuple(new), frozenset(waiting))


def _back_for(watched: _Watched, store: Store, news: _News) -> list[NodeClaim]:
    """Return the new NodeClaims of other controllers that have, or wait for, pods of the moved pods' owners."""
    waiting = not news.waiting.isdisjoint(watched.owners)
    return [
        claim
        for number, claim in news.claims
        if number > watched.known
        if (waiting and not claim.status.node_name)
        or any(owner in watched.owners for pod in store.pods_on(claim.status.node_name) for owner in owners_of(pod))
    ]


def _wait_for(back: list[NodeClaim], promised: Money, price_of: Callable[[NodeClaim], Money | None]) -> int:
    """Return the first wait: the full one if nothing was saved, or if the new nodes have no known price."""
    prices = [price_of(claim) for claim in back]
    lost = sum(price for price in prices if price is not None)
    if None in prices or lost >= promised:
        return FIRST_WAIT
    return max(LEAST_WAIT, FIRST_WAIT * lost // promised)


def is_ours(claim: NodeClaim) -> bool:
    """Return whether a command of Dovetail launched it: it was held from the start."""
    return names.HOLD in claim.metadata.annotations or names.COMMAND in claim.metadata.annotations
