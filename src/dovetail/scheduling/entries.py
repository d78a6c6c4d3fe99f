"""The inputs and working values of one packing: options, pods in its queue, nodes that are tried or took pods.

Plain slotted values of `scheduling.simulate` and of `scheduling.packer`'s inner loops.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail.model.objects import Pod
from dovetail.scheduling.launch.claims import Claim
from dovetail.scheduling.launch.machines import TypeBits
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.pod import HostPort
from dovetail.scheduling.pods.variants import NodeList

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


ALL_TYPES: Final[TypeBits] = -1


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How `simulate` places pods.

    `closed`: the places of nodes that refuse pods of the candidates, while pending pods and pods of leaving nodes may
    land there. `new_nodes_max`: the simulation ends as soon as it is certain that more new nodes are needed; under the
    default profile a new node without a pod of the candidates is not counted. `strict_reserved`: pods wait for reserved
    offerings instead of falling back to others. `launchable`: the instance types allowed for new nodes. `credited`: a
    reservation with one more free slot.
    `preferences_open`: a preference may be the reason for a new node; else it is given up first, if a node has room.
    `stops_at`: the simulation ends as soon as a pod of the candidates is placed on a node from this index on.
    """

    closed: Collection[int] = ()
    new_nodes_max: int | None = None
    include_pending: bool = True
    include_leaving: bool = True
    strict_reserved: bool = False
    launchable: TypeBits = ALL_TYPES
    credited: str = ""
    preferences_open: bool = True
    stops_at: int | None = None


DEFAULT_OPTIONS: Final = SimulationOptions()


class Entry:
    """A pod in the queue. `kind`: pods of the same kind may use the same nodes.

    `exempt`: it may use closed nodes too. `pending`: it waited for a node before. `leaving`: it is on a node that
    leaves in any case. A pod that is neither pending nor leaving belongs to a candidate. `carried`: a virtual pod of a
    buffer that fits on the nodes now: a new node for it counts against the command, as for the candidates' pods.
    """

    __slots__ = ("carried", "cls", "exempt", "key", "kind", "leaving", "pending", "pod")

    def __init__(self, pod: Pod, cls: PodClass, *, exempt: bool, pending: bool, leaving: bool = False) -> None:
        self.pod = pod
        self.cls = cls
        self.exempt = exempt
        self.pending = pending
        self.leaving = leaving
        self.carried = False
        self.kind = (cls.id, exempt)
        meta = pod.metadata
        # Largest first; ties by age (oldest first), then by uid.
        self.key = (-cls.cpu, -cls.memory, meta.creation_timestamp or _DAWN, meta.uid)

    @property
    def name(self) -> str:
        """Return the pod's `namespace/name`."""
        meta = self.pod.metadata
        return meta.key


class Lane:
    """The nodes to try, in order, for pods of a class that only need room.

    The search continues at the node that took the last pod; a negative cursor: no node takes another.
    """

    __slots__ = ("closed", "cursors", "need", "nodes")

    def __init__(
        self, nodes: NodeList, need: tuple[tuple[int, int], ...], cursors: list[int], closed: frozenset[int]
    ) -> None:
        self.nodes = nodes
        self.need = need
        self.cursors = cursors
        self.closed = closed


class Touched:
    """A node that took pods in this simulation; `shared`: in others as well, so whoever changes it takes a copy."""

    __slots__ = ("attached", "entries", "left", "ports", "shared")

    def __init__(self, left: list[int]) -> None:
        self.left = left
        self.shared = False
        self.entries: list[Entry] = []
        self.ports: list[HostPort] = []
        self.attached: list[tuple[str, str]] = []

    def copy(self) -> "Touched":
        """Return a copy for another simulation."""
        other = Touched(self.left.copy())
        other.entries, other.ports, other.attached = self.entries.copy(), self.ports.copy(), self.attached.copy()
        return other


def may_share(entry: Entry, claim: Claim) -> bool:
    """Return whether a pod may join a new node: nodes launched for leaving nodes don't take a command's own pods."""
    if entry.leaving:
        return not claim.own
    return entry.pending or not claim.foreign
