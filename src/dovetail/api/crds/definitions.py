"""The CustomResourceDefinitions of NodePool and NodeClaim, built from compact tables: `dovetail crds` prints them.

A superset of Karpenter v1.15's schema: every field, bound and rule of it is here with the same effect (descriptions and
messages are Dovetail's own), plus the disruption policy of docs/rules.md#policy (grace-period Proposed Spec,
savings-threshold Recommendation, topology-budgets API Design, disruption-controls Proposed Spec). Stored objects stay
readable by Karpenter's own types: no field of theirs changes its type; `nodes` of a budget stays a string. One default
differs: consolidateAfter is 15s (disruption-controls). Each added rule has a message that says what to write instead; a
`pattern` next to it serves editors and clients. Maximum lengths only bound the cost of CEL and are far above what
anyone writes. Knows nothing of files or clusters. `api.manifests.validate` checks at run time; a table in the tests
keeps both in step.
"""

from collections.abc import Iterable
from typing import Any, Final

import yaml

from dovetail.api.crds import words
from dovetail.api.crds.cron_rules import CelRule
from dovetail.api.crds.policy import disruption
from dovetail.api.crds.words import Schema
from dovetail.api.policy_fields import DURATION_OR_NEVER
from dovetail.model import names

_QUALIFIED: Final = rf"^({words.DNS}/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
_LABEL_VALUE: Final = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_DURATION: Final = r"^([0-9]+(s|m|h))+$"
_OPERATORS: Final = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]


def crds() -> list[Schema]:
    """Return both definitions, NodePool first, as fresh objects."""
    return [_nodepool_crd(), _nodeclaim_crd()]


def crds_yaml(definitions: Iterable[Schema] | None = None) -> str:
    """Return definitions (by default both) as one YAML stream, the same bytes every time."""
    chosen = crds() if definitions is None else definitions
    return "".join("---\n" + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=100_000) for crd in chosen)


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out in full: anchors would be correct, but hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# --- what NodePool templates and NodeClaims share ---------------------------------------------------------------------

_HOSTNAME: Final = "kubernetes.io/hostname"
_POOL_LABEL: Final = "karpenter.sh/nodepool"
_POOL_LABEL_MESSAGE: Final = f"{_POOL_LABEL} can't be set here: it is filled in from the pool's name"
_HOSTNAME_MESSAGE: Final = f"{_HOSTNAME} can't be set here: each node has its own"


def _own_domain(name: str) -> str:
    """Return the CEL rule: a label is not in Karpenter's domain, or is one of the two that may be used."""
    allowed = f"{name} == 'karpenter.sh/capacity-type' || {name} == '{_POOL_LABEL}'"
    return f"{allowed} || !{name}.matches(r'^[^/]*karpenter[.]sh(/|$)')"


_DOMAIN_MESSAGE: Final = "labels of karpenter.sh are Karpenter's own, but for karpenter.sh/capacity-type"


def _node_class_ref(*rules: CelRule) -> Schema:
    def part(name: str, **more: Any) -> Schema:
        return words.text(f"The {name} of that object.", **more) | words.rules(
            words.rule("self != ''", f"{name} must not be empty")
        )

    return words.object_of(
        "The cloud provider's object with the rest of the machine's configuration.",
        {"group": part("group", pattern="^[^/]*$"), "kind": part("kind"), "name": part("name")},
        required=["group", "kind", "name"],
        **(words.rules(*rules) if rules else {}),
    )


def _requirements(*key_rules: CelRule) -> Schema:
    domain = words.rule(_own_domain("self"), _DOMAIN_MESSAGE)
    hostname = words.rule(f"self != '{_HOSTNAME}'", _HOSTNAME_MESSAGE)
    item = words.object_of(
        "One condition on a label of the node.",
        {
            "key": words.text("The label.", maxLength=316, pattern=_QUALIFIED)
            | words.rules(domain, *key_rules, hostname),
            "operator": words.text("How the label's value must stand to the values.", enum=_OPERATORS),
            "values": words.list_of(
                "The values: one or more for In, any for NotIn, none for Exists and DoesNotExist, a single whole "
                "number for Gt, Lt, Gte and Lte.",
                {"type": "string"},
            ),
            "minValues": words.whole("How many different values must stay open. Alpha.", minimum=1, maximum=50),
        },
        required=["key", "operator"],
    )
    compares = "x.operator in ['Gt', 'Lt', 'Gte', 'Lte']"
    return words.list_of(
        "What the node's labels must fulfil, all together.",
        item,
        maxItems=100,
        **words.rules(
            words.rule(
                "self.all(x, x.operator == 'In' ? has(x.values) && x.values.size() != 0 : true)",
                "a requirement with operator In needs at least one value",
            ),
            words.rule(
                f"self.all(x, {compares} ? has(x.values) && x.values.size() == 1 && int(x.values[0]) >= 0 : true)",
                "a requirement with operator Gt, Lt, Gte or Lte needs exactly one value, a whole number of 0 or more",
            ),
            words.rule(
                "self.all(x, x.operator == 'In' && has(x.minValues) ? x.values.size() >= x.minValues : true)",
                "a requirement with operator In needs at least as many values as its minValues asks for",
            ),
        ),
    )


def _taints(description: str) -> Schema:
    item = words.object_of(
        "A taint of the node.",
        {
            "key": words.text("The taint's name.", minLength=1, pattern=_QUALIFIED),
            "value": words.text("The taint's value.", pattern=_QUALIFIED),
            "effect": words.text(
                "What happens to pods that don't tolerate it.", enum=["NoSchedule", "PreferNoSchedule", "NoExecute"]
            ),
            "timeAdded": words.time("When it was put on."),
        },
        required=["effect", "key"],
    )
    return words.list_of(description, item)


def _node_spec(node_class_ref: Schema, requirements: Schema) -> Schema:
    """Return the fields of a NodeClaim's spec that a NodePool's template has too."""
    return {
        "nodeClassRef": node_class_ref,
        "requirements": requirements,
        "taints": _taints("Taints of the node."),
        "startupTaints": _taints("Taints that something takes off soon after the node's start; placing ignores them."),
        "expireAfter": words.text(
            "The age at which Karpenter removes a node whatever its pods say, or Never.",
            pattern=DURATION_OR_NEVER,
            default="720h",
        ),
        "terminationGracePeriod": words.text(
            "How long a node that is being deleted may drain before its remaining pods are removed forcefully, "
            "past disruption budgets of pods and do-not-disrupt. Unset: without end.",
            pattern=_DURATION,
        ),
    }


def _conditions(reason: Schema, required: list[str]) -> Schema:
    item = words.object_of(
        "One aspect of the object's state.",
        {
            "type": words.text("Which aspect.", maxLength=316, pattern=_QUALIFIED),
            "status": words.text("Whether it holds.", enum=["True", "False", "Unknown"]),
            "reason": reason,
            "message": words.text("The details, for people.", maxLength=32768),
            "lastTransitionTime": words.time("When status changed last."),
            "observedGeneration": words.whole(
                "The generation of the object that was judged.", format="int64", minimum=0
            ),
        },
        required=required,
    )
    return words.list_of("The object's state, by aspect.", item, kind="map", **{"x-kubernetes-list-map-keys": ["type"]})


# --- NodePool ---------------------------------------------------------------------------------------------------------


def _nodepool_crd() -> Schema:
    schema = words.object_of(
        "A pool of nodes: what machines it may start, and how they may be disrupted.",
        _top_level(_nodepool_spec(), _nodepool_status()),
        required=["spec"],
    )
    columns = [
        _column("NodeClass", ".spec.template.spec.nodeClassRef.name"),
        _column("Nodes", ".status.nodes"),
        _column("Ready", _condition_path("Ready")),
        _column("Managed", rf".metadata.labels.{_escaped(names.MANAGE)}"),
        _column("Rolling", _condition_path(names.ROLLOUT_COMPLETE, "reason")),
        _column("Paused", rf".metadata.annotations.{_escaped(names.PAUSED)}"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Roll", _condition_path(names.ROLLOUT_COMPLETE, "message"), wide=True),
        _column("Weight", ".spec.weight", "integer", wide=True),
        _column("CPU", ".status.resources.cpu", wide=True),
        _column("Memory", ".status.resources.memory", wide=True),
    ]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
    return _definition("NodePool", columns, schema, {"status": {}, "scale": scale})


def _nodepool_spec() -> Schema:
    return words.object_of(
        "What the pool's nodes are and how many there may be.",
        {
            "template": _template(),
            "disruption": disruption(),
            "limits": words.quantities(
                "The most that all nodes of the pool may have together. A static pool: nodes only."
            ),
            "replicas": words.whole(
                "Makes the pool static: this many nodes, whatever the pods. Goes with neither weight nor limits other "
                "than nodes. Alpha.",
                format="int64",
                minimum=0,
            ),
            "weight": words.whole(
                "Pools of higher weight are tried first. Not for static pools.", format="int32", minimum=1, maximum=100
            ),
        },
        required=["template"],
        **words.rules(
            words.rule(
                "has(self.replicas) == has(oldSelf.replicas)",
                "a pool can't turn static or stop being so: make another pool to set or drop replicas",
            ),
            words.rule(
                "!has(self.replicas) || !has(self.limits) || size(self.limits) == 0 || "
                "(size(self.limits) == 1 && 'nodes' in self.limits)",
                "a static pool (replicas is set) may limit nodes only",
            ),
            words.rule(
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
        **words.rules(
            words.rule(f"self.all(x, {_own_domain('x')})", _DOMAIN_MESSAGE),
            words.rule(f"self.all(x, x != '{_POOL_LABEL}')", _POOL_LABEL_MESSAGE),
            words.rule(f"self.all(x, x != '{_HOSTNAME}')", _HOSTNAME_MESSAGE),
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
        words.rule("self.group == oldSelf.group", f"group {same}"),
        words.rule("self.kind == oldSelf.kind", f"kind {same}"),
    )
    spec = words.object_of(
        "What each NodeClaim of the pool starts from.",
        _node_spec(node_class, _requirements(words.rule(f"self != '{_POOL_LABEL}'", _POOL_LABEL_MESSAGE))),
        required=["nodeClassRef", "requirements"],
    )
    metadata = {"type": "object", "properties": {"labels": labels, "annotations": annotations}}
    return words.object_of(
        "What the pool's NodeClaims are made from.", {"metadata": metadata, "spec": spec}, required=["spec"]
    )


def _nodepool_status() -> Schema:
    reason = words.text(
        "Why, in one word.", minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
    )
    return words.object_of(
        "What was seen of the pool last.",
        {
            "conditions": _conditions(reason, ["lastTransitionTime", "message", "reason", "status", "type"]),
            "nodes": words.whole("How many nodes the pool has.", format="int64", default=0),
            "resources": words.quantities("What all nodes of the pool have together."),
            "nodeClassObservedGeneration": words.whole("The node class generation that was seen last.", format="int64"),
        },
    )


# --- NodeClaim --------------------------------------------------------------------------------------------------------


def _nodeclaim_crd() -> Schema:
    schema = words.object_of(
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
    requests = words.quantities("What the node must have room for at least.")
    resources = words.object_of("The size that is needed.", {"requests": requests})
    return words.object_of(
        "What node is wished for; it never changes.",
        _node_spec(_node_class_ref(), _requirements()) | {"resources": resources},
        required=["nodeClassRef", "requirements"],
        **words.rules(
            words.rule("self == oldSelf", "the spec of a NodeClaim never changes: delete it and make another")
        ),
    )


def _nodeclaim_status() -> Schema:
    reason = words.text("Why, in one word.", maxLength=1024, pattern="^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$")
    return words.object_of(
        "What was seen of the node last.",
        {
            "allocatable": words.quantities("What pods can have of it."),
            "capacity": words.quantities("All that the node has."),
            "conditions": _conditions(reason, ["lastTransitionTime", "status", "type"]),
            "imageID": words.text("The image that the node runs."),
            "lastPodEventTime": words.time(
                "When a pod was last added to the node or removed from it; one that ends or starts terminating "
                "counts as removed."
            ),
            "nodeName": words.text("The Node's name."),
            "providerID": words.text("The cloud's name for the machine."),
        },
    )


# --- the envelope -----------------------------------------------------------------------------------------------------


def _top_level(spec: Schema, status: Schema) -> Schema:
    return {
        "apiVersion": words.text("The version of this form, karpenter.sh/v1."),
        "kind": words.text("What this object is."),
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    return column | {"priority": 1} if wide else column


def _condition_path(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def _escaped(name: str) -> str:
    """Return the name of a label or annotation for a JSONPath."""
    return name.replace(".", r"\.")


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
