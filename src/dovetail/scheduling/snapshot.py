"""An immutable, columnar snapshot of a cluster at one moment, on which every simulation of a round runs.

A snapshot joins nodes and claims, groups pods into classes and fills integer columns; what a simulation needs beyond
that (masks, topology counts, templates) is compiled in `scheduling.frame` on first access. With `previous`, only
changed objects are read again. It decides nothing.

`states` is in the order in which pods are offered to nodes: initialized first, then by name. The place of a node in it
is what `simulate` takes. It also holds unmanaged nodes and claims without a node yet.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter

import numpy as np

from dovetail.model.cached import cached
from dovetail.model.catalogue import Catalogue, InstanceType
from dovetail.model.cluster import Cluster
from dovetail.model.coming_size import GrownSize
from dovetail.model.listing import Listing
from dovetail.model.objects import NodePool, Pod
from dovetail.model.settings import MinValuesPolicy, PreferencePolicy, Settings
from dovetail.scheduling.columns import NodeColumns
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.frame import Frame, FrameNodes, FrameSupply, PodPlaces
from dovetail.scheduling.frame_inputs import FrameInputs, LastFrame, free_room, ports_and_volumes
from dovetail.scheduling.launch.daemons import Daemon, DaemonTerms, daemons_of
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.launch.templates import PoolLimits, Template, build_templates, usable_pools
from dovetail.scheduling.memory import SnapshotMemory, memory_for
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.class_index import ClassIndex
from dovetail.scheduling.pods.classes import PodClass, SpecInfo
from dovetail.scheduling.pods.movers import ComingClasses, MoverRegistry, Movers
from dovetail.scheduling.pods.pending import PendingPods, why_ignored
from dovetail.scheduling.pods.surge import NO_SURGES, Surges
from dovetail.scheduling.pods.terms import ClassTerms
from dovetail.scheduling.pods.volumes import Storage
from dovetail.scheduling.rows import UNCHANGED, Edits, NodeRows, read_rows
from dovetail.scheduling.surroundings import Surroundings, surroundings_of
from dovetail.scheduling.under_way import Settled, UnderWay

_REGISTRY_MAX = 20_000
_FEW = 100
"""The pods of more nodes are found faster in a plain tuple."""


class Snapshot:
    """Immutable.

    `previous`: the latest snapshot; only what changed since is read. `grown`: the sizes with which pods of some owners
    (by uid) came back lately.
    """

    def __init__(
        self,
        cluster: Cluster,
        catalogue: Catalogue,
        settings: Settings,
        now: datetime,
        previous: "Snapshot | None" = None,
        grown: Mapping[str, GrownSize] | None = None,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.now = now
        self.surroundings: Surroundings = surroundings_of(
            cluster, catalogue, settings, None if previous is None else previous.surroundings, grown or {}
        )
        self.catalogue = self.surroundings.catalogue
        if previous is not None and (previous.is_bloated or self._must_start_afresh(previous)):
            previous = None
        self.carried_at: dict[int, int] = {}
        self.carried: dict[int, int] | None = None  # filled by `simulate.carried_by_nodes`
        self.settled: tuple[UnderWay, Settled | None] | None = None  # filled by `simulate.simulate`
        self.token, self.since = object(), object()
        self.edits, self.changed = UNCHANGED, set[int]()
        self._memory: SnapshotMemory = memory_for(self.catalogue, None if previous is None else previous._memory)
        virtual = self._read_virtual_pods()
        self._earlier_waiting: PendingPods | None = None
        if previous is not None:
            self._earlier_waiting = vars(previous).get("_waiting") or previous._earlier_waiting
        self.bindings: Bindings = self._bindings(previous)
        # Only now it is known which labels selectors use.
        self._virtual_classes: tuple[PodClass, ...] = tuple(
            self._memory.classes.class_of(pod, info) for pod, info in virtual
        )
        sizes = self.surroundings.coming
        self._coming: ComingClasses | None = None
        if sizes:
            self._coming = ComingClasses(sizes, self._memory.classes, cluster.pods, self.bindings)
        self._read_nodes(previous)
        self._read_bindings(previous)
        self._last: LastFrame | None = self._followed(previous)
        known: MoverRegistry | None = previous._movers if previous is not None else None
        self.surges = Surges.build(cluster) if settings.rules.surges else NO_SURGES
        self._movers: MoverRegistry = MoverRegistry(
            cluster.pdbs, self._memory.classes.keys, known, self.surges.owners, self._coming
        )
        self._movers.keep_only(self.rows.names)

    @property
    def is_bloated(self) -> bool:
        """Return whether most entries of the registries are obsolete; the next snapshot then starts from scratch."""
        known, names = len(self._memory.classes.all), len(self._memory.names)
        if names > _REGISTRY_MAX and names > 4 * len(self.states):
            return True
        return known > _REGISTRY_MAX and known > 4 * len(np.unique(self.bindings.cls))

    # Reading

    def _must_start_afresh(self, previous: "Snapshot") -> bool:
        """Return whether pods have other effective specs than before, or virtual pods use other labels."""
        if previous.surroundings.spread is not self.surroundings.spread:
            return True
        classes, spec_of = previous._memory.classes, self.surroundings.spread.counted_spec
        infos = (classes.spec_info(spec_of(pod)) for pod in self.surroundings.virtual)
        return any(not info.keys <= classes.keys for info in infos)

    def _read_virtual_pods(self) -> list[tuple[Pod, SpecInfo]]:
        """Read the virtual pods of buffers and the labels that their selectors use."""
        classes, spec_of = self._memory.classes, self.surroundings.spread.counted_spec
        found = [(pod, classes.spec_info(spec_of(pod))) for pod in self.surroundings.virtual]
        classes.use_keys(key for _, info in found for key in info.keys)
        return found

    def _bindings(self, previous: "Snapshot | None") -> Bindings:
        pods = self.cluster.pods
        if previous is not None and previous.cluster.pods is pods:
            return previous.bindings.again()
        earlier = previous.bindings if previous is not None else None
        spec_of = self.surroundings.spread.counted_spec
        return Bindings(pods, self._memory.classes, self._memory.names, earlier, spec_of)

    def _read_nodes(self, previous: "Snapshot | None") -> None:
        earlier = None if previous is None else previous.rows
        self.rows: NodeRows = read_rows(self.cluster, self.settings, self._memory.of_rows, earlier)
        self.states: Sequence[StateNode] = self.rows.states
        self.marked: list[str]
        self.staying: Mask
        self.marked, self.staying = self.rows.staying(self.settings.marked_for_deletion_nodes)

    def _read_bindings(self, previous: "Snapshot | None") -> None:
        """Assign pods to their nodes; nodes whose pods did not change keep the previous snapshot's tuple of them."""
        bindings, codes, pods = self.bindings, self.rows.codes, self.cluster.pods
        bindings.settle(codes, self._memory.names)
        changed = bindings.changed
        if previous is None or changed is None:
            pods = tuple(pods)
            self.pods_on: Sequence[tuple[Pod, ...]] = [self._pods_at(place, pods) for place in range(len(codes))]
            return
        edits = UNCHANGED if self.rows is previous.rows else self.rows.edits
        old = range(len(previous.pods_on)) if edits is None else edits.gone
        was = {previous.rows.codes[place]: previous.pods_on[place] for place in old}
        new = range(len(codes)) if edits is None else edits.new
        others = set(bindings.places_of(changed)).difference(new)
        if edits is not None and (new or others):
            bindings.look_up((*new, *others))
        if len(new) + len(others) > _FEW:
            pods = tuple(pods)
        coming = [
            was[code] if code in was and code not in changed else self._pods_at(place, pods)
            for place, code in zip(new, map(codes.__getitem__, new), strict=True)
        ]
        if edits is None:
            self.pods_on = coming
            return
        found = list(previous.pods_on)
        edits.apply(found, coming)
        for place in others:
            found[place] = self._pods_at(place, pods)
        self.pods_on, self.since, self.edits, self.changed = found, previous.token, edits, others.union(new)

    def _pods_at(self, place: int, pods: Sequence[Pod]) -> tuple[Pod, ...]:
        places = self.bindings.on_node(place)
        return tuple(pods.at(places) if isinstance(pods, Listing) else [pods[at] for at in places])

    def changes_since(self, token: object) -> tuple[Edits, set[int]] | None:
        """Return what became of the nodes of the snapshot with a token, and the places with other objects or pods.

        None if that is not known.
        """
        return (self.edits, self.changed) if self.since is token else None

    # What decisions ask

    def kind_of(self, name: str, pool: str) -> InstanceType | None:
        """Return an instance type as a pool sees it; None if the catalogue has none of that name."""
        return self._memory.machines.kind_of(name, pool)

    def unknown_labels(self, pool: NodePool) -> tuple[str, ...]:
        """Return the labels of the cloud that a pool requires and nothing has, where that keeps it from launching."""
        if not self.settings.rules.unknown_cloud_labels_bar:
            return ()
        return self._memory.unmet.of(pool, self._memory.machines).labels

    def has_no_type(self, pool: NodePool) -> bool:
        """Return whether the requirements of a pool leave none of the catalogue's types."""
        return self._memory.unmet.of(pool, self._memory.machines).no_type

    @property
    def lineage(self) -> object:
        """Return a token that changes if specs are renumbered or other pods of a node would move."""
        return self._movers.lineage

    @property
    def index(self) -> Mapping[str, int]:
        """Return the indexes of all nodes, by name."""
        return self.rows.index

    @cached
    def pools(self) -> dict[str, NodePool]:
        """Return all pools, by name."""
        return {pool.metadata.name: pool for pool in self.cluster.node_pools}

    @cached
    def pending(self) -> tuple[Pod, ...]:
        """Return pending pods that a new node could help."""
        return tuple([entry.pod for entry in self._waiting.entries])

    @cached
    def ignored(self) -> tuple[tuple[Pod, str], ...]:
        """Return pending pods that no node could help, each with the reason."""
        return tuple(self._waiting.ignored)

    @cached
    def _waiting(self) -> PendingPods:
        """Return pending pods, prepared for placement."""
        earlier, self._earlier_waiting = self._earlier_waiting, None
        return PendingPods(self.bindings, self._memory.classes.keys, earlier, self._why_ignored)

    def _why_ignored(self, pod: Pod, cls: PodClass) -> str:
        """Return why a pending pod takes no part in simulations; empty if it does."""
        known, spec = self._memory.ignored, cls.info.id
        if cls.info.volumes or spec not in known:
            needs = self.storage.needs(pod.metadata.namespace, pod.metadata.name, pod.spec)
            known[spec] = why_ignored(pod, needs, self._memory.machines.known)
        return known[spec]

    @cached
    def storage(self) -> Storage:
        """Return the claims, volumes and storage classes."""
        return Storage(self.cluster, self.settings.rules)

    @cached
    def leaving_movers(self) -> tuple[tuple[int, Movers], ...]:
        """Return the pods of leaving nodes that move in every simulation, by node, prepared for placement."""
        joined = self.rows.has_node
        return tuple([(i, self.movers(i)) for i in np.flatnonzero(~self.staying).tolist() if joined[i]])

    @cached
    def leaving(self) -> tuple[tuple[int, tuple[Pod, ...]], ...]:
        """Return the pods of leaving nodes that move in every simulation, by node."""
        return tuple([(index, movers.pods) for index, movers in self.leaving_movers])

    @cached
    def leaving_nodes(self) -> frozenset[int]:
        """Return the places of leaving nodes that have joined."""
        return frozenset([index for index, _ in self.leaving_movers])

    @cached
    def leaving_entries(self) -> list[Entry]:
        """Return all pods of leaving nodes that move in every simulation, ready to be placed."""
        return [entry for _, movers in self.leaving_movers for entry in movers.waiting]

    def movers(self, index: int) -> Movers:
        """Return the pods of a node that would move if it were removed now, prepared for placement."""
        return self._movers.of(self.states[index].name, index, self.pods_on[index], self.bindings, self.now)

    @cached
    def queued(self) -> list[Entry]:
        """Return the pending pods and the virtual ones of buffers, prepared for placement and in its order."""
        queue = self._waiting.queue
        return sorted(queue + self.virtual, key=attrgetter("key")) if self.virtual else queue

    @cached
    def virtual(self) -> list[Entry]:
        """Return the virtual pods of buffers, prepared for placement; closed nodes refuse them."""
        pairs = zip(self.surroundings.virtual, self._virtual_classes, strict=True)
        return [Entry(pod, cls, exempt=False, pending=True) for pod, cls in pairs]

    @cached
    def initialized(self) -> int:
        """Return how many nodes are initialized; these come first."""
        return self.rows.initialized

    @cached
    def joined(self) -> int:
        """Return how many nodes have a Node."""
        return sum(self.rows.has_node)

    @cached
    def leaving_ids(self) -> frozenset[int]:
        """Return the ids of the pods of leaving nodes."""
        return frozenset(id(pod) for _, pods in self.leaving for pod in pods)

    @cached
    def pending_ids(self) -> frozenset[int]:
        """Return the ids of the pending pods."""
        return frozenset(map(id, (*self.pending, *self.surroundings.virtual)))

    # What simulations ask

    @cached
    def frame(self) -> Frame:
        """Return the compiled frame: built for the first simulation, or reused from an earlier snapshot."""
        inputs, last = self.frame_inputs, self._last
        if last is not None and last.serves(inputs):
            last.frame.places.carry_to(self.bindings)
            found = last.frame
        elif last is not None and last.serves_if_others_leave(inputs):
            places = PodPlaces(self.bindings, self._memory.classes.all, inputs.moving)
            found = last.frame.if_others_leave(self.settings, self.staying, inputs.joined, places)
        else:
            found = self._compile(inputs)
        self._last = None
        return found

    @cached
    def frame_inputs(self) -> FrameInputs:
        """Return what the frame is compiled from."""
        return FrameInputs(
            settings=self.settings,
            cluster=self.cluster,
            machines=self._memory.machines,
            width=len(self._memory.resources.names),
            columns=self._columns(),
            bindings=self.bindings,
            codes=self.rows.codes,
            sizes=self.rows.sizes,
            staying=self.staying,
            joined=np.frombuffer(self.rows.has_node, dtype=np.bool_),
            moving=[(index, movers.at) for index, movers in self.leaving_movers],
            virtual=[*(cls.id for cls in self._virtual_classes), *(self._coming.ids() if self._coming else ())],
        )

    def _followed(self, previous: "Snapshot | None") -> LastFrame | None:
        """Return the frame that was compiled last, and what has changed since."""
        last = None if previous is None else previous._last
        if previous is not None and "frame" in vars(previous):
            last = LastFrame(previous.frame_inputs, previous.frame)
        if previous is None or last is None:
            return None
        changed = None
        if self.since is previous.token and self.bindings.changed is not None:
            changed = self.bindings.changed.union(map(self.rows.codes.__getitem__, self.edits.new))
        return last.later(changed, same_daemons=self.bindings.same_daemons)

    def _columns(self) -> NodeColumns:
        """Return labels and taints of the nodes; those of the last frame if nothing in them changed."""
        last = self._last
        return NodeColumns(self.states) if last is None else last.columns(self.states, self.bindings, self.rows.codes)

    def _compile(self, inputs: FrameInputs) -> Frame:
        memory, columns = self._memory, inputs.columns
        pools = [pool for pool in usable_pools(self.cluster.node_pools) if not self.unknown_labels(pool)]
        terms, templates = self._templates(pools)
        room = free_room(inputs, terms, memory, self._last)
        room.flags.writeable = False  # the next frame takes rows of it
        sound = np.all(room >= 0, axis=1)
        ports, attached = ports_and_volumes(self.cluster.pods, self.bindings, self.storage, memory.classes)
        here = {*np.flatnonzero(np.bincount(self.bindings.cls)).tolist(), *inputs.virtual}
        classes = [memory.classes.all[at] for at in sorted(here)]
        nodes = FrameNodes(
            columns=columns,
            room=room,
            sound=sound,
            open=self.staying & sound,
            staying=self.staying & inputs.joined,
            ports=ports,
            attached=attached,
        )
        namespaces, respects = self.cluster.namespaces, self.settings.preference_policy is PreferencePolicy.RESPECT
        supply = FrameSupply(
            machines=memory.machines,
            resources=memory.resources,
            pools=pools,
            templates=templates,
            daemons=terms,
            terms=memory.terms.of(
                (memory.machines, namespaces, respects),
                lambda: ClassTerms(memory.machines, namespaces, respects=respects),
            ),
        )
        places = PodPlaces(self.bindings, memory.classes.all, inputs.moving)
        index = memory.index.of((classes, namespaces), lambda: ClassIndex(classes, namespaces))
        return Frame(self.settings, nodes, supply, places, index, self.storage)

    def _templates(self, pools: Sequence[NodePool]) -> tuple[DaemonTerms, tuple[Template, ...]]:
        """Return the daemons' terms and the templates of the pools that may be used."""
        memory, rules, daemons = self._memory, self.settings.rules, self._daemons()
        machines, resources = memory.machines, memory.resources
        for name in [name for daemon in daemons for name in daemon.requests]:
            resources.column_of(name)
        machines.widen(len(resources.names))
        best_effort = self.settings.min_values_policy is MinValuesPolicy.BEST_EFFORT

        def build() -> tuple[DaemonTerms, tuple[Template, ...]]:
            terms = DaemonTerms(daemons, sticky=rules.sticky_daemons)
            return terms, build_templates(pools, machines, terms, resources, rules=rules, best_effort=best_effort)

        made_from = (tuple(pools), machines, daemons, len(resources.names), rules, best_effort)
        return memory.templates.of(made_from, build)

    def _daemons(self) -> tuple[Daemon, ...]:
        """Return the expected pods of all DaemonSets."""
        memory, cluster, last = self._memory, self.cluster, self._last
        if last is not None and last.tells_daemons(cluster, self.settings):
            return last.frame.daemons.daemons
        newest = [self.bindings.newest_daemons.get(item.metadata.uid) for item in cluster.daemon_sets]
        ignores, resizes = self.settings.karpenter.ignores_dra, self.settings.rules.resizes_count
        return memory.daemons.of(
            (tuple(cluster.daemon_sets), newest, ignores, resizes),
            lambda: daemons_of(cluster.daemon_sets, newest, ignore_claims=ignores, resizes_count=resizes),
        )

    @cached
    def _limits(self) -> PoolLimits:
        return PoolLimits(self.frame.templates, self.states, self.staying)

    def limits_left(self, removed: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return what is left of the limits of each template's pool once these nodes are gone.

        The caller may change it.
        """
        return self._limits.left_without(removed)
