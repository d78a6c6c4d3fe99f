"""A Karpenter that is stopped: what it would have done waits until it runs again.

Objects, machines, kubelets and the scheduler go on without it. Pod events of this time are lost, as a restarted
Karpenter knows nothing of them. Sits in sim, below the parts of Karpenter.
"""

from collections.abc import Callable
from typing import Any, Final

from dovetail.sim.world.clock import SECOND, Clock

START_UP: Final = 2 * SECOND


class Outage:
    """Whether Karpenter is stopped, and what it has to do when it runs again."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_on = False
        self._missed: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def puts_off(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Return whether Karpenter is stopped; if so, it does this once it runs again."""
        if self.is_on:
            self._missed.append((action, arguments))
        return self.is_on

    def begin(self) -> None:
        """Stop Karpenter."""
        self.is_on = True

    def end(self) -> None:
        """Start Karpenter: it does what it missed, in order, a moment later."""
        self.is_on = False
        missed, self._missed = self._missed, []
        for action, arguments in missed:
            self.clock.after(START_UP, action, *arguments)
