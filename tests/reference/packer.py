"""The reference packer: Karpenter's placement of pods, one object at a time, in the order of its own steps.

Clear before fast. It shares no code with `dovetail.scheduling`; the two are held against each other and against
Karpenter's own answers. Rules: docs/rules.md#scheduling; where a rule of Karpenter surprises, the comment says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.names import HOSTNAME
from dovetail.model.objects import NodePool, Pod, condition, is_true
from dovetail.model.settings import MinValuesPolicy, PreferencePolicy, Settings
from tests.reference import pods as pod_rules
from tests.reference.claims import (
    RESERVATION_ID,
    Daemons,
    Kind,
    NewClaim,
    Reservations,
    ReservedError,
    Template,
    missing_values,
    template_requirements,
)
from tests.reference.nodes import StateNode, by_scheduling_order, state_nodes
from tests.reference.pods import PortUse, identity, name_of
from tests.reference.quantities import Resources, amounts, fits, subtract
from tests.reference.requirements import WELL_KNOWN, Requirements, from_expressions, from_labels, requirement
from tests.reference.topology import DomainTable, Topology
from tests.reference.volumes import AttachedVolumes, VolumeError, Volumes

MOST_TYPES = 600


@dataclass
class NewNode:
    """A node that would be launched."""

    pool: str
    instance_types: list[str]
    requirements: list[tuple[str, str, tuple[str, ...], int | None]]
    requests: Resources
    pods: list[str]
    claim: NewClaim


@dataclass
class Packing:
    """Where the pods went: names in the order in which they were placed."""

    existing: dict[str, list[str]] = field(default_factory=dict)
    new: list[NewNode] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    uninitialized: list[str] = field(default_factory=list)
    pods: int = 0


class ExistingNode:
    """A node with its room, its ports and volumes, and the pods placed on it in this run."""

    def __init__(self, state: StateNode, daemons: Sequence[Pod], run: _Run) -> None:
        self.state = state
        self.pods: list[Pod] = []
        self.taints = state.taints
        # The labels stay what they are. (Karpenter adds what pods ask for: a pod that forbids a value of a label
        # that the node lacks makes the node pass for one that has the label.)
        self.requirements = from_labels(state.labels)
        self.requirements.add([requirement(HOSTNAME, "In", (state.host,))])
        self._topology = run.topology
        name = state.node.metadata.name if state.node else ""
        here = [pod for pod in run.packer.pods_on(name) if not pod_rules.is_terminal(pod)]
        running_daemons = pod_rules.requests_of_all(pod for pod in here if pod_rules.is_daemon(pod))
        to_come = subtract(pod_rules.requests_of_all(daemons), running_daemons)
        reserved = {resource: max(0, amount) for resource, amount in to_come.items()}
        used = pod_rules.requests_of_all(here)
        self.free = subtract(subtract(state.allocatable, used), reserved)
        self.ports = PortUse()
        self.volumes = AttachedVolumes(run.packer.csi_nodes.get(name))
        for pod in here:
            self.ports.add(pod)
            self.volumes.add(run.packer.volumes_of(pod))

    def takes(self, pod: Pod, needs: Requirements, strict: Requirements, run: _Run) -> bool:
        """Return whether the node can take the pod."""
        if not pod_rules.tolerates(pod.spec.tolerations, self.taints):
            return False
        if self.volumes.exceeded_by(run.packer.volumes_of(pod)) or self.ports.conflicts(pod):
            return False
        if not fits(pod_rules.requests_of(pod), self.free) or not self.requirements.compatible(needs):
            return False
        for where in run.volume_alternatives.get(identity(pod)) or [Requirements()]:
            if not self.requirements.compatible(where):
                continue
            node = Requirements([*self.requirements, *needs, *where])
            narrowed = self._topology.narrowed(pod, self.taints, strict, node)
            if narrowed is not None and self.requirements.defines(narrowed) and node.intersects(narrowed):
                return True
        return False

    def add(self, pod: Pod, run: _Run) -> None:
        """Places the pod."""
        self.pods.append(pod)
        wanted = pod_rules.requests_of(pod)
        self.free = {name: self.free.get(name, 0) - wanted.get(name, 0) for name in {**self.free, **wanted}}
        self._topology.record(pod, self.taints, self.requirements)
        self.ports.add(pod)
        self.volumes.add(run.packer.volumes_of(pod))


class ReferencePacker:
    """Places pods on a cluster, now: those that are pending, or those of nodes that would go."""

    def __init__(
        self,
        cluster: Cluster,
        catalogue: Catalogue,
        settings: Settings,
        now: datetime,
        *,
        volumes_unfound: bool = False,
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.now = now
        self.best_effort = settings.min_values_policy is MinValuesPolicy.BEST_EFFORT
        provided = {item.key for kind in catalogue.instance_types for item in kind.requirements}
        self.well_known = frozenset(WELL_KNOWN | provided | {RESERVATION_ID})
        self.kinds = [Kind(item) for item in catalogue.instance_types]
        self.nodes = state_nodes(cluster)
        self.volumes = Volumes(cluster, unfound=volumes_unfound)
        self.csi_nodes = {item.metadata.name: item for item in cluster.csi_nodes}
        self.pools = usable_pools(cluster.node_pools)
        daemon_pods = [pod_rules.daemon_pod(item, cluster.pods) for item in cluster.daemon_sets]
        self.daemons = Daemons(daemon_pods, forgetful=settings.rules.sticky_daemons)
        self.pending = [pod for pod in cluster.pods if pod_rules.is_provisionable(pod) and not self.rejected(pod)]

    # What is placed

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods that are bound to a node."""
        return [pod for pod in self.cluster.pods if node and pod.spec.node_name == node]

    def volumes_of(self, pod: Pod) -> dict[str, frozenset[str]]:
        """Return the pod's volumes by driver."""
        return self.volumes.by_driver(pod)

    def is_leaving(self, state: StateNode) -> bool:
        """Return whether the node is on its way out already."""
        if state.leaving or state.name in self.settings.marked_for_deletion_nodes:
            return True
        if not self.settings.rules.disruption_taint_marks or state.node is None:
            return False
        # docs/rules.md#gates, gate 2: a node that is being deleted or that carries the disruption taint is leaving too.
        tainted = any(taint.key == "karpenter.sh/disruption" for taint in state.node.spec.taints)
        return state.node.metadata.deletion_timestamp is not None or tainted

    def movable(self, node: str) -> list[Pod]:
        """Return the pods that a node's going would move: not those that can't be evicted at all."""
        return [
            pod
            for pod in self.pods_on(node)
            if pod_rules.is_reschedulable(pod)
            and not (pod_rules.is_active(pod) and pod_rules.may_not_be_disrupted(pod, self.now))
            and not pod_rules.is_fully_blocked(pod, self.cluster.pdbs, self.now)
        ]

    def rejected(self, pod: Pod) -> str | None:
        """Why a pending pod is not looked at."""
        for item in pod_rules.all_requirements(pod):
            if item.key == "karpenter.sh/nodepool" and item.operator == "DoesNotExist":
                return "the pod doesn't want to run on nodes of a pool"
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        terms = required.node_selector_terms if required else ()
        keys = [*pod.spec.node_selector, *(item.key for term in terms for item in term.match_expressions)]
        if any(_is_restricted(key) for key in keys if key not in self.well_known):
            return "the pod asks for a label that pools may not use"
        if any(term.match_fields for term in terms):
            return "the pod asks for fields of a node"
        return self.volumes.problem(pod)

    # What can be launched: the same for every question

    @cached_property
    def domain_table(self) -> DomainTable:
        """Return the labels that new nodes can have: of each pool, with and without each of its types."""
        table = DomainTable()
        for pool in self.pools:
            template = pool.spec.template
            own = from_expressions(template.spec.requirements)
            own.add(from_labels(template.metadata.labels))
            for kind in self.kinds:
                for item in Requirements([*own, *kind.requirements]):
                    # Not only those of In: the values that a NotIn rules out count as domains too, as upstream.
                    for value in sorted(item.values):
                        table.insert(item.key, value, template.spec.taints)
            for item in own:
                if item.operator == "In":
                    for value in sorted(item.values):
                        table.insert(item.key, value, template.spec.taints)
        return table

    @cached_property
    def templates(self) -> list[Template]:
        templates = []
        for pool in self.pools:
            wanted = template_requirements(pool)
            kinds = [
                kind
                for kind in self.kinds
                if kind.requirements.intersects(wanted) and kind.offered(wanted) and fits({}, kind.allocatable)
            ]
            if missing_values(kinds, wanted) and not self.best_effort:
                continue
            if kinds:
                template = Template(pool, wanted, kinds, self.well_known)
                template.daemon_groups = self.daemons.groups(template)
                templates.append(template)
        return templates

    # The two questions

    def place(self) -> Packing:
        """Return where the pending pods, and the pods of leaving nodes, would go."""
        leaving = [state for state in self.nodes if self.is_leaving(state)]
        staying = [state for state in self.nodes if not self.is_leaving(state)]
        of_leaving = [pod for state in leaving if state.node for pod in self.movable(state.node.metadata.name)]
        return _Run(self, staying, [*self.pending, *of_leaving], strict_reservations=True).solve()

    def simulate(
        self, candidates: Collection[str], closed: Collection[str] = (), moved: Sequence[Pod] | None = None
    ) -> Packing:
        """Return where everything would go if these nodes went; `closed` nodes take no pods of theirs."""
        leaving = [state for state in self.nodes if self.is_leaving(state)]
        staying = [state for state in self.nodes if not self.is_leaving(state) and state.name not in candidates]
        if moved is None:
            moved = [pod for name in candidates for pod in self.movable(name)]
        of_leaving = [pod for state in leaving if state.node for pod in self.movable(state.node.metadata.name)]
        run = _Run(self, staying, [*self.pending, *moved, *of_leaving], closed=closed, moved=moved)
        safe = {identity(pod) for pod in of_leaving}
        # Karpenter's rules know no order among commands; by ours, the pods of nodes that are leaving come first.
        packing = run.solve(first=frozenset() if self.settings.rules.others_pods_count else safe)
        for node in run.existing:
            if not node.state.initialized:
                packing.uninitialized += [name_of(pod) for pod in node.pods if identity(pod) not in safe]
        return packing


def usable_pools(pools: Iterable[NodePool]) -> list[NodePool]:
    """Return the pools that can launch nodes, in the order in which they are tried."""
    usable = [
        pool
        for pool in pools
        if pool.spec.replicas is None
        # A manifest without any status counts as ready.
        and (condition(pool.status.conditions, "Ready") is None or is_true(pool.status.conditions, "Ready"))
        and pool.metadata.deletion_timestamp is None
    ]
    # Heaviest first; of one weight, the last name first.
    by_name = sorted(usable, key=lambda pool: pool.metadata.name, reverse=True)
    return sorted(by_name, key=lambda pool: -(pool.spec.weight or 0))


def _is_restricted(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return key == HOSTNAME or domain == "karpenter.sh" or domain.endswith(".karpenter.sh")


class _Run:
    """One packing run: nodes that are open, new nodes so far, rules and counts."""

    def __init__(
        self,
        packer: ReferencePacker,
        staying: Sequence[StateNode],
        pods: Sequence[Pod],
        *,
        closed: Collection[str] = (),
        moved: Sequence[Pod] = (),
        strict_reservations: bool = False,
    ) -> None:
        self.packer = packer
        self.pods = list(pods)
        self._closed = set(closed)
        self._moved = {identity(pod) for pod in moved}
        self._first: frozenset[str] = frozenset()
        self._strict = strict_reservations
        self._settings = packer.settings
        self._ignore_preferences = self._settings.preference_policy is PreferencePolicy.IGNORE
        self._best_effort = packer.best_effort
        self.volume_alternatives: dict[str, list[Requirements]] = {}
        placeable = self._look_up_volumes()
        self.topology = Topology(
            packer.cluster,
            packer.nodes,
            staying,
            packer.domain_table,
            placeable,
            ignore_preferences=self._ignore_preferences,
        )
        self._tolerate_preferences = any(
            taint.effect == "PreferNoSchedule" for pool in packer.pools for taint in pool.spec.template.spec.taints
        )
        self._reservations = Reservations(packer.kinds)
        # New nodes first: what Karpenter learns there of daemons' terms it applies to the nodes that exist.
        self._templates = packer.templates
        self.existing = [self._existing(state) for state in by_scheduling_order(staying)]
        self._limits = self._remaining_limits(staying)
        self.claims: list[NewClaim] = []
        self._claims_made = 0

    # Setting up

    def _look_up_volumes(self) -> list[Pod]:
        """The pods with topology rules: all, unless volumes can't be looked up as in the recordings of Karpenter."""
        placeable = []
        for pod in self.pods:
            try:
                self.volume_alternatives[identity(pod)] = self.packer.volumes.alternatives(pod)
            except VolumeError:
                continue
            placeable.append(pod)
        return placeable

    def _existing(self, state: StateNode) -> ExistingNode:
        daemons = self.packer.daemons.on_existing(state.taints, from_labels(state.labels))
        node = ExistingNode(state, daemons, self)
        self.topology.register_host(state.host)
        return node

    def _remaining_limits(self, staying: Sequence[StateNode]) -> dict[str, Resources]:
        left = {pool.metadata.name: amounts(pool.spec.limits) for pool in self.packer.pools}
        for state in staying:
            if state.pool in left:
                left[state.pool] = subtract(left[state.pool], state.capacity)
        return left

    # Solving

    def solve(self, first: Collection[str] = ()) -> Packing:
        """Place pod after pod, `first` before all others, then the largest.

        Pods that fail are tried again as long as others still land.
        """
        self._first = frozenset(first)
        queue = sorted(self.pods, key=lambda pod: (identity(pod) not in first, _size_order(pod)))
        length_when_put_back: dict[str, int] = {}
        failed: dict[str, str] = {}
        while queue and length_when_put_back.get(identity(queue[0])) != len(queue):
            pod = queue.pop(0)
            if self._schedule(pod):
                failed.pop(identity(pod), None)
                continue
            failed[identity(pod)] = name_of(pod)
            self.topology.update(pod)
            queue.append(pod)
            length_when_put_back[identity(pod)] = len(queue)
        return self._packing(list(failed.values()))

    def _schedule(self, pod: Pod) -> bool:
        """Tries the pod with all its preferences, then with one less at a time."""
        while True:
            try:
                if self._add(pod):
                    return True
            except ReservedError:
                # A reservation may come free later in this run: no reason to give a preference up.
                return False
            less = pod_rules.relaxed(pod, tolerate_preferences=self._tolerate_preferences)
            if less is None:
                return False
            pod = less
            self.topology.update(pod)

    def _add(self, pod: Pod) -> bool:
        if self.packer.volumes.is_lost(pod):
            return False
        strict = pod_rules.strict_requirements(pod)
        needs = strict if self._ignore_preferences else pod_rules.all_requirements(pod)
        return (
            self._add_to_existing(pod, needs, strict)
            or self._add_to_started(pod, needs, strict)
            or self._add_to_new(pod, needs, strict)
        )

    def _add_to_existing(self, pod: Pod, needs: Requirements, strict: Requirements) -> bool:
        # A pod that is bound but still Pending counts as pending here, as upstream.
        shut_out = identity(pod) in self._moved and pod.status.phase != "Pending"
        for node in self.existing:
            if shut_out and node.state.name in self._closed:
                continue
            if node.takes(pod, needs, strict, self):
                node.add(pod, self)
                return True
        return False

    def _add_to_started(self, pod: Pod, needs: Requirements, strict: Requirements) -> bool:
        # Fewest pods first; equal ones stay in the order of the last time.
        self.claims.sort(key=lambda claim: len(claim.pods))
        volumes = self.volume_alternatives.get(identity(pod), [])
        for claim in self.claims:
            if not self._may_share(pod, claim):
                continue
            try:
                fit = claim.fit(pod, needs, strict, volumes, relax_min_values=False)
            except ReservedError:
                continue
            if fit is not None:
                claim.add(pod, fit)
                return True
        return False

    def _may_share(self, pod: Pod, claim: NewClaim) -> bool:
        """Return False where a new node for pods of leaving nodes would be shared with pods of the candidates.

        A command launches only what the pods of its own nodes need; pending pods may land on any new node.
        """
        owners = [identity(other) for other in claim.pods]
        if identity(pod) in self._first:
            return all(owner in self._first or owner not in self._moved for owner in owners)
        return identity(pod) not in self._moved or owners[0] not in self._first

    def _add_to_new(self, pod: Pod, needs: Requirements, strict: Requirements) -> bool:
        volumes = self.volume_alternatives.get(identity(pod), [])
        for template in self._templates:
            left = self._limits[template.name]
            if left.get("nodes") == 0:
                continue
            kinds = [
                kind
                for kind in template.kinds
                if all(kind.type.capacity.get(name, 0) <= amount for name, amount in left.items())
            ]
            if not kinds:
                continue
            self._claims_made += 1
            claim = NewClaim(
                template,
                f"new-node-{self._claims_made:06d}",
                kinds,
                self.topology,
                self._reservations,
                strict_reservations=self._strict,
            )
            # A reserved offering that can't be had now ends the search: a lighter pool must not jump in.
            fit = claim.fit(pod, needs, strict, volumes, relax_min_values=self._best_effort)
            if fit is None:
                continue
            claim.add(pod, fit)
            self.claims.append(claim)
            self._limits[template.name] = _less_the_largest(left, claim.kinds)
            return True
        return False

    def _packing(self, unplaced: list[str]) -> Packing:
        packing = Packing(pods=len(self.pods), unplaced=unplaced)
        for node in self.existing:
            if node.pods:
                packing.existing[node.state.name] = [name_of(pod) for pod in node.pods]
        for claim in self.claims:
            claim.finish()
            kinds = claim.by_price()[:MOST_TYPES]
            if missing_values(kinds, claim.requirements) and not self._best_effort:
                packing.unplaced += [name_of(pod) for pod in claim.pods]
                continue
            packing.new.append(
                NewNode(
                    pool=claim.template.name,
                    instance_types=[kind.name for kind in kinds],
                    requirements=sorted(entry for item in claim.requirements for entry in item.printed()),
                    requests=claim.requests,
                    pods=[name_of(pod) for pod in claim.pods],
                    claim=claim,
                )
            )
        return packing


def _less_the_largest(left: Resources, kinds: Sequence[Kind]) -> Resources:
    """Limits once a node came: it may turn out to be the largest of what it can be, name by name."""
    return {name: amount - max(kind.type.capacity.get(name, 0) for kind in kinds) for name, amount in left.items()}


def _size_order(pod: Pod) -> tuple[int, int, float, str]:
    wanted = pod_rules.requests_of(pod)
    created = pod.metadata.creation_timestamp
    age = created.timestamp() if created else float("-inf")
    return (-wanted.get("cpu", 0), -wanted.get("memory", 0), age, pod.metadata.uid)
