"""Text that somebody may put into a name, a label or an annotation to break what shows it."""

import json
import unicodedata
from typing import Any

HOSTILE = {
    "control": "a\x1b[2J\x1b]0;owned\x07\r\x08\x00b",
    "line": 'ok\n{"level":"error","message":"forged"}\n',
    "separators": "a\u2028b\u2029c\x85d",
    "right-to-left": "a\u202egnp.exe\u2066b\u2069\u200f\u061c",
    "invisible": "a\u200b\u200d\ufeff\u2060\U000e0041b",
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><b>",
    "template": "{{7*7}}${7*7}%s%n{0}{message}",
    "query": 'x"} 1\nforged_metric{a="b',
    "slack": "<!channel> <@U1> <https://evil.invalid|here> @everyone",
    "shell": "$(reboot); `reboot` && reboot | tee ../../etc/passwd",
    "long": "n" * 253,
    "very long": "<" * 5000,
    "wide": "節" * 1500,
    "other": "naïve-節点-🦊",
}
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def unsafe_in(text: str, allowed: str = "\n") -> list[str]:
    """Return the characters that could break a line, move a cursor or turn the reading direction."""
    return [f"U+{ord(char):04X}" for char in text if char not in allowed and unicodedata.category(char) in _UNSAFE]


def hostile_cluster(text: str) -> dict[str, Any]:
    """Return a small cluster in which every name, label and annotation is that text."""
    stamp = "2026-03-14T15:00:00Z"
    meta = {"name": text, "uid": "u", "creationTimestamp": stamp, "annotations": {"dovetail.dev/disruption": text}}
    labels = {
        "karpenter.sh/nodepool": text,
        "node.kubernetes.io/instance-type": text,
        "topology.kubernetes.io/zone": text,
        "topology.kubernetes.io/region": text,
        "karpenter.sh/capacity-type": text,
        text: text,
    }
    ready = [{"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in ("Ready", "Initialized")]
    pool_spec = {
        "template": {"spec": {"nodeClassRef": {"group": "g", "kind": text, "name": text}, "requirements": []}},
        "disruption": {"budgets": [{"nodes": text, "reasons": [text], "schedule": text, "duration": text}]},
    }
    pod = {
        "metadata": {
            **meta,
            "namespace": text,
            "labels": {text: text},
            "annotations": {"karpenter.sh/do-not-disrupt": "true", "karpenter.sh/disruption-cost": text, text: text},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": text, "uid": "r"}],
        },
        "spec": {"nodeName": text, "containers": [{"name": text, "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running", "startTime": stamp},
    }
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    items = [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta, "spec": pool_spec},
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {**meta, "labels": labels},
            "spec": {"nodeClassRef": {"group": "g", "kind": "k", "name": text}, "requirements": []},
            "status": {"nodeName": text, "providerID": text, "conditions": ready},
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {**meta, "labels": labels},
            "spec": {"providerID": text},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready},
        },
        {"apiVersion": "v1", "kind": "Pod", **pod},
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {**meta, "namespace": text},
            "spec": {"selector": {"matchLabels": {text: text}}, "minAvailable": 1},
            "status": {"disruptionsAllowed": 0},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def as_file(text: str) -> bytes:
    """Return the cluster as kubectl would print it."""
    return json.dumps(hostile_cluster(text), ensure_ascii=False).encode("utf-8", "surrogatepass")
