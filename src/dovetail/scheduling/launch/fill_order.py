"""The order in which new nodes are tried while they are being filled: as if sorted by their number of pods each time.

The sort is stable: of nodes with equally many pods, one that has just grown comes first and one that was just opened
last. Each node carries its position as a value, and only nodes that have not refused a kind of pod are put in order for
it: most of hundreds of new nodes are full. Decides nothing; `scheduling.packer` fills them.
"""

from bisect import insort
from operator import attrgetter

from dovetail.scheduling.launch.claims import Claim

_position = attrgetter("position")


class FillOrder:
    """All new nodes of one simulation (`claims`, as they were opened)."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self._grown: Claim | None = None
        self._growths = 0
        self._like = -1
        self._near: list[Claim] = []

    def open(self, claim: Claim) -> None:
        """Add a new node, as the last one."""
        self.claims.append(claim)

    def grow(self, claim: Claim) -> None:
        """Note that a node got another pod: it gets its new position before the next pod."""
        self._grown = claim

    def open_to(self, like: int) -> list[Claim]:
        """Return the nodes that have not refused pods like this one, in order."""
        grown, self._grown = self._grown, None
        if grown is not None:
            self._growths += 1
            count = len(grown.pods)
            grown.position = (count, self._growths if count == 1 else -self._growths)
        if self._like != like:
            self._like = like
            self._near = sorted([claim for claim in self.claims if like not in claim.refused], key=_position)
        elif grown is not None:
            if len(grown.pods) > 1:
                self._near.remove(grown)
            insort(self._near, grown, key=_position)
        return self._near

    def drop_refusing(self, like: int) -> None:
        """Take out the nodes that have refused pods like this one meanwhile."""
        self._near = [claim for claim in self._near if like not in claim.refused]

    def in_order(self) -> list[Claim]:
        """Return all nodes, in the order of the last pod."""
        return sorted(self.claims, key=_position)
