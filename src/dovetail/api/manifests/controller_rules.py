"""What Karpenter's controller refuses in a pool's template, beyond (or instead of) the API server.

Works on the raw tree, as `api.manifests.validate` does, which calls it. Sits in api; reads no files.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from dovetail.api.findings import Finding
from dovetail.api.manifests.manifest_shapes import (
    LABEL_NAME,
    LABEL_VALUE,
    OPERATORS,
)
from dovetail.api.manifests.shape import child, error, warning
from dovetail.model.names import CAPACITY_TYPE, HOSTNAME, NODEPOOL, ON_DEMAND, RESERVED, SPOT
from dovetail.model.timing.duration import parse_simple

_LENGTH: Final = re.compile(r"(?:[0-9]+[smhd])+")
KARPENTER_DOMAIN: Final = re.compile(r"[^/]*karpenter[.]sh(?:/.*)?")


_COUNT: Final = re.compile(r"[+-]?[0-9]+")


_COMPARES: Final = ("Gt", "Lt", "Gte", "Lte")


_CAPACITY_TYPES: Final = (ON_DEMAND, SPOT, RESERVED)


_LABEL_VALUE_REMEDY: Final = "write at most 63 letters, digits, -, _ and ."


_LONGEST_INT: Final = 2**63 - 1


def overlong(holder: dict[str, Any], names: tuple[str, ...], path: str) -> Iterator[Finding]:
    """Refuse durations of the right form that don't fit a 64-bit integer of nanoseconds; Karpenter fails on them."""
    for name in names:
        text = holder.get(name)
        if not isinstance(text, str) or _LENGTH.fullmatch(text) is None:
            continue
        try:
            parse_simple(text, "smhd")
        except ValueError:
            yield error(child(path, name), text, "is longer than anything can last", "write at most 2562047h, or Never")


def controller_findings(template: dict[str, Any]) -> Iterator[Finding]:
    """Return what Karpenter's controller refuses in a pool's template, beyond (or instead of) the API server."""
    for key, value in template_labels(template).items():
        path = child("spec.template.metadata.labels", key)
        if key == NODEPOOL:
            yield error(path, key, "can't be set here: it is filled in from the pool's name", "take it out")
        if re.fullmatch(LABEL_NAME, key) is None:
            yield error(path, key, "is not a valid label name", "write a name such as example.com/team")
        if isinstance(value, str) and not _is_label_value(value):
            yield error(path, value, "is not a valid label value", _LABEL_VALUE_REMEDY)
        yield from _restricted(key, path)
    spec = template.get("spec")
    yield from _taints(spec)
    yield from overlong(map_or_empty(spec), ("expireAfter", "terminationGracePeriod"), "spec.template.spec")
    for index, requirement in indexed_requirements(spec):
        path = f"spec.template.spec.requirements[{index}]"
        yield from requirement_findings(requirement, path)
        if requirement.get("key") == NODEPOOL:
            yield error(
                f"{path}.key", NODEPOOL, "can't be set here: it is filled in from the pool's name", "take it out"
            )


def template_labels(template: dict[str, Any]) -> dict[str, Any]:
    """Return the labels of a pool's template."""
    return map_or_empty(map_or_empty(template.get("metadata")).get("labels"))


def map_or_empty(value: Any) -> dict[str, Any]:
    """Return the value if it is a map, else an empty one; the shape check reports the rest."""
    return value if isinstance(value, dict) else {}


def indexed_requirements(spec: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each requirement of a spec that is a map, with its index."""
    requirements = spec.get("requirements") if isinstance(spec, dict) else None
    for index, requirement in enumerate(requirements if isinstance(requirements, list) else ()):
        if isinstance(requirement, dict):
            yield index, requirement


def _restricted(key: str, path: str) -> Iterator[Finding]:
    domain = key.partition("/")[0] if "/" in key else ""
    if key in (NODEPOOL, CAPACITY_TYPE):
        return
    if domain == "karpenter.sh" or domain.endswith(".karpenter.sh"):
        yield error(
            path, key, "is of Karpenter's own domain", "use a domain of your own; karpenter.sh/capacity-type is fine"
        )
    elif key == HOSTNAME:
        yield error(path, key, "can't be set here: each node has its own", "take it out")


def _taints(spec: Any) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for name in ("taints", "startupTaints"):
        taints = spec.get(name) if isinstance(spec, dict) else None
        for index, taint in enumerate(taints if isinstance(taints, list) else ()):
            if not isinstance(taint, dict):
                continue
            path = f"spec.template.spec.{name}[{index}]"
            key, value, effect = (str(taint.get(part, "")) for part in ("key", "value", "effect"))
            if re.fullmatch(LABEL_NAME, key) is None:
                yield error(f"{path}.key", key, "is not a valid taint name", "write a name such as example.com/team")
            if value and re.fullmatch(LABEL_NAME, value) is None:
                yield error(f"{path}.value", value, "is not a valid taint value", _LABEL_VALUE_REMEDY)
            if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
                yield error(
                    f"{path}.effect",
                    effect,
                    "is not a valid effect",
                    "write NoSchedule or PreferNoSchedule or NoExecute",
                )
            if (key, effect) in seen:
                yield error(path, taint, f"repeats the taint {key}:{effect}", "keep one of them")
            seen.add((key, effect))


_Report = Callable[[str, Any, str, str], Finding]


def requirement_findings(requirement: dict[str, Any], path: str, controller: _Report = error) -> Iterator[Finding]:
    """Check one requirement: its values against its operator, and its names.

    `controller_findings` reports what only the controller refuses: it checks pools, but not claims.
    """
    key, operator = str(requirement.get("key", "")), requirement.get("operator")
    written = requirement.get("values")
    values = [value for value in written if isinstance(value, str)] if isinstance(written, list) else []
    if operator not in OPERATORS:
        yield error(f"{path}.operator", operator, "is not a valid operator", f"write {' or '.join(OPERATORS)}")
    yield from _restricted(key, f"{path}.key")
    if re.fullmatch(LABEL_NAME, key) is None:
        yield controller(f"{path}.key", key, "is not a valid label name", "write a name such as kubernetes.io/arch")
    for index, value in enumerate(values):
        if not _is_label_value(value):
            yield controller(f"{path}.values[{index}]", value, "is not a valid label value", _LABEL_VALUE_REMEDY)
    if operator == "In":
        yield from _in_values(requirement, values, path)
        yield from _capacity_types(requirement, values, path, controller)
    if operator in _COMPARES and not (len(values) == 1 and _is_count(values[0])):
        problem = f"must be one whole number of 0 or more for {operator}"
        yield error(f"{path}.values", written, problem, 'write ["4"], say')


def _in_values(requirement: dict[str, Any], values: list[str], path: str) -> Iterator[Finding]:
    least = requirement.get("minValues")
    if isinstance(least, float) and least.is_integer():  # valid elsewhere, but CEL compares it with an integer
        yield error(f"{path}.minValues", least, "must be a whole number", f"write {least:.0f}")
    if not values:
        problem = "must name at least one value for In"
        yield error(f"{path}.values", requirement.get("values"), problem, "write the values")
    elif len(values) < _least(requirement):
        problem = f"has fewer values than minValues ({least}) asks for"
        yield error(f"{path}.values", values, problem, "add values or lower it")


def _least(requirement: dict[str, Any]) -> int:
    least = requirement.get("minValues")
    return least if isinstance(least, int) and not isinstance(least, bool) else 0


def _capacity_types(
    requirement: dict[str, Any], values: list[str], path: str, controller: _Report
) -> Iterator[Finding]:
    if requirement.get("key") != CAPACITY_TYPE or not values:
        return
    known = [value for value in values if value in _CAPACITY_TYPES]
    remedy = f"write {', '.join(_CAPACITY_TYPES)}"
    if not known or len(known) < _least(requirement):
        yield controller(f"{path}.values", values, "has too few capacity types that exist", remedy)
    elif len(known) < len(values):
        strange = [value for value in values if value not in _CAPACITY_TYPES]
        yield warning(f"{path}.values", strange, "is not a capacity type and is ignored", remedy)


def _is_label_value(value: str) -> bool:
    return len(value) <= 63 and re.fullmatch(LABEL_VALUE, value) is not None


def _is_count(value: str) -> bool:
    return len(value) < 30 and _COUNT.fullmatch(value) is not None and 0 <= int(value) <= _LONGEST_INT
