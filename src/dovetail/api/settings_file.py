"""Settings as the file that gives them: the inverse of `api.settings`.

`whatif` begins with the settings that a running controller has published and prints the file that the change needs, so
it has to write what it was not given as a file. Only keys that differ from their base are written. Sits in api, above
`settings`.
"""

from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

from dovetail.api.settings import SETTING_FIELDS, settings_of
from dovetail.model.commitments import Commitment, CommitmentKind
from dovetail.model.karpenter import KarpenterSettings
from dovetail.model.labels.selectors import LabelSelector
from dovetail.model.money import format_money
from dovetail.model.objects import TopologySpreadConstraint
from dovetail.model.policies.daemon_like import DaemonLikePods
from dovetail.model.settings import DOVETAIL, AlertGate, Recordings, Settings, Stabilization, Surcharge
from dovetail.model.timing.duration import go_format

Words = dict[str, Any]


def settings_file(settings: Settings) -> Words:
    """Return the keys of a settings file that gives these settings over the profile `dovetail`.

    Where Karpenter's own options were read is not written.
    """
    words: Words = {"base": settings.policy} if settings.policy else {}
    base = settings_of(words, DOVETAIL)
    for key, name in SETTING_FIELDS.items():
        value, before = getattr(settings, name), getattr(base, name)
        if value != before:
            words[key] = _WRITERS.get(key, _plain)(value, before)
    return words


def _plain(value: Any, _: Any) -> Any:
    """Return a flag, a number, a word or a list of names as it is written."""
    if isinstance(value, StrEnum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _span(value: int, _: Any) -> str:
    return go_format(value)


def _dollars(value: int, _: Any) -> float:
    return float(format_money(value))


def _percent(share: Fraction) -> str:
    """Return a share as it was written, in percent; such numbers have few digits."""
    return f"{format_money(int(share * 100 * 10**18))}%"


def _stabilization(value: Stabilization, before: Stabilization) -> Words:
    return {
        kind: go_format(getattr(value, kind))
        for kind in Stabilization.__slots__
        if getattr(value, kind) != getattr(before, kind)
    }


def _karpenter(value: KarpenterSettings, before: KarpenterSettings) -> Words:
    found: Words = {}
    if value.feature_gates:
        found["featureGates"] = ",".join(f"{gate.value}={str(on).lower()}" for gate, on in value.feature_gates)
    if value.default_spread is not None:
        constraints = [_constraint(entry) for entry in value.default_spread]
        found["schedulerConfig"] = {"podTopologySpread": {"defaultConstraints": constraints}}
    if value.ignore_dra_requests is not None:
        found["ignoreDraRequests"] = value.ignore_dra_requests
    if value.static_drift != before.static_drift:
        found["staticDrift"] = value.static_drift.value
    if value.minor is not None:
        found["version"] = f"1.{value.minor}"
    return found


def _constraint(entry: TopologySpreadConstraint) -> Words:
    found = {
        "maxSkew": entry.max_skew,
        "topologyKey": entry.topology_key,
        "whenUnsatisfiable": entry.when_unsatisfiable,
        "minDomains": entry.min_domains,
        "nodeAffinityPolicy": entry.node_affinity_policy,
        "nodeTaintsPolicy": entry.node_taints_policy,
    }
    return {key: value for key, value in found.items() if value is not None}


def _commitments(value: tuple[Commitment, ...], _: Any) -> list[Words]:
    return [_commitment(entry) for entry in value]


def _commitment(entry: Commitment) -> Words:
    found: Words = {"name": entry.name, "kind": entry.kind.value}
    for key, given in (("region", entry.region), ("instanceTypes", entry.instance_types), ("families", entry.families)):
        if given:
            found[key] = given if isinstance(given, str) else list(given)
    if entry.kind is CommitmentKind.SAVINGS_PLAN or entry.hourly:
        found["hourly"] = format_money(entry.hourly)
    if entry.kind is not CommitmentKind.SAVINGS_PLAN:
        found["count"] = format_money(int(entry.count * 10**18))
        if entry.hourly:
            found["hourly"] = format_money(entry.hourly)
    if entry.percent_off is not None:
        found["rates"] = _percent(entry.percent_off)
    elif entry.rates:
        found["rates"] = {name: format_money(rate) for name, rate in entry.rates}
    return found


def _discount(value: tuple[tuple[str, Fraction], ...], _: Any) -> Words:
    return {cloud: _percent(share) for cloud, share in value}


def _surcharge(value: tuple[Surcharge, ...], _: Any) -> list[Words]:
    return [{"nodeClassKind": entry.node_class_kind, "percent": _percent(entry.share)} for entry in value]


def _daemon_like(value: tuple[DaemonLikePods, ...], _: Any) -> list[Words]:
    return [
        {**({"namespaces": list(entry.namespaces)} if entry.namespaces else {}), **_selector(entry.selector)}
        for entry in value
    ]


def _selector(selector: LabelSelector) -> Words:
    found: Words = {"matchLabels": dict(selector.equal)} if selector.equal else {}
    expressions = []
    for key, wanted, values, _ in selector.expressions:
        among = ("In" if wanted else "NotIn") if values else "DoesNotExist" if wanted else "Exists"
        expressions.append({"key": key, "operator": among, **({"values": sorted(values)} if values else {})})
    return {**found, "matchExpressions": expressions} if expressions else found


def _alert_gate(value: AlertGate | None, _: Any) -> Words | None:
    if value is None:
        return None
    return {
        "url": value.url,
        "query": value.query,
        "every": go_format(value.every),
        "whenUnreachable": value.when_unreachable.value,
    }


def _recordings(value: Recordings | None, _: Any) -> Words | None:
    return None if value is None else {"path": value.path, "keep": f"{value.keep // 10**9}s"}


_SPANS: Final = (
    "launchPrice",
    "quietBeforeHaste",
    "domainPatience",
    "expiryLead",
    "replacementTimeout",
    "launchTimeout",
    "drainPatience",
    "validationDelay",
    "pollInterval",
    "leaseDuration",
    "renewDeadline",
    "retryPeriod",
    "viewAgeMaximum",
)
_WRITERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(_SPANS, _span),
    "wasteFloor": _dollars,
    "stabilization": _stabilization,
    "poolDefaults": lambda value, _: dict(value),
    "karpenter": _karpenter,
    "commitments": _commitments,
    "discount": _discount,
    "surcharge": _surcharge,
    "daemonLikePods": _daemon_like,
    "alertGate": _alert_gate,
    "recordings": _recordings,
}
