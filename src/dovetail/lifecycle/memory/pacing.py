"""What must wait after ended commands, and until when.

Bounded memories that expire: pools whose replacements keep failing back off, twice as long each time, and so do nodes
whose pods refuse at the last moment; a replacement stays nominated a little after its command has ended, until its pods
have arrived. `stabilization` has the pause of cost actions. Times are nanoseconds of the engine's own clock. Sits in
lifecycle, above `commands`.
"""

from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Signal
from dovetail.model.command import Method

BACK_OFF_FIRST: Final = 60 * SECOND
BACK_OFF_MAX: Final = 3600 * SECOND
NODE_BACK_OFF_MAX: Final = 1800 * SECOND
NOMINATED_AFTER: Final = 60 * SECOND


class BackOff:
    """Pools, or nodes, that must wait for a while, twice as long each time."""

    def __init__(self, first: int = BACK_OFF_FIRST, longest: int = BACK_OFF_MAX) -> None:
        self._first, self._longest = first, longest
        self._failures: dict[str, int] = {}
        self.until: dict[str, int] = {}

    def failed(self, pool: str, elapsed: int, first: int | None = None, longest: int | None = None) -> int | None:
        """Record a failure; return the pause, or None if the pool already waits for an earlier one.

        `first`: the length of the first pause, `longest`: of any, if they are not the usual ones.
        """
        if self.until.get(pool, 0) > elapsed:
            return None  # concurrent commands that fail together count as one failure
        count = self._failures.get(pool, 0) + 1
        self._failures[pool] = count
        pause = min((self._first if first is None else first) << min(count - 1, 16), longest or self._longest)
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

    `ended`: commands whose marks may still be seen for a moment. `lingering`: replacements still nominated. `launches`:
    pools whose replacements fail. `refusals`: pools on which the API server refuses Dovetail's writes. `nodes`: nodes
    whose last command was rolled back right before its irreversible step; `nodes_why` says why.
    """

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.lingering: dict[str, int] = {}
        self.launches = BackOff()
        self.refusals = BackOff()
        self.nodes = BackOff(longest=NODE_BACK_OFF_MAX)
        self.nodes_why: dict[str, str] = {}

    def _memories(self) -> tuple[dict[str, int], ...]:
        backs_off = (self.launches.until, self.refusals.until, self.nodes.until)
        return (self.ended, self.lingering, *backs_off)

    def forget_node(self, name: str) -> None:
        """Forget a node that is gone."""
        self.nodes.succeeded(name)
        self.nodes_why.pop(name, None)

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
