"""Pods as columns: for each pod of the cluster its class, its flags and its node, as integers.

Pod objects that the previous snapshot has read are found by their position or identity in a few array operations, so
only new objects cost anything. Room, topology counts and views are sums and sorts over these columns. Decides nothing.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.model.listing import Listing
from dovetail.model.objects import Pod, PodSpec
from dovetail.scheduling.changes import carried
from dovetail.scheduling.launch.daemons import newest_after, newest_by_owner
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.pods.classes import (
    DAEMON,
    TERMINAL,
    TERMINATING,
    Classes,
    PodClass,
    SpecInfo,
    flags_of,
    pod_key,
)
from dovetail.scheduling.pods.requests import resized_spec

CountedSpec = Callable[[Pod], PodSpec]
"""The spec that the scheduler counts with, of a pod."""

Value = TypeVar("Value")
Column = npt.NDArray[np.int64]
_SHORT = 1 << 16
_MANY = 1000
_FEW = 8
"""The pods of so many nodes are found one by one before all pods are sorted by node."""


def _in_memory(pods: Sequence[Pod]) -> list[int]:
    """Return the indexes of pods in the order in which they lie in memory, in which reading all of them is fastest."""
    if len(pods) < _MANY:
        return list(range(len(pods)))
    order: list[int] = np.argsort(np.fromiter(map(id, pods), dtype=np.int64, count=len(pods))).tolist()
    return order


class ByNode(Generic[Value]):
    """The values of a column for the pods of each node: slices of one list are faster than those of an array."""

    __slots__ = ("_edges", "_values")

    def __init__(self, values: list[Value], edges: list[int]) -> None:
        self._values, self._edges = values, edges

    def __getitem__(self, node: int) -> list[Value]:
        return self._values[self._edges[node] : self._edges[node + 1]]


class Listed(NamedTuple):
    """Columns as lists: indexes, flags and oddness of the pods of each node, and the numbers of all pods' classes."""

    places: ByNode[int]
    flags: ByNode[int]
    odd: ByNode[bool]
    classes: list[int]


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

    `odd`: pods with annotations or a priority; all others cost the same to evict, and object to nothing. `changed`: the
    numbers of nodes whose pods are not those of the bindings before, None: any may be; `same_daemons`: no pod of a
    DaemonSet came or went since then.
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
        self._by_id: tuple[Column, Column] | None = None
        self.cls: Column
        self.flags: Column
        self.at: Column
        self.odd: Mask
        self._kinds: tuple[list[int], list[Pod]] | None = None
        self.changed: set[int] | None = None
        self.same_daemons = False
        self._codes: array[int] | None = None
        self._listed: Listed | None = None
        self._newest: dict[str, Pod] | None = None
        if old is None or not len(old.pods):
            self._start(len(pods))
            self._kinds = self._read(range(len(pods)), tuple(pods), names)
        else:
            self._follow(old, names)

    def _start(self, count: int) -> None:
        self.cls = np.full(count, -1, dtype=np.int64)
        self.flags = np.zeros(count, dtype=np.int64)
        self.at = np.zeros(count, dtype=np.int64)
        self.odd = np.zeros(count, dtype=np.bool_)

    def _follow(self, old: "Bindings", names: NodeNames) -> None:
        """Take over the columns of pods that are the same objects, and read the others."""
        columns: tuple[npt.NDArray[Any], ...] = (old.cls, old.flags, old.at, old.odd)
        fresh: Sequence[int]
        gone: Sequence[int]
        follows = isinstance(self.pods, Listing) and self.pods.follows(old.pods)
        if isinstance(self.pods, Listing) and follows:
            self.cls, self.flags, self.at, self.odd = carried(columns, self.pods)
            fresh, gone, new = self.pods.new_at, self.pods.gone_at, self.pods.new
        else:
            was = self._places_in(old)
            # A pod that was not there (-1) gets the last pod's values until it is read.
            self.cls, self.flags, self.at, self.odd = (column[was] for column in columns)
            fresh = np.flatnonzero(was < 0).tolist()
            stays = np.zeros(len(old.pods) + 1, dtype=np.bool_)
            stays[was] = True
            gone = np.flatnonzero(~stays[:-1]).tolist()
            new = [self.pods[place] for place in fresh]
        self.cls[fresh] = -1
        if fresh:
            self._read(fresh, new, names)
        self.changed = {*self.at[fresh].tolist(), *old.at[gone].tolist()}
        came, went = self._daemons_at(fresh), old._daemons_at(gone)
        self.same_daemons = not came and not went
        if old._newest is not None and (self.same_daemons or follows):
            self._newest = newest_after(old._newest, went, came)

    def _daemons_at(self, places: Sequence[int]) -> list[Pod]:
        """Return the pods of DaemonSets at these places."""
        return [self.pods[places[here]] for here in np.flatnonzero(self.flags[places] & DAEMON).tolist()]

    @property
    def newest_daemons(self) -> Mapping[str, Pod]:
        """Return the newest pod of each DaemonSet, by its uid."""
        if self._newest is None:
            self._newest = newest_by_owner(self.pods[at] for at in np.flatnonzero(self.daemons).tolist())
        return self._newest

    def again(self) -> "Bindings":
        """Return the same pods, not yet assigned to node indexes."""
        other = copy(self)
        other.changed, other.same_daemons = set(), True
        return other

    def counts_like(self, old: "Bindings") -> bool:
        """Return whether simulations see no difference between these pods and others, but for those of DaemonSets."""
        return (
            np.array_equal(self.cls, old.cls)
            and np.array_equal(self.node, old.node)
            and np.array_equal(self.flags, old.flags)
        )

    def was_at(self, codes: "array[int]") -> Column:
        """Return the places that nodes had when pods were assigned, given the numbers of their names; -1: none."""
        numbers = np.frombuffer(codes, dtype=np.int64)
        found: Column = np.append(self._places, -1)[np.minimum(numbers, len(self._places))]
        return found

    def _places_in(self, old: "Bindings") -> Column:
        """Return the previous index of each pod; -1 if it is not the same object."""
        # The old snapshot's pods are alive, so an equal id means the same object. Sorted ids are found several times
        # faster.
        ids, places = self._ids()
        was = np.empty(len(self.pods), dtype=np.int64)
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

    def _read(self, places: Sequence[int], pods: Sequence[Pod], names: NodeNames) -> tuple[list[int], list[Pod]]:
        """Read the pods at these places; classes are numbered in the order of the places.

        Return the number of each pod's kind, and the first pod of each kind.
        """
        where = np.fromiter(places, dtype=np.int64, count=len(places))
        kinds = self._sort_out(where, pods, names)
        first_of = dict(zip(reversed(kinds), reversed(range(len(kinds))), strict=True))
        firsts = sorted(first_of.values())
        classes, spec_of, flags = self._classes, self._spec_of, self.flags
        infos: dict[int, SpecInfo] = {}
        for here in firsts:
            daemon = int(flags[places[here]]) & DAEMON != 0
            infos[kinds[here]] = classes.spec_info(spec_of(pods[here]), daemon=daemon)
        if classes.use_keys(key for info in infos.values() for key in info.keys):
            for place in np.flatnonzero(self.cls >= 0).tolist():
                self.cls[place] = classes.class_of(self.pods[place], classes.all[self.cls[place]].info).id
        own = {kind for kind, info in infos.items() if info.names_claims}  # each pod has a class of its own
        alone = [here for here, kind in enumerate(kinds) if kind in own] if own else []
        ids = {
            here: classes.class_of(pods[here], infos[kinds[here]]).id
            for here in (sorted({*firsts, *alone}) if own else firsts)
        }
        found = {kind: ids[here] for kind, here in first_of.items()}
        self.cls[where] = list(map(found.__getitem__, kinds))
        for here in alone:
            self.cls[places[here]] = ids[here]
        return kinds, [pods[first_of[kind]] for kind in range(len(first_of))]

    def _sort_out(self, where: Column, pods: Sequence[Pod], names: NodeNames) -> list[int]:
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
            key = pod_key(spec, meta, daemon=bits & DAEMON != 0)
            kinds[here] = known.setdefault(key, len(known))
            at[here] = codes.setdefault(spec.node_name, len(codes))
            if meta.annotations or spec.priority:
                odd[here] = 1
        self.flags[where] = flags
        self.at[where] = at
        self.odd[where] = np.frombuffer(odd, dtype=np.bool_)
        return kinds

    def settle(self, codes: "array[int]", names: NodeNames) -> None:
        """Assign pods to node indexes: `codes` are the numbers of the nodes' names, in the nodes' order."""
        if self._codes is codes:
            return
        self._codes = codes
        self._near: dict[int, list[int]] = {}
        self._sought = 0
        self._sorted: tuple[Column, Column] | None = None
        numbers = np.frombuffer(codes, dtype=np.int64)
        places = np.full(len(names), -1, dtype=np.int64)
        places[numbers] = np.arange(len(codes))
        places[0] = -1
        self._places: Column = places
        self.node: Column = places[self.at]
        # If all pods were read anew, all nodes will be asked for.
        self._listed = self._list_all() if self.changed is None else None

    def _list_all(self) -> Listed:
        places = np.arange(len(self.at))
        return Listed(self._list(places), self._list(self.flags), self._list(self.odd), self.cls.tolist())

    def _list(self, column: npt.NDArray[Any]) -> ByNode[Any]:
        order, edges = self._by_node()
        return ByNode(column[order].tolist(), edges.tolist())

    def might(self, holds: Callable[[Pod], bool]) -> ByNode[bool] | None:
        """Return for which pods of each node a condition on their namespace and labels holds; None: maybe for all.

        It is checked once for all pods of a kind. Their kinds are known only if all pods were read anew.
        """
        if self._kinds is None or self.changed is not None:
            return None
        kinds, samples = self._kinds
        return self._list(np.fromiter(map(holds, samples), dtype=np.bool_, count=len(samples))[kinds])

    def look_up(self, nodes: Iterable[int]) -> None:
        """Find the pods of some nodes at once, without sorting those of all nodes."""
        assert self._codes is not None, "pods are assigned to nodes first"
        places = np.fromiter(nodes, dtype=np.int64)
        wanted = np.zeros(len(self._codes) + 1, dtype=np.bool_)
        wanted[places] = True
        pods = np.flatnonzero(wanted[self.node])
        pods = pods[np.argsort(self.node[pods], kind="stable")]
        here = self.node[pods]
        starts = [0, *(np.flatnonzero(here[1:] != here[:-1]) + 1).tolist(), len(pods)]
        listed: list[int] = pods.tolist()
        self._near = {place: [] for place in places.tolist()}
        for begin, end in pairwise(starts) if listed else ():
            self._near[int(here[begin])] = listed[begin:end]

    def _by_node(self) -> tuple[Column, Column]:
        """Return the pods by node, in the order of the cluster, those without a node first; and where each begins."""
        if self._sorted is None:
            assert self._codes is not None, "pods are assigned to nodes first"
            count = len(self._codes)
            edges = np.cumsum(np.bincount(self.node + 1, minlength=count + 1))
            # Short integers are sorted in linear time.
            keys = (self.node + 1).astype(np.uint16) if count < _SHORT else self.node
            self._sorted = np.argsort(keys, kind="stable"), edges
        return self._sorted

    def places_of(self, codes: Iterable[int]) -> list[int]:
        """Return the indexes of nodes, given the numbers of their names; names of no node are left out."""
        return [place for place in self._places[np.fromiter(codes, dtype=np.int64)].tolist() if place >= 0]

    def on_node(self, index: int) -> list[int]:
        """Return the indexes of the pods on a node, in the order of the cluster; don't modify them."""
        if self._listed is not None:
            return self._listed.places[index]
        found = self._near.get(index)
        if found is None and self._sorted is None and self._sought < _FEW:
            self._sought += 1
            found = self._near[index] = np.flatnonzero(self.node == index).tolist()
        elif found is None:
            order, edges = self._by_node()
            found = order[edges[index] : edges[index + 1]].tolist()
        return found

    def on_nodes(self, nodes: Column) -> tuple[list[int], Column]:
        """Return how many pods each of these nodes has, and the indexes of all of them, node by node."""
        found = list(map(self.on_node, nodes.tolist()))
        return list(map(len, found)), np.fromiter(chain.from_iterable(found), dtype=np.int64)

    def marks_on(self, index: int) -> tuple[list[int], list[bool]]:
        """Return the flags of the pods on a node, and which of them are odd, in the order of the cluster."""
        if self._listed is not None:
            return self._listed.flags[index], self._listed.odd[index]
        places = self.on_node(index)
        return self.flags[places].tolist(), self.odd[places].tolist()

    def sums(self, of_class: Column) -> Column:
        """Return the sums over the pods of each node that have not ended, given a row for each class."""
        order, edges = self._by_node()
        first = int(edges[0])
        pods = order[first:]
        columns = of_class.T[:, self.cls[pods]]
        ended = self.ended[pods]
        if ended.any():
            columns[:, ended] = 0
        total = np.zeros((len(columns), len(pods) + 1), dtype=np.int64)
        np.cumsum(columns, axis=1, out=total[:, 1:])
        at = total[:, edges - first]
        found: Column = np.ascontiguousarray((at[:, 1:] - at[:, :-1]).T)
        return found

    def class_at(self, place: int) -> PodClass:
        """Return the class of the pod at an index."""
        return self._classes.all[int(self.cls[place])]

    def classes_at(self, places: list[int]) -> list[PodClass]:
        """Return the classes of the pods at these indexes."""
        known = self._classes.all
        if self._listed is None:
            return [known[number] for number in self.cls[places].tolist()]
        numbers = self._listed.classes
        return [known[numbers[place]] for place in places]

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
