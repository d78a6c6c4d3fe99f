"""A settings file over a profile: every key of contract.md's `--settings`, checked, in one place.

A key in the file overrides the profile; an omitted key keeps the profile's value; an unknown key is an error that names
the most similar known one. Knows nothing of what the settings do. Sits in api.
"""

import dataclasses
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from dovetail.api.commitments import read_commitments, read_discount, read_surcharge
from dovetail.api.daemon_like import read_daemon_like
from dovetail.api.findings import InputError, shown
from dovetail.api.karpenter import read_karpenter
from dovetail.api.manifests.manifest_shapes import DISRUPTION
from dovetail.api.manifests.shape import check
from dovetail.api.policy_fields import BY_SETTINGS
from dovetail.api.reading.documents import MIB, read_input
from dovetail.model.cluster import Cluster
from dovetail.model.karpenter import FeatureGate, KarpenterSettings
from dovetail.model.money import Money, parse_money
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.settings import (
    PROFILES,
    RECOMMENDED,
    RECOMMENDED_NAME,
    AlertGate,
    CandidateOrder,
    MinValuesPolicy,
    PreferencePolicy,
    Profile,
    Recordings,
    Search,
    Settings,
    Stabilization,
    StabilizationEnds,
    StabilizationScope,
    SteeringMode,
    WhenUnreachable,
    WithNeighbours,
)
from dovetail.model.timing.duration import DAY, HOUR, SECOND, parse_go_duration, parse_simple

_Reader = Callable[[Any, str, Settings], Any]
_Read = TypeVar("_Read")


def load_settings(
    path: Path | str | None, profile: Profile | str = Profile.DOVETAIL, policy: str | None = None
) -> Settings:
    """Read a settings file over a profile or a built-in policy; without a file, these as they are."""
    base = PROFILES[_profile(profile)]
    if policy is not None:
        base = _base(policy, base, "--policy")
    return base if path is None else _read(path, lambda tree: settings_of(tree, base))


def settings_words(path: Path | str | None) -> dict[str, Any]:
    """Return the keys of a settings file as they are written; none without a file."""
    return {} if path is None else _read(path, lambda tree: dict(tree or {}))


def _read(path: Path | str, use: Callable[[Any], _Read]) -> _Read:
    try:
        return use(_only_document(read_input(path, limit=MIB)))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def settings_of(tree: Any, base: Settings) -> Settings:
    """Override the base with the keys of a tree."""
    if tree is None:
        return base
    if not isinstance(tree, dict):
        raise InputError(f"settings must be a map such as 'batchMaximum: 100', not {shown(tree)}")
    changes: dict[str, Any] = {}
    base = _base(tree.get("base", ""), base)
    for key, value in tree.items():
        if key == "base":
            continue
        if key not in _READERS:
            raise InputError(_unknown(str(key), list(_READERS), "setting"))
        name, read = _READERS[key]
        changes[name] = read(value, key, base)
    gates = dict(changes["karpenter"].feature_gates) if "karpenter" in changes else {}
    if base.rules.spot_gate and FeatureGate.SPOT_TO_SPOT in gates:
        changes.setdefault("spot_to_spot_consolidation", gates[FeatureGate.SPOT_TO_SPOT])
    return _checked(dataclasses.replace(base, **changes))


def _base(name: Any, base: Settings, key: str = "base") -> Settings:
    """Return the settings that a file starts from: those of the profile, or the recommended ones."""
    if name == "":
        return base
    if name != RECOMMENDED_NAME:
        raise InputError(f"{key} is {shown(name)}; write {RECOMMENDED_NAME}, or leave it out")
    if base.profile is not Profile.DOVETAIL:
        raise InputError(f"{key} {RECOMMENDED_NAME} goes with the profile {Profile.DOVETAIL.value}")
    return RECOMMENDED


def _checked(settings: Settings) -> Settings:
    """Raise if the times of the Lease contradict each other: a leader must stop before another may start."""
    if not settings.retry_period < settings.renew_deadline < settings.lease_duration:
        raise InputError(
            "retryPeriod must be shorter than renewDeadline, and that shorter than leaseDuration; "
            "write e.g. retryPeriod: 2s, renewDeadline: 20s, leaseDuration: 30s"
        )
    return settings


def unknown_names(settings: Settings, cluster: Cluster) -> tuple[str, ...]:
    """Return the nodes and pools that the settings name but the cluster doesn't have: probably typos."""
    asked = (
        ("nominatedNodes", settings.nominated_nodes, "node"),
        ("markedForDeletionNodes", settings.marked_for_deletion_nodes, "node"),
        ("pools", settings.pools, "NodePool"),
    )
    if not any(wanted for _, wanted, _ in asked):
        return ()
    named: tuple[Node | NodeClaim, ...] = (*cluster.nodes, *cluster.node_claims) if asked[0][1] or asked[1][1] else ()
    there = {
        "node": {item.metadata.name for item in named},
        "NodePool": {pool.metadata.name for pool in cluster.node_pools},
    }
    return tuple(
        f"settings: {key} names {name}, and there is no such {what}; it was passed over{_near(name, there[what])}"
        for key, wanted, what in asked
        for name in dict.fromkeys(wanted)
        if name not in there[what]
    )


def _near(name: str, known: Collection[str]) -> str:
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f" (did you mean {near[0]}?)" if near else ""


def _profile(name: Profile | str) -> Profile:
    try:
        return Profile(name)
    except ValueError:
        if name == RECOMMENDED_NAME:
            raise InputError(
                f"{RECOMMENDED_NAME} is a policy, not a profile; write --policy {RECOMMENDED_NAME}, or "
                f"base: {RECOMMENDED_NAME} in the settings"
            ) from None
        known = " or ".join(profile.value for profile in Profile)
        raise InputError(f"there is no profile {shown(name)}; write {known}") from None


def _only_document(data: bytes) -> Any:
    from dovetail.api.reading.yaml_tree import parse_yaml  # PyYAML is slow to load, and most inputs are JSON

    documents = [document for document in parse_yaml(data) if document.tree is not None]
    if len(documents) > 1:
        raise InputError("it holds several documents; settings are one map")
    if documents and documents[0].duplicates:
        key, line = documents[0].duplicates[0]
        raise InputError(f"{key} is given twice (line {line}); keep one")
    return documents[0].tree if documents else None


def _unknown(key: str, known: list[str], what: str) -> str:
    import difflib  # only mistakes need it

    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"valid names: {', '.join(sorted(known))}"
    return f"there is no {what} {shown(key)}; {hint}"


def _flag(value: Any, key: str, _: Settings) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{key} is {shown(value)}; write true or false")
    return value


def _whole(low: int, high: int) -> _Reader:
    def read(value: Any, key: str, _: Settings) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InputError(f"{key} is {shown(value)}; write a whole number from {low} to {high}")
        return value

    return read


def _length(longest: int, shortest: int = 0) -> _Reader:
    def read(value: Any, key: str, _: Settings) -> int:
        return _duration(value, key, shortest, longest)

    return read


def _duration(value: Any, key: str, shortest: int, longest: int) -> int:
    remedy = "write a duration such as 15s, 9m30s or 1h"
    if isinstance(value, int) and not isinstance(value, bool) and value == 0:
        value = "0s"
    if not isinstance(value, str):
        raise InputError(f"{key} is {shown(value)}; {remedy}")
    try:
        length = parse_go_duration(value)
    except ValueError:
        raise InputError(f"{key} is {shown(value)}; {remedy}") from None
    if length < shortest:
        raise InputError(f"{key} is {shown(value)}; write {'a longer time' if shortest else '0s or more'}")
    if length > longest:
        raise InputError(f"{key} is {shown(value)}; write at most {longest // DAY}d (as hours)")
    return length


def _enum(words: type[StrEnum]) -> _Reader:
    def read(value: Any, key: str, _: Settings) -> StrEnum:
        try:
            return words(value)
        except ValueError:
            raise InputError(f"{key} is {shown(value)}; write {' or '.join(word.value for word in words)}") from None

    return read


def _dollars(value: Any, key: str, _: Settings) -> Money:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise InputError(f"{key} is {shown(value)}; write dollars such as 0.01")
    return parse_money(value)


def _steering(value: Any, key: str, base: Settings) -> StrEnum:
    # YAML reads the word Off as false.
    found: StrEnum = _enum(SteeringMode)("Off" if value is False else value, key, base)
    return found


def _pool_defaults(value: Any, key: str, _: Settings) -> tuple[tuple[str, str | float], ...]:
    if not isinstance(value, dict):
        raise InputError(f"{key} is {shown(value)}; write a map such as {{consolidationSavingsThreshold: 0.02}}")
    for name, given in value.items():
        if name not in BY_SETTINGS:
            raise InputError(_unknown(str(name), list(BY_SETTINGS), f"field in {key},"))
        findings = list(check(DISRUPTION.fields[name], given, f"{key}.{name}"))
        if findings:
            raise InputError(findings[0].sentence())
    return tuple(sorted(value.items()))


def _names(value: Any, key: str, _: Settings) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InputError(f"{key} is {shown(value)}; write a list of names")
    return tuple(sorted(set(value)))


def _stabilization(value: Any, key: str, base: Settings) -> Stabilization:
    kinds = [field.name for field in dataclasses.fields(Stabilization)]
    if not isinstance(value, dict):
        raise InputError(f"{key} is {shown(value)}; write a map such as {{empty: 5m, cost: 10m}}")
    changes: dict[str, int] = {}
    for kind, length in value.items():
        if kind not in kinds:
            raise InputError(_unknown(str(kind), kinds, f"kind of action in {key},"))
        changes[kind] = _duration(length, f"{key}.{kind}", 0, 7 * DAY)
    return dataclasses.replace(base.stabilization, **changes)


def _karpenter(value: Any, key: str, base: Settings) -> KarpenterSettings:
    found = read_karpenter(value, key)
    return found if found.minor is not None else dataclasses.replace(found, minor=base.karpenter.minor)


_ALERT_KEYS: Final = ("url", "query", "every", "whenUnreachable")


def _alert_gate(value: Any, key: str, base: Settings) -> AlertGate | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InputError(f"{key} is {shown(value)}; write a map of url and query")
    for name in value:
        if name not in _ALERT_KEYS:
            raise InputError(_unknown(str(name), list(_ALERT_KEYS), f"key in {key},"))
    url, query = value.get("url"), value.get("query")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise InputError(
            f"{key}.url is {shown(url)}; write the address of a Prometheus, such as http://prometheus:9090"
        )
    if not isinstance(query, str) or not query.strip():
        raise InputError(f'{key}.query is {shown(query)}; write a PromQL query such as ALERTS{{severity="page"}}')
    reach = _enum(WhenUnreachable)(value.get("whenUnreachable", "Hold"), f"{key}.whenUnreachable", base)
    return AlertGate(
        url=url.rstrip("/"),
        query=query,
        every=_duration(value.get("every", "30s"), f"{key}.every", SECOND, DAY),
        when_unreachable=WhenUnreachable(reach),
    )


def _recordings(value: Any, key: str, _: Settings) -> Recordings | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("path"), str) or not value["path"]:
        raise InputError(f"{key} is {shown(value)}; write a map such as {{path: /var/lib/dovetail, keep: 14d}}")
    for name in value:
        if name not in ("path", "keep"):
            raise InputError(_unknown(str(name), ["path", "keep"], f"key in {key},"))
    keep = value.get("keep", "14d")
    try:
        length = parse_simple(keep, "smhd") if isinstance(keep, str) else None
    except ValueError:
        length = None
    if length is None or not HOUR <= length <= 3660 * DAY:
        raise InputError(f"{key}.keep is {shown(keep)}; write how long files are kept, an hour or more, such as 14d")
    return Recordings(path=value["path"], keep=length)


_READERS: Final[dict[str, tuple[str, _Reader]]] = {
    "candidateOrder": ("candidate_order", _enum(CandidateOrder)),
    "consolidateAfterHidesDestinations": ("consolidate_after_hides_destinations", _flag),
    "spotToSpotConsolidation": ("spot_to_spot_consolidation", _flag),
    "spotMinimumTypes": ("spot_minimum_types", _whole(0, 1000)),
    "batchMaximum": ("batch_maximum", _whole(1, 10_000)),
    "search": ("search", _enum(Search)),
    "replacementsMax": ("replacements_max", _whole(1, 20)),
    "stabilization": ("stabilization", _stabilization),
    "stabilizationScope": ("stabilization_scope", _enum(StabilizationScope)),
    "neighbours": ("neighbours", _enum(WithNeighbours)),
    "stabilizationEnds": ("stabilization_ends", _enum(StabilizationEnds)),
    "steering": ("steering", _steering),
    "steeringWritesPerMinute": ("steering_writes_per_minute", _whole(1, 10_000)),
    "wasteFloor": ("waste_floor", _dollars),
    "launchPrice": ("launch_price", _length(DAY)),
    "preferencesOpenNodes": ("preferences_open_nodes", _flag),
    "asksTheScheduler": ("asks_the_scheduler", _flag),
    "jobsWait": ("jobs_wait", _flag),
    "quietBeforeHaste": ("quiet_before_haste", _length(DAY)),
    "evictionsInOrder": ("evictions_in_order", _flag),
    "evictionsSideBySide": ("evictions_side_by_side", _flag),
    "domainPatience": ("domain_patience", _length(7 * DAY)),
    "expiryLead": ("expiry_lead", _length(366 * DAY)),
    "replacementTimeout": ("replacement_timeout", _length(DAY, shortest=1)),
    "launchTimeout": ("launch_timeout", _length(DAY, shortest=1)),
    "drainPatience": ("drain_patience", _length(DAY)),
    "validationDelay": ("validation_delay", _length(DAY)),
    "pollInterval": ("poll_interval", _length(DAY, shortest=1)),
    "preferencePolicy": ("preference_policy", _enum(PreferencePolicy)),
    "minValuesPolicy": ("min_values_policy", _enum(MinValuesPolicy)),
    "nominatedNodes": ("nominated_nodes", _names),
    "markedForDeletionNodes": ("marked_for_deletion_nodes", _names),
    "pools": ("pools", _names),
    "poolDefaults": ("pool_defaults", _pool_defaults),
    "karpenter": ("karpenter", _karpenter),
    "commitments": ("commitments", lambda value, key, _: read_commitments(value, key)),
    "discount": ("discount", lambda value, key, _: read_discount(value, key)),
    "surcharge": ("surcharge", lambda value, key, _: read_surcharge(value, key)),
    "daemonLikePods": ("daemon_like_pods", lambda value, key, _: read_daemon_like(value, key)),
    "paused": ("paused", _flag),
    "alertGate": ("alert_gate", _alert_gate),
    "recordings": ("recordings", _recordings),
    "leaseDuration": ("lease_duration", _length(HOUR, shortest=SECOND)),
    "renewDeadline": ("renew_deadline", _length(HOUR, shortest=SECOND)),
    "retryPeriod": ("retry_period", _length(HOUR, shortest=SECOND // 10)),
    "viewAgeMaximum": ("view_age_maximum", _length(DAY, shortest=10 * SECOND)),
}

TARIFF_KEYS: Final = ("commitments", "discount", "surcharge")
"""The settings that say what machines really cost."""
SETTINGS: Final = tuple(_READERS)
"""The names of all settings."""
SETTING_FIELDS: Final = {key: name for key, (name, _) in _READERS.items()}
"""The field of `Settings` that each key of a file sets."""
