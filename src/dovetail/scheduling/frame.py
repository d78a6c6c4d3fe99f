"""The compiled part of a snapshot: columns of nodes and pods, and the registries of groups and variants.

Everything that does not depend on the candidate is computed here once, on first access, and shared by all simulations
of the round. Simulations only read it. `scheduling.snapshot` builds it.
"""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from dovetail.model.cached import cached
from dovetail.model.labels.requirements import Requirement
from dovetail.model.labels.selectors import MATCHES_EVERYTHING
from dovetail.model.labels.syntax import ALIASES
from dovetail.model.objects import NodePool, PodSpec
from dovetail.model.settings import Settings
from dovetail.scheduling.columns import Codes, NodeColumns
from dovetail.scheduling.launch.daemons import DaemonTerms
from dovetail.scheduling.launch.machines import Amounts, Machines, Mask, ReqSet, Resources
from dovetail.scheduling.launch.templates import Template
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.class_index import ClassIndex, Holder
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.pod import HostPort
from dovetail.scheduling.pods.terms import ClassTerms
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.pods.volumes import Storage, VolumeNeeds
from dovetail.scheduling.topology.groups import INVERSE, Domains, Group, TopologyRule, domain_universe

Places = npt.NDArray[np.int64]
_NOWHERE: Places = np.zeros(0, dtype=np.int64)


Moving = Sequence[tuple[int, tuple[int, ...]]]
"""Nodes that leave, each with the places, among its pods, of those that move in every simulation."""


class PodPlaces:
    """Where the pods of each class are, for topology; pods that move in every simulation count nowhere."""

    def __init__(self, bindings: Bindings, classes: Sequence[PodClass], moving: Moving) -> None:
        self.bindings, self._classes, self._moving = bindings, classes, moving

    def carry_to(self, bindings: Bindings) -> None:
        """Adopt newer pods with the same classes and nodes."""
        self.bindings = bindings

    def _of(self, chosen: Mask) -> dict[int, Places]:
        for node, places in self._moving:
            chosen[np.array(self.bindings.on_node(node), dtype=np.int64)[list(places)]] = False
        return self.bindings.nodes_by_class(chosen)

    @cached
    def counted(self) -> dict[int, Places]:
        """Return the pods that spread and affinity count."""
        return self._of(self.bindings.counted)

    @cached
    def holding(self) -> dict[int, Places]:
        """Return the pods with anti-affinity against others."""
        holders = np.array([cls.info.anti_affinity for cls in self._classes], dtype=np.bool_)
        return self._of(self.bindings.running & holders[self.bindings.cls])


class FrameNodes(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The existing nodes as columns: room, whether they accept pods, whether they stay, ports and volumes.

    `sound`: no amount of their room is negative.
    """

    columns: NodeColumns
    room: Amounts
    sound: Mask
    open: Mask
    staying: Mask
    ports: dict[int, list[HostPort]]
    attached: dict[int, dict[str, set[str]]]


class FrameSupply(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What could be launched: machines, the columns of their resources, the pools, their templates and daemons.

    `terms`: what classes of pods ask of machines and of each other.
    """

    machines: Machines
    resources: Resources
    pools: Sequence[NodePool]
    templates: tuple[Template, ...]
    daemons: DaemonTerms
    terms: ClassTerms


class Frame:
    """What simulations run on."""

    def __init__(
        self,
        settings: Settings,
        nodes: FrameNodes,
        supply: FrameSupply,
        places: PodPlaces,
        index: ClassIndex,
        storage: Storage,
    ) -> None:
        self.settings = settings
        self._nodes, self._supply = nodes, supply
        self.machines = supply.machines
        self.resources = supply.resources
        self.pools = supply.pools
        self.templates, self.daemons = supply.templates, supply.daemons
        self.terms = supply.terms
        self.columns = nodes.columns
        self.room, self.sound = nodes.room, nodes.sound
        self.open = nodes.open
        self.staying = nodes.staying
        self.ports = nodes.ports
        self.attached = nodes.attached
        self.storage = storage
        self.index = index
        self.places = places
        self.soft_taints = any(
            taint.effect == "PreferNoSchedule" for pool in supply.pools for taint in pool.spec.template.spec.taints
        )
        self._rows: dict[int, list[int]] = {}
        self.fitting: dict[tuple[object, ...], Mask] = {}
        self._parts: dict[tuple[str, ...], list[tuple[tuple[int, ...], Places]]] = {}
        self._domains: dict[str, Domains] = {}
        self._groups: dict[TopologyRule, Group] = {}
        self._variants: dict[tuple[int, int], Variant] = {}
        self._first: dict[int, Variant] = {}
        self.alike: dict[tuple[object, ...], Variant] = {}
        self._volume_needs: dict[int, VolumeNeeds] = {}
        self.counting: dict[int, list[Group]] = {}
        self._inverse: dict[Holder, Group] = {}
        self._inverse_owned: dict[int, list[Group]] = {}
        self._count = 0
        self.short_values: dict[tuple[int, int], dict[str, int]] = {}
        self.narrowed: dict[tuple[int, tuple[Requirement, ...]], ReqSet | None] = {}
        for node in range(self.columns.count) if storage.limits else ():
            if not self.attaches(node, (), ()):
                self.open[node] = False

    def if_others_leave(self, settings: Settings, staying: Mask, joined: Mask, places: PodPlaces) -> "Frame":
        """Return the frame of the same cluster in which other nodes leave; what both have in common is shared."""
        nodes = msgspec.structs.replace(self._nodes, open=staying & self.sound, staying=staying & joined)
        other = Frame(settings, nodes, self._supply, places, self.index, self.storage)
        other._rows, other.fitting, other._volume_needs = self._rows, self.fitting, self._volume_needs
        other._domains, other._parts = self._domains, self._parts
        return other

    def row(self, node: int) -> list[int]:
        """Return a node's free resources as plain numbers; don't modify them."""
        found = self._rows.get(node)
        if found is None:
            found = self._rows[node] = self.room[node].tolist()
        return found

    def parts(self, keys: tuple[str, ...]) -> list[tuple[tuple[int, ...], Places]]:
        """Return all nodes grouped by their domains of these labels, in order; nodes without a domain are omitted."""
        found = self._parts.get(keys)
        if found is None:
            found = self._parts[keys] = _parted([self.domains(key).column for key in keys])
        return found

    # Variants

    def first(self, cls: PodClass) -> Variant:
        """Return the class with all its preferences."""
        found = self._first.get(cls.id)
        if found is None:
            found = self._first[cls.id] = self.variant(cls, cls.info.spec, ())
        return found

    def may_need_room_only(self, cls: PodClass) -> bool:
        """Return whether the first variant of a class may be simple, without compiling it; volumes are not asked."""
        info = cls.info
        if info.ports or info.claims or self.terms.of(cls, info.spec, 0).rules:
            return False
        return not self.index.excluding(cls)

    def variant(self, cls: PodClass, spec: PodSpec, given_up: tuple[str, ...]) -> Variant:
        """Return the variant of a class after that many relaxation steps."""
        key = (cls.id, len(given_up))
        found = self._variants.get(key)
        if found is None:
            found = self._variants[key] = Variant(self, len(self._variants), cls, spec, given_up)
        return found

    def volume_needs(self, cls: PodClass) -> VolumeNeeds:
        """Return what the volumes of a class ask for."""
        found = self._volume_needs.get(cls.id)
        if found is None:
            found = self.storage.needs(cls.namespace, cls.pod_name, cls.info.spec)
            self._volume_needs[cls.id] = found
        return found

    # Topology

    @cached
    def _mentioned(self) -> dict[str, set[str]]:
        """Return the values that pods and volumes ask for, by label."""
        found = {key: set(values) for key, values in self.index.asked.items()}
        for key, values in self.storage.asked_values():
            found.setdefault(ALIASES.get(key, key), set()).update(values)
        return found

    def domains(self, key: str) -> Domains:
        """Return the domains of a label."""
        found = self._domains.get(key)
        if found is None:
            universe = domain_universe(key, self.pools, self.machines)
            mentioned = self._mentioned.get(key, ())
            found = self._domains[key] = Domains(key, self.columns, universe, mentioned, self.settings.ties)
        return found

    def group(self, rule: TopologyRule) -> Group:
        """Return the group of a rule, with its pods counted; `ClassTerms` has one object for equal rules."""
        found = self._groups.get(rule)
        if found is not None:
            return found
        group = Group(self._next(), rule)
        counted = self.index.selected(rule.namespaces, MATCHES_EVERYTHING if rule.null_selector else rule.selector)
        group.based_on = {cls.id for cls in counted}
        if not rule.null_selector:
            group.classes = group.based_on
            for cls in counted:
                self.counting.setdefault(cls.id, []).append(group)
        domains = self.domains(rule.key)
        tolerations, node_filter = rule.tolerations, rule.node_filter
        if node_filter is not None and node_filter.honor_taints:
            tolerations = node_filter.tolerations
        at = _concat(self.places.counted.get(cls.id) for cls in counted)
        group.fill(self.columns, domains, domains.openable(tolerations), at, self.staying)
        self._groups[rule] = group
        return group

    def _next(self) -> int:
        self._count += 1
        return self._count

    # Anti-affinity of others

    def _inverse_group(self, holder: Holder) -> Group:
        """Return the group of a term of other pods' anti-affinity, with the pods that have it counted."""
        found = self._inverse.get(holder)
        if found is not None:
            return found
        (key, scope, selector), owners = holder, self.index.holders[holder]
        group = Group(self._next(), TopologyRule(kind=INVERSE, key=key, namespaces=scope, selector=selector))
        domains = self.domains(key)
        at = _concat(self.places.holding.get(cls.id) for cls in owners)
        if group.host:
            # Without the label it is unknown which host the pod keeps others from.
            at = at[~self.columns.unnamed[at]]
        group.fill(self.columns, domains, domains.openable(owners[0].info.spec.tolerations), at, None)
        group.classes = group.based_on = {cls.id for cls in owners}
        for cls in owners:
            mine = self._inverse_owned.setdefault(cls.id, [])
            if group not in mine:
                mine.append(group)
        self._inverse[holder] = group
        return group

    def inverse_of(self, cls: PodClass) -> list[Group]:
        """Return anti-affinity rules of other pods that exclude pods of this class."""
        return [self._inverse_group(holder) for holder in self.index.excluding(cls)]

    def inverse_owned(self, cls: PodClass) -> list[Group]:
        """Return anti-affinity rules of this class against other pods, as far as a pod has asked for them."""
        return self._inverse_owned.get(cls.id, [])

    # Ports and volumes on nodes

    def strike_ports(self, wanted: tuple[HostPort, ...], mask: Mask) -> None:
        """Remove from the mask the nodes on which a requested port is in use."""
        if wanted:
            for node, used in self.ports.items():
                if mask[node] and any(port.clashes(other) for port in wanted for other in used):
                    mask[node] = False

    def strike_volumes(self, wanted: tuple[tuple[str, str], ...], mask: Mask) -> None:
        """Remove from the mask the nodes whose attach limits the volumes would exceed."""
        if self.storage.limits:
            for node in np.flatnonzero(mask).tolist():
                if not self.attaches(node, wanted, ()):
                    mask[node] = False

    def attaches(self, node: int, wanted: Iterable[tuple[str, str]], also: Iterable[tuple[str, str]]) -> bool:
        """Return whether a node can attach these volumes in addition to its own and those of pods placed there."""
        state = self.columns.states[node]
        limits = self.storage.limits.get(state.node.metadata.name) if state.node is not None else None
        if not limits:
            return True
        used = self.attached.get(node, {})
        extra: dict[str, set[str]] = {}
        for driver, claim in (*wanted, *also):
            extra.setdefault(driver, set()).add(claim)
        return all(len(used.get(driver, set()) | extra.get(driver, set())) <= limit for driver, limit in limits.items())


def _parted(columns: Sequence[Codes]) -> list[tuple[tuple[int, ...], Places]]:
    """Return the indexes grouped by the codes in all columns; indexes with a -1 are omitted."""
    codes = np.stack(columns, axis=1)
    places = np.flatnonzero(np.all(codes >= 0, axis=1))
    order = places[np.lexsort(codes[places].T)]
    sorted_codes = codes[order]
    starts = np.flatnonzero(np.any(sorted_codes[1:] != sorted_codes[:-1], axis=1)) + 1
    return [(tuple(codes[part[0]].tolist()), part) for part in np.split(order, starts) if len(part)]


def _concat(parts: Iterable[Places | None]) -> Places:
    kept = [part for part in parts if part is not None and len(part)]
    if not kept:
        return _NOWHERE
    return kept[0] if len(kept) == 1 else np.concatenate(kept)
