"""What the engine knows about the cluster: objects by kind, updated by events, returned as an immutable `Cluster`.

Decides nothing about nodes, only which of two observations of one object is newer. An object that is observed again
with only another resource version keeps its identity and doesn't change any version, so "nothing changed" is one
comparison of numbers and a snapshot may reuse everything derived from an unchanged object. Costs: observe and vanish
O(1), `cluster()` O(1) when nothing changed and else a search per change. Sits at the bottom of lifecycle; `engine`
feeds it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from dovetail.lifecycle.column import Column, Place
from dovetail.lifecycle.commands.marks import Marks
from dovetail.model import names
from dovetail.model.cluster import FIELD_OF, Cluster
from dovetail.model.objects import KINDS, AnyObject, Deployment, Node, NodeClaim, NodePool, Pod, ReplicaSet, StatefulSet

_Kind = TypeVar("_Kind", bound=AnyObject)
_META_FIELDS: Final = tuple(
    name for name in type(NodePool().metadata).__struct_fields__ if name not in {"resource_version", "generation"}
)
_TOMBSTONES_MAX: Final = 20_000
_TERMINAL: Final = ("Succeeded", "Failed")


class Store:
    """The mutable view. `version` grows with every change that a decision could see.

    `marks` are the objects that carry a command's record or the disruption taint; `steered_pods` and `closing_nodes`
    those that carry a mark of steering. `claims_seen` counts the NodeClaims that have come so far.
    """

    def __init__(self) -> None:
        self._columns: dict[type, Column] = {kind: Column() for kind in FIELD_OF}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._cluster: Cluster | None = None
        self._claims_of_machine: dict[str, dict[str, None]] = {}
        self._nodes_of_machine: dict[str, dict[str, None]] = {}
        self._claim_numbers: dict[Place, int] = {}
        self.claims_seen = 0
        self._unlaunched: dict[Place, None] = {}
        self._nodes_of_pool: dict[str, dict[str, None]] = {}
        self._pods_of_node: dict[str, dict[Place, None]] = {}
        self._pods_on: dict[str, tuple[Pod, ...]] = {}
        self._pending: dict[Place, None] = {}
        self._pending_pods: tuple[Pod, ...] | None = ()
        self._pods_of_owner: dict[str, dict[Place, None]] | None = None
        self._workloads: dict[str, ReplicaSet | StatefulSet] = {}
        self.marks = Marks()
        self.steered_pods: dict[Place, None] = {}
        self.closing_nodes: dict[str, None] = {}
        self.version = 0

    # ------------------------------------------------------------ feeding

    def observe(self, item: AnyObject) -> bool:
        """Record an observation of an object; False if it is not news: repeated, late, or only another version."""
        kind, meta = type(item), item.metadata
        place = (meta.namespace, meta.name)
        if meta.uid and meta.uid in self._gone:
            return False
        column = self._columns[kind]
        old = column.by_place.get(place)
        if old is not None:
            if old.metadata.uid == meta.uid and _is_older(meta.resource_version, column.seen[place]):
                return False
            if old.metadata.uid != meta.uid:
                self._bury(old.metadata.uid)
            column.seen[place] = meta.resource_version
            if _same(old, item):
                return False
            self._forget(old, place)
        elif kind is NodeClaim:
            self.claims_seen += 1
            self._claim_numbers[place] = self.claims_seen
        column.seen[place] = meta.resource_version
        column.put(place, item)
        self._learn(item, place)
        self._touch()
        return True

    def vanish(self, kind: str, namespace: str, name: str, uid: str = "") -> AnyObject | None:
        """Remove an object and return it. The end of an older object with the same name changes nothing."""
        column, place = self._columns[KINDS[kind]], (namespace, name)
        if uid:
            self._bury(uid)
        old = column.by_place.get(place)
        if old is None or (uid and old.metadata.uid and old.metadata.uid != uid):
            return None
        self._bury(old.metadata.uid)
        column.drop(place)
        if isinstance(old, NodeClaim):
            del self._claim_numbers[place]
        self._forget(old, place)
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
            self._gone.popitem(last=False)

    # ------------------------------------------------------------ indexes

    def _learn(self, item: AnyObject, place: Place) -> None:
        if isinstance(item, Pod):
            if names.STEERING_MARK in item.metadata.annotations:
                self.steered_pods[place] = None
            if self._pods_of_owner is not None:
                _learn_owners(self._pods_of_owner, item, place)
            node = item.spec.node_name
            if node:
                self._pods_of_node.setdefault(node, {})[place] = None
                self._pods_on.pop(node, None)
            elif item.metadata.deletion_timestamp is None and item.status.phase not in _TERMINAL:
                self._pending[place] = None
                self._pending_pods = None
        elif isinstance(item, NodeClaim):
            status = item.status
            _add(self._claims_of_machine, status.provider_id, item.metadata.name)
            if not status.provider_id and not status.node_name and item.metadata.deletion_timestamp is None:
                self._unlaunched[place] = None
            self.marks.learn(item)
        elif isinstance(item, Node):
            pool = item.metadata.labels.get(names.NODEPOOL, "")
            self._nodes_of_pool.setdefault(pool, {})[item.metadata.name] = None
            _add(self._nodes_of_machine, item.spec.provider_id, item.metadata.name)
            if any(taint.key == names.CLOSING_TAINT for taint in item.spec.taints):
                self.closing_nodes[item.metadata.name] = None
            self.marks.learn(item)
        elif isinstance(item, ReplicaSet | StatefulSet):
            self._workloads[item.metadata.uid] = item

    def _forget(self, item: AnyObject, place: Place) -> None:
        if isinstance(item, Pod):
            self.steered_pods.pop(place, None)
            if self._pods_of_owner is not None:
                _forget_owners(self._pods_of_owner, item, place)
            node = item.spec.node_name
            if node:
                del self._pods_of_node[node][place]
                self._pods_on.pop(node, None)
                if not self._pods_of_node[node]:
                    del self._pods_of_node[node]
            elif place in self._pending:
                del self._pending[place]
                self._pending_pods = None
        elif isinstance(item, NodeClaim):
            _remove(self._claims_of_machine, item.status.provider_id, item.metadata.name)
            self._unlaunched.pop(place, None)
            self.marks.forget(item)
        elif isinstance(item, Node):
            pool = item.metadata.labels.get(names.NODEPOOL, "")
            nodes = self._nodes_of_pool[pool]
            del nodes[item.metadata.name]
            if not nodes:
                del self._nodes_of_pool[pool]
            _remove(self._nodes_of_machine, item.spec.provider_id, item.metadata.name)
            self.marks.forget(item)
            self.closing_nodes.pop(item.metadata.name, None)
        elif isinstance(item, ReplicaSet | StatefulSet) and self._workloads.get(item.metadata.uid) is item:
            del self._workloads[item.metadata.uid]

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
            fields = {FIELD_OF[kind]: column.listed() for kind, column in self._columns.items()}
            self._cluster = Cluster(**fields)  # type: ignore[arg-type]
        return self._cluster

    def get(self, kind: type[_Kind], name: str, namespace: str = "") -> _Kind | None:
        """Return the object of that kind and name, or None."""
        return self._columns[kind].by_place.get((namespace, name))  # type: ignore[return-value]

    def has_machine(self, name: str) -> bool:
        """Return whether a node or a NodeClaim of that name is known."""
        return self.get(Node, name) is not None or self.get(NodeClaim, name) is not None

    def node_pools(self) -> Sequence[NodePool]:
        """Return all pools, by name."""
        return self._columns[NodePool].listed()  # type: ignore[return-value]

    def nodes(self) -> Sequence[Node]:
        """Return all nodes, by name."""
        return self._columns[Node].listed()  # type: ignore[return-value]

    def node_claims(self) -> Sequence[NodeClaim]:
        """Return all NodeClaims, by name."""
        return self._columns[NodeClaim].listed()  # type: ignore[return-value]

    def deployments(self) -> Sequence[Deployment]:
        """Return all Deployments, by place."""
        return self._columns[Deployment].listed()  # type: ignore[return-value]

    def replica_sets(self) -> Sequence[ReplicaSet]:
        """Return all ReplicaSets, by place."""
        return self._columns[ReplicaSet].listed()  # type: ignore[return-value]

    def nodes_of(self, pool: str) -> list[str]:
        """Return the names of a pool's nodes, in order."""
        return sorted(self._nodes_of_pool.get(pool, ()))

    def claim_of(self, node: str) -> NodeClaim | None:
        """Return the NodeClaim of a node, or None.

        They belong together if they have the same provider id, as in Karpenter: names of nodes are used again. None
        also if several have it, since nothing says which of them is meant.
        """
        found = self.get(Node, node)
        machine = "" if found is None else found.spec.provider_id
        claims = self._claims_of_machine.get(machine, {})
        if len(claims) != 1 or len(self._nodes_of_machine[machine]) != 1:
            return None
        return self.get(NodeClaim, next(iter(claims)))

    def nodes_of_claims(self, claims: Iterable[str]) -> list[str]:
        """Return the names of the nodes of those NodeClaims that have one, also of a Node that is not seen yet."""
        found: list[str] = []
        for claim in (self.get(NodeClaim, name) for name in claims):
            if claim is not None:
                name = claim.status.node_name
                found += self._nodes_of_machine.get(claim.status.provider_id, ())
                found += [name] if name and self.get(Node, name) is None else []
        return found

    def claims_after(self, number: int) -> Iterator[tuple[int, NodeClaim]]:
        """Yield the NodeClaims that came after the first so many (`claims_seen`), numbered, the last one first."""
        claims = self._columns[NodeClaim].by_place
        for place, came in reversed(self._claim_numbers.items()):
            if came <= number:
                return
            yield came, claims[place]  # type: ignore[misc]

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods bound to a node, in order; the same tuple until one of them changes."""
        found = self._pods_on.get(node)
        if found is None:
            places = self._pods_of_node.get(node)
            if places is None:
                return ()
            found = self._pods_on[node] = self._pods_at(places)
        return found

    def pending_pods(self) -> tuple[Pod, ...]:
        """Return the pods that wait for a node, in order; the same tuple until one of them changes."""
        if self._pending_pods is None:
            self._pending_pods = self._pods_at(self._pending)
        return self._pending_pods

    def pods_owned_by(self, uid: str) -> Iterator[Pod]:
        """Yield the pods that name this owner. The first question makes the index; from then on it is kept."""
        pods = self._columns[Pod].by_place
        if self._pods_of_owner is None:
            self._pods_of_owner = {}
            for place, item in pods.items():
                _learn_owners(self._pods_of_owner, item, place)  # type: ignore[arg-type]
        for place in self._pods_of_owner.get(uid, ()):
            yield pods[place]  # type: ignore[misc]

    def workload(self, uid: str) -> ReplicaSet | StatefulSet | None:
        """Return the ReplicaSet or StatefulSet with that uid, or None."""
        return self._workloads.get(uid)

    def has_unlaunched(self) -> bool:
        """Return whether some NodeClaim that stays has no known machine yet."""
        return bool(self._unlaunched)

    def _pods_at(self, places: Iterable[Place]) -> tuple[Pod, ...]:
        pods = self._columns[Pod].by_place
        return tuple([pods[place] for place in sorted(places)])  # type: ignore[misc]


def _add(index: dict[str, dict[str, None]], key: str, name: str) -> None:
    if key:
        index.setdefault(key, {})[name] = None


def _remove(index: dict[str, dict[str, None]], key: str, name: str) -> None:
    if key:
        del index[key][name]
        if not index[key]:
            del index[key]


def _learn_owners(owners: dict[str, dict[Place, None]], pod: Pod, place: Place) -> None:
    for owner in pod.metadata.owner_references:
        owners.setdefault(owner.uid, {})[place] = None


def _forget_owners(owners: dict[str, dict[Place, None]], pod: Pod, place: Place) -> None:
    for uid in {owner.uid: None for owner in pod.metadata.owner_references}:
        del owners[uid][place]
        if not owners[uid]:
            del owners[uid]


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
