"""Which waiting pods a new node could help at all: what Karpenter ignores before it simulates.

A pod that refuses every pool's nodes, requests restricted labels, or has unusable claims is excluded from simulations,
with a sentence that says why.
"""

from collections.abc import Iterable
from typing import Final

from dovetail.model import names
from dovetail.model.labels.requirements import pod_requirements
from dovetail.model.labels.syntax import ALIASES, is_label_value, is_qualified_name
from dovetail.model.objects import Pod, SelectorRequirement
from dovetail.scheduling.pods.volumes import VolumeNeeds

_OPERATORS: Final = frozenset({"In", "NotIn", "Gt", "Lt", "Gte", "Lte", "Exists", "DoesNotExist"})
_BOUNDS: Final = frozenset({"Gt", "Lt", "Gte", "Lte"})
_RESERVED: Final = "karpenter.sh"
_CAPACITY_TYPES: Final = frozenset({names.SPOT, names.ON_DEMAND, names.RESERVED})


def why_ignored(pod: Pod, volumes: VolumeNeeds, known: frozenset[str]) -> str:
    """Return why a waiting pod is excluded; empty if it is not."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    pool = pod_requirements(pod.spec.node_selector, affinity, preferences=True).get(names.NODEPOOL)
    if pool is not None and pool.operator() == "DoesNotExist":
        return "it asks not to run on a node of any pool"
    entries = [SelectorRequirement(key=k, operator="In", values=(v,)) for k, v in pod.spec.node_selector.items()]
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        if term.match_fields:
            return "its node affinity selects by fields, which new nodes can't be made for"
        entries.extend(term.match_expressions)
    return _first_problem(entries, known) or (volumes.unusable or "")


def _first_problem(entries: Iterable[SelectorRequirement], known: frozenset[str]) -> str:
    for entry in entries:
        problem = _problem(entry, ALIASES.get(entry.key, entry.key), known)
        if problem:
            return f"its node affinity or selector {problem}"
    return ""


def _problem(entry: SelectorRequirement, key: str, known: frozenset[str]) -> str:
    if entry.operator not in _OPERATORS:
        return f"has the unknown operator {entry.operator} on {key}"
    domain = key.rpartition("/")[0]
    if key not in known and (key == names.HOSTNAME or domain == _RESERVED or domain.endswith("." + _RESERVED)):
        return f"asks for the label {key}, which no pool may set"
    if key == names.CAPACITY_TYPE and entry.operator == "In" and not _CAPACITY_TYPES & set(entry.values):
        return f"asks for a {key} that does not exist"
    if not is_qualified_name(key):
        return f"names {key!r}, which is not a valid label"
    wrong = next((value for value in entry.values if not is_label_value(value)), None)
    if wrong is not None:
        return f"asks for {key} = {wrong!r}, which is not a valid label value"
    if entry.operator == "In" and not entry.values:
        return f"lists no value for {key}"
    if entry.operator in _BOUNDS and not (len(entry.values) == 1 and entry.values[0].isdigit()):
        return f"needs one whole number for {key} with {entry.operator}"
    return ""
