"""A pod that a simulation places: its class, whom it belongs to, and its place in the queue. Sits in scheduling."""

from datetime import UTC, datetime
from typing import Final

from dovetail.model.objects import Pod
from dovetail.scheduling.pods.classes import PodClass

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


class Entry:
    """A pod in the queue.

    `exempt`: closed nodes take it too. `pending`: it waited for a node before. `leaving`: it is on a node that leaves
    in any case. A pod that is neither of the last two is one of the candidates'. `carried`: a virtual pod of a buffer
    that nodes have room for now: a new node for it is the command's own, as for the candidates' pods.
    """

    __slots__ = ("carried", "cls", "exempt", "key", "leaving", "mark", "pending", "pod")

    def __init__(self, pod: Pod, cls: PodClass, *, exempt: bool, pending: bool, leaving: bool = False) -> None:
        self.pod = pod
        self.cls = cls
        self.exempt = exempt
        self.pending = pending
        self.leaving = leaving
        self.carried = False
        self.mark = (cls.id, exempt)
        meta = pod.metadata
        # Largest first; of equal ones the oldest, then by uid.
        self.key = (-cls.cpu, -cls.memory, meta.creation_timestamp or _DAWN, meta.uid)
