"""The inputs of a frame, so that the next snapshot can tell whether it would compile the same frame again.

Most changes in a cluster between two rounds don't matter to simulations: a pod became ready, a node reported. The next
snapshot then reuses the whole frame, with everything computed in it. Decides nothing. Sits in scheduling, below the
snapshot.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from dovetail.model.cluster import Cluster
from dovetail.model.listing import are_the_same
from dovetail.model.settings import Settings
from dovetail.scheduling.columns import NodeColumns
from dovetail.scheduling.launch.machines import Machines, Mask
from dovetail.scheduling.pods.bindings import Bindings

_READ = ("node_pools", "daemon_sets", "pvcs", "pvs", "storage_classes", "csi_nodes", "namespaces")
"""The kinds of objects that a frame reads as they are; nodes and pods it reads as columns."""
_DAEMONS = ("node_pools", "daemon_sets")
"""The kinds of objects that tell which daemons are expected on a node."""


class FrameInputs(msgspec.Struct, frozen=True, eq=False):
    """Everything a frame depends on. `moving`: indexes of pods that move in every simulation; `sizes`: by node."""

    settings: Settings
    cluster: Cluster
    machines: Machines
    width: int
    columns: NodeColumns
    bindings: Bindings
    sizes: Sequence[int]
    staying: Mask
    joined: Mask
    moving: Sequence[int]
    virtual: Sequence[int]

    def is_like(self, earlier: "FrameInputs") -> bool:
        """Return whether a frame of the earlier inputs is valid for these; `bindings` must derive from those.

        If ties are broken at random, a draw depends on earlier calls, so such a frame is never reused.
        """
        return (
            not self.settings.ties
            and self.columns is earlier.columns
            and self.machines is earlier.machines
            and self.width == earlier.width
            and all(_are_the_same(getattr(self.cluster, name), getattr(earlier.cluster, name)) for name in _READ)
            and self.settings == earlier.settings
            and self.moving == earlier.moving
            and self.virtual == earlier.virtual
            and np.array_equal(self.staying, earlier.staying)
            and np.array_equal(self.joined, earlier.joined)
            and self.bindings.counts_like(earlier.bindings)
            and self.sizes == earlier.sizes
        )

    def has_the_same_room(self, earlier: "FrameInputs") -> bool:
        """Return whether nodes have as much room as in a frame of the earlier inputs, whichever of them stay."""
        return (
            self.columns is earlier.columns
            and self.width == earlier.width
            and self.sizes == earlier.sizes
            and self.settings.rules == earlier.settings.rules
            and self.settings.karpenter == earlier.settings.karpenter
            and self.bindings.counts_like(earlier.bindings)
            and all(_are_the_same(getattr(self.cluster, name), getattr(earlier.cluster, name)) for name in _DAEMONS)
        )


def _are_the_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return some is others or are_the_same(some, others)
