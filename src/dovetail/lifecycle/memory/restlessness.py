"""Does the load of a pool come and go? Nodes that are opened soon after others were taken away say so.

While load wavers, a node that goes at once is needed again minutes later: its pods were moved for little. So a pool is
restless where a provisioner has opened two nodes in it within the setting `quietBeforeHaste`, each no longer than that
after a command had taken nodes of the pool away to save money; until the earlier of the two is that long ago. One alone
may have been for pods that the command moved (`regrowth`), and load that only grows has nobody to blame. Times are of
the engine's own clock. Decides nothing. Sits in lifecycle, below `engine`.
"""

from typing import Final

COUNTED: Final = 2
"""So many nodes make a pool restless."""


class Restlessness:
    """When nodes of each pool were last taken away, and when the last ones were opened after that."""

    def __init__(self) -> None:
        self._took: dict[str, int] = {}
        self._opened: dict[str, tuple[int, ...]] = {}

    def took(self, pools: tuple[str, ...], elapsed: int) -> None:
        """Note that a command takes nodes of these pools away to save money."""
        self._took |= dict.fromkeys(pools, elapsed)

    def opened(self, pool: str, elapsed: int, quiet: int) -> None:
        """Note a NodeClaim that a provisioner has just made."""
        took = self._took.get(pool)
        if took is not None and elapsed - took < quiet:
            self._opened[pool] = (*self._opened.get(pool, ()), elapsed)[-COUNTED:]

    def until(self, quiet: int, elapsed: int) -> dict[str, int]:
        """Return the restless pools, by name, and until when they are."""
        found = {pool: times[0] + quiet for pool, times in self._opened.items() if len(times) == COUNTED}
        return {pool: until for pool, until in sorted(found.items()) if until > elapsed}
