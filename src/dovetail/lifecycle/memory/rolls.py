"""Keeps on the NodePools what rounds say about their rolls: the domain at work, and the domains that had their turn.

Design: topology-budgets. `decide.methods.turns` decides it, and it is written only if the NodePool still says what the
round saw. A pool that is no longer managed keeps nothing of its roll, and its NodeClaims no request. Sits in lifecycle,
below `engine`.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from dovetail.api.rolling import MARKS, Rollout, annotations_of, decode_rollout, written_on
from dovetail.decide.outcome import RollChange
from dovetail.decide.words import seconds
from dovetail.lifecycle.announce import publish
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.messages import (
    DropRollRequest,
    InstructionFailed,
    InstructionSucceeded,
    KeepRoll,
    PublishEvent,
)
from dovetail.lifecycle.reports import some_of
from dovetail.lifecycle.store import Store
from dovetail.model.names import NODEPOOL, ROLL, ROLLING_DOMAIN, ROLLOUT
from dovetail.model.objects import NodeClaim, NodePool

_EARLIER: Final = 3
"""As how many commands the pace counts that a predecessor has written down."""


class Rolls:
    """What NodePools should say about their rolls, as the last round found it."""

    def __init__(self) -> None:
        self._changes: dict[str, RollChange] = {}
        self._attempts = Attempts()
        self._took: dict[str, list[int]] = {}
        self._asked: dict[str, None] = {}

    def look_at(self, claim: NodeClaim) -> None:
        """Record a NodeClaim that is new or has changed: whether somebody asks for its node to be replaced."""
        if ROLL in claim.metadata.annotations:
            self._asked[claim.metadata.name] = None

    def take(self, changes: Iterable[RollChange]) -> None:
        """Record what a round found."""
        self._changes = {change.node_pool: change for change in changes}

    def forget(self) -> None:
        """Forget everything: another process leads. What counts is on the pools."""
        self._changes, self._attempts, self._took = {}, Attempts(), {}

    def took(self, pools: Iterable[str], nanoseconds: int) -> None:
        """Record how long a command for drift took, in its pools."""
        for pool in pools:
            self._took.setdefault(pool, []).append(nanoseconds)

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about a roll."""
        return self._attempts.answer(event, elapsed)

    def next_at(self) -> int | None:
        """Return when something is due again."""
        return self._attempts.next_at()

    def wanted(
        self, store: Store, manages: Callable[[str], bool], elapsed: int, now: datetime
    ) -> Iterator[KeepRoll | DropRollRequest | PublishEvent]:
        """Yield what has to be written, and events: the start and the end of a roll, and of each domain's turn."""
        open_ones: dict[str, KeepRoll | DropRollRequest] = {asked.id: asked for asked in self._unasked(store, manages)}
        for pool in store.node_pools():
            kept = self._build(pool, manages)
            if kept is not None:
                open_ones[kept.id] = kept
        for ident in self._attempts.ids():
            if ident not in open_ones:
                self._attempts.forget(ident)
        for ident, asked in open_ones.items():
            if ident not in self._attempts and isinstance(asked, KeepRoll):
                yield from self._events(asked, store, now)
            if self._attempts.due(ident, elapsed):
                self._attempts.ask(ident, elapsed)
                yield asked

    def _unasked(self, store: Store, manages: Callable[[str], bool]) -> Iterator[DropRollRequest]:
        """Yield the requests on NodeClaims of pools that are not managed."""
        for name in list(self._asked):
            claim = store.get(NodeClaim, name)
            if claim is None or ROLL not in claim.metadata.annotations:
                del self._asked[name]
            elif not manages(claim.metadata.labels.get(NODEPOOL, "")):
                yield DropRollRequest(id=f"unasked/{name}", node_claim=name)

    def _build(self, pool: NodePool, manages: Callable[[str], bool]) -> KeepRoll | None:
        name, seen = pool.metadata.name, written_on(pool)
        change = self._changes.get(name)
        if not manages(name):
            wanted: tuple[str | None, ...] = (None,) * len(MARKS)
        elif change is None or change.seen != seen:
            return None
        else:
            kept = annotations_of(change.domain, self._with_pace(name, change.rollout))
            wanted = (kept[ROLLING_DOMAIN], kept[ROLLOUT], None if change.request_over else seen[-1])
        if wanted == seen:
            return None
        digest = sha256("\x00".join(map(str, (*wanted, *seen))).encode()).hexdigest()[:10]
        marks = tuple(zip(MARKS, wanted, strict=True))
        return KeepRoll(id=f"roll/{name}/{digest}", node_pool=name, marks=marks, seen=seen)

    def _with_pace(self, pool: str, rollout: Rollout) -> Rollout:
        """Return what is kept of a roll with how long a node takes; a roll that is over takes it along."""
        if rollout.began is None:
            self._took.pop(pool, None)
            return rollout
        took = self._took.get(pool)
        if not took:
            return rollout
        known = [rollout.seconds * SECOND] * _EARLIER if rollout.seconds and len(took) < _EARLIER else []
        mean = (sum(took) + sum(known)) // (len(took) + len(known))
        return replace(rollout, seconds=max(1, mean // SECOND))

    def _events(self, asked: KeepRoll, store: Store, now: datetime) -> Iterator[PublishEvent]:
        pool, change = asked.node_pool, self._changes.get(asked.node_pool)
        if change is None or change.seen != asked.seen:
            return
        before, after = decode_rollout(asked.seen[1]), change.rollout
        if before.began is None and after.began is not None:
            total = sum(part.total for part in after.parts)
            why = "as requested" if asked.seen[-1] is not None else "they have drifted"
            yield publish("NodePool", pool, "RolloutStarted", f"{total} nodes are to be replaced: {why}.")
        if change.finished:
            done = sum(part.total for part in before.parts if part.domain == change.finished)
            message = f"{change.finished} is done: its {done} nodes have been replaced."
            yield publish("NodePool", pool, "RolloutDomainFinished", message)
        if change.left_behind:
            message = f"{after.turns[-1]} is left behind for now: {some_of(change.left_behind)} could not go."
            yield publish("NodePool", pool, "DriftDomainLeftBehind", message, warning=True)
        if before.began is not None and after.began is None:
            message = f"{_end(before, pool, store)}, after {seconds(now - before.began)}."
            yield publish("NodePool", pool, "RolloutFinished", message)


def _end(rollout: Rollout, pool: str, store: Store) -> str:
    """Return how a roll ended: a request that was taken back, or a template changed back, leaves older nodes."""
    total = sum(part.total for part in rollout.parts)
    ages = [
        claim.metadata.creation_timestamp
        for claim in store.node_claims()
        if claim.metadata.labels.get(NODEPOOL) == pool and claim.metadata.creation_timestamp is not None
    ]
    newer = sum(rollout.began is not None and created >= rollout.began for created in ages)
    if newer == len(ages) or newer >= total:
        return f"All {total} nodes have been replaced"
    return f"No node is to be replaced any more ({newer} of {len(ages)} nodes came since the roll began)"
