"""Pods as columns: for each pod of the cluster its class, its flags and its node, as integers.

Pod objects that the previous snapshot has read are found by their position or identity in a few array operations, so
only new objects cost anything. Room, topology counts and views are sums and sorts over these columns. Decides nothing.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from copy import copy

import numpy as np
import numpy.typing as npt

from dovetail.model.listing import Listing
from dovetail.model.objects import Pod, PodSpec
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.pods.classes import (
    DAEMON,
    TERMINAL,
    TERMINATING,
    Classes,
    PodClass,
    PodRecord,
    SpecInfo,
    flags_of,
    pod_mark,
)
from dovetail.scheduling.pods.requests import resized_spec

CountedSpec = Callable[[Pod], PodSpec]
"""The spec that the scheduler counts with, of a pod."""

Column = npt.NDArray[np.int64]
_SHORT = 1 << 16
_MANY = 1000


def _in_memory(pods: Sequence[Pod]) -> list[int]:
    """Return the indexes of pods in the order in which they lie in memory, in which reading all of them is fastest."""
    if len(pods) < _MANY:
        return list(range(len(pods)))
    order: list[int] = np.argsort(np.fromiter(map(id, pods), dtype=np.int64, count=len(pods))).tolist()
    return order


class NodeNames:
    """Names of nodes as numbers (`codes`); 0 means no node. Only grows."""

    __slots__ = ("codes",)

    def __init__(self) -> None:
        self.codes: dict[str, int] = {"": 0}

    def code(self, name: str) -> int:
        """Return the number of a name."""
        return self.codes.setdefault(name, len(self.codes))

    def __len__(self) -> int:
        return len(self.codes)


class Bindings:
    """Where pods are: `cls`, `flags` and `at` (the number of the node's name) per pod of the cluster, in its order.

    `odd`: pods with annotations or a priority; all others cost the same to evict, and object to nothing.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        classes: Classes,
        names: NodeNames,
        old: "Bindings | None",
        spec_of: CountedSpec = resized_spec,
    ) -> None:
        self.pods = pods
        self._classes = classes
        self._spec_of = spec_of
        count = len(pods)
        self._by_id: tuple[Column, Column] | None = None
        self.cls: Column = np.full(count, -1, dtype=np.int64)
        self.flags: Column = np.zeros(count, dtype=np.int64)
        self.at: Column = np.zeros(count, dtype=np.int64)
        self.odd: Mask = np.zeros(count, dtype=np.bool_)
        self.changed: set[int] | None = None
        self.fresh: list[int] | None = None
        if old is None:
            self._read(list(range(count)), names)
            return
        was = self._places_in(old)
        same = was >= 0
        for mine, theirs in ((self.cls, old.cls), (self.flags, old.flags), (self.at, old.at)):
            mine[same] = theirs[was[same]]
        self.odd[same] = old.odd[was[same]]
        self.fresh = np.flatnonzero(~same).tolist()
        self._read(self.fresh, names)
        stays = np.zeros(len(old.pods), dtype=np.bool_)
        stays[was[same]] = True
        self.changed = {*self.at[~same].tolist(), *old.at[~stays].tolist()}

    def again(self) -> "Bindings":
        """Return the same pods, not yet assigned to node indexes."""
        other = copy(self)
        other.changed, other.fresh = set(), []
        return other

    def counts_like(self, old: "Bindings") -> bool:
        """Return whether simulations see no difference between these pods and those of the previous bindings.

        The pods of DaemonSets must be identical: the newest of them determines what is expected on new nodes.
        """
        return (
            self.fresh is not None
            and np.array_equal(self.cls, old.cls)
            and np.array_equal(self.node, old.node)
            and np.array_equal(self.flags, old.flags)
            and not np.any(self.flags[self.fresh] & DAEMON)
        )

    def _places_in(self, old: "Bindings") -> Column:
        """Return the previous index of each pod; -1 if it is not the same object."""
        pods, before = self.pods, old.pods
        if isinstance(pods, Listing) and isinstance(before, Listing) and pods.since is before.mark:
            return np.frombuffer(pods.origin, dtype=np.int64)
        # The old snapshot's pods are alive, so an equal id means the same object. Sorted ids are found several times
        # faster.
        ids, places = self._ids()
        was = np.empty(len(pods), dtype=np.int64)
        was[places] = old._find(ids)
        return was

    def _ids(self) -> tuple[Column, Column]:
        """Return the ids of all pods, sorted, and their indexes."""
        if self._by_id is None:
            ids = np.fromiter(map(id, self.pods), dtype=np.int64, count=len(self.pods))
            places = np.argsort(ids)
            self._by_id = (ids[places], places)
        return self._by_id

    def _find(self, wanted: Column) -> Column:
        """Return the indexes of objects by id; -1 if there is none."""
        ids, places = self._ids()
        if not len(ids):
            return np.full(len(wanted), -1, dtype=np.int64)
        near = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        return np.where(ids[near] == wanted, places[near], -1)

    def _read(self, places: Sequence[int], names: NodeNames) -> None:
        """Read the pods at these places; classes are numbered in the order of the places."""
        if not places:
            return
        pods = [self.pods[place] for place in places]
        where = np.array(places, dtype=np.int64)
        kinds = self._sort_out(where, pods, names)
        classes, spec_of, flags = self._classes, self._spec_of, self.flags[where].tolist()
        infos: dict[int, SpecInfo] = {}
        for here, kind in enumerate(kinds):
            if kind not in infos:
                infos[kind] = classes.spec_info(spec_of(pods[here]), daemon=flags[here] & DAEMON != 0)
        if classes.use_keys(key for info in infos.values() for key in info.keys):
            for place in np.flatnonzero(self.cls >= 0).tolist():
                self.cls[place] = classes.class_of(self.pods[place], classes.all[self.cls[place]].info).id
        found: dict[int, int] = {}
        for here, kind in enumerate(kinds):
            if kind not in found or infos[kind].names_claims:
                found[kind] = classes.class_of(pods[here], infos[kind]).id
            kinds[here] = found[kind]
        self.cls[where] = kinds

    def _sort_out(self, where: Column, pods: list[Pod], names: NodeNames) -> list[int]:
        """Read flags and nodes of these pods; return the number of each pod's kind.

        Pods of one kind agree in namespace, labels and spec: most pods of a ReplicaSet do.
        """
        spec_of, codes = self._spec_of, names.codes
        flags, at, kinds = [0] * len(pods), [0] * len(pods), [0] * len(pods)
        odd = bytearray(len(pods))
        known: dict[bytes, int] = {}
        for here in _in_memory(pods):
            pod = pods[here]
            meta, spec = pod.metadata, spec_of(pod)
            bits = flags[here] = flags_of(pod)
            mark = pod_mark(spec, meta, daemon=bits & DAEMON != 0)
            kinds[here] = known.setdefault(mark, len(known))
            at[here] = codes.setdefault(spec.node_name, len(codes))
            if meta.annotations or spec.priority:
                odd[here] = 1
        self.flags[where] = flags
        self.at[where] = at
        self.odd[where] = np.frombuffer(odd, dtype=np.bool_)
        return kinds

    def settle(self, codes: "array[int]", names: NodeNames) -> None:
        """Assign pods to node indexes: `codes` are the numbers of the nodes' names, in the nodes' order."""
        numbers = np.frombuffer(codes, dtype=np.int64)
        places = np.full(len(names), -1, dtype=np.int64)
        places[numbers] = np.arange(len(codes))
        places[0] = -1
        self._places: Column = places
        self.node: Column = places[self.at]
        counts = np.bincount(self.node + 1, minlength=len(codes) + 1)
        self._edges: Column = np.cumsum(counts)
        # Short integers are sorted in linear time.
        keys = (self.node + 1).astype(np.uint16) if len(codes) < _SHORT else self.node
        self._order: Column = np.argsort(keys, kind="stable")
        self._bits: list[int] | None = None

    @property
    def bits(self) -> list[int]:
        """Return the flags as plain numbers."""
        if self._bits is None:
            self._bits = self.flags.tolist()
        return self._bits

    def places_of(self, codes: Iterable[int]) -> list[int]:
        """Return the indexes of nodes, given the numbers of their names; names of no node are left out."""
        return [place for place in self._places[np.fromiter(codes, dtype=np.int64)].tolist() if place >= 0]

    def on_node(self, index: int) -> list[int]:
        """Return the indexes of the pods on a node, in the order of the cluster."""
        places: list[int] = self._order[self._edges[index] : self._edges[index + 1]].tolist()
        return places

    def marks_on(self, index: int) -> tuple[list[int], list[bool]]:
        """Return the flags of the pods on a node, and which of them are odd, in the order of the cluster."""
        places = self._order[self._edges[index] : self._edges[index + 1]]
        return self.flags[places].tolist(), self.odd[places].tolist()

    def sums(self, of_class: Column) -> Column:
        """Return the sums over the pods of each node that have not ended, given a row for each class."""
        first = int(self._edges[0])
        pods = self._order[first:]
        columns = of_class.T[:, self.cls[pods]]
        ended = self.ended[pods]
        if ended.any():
            columns[:, ended] = 0
        total = np.zeros((len(columns), len(pods) + 1), dtype=np.int64)
        np.cumsum(columns, axis=1, out=total[:, 1:])
        at = total[:, self._edges - first]
        found: Column = np.ascontiguousarray((at[:, 1:] - at[:, :-1]).T)
        return found

    def record(self, pod: Pod) -> PodRecord | None:
        """Return a pod's class and flags; None for an object that is not of this cluster."""
        place = int(self._find(np.array([id(pod)], dtype=np.int64))[0])
        return None if place < 0 else (self.class_at(place), self.bits[place])

    def class_at(self, place: int) -> PodClass:
        """Return the class of the pod at an index."""
        return self._classes.all[int(self.cls[place])]

    def classes_at(self, places: list[int]) -> list[PodClass]:
        """Return the classes of the pods at these indexes."""
        known = self._classes.all
        return [known[number] for number in self.cls[places].tolist()]

    @property
    def has_claims(self) -> bool:
        """Return whether any pod that was ever seen asks for devices through resource claims."""
        return self._classes.claims

    @property
    def unbound_places(self) -> list[int]:
        """Return the indexes of pods that are not bound to a node."""
        places: list[int] = np.flatnonzero(self.at == 0).tolist()
        return places

    @property
    def unbound(self) -> list[Pod]:
        """Return pods that are not bound to a node."""
        return [self.pods[place] for place in self.unbound_places]

    @property
    def running(self) -> Mask:
        """Return pods that are on a known node and have not ended."""
        mask: Mask = (self.node >= 0) & ~self.ended
        return mask

    @property
    def ended(self) -> Mask:
        """Return pods that have ended, wherever they are."""
        mask: Mask = self.flags & TERMINAL != 0
        return mask

    @property
    def daemons(self) -> Mask:
        """Return pods of DaemonSets, wherever they are."""
        mask: Mask = self.flags & DAEMON != 0
        return mask

    @property
    def counted(self) -> Mask:
        """Return pods that spread and affinity count: running and not terminating."""
        mask: Mask = self.running & (self.flags & TERMINATING == 0)
        return mask

    def nodes_by_class(self, chosen: Mask) -> dict[int, Column]:
        """Return the nodes of the chosen pods, by class."""
        places = np.flatnonzero(chosen)
        if not len(places):
            return {}
        kinds = self.cls[places]
        order = np.argsort(kinds, kind="stable")
        kinds, nodes = kinds[order], self.node[places][order]
        starts = np.flatnonzero(np.r_[True, kinds[1:] != kinds[:-1]])
        parts = np.split(nodes, starts[1:])
        return dict(zip(kinds[starts].tolist(), parts, strict=True))
