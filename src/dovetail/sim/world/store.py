"""The simulated API server: objects by kind, their versions, and listeners for changes.

Decides nothing. It keeps the few indexes that make every reaction cost only what changed: pods by node, pods by owner,
the NodeClaim of a node. Listeners are called at once and in the order in which they were registered; use the clock to
act later. Listeners of pods may name the steps (`sim.world.steps`) that they follow. Statuses are for controllers,
which listen to everything: before there is one they may be written late (`on_settle` brings them up to date, and is
called before anybody looks).
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.objects import (
    KINDS,
    AnyObject,
    Node,
    NodeClaim,
    NodePool,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
)
from dovetail.sim.world.steps import EVERY, WENT, steps_between

Stored = TypeVar("Stored", bound=AnyObject)


class Change(Struct, frozen=True, gc=False):
    """An object is new (`old` is None), different, or gone (`new` is None)."""

    kind: str
    key: str
    old: AnyObject | None
    new: AnyObject | None


Listener = Callable[[Change], None]
KIND_OF: dict[type, str] = {kind: name for name, kind in KINDS.items()}


def key_of(metadata: ObjectMeta) -> str:
    """Return `namespace/name`, or the name alone where there is no namespace."""
    return metadata.key if metadata.namespace else metadata.name


class WorldStore:
    """All objects of the simulated cluster."""

    def __init__(self) -> None:
        self.by_kind: dict[str, dict[str, AnyObject]] = {kind: {} for kind in KINDS}
        self.pods = cast("dict[str, Pod]", self.by_kind["Pod"])
        self.nodes = cast("dict[str, Node]", self.by_kind["Node"])
        self.claims = cast("dict[str, NodeClaim]", self.by_kind["NodeClaim"])
        self.pools = cast("dict[str, NodePool]", self.by_kind["NodePool"])
        self.pods_on: dict[str, dict[str, Pod]] = {}
        self.claim_of: dict[str, str] = {}
        self.versions = 0
        self._uids = 0
        self.is_watched = False  # somebody listens to everything, as controllers do
        self.on_settle: Callable[[], None] = lambda: None
        self._listeners: dict[str, tuple[Listener, ...]] = dict.fromkeys(KINDS, ())
        self._of_pods: list[tuple[Listener, int]] = []
        self._by_steps: dict[int, tuple[Listener, ...]] = {}

    @property
    def pdbs(self) -> dict[str, PodDisruptionBudget]:
        """Return the budgets, with their statuses up to date."""
        self.on_settle()
        return cast("dict[str, PodDisruptionBudget]", self.by_kind["PodDisruptionBudget"])

    def listen(self, listener: Listener, *kinds: str) -> None:
        """Register a listener for every change of objects of these kinds from now on; without kinds: of all."""
        if not kinds:
            self.on_settle()
            self.is_watched = True
        for kind in kinds or KINDS:
            if kind == "Pod":
                self.listen_to_pods(listener, EVERY)
            else:
                self._listeners[kind] = (*self._listeners[kind], listener)

    def listen_to_pods(self, listener: Listener, steps: int) -> None:
        """Register a listener for the changes of pods that include one of these steps."""
        self._of_pods.append((listener, steps))
        self._by_steps.clear()

    def _followers(self, steps: int) -> tuple[Listener, ...]:
        """Return who hears of a change of a pod with these steps."""
        found = self._by_steps.get(steps)
        if found is None:
            found = tuple(listener for listener, followed in self._of_pods if followed & steps)
            self._by_steps[steps] = found
        return found

    def new_uid(self) -> str:
        """Return a new unique uid."""
        self._uids += 1
        return f"uid-{self._uids:08d}"

    def put(self, item: AnyObject, key: str = "", **changes: Any) -> AnyObject:
        """Store an object, new or with these fields changed, under the next version; return it as stored.

        `key`: its key, if known; a dozen indexes find the very string that they hold sooner than another like it.
        """
        if type(item) is Pod:
            return self.put_pod(item, key, **changes)
        kind = KIND_OF[type(item)]
        key = key or key_of(item.metadata)
        items = self.by_kind[kind]
        old = items.get(key)
        new = items[key] = self._renewed(item, changes)
        self._index(kind, key, old, new)
        change = Change(kind, key, old, new)
        for listener in self._listeners[kind]:
            listener(change)
        return new

    def put_pod(self, pod: Pod, key: str = "", **changes: Any) -> Pod:
        """Store a pod, as `put` does."""
        key = key or key_of(pod.metadata)
        old = self.pods.get(key)
        new = self.pods[key] = self._renewed(pod, changes)
        if old is not None or new.spec.node_name:
            self._index_pod(key, old, new)
        steps = steps_between(old, new)
        change = Change("Pod", key, old, new)
        for listener in self._followers(steps):
            listener(change)
        return new

    def _renewed(self, item: Stored, changes: dict[str, Any]) -> Stored:
        """Return an object with these fields changed, under the next version; a new one gets a uid."""
        self.versions += 1
        known = item.metadata
        metadata = replace(known, resource_version=str(self.versions), uid=known.uid or self.new_uid())
        return replace(item, metadata=metadata, **changes)

    def remove(self, kind: str, key: str) -> AnyObject | None:
        """Remove an object and return it; None if it was not there."""
        old = self.by_kind[kind].pop(key, None)
        if old is not None:
            self.versions += 1
            self._index(kind, key, old, None)
            change = Change(kind, key, old, None)
            for listener in self._followers(WENT) if kind == "Pod" else self._listeners[kind]:
                listener(change)
        return old

    def _index_pod(self, key: str, old: Pod | None, new: Pod | None) -> None:
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        if before and before != after:
            self.pods_on.get(before, {}).pop(key, None)
        if new is not None and after:
            there = self.pods_on.get(after)
            if there is None:
                there = self.pods_on[after] = {}
            there[key] = new

    def _index(self, kind: str, key: str, old: Any, new: Any) -> None:
        if kind == "Pod":
            self._index_pod(key, old, new)
        elif kind == "NodeClaim":
            before = old.status.node_name if old is not None else ""
            after = new.status.node_name if new is not None else ""
            if before and before != after:
                self.claim_of.pop(before, None)
            if after:
                self.claim_of[after] = key
        elif kind == "Node" and new is None and not self.pods_on.get(key):
            self.pods_on.pop(key, None)

    def all(self) -> Iterable[AnyObject]:
        """Return every object, by kind, then by key."""
        self.on_settle()
        for kind in sorted(self.by_kind):
            items = self.by_kind[kind]
            for key in sorted(items):
                yield items[key]

    def history(self) -> Iterable[Change]:
        """Return every object as a new one, for listeners that register late."""
        return [Change(KIND_OF[type(item)], key_of(item.metadata), None, item) for item in self.all()]

    def cluster(self) -> Cluster:
        """Return everything, as decisions take it."""
        return cluster_of(self.all())

    # Small changes that many parts make; each is one write.

    def touch_meta(self, item: AnyObject, **changes: Any) -> AnyObject:
        """Store the object with other metadata."""
        return self.put(replace(item, metadata=replace(item.metadata, **changes)))

    def mark_deleting(self, item: AnyObject, now: datetime, grace_seconds: int | None = None) -> AnyObject:
        """Set the deletion timestamp, once."""
        if item.metadata.deletion_timestamp is not None:
            return item
        return self.touch_meta(item, deletion_timestamp=now, deletion_grace_period_seconds=grace_seconds)
