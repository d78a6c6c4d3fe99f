"""Spread, affinity and anti-affinity: groups of pods counted per domain of a label, and what they allow a pod.

One group stands for one rule, shared by all pods that carry it. Counts start from the pods that run, without those
that are being placed, and grow as pods are placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dovetail.model.cluster import Cluster
from dovetail.model.names import HOSTNAME
from dovetail.model.objects import (
    LabelSelectorSpec,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SelectorRequirement,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from tests.reference import pods as pod_rules
from tests.reference.nodes import StateNode
from tests.reference.pods import identity, tolerates
from tests.reference.requirements import Requirement, Requirements, from_labels

SPREAD, AFFINITY, ANTI_AFFINITY = "spread", "affinity", "anti-affinity"
NO_LIMIT = 2**31 - 1


SelectorKey = tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str, frozenset[str]]]]


class DomainTable:
    """For each label the values that new nodes can have, and the taints such nodes would carry."""

    def __init__(self) -> None:
        self._taints: dict[str, dict[str, list[tuple[Taint, ...]]]] = {}

    def insert(self, key: str, domain: str, taints: tuple[Taint, ...]) -> None:
        """A pool with these taints can give nodes this label."""
        self._taints.setdefault(key, {}).setdefault(domain, []).append(taints)

    def domains(self, key: str, tolerations: Sequence[Toleration], *, any_taint: bool) -> list[str]:
        """Return the values of a label; unless `any_taint`, only those of pools whose taints are tolerated."""
        table = self._taints.get(key, {})
        return [
            domain
            for domain, pools in table.items()
            if any_taint or any(tolerates(tolerations, taints) for taints in pools)
        ]


@dataclass(frozen=True)
class NodeFilter:
    """Which nodes take part in a spread: by the pod's node selector and affinity, and by taints."""

    alternatives: tuple[frozenset[Requirement], ...] = ()
    honors_affinity: bool = False
    honors_taints: bool = False
    tolerations: tuple[Toleration, ...] = ()

    def admits(self, taints: Sequence[Taint], node: Requirements) -> bool:
        """Return whether a node like this takes part."""
        if self.honors_taints and not tolerates(self.tolerations, taints):
            return False
        if not self.honors_affinity or not self.alternatives:
            return True
        return any(node.compatible(Requirements(wanted)) for wanted in self.alternatives)


@dataclass(frozen=True)
class Rule:
    """What makes two pods' rules the same rule."""

    kind: str
    key: str
    namespaces: frozenset[str]
    selector: SelectorKey | None
    max_skew: int = NO_LIMIT
    min_domains: int | None = None
    filter_alternatives: frozenset[frozenset[Requirement]] = frozenset()
    honors_affinity: bool = False
    honors_taints: bool = False
    tolerations: frozenset[tuple[str, str, str, str]] = frozenset()


@dataclass
class Group:
    """One rule: its owners, and how many selected pods each domain has."""

    rule: Rule
    selector: LabelSelectorSpec | None
    node_filter: NodeFilter
    counts: dict[str, int]
    owners: set[str] = field(default_factory=set)

    def selects(self, pod: Pod) -> bool:
        """Return whether the pod counts for the rule."""
        in_namespace = pod.metadata.namespace in self.rule.namespaces
        return in_namespace and pod_rules.selects(self.selector, pod.metadata.labels)

    def counts_on(self, pod: Pod, taints: Sequence[Taint], node: Requirements) -> bool:
        """Return whether the pod counts for the rule if it lands on such a node."""
        return self.selects(pod) and self.node_filter.admits(taints, node)

    def register(self, domain: str) -> None:
        """A domain exists."""
        self.counts.setdefault(domain, 0)

    def record(self, domains: Iterable[str]) -> None:
        """A selected pod is, or may be, there."""
        for domain in domains:
            self.counts[domain] = self.counts.get(domain, 0) + 1

    def allowed(self, pod: Pod, pod_domains: Requirement, node_domains: Requirement) -> Requirement:
        """Return the domains in which the rule lets the pod be, of those that the node could be in."""
        if self.rule.kind == SPREAD:
            chosen = self._spread(pod, pod_domains, node_domains)
        elif self.rule.kind == AFFINITY:
            chosen = self._affinity(pod, pod_domains, node_domains)
        else:
            chosen = self._anti_affinity(pod_domains, node_domains)
        return Requirement(self.rule.key, frozenset(chosen))

    def _host(self, node_domains: Requirement) -> str | None:
        """Return the one host in question: a host is a domain even before it exists."""
        if self.rule.key == HOSTNAME and len(node_domains.values) == 1:
            return next(iter(node_domains.values))
        return None

    def _known(self, node_domains: Requirement) -> list[str]:
        return [domain for domain in sorted(self.counts) if node_domains.has(domain)]

    def _spread(self, pod: Pod, pod_domains: Requirement, node_domains: Requirement) -> list[str]:
        own = 1 if self.selects(pod) else 0
        host = self._host(node_domains)
        if host is not None:
            # A new node can always be had, so the emptiest host has none.
            return [host] if self.counts.get(host, 0) + own <= self.rule.max_skew else []
        least = self._least(pod_domains)
        valid = [
            domain for domain in self._known(node_domains) if self.counts[domain] + own - least <= self.rule.max_skew
        ]
        # One domain, the emptiest; of several, the first by name.
        return [min(valid, key=lambda domain: (self.counts[domain], domain))] if valid else []

    def _least(self, pod_domains: Requirement) -> int:
        if self.rule.key == HOSTNAME:
            return 0
        counts = [count for domain, count in self.counts.items() if pod_domains.has(domain)]
        if self.rule.min_domains is not None and len(counts) < self.rule.min_domains:
            return 0
        return min(counts, default=NO_LIMIT)

    def _affinity(self, pod: Pod, pod_domains: Requirement, node_domains: Requirement) -> list[str]:
        # The first of its kind may start anywhere.
        nobody = not any(count > 0 for domain, count in self.counts.items() if pod_domains.has(domain))
        may_start = self.selects(pod) and nobody
        host = self._host(node_domains)
        if host is not None:
            return [host] if pod_domains.has(host) and (self.counts.get(host, 0) > 0 or may_start) else []
        populated = [
            domain for domain in self._known(node_domains) if pod_domains.has(domain) and self.counts[domain] > 0
        ]
        if populated or not may_start:
            return populated
        both = pod_domains.intersection(node_domains)
        first = [domain for domain in sorted(self.counts) if both.has(domain)][:1]
        other = [domain for domain in sorted(self.counts) if pod_domains.has(domain)][:1]
        return first + other

    def _anti_affinity(self, pod_domains: Requirement, node_domains: Requirement) -> list[str]:
        host = self._host(node_domains)
        if host is not None:
            return [host] if self.counts.get(host, 0) == 0 else []
        known = self._known(node_domains)
        return [domain for domain in known if pod_domains.has(domain) and self.counts[domain] == 0]


class Topology:
    """All groups of one packing run."""

    def __init__(
        self,
        cluster: Cluster,
        every_node: Sequence[StateNode],
        open_nodes: Sequence[StateNode],
        table: DomainTable,
        placing: Sequence[Pod],
        *,
        ignore_preferences: bool,
    ) -> None:
        self._cluster = cluster
        self._open_nodes = open_nodes
        self._table = table
        self._placing = {identity(pod) for pod in placing}
        self._ignore_preferences = ignore_preferences
        self._nodes = {node.metadata.name: node for node in cluster.nodes}
        self.groups: dict[Rule, Group] = {}
        self.inverse: dict[Rule, Group] = {}
        self._watch_running_anti_affinity(every_node)
        for pod in placing:
            self.update(pod)

    # Building

    def update(self, pod: Pod) -> None:
        """Takes the pod's rules as they are now; those that it no longer has don't bind it any more."""
        for group in self.groups.values():
            group.owners.discard(identity(pod))
        for term in _required(pod, "pod_anti_affinity"):
            self._inverse_group(pod, term).owners.add(identity(pod))
        for constraint in pod.spec.topology_spread_constraints:
            if not (self._ignore_preferences and constraint.when_unsatisfiable != "DoNotSchedule"):
                self._own(pod, self._spread_group(pod, constraint))
        for kind, part in ((AFFINITY, "pod_affinity"), (ANTI_AFFINITY, "pod_anti_affinity")):
            preferred = [] if self._ignore_preferences else _preferred(pod, part)
            for term in [*_required(pod, part), *preferred]:
                self._own(pod, self._affinity_group(kind, pod, term))

    def _own(self, pod: Pod, group: Group) -> None:
        if group.rule not in self.groups:
            self._count(group)
            self.groups[group.rule] = group
        self.groups[group.rule].owners.add(identity(pod))

    def _spread_group(self, pod: Pod, constraint: TopologySpreadConstraint) -> Group:
        selector = constraint.label_selector
        for key in constraint.match_label_keys:
            if key in pod.metadata.labels:
                more = SelectorRequirement(key=key, operator="In", values=(pod.metadata.labels[key],))
                given = selector or LabelSelectorSpec()
                selector = LabelSelectorSpec(
                    match_labels=given.match_labels, match_expressions=(*given.match_expressions, more)
                )
        node_filter = NodeFilter(
            alternatives=tuple(item.key() for item in pod_rules.required_alternatives(pod)),
            honors_affinity=(constraint.node_affinity_policy or "Honor") == "Honor",
            honors_taints=(constraint.node_taints_policy or "Ignore") == "Honor",
            tolerations=pod.spec.tolerations,
        )
        rule = Rule(
            kind=SPREAD,
            key=constraint.topology_key,
            namespaces=frozenset({pod.metadata.namespace}),
            max_skew=constraint.max_skew,
            min_domains=constraint.min_domains,
            filter_alternatives=frozenset(node_filter.alternatives),
            honors_affinity=node_filter.honors_affinity,
            honors_taints=node_filter.honors_taints,
            tolerations=frozenset((t.key, t.operator, t.value, t.effect) for t in pod.spec.tolerations),
            selector=_selector_key(selector),
        )
        domains = self._table.domains(rule.key, pod.spec.tolerations, any_taint=not node_filter.honors_taints)
        return Group(rule, selector, node_filter, dict.fromkeys(domains, 0))

    def _affinity_group(self, kind: str, pod: Pod, term: PodAffinityTerm) -> Group:
        rule = Rule(
            kind=kind,
            key=term.topology_key,
            namespaces=self._namespaces(pod, term),
            selector=_selector_key(term.label_selector),
        )
        domains = self._table.domains(rule.key, pod.spec.tolerations, any_taint=False)
        return Group(rule, term.label_selector, NodeFilter(), dict.fromkeys(domains, 0))

    def _namespaces(self, pod: Pod, term: PodAffinityTerm) -> frozenset[str]:
        if term.namespace_selector is None:
            return frozenset(term.namespaces or (pod.metadata.namespace,))
        chosen = [
            item.metadata.name
            for item in self._cluster.namespaces
            if pod_rules.selects(term.namespace_selector, item.metadata.labels)
        ]
        return frozenset([*chosen, *term.namespaces])

    def _inverse_group(self, pod: Pod, term: PodAffinityTerm) -> Group:
        group = self._affinity_group(ANTI_AFFINITY, pod, term)
        return self.inverse.setdefault(group.rule, group)

    def _watch_running_anti_affinity(self, every_node: Sequence[StateNode]) -> None:
        """Anti-affinity works both ways: running pods keep others out of where they are."""
        nodes = {state.node.metadata.name: state.node for state in every_node if state.node is not None}
        for pod in self._cluster.pods:
            node = nodes.get(pod.spec.node_name)
            if node is None or pod_rules.is_terminal(pod) or identity(pod) in self._placing:
                continue
            for term in _required(pod, "pod_anti_affinity"):
                group = self._inverse_group(pod, term)
                if term.topology_key in node.metadata.labels:
                    group.record([node.metadata.labels[term.topology_key]])
                group.owners.add(identity(pod))

    def _count(self, group: Group) -> None:
        """Starts a group: the domains of open nodes, and the selected pods that run."""
        key = group.rule.key
        for state in self._open_nodes:
            if state.node is None or not self._takes_part(group, state.node):
                continue
            if key in state.labels:
                group.register(state.labels[key])
        for pod in self._cluster.pods:
            node = self._nodes.get(pod.spec.node_name)
            if node is None or not pod_rules.is_active(pod) or identity(pod) in self._placing:
                continue
            if pod.metadata.namespace not in group.rule.namespaces or not self._selected(group, pod):
                continue
            domain = node.metadata.labels.get(key, node.metadata.name if key == HOSTNAME else None)
            if domain is not None and self._takes_part(group, node):
                group.record([domain])

    @staticmethod
    def _selected(group: Group, pod: Pod) -> bool:
        # Without a selector running pods all count, although no pod that is placed will.
        return group.selector is None or pod_rules.selects(group.selector, pod.metadata.labels)

    @staticmethod
    def _takes_part(group: Group, node: Node) -> bool:
        return group.node_filter.admits(node.spec.taints, from_labels(node.metadata.labels))

    # Asking and telling

    def register_host(self, host: str) -> None:
        """A host exists."""
        for group in [*self.groups.values(), *self.inverse.values()]:
            if group.rule.key == HOSTNAME:
                group.register(host)

    def narrowed(
        self, pod: Pod, taints: Sequence[Taint], strict: Requirements, node: Requirements
    ) -> Requirements | None:
        """The node's requirements narrowed to where every rule lets the pod be; None where one lets it be nowhere."""
        result = node.copy()
        owned = [group for group in self.groups.values() if identity(pod) in group.owners]
        repelling = [group for group in self.inverse.values() if group.counts_on(pod, taints, node)]
        for group in [*owned, *repelling]:
            allowed = group.allowed(pod, strict.get(group.rule.key), node.get(group.rule.key))
            if allowed.allows_nothing():
                return None
            narrower = result.get(group.rule.key).intersection(allowed)
            # Two rules that agree on no domain. (Karpenter takes a node without the label then.)
            if narrower.allows_nothing():
                return None
            result.replace(narrower)
        return result

    def record(self, pod: Pod, taints: Sequence[Taint], node: Requirements) -> None:
        """The pod is placed on a node that these requirements describe."""
        for group in self.groups.values():
            if not group.counts_on(pod, taints, node):
                continue
            domains = node.get(group.rule.key)
            # Anti-affinity blocks all places where the pod might come to be; the others count only where it is sure.
            if group.rule.kind == ANTI_AFFINITY or (not domains.complement and len(domains.values) == 1):
                group.record(sorted(domains.values))
        for group in self.inverse.values():
            if identity(pod) in group.owners:
                group.record(sorted(node.get(group.rule.key).values))


def _affinity_part(pod: Pod, part: str) -> PodAffinity:
    return (getattr(pod.spec.affinity, part) if pod.spec.affinity else None) or PodAffinity()


def _required(pod: Pod, part: str) -> list[PodAffinityTerm]:
    return list(_affinity_part(pod, part).required_during_scheduling_ignored_during_execution)


def _preferred(pod: Pod, part: str) -> list[PodAffinityTerm]:
    terms = _affinity_part(pod, part).preferred_during_scheduling_ignored_during_execution
    return [term.pod_affinity_term for term in terms]


def _selector_key(selector: LabelSelectorSpec | None) -> SelectorKey | None:
    if selector is None:
        return None
    expressions = frozenset((item.key, item.operator, frozenset(item.values)) for item in selector.match_expressions)
    return frozenset(selector.match_labels.items()), expressions
