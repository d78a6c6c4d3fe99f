"""Karpenter's options from a settings file or from its own Deployment, checked as Karpenter checks them.

A scheduler configuration with which Karpenter would not start is refused here too. Unknown feature gates are ignored,
as in Karpenter. Knows nothing of what the options do. Sits in api.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from dovetail.api.findings import InputError, shown
from dovetail.model.karpenter import FeatureGate, KarpenterSettings, StaticDrift
from dovetail.model.labels.syntax import is_qualified_name
from dovetail.model.objects import TopologySpreadConstraint

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_KEYS: Final = ("featureGates", "schedulerConfig", "ignoreDraRequests", "staticDrift", "version")
_VERSION: Final = re.compile(r"v?1\.([0-9]{1,3})(\..*)?")
_CONSTRAINT_KEYS: Final = (
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
)
_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION: Final = ("Honor", "Ignore")
_ENVIRONMENT: Final = ("FEATURE_GATES", "SCHEDULER_CONFIG", "IGNORE_DRA_REQUESTS")


def read_karpenter(value: Any, key: str) -> KarpenterSettings:
    """Read the setting `karpenter`; raise an InputError that names the field and what to write."""
    if not isinstance(value, dict):
        raise InputError(f"{key} is {shown(value)}; write a map such as {{featureGates: 'NodeOverlay=true'}}")
    for name in value:
        if name not in _KEYS:
            raise InputError(f"there is no setting {key}.{name}; valid names: {', '.join(_KEYS)}")
    gates, config = value.get("featureGates"), value.get("schedulerConfig")
    ignoring, static = value.get("ignoreDraRequests"), value.get("staticDrift")
    version = value.get("version")
    if ignoring is not None and not isinstance(ignoring, bool):
        raise InputError(f"{key}.ignoreDraRequests is {shown(ignoring)}; write true or false")
    words = tuple(word.value for word in StaticDrift)
    if static is not None and static not in words:
        raise InputError(f"{key}.staticDrift is {shown(static)}; write {' or '.join(words)}")
    return KarpenterSettings(
        feature_gates=() if gates is None else read_gates(gates, f"{key}.featureGates"),
        default_spread=None if config is None else read_scheduler_config(config, f"{key}.schedulerConfig"),
        ignore_dra_requests=ignoring,
        static_drift=StaticDrift.TERMINATE_FIRST if static is None else StaticDrift(static),
        minor=None if version is None else _stated_version(version, f"{key}.version"),
    )


def _stated_version(value: Any, where: str) -> int:
    minor = minor_of(value) if isinstance(value, str) else None
    if minor is None:
        raise InputError(f"{where} is {shown(value)}; write a version in quotes, such as '1.14'")
    return minor


def minor_of(version: str) -> int | None:
    """Return the minor version of a version of Karpenter v1, such as 14 of v1.14.3; None: it is another."""
    found = _VERSION.fullmatch(version.strip())
    return None if found is None else int(found[1])


def read_gates(text: Any, where: str) -> tuple[tuple[FeatureGate, bool], ...]:
    """Read `A=true,B=false`; the last value of a gate wins, unknown gates are ignored."""
    if not isinstance(text, str):
        raise InputError(f"{where} is {shown(text)}; write text such as NodeOverlay=true,StaticCapacity=false")
    known = {gate.value: gate for gate in FeatureGate}
    found: dict[FeatureGate, bool] = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or value not in _TRUE | _FALSE:
            raise InputError(f"{where} has {shown(pair)}; write GATE=true or GATE=false, separated by commas")
        if name in known:
            found[known[name]] = value in _TRUE
    return tuple(sorted(found.items()))


def read_scheduler_config(value: Any, where: str) -> tuple[TopologySpreadConstraint, ...]:
    """Read Karpenter's scheduler configuration, a map or its YAML or JSON text; an unknown field is an error."""
    tree = _tree(value, where) if isinstance(value, str) else value
    if tree is None:
        return ()
    spread = _only(tree, ("podTopologySpread",), where).get("podTopologySpread")
    if spread is None:
        return ()
    where = f"{where}.podTopologySpread"
    given = _only(spread, ("defaultConstraints",), where).get("defaultConstraints")
    if given is None:
        return ()
    where = f"{where}.defaultConstraints"
    if not isinstance(given, list):
        raise InputError(f"{where} is {shown(given)}; write a list of topology spread constraints")
    found = tuple(_constraint(entry, f"{where}[{number}]") for number, entry in enumerate(given))
    pairs = [(entry.topology_key, entry.when_unsatisfiable) for entry in found]
    for number, pair in enumerate(pairs):
        if pair in pairs[:number]:
            raise InputError(f"{where}[{number}] repeats {pair[0]} with {pair[1]}; write each pair once")
    return found


def _tree(text: str, where: str) -> Any:
    from dovetail.api.reading.yaml_tree import parse_yaml  # PyYAML is slow to load, and most inputs are JSON

    documents = [document.tree for document in parse_yaml(text.encode()) if document.tree is not None]
    if len(documents) > 1:
        raise InputError(f"{where} holds several documents; write one map")
    return documents[0] if documents else None


def _only(tree: Any, known: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(tree, dict):
        raise InputError(f"{where} is {shown(tree)}; write a map")
    for name in tree:
        if name not in known:
            raise InputError(
                f"{where} has the field {shown(name)}, at which Karpenter stops; known: {', '.join(known)}"
            )
    return tree


def _constraint(tree: Any, where: str) -> TopologySpreadConstraint:
    given = _only(tree, _CONSTRAINT_KEYS, where)
    skew, key, hard = given.get("maxSkew"), given.get("topologyKey"), given.get("whenUnsatisfiable")
    if not _is_positive(skew):
        raise InputError(f"{where}.maxSkew is {shown(skew)}; write a whole number above 0")
    if not isinstance(key, str) or not is_qualified_name(key):
        raise InputError(f"{where}.topologyKey is {shown(key)}; write the name of a label")
    if hard not in _UNSATISFIABLE:
        raise InputError(f"{where}.whenUnsatisfiable is {shown(hard)}; write {' or '.join(_UNSATISFIABLE)}")
    least = given.get("minDomains")
    if least is not None and not _is_positive(least):
        raise InputError(f"{where}.minDomains is {shown(least)}; write a whole number above 0")
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if given.get(name) is not None and given[name] not in _INCLUSION:
            raise InputError(f"{where}.{name} is {shown(given[name])}; write {' or '.join(_INCLUSION)}")
    assert isinstance(skew, int)
    return TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable=str(hard),
        min_domains=least,
        node_affinity_policy=given.get("nodeAffinityPolicy"),
        node_taints_policy=given.get("nodeTaintsPolicy"),
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


# ---------------------------------------------------------------- Karpenter's own Deployment


def read_deployment(tree: Mapping[str, Any], source: str) -> KarpenterSettings:
    """Read the options in Karpenter's Deployment: its environment, then its flags, which win.

    A value from elsewhere (`valueFrom`) is not known and counts as not set.
    """
    found: dict[str, str] = {}
    for container in _containers(tree):
        for entry in container.get("env") or ():
            if isinstance(entry, dict) and entry.get("name") in _ENVIRONMENT and isinstance(entry.get("value"), str):
                found[entry["name"]] = entry["value"]
        found.update(_flags([str(word) for part in ("command", "args") for word in container.get(part) or ()]))
    ignoring = found.get("IGNORE_DRA_REQUESTS")
    config = found.get("SCHEDULER_CONFIG")
    return KarpenterSettings(
        feature_gates=read_gates(found.get("FEATURE_GATES", ""), f"FEATURE_GATES of {source}"),
        default_spread=read_scheduler_config(config, f"SCHEDULER_CONFIG of {source}") if config else None,
        ignore_dra_requests=None if ignoring not in _TRUE | _FALSE else ignoring in _TRUE,
        source=source,
    )


def _containers(tree: Mapping[str, Any]) -> list[dict[str, Any]]:
    spec: Any = tree
    for key in ("spec", "template", "spec", "containers"):
        spec = spec.get(key) if isinstance(spec, dict | Mapping) else None
    return [container for container in spec or () if isinstance(container, dict)]


def _flags(words: list[str]) -> dict[str, str]:
    """Return the known flags, by the name of their environment variable; `--x=v`, `--x v` and a bare boolean."""
    names = {variable.lower().replace("_", "-"): variable for variable in _ENVIRONMENT}
    found: dict[str, str] = {}
    for number, word in enumerate(words):
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or name not in names:
            continue
        following = words[number + 1] if number + 1 < len(words) else ""
        if equals:
            found[names[name]] = value
        elif name == "ignore-dra-requests":
            found[names[name]] = "true"
        else:
            found[names[name]] = following
    return found
