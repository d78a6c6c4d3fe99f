"""The CustomResourceDefinitions of NodePool and NodeClaim, built from compact tables: `dovetail crds` prints them.

A superset of Karpenter v1.15's schema, written by us: every field, bound and rule that it has is here with the same
verdict (descriptions and messages are our own), plus the disruption policy of spec section 1 (S0 Proposed Spec, S1
Recommendation, S2 API Design, S3 Proposed Spec). What is stored stays readable by Karpenter's own types: no field of
theirs changes its type; `nodes` of a budget stays a string. One default differs: consolidateAfter is 15s (S3).
Each of our rules carries a message with what to write instead; a `pattern` next to it serves editors and clients.
Upper lengths are there to bound what CEL may cost, far above what anyone writes.
Knows nothing of files or clusters. Validation at run time is `validate`; a table in the tests keeps both in step.
"""

from typing import Any, Final

import yaml

from dovetail.api.cron_rules import SCHEDULE_LENGTH_MAX, CelRule, schedule_rules

Schema = dict[str, Any]

_DNS: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED: Final = rf"^({_DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
_LABEL_NAME: Final = rf"^({_DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]$"
_LABEL_VALUE: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_DURATION: Final = r"^([0-9]+(s|m|h))+$"
_DURATION_OR_NEVER: Final = r"^(([0-9]+(s|m|h))+|Never)$"
_DURATION_WITH_DAYS_OR_NEVER: Final = r"^(([0-9]+(s|m|h|d))+|Never)$"
_WINDOW: Final = r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$"
_NODES: Final = r"^((100|[0-9]{1,2})%|[0-9]+)$"
_OPERATORS: Final = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
_POLICIES: Final = ["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced", "WhenUnderutilized"]
_REASONS: Final = ["Underutilized", "Empty", "Drifted", "Unhealthy", "Expired"]
_BUDGET_TEXT_LENGTH_MAX: Final = 256


def crds() -> list[Schema]:
    """Give both definitions, NodePool first, as fresh objects."""
    return [_nodepool_crd(), _nodeclaim_crd()]


def crds_yaml() -> str:
    """Give both definitions as one YAML stream, the same bytes every time."""
    return "".join("---\n" + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=100_000) for crd in crds())


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out in full: anchors would be right, and unreadable."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# --- small words of the schema ----------------------------------------------------------------------------------------


def _object(description: str, properties: Schema, required: list[str] | None = None, **more: Any) -> Schema:
    schema: Schema = {"description": description, "type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return schema | more


def _text(description: str, **more: Any) -> Schema:
    return {"description": description, "type": "string"} | more


def _checked(description: str, pattern: str, remedy: str, **more: Any) -> Schema:
    """Make a string field whose pattern is said twice: for clients, and with words for people."""
    rule = CelRule(rule=f"self.matches(r'{pattern}')", message=remedy)
    return _text(description, pattern=pattern, **more) | _rules(rule)


def _whole(description: str, **more: Any) -> Schema:
    return {"description": description, "type": "integer"} | more


def _time(description: str) -> Schema:
    return _text(description, format="date-time")


def _list(description: str, items: Schema, kind: str = "atomic", **more: Any) -> Schema:
    return {"description": description, "type": "array", "items": items, "x-kubernetes-list-type": kind} | more


def _quantities(description: str) -> Schema:
    either = [{"type": "integer"}, {"type": "string"}]
    value = {"anyOf": either, "pattern": _QUANTITY, "x-kubernetes-int-or-string": True}
    return {"description": description, "type": "object", "additionalProperties": value}


def _rules(*rules: CelRule) -> Schema:
    return {"x-kubernetes-validations": [{"rule": each.rule, "message": each.message} for each in rules]}


def _rule(rule: str, message: str) -> CelRule:
    return CelRule(rule=rule, message=message)


# --- the disruption policy --------------------------------------------------------------------------------------------


def _disruption() -> Schema:
    never = "must be a duration of s, m and h parts such as 30s or 1h30m, or Never"
    return _object(
        "How and when nodes of this pool may be disrupted.",
        {
            "consolidationPolicy": _text(
                "Which nodes consolidation may take. WhenUnderutilized is the older word for WhenEmptyOrUnderutilized. "
                "Ignored on a static pool.",
                enum=_POLICIES,
                default="WhenEmptyOrUnderutilized",
            ),
            "consolidateAfter": _checked(
                "How long after the last pod came or went a node becomes a candidate for consolidation; "
                "Never switches consolidation off. Ignored on a static pool.",
                _DURATION_OR_NEVER,
                f"consolidateAfter {never}",
                default="15s",
            ),
            "expireAfter": _checked(
                "The age at which a node is replaced gracefully, within the budgets. Must be shorter than the "
                "template's expireAfter, which Karpenter enforces forcefully. Unset: the NodeClaim's own.",
                _DURATION_WITH_DAYS_OR_NEVER,
                "expireAfter must be a duration of s, m, h and d parts such as 720h or 30d, or Never",
            ),
            "consolidationGracePeriod": _checked(
                "How long after the last pod came or went a node stays out of consolidation altogether, neither "
                "emptied nor filled. Unset or Never: off. Ignored on a static pool.",
                _DURATION_OR_NEVER,
                f"consolidationGracePeriod {never}",
            ),
            "consolidationSavingsThreshold": {
                "description": "What a consolidation must save at least, in dollars per hour for each unit of "
                "disruption cost; 0 asks for no minimum. Alpha. Ignored on a static pool.",
                "type": "number",
                "minimum": 0,
                "default": 0.01,
            },
            "budgets": _list(
                "How many nodes may be disrupted at the same time. Of the budgets that are active and name the "
                "reason, the strictest counts.",
                _budget(),
                maxItems=50,
                default=[{"nodes": "10%"}],
            ),
        },
        default={"consolidateAfter": "15s"},
    )


def _budget() -> Schema:
    return _object(
        "A cap on nodes that are disrupted at the same time.",
        {
            "nodes": _checked(
                "The cap: a count, or a percentage of the pool's nodes (with topologyKey the domain's), rounded up.",
                _NODES,
                "nodes must be a count such as '5' or a percentage from '0%' to '100%'",
                default="10%",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "schedule": _text(
                "When the budget becomes active: five cron fields, or @daily and its like, in UTC unless "
                "TZ=Area/City stands in front. Without it the budget is always active. Needs duration.",
                maxLength=SCHEDULE_LENGTH_MAX,
                **_rules(*schedule_rules()),
            ),
            "duration": _checked(
                "How long the budget stays active after each hit of its schedule, in hours and minutes.",
                _WINDOW,
                "duration must be hours and minutes such as 8h, 30m or 1h30m",
                maxLength=_BUDGET_TEXT_LENGTH_MAX,
            ),
            "reasons": _list(
                "The kinds of disruption that the budget holds for; none listed means all.",
                _text("A kind of disruption.", enum=_REASONS),
                kind="set",
                maxItems=50,
            ),
            "topologyKey": _text(
                "A node label. The cap then holds for the nodes of each of its values apart, and for drift only.",
                pattern=_LABEL_NAME,
                maxLength=317,
                **_rules(
                    _rule(
                        f"self.matches(r'{_LABEL_NAME}')",
                        "topologyKey must be a label name such as topology.kubernetes.io/zone",
                    ),
                    _rule(
                        "self.matches(r'^([^/]{0,253}/)?[^/]*$')",
                        "topologyKey must have at most 253 characters before its slash",
                    ),
                ),
            ),
            "sequential": {
                "description": "Let drift finish in one value of topologyKey before it starts in the next.",
                "type": "boolean",
            },
        },
        required=["nodes"],
        **_rules(
            _rule(
                "has(self.schedule) == has(self.duration)",
                "schedule and duration go together: set both, or neither for a budget that is always active",
            ),
            _rule(
                "!has(self.sequential) || !self.sequential || has(self.topologyKey)",
                "sequential needs topologyKey: name the node label to go by, such as topology.kubernetes.io/zone",
            ),
        ),
    )


# --- what NodePool templates and NodeClaims share ---------------------------------------------------------------------

_HOSTNAME: Final = "kubernetes.io/hostname"
_POOL_LABEL: Final = "karpenter.sh/nodepool"
_POOL_LABEL_MESSAGE: Final = f"{_POOL_LABEL} can't be set here: it is filled in from the pool's name"
_HOSTNAME_MESSAGE: Final = f"{_HOSTNAME} can't be set here: each node has its own"


def _own_domain(name: str) -> str:
    """Say in CEL that a label is not of Karpenter's domain, or one of the two of it that may be used."""
    allowed = f"{name} == 'karpenter.sh/capacity-type' || {name} == '{_POOL_LABEL}'"
    return f"{allowed} || !{name}.matches(r'^[^/]*karpenter[.]sh(/|$)')"


_DOMAIN_MESSAGE: Final = "labels of karpenter.sh are Karpenter's own, but for karpenter.sh/capacity-type"


def _node_class_ref(*rules: CelRule) -> Schema:
    def part(name: str, **more: Any) -> Schema:
        return _text(f"The {name} of that object.", **more) | _rules(_rule("self != ''", f"{name} must not be empty"))

    return _object(
        "The cloud provider's object with the rest of the machine's configuration.",
        {"group": part("group", pattern="^[^/]*$"), "kind": part("kind"), "name": part("name")},
        required=["group", "kind", "name"],
        **(_rules(*rules) if rules else {}),
    )


def _requirements(*key_rules: CelRule) -> Schema:
    domain = _rule(_own_domain("self"), _DOMAIN_MESSAGE)
    hostname = _rule(f"self != '{_HOSTNAME}'", _HOSTNAME_MESSAGE)
    item = _object(
        "One condition on a label of the node.",
        {
            "key": _text("The label.", maxLength=316, pattern=_QUALIFIED) | _rules(domain, *key_rules, hostname),
            "operator": _text("How the label's value must stand to the values.", enum=_OPERATORS),
            "values": _list(
                "The values: one or more for In, any for NotIn, none for Exists and DoesNotExist, a single whole "
                "number for Gt, Lt, Gte and Lte.",
                {"type": "string"},
            ),
            "minValues": _whole("How many different values must stay open. Alpha.", minimum=1, maximum=50),
        },
        required=["key", "operator"],
    )
    compares = "x.operator in ['Gt', 'Lt', 'Gte', 'Lte']"
    return _list(
        "What the node's labels must fulfil, all together.",
        item,
        maxItems=100,
        **_rules(
            _rule(
                "self.all(x, x.operator == 'In' ? has(x.values) && x.values.size() != 0 : true)",
                "a requirement with operator In needs at least one value",
            ),
            _rule(
                f"self.all(x, {compares} ? has(x.values) && x.values.size() == 1 && int(x.values[0]) >= 0 : true)",
                "a requirement with operator Gt, Lt, Gte or Lte needs exactly one value, a whole number of 0 or more",
            ),
            _rule(
                "self.all(x, x.operator == 'In' && has(x.minValues) ? x.values.size() >= x.minValues : true)",
                "a requirement with operator In needs at least as many values as its minValues asks for",
            ),
        ),
    )


def _taints(description: str) -> Schema:
    item = _object(
        "A taint of the node.",
        {
            "key": _text("The taint's name.", minLength=1, pattern=_QUALIFIED),
            "value": _text("The taint's value.", pattern=_QUALIFIED),
            "effect": _text(
                "What happens to pods that don't tolerate it.", enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]
            ),
            "timeAdded": _time("When it was put on."),
        },
        required=["effect", "key"],
    )
    return _list(description, item)


def _node_spec(node_class_ref: Schema, requirements: Schema) -> Schema:
    """Give the fields of a NodeClaim's spec that a NodePool's template has too."""
    return {
        "nodeClassRef": node_class_ref,
        "requirements": requirements,
        "taints": _taints("Taints of the node."),
        "startupTaints": _taints("Taints that something takes off soon after the node's start; placing ignores them."),
        "expireAfter": _text(
            "The age at which Karpenter removes a node whatever its pods say, or Never.",
            pattern=_DURATION_OR_NEVER,
            default="720h",
        ),
        "terminationGracePeriod": _text(
            "How long a node that is being deleted may drain before its remaining pods are removed forcefully, "
            "past disruption budgets of pods and do-not-disrupt. Unset: without end.",
            pattern=_DURATION,
        ),
    }


def _conditions(reason: Schema, required: list[str]) -> Schema:
    item = _object(
        "One aspect of the object's state.",
        {
            "type": _text("Which aspect.", maxLength=316, pattern=_QUALIFIED),
            "status": _text("Whether it holds.", enum=["True", "False", "Unknown"]),
            "reason": reason,
            "message": _text("The details, for people.", maxLength=32768),
            "lastTransitionTime": _time("When status changed last."),
            "observedGeneration": _whole("The generation of the object that was judged.", format="int64", minimum=0),
        },
        required=required,
    )
    return _list("The object's state, by aspect.", item, kind="map", **{"x-kubernetes-list-map-keys": ["type"]})


# --- NodePool ---------------------------------------------------------------------------------------------------------


def _nodepool_crd() -> Schema:
    schema = _object(
        "A pool of nodes: what machines it may start, and how they may be disrupted.",
        _top_level(_nodepool_spec(), _nodepool_status()),
        required=["spec"],
    )
    columns = [
        _column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
        _column("Nodes", ".status.nodes"),
        _column("Ready", _condition_path("Ready")),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Weight", ".spec.weight", "integer", wide=True),
        _column("CPU", ".status.resources.cpu", wide=True),
        _column("Memory", ".status.resources.memory", wide=True),
    ]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
    return _definition("NodePool", columns, schema, {"status": {}, "scale": scale})


def _nodepool_spec() -> Schema:
    return _object(
        "What the pool's nodes are and how many there may be.",
        {
            "template": _template(),
            "disruption": _disruption(),
            "limits": _quantities("The most that all nodes of the pool may have together. A static pool: nodes only."),
            "replicas": _whole(
                "Makes the pool static: this many nodes, whatever the pods. Goes with neither weight nor limits other "
                "than nodes. Alpha.",
                format="int64",
                minimum=0,
            ),
            "weight": _whole(
                "Pools of higher weight are tried first. Not for static pools.", format="int32", minimum=1, maximum=100
            ),
        },
        required=["template"],
        **_rules(
            _rule(
                "has(self.replicas) == has(oldSelf.replicas)",
                "a pool can't turn static or stop being so: make another pool to set or drop replicas",
            ),
            _rule(
                "!has(self.replicas) || !has(self.limits) || size(self.limits) == 0 || "
                "(size(self.limits) == 1 && 'nodes' in self.limits)",
                "a static pool (replicas is set) may limit nodes only",
            ),
            _rule(
                "!has(self.replicas) || !has(self.weight)",
                "a static pool (replicas is set) has no weight",
            ),
        ),
    )


def _template() -> Schema:
    labels = {
        "description": "Labels that every node of the pool gets.",
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": _LABEL_VALUE},
        "maxProperties": 100,
        "x-kubernetes-map-type": "atomic",
        **_rules(
            _rule(f"self.all(x, {_own_domain('x')})", _DOMAIN_MESSAGE),
            _rule(f"self.all(x, x != '{_POOL_LABEL}')", _POOL_LABEL_MESSAGE),
            _rule(f"self.all(x, x != '{_HOSTNAME}')", _HOSTNAME_MESSAGE),
        ),
    }
    annotations = {
        "description": "Annotations that every node of the pool gets.",
        "type": "object",
        "additionalProperties": {"type": "string"},
        "x-kubernetes-map-type": "granular",
    }
    same = "of nodeClassRef can't change: make another pool"
    node_class = _node_class_ref(
        _rule("self.group == oldSelf.group", f"group {same}"), _rule("self.kind == oldSelf.kind", f"kind {same}")
    )
    spec = _object(
        "What each NodeClaim of the pool starts from.",
        _node_spec(node_class, _requirements(_rule(f"self != '{_POOL_LABEL}'", _POOL_LABEL_MESSAGE))),
        required=["nodeClassRef", "requirements"],
    )
    metadata = {"type": "object", "properties": {"labels": labels, "annotations": annotations}}
    return _object("What the pool's NodeClaims are made from.", {"metadata": metadata, "spec": spec}, required=["spec"])


def _nodepool_status() -> Schema:
    reason = _text("Why, in one word.", minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    return _object(
        "What was seen of the pool last.",
        {
            "conditions": _conditions(reason, ["lastTransitionTime", "message", "reason", "status", "type"]),
            "nodes": _whole("How many nodes the pool has.", format="int64", default=0),
            "resources": _quantities("What all nodes of the pool have together."),
            "nodeClassObservedGeneration": _whole("The node class generation that was seen last.", format="int64"),
        },
    )


# --- NodeClaim --------------------------------------------------------------------------------------------------------


def _nodeclaim_crd() -> Schema:
    schema = _object(
        "The wish for one node, and what became of it.",
        _top_level(_nodeclaim_spec(), _nodeclaim_status()),
        required=["spec"],
    )
    columns = [
        _column("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
        _column("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
        _column("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
        _column("Node", ".status.nodeName"),
        _column("Ready", _condition_path("Ready")),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("ImageID", ".status.imageID", wide=True),
        _column("ID", ".status.providerID", wide=True),
        _column("NodePool", r".metadata.labels.karpenter\.sh/nodepool", wide=True),
        _column("NodeClass", ".spec.nodeClassRef.name", wide=True),
        _column("Drifted", _condition_path("Drifted"), wide=True),
    ]
    return _definition("NodeClaim", columns, schema, {"status": {}})


def _nodeclaim_spec() -> Schema:
    requests = _quantities("What the node must have room for at least.")
    resources = _object("The size that is needed.", {"requests": requests})
    return _object(
        "What node is wished for; it never changes.",
        _node_spec(_node_class_ref(), _requirements()) | {"resources": resources},
        required=["nodeClassRef", "requirements"],
        **_rules(_rule("self == oldSelf", "the spec of a NodeClaim never changes: delete it and make another")),
    )


def _nodeclaim_status() -> Schema:
    reason = _text("Why, in one word.", maxLength=1024, pattern="^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$")
    return _object(
        "What was seen of the node last.",
        {
            "allocatable": _quantities("What pods can have of it."),
            "capacity": _quantities("All that the node has."),
            "conditions": _conditions(reason, ["lastTransitionTime", "status", "type"]),
            "imageID": _text("The image that the node runs."),
            "lastPodEventTime": _time(
                "When a pod was last added to the node or removed from it; one that ends or starts terminating "
                "counts as removed."
            ),
            "nodeName": _text("The Node's name."),
            "providerID": _text("The cloud's name for the machine."),
        },
    )


# --- the envelope -----------------------------------------------------------------------------------------------------


def _top_level(spec: Schema, status: Schema) -> Schema:
    return {
        "apiVersion": _text("The version of this form, karpenter.sh/v1."),
        "kind": _text("What this object is."),
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": 1} if wide else column


def _condition_path(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].status'


def _definition(kind: str, columns: list[Schema], schema: Schema, subresources: Schema) -> Schema:
    singular = kind.lower()
    plural = f"{singular}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "subresources": subresources,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.karpenter.sh"},
        "spec": {
            "group": "karpenter.sh",
            "scope": "Cluster",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "categories": ["karpenter"],
            },
            "versions": [version],
        },
    }
