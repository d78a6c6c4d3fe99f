"""Says on each managed NodePool whether a roll is done: condition `dovetail.dev/RolloutComplete`.

For `kubectl wait`, Argo CD and Flux (docs/operations.md). It is True only if a round found nothing to replace and
Karpenter has seen the NodePool's template as it is; `observedGeneration` says for which version of the spec. While a
request to roll is on the NodePool it is never set to True, so `dovetail roll` may return once it is False. A pool that
is no longer managed has none. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final

import msgspec

from dovetail.api.drift import is_judged
from dovetail.api.roll_request import read_request
from dovetail.decide.rollouts.progress import RollCause
from dovetail.decide.rollouts.status import RollStatus
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.messages import DropPoolCondition, InstructionFailed, InstructionSucceeded, SetPoolCondition
from dovetail.lifecycle.store import Store
from dovetail.model.names import ROLLOUT_COMPLETE
from dovetail.model.objects import NodePool, condition

_REASONS: Final = {RollCause.DRIFT.value: "Drifted", RollCause.REQUEST.value: "Requested"}
MESSAGES_EVERY: Final = 10 * SECOND
"""How often the message of a condition changes at most, as long as its status stays."""


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    reason: str
    message: str
    generation: int


class RollConditions:
    """What the condition of each managed pool should say, as the last round found it."""

    def __init__(self) -> None:
        self._wanted: dict[str, _Wanted] = {}
        self._attempts = Attempts()
        self._written: dict[str, int] = {}

    def forget(self) -> None:
        """Forget everything: another process leads."""
        self._wanted, self._attempts, self._written = {}, Attempts(), {}

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about a condition."""
        return self._attempts.answer(event, elapsed)

    def next_at(self) -> int | None:
        """Return when something is due again."""
        return self._attempts.next_at()

    def take(self, rollouts: tuple[RollStatus, ...], store: Store) -> None:
        """Record what a round found, on the objects that it looked at."""
        rolling = {status.node_pool: status for status in rollouts}
        self._wanted = {
            pool.metadata.name: _judge(pool, rolling.get(pool.metadata.name)) for pool in store.node_pools()
        }

    def wanted(
        self, store: Store, manages: Callable[[str], bool], elapsed: int
    ) -> Iterator[SetPoolCondition | DropPoolCondition]:
        """Yield the conditions that are due."""
        open_ones: dict[str, SetPoolCondition | DropPoolCondition] = {}
        for pool in store.node_pools():
            asked = self._build(pool, elapsed) if manages(pool.metadata.name) else _drop(pool)
            if asked is not None:
                open_ones[asked.id] = asked
        for ident in self._attempts.ids():
            if ident not in open_ones:
                self._attempts.forget(ident)
        for ident, asked in open_ones.items():
            if self._attempts.due(ident, elapsed):
                self._attempts.ask(ident, elapsed)
                self._written[asked.node_pool] = elapsed
                yield asked

    def _build(self, pool: NodePool, elapsed: int) -> SetPoolCondition | None:
        name, now = pool.metadata.name, condition(pool.status.conditions, ROLLOUT_COMPLETE)
        wanted = self._wanted.get(name)
        if wanted is None or (wanted.status == "True" and wanted.generation != pool.metadata.generation):
            return None  # the next round looks at the pool as it is now
        if now is not None and now.status == wanted.status:
            if (now.reason, now.message, now.observed_generation or 0) == (
                wanted.reason,
                wanted.message,
                wanted.generation,
            ):
                return None
            since = elapsed - self._written.get(name, -MESSAGES_EVERY)
            if since < MESSAGES_EVERY and (now.observed_generation or 0) == wanted.generation:
                return None
        text = "\x00".join((wanted.status, wanted.reason, wanted.message, str(wanted.generation)))
        return SetPoolCondition(
            id=f"rollout/{name}/{sha256(text.encode()).hexdigest()[:10]}",
            node_pool=name,
            type=ROLLOUT_COMPLETE,
            status=wanted.status,
            reason=wanted.reason,
            message=wanted.message,
            observed_generation=wanted.generation,
        )


def _drop(pool: NodePool) -> DropPoolCondition | None:
    name = pool.metadata.name
    if condition(pool.status.conditions, ROLLOUT_COMPLETE) is None:
        return None
    return DropPoolCondition(id=f"rollout/{name}/drop", node_pool=name, type=ROLLOUT_COMPLETE)


def _judge(pool: NodePool, status: RollStatus | None) -> _Wanted:
    generation = pool.metadata.generation or 0
    if status is not None:
        where = "" if status.active_domain is None else f", in {status.active_domain}"
        message = f"{status.replaced} of {status.total} nodes replaced ({status.cause}{where})"
        return _Wanted(status="False", reason=_REASONS[status.cause], message=message, generation=generation)
    if read_request(pool) is not None:
        message = "no node is left to be replaced; the request is removed"
        return _Wanted(status="False", reason=_REASONS[RollCause.REQUEST], message=message, generation=generation)
    if not is_judged(pool):
        message = "Karpenter has not looked at the NodePool's template as it is now"
        return _Wanted(status="False", reason="NotJudged", message=message, generation=generation)
    return _Wanted(status="True", reason="Complete", message="no node is to be replaced", generation=generation)
