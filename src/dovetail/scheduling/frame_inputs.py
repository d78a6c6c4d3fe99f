"""What a frame is compiled from, so that the next snapshot can tell whether it would compile the very same again.

Most of what changes in a cluster from one round to the next is no business of simulations: a pod became ready, a node
reported. Then the frame goes over to the next snapshot whole, with all that was asked of it. Decides nothing. Sits in
scheduling, below the snapshot.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.model.cluster import Cluster
from dovetail.model.listing import are_the_same
from dovetail.model.settings import Settings
from dovetail.scheduling.columns import NodeColumns
from dovetail.scheduling.launch.machines import Machines, Mask
from dovetail.scheduling.pods.bindings import Bindings

_READ = ("node_pools", "daemon_sets", "pvcs", "pvs", "storage_classes", "csi_nodes", "namespaces")
"""The kinds of objects that a frame reads as they are; nodes and pods it reads as columns."""


@dataclass(frozen=True, slots=True, eq=False)
class FrameInputs:
    """All that a frame depends on. `moving`: places of pods that move in every simulation; `sizes`: by node."""

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
        """Return whether a frame of the earlier inputs is one of these too; `bindings` must come from the earlier ones.

        Where ties are drawn, a draw depends on what a frame was asked before: such a frame is never taken over.
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


def _are_the_same(some: Sequence[object], others: Sequence[object]) -> bool:
    return some is others or are_the_same(some, others)
