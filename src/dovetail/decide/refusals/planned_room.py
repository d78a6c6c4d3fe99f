"""The free room of nodes once the pods of leaving nodes are where commands under way have planned them.

Simulations put these pods there before any other (`scheduling.under_way`), so no other pod can count on that room.
Where nothing is known about the plans, all free room counts. Sits in decide, below bounds and unready.
"""

from collections.abc import Sequence

from dovetail.scheduling.entries import Entry
from dovetail.scheduling.launch.machines import Amounts
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import Settled


class PlannedRoom:
    """`room`: the free resources of every node; `nodes`: where pods of leaving nodes are planned.

    `unplanned`: pods of leaving nodes that may still go anywhere.
    """

    def __init__(self, snapshot: Snapshot, settled: Settled | None = None) -> None:
        frame = snapshot.frame
        self.room: Amounts = frame.room if settled is None else settled.room(frame)
        self.nodes: frozenset[int] = frozenset() if settled is None else settled.nodes
        self._settled, self._snapshot = settled, snapshot
        self._rows: dict[int, list[int]] = {}

    @property
    def unplanned(self) -> Sequence[Entry]:
        """Return the pods of leaving nodes without a planned place."""
        return self._snapshot.leaving_entries if self._settled is None else self._settled.unsettled

    @property
    def waiting(self) -> Sequence[Entry]:
        """Return the pods that waited for a node before and may still go anywhere, in the order of placement."""
        return self._snapshot.queued

    def room_before(self, _cls: PodClass) -> Amounts | None:
        """Return the free resources of every node when pods of a class are placed; None if they are not certain."""
        return self.room

    @property
    def is_known(self) -> bool:
        """Return whether simulations start with the pods of leaving nodes in these places."""
        return self._settled is not None or not self._snapshot.leaving

    def row(self, node: int) -> list[int]:
        """Return a node's free resources as plain numbers; don't modify them."""
        if node not in self.nodes:
            return self._snapshot.frame.row(node)
        found = self._rows.get(node)
        if found is None:
            found = self._rows[node] = self.room[node].tolist()
        return found
