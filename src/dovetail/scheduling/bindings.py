"""Pods as columns: for each pod of the cluster its class, its flags and its node, as integers.

Filled in one pass; a pod object that an earlier snapshot has read costs one lookup. Room, topology counts and views are
then sums and sorts over these columns. Decides nothing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from dovetail.model.objects import Pod
from dovetail.scheduling.classes import DAEMON, TERMINAL, TERMINATING, Classes, PodRecord, flags_of
from dovetail.scheduling.machines import Mask
from dovetail.scheduling.nodes import StateNode

Column = npt.NDArray[np.int64]


def read_records(pods: Sequence[Pod], classes: Classes, known: Mapping[int, PodRecord]) -> list[PodRecord]:
    """Each pod's class and flags. Objects behind `known` must be alive, so that their ids are theirs alone."""
    records: list[PodRecord | None] = [known.get(id(pod)) for pod in pods]
    fresh = [place for place, record in enumerate(records) if record is None]
    infos = []
    for place in fresh:
        pod = pods[place]
        flags = flags_of(pod)
        infos.append((place, flags, classes.spec_info(pod.spec, daemon=bool(flags & DAEMON))))
    specs = {info.id: info for _, _, info in infos}
    if classes.use_keys(key for info in specs.values() for key in info.keys):
        for place, record in enumerate(records):
            if record is not None:
                records[place] = (classes.class_of(pods[place], record[0].info), record[1])
    class_of = classes.class_of
    for place, flags, info in infos:
        records[place] = (class_of(pods[place], info), flags)
    return records  # type: ignore[return-value]


class Bindings:
    """Where pods are. `node` is -1 for pods that are bound nowhere, or to a node that is not known."""

    def __init__(self, pods: Sequence[Pod], records: Sequence[PodRecord], states: Sequence[StateNode]) -> None:
        self.pods = pods
        count = len(pods)
        self.cls: Column = np.fromiter((record[0].id for record in records), dtype=np.int64, count=count)
        self.bits: list[int] = [record[1] for record in records]
        self.flags: Column = np.array(self.bits, dtype=np.int64)
        place = {s.node.metadata.name: i for i, s in enumerate(states) if s.node is not None}
        place.pop("", None)
        names = [pod.spec.node_name for pod in pods]
        self.node: Column = np.fromiter((place.get(name, -1) for name in names), dtype=np.int64, count=count)
        self.unbound = [pod for pod, name in zip(pods, names, strict=True) if not name]
        order = np.argsort(self.node, kind="stable")
        edges = np.searchsorted(self.node[order], np.arange(len(states) + 1))
        self._order: list[int] = order.tolist()
        self._edges: list[int] = edges.tolist()

    def on_node(self, index: int) -> list[int]:
        """The places of the pods on a node, in the order of the cluster."""
        return self._order[self._edges[index] : self._edges[index + 1]]

    @property
    def running(self) -> Mask:
        """Pods that are on a known node and have not ended."""
        mask: Mask = (self.node >= 0) & (self.flags & TERMINAL == 0)
        return mask

    @property
    def daemons(self) -> Mask:
        """Pods of DaemonSets, wherever they are."""
        mask: Mask = self.flags & DAEMON != 0
        return mask

    def nodes_by_class(self, chosen: Mask) -> dict[int, Column]:
        """The nodes of the chosen pods, by class."""
        places = np.flatnonzero(chosen)
        if not len(places):
            return {}
        kinds = self.cls[places]
        order = np.argsort(kinds, kind="stable")
        kinds, nodes = kinds[order], self.node[places][order]
        starts = np.flatnonzero(np.r_[True, kinds[1:] != kinds[:-1]])
        parts = np.split(nodes, starts[1:])
        return dict(zip(kinds[starts].tolist(), parts, strict=True))

    @property
    def counted(self) -> Mask:
        """Pods that spread and affinity count: running, and not about to go."""
        mask: Mask = self.running & (self.flags & TERMINATING == 0)
        return mask
