"""Every rule of NodePool and NodeClaim as data: an object that keeps it and one that breaks it.

Two judges read this table and must agree: the API server with our CRDs, and validation at run time. `RULES` are those
of the disruption policy (docs/rules.md#policy); `KARPENTER_RULES` come with Karpenter's own schema, of which ours is a
superset. Integers for `nodes` are in neither: the API server refuses them, a file that has one is read with a warning.
"""

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: its name, the field that breaks it in `bad`, and the two manifests."""

    name: str
    field: str
    good: Manifest
    bad: Manifest


NODE_CLASS = {"group": "karpenter.test", "kind": "TestNodeClass", "name": "default"}
REQUIREMENT = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}


def template(**spec: Any) -> Manifest:
    """Make a NodePool's template with these fields in its spec."""
    return {"spec": {"nodeClassRef": dict(NODE_CLASS), "requirements": [dict(REQUIREMENT)]} | spec}


def pool(**spec: Any) -> Manifest:
    """Make a NodePool with these fields in its spec."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": template()} | spec,
    }


def claim(**spec: Any) -> Manifest:
    """Make a NodeClaim with these fields in its spec."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "default-x7k2p"},
        "spec": {"nodeClassRef": dict(NODE_CLASS), "requirements": [dict(REQUIREMENT)]} | spec,
    }


def disruption(**fields: Any) -> Manifest:
    """Make a NodePool with this disruption policy."""
    return pool(disruption=fields)


def budget(**fields: Any) -> Manifest:
    """Make a NodePool with one budget."""
    return disruption(budgets=[fields])


def window(schedule: Any, duration: Any = "8h") -> Manifest:
    """Make a NodePool with one budget that is active on a schedule."""
    return budget(nodes="0", schedule=schedule, duration=duration)


def field_rule(name: str, field: str, good: Any, bad: Any) -> Rule:
    """Make a rule on one field of the disruption policy."""
    return Rule(
        name=name, field=f"spec.disruption.{field}", good=disruption(**{field: good}), bad=disruption(**{field: bad})
    )


def control_rule(name: str, path: str, good: Any, bad: Any) -> Rule:
    """Make a rule on a part of one of the controls."""
    field = path.partition(".")[0].partition("[")[0]
    return Rule(
        name=name, field=f"spec.disruption.{path}", good=disruption(**{field: good}), bad=disruption(**{field: bad})
    )


def budget_rule(name: str, field: str, good: Manifest, bad: Manifest) -> Rule:
    """Make a rule on one budget; `field` is empty where the budget as a whole breaks it."""
    path = "spec.disruption.budgets[0]" + (f".{field}" if field else "")
    return Rule(name=name, field=path, good=budget(**good), bad=budget(**bad))


# Every form that the cron library of Karpenter can read is a schedule.
SCHEDULES_GOOD: tuple[str, ...] = (
    "* * * * *",
    "0 9 * * mon-fri",
    "0 9 * * MON-FRI",
    "0 9 * * 1-5",
    "*/15 0-6,22,23 1,15 jan-mar,12 ?",
    "0 0 ? * 0",
    "5/10 8-18/2 31 2 6",
    "59 23 31 12 6",
    "0 0 1 1 0",
    "00 09 01 01 *",
    "*/100 * * * *",
    "30 4 1-31/7 * sun",
    "  0 0 * * *  ",
    "0\t0 * *   *",
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
    "TZ=Europe/Berlin 0 9 * * mon-fri",
    "CRON_TZ=America/Argentina/Buenos_Aires 0 9 * * *",
    "TZ=UTC @daily",
    "TZ=Etc/GMT+5 30 2 * * *",
)
# Oddities that the same library reads, so an object that holds one must stay acceptable: empty list items, a plus sign,
# a star that begins a range.
SCHEDULES_ODD: tuple[str, ...] = ("1,,2 0 * * *", ",1 0 * * *", "+5 0 * * *", "005 0 * * *", "*-5 0 * * *")
SCHEDULES_BAD: tuple[str, ...] = (
    "@dailyXYZ",
    "@Daily",
    "@reboot",
    "@every 1h",
    "@",
    "61 99 * * *",
    "60 0 * * *",
    "0 24 * * *",
    "0 0 0 * *",
    "0 0 32 * *",
    "0 0 * 0 *",
    "0 0 * 13 *",
    "0 0 * * 7",
    "0 0 * * sun-7",
    "a b c d e",
    "0 0 * * monday",
    "0 0 * jan-foo *",
    "mon 0 * * *",
    "0 0 * * *x",
    "0 0 * *",
    "0 0 * * * *",
    "",
    "    ",
    "30-10 * * * *",
    "0 18-9 * * *",
    "0 0 20-10 * *",
    "0 0 * dec-jan *",
    "0 0 * * fri-mon",
    "0 0 * * 5-mon",
    "1-2-3 * * * *",
    "*/0 * * * *",
    "*/x * * * *",
    "*/-5 * * * *",
    "1/2/3 * * * *",
    "-5 * * * *",
    "5- * * * *",
    "1.5 * * * *",
    "** * * * *",
    "TZ=Europe/Berlin",
    "0 9 * * * TZ=Europe/Berlin",
    "tz=Europe/Berlin 0 9 * * *",
)

_POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced", "WhenUnderutilized")
_REASONS = ("Empty", "Expired", "Drifted", "Underutilized", "Unhealthy")
_LONG = "a" * 64

NIGHT: Manifest = {"schedule": "0 22 * * *", "duration": "6h"}
DEAD: Manifest = {"condition": "Ready", "status": "Unknown", "for": "10m"}
CONTROL_RULES: tuple[Rule, ...] = (
    budget_rule("per hours", "per", {"nodes": "2", "per": "1h"}, {"nodes": "2", "per": "1d"}),
    budget_rule("per at least a minute", "per", {"nodes": "2", "per": "1m"}, {"nodes": "2", "per": "0m"}),
    budget_rule("per at most a week", "per", {"nodes": "2", "per": "168h"}, {"nodes": "2", "per": "168h1m"}),
    budget_rule("per has no seconds", "per", {"nodes": "2", "per": "30m"}, {"nodes": "2", "per": "90s"}),
    budget_rule("per is a string", "per", {"nodes": "2", "per": "1h30m"}, {"nodes": "2", "per": 60}),
    budget_rule(
        "per without topologyKey",
        "",
        {"nodes": "2", "per": "1h"},
        {"nodes": "2", "per": "1h", "topologyKey": "topology.kubernetes.io/zone"},
    ),
    field_rule("windows is a list", "windows", [NIGHT], NIGHT),
    control_rule("window schedule", "windows[0].schedule", [NIGHT], [{**NIGHT, "schedule": "every night"}]),
    control_rule("window needs a schedule", "windows[0].schedule", [NIGHT], [{"duration": "6h"}]),
    control_rule("window needs a duration", "windows[0].duration", [NIGHT], [{"schedule": "@daily"}]),
    control_rule("window duration", "windows[0].duration", [NIGHT], [{**NIGHT, "duration": "6 hours"}]),
    control_rule(
        "window reasons", "windows[0].reasons[0]", [{**NIGHT, "reasons": ["Empty"]}], [{**NIGHT, "reasons": ["Cost"]}]
    ),
    field_rule("windows at most 50", "windows", [NIGHT] * 50, [NIGHT] * 51),
    field_rule("minNodeAge days", "minNodeAge", "1d", "1 day"),
    field_rule("minNodeAge is no Never", "minNodeAge", "2h", "Never"),
    field_rule("minNodeAge is a string", "minNodeAge", "30m", 30),
    field_rule("health is a map", "health", {"notReadyNodes": "20%"}, "20%"),
    control_rule("not-ready nodes", "health.notReadyNodes", {"notReadyNodes": "3"}, {"notReadyNodes": "some"}),
    control_rule(
        "pending pods need a count",
        "health.pendingPods.count",
        {"pendingPods": {"count": 10, "for": "5m"}},
        {"pendingPods": {"for": "5m"}},
    ),
    control_rule(
        "pending pods are counted from one",
        "health.pendingPods.count",
        {"pendingPods": {"count": 1, "for": "5m"}},
        {"pendingPods": {"count": 0, "for": "5m"}},
    ),
    control_rule(
        "pending pods last",
        "health.pendingPods.for",
        {"pendingPods": {"count": 1, "for": "5m"}},
        {"pendingPods": {"count": 1, "for": "long"}},
    ),
    control_rule(
        "moved pods", "health.movedPodsReadyWithin", {"movedPodsReadyWithin": "10m"}, {"movedPodsReadyWithin": "soon"}
    ),
    field_rule("repair is a list", "repair", [DEAD], DEAD),
    control_rule("repair needs a condition", "repair[0].condition", [DEAD], [{"status": "False", "for": "10m"}]),
    control_rule("repair status", "repair[0].status", [DEAD], [{**DEAD, "status": "Broken"}]),
    control_rule("repair lasts", "repair[0].for", [DEAD], [{**DEAD, "for": "Never"}]),
    control_rule("repair drain", "repair[0].drainFor", [{**DEAD, "drainFor": "0s"}], [{**DEAD, "drainFor": "0"}]),
)
RULES: tuple[Rule, ...] = (
    *CONTROL_RULES,
    *(field_rule(f"policy {word}", "consolidationPolicy", word, word.lower()) for word in _POLICIES),
    field_rule("policy is one of the words", "consolidationPolicy", "WhenEmpty", "Never"),
    field_rule("policy is one word", "consolidationPolicy", "Balanced", "WhenEmpty | Balanced"),
    field_rule("policy is not empty", "consolidationPolicy", "Balanced", ""),
    field_rule("consolidateAfter parts", "consolidateAfter", "1h30m15s", "1h 30m"),
    field_rule("consolidateAfter Never", "consolidateAfter", "Never", "never"),
    field_rule("consolidateAfter 0s", "consolidateAfter", "0s", "0"),
    field_rule("consolidateAfter has no days", "consolidateAfter", "24h", "1d"),
    field_rule("consolidateAfter is not negative", "consolidateAfter", "5m", "-5m"),
    field_rule("consolidateAfter has a unit", "consolidateAfter", "30s", "30"),
    field_rule("consolidateAfter is whole", "consolidateAfter", "90m", "1.5h"),
    field_rule("consolidateAfter is a string", "consolidateAfter", "30s", 30),
    field_rule("consolidateAfter is not empty", "consolidateAfter", "15s", ""),
    field_rule("expireAfter parts", "expireAfter", "1d12h30m5s", "1w"),
    field_rule("expireAfter days", "expireAfter", "30d", "30 d"),
    field_rule("expireAfter Never", "expireAfter", "Never", "Forever"),
    field_rule("expireAfter is not negative", "expireAfter", "720h", "-720h"),
    field_rule("expireAfter has a unit", "expireAfter", "720h", "720"),
    field_rule("grace period parts", "consolidationGracePeriod", "1h30m", "90 minutes"),
    field_rule("grace period Never", "consolidationGracePeriod", "Never", "Off"),
    field_rule("grace period has no days", "consolidationGracePeriod", "24h", "1d"),
    field_rule("grace period has a unit", "consolidationGracePeriod", "30m", "30"),
    field_rule("savings threshold 0", "consolidationSavingsThreshold", 0, -0.01),
    field_rule("savings threshold fraction", "consolidationSavingsThreshold", 0.05, -1),
    field_rule("restart price in dollars", "restartPrice", "0.005", "-0.005"),
    field_rule("restart price is a text", "restartPrice", "0", 0.005),
    field_rule("restart price as a time", "restartPrice", "1h30m", "1d"),
    field_rule("restart price as a time of a CPU", "restartPrice", "7m30s/cpu", "10m/gpu"),
    field_rule("restart price without exponent", "restartPrice", "123456789.000000000000000001", "1e9"),
    field_rule("restart price in a few digits", "restartPrice", "99999h", "100000h"),
    field_rule("restart price is not empty", "restartPrice", "15m", ""),
    field_rule("restart price is one of both", "restartPrice", "0s", "0.5m"),
    field_rule("savings threshold is a number", "consolidationSavingsThreshold", 2, "0.05"),
    Rule(
        name="at most 50 budgets",
        field="spec.disruption.budgets",
        good=disruption(budgets=[{"nodes": str(n)} for n in range(50)]),
        bad=disruption(budgets=[{"nodes": str(n)} for n in range(51)]),
    ),
    field_rule("budgets is a list", "budgets", [{"nodes": "1"}], {"nodes": "1"}),
    budget_rule("nodes percent", "nodes", {"nodes": "100%"}, {"nodes": "101%"}),
    budget_rule("nodes percent 0", "nodes", {"nodes": "0%"}, {"nodes": "-1%"}),
    budget_rule("nodes count", "nodes", {"nodes": "5"}, {"nodes": "-5"}),
    budget_rule("nodes count 0", "nodes", {"nodes": "0"}, {"nodes": "none"}),
    budget_rule("nodes percent is whole", "nodes", {"nodes": "10%"}, {"nodes": "10.5%"}),
    budget_rule("nodes has no space", "nodes", {"nodes": "10%"}, {"nodes": "10 %"}),
    budget_rule("nodes is not empty", "nodes", {"nodes": "1"}, {"nodes": ""}),
    budget_rule("nodes may be left out", "nodes", {"reasons": ["Empty"]}, {"nodes": "half"}),
    budget_rule(
        "duration needs a schedule", "", {"nodes": "0", "schedule": "@daily", "duration": "8h"}, {"duration": "8h"}
    ),
    budget_rule("schedule needs a duration", "", {"nodes": "0"}, {"nodes": "0", "schedule": "@daily"}),
    *(
        Rule(
            name=f"duration {good}",
            field="spec.disruption.budgets[0].duration",
            good=window("@daily", good),
            bad=window("@daily", bad),
        )
        for good, bad in (
            ("8h", "8"),
            ("30m", "30s"),
            ("1h30m", "1h30m15s"),
            ("8h0m0s", "8h0m1s"),
            ("8h0s", "8h5s"),
            ("90m", "1.5h"),
            ("24h", "1d"),
            ("10m", "-10m"),
            ("48h", "Never"),
            ("2h5m", "5m2h"),
            ("1m", ""),
        )
    ),
    *(
        budget_rule(f"reason {word}", "reasons[0]", {"nodes": "1", "reasons": [word]}, {"reasons": [word.lower()]})
        for word in _REASONS
    ),
    budget_rule("reasons are those known", "reasons[1]", {"reasons": list(_REASONS)}, {"reasons": ["Empty", "Cost"]}),
    budget_rule("reasons may be none", "reasons", {"reasons": []}, {"reasons": "Empty"}),
    budget_rule("reasons come once", "reasons", {"reasons": ["Empty"]}, {"reasons": ["Empty", "Empty"]}),
    *(
        budget_rule(name, "topologyKey", {"nodes": "1", "topologyKey": good}, {"nodes": "1", "topologyKey": bad})
        for name, good, bad in (
            ("topologyKey qualified", "topology.kubernetes.io/zone", "topology.kubernetes.io/"),
            ("topologyKey plain", "rack", "rack!"),
            ("topologyKey has one slash", "example.com/rack", "example.com/rack/shelf"),
            ("topologyKey prefix is a domain", "example.com/Rack_1.a", "Example.com/rack"),
            ("topologyKey ends in a letter or digit", "rack-1", "rack-"),
            ("topologyKey name of 63", "example.com/" + _LONG[:63], "example.com/" + _LONG),
            ("topologyKey prefix of 253", "a." * 126 + "a/zone", "a." * 127 + "a/zone"),
            ("topologyKey may be empty", "", "/"),
            ("topologyKey has no space", "zone", "my zone"),
        )
    ),
    budget_rule(
        "sequential needs topologyKey",
        "",
        {"nodes": "1", "sequential": True, "topologyKey": "topology.kubernetes.io/zone"},
        {"nodes": "1", "sequential": True},
    ),
    budget_rule(
        "an empty topologyKey is none",
        "",
        {"nodes": "1", "per": "1h", "topologyKey": ""},
        {"nodes": "1", "sequential": True, "topologyKey": ""},
    ),
    budget_rule(
        "sequential is a boolean",
        "sequential",
        {"nodes": "1", "sequential": False},
        {"nodes": "1", "sequential": "yes", "topologyKey": "topology.kubernetes.io/zone"},
    ),
    *(
        Rule(
            name=f"schedule {bad!r} is refused",
            field="spec.disruption.budgets[0].schedule",
            good=window(SCHEDULES_GOOD[index % len(SCHEDULES_GOOD)]),
            bad=window(bad),
        )
        for index, bad in enumerate(SCHEDULES_BAD)
    ),
)


def _template_rule(name: str, field: str, good: Any, bad: Any) -> Rule:
    top = field.split("[")[0].split(".")[0]
    return Rule(
        name=name,
        field=f"spec.template.spec.{field}",
        good=pool(template=template(**{top: good})),
        bad=pool(template=template(**{top: bad})),
    )


def _requirement_rule(name: str, field: str, good: Manifest, bad: Manifest) -> Rule:
    return _template_rule(name, f"requirements[0].{field}" if field else "requirements", [good], [bad])


def _labels_rule(name: str, good: str, bad: str) -> Rule:
    def labelled(key: str) -> Manifest:
        return pool(template=template() | {"metadata": {"labels": {key: "x"}}})

    return Rule(name=name, field="spec.template.metadata.labels", good=labelled(good), bad=labelled(bad))


def _without(manifest: Manifest, *path: str) -> Manifest:
    """Copy without the field at the path; shared parts are left as they are."""
    head, *rest = path
    copy = dict(manifest)
    if rest:
        copy[head] = _without(copy[head], *rest)
    else:
        del copy[head]
    return copy


_ARCH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
_CPU = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["4"]}
_TAINT = {"key": "example.com/team", "value": "a", "effect": "NoSchedule"}

KARPENTER_RULES: tuple[Rule, ...] = (
    Rule(name="template is required", field="spec.template", good=pool(), bad=_without(pool(), "spec", "template")),
    Rule(
        name="nodeClassRef is required",
        field="spec.template.spec.nodeClassRef",
        good=pool(),
        bad=_without(pool(), "spec", "template", "spec", "nodeClassRef"),
    ),
    Rule(
        name="requirements are required",
        field="spec.template.spec.requirements",
        good=pool(template=template(requirements=[])),
        bad=_without(pool(), "spec", "template", "spec", "requirements"),
    ),
    _template_rule("nodeClassRef group", "nodeClassRef.group", NODE_CLASS, NODE_CLASS | {"group": ""}),
    _template_rule("nodeClassRef group only", "nodeClassRef.group", NODE_CLASS, NODE_CLASS | {"group": "a.b/v1"}),
    _template_rule("nodeClassRef kind", "nodeClassRef.kind", NODE_CLASS, NODE_CLASS | {"kind": ""}),
    _template_rule("nodeClassRef name", "nodeClassRef.name", NODE_CLASS, NODE_CLASS | {"name": ""}),
    _template_rule("template expireAfter", "expireAfter", "720h", "30d"),
    _template_rule("template expireAfter Never", "expireAfter", "Never", "never"),
    _template_rule("terminationGracePeriod", "terminationGracePeriod", "1h30m", "Never"),
    _requirement_rule("operator", "operator", _ARCH, _ARCH | {"operator": "in"}),
    _requirement_rule("operator Gte", "operator", _CPU | {"operator": "Gte"}, _CPU | {"operator": ">="}),
    _requirement_rule("In has values", "", _ARCH, _ARCH | {"values": []}),
    _requirement_rule("In names values", "", _ARCH, _without(_ARCH, "values")),
    _requirement_rule("Gt has one value", "", _CPU, _CPU | {"values": ["4", "8"]}),
    _requirement_rule("Gt has a number", "", _CPU, _CPU | {"values": ["four"]}),
    _requirement_rule("Lt has no negative number", "", _CPU | {"operator": "Lt"}, _CPU | {"values": ["-1"]}),
    _requirement_rule("minValues within the values", "", _ARCH | {"minValues": 2}, _ARCH | {"minValues": 3}),
    _requirement_rule("minValues at least 1", "minValues", _ARCH | {"minValues": 1}, _ARCH | {"minValues": 0}),
    _requirement_rule(
        "minValues at most 50",
        "minValues",
        {"key": "a", "operator": "Exists", "minValues": 50},
        {"key": "a", "operator": "Exists", "minValues": 51},
    ),
    _requirement_rule("key is a label name", "key", _ARCH | {"key": "example.com/a"}, _ARCH | {"key": "example com"}),
    _requirement_rule(
        "key of Karpenter's domain",
        "key",
        _ARCH | {"key": "karpenter.sh/capacity-type", "values": ["spot"]},
        _ARCH | {"key": "karpenter.sh/team"},
    ),
    _requirement_rule("key nodepool", "key", _ARCH, _ARCH | {"key": "karpenter.sh/nodepool"}),
    _requirement_rule("key hostname", "key", _ARCH, _ARCH | {"key": "kubernetes.io/hostname"}),
    Rule(
        name="at most 100 requirements",
        field="spec.template.spec.requirements",
        good=pool(template=template(requirements=[_ARCH | {"key": f"k{n}"} for n in range(100)])),
        bad=pool(template=template(requirements=[_ARCH | {"key": f"k{n}"} for n in range(101)])),
    ),
    _template_rule("taint effect", "taints[0].effect", [_TAINT], [_TAINT | {"effect": "Evict"}]),
    _template_rule("taint key", "taints[0].key", [_TAINT], [_TAINT | {"key": ""}]),
    _template_rule("taint key is a name", "taints[0].key", [_TAINT], [_TAINT | {"key": "a b"}]),
    _template_rule("startup taint effect", "startupTaints[0].effect", [_TAINT], [_without(_TAINT, "effect")]),
    _labels_rule("label of Karpenter's domain", "example.com/team", "karpenter.sh/team"),
    _labels_rule("label under Karpenter's domain", "karpenter.sh/capacity-type", "a.karpenter.sh/team"),
    _labels_rule("label nodepool", "team", "karpenter.sh/nodepool"),
    _labels_rule("label hostname", "kubernetes.io/os", "kubernetes.io/hostname"),
    Rule(name="weight at least 1", field="spec.weight", good=pool(weight=1), bad=pool(weight=0)),
    Rule(name="weight at most 100", field="spec.weight", good=pool(weight=100), bad=pool(weight=101)),
    Rule(
        name="limits are quantities",
        field="spec.limits.cpu",
        good=pool(limits={"cpu": "1k"}),
        bad=pool(limits={"cpu": "x"}),
    ),
    Rule(name="replicas not negative", field="spec.replicas", good=pool(replicas=0), bad=pool(replicas=-1)),
    Rule(name="no weight on a static pool", field="spec", good=pool(replicas=2), bad=pool(replicas=2, weight=10)),
    Rule(
        name="only nodes limited on a static pool",
        field="spec",
        good=pool(replicas=2, limits={"nodes": "5"}),
        bad=pool(replicas=2, limits={"nodes": "5", "cpu": "10"}),
    ),
    Rule(
        name="claim expireAfter",
        field="spec.expireAfter",
        good=claim(expireAfter="720h"),
        bad=claim(expireAfter="30d"),
    ),
    Rule(
        name="claim requirements",
        field="spec.requirements",
        good=claim(requirements=[_CPU]),
        bad=claim(requirements=[_CPU | {"values": []}]),
    ),
    Rule(
        name="claim key of Karpenter's domain",
        field="spec.requirements[0].key",
        good=claim(requirements=[_ARCH | {"key": "karpenter.sh/nodepool", "values": ["default"]}]),
        bad=claim(requirements=[_ARCH | {"key": "karpenter.sh/team"}]),
    ),
    Rule(
        name="claim terminationGracePeriod",
        field="spec.terminationGracePeriod",
        good=claim(terminationGracePeriod="30m"),
        bad=claim(terminationGracePeriod="30"),
    ),
)
