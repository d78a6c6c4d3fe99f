"""What must wait after ended commands, and until when.

Three bounded memories that expire: pools whose replacements keep failing back off, twice as long each time; cost
actions wait for the stabilization window of the kind that finished last (spec section 9; lifecycle-controller,
LifecycleAction Tunables); a replacement stays nominated a little after its command has ended, until its pods have
arrived. Times are nanoseconds of the engine's own clock. Sits in lifecycle, above `commands`.
"""

from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Signal
from dovetail.model.command import Method
from dovetail.model.settings import Stabilization

BACK_OFF_FIRST: Final = 60 * SECOND
BACK_OFF_MAX: Final = 3600 * SECOND
NOMINATED_AFTER: Final = 60 * SECOND


class BackOff:
    """Pools that must wait for a while, twice as long each time."""

    def __init__(self, first: int = BACK_OFF_FIRST, longest: int = BACK_OFF_MAX) -> None:
        self._first, self._longest = first, longest
        self._failures: dict[str, int] = {}
        self.until: dict[str, int] = {}

    def failed(self, pool: str, elapsed: int, first: int | None = None) -> int | None:
        """Record a failure; return the pause, or None if the pool already waits for an earlier one.

        `first`: the length of the first pause, if it is not the usual one.
        """
        if self.until.get(pool, 0) > elapsed:
            return None  # concurrent commands that fail together count as one failure
        count = self._failures.get(pool, 0) + 1
        self._failures[pool] = count
        pause = min((self._first if first is None else first) << min(count - 1, 16), self._longest)
        self.until[pool] = elapsed + pause
        return pause

    def succeeded(self, pool: str) -> None:
        """Record a success: the pool no longer backs off."""
        self._failures.pop(pool, None)
        self.until.pop(pool, None)

    def failures(self, pool: str) -> int:
        """Return how many times in a row the pool has failed."""
        return self._failures.get(pool, 0)

    def expire(self, elapsed: int) -> bool:
        """Drop the waits that are over; True if there was one."""
        over = [pool for pool, until in self.until.items() if until <= elapsed]
        for pool in over:
            del self.until[pool]
        return bool(over)

    def active(self, elapsed: int) -> dict[str, int]:
        """Return the pools that wait, by name, and until when."""
        return {pool: self.until[pool] for pool in sorted(self.until) if self.until[pool] > elapsed}


def stabilization_of(method: Method, windows: Stabilization) -> int:
    """Return how long no cost action starts after an action of this method has finished."""
    match method:
        case Method.UNHEALTHY:
            return 0
        case Method.EMPTY:
            return windows.empty
        case Method.EXPIRED:
            return windows.expired
        case Method.DRIFTED:
            return windows.drifted
        case Method.MULTI_NODE | Method.SINGLE_NODE:
            return windows.cost


COST_METHODS: Final = (Method.MULTI_NODE, Method.SINGLE_NODE)


def loop_pause(run: Run, poll: int) -> int:
    """Return how long Karpenter's loop pauses after a validation (profile `karpenter-1.15`).

    After a deletion it continues at once, after a launch a second later, when it next checks for it. After a refused
    command the later methods run; after the last method it waits for the poll interval.
    """
    if run.verdict is Signal.VALIDATED:
        return SECOND if run.replacements else 0
    return poll if run.method is Method.SINGLE_NODE else 0


class Pacing:
    """All of these memories. Survives a loss of leadership: they describe the cluster, not the leader.

    `ended`: commands whose marks may still be seen for a moment. `settling`: until when no cost action starts, by the
    method that finished. `lingering`: replacements still nominated. `launches`: pools whose replacements fail.
    `refusals`: pools on which the API server refuses Dovetail's writes.
    """

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.settling: dict[str, int] = {}
        self.lingering: dict[str, int] = {}
        self._ended_in: dict[str, str] = {}
        self.launches = BackOff()
        self.refusals = BackOff()

    def _memories(self) -> tuple[dict[str, int], ...]:
        return (self.ended, self.settling, self.lingering, self.launches.until, self.refusals.until)

    def expire(self, elapsed: int) -> bool:
        """Drop what has expired; True if there was something."""
        dropped = False
        for memory in self._memories():
            if memory and min(memory.values()) <= elapsed:
                for key in [key for key, until in memory.items() if until <= elapsed]:
                    del memory[key]
                dropped = True
        return dropped

    def times(self) -> list[int]:
        """Return when each memory ends."""
        return [until for memory in self._memories() if memory for until in memory.values()]

    def settles_at(self, elapsed: int) -> int | None:
        """Return until when no cost action starts; None if none has to wait (docs/designs, stabilization)."""
        latest = max(self.settling.values(), default=0)
        return latest if latest > elapsed else None

    def settles_by(self, elapsed: int) -> str:
        """Return what cost actions wait for, in a few words; empty if they don't wait."""
        if self.settles_at(elapsed) is None:
            return ""
        return self._ended_in.get(max(self.settling, key=lambda method: (self.settling[method], method)), "")

    def finished(self, method: Method, windows: Stabilization, elapsed: int, pools: tuple[str, ...] = ()) -> None:
        """Record that an action in these pools succeeded. Cost actions of all pools wait for it.

        Design: lifecycle-controller.
        """
        window = stabilization_of(method, windows)
        if window > 0:
            self.settling[method.value] = elapsed + window
            where = f" in NodePool{'s' if len(pools) > 1 else ''} {', '.join(pools)}" if pools else ""
            self._ended_in[method.value] = f"an action of method {method.value}{where}"
