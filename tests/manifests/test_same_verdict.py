"""Validation at run time against the real API server, on objects that nobody wrote by hand."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.api.findings import Finding, Severity
from dovetail.api.manifests.validate import validate_manifest
from tests.support.control_plane import ControlPlane
from tests.support.crd_rules import KARPENTER_RULES, RULES, Manifest, claim, pool, template

OBJECTS = 1500
# What the API server lets pass and the controller can't use.
CONTROLLER_ONLY = (
    "is not a valid label value",
    "is not a valid label name",
    "is not a valid taint",
    "repeats the taint",
    "capacity types",
    "can last",
)

FULL_POOL = pool(
    disruption={
        "consolidateAfter": "1h",
        "expireAfter": "1d",
        "consolidationGracePeriod": "5m",
        "consolidationSavingsThreshold": 1,
        "budgets": [
            {
                "nodes": "5",
                "schedule": "@daily",
                "duration": "1h",
                "reasons": ["Drifted"],
                "topologyKey": "zone",
                "sequential": True,
            }
        ],
    },
    limits={"cpu": "5"},
    weight=5,
    template=template(
        taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}],
        startupTaints=[{"key": "b", "effect": "NoExecute"}],
        terminationGracePeriod="1h",
        requirements=[
            {"key": "a", "operator": "In", "values": ["a", "b"], "minValues": 2},
            {"key": "b", "operator": "Gt", "values": ["4"]},
        ],
    )
    | {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
)
FULL_CLAIM = claim(
    taints=[{"key": "a", "effect": "NoSchedule"}], resources={"requests": {"cpu": "1"}}, terminationGracePeriod="1h"
)
BASES = [rule.good for rule in RULES + KARPENTER_RULES] + [FULL_POOL] * 150 + [FULL_CLAIM] * 50

NUMBERS: tuple[Any, ...] = (5, -1, 0, 1, 1.0, 1.5, 51, 101, 2**70, 1e300)
TEXTS = (
    *("", "x", "X!", "a/b", "a/b/c", "a" * 64, "a" * 320, "5", "-1", "+5", "007", "10%", "101%"),
    *("karpenter.sh/x", "mykarpenter.sh/x", "kubernetes.io/hostname", "karpenter.sh/nodepool"),
    *("1h", "0s", "Never", "1d", "5m", "1h30m", "8h0m0s", "9" * 25 + "h", "@daily", "0 0 * * *", "0 24 * * *"),
    *("1Gi", "1e3", "1.5", "2026-03-14T15:30:00Z", "spot", "In", "Gt", "NotIn", "NoSchedule", "WhenEmpty"),
)
OTHERS: tuple[Any, ...] = (
    *(None, True, False, [], {}, [None], {"a": 1}, {"a": "b"}, ["a"], ["5"], ["-0"], ["+7"], ["a b"], [{"a": 1}], [[]]),
    *({"cpu": "1"}, {"cpu": 1.5}, {"cpu": "x"}, {"nodes": "3"}, ["Empty"], ["Empty", "Empty"], [5]),
)
VALUES = (*NUMBERS, *TEXTS, *OTHERS)
FIELDS = (
    *("nodes", "schedule", "duration", "reasons", "topologyKey", "sequential", "budgets", "consolidateAfter"),
    *(
        "key",
        "operator",
        "values",
        "minValues",
        "effect",
        "value",
        "timeAdded",
        "taints",
        "requirements",
        "expireAfter",
    ),
    *("labels", "annotations", "metadata", "weight", "replicas", "limits", "resources", "unknown", "group", "name"),
)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Return every container with every key of it."""
    keys = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from places(tree[key])


def mutated(rng: random.Random) -> Manifest:
    """Change a good object in one place or two."""
    tree = copy.deepcopy(rng.choice(BASES))
    spots = list(places(tree["spec"]))
    for _ in range(rng.randint(1, 2)):
        holder, key = rng.choice(spots)
        if key not in holder if isinstance(holder, dict) else key >= len(holder):
            continue
        value, chance = copy.deepcopy(rng.choice(VALUES)), rng.random()
        if chance < 0.15:
            del holder[key]
        elif chance < 0.25 and isinstance(holder[key], dict):
            holder[key][rng.choice(FIELDS)] = value
        elif chance < 0.35 and isinstance(holder[key], list):
            holder[key].append(value)
        else:
            holder[key] = value
    return tree


def is_expected(is_accepted: bool, findings: list[Finding]) -> bool:
    """Return whether both verdicts agree, or differ where they may."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if is_accepted:
        return all(any(words in finding.message for words in CONTROLLER_ONLY) for finding in errors)
    # Integers for nodes are read, and warned about (docs/rules.md#policy).
    return bool(errors) or any("refuses a number" in finding.message for finding in findings)


@pytest.mark.apiserver
def test_both_judges_agree_on_objects_at_random(api_server: ControlPlane) -> None:
    """Accepted by one, accepted by the other, but for what only the controller knows and for integers in `nodes`."""
    rng = random.Random(7)
    accepted, wrong = 0, []
    with api_server.client() as client:
        for _ in range(OBJECTS):
            tree = mutated(rng)
            status, answer = client.create(tree, dryRun="All")
            findings = list(validate_manifest(tree))
            accepted += status < 300
            if not is_expected(status < 300, findings):
                wrong.append((tree["spec"], answer.get("message"), [finding.line() for finding in findings]))
    assert wrong == []
    assert 100 < accepted < OBJECTS - 100
