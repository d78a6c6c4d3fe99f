"""Matching in the simulated kube-scheduler and controllers: selectors, affinity terms, tolerations.

Independent of `scheduling` on purpose: the world must not share mistakes with the plan that it tests.
Follows the Kubernetes API's words for each field. Pure functions.
"""

from collections.abc import Mapping

from dovetail.model.objects import (
    LabelSelectorSpec,
    NodeSelector,
    NodeSelectorTerm,
    PodDisruptionBudget,
    PodSpec,
    SelectorRequirement,
    Taint,
    Toleration,
)
from dovetail.model.quantity import resource_amount

Labels = Mapping[str, str]


def admits(requirement: SelectorRequirement, value: str | None) -> bool:
    """Return whether a label's value (None: no such label) goes with one requirement."""
    operator = requirement.operator
    if operator == "In":
        return value is not None and value in requirement.values
    if operator == "NotIn":
        return value is None or value not in requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None:
        return False
    try:
        number, bound = int(value), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    compared = {"Gt": number > bound, "Lt": number < bound, "Gte": number >= bound, "Lte": number <= bound}
    return compared.get(operator, False)


def selects(selector: LabelSelectorSpec | None, labels: Labels) -> bool:
    """Return whether a label selector picks these labels: none picks nothing, an empty one everything."""
    if selector is None:
        return False
    for key, wanted in selector.match_labels.items():
        if labels.get(key) != wanted:
            return False
    return all(admits(entry, labels.get(entry.key)) for entry in selector.match_expressions)


class BudgetIndex:
    """PodDisruptionBudgets by namespace and a label that they select by: few have to be compared with a pod."""

    def __init__(self, budgets: Mapping[str, PodDisruptionBudget]) -> None:
        self._budgets = budgets
        self._near: dict[tuple[str, tuple[str, str] | None], list[str]] = {}
        for name, budget in budgets.items():
            wanted = budget.spec.selector.match_labels if budget.spec.selector is not None else {}
            place = (budget.metadata.namespace, next(iter(wanted.items()), None))
            self._near.setdefault(place, []).append(name)

    def over(self, namespace: str, labels: Labels) -> tuple[str, ...]:
        """Return the keys of the budgets that pods with these labels are under, in order."""
        near = (name for label in (None, *labels.items()) for name in self._near.get((namespace, label), ()))
        return tuple(sorted(name for name in near if selects(self._budgets[name].spec.selector, labels)))


def _term_matches(term: NodeSelectorTerm, labels: Labels, name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(admits(entry, labels.get(entry.key)) for entry in term.match_expressions) and all(
        admits(entry, name if entry.key == "metadata.name" else None) for entry in term.match_fields
    )


def node_selector_matches(selector: NodeSelector | None, labels: Labels, name: str = "") -> bool:
    """Return whether one of the terms matches; no selector matches every node."""
    return selector is None or any(_term_matches(term, labels, name) for term in selector.node_selector_terms)


def term_matches(term: NodeSelectorTerm, labels: Labels, name: str = "") -> bool:
    """Return whether a single (preferred) term matches."""
    return _term_matches(term, labels, name)


def node_fits_selectors(spec: PodSpec, labels: Labels, name: str = "") -> bool:
    """Check nodeSelector and required node affinity."""
    if spec.node_selector and any(labels.get(key) != wanted for key, wanted in spec.node_selector.items()):
        return False
    if spec.affinity is None or spec.affinity.node_affinity is None:
        return True
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return node_selector_matches(required, labels, name)


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Return whether some toleration covers the taint."""
    for entry in tolerations:
        if entry.effect and entry.effect != taint.effect:
            continue
        if entry.key and entry.key != taint.key:
            continue
        if not entry.key and entry.operator != "Exists":
            continue
        if entry.operator == "Exists" or entry.value == taint.value:
            return True
    return False


def admitted_by_taints(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> bool:
    """Return whether no NoSchedule or NoExecute taint keeps the pod out."""
    return all(taint.effect == "PreferNoSchedule" or tolerates(tolerations, taint) for taint in taints)


def requests_of(spec: PodSpec) -> dict[str, int]:
    """Return the pod's total requests: containers and sidecars, the largest init step, overhead; and one pod."""
    total: dict[str, int] = {}
    for container in spec.containers:
        _add(total, container.resources.requests)
    steps: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.init_containers:
        if container.restart_policy == "Always":
            _add(sidecars, container.resources.requests)
            step = dict(sidecars)
        else:
            step = dict(sidecars)
            _add(step, container.resources.requests)
        for name, amount in step.items():
            steps[name] = max(steps.get(name, 0), amount)
    for name, amount in sidecars.items():
        total[name] = total.get(name, 0) + amount
    for name, amount in steps.items():
        total[name] = max(total.get(name, 0), amount)
    if spec.resources is not None:
        for name, text in spec.resources.requests.items():
            total[name] = resource_amount(name, text)
    _add(total, spec.overhead)
    total["pods"] = 1
    return total


def _add(total: dict[str, int], requests: Mapping[str, str | int | float]) -> None:
    for name, text in requests.items():
        total[name] = total.get(name, 0) + resource_amount(name, text)
