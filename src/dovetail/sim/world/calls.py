"""The calls of one engine on their way to the API server, each with a delay of its own.

As `live.dispatch` makes them: instructions of one command in order, those of one kind that follow each other side by
side, those of the next kind after their answers. So replies to one command's writes arrive in any order. A call that
is on its way when the process dies still arrives. Sits in sim, below `host`.
"""

from collections import deque
from collections.abc import Callable

from dovetail.sim.world.actuate import ClusterInstruction
from dovetail.sim.world.clock import Clock

Execute = Callable[[ClusterInstruction, int], int]
"""Executes a call of a process (the number of its life), and returns how long its answer takes, in nanoseconds."""


class Calls:
    """One queue for each command with pending instructions. `reach`: how long a call takes to arrive."""

    def __init__(self, clock: Clock, reach: Callable[[ClusterInstruction], int], execute: Execute) -> None:
        self._clock, self._reach, self._execute = clock, reach, execute
        self._lanes: dict[str, deque[ClusterInstruction]] = {}

    def take(self, asked: ClusterInstruction, life: int) -> None:
        """Queue an instruction behind those of its command."""
        lane = getattr(asked, "command_id", "") or asked.id
        known = self._lanes.get(lane)
        if known is not None:
            known.append(asked)
            return
        self._lanes[lane] = queue = deque((asked,))
        self._clock.after(0, self._send, lane, queue, life)

    def drop_all(self) -> None:
        """Drop what has not been sent yet."""
        self._lanes.clear()

    def _send(self, lane: str, queue: deque[ClusterInstruction], life: int) -> None:
        """Send the next calls of a command, all of one kind."""
        if self._lanes.get(lane) is not queue:
            return  # dropped
        if not queue:
            del self._lanes[lane]
            return
        alike = [queue.popleft()]
        known = {alike[0].id}
        while queue and type(queue[0]) is type(alike[0]) and queue[0].id not in known:
            known.add(queue[0].id)
            alike.append(queue.popleft())
        waiting = len(alike)

        def answered() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                self._send(lane, queue, life)

        def arrive(asked: ClusterInstruction) -> None:
            self._clock.after(self._execute(asked, life), answered)

        for asked in alike:
            self._clock.after(self._reach(asked), arrive, asked)
