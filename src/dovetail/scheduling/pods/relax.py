"""Relaxation: what a pod gives up, step by step, if it finds no place (docs/rules.md#scheduling).

Preferences are treated as required first. After each failure one of them goes, in Karpenter's order: the first of
several required node-affinity terms (they are joined by OR), the heaviest preferred pod affinity, the heaviest
preferred pod anti-affinity, the heaviest preferred node affinity, a ScheduleAnyway spread, and last the refusal of
PreferNoSchedule taints. The steps depend on the pod's spec alone, so every class of equal pods has one chain of them.
"""

from typing import Final

import msgspec

from dovetail.model.objects import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    PodAffinity,
    PodSpec,
    Toleration,
    WeightedPodAffinityTerm,
)

TOLERATE_PREFERENCES: Final = Toleration(operator="Exists", effect="PreferNoSchedule")


def _without_heaviest(terms: tuple[WeightedPodAffinityTerm, ...]) -> tuple[WeightedPodAffinityTerm, ...]:
    return tuple(sorted(terms, key=lambda term: -term.weight))[1:]


def _with_affinity(spec: PodSpec, affinity: Affinity) -> PodSpec:
    return msgspec.structs.replace(spec, affinity=affinity)


def _drop_required_term(spec: PodSpec) -> PodSpec | None:
    affinity = spec.affinity
    node = affinity.node_affinity if affinity is not None else None
    required = node.required_during_scheduling_ignored_during_execution if node is not None else None
    if affinity is None or node is None or required is None or len(required.node_selector_terms) < 2:
        return None
    fewer = NodeSelector(node_selector_terms=required.node_selector_terms[1:])
    kept = msgspec.structs.replace(node, required_during_scheduling_ignored_during_execution=fewer)
    return _with_affinity(spec, msgspec.structs.replace(affinity, node_affinity=kept))


def _lighter(group: PodAffinity | None) -> PodAffinity | None:
    if group is None or not group.preferred_during_scheduling_ignored_during_execution:
        return None
    rest = _without_heaviest(group.preferred_during_scheduling_ignored_during_execution)
    return msgspec.structs.replace(group, preferred_during_scheduling_ignored_during_execution=rest)


def _drop_preferred_affinity(spec: PodSpec) -> PodSpec | None:
    if spec.affinity is None or (lighter := _lighter(spec.affinity.pod_affinity)) is None:
        return None
    return _with_affinity(spec, msgspec.structs.replace(spec.affinity, pod_affinity=lighter))


def _drop_preferred_anti_affinity(spec: PodSpec) -> PodSpec | None:
    if spec.affinity is None or (lighter := _lighter(spec.affinity.pod_anti_affinity)) is None:
        return None
    return _with_affinity(spec, msgspec.structs.replace(spec.affinity, pod_anti_affinity=lighter))


def _drop_preferred_node_term(spec: PodSpec) -> PodSpec | None:
    affinity = spec.affinity
    node: NodeAffinity | None = affinity.node_affinity if affinity is not None else None
    if affinity is None or node is None or not node.preferred_during_scheduling_ignored_during_execution:
        return None
    terms = tuple(sorted(node.preferred_during_scheduling_ignored_during_execution, key=lambda t: -t.weight))[1:]
    kept = msgspec.structs.replace(node, preferred_during_scheduling_ignored_during_execution=terms)
    return _with_affinity(spec, msgspec.structs.replace(affinity, node_affinity=kept))


def _drop_soft_spread(spec: PodSpec) -> PodSpec | None:
    spreads = spec.topology_spread_constraints
    for index, spread in enumerate(spreads):
        if spread.when_unsatisfiable == "ScheduleAnyway":
            # The last one takes the position of the removed one, as upstream; it decides which soft spread is removed
            # next.
            kept = [*spreads]
            kept[index] = kept[-1]
            return msgspec.structs.replace(spec, topology_spread_constraints=tuple(kept[:-1]))
    return None


def _tolerate_preferences(spec: PodSpec) -> PodSpec | None:
    for toleration in spec.tolerations:
        if (toleration.key, toleration.operator, toleration.value, toleration.effect) == (
            "",
            TOLERATE_PREFERENCES.operator,
            "",
            TOLERATE_PREFERENCES.effect,
        ):
            return None
    return msgspec.structs.replace(spec, tolerations=(*spec.tolerations, TOLERATE_PREFERENCES))


_STEPS: Final = (
    (_drop_required_term, "the first of its required node-affinity terms"),
    (_drop_preferred_affinity, "a preferred pod affinity"),
    (_drop_preferred_anti_affinity, "a preferred pod anti-affinity"),
    (_drop_preferred_node_term, "a preferred node affinity"),
    (_drop_soft_spread, "a ScheduleAnyway spread"),
)


def relaxed(spec: PodSpec, *, tolerate_prefer_no_schedule: bool) -> tuple[PodSpec, str] | None:
    """Return the spec after one more preference is given up, and which one; None if there is no preference left."""
    for step, what in _STEPS:
        softer = step(spec)
        if softer is not None:
            return softer, what
    if tolerate_prefer_no_schedule:
        softer = _tolerate_preferences(spec)
        if softer is not None:
            return softer, "its refusal of PreferNoSchedule taints"
    return None


def next_preference(spec: PodSpec) -> str | None:
    """Return the preference that would be given up next, in words; terms of a required affinity don't count."""
    for step, what in _STEPS[1:]:
        if step(spec) is not None:
            return what
    return None
