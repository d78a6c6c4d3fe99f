"""Which instructions were issued, how they were answered, and when to repeat them.

An instruction's id is the same whenever the same thing is requested, so repeating it is always safe. An answer can be
lost: an unanswered instruction is repeated after a while. Decides nothing about commands; knows ids and times only.
Times are nanoseconds of the engine's own clock, which never goes back. Sits at the bottom of lifecycle.
"""

from dataclasses import dataclass
from typing import Final

from dovetail.lifecycle.messages import Failure, InstructionFailed, InstructionSucceeded

SECOND: Final = 1_000_000_000
ANSWER_WAIT: Final = 30 * SECOND
UNKNOWN_WAIT: Final = 60 * SECOND
"""How long to look out for the effect of something whose answer was lost before it is asked for again, where twice is
not once: a NodeClaim that came and went again would be launched a second time."""
_FIRST_PAUSE: Final[dict[Failure, int]] = {
    Failure.CONFLICT: SECOND,
    Failure.THROTTLED: 5 * SECOND,
    Failure.UNREACHABLE: 5 * SECOND,
    Failure.NOT_FOUND: 5 * SECOND,
    Failure.FORBIDDEN: 30 * SECOND,
    Failure.REFUSED: 30 * SECOND,
    Failure.TAKEN: 30 * SECOND,
    Failure.OCCUPIED: 5 * SECOND,
}
RIGHT_MISSING: Final = 60 * SECOND
"""How long something optional is not asked for after it was forbidden: the right may have been given meanwhile."""
_PAUSE_MAX: Final = 120 * SECOND
_UNKNOWN: Final = (None, Failure.UNREACHABLE, Failure.NOT_FOUND)
"""Answers after which the thing may have been done: none yet, a broken connection, or its object is gone."""
FATAL: Final = (Failure.FORBIDDEN, Failure.REFUSED, Failure.TAKEN, Failure.OCCUPIED)


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One requested thing: what instruction, how often, when next, and the last answer."""

    what: type | None = None
    count: int = 0
    again_at: int = 0
    patient_until: int = 0
    succeeded: bool = False
    failure: Failure | None = None
    detail: str = ""
    uid: str = ""


class Attempts:
    """All things requested by one owner, by instruction id, in the order of their first request.

    `version` grows whenever something is requested, answered or dropped.
    """

    __slots__ = ("_by_id", "version")

    def __init__(self) -> None:
        self._by_id: dict[str, Attempt] = {}
        self.version = 0

    def __contains__(self, ident: str) -> bool:
        return ident in self._by_id

    def ids(self) -> tuple[str, ...]:
        """Return all requested ids, oldest first."""
        return tuple(self._by_id)

    def ids_of(self, what: type) -> tuple[str, ...]:
        """Return the requested ids of one class of instructions, oldest first."""
        return tuple(ident for ident, attempt in self._by_id.items() if attempt.what is what)

    def what(self, ident: str) -> type | None:
        """Return the class of the instruction that was requested with an id."""
        attempt = self._by_id.get(ident)
        return None if attempt is None else attempt.what

    def get(self, ident: str) -> Attempt | None:
        """Return what is known about an id."""
        return self._by_id.get(ident)

    def due(self, ident: str, elapsed: int) -> bool:
        """Return whether to request it now: never requested, or the pause since the last time is over."""
        attempt = self._by_id.get(ident)
        return attempt is None or attempt.again_at <= elapsed

    def ask(self, ident: str, elapsed: int, patience: int = 0, *, what: type | None = None) -> None:
        """Record that it is requested now; while its outcome is unknown it is not repeated within `patience`.

        `what`: the class of the instruction, if somebody asks for it later.
        """
        self.version += 1
        attempt = self._by_id.setdefault(ident, Attempt(what=what))
        attempt.count += 1
        attempt.patient_until = elapsed + patience
        attempt.again_at = elapsed + max(patience, ANSWER_WAIT << min(attempt.count - 1, 4))

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not requested."""
        attempt = self._by_id.get(event.id)
        if attempt is None:
            return False
        self.version += 1
        if isinstance(event, InstructionSucceeded):
            attempt.succeeded, attempt.failure, attempt.uid = True, None, event.uid
            return True
        if attempt.succeeded:
            return True  # a repetition failed after the first one succeeded: the first answer counts
        attempt.failure, attempt.detail = event.failure, event.detail
        pause = min(_FIRST_PAUSE[event.failure] << min(attempt.count - 1, 8), _PAUSE_MAX)
        attempt.again_at = elapsed + pause
        if event.failure is Failure.UNREACHABLE:  # it may have been done anyway
            attempt.again_at = max(attempt.again_at, attempt.patient_until)
        return True

    def forget(self, ident: str) -> None:
        """Drop an id: it is done, or no longer wanted."""
        self.version += 1
        self._by_id.pop(ident, None)

    def succeeded(self, ident: str) -> bool:
        """Return whether the shell reported success."""
        attempt = self._by_id.get(ident)
        return attempt is not None and attempt.succeeded

    def failed(self, ident: str) -> Failure | None:
        """Return how the last attempt failed, if it did."""
        attempt = self._by_id.get(ident)
        return None if attempt is None else attempt.failure

    def may_be_done(self, ident: str) -> bool:
        """Return whether it was requested and may have been executed: no answer rules that out."""
        attempt = self._by_id.get(ident)
        return attempt is not None and (attempt.succeeded or attempt.failure in _UNKNOWN)

    def any_failed(self, failure: Failure) -> bool:
        """Return whether any last attempt failed in this way."""
        return any(attempt.failure is failure for attempt in self._by_id.values())

    def any_open_failure(self) -> bool:
        """Return whether something failed at its last attempt and has not succeeded since."""
        return any(attempt.failure is not None for attempt in self._by_id.values())

    def next_at(self, *, done: bool = False) -> int | None:
        """Return when the next unanswered or failed one is due again; `done`: count those that succeeded too."""
        if not self._by_id:
            return None
        times = [attempt.again_at for attempt in self._by_id.values() if done or not attempt.succeeded]
        return min(times, default=None)
