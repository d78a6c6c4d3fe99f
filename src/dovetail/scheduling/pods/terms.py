"""What a class of pods asks for at each step of its relaxation, whatever the nodes are: labels and topology rules.

None of it depends on nodes, on where pods are or on time. So the terms that one snapshot has compiled serve the next
(`SnapshotMemory`), and only the counts of the rules are new (`scheduling.frame`). Decides nothing.
"""

from collections.abc import Iterator, Sequence

import msgspec

from dovetail.model import names
from dovetail.model.labels.requirements import Requirements, pod_requirements
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.objects import LabelSelectorSpec, Namespace, PodAffinityTerm, PodSpec, TopologySpreadConstraint
from dovetail.scheduling.launch.machines import Machines, ReqSet
from dovetail.scheduling.pods.class_index import namespaces_of
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.topology.groups import AFFINITY, ANTI_AFFINITY, SPREAD, NodeFilter, TopologyRule


class Terms(msgspec.Struct, frozen=True, eq=False):
    """One step of a class: what its labels ask for, without and with preferences, and its topology rules.

    `lasting`: a new node can't come to meet the labels only because of other pods on it.
    """

    strict: Requirements
    reqs: ReqSet
    rules: tuple[TopologyRule, ...]
    lasting: bool


class ClassTerms:
    """The terms of classes, by step, for some machines and namespaces; compiled on first access."""

    def __init__(self, machines: Machines, namespaces: Sequence[Namespace], *, respects: bool) -> None:
        self.machines, self.namespaces, self.respects = machines, namespaces, respects
        self._terms: dict[tuple[int, int], Terms] = {}
        self._rules: dict[tuple[object, ...], TopologyRule] = {}

    def of(self, cls: PodClass, spec: PodSpec, step: int) -> Terms:
        """Return the terms of a class after that many steps; `spec`: what is left of its spec then."""
        found = self._terms.get((cls.id, step))
        if found is None:
            found = self._terms[cls.id, step] = self._compile(cls, spec)
        return found

    def _compile(self, cls: PodClass, spec: PodSpec) -> Terms:
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        strict = pod_requirements(spec.node_selector, affinity, preferences=False)
        everything = pod_requirements(spec.node_selector, affinity, preferences=True) if self.respects else strict
        found = {}
        for rule in _rules(cls, spec, self.namespaces, respects=self.respects):
            key = rule.identity
            found[key] = self._rules.setdefault(key, rule)
        reqs = self.machines.intern(everything)
        return Terms(strict, reqs, tuple(found.values()), lasting(reqs, self.machines))


def lasting(reqs: ReqSet, machines: Machines) -> bool:
    """Return whether a new node has none of these labels only because a pod that forbids a value has joined it."""
    known = machines.known
    return all(entry.key in known or entry.key == names.HOSTNAME or entry.lenient() for entry in reqs.reqs)


def _rules(cls: PodClass, spec: PodSpec, namespaces: Sequence[Namespace], *, respects: bool) -> Iterator[TopologyRule]:
    for spread in spec.topology_spread_constraints:
        if respects or spread.when_unsatisfiable == "DoNotSchedule":
            yield _spread_rule(cls, spec, spread)
    if spec.affinity is None:
        return
    for kind, group in ((AFFINITY, spec.affinity.pod_affinity), (ANTI_AFFINITY, spec.affinity.pod_anti_affinity)):
        if group is None:
            continue
        terms = list(group.required_during_scheduling_ignored_during_execution)
        if respects:
            weighted = group.preferred_during_scheduling_ignored_during_execution
            terms.extend(term.pod_affinity_term for term in weighted)
        for term in terms:
            yield _affinity_rule(kind, cls, term, namespaces)


def _spread_rule(cls: PodClass, spec: PodSpec, spread: TopologySpreadConstraint) -> TopologyRule:
    selector = spread.label_selector
    extra = [(key, cls.labels[key]) for key in spread.match_label_keys if key in cls.labels]
    compiled = LabelSelector.compile(selector if selector is not None or not extra else LabelSelectorSpec())
    if extra:
        compiled = compiled.with_equal(extra)
    node_filter = NodeFilter(
        _filter_terms(spec),
        spec.tolerations,
        honor_affinity=spread.node_affinity_policy in (None, "Honor"),
        honor_taints=spread.node_taints_policy == "Honor",
    )
    return TopologyRule(
        kind=SPREAD,
        key=spread.topology_key,
        namespaces=frozenset((cls.namespace,)),
        selector=compiled,
        null_selector=selector is None,
        max_skew=spread.max_skew,
        min_domains=spread.min_domains,
        node_filter=node_filter,
    )


def _filter_terms(spec: PodSpec) -> tuple[Requirements, ...]:
    base = Requirements.from_labels(spec.node_selector)
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return (base,)
    terms = required.node_selector_terms
    return tuple(base.union(Requirements.from_spec(term.match_expressions)) for term in terms)


def _affinity_rule(kind: int, cls: PodClass, term: PodAffinityTerm, namespaces: Sequence[Namespace]) -> TopologyRule:
    """Return the rule of a pod affinity or anti-affinity term.

    It has the pod's own tolerations, not those that relaxation adds: the rule and its counts stay the same.
    """
    return TopologyRule(
        kind=kind,
        key=term.topology_key,
        namespaces=namespaces_of(cls, term, namespaces),
        selector=LabelSelector.compile(term.label_selector),
        null_selector=term.label_selector is None,
        tolerations=cls.info.spec.tolerations,
    )
