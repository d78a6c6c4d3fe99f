"""What Karpenter's provisioner sees of the simulated cluster: its objects as listings that follow what changed.

Changes that placing pods can't see are not followed at all: a pod that has started, a budget's counts, a NodeClaim that
became consolidatable. Each look costs as much as has changed since the last one. Decides nothing.
"""

from typing import Final

from msgspec.structs import replace

from dovetail.lifecycle.column import Column, Place
from dovetail.model import names
from dovetail.model.cluster import FIELD_OF, Cluster
from dovetail.model.objects import (
    KINDS,
    AnyObject,
    Condition,
    Node,
    NodeClaim,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    is_true,
)
from dovetail.sim.world.store import Change, WorldStore

_ENDED: Final = ("Succeeded", "Failed")


class KarpenterView:
    """The cluster as Karpenter's scheduler sees it."""

    def __init__(self, store: WorldStore) -> None:
        self._store = store
        self._columns: dict[str, Column] = {name: Column() for name, kind in KINDS.items() if kind in FIELD_OF}
        self._stale: dict[str, dict[str, None]] = {name: {} for name in self._columns}
        self.moved = self._stale["Pod"]
        """For the keys of pods that moved, which placing pods can always see."""

    def note(self, change: Change) -> None:
        """Note a change, unless placing pods can't see it."""
        stale = self._stale[change.kind]
        if change.key not in stale and (change.old is None or change.new is None or _can_see(change.old, change.new)):
            stale[change.key] = None

    @property
    def is_stale(self) -> bool:
        """Return whether something that placing pods can see has changed since the last look."""
        return any(self._stale.values())

    def cluster(self) -> Cluster:
        """Return everything, as decisions take it; what is unchanged is the same as at the last look."""
        if self._stale["PodDisruptionBudget"]:
            self._store.on_settle()
        for kind, stale in self._stale.items():
            column, items = self._columns[kind], self._store.by_kind[kind]
            for key in stale:
                item = items.get(key)
                if item is not None:
                    place = (item.metadata.namespace, item.metadata.name)  # texts that are already known are faster
                    column.put(place, as_karpenter_sees(item) if isinstance(item, Node) else item)
                elif (place := _place(key)) in column.by_place:
                    column.drop(place)
            stale.clear()
        fields = {FIELD_OF[KINDS[kind]]: column.listed() for kind, column in self._columns.items()}
        return Cluster(**fields)  # type: ignore[arg-type]


def as_karpenter_sees(node: Node) -> Node:
    """Return a node as Karpenter sees it: Dovetail's taint keeps pods out but does not mean that the node leaves."""
    if not any(taint.key == names.DISRUPTION_TAINT for taint in node.spec.taints):
        return node
    taints = tuple(
        replace(taint, key="dovetail.dev/closed") if taint.key == names.DISRUPTION_TAINT else taint
        for taint in node.spec.taints
    )
    return replace(node, spec=replace(node.spec, taints=taints))


def _place(key: str) -> Place:
    namespace, _, name = key.rpartition("/")
    return namespace, name


def _can_see(old: AnyObject, new: AnyObject) -> bool:
    """Return whether placing pods can tell two versions of an object apart; in doubt, it can."""
    if isinstance(new, Pod) and isinstance(old, Pod):
        return not (_only_started(old, new) and _same_meta(old.metadata, new.metadata))
    if isinstance(new, PodDisruptionBudget) and isinstance(old, PodDisruptionBudget):
        return old.spec is not new.spec and old.spec != new.spec  # what it never allows counts, not what it allows now
    if isinstance(new, NodeClaim) and isinstance(old, NodeClaim):
        return not (_same_meta(old.metadata, new.metadata) and _only_consolidatable(old, new))
    return True


def _same_meta(old: ObjectMeta, new: ObjectMeta) -> bool:
    return (
        old.uid == new.uid
        and old.labels is new.labels
        and old.annotations is new.annotations
        and old.owner_references is new.owner_references
        and old.deletion_timestamp == new.deletion_timestamp
    )


def _only_started(old: Pod, new: Pod) -> bool:
    """Return whether a pod on a node has at most started, or become ready; its annotations could count from then."""
    then, now = old.status, new.status
    return (
        old.spec is new.spec
        and new.spec.node_name != ""
        and not new.metadata.annotations
        and (then.phase in _ENDED) == (now.phase in _ENDED)
        and not (now.container_statuses or now.init_container_statuses)
        and not (then.container_statuses or then.init_container_statuses)
        and is_true(now.conditions, "Ready")
        and all(entry.type != "Ready" or entry.status == "True" for entry in then.conditions)
    )


def _only_consolidatable(old: NodeClaim, new: NodeClaim) -> bool:
    """Return whether at most its pod events, or whether it is consolidatable, differ."""
    then, now = old.status, new.status
    return (
        old.spec is new.spec
        and then.provider_id == now.provider_id
        and then.node_name == now.node_name
        and then.capacity is now.capacity
        and then.allocatable is now.allocatable
        and _lasting(then.conditions) == _lasting(now.conditions)
    )


def _lasting(conditions: tuple[Condition, ...]) -> list[Condition]:
    return [entry for entry in conditions if entry.type != names.CONDITION_CONSOLIDATABLE]
