"""The compiled middle of a snapshot: columns of nodes and pods, and the registries of groups and variants on them.

Everything that does not depend on the candidate is computed here, once, when first asked for, and shared by all
simulations of the round. Immutable to those who simulate: they only ever ask. `scheduling.snapshot` builds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.model.cached import cached
from dovetail.model.labels.requirements import Requirement
from dovetail.model.labels.selectors import MATCHES_EVERYTHING, LabelSelector
from dovetail.model.labels.syntax import ALIASES
from dovetail.model.objects import Namespace, NodePool, PodAffinityTerm, PodSpec, Toleration
from dovetail.model.settings import Settings
from dovetail.scheduling.columns import NodeColumns
from dovetail.scheduling.launch.machines import Amounts, Machines, Mask, ReqSet, Resources
from dovetail.scheduling.launch.templates import Template
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.classes import PodClass, asked_values
from dovetail.scheduling.pods.pod import HostPort
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.pods.volumes import Storage, VolumeNeeds
from dovetail.scheduling.topology.groups import INVERSE, Domains, Group, TopologyRule, domain_universe

Places = npt.NDArray[np.int64]
_NOWHERE: Places = np.zeros(0, dtype=np.int64)


class PodPlaces:
    """Where the pods of each class are; only topology asks. `moving`: places of pods that move in every simulation."""

    def __init__(self, bindings: Bindings, classes: Sequence[PodClass], moving: Sequence[int]) -> None:
        self._bindings, self._classes, self._moving = bindings, classes, moving

    def _of(self, chosen: Mask) -> dict[int, Places]:
        chosen[self._moving] = False
        return self._bindings.nodes_by_class(chosen)

    @cached
    def counted(self) -> dict[int, Places]:
        """Return those that spread and affinity count."""
        return self._of(self._bindings.counted)

    @cached
    def holding(self) -> dict[int, Places]:
        """Return those that hold anti-affinity against others."""
        holders = np.array([cls.info.anti_affinity for cls in self._classes], dtype=np.bool_)
        return self._of(self._bindings.running & holders[self._bindings.cls])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameNodes:
    """The nodes that exist, column by column: room, whether pods may come, whether they stay, ports and volumes."""

    columns: NodeColumns
    room: Amounts
    open: Mask
    staying: Mask
    ports: dict[int, list[HostPort]]
    attached: dict[int, dict[str, set[str]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FrameSupply:
    """What could be launched: machines, the columns of their resources, the pools and their templates."""

    machines: Machines
    resources: Resources
    pools: Sequence[NodePool]
    templates: tuple[Template, ...]


class Frame:
    """What simulations run on."""

    def __init__(
        self,
        settings: Settings,
        nodes: FrameNodes,
        supply: FrameSupply,
        places: PodPlaces,
        classes: Sequence[PodClass],
        storage: Storage,
        namespaces: Sequence[Namespace],
    ) -> None:
        self.settings = settings
        self.machines = supply.machines
        self.resources = supply.resources
        self.pools = supply.pools
        self.templates = supply.templates
        self.columns = nodes.columns
        self.room = nodes.room
        self.open = nodes.open
        self.staying = nodes.staying
        self.ports = nodes.ports
        self.attached = nodes.attached
        self.storage = storage
        self.namespaces = namespaces
        self.places = places
        self.classes = classes
        self.soft_taints = any(
            taint.effect == "PreferNoSchedule" for pool in supply.pools for taint in pool.spec.template.spec.taints
        )
        self._domains: dict[str, Domains] = {}
        self._groups: dict[tuple[object, ...], Group] = {}
        self._variants: dict[tuple[int, int], Variant] = {}
        self._first: dict[int, Variant] = {}
        self._volume_needs: dict[int, VolumeNeeds] = {}
        self.counting: dict[int, list[Group]] = {}
        self._inverse: dict[tuple[str, str, str], list[Group]] | None = None
        self._inverse_wide: dict[str, list[Group]] = {}
        self._inverse_owned: dict[int, list[Group]] = {}
        self._inverse_of: dict[int, list[Group]] = {}
        self._count = 0
        self.short_values: dict[tuple[int, int], dict[str, int]] = {}
        self.narrowed: dict[tuple[int, tuple[Requirement, ...]], ReqSet | None] = {}

    @cached
    def rows(self) -> list[list[int]]:
        """Return what each node has left, as plain numbers."""
        rows: list[list[int]] = self.room.tolist()
        return rows

    @cached
    def _by_label(self) -> dict[tuple[str, str, str], list[PodClass]]:
        """Classes by namespace and label."""
        found: dict[tuple[str, str, str], list[PodClass]] = {}
        for cls in self.classes:
            for key, value in cls.labels.items():
                found.setdefault((cls.namespace, key, value), []).append(cls)
        return found

    @cached
    def _by_namespace(self) -> dict[str, list[PodClass]]:
        """Classes by namespace."""
        found: dict[str, list[PodClass]] = {}
        for cls in self.classes:
            found.setdefault(cls.namespace, []).append(cls)
        return found

    # Variants

    def first(self, cls: PodClass) -> Variant:
        """Return the class with all its preferences."""
        found = self._first.get(cls.id)
        if found is None:
            found = self._first[cls.id] = self.variant(cls, cls.info.spec, ())
        return found

    def variant(self, cls: PodClass, spec: PodSpec, given_up: tuple[str, ...]) -> Variant:
        """Return the variant of a class after it has given up so much."""
        mark = (cls.id, len(given_up))
        found = self._variants.get(mark)
        if found is None:
            found = self._variants[mark] = Variant(self, len(self._variants), cls, spec, given_up)
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
        found: dict[str, set[str]] = {}
        for info in {cls.info.id: cls.info for cls in self.classes}.values():
            for key, values in asked_values(info.spec):
                found.setdefault(ALIASES.get(key, key), set()).update(values)
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
        """Return the one group of a rule, counted."""
        mark = rule.mark
        found = self._groups.get(mark)
        if found is not None:
            return found
        group = Group(self._next(), rule)
        counted = self.selected(rule.namespaces, MATCHES_EVERYTHING if rule.null_selector else rule.selector)
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
        self._groups[mark] = group
        return group

    def _next(self) -> int:
        self._count += 1
        return self._count

    def affinity_group(
        self, kind: int, cls: PodClass, term: PodAffinityTerm, tolerations: tuple[Toleration, ...]
    ) -> Group:
        """Return the group of a pod affinity or anti-affinity term."""
        return self.group(
            TopologyRule(
                kind=kind,
                key=term.topology_key,
                namespaces=self.namespaces_of(cls, term),
                selector=LabelSelector.compile(term.label_selector),
                null_selector=term.label_selector is None,
                tolerations=tolerations,
            )
        )

    def namespaces_of(self, cls: PodClass, term: PodAffinityTerm) -> frozenset[str]:
        """Return the namespaces that a term looks at."""
        if term.namespace_selector is None:
            return frozenset(term.namespaces) if term.namespaces else frozenset((cls.namespace,))
        selector = LabelSelector.compile(term.namespace_selector)
        chosen = [n.metadata.name for n in self.namespaces if selector.matches(n.metadata.labels)]
        return frozenset((*chosen, *term.namespaces))

    def selected(self, namespaces: frozenset[str], selector: LabelSelector) -> list[PodClass]:
        """Return the classes that a selector selects."""
        found: list[PodClass] = []
        for namespace in sorted(namespaces):
            if selector.equal:
                key, value = selector.equal[0]
                near: Iterable[PodClass] = self._by_label.get((namespace, key, value), ())
            else:
                near = self._by_namespace.get(namespace, ())
            found.extend(cls for cls in near if selector.matches(cls.labels))
        return found

    # Anti-affinity of others

    def _index_inverse(self) -> dict[tuple[str, str, str], list[Group]]:
        holders: dict[tuple[str, frozenset[str], LabelSelector], list[PodClass]] = {}
        for cls in self.classes:
            if not cls.info.anti_affinity:
                continue
            affinity = cls.info.spec.affinity
            assert affinity is not None
            assert affinity.pod_anti_affinity is not None
            for term in affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution:
                namespaces = self.namespaces_of(cls, term)
                selector = LabelSelector.compile(term.label_selector)
                mark = (term.topology_key, namespaces, selector)
                holders.setdefault(mark, []).append(cls)
        index: dict[tuple[str, str, str], list[Group]] = {}
        for (key, scope, selector), owners in holders.items():
            group = Group(self._next(), TopologyRule(kind=INVERSE, key=key, namespaces=scope, selector=selector))
            domains = self.domains(key)
            at = _concat(self.places.holding.get(cls.id) for cls in owners)
            if group.host:
                # Without the label nobody knows which host the pod holds against others.
                at = at[~self.columns.unnamed[at]]
            group.fill(self.columns, domains, domains.openable(owners[0].info.spec.tolerations), at, None)
            group.classes = group.based_on = {cls.id for cls in owners}
            for cls in owners:
                mine = self._inverse_owned.setdefault(cls.id, [])
                if group not in mine:
                    mine.append(group)
            for namespace in sorted(scope):
                if selector.equal:
                    index.setdefault((namespace, *selector.equal[0]), []).append(group)
                else:
                    self._inverse_wide.setdefault(namespace, []).append(group)
        return index

    def inverse_of(self, cls: PodClass) -> list[Group]:
        """Anti-affinity rules of others that keep pods of this class away."""
        found = self._inverse_of.get(cls.id)
        if found is not None:
            return found
        if self._inverse is None:
            self._inverse = self._index_inverse()
        found = []
        if self._inverse:
            for key, value in cls.labels.items():
                near = self._inverse.get((cls.namespace, key, value), ())
                found.extend(group for group in near if group.selector.matches(cls.labels))
        found.extend(g for g in self._inverse_wide.get(cls.namespace, ()) if g.selector.matches(cls.labels))
        self._inverse_of[cls.id] = found
        return found

    def inverse_owned(self, cls: PodClass) -> list[Group]:
        """Anti-affinity rules that pods of this class hold against others."""
        if self._inverse is None:
            self._inverse = self._index_inverse()
        return self._inverse_owned.get(cls.id, [])

    # Ports and volumes on nodes

    def strike_ports(self, wanted: tuple[HostPort, ...], mask: Mask) -> None:
        """Take nodes out of the mask on which a wanted port is used."""
        if wanted:
            for node, used in self.ports.items():
                if mask[node] and any(port.clashes(other) for port in wanted for other in used):
                    mask[node] = False

    def strike_volumes(self, wanted: tuple[tuple[str, str], ...], mask: Mask) -> None:
        """Take nodes out of the mask whose attach limits the volumes would break."""
        if self.storage.limits:
            for node in np.flatnonzero(mask).tolist():
                if not self.attaches(node, wanted, ()):
                    mask[node] = False

    def attaches(self, node: int, wanted: Iterable[tuple[str, str]], also: Iterable[tuple[str, str]]) -> bool:
        """Return whether a node can attach these volumes beside its own and those of pods placed there."""
        state = self.columns.states[node]
        limits = self.storage.limits.get(state.node.metadata.name) if state.node is not None else None
        if not limits:
            return True
        used = self.attached.get(node, {})
        extra: dict[str, set[str]] = {}
        for driver, claim in (*wanted, *also):
            extra.setdefault(driver, set()).add(claim)
        return all(len(used.get(driver, set()) | extra.get(driver, set())) <= limit for driver, limit in limits.items())


def _concat(parts: Iterable[Places | None]) -> Places:
    kept = [part for part in parts if part is not None and len(part)]
    if not kept:
        return _NOWHERE
    return kept[0] if len(kept) == 1 else np.concatenate(kept)
