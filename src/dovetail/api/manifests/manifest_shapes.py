"""The shapes of NodePool and NodeClaim: every field that the API server knows, with its bounds.

Simple fields of the policy come from the table of `api.policy_fields`, as in `crds`. The rest is written independently
of `crds`; the tests check both, and an API server, with one table of valid and invalid objects. Rules between fields
are in `validate`. See docs/rules.md#policy; grace-period Proposed Spec, savings-threshold Recommendation,
topology-budgets API Design, disruption-controls Proposed Spec.
"""

from typing import Final

from dovetail.api.manifests.shape import Kind, Shape
from dovetail.api.policy_fields import BUDGET_FIELDS, FIELDS, TEXT_MAX, Field, Form

# Plain texts: `re` compiles a pattern when a value is first checked, which most commands never do.
DNS_NAME: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
QUALIFIED: Final = rf"(?:{DNS_NAME}/)?{_NAME}"
LABEL_NAME: Final = rf"(?:(?=[^/]{{1,253}}/){DNS_NAME}/)?(?:[A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]"
LABEL_VALUE: Final = rf"(?:{_NAME})?"
PARTS: Final = r"(?:[0-9]+[smh])+"
_PARTS_OR_NEVER: Final = r"(?:[0-9]+[smh])+|Never"
WINDOW_LENGTH: Final = r"(?:[0-9]+[hm]|[0-9]+h[0-9]+m)(?:0s)?"
NODES: Final = r"(?:100|[0-9]{1,2})%|[0-9]+"

REASONS: Final = ("Empty", "Expired", "Drifted", "Underutilized", "Unhealthy")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SCHEDULE_MAX: Final = 1024


def _text(remedy: str = "", pattern: str | None = None, longest: int | None = None) -> Shape:
    return Shape(kind=Kind.TEXT, remedy=remedy, pattern=pattern, longest=longest)


def _words(*words: str) -> Shape:
    return Shape(kind=Kind.TEXT, words=words)


def _shape(field: Field, form: Form) -> Shape:
    """Return what a field of the table accepts; of several words, the default comes first."""
    if form.is_number:
        return Shape(kind=Kind.NUMBER, remedy=form.write, low=0)
    if form.choices:
        return _words(*sorted(form.choices, key=lambda word: word != field.default))
    return _text(form.write, form.pattern, form.longest)


_LENGTH = "a duration such as 30s, 5m or 1h30m"

BUDGET: Final = Shape(
    kind=Kind.MAP,
    remedy='a map such as {nodes: "10%"}',
    fields={
        "nodes": _text('a count such as "5" or a percentage from "0%" to "100%", in quotes', NODES, TEXT_MAX),
        "schedule": _text("five cron fields such as '0 9 * * mon-fri', or @daily", longest=_SCHEDULE_MAX),
        "duration": _text("hours and minutes such as 8h, 30m or 1h30m", WINDOW_LENGTH, TEXT_MAX),
        "reasons": Shape(kind=Kind.LIST, remedy="a list such as [Drifted]", items=_words(*REASONS), high=50),
        "topologyKey": _text("a label name such as topology.kubernetes.io/zone", LABEL_NAME),
        "sequential": Shape(kind=Kind.FLAG, remedy="true or false"),
        **{part.name: _shape(part, part.form) for part in BUDGET_FIELDS if part.form},
    },
)
_SCHEDULE: Final = BUDGET.fields["schedule"]
_REASONS: Final = BUDGET.fields["reasons"]
ALLOW_WINDOW: Final = Shape(
    kind=Kind.MAP,
    remedy='a map such as {schedule: "0 22 * * *", duration: 6h}',
    fields={"schedule": _SCHEDULE, "duration": BUDGET.fields["duration"], "reasons": _REASONS},
    required=("schedule", "duration"),
)
HEALTH: Final = Shape(
    kind=Kind.MAP,
    remedy='a map such as {notReadyNodes: "20%"}',
    fields={
        "notReadyNodes": BUDGET.fields["nodes"],
        "pendingPods": Shape(
            kind=Kind.MAP,
            remedy="a map such as {count: 10, for: 5m}",
            fields={
                "count": Shape(kind=Kind.WHOLE, low=1, high=2**31 - 1, remedy="1 or more"),
                "for": _text(_LENGTH, PARTS, TEXT_MAX),
            },
            required=("count", "for"),
        ),
        "movedPodsReadyWithin": _text(_LENGTH, PARTS, TEXT_MAX),
    },
)
REPAIR_RULE: Final = Shape(
    kind=Kind.MAP,
    remedy="a map such as {condition: Ready, status: Unknown, for: 10m}",
    fields={
        "condition": _text("the type of a node condition, such as Ready", QUALIFIED, 316),
        "status": _words("True", "False", "Unknown"),
        "for": _text(_LENGTH, PARTS, TEXT_MAX),
        "drainFor": _text(_LENGTH, PARTS, TEXT_MAX),
    },
    required=("condition", "status", "for"),
)


_STRUCTURED: Final = {
    "budgets": Shape(kind=Kind.LIST, remedy='a list such as [{nodes: "10%"}]', items=BUDGET, high=50),
    "windows": Shape(kind=Kind.LIST, remedy="a list of windows", items=ALLOW_WINDOW, high=50),
    "health": HEALTH,
    "repair": Shape(kind=Kind.LIST, remedy="a list of rules", items=REPAIR_RULE, high=50),
}
DISRUPTION: Final = Shape(
    kind=Kind.MAP,
    remedy="a map such as {consolidateAfter: 30s}",
    fields={field.name: _shape(field, field.form) if field.form else _STRUCTURED[field.name] for field in FIELDS},
)
NODE_CLASS_REF: Final = Shape(
    kind=Kind.MAP,
    remedy="a map of group, kind and name",
    fields={
        "group": _text("the API group of the class, such as karpenter.k8s.aws", r"[^/]+"),
        "kind": _text("the kind of the class, such as EC2NodeClass", r"(?s:.+)"),
        "name": _text("the name of the class", r"(?s:.+)"),
    },
    required=("group", "kind", "name"),
)
REQUIREMENT: Final = Shape(
    kind=Kind.MAP,
    fields={
        "key": _text("a label name such as kubernetes.io/arch", QUALIFIED, 316),
        "operator": _words(*OPERATORS),
        "values": Shape(kind=Kind.LIST, remedy='a list such as ["a", "b"]', items=_text("it in quotes")),
        "minValues": Shape(kind=Kind.WHOLE, low=1, high=50, remedy="1 to 50"),
    },
    required=("key", "operator"),
)
TAINT: Final = Shape(
    kind=Kind.MAP,
    fields={
        "key": _text("a name such as example.com/team", QUALIFIED),
        "value": _text("letters, digits, -, _ and . (or leave it out)", QUALIFIED),
        "effect": _words(*EFFECTS),
        "timeAdded": Shape(kind=Kind.TIME),
    },
    required=("key", "effect"),
)
_TAINTS: Final = Shape(kind=Kind.LIST, remedy="a list", items=TAINT)
_QUANTITIES: Final = Shape(kind=Kind.MAP, remedy="a map such as {cpu: 100}", values=Shape(kind=Kind.QUANTITY))
_NODE_FIELDS: Final = {
    "nodeClassRef": NODE_CLASS_REF,
    "requirements": Shape(kind=Kind.LIST, remedy="a list ([] for none)", items=REQUIREMENT, high=100),
    "taints": _TAINTS,
    "startupTaints": _TAINTS,
    "expireAfter": _text("a duration in s, m, h such as 720h, or Never", _PARTS_OR_NEVER),
    "terminationGracePeriod": _text(_LENGTH, PARTS),
}
_NEEDED: Final = ("nodeClassRef", "requirements")
_ANNOTATIONS: Final = Shape(kind=Kind.MAP, values=_text("it in quotes"))
_LABELS: Final = Shape(kind=Kind.MAP, values=_text("letters, digits, -, _ and ., in quotes", LABEL_VALUE, 63), high=100)
_METADATA: Final = Shape(kind=Kind.MAP, values=None)
TEMPLATE: Final = Shape(
    kind=Kind.MAP,
    fields={
        "metadata": Shape(kind=Kind.MAP, fields={"labels": _LABELS, "annotations": _ANNOTATIONS}),
        "spec": Shape(
            kind=Kind.MAP, fields=_NODE_FIELDS, required=_NEEDED, remedy="the machines' nodeClassRef and so on"
        ),
    },
    required=("spec",),
    remedy="the machines' template",
)


def _object(spec: Shape) -> Shape:
    """Return the shape of a whole object with this spec."""
    return Shape(
        kind=Kind.MAP,
        fields={
            "apiVersion": _text(),
            "kind": _text(),
            "metadata": _METADATA,
            "spec": spec,
            "status": Shape(kind=Kind.MAP),
        },
        required=("spec",),
    )


NODE_POOL: Final = _object(
    Shape(
        kind=Kind.MAP,
        fields={
            "template": TEMPLATE,
            "disruption": DISRUPTION,
            "limits": _QUANTITIES,
            "replicas": Shape(kind=Kind.WHOLE, low=0, remedy="0 or more"),
            "weight": Shape(kind=Kind.WHOLE, low=1, high=100, remedy="1 to 100"),
        },
        required=("template",),
        remedy="what the pool is",
    )
)
NODE_CLAIM: Final = _object(
    Shape(
        kind=Kind.MAP,
        fields={
            **_NODE_FIELDS,
            "resources": Shape(kind=Kind.MAP, fields={"requests": _QUANTITIES}),
        },
        required=_NEEDED,
        remedy="what the machine is",
    )
)
