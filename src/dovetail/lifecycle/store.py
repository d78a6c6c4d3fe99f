"""What the engine knows about the cluster: objects by kind, updated by events, returned as an immutable `Cluster`.

Decides nothing about nodes, only which of two observations of one object is newer. An object that is observed again
with only another resource version keeps its identity and doesn't change any version, so "nothing changed" is one
comparison of numbers and a snapshot may reuse everything derived from an unchanged object. Costs: observe and vanish
O(log n) to find the place, `cluster()` O(1) when nothing changed and else one copy of a pointer array per kind that
did. Sits at the bottom of lifecycle; `engine` feeds it.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from dovetail.lifecycle.commands.records import is_tainted
from dovetail.model import names
from dovetail.model.cluster import FIELD_OF, Cluster
from dovetail.model.listing import Listing
from dovetail.model.objects import KINDS, AnyObject, Node, NodeClaim, NodePool, Pod

Place = tuple[str, str]
_Kind = TypeVar("_Kind", bound=AnyObject)
_META_FIELDS: Final = tuple(
    name for name in type(NodePool().metadata).__struct_fields__ if name not in {"resource_version", "generation"}
)
_TOMBSTONES_MAX: Final = 20_000
_TERMINAL: Final = ("Succeeded", "Failed")
_NOWHERE: Final = -1
"""The place of an object that was not in the listing before (`Listing.origin`)."""


class _Column:
    """All objects of one kind, sorted by (namespace, name)."""

    __slots__ = ("_last", "_numbers", "_origin", "_tuple", "by_place", "items", "places", "version")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.items: list[AnyObject] = []
        self.by_place: dict[Place, AnyObject] = {}
        self.version = 0
        self._tuple: tuple[AnyObject, ...] | None = ()
        self._last: object = None
        self._origin = array("q")
        self._numbers = array("q")

    def find(self, place: Place) -> int | None:
        at = bisect_left(self.places, place)
        return at if at < len(self.places) and self.places[at] == place else None

    def put(self, place: Place, item: AnyObject) -> None:
        at = bisect_left(self.places, place)
        if at < len(self.places) and self.places[at] == place:
            self.items[at] = item
            self._origin[at] = _NOWHERE
        else:
            self.places.insert(at, place)
            self.items.insert(at, item)
            self._origin.insert(at, _NOWHERE)
        self.by_place[place] = item
        self._changed()

    def drop(self, at: int) -> None:
        del self.by_place[self.places[at]]
        del self.places[at]
        del self.items[at]
        del self._origin[at]
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._tuple = None

    def as_tuple(self) -> tuple[AnyObject, ...]:
        if self._tuple is None:
            listing = Listing.of(self.items, self._last, self._origin)
            self._tuple, self._last = listing, listing.mark
            if len(self._numbers) < len(listing):
                self._numbers = array("q", range(2 * len(listing)))
            self._origin = self._numbers[: len(listing)]
        return self._tuple


class Store:
    """The mutable view. `version` grows with every change that a decision could see.

    `marked_nodes` and `marked_claims` are those that carry a command's record or the disruption taint; `steered_pods`
    and `closing_nodes` those that carry a mark of steering.
    """

    def __init__(self) -> None:
        self._columns: dict[type, _Column] = {kind: _Column() for kind in FIELD_OF}
        self._resource_versions: dict[tuple[type, Place], str] = {}
        self._gone: dict[str, None] = {}
        self._cluster: Cluster | None = None
        self._claim_of_node: dict[str, str] = {}
        self._nodes_of_pool: dict[str, dict[str, None]] = {}
        self._pods_of_node: dict[str, dict[Place, None]] = {}
        self._pending: dict[Place, None] = {}
        self.marked_nodes: dict[str, None] = {}
        self.marked_claims: dict[str, None] = {}
        self.marks_version = 0
        self.steered_pods: dict[Place, None] = {}
        self.closing_nodes: dict[str, None] = {}
        self.version = 0
        self._vanished = 0

    # ------------------------------------------------------------ feeding

    def observe(self, item: AnyObject) -> bool:
        """Record an observation of an object; False if it is not news: repeated, late, or only another version."""
        kind, meta = type(item), item.metadata
        place = (meta.namespace, meta.name)
        if meta.uid and meta.uid in self._gone:
            return False
        column = self._columns[kind]
        at = column.find(place)
        if at is not None:
            old = column.items[at]
            if old.metadata.uid == meta.uid and _is_older(meta.resource_version, self._resource_versions[kind, place]):
                return False
            if old.metadata.uid != meta.uid:
                self._bury(old.metadata.uid)
            self._resource_versions[kind, place] = meta.resource_version
            if _same(old, item):
                return False
            self._forget(old, place)
        self._resource_versions[kind, place] = meta.resource_version
        column.put(place, item)
        self._learn(item, place)
        self._touch()
        return True

    def vanish(self, kind: str, namespace: str, name: str, uid: str = "") -> AnyObject | None:
        """Remove an object and return it. The end of an older object with the same name changes nothing."""
        column, place = self._columns[KINDS[kind]], (namespace, name)
        if uid:
            self._bury(uid)
        at = column.find(place)
        if at is None:
            return None
        old = column.items[at]
        if uid and old.metadata.uid and old.metadata.uid != uid:
            return None
        self._bury(old.metadata.uid)
        column.drop(at)
        del self._resource_versions[KINDS[kind], place]
        self._forget(old, place)
        self._vanished += 1
        self._touch()
        return old

    def _touch(self) -> None:
        self.version += 1
        self._cluster = None

    def _bury(self, uid: str) -> None:
        """Remember that exactly this object is gone; the memory is bounded, oldest first."""
        if not uid:
            return
        self._gone[uid] = None
        if len(self._gone) > _TOMBSTONES_MAX:
            del self._gone[next(iter(self._gone))]

    # ------------------------------------------------------------ indexes

    def _learn(self, item: AnyObject, place: Place) -> None:
        if isinstance(item, Pod):
            if names.STEERING_MARK in item.metadata.annotations:
                self.steered_pods[place] = None
            node = item.spec.node_name
            if node:
                self._pods_of_node.setdefault(node, {})[place] = None
            elif item.metadata.deletion_timestamp is None and item.status.phase not in _TERMINAL:
                self._pending[place] = None
        elif isinstance(item, NodeClaim):
            if item.status.node_name:
                self._claim_of_node[item.status.node_name] = item.metadata.name
            if names.COMMAND in item.metadata.annotations:
                self.marked_claims[item.metadata.name] = None
                self.marks_version += 1
        elif isinstance(item, Node):
            pool = item.metadata.labels.get(names.NODEPOOL, "")
            self._nodes_of_pool.setdefault(pool, {})[item.metadata.name] = None
            if any(taint.key == names.CLOSING_TAINT for taint in item.spec.taints):
                self.closing_nodes[item.metadata.name] = None
            if names.COMMAND in item.metadata.annotations or is_tainted(item):
                self.marked_nodes[item.metadata.name] = None
                self.marks_version += 1

    def _forget(self, item: AnyObject, place: Place) -> None:
        if isinstance(item, Pod):
            self._pending.pop(place, None)
            self.steered_pods.pop(place, None)
            pods = self._pods_of_node.get(item.spec.node_name)
            if pods is not None:
                pods.pop(place, None)
                if not pods:
                    del self._pods_of_node[item.spec.node_name]
        elif isinstance(item, NodeClaim):
            if self._claim_of_node.get(item.status.node_name) == item.metadata.name:
                del self._claim_of_node[item.status.node_name]
            self._unmark(self.marked_claims, item.metadata.name)
        elif isinstance(item, Node):
            pool = item.metadata.labels.get(names.NODEPOOL, "")
            nodes = self._nodes_of_pool[pool]
            del nodes[item.metadata.name]
            if not nodes:
                del self._nodes_of_pool[pool]
            self._unmark(self.marked_nodes, item.metadata.name)
            self.closing_nodes.pop(item.metadata.name, None)

    def _unmark(self, marked: dict[str, None], name: str) -> None:
        if name in marked:
            del marked[name]
            self.marks_version += 1

    # ------------------------------------------------------------ asking

    def version_of(self, kind: type[AnyObject]) -> int:
        """Return the version of one kind."""
        return self._columns[kind].version

    def versions(self) -> dict[str, int]:
        """Return the version of each kind, by the field of `Cluster` that holds it."""
        return {FIELD_OF[kind]: column.version for kind, column in self._columns.items()}

    def cluster(self) -> Cluster:
        """Return the cluster as it is known now; the same object until something changes."""
        if self._cluster is None:
            fields = {FIELD_OF[kind]: column.as_tuple() for kind, column in self._columns.items()}
            self._cluster = Cluster(**fields)  # type: ignore[arg-type]
        return self._cluster

    def get(self, kind: type[_Kind], name: str, namespace: str = "") -> _Kind | None:
        """Return the object of that kind and name, or None."""
        return self._columns[kind].by_place.get((namespace, name))  # type: ignore[return-value]

    def has_machine(self, name: str) -> bool:
        """Return whether a node or a NodeClaim of that name is known."""
        return self.get(Node, name) is not None or self.get(NodeClaim, name) is not None

    def count_gone(self) -> int:
        """Return how many objects were taken out so far."""
        return self._vanished

    def node_pools(self) -> tuple[NodePool, ...]:
        """Return all pools, by name."""
        return self._columns[NodePool].as_tuple()  # type: ignore[return-value]

    def nodes(self) -> tuple[Node, ...]:
        """Return all nodes, by name."""
        return self._columns[Node].as_tuple()  # type: ignore[return-value]

    def node_claims(self) -> tuple[NodeClaim, ...]:
        """Return all NodeClaims, by name."""
        return self._columns[NodeClaim].as_tuple()  # type: ignore[return-value]

    def nodes_of(self, pool: str) -> list[str]:
        """Return the names of a pool's nodes, in order."""
        return sorted(self._nodes_of_pool.get(pool, ()))

    def claim_of(self, node: str) -> NodeClaim | None:
        """Return the NodeClaim of a node, or None."""
        name = self._claim_of_node.get(node)
        return None if name is None else self.get(NodeClaim, name)

    def pods_on(self, node: str) -> Iterator[Pod]:
        """Yield the pods bound to a node, in order."""
        return self._pods_at(self._pods_of_node.get(node, ()))

    def pending_pods(self) -> Iterator[Pod]:
        """Yield the pods that wait for a node, in order."""
        return self._pods_at(self._pending)

    def _pods_at(self, places: Iterable[Place]) -> Iterator[Pod]:
        pods = self._columns[Pod].by_place
        for place in sorted(places):
            yield pods[place]  # type: ignore[misc]


def _is_older(new: str, known: str) -> bool:
    """Return whether a resource version is older than another.

    Only numbers can be compared, anything else counts as newer.
    """
    return new.isdigit() and known.isdigit() and int(new) < int(known)


def _same(old: AnyObject, new: AnyObject) -> bool:
    """Return whether two observations differ only in their resource version."""
    for name in old.__struct_fields__:
        if name != "metadata" and getattr(old, name) != getattr(new, name):
            return False
    return all(getattr(old.metadata, name) == getattr(new.metadata, name) for name in _META_FIELDS)
