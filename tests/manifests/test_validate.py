import copy
import csv
import gzip
import json
from typing import Any

import pytest

from dovetail.api.findings import Finding, Severity, has_errors
from dovetail.api.manifests.controller_rules import controller_findings
from dovetail.api.manifests.validate import validate_manifest
from dovetail.api.reading.documents import read_input, split_documents
from tests.paths import SHARED, needs_shared
from tests.support.crd_rules import (
    KARPENTER_RULES,
    RULES,
    SCHEDULES_GOOD,
    SCHEDULES_ODD,
    Rule,
    budget,
    disruption,
    pool,
    template,
    window,
)

ANNOTATION = "dovetail.dev/disruption"


def errors(tree: Any) -> list[Finding]:
    """Return the errors of a manifest."""
    return [finding for finding in validate_manifest(tree) if finding.severity is Severity.ERROR]


def warnings(tree: Any) -> list[str]:
    """Return the paths of the warnings of a manifest."""
    return [finding.path for finding in validate_manifest(tree) if finding.severity is Severity.WARNING]


@pytest.mark.parametrize("rule", RULES + KARPENTER_RULES, ids=lambda rule: rule.name)
def test_every_rule_has_the_verdict_of_the_crds(rule: Rule) -> None:
    """The object that keeps a rule passes; the one that breaks it is refused at the field that breaks it."""
    assert errors(rule.good) == []
    refused = errors(rule.bad)
    assert [finding.path for finding in refused if finding.path.startswith(rule.field)]
    assert all("\n" not in finding.line() for finding in refused)


def test_what_both_refuse_is_said_once() -> None:
    """An operator that does not exist is refused by the API server and by the controller: one finding."""
    wrong = {"key": "kubernetes.io/arch", "operator": "Inn", "values": ["amd64"]}
    tree = pool(template=template(requirements=[wrong]))
    assert [finding.path for finding in errors(tree)] == ["spec.template.spec.requirements[0].operator"]


@pytest.mark.parametrize("schedule", SCHEDULES_GOOD + SCHEDULES_ODD)
def test_schedules_that_cron_can_read_pass(schedule: str) -> None:
    """Every form that Karpenter's cron library reads is accepted."""
    assert errors(window(schedule)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_annotation_is_judged_like_the_spec(rule: Rule) -> None:
    """The same policy in the annotation gets the same verdict, at the same place in it."""

    def moved(manifest: dict[str, Any]) -> dict[str, Any]:
        tree = copy.deepcopy(manifest)
        policy = tree["spec"].pop("disruption")
        tree["metadata"]["annotations"] = {ANNOTATION: json.dumps(policy)}
        return tree

    assert errors(moved(rule.good)) == []
    place = rule.field.replace("spec.disruption", f"metadata.annotations[{ANNOTATION}]")
    assert [finding for finding in errors(moved(rule.bad)) if finding.path.startswith(place)]


@pytest.mark.parametrize("text", ["[1", "5", "", "a: 1\n---\nb: 2", "budgets: []\nbudgets: []", "*x"])
def test_an_annotation_that_is_no_map_is_an_error(text: str) -> None:
    """What can't be read as one map is refused."""
    tree = pool()
    tree["metadata"]["annotations"] = {ANNOTATION: text}
    assert [finding.path for finding in errors(tree)] == [f"metadata.annotations[{ANNOTATION}]"]


def test_a_number_for_nodes_is_a_warning() -> None:
    """A file with an integer is read; the warning says what to write."""
    tree = budget(nodes=5)
    assert errors(tree) == []
    (finding,) = validate_manifest(tree)
    assert (finding.path, finding.remedy) == ("spec.disruption.budgets[0].nodes", 'write "5"')
    assert errors(budget(nodes=-5))
    assert errors(budget(nodes=True))
    assert errors(budget(nodes=1.5))


def test_an_unknown_field_is_a_warning_that_names_the_nearest() -> None:
    """The API server would drop it; a typo is told."""
    (finding,) = validate_manifest(disruption(consolidateAftr="30s"))
    assert finding.severity is Severity.WARNING
    assert finding.remedy == "did you mean consolidateAfter?"


def test_a_topology_budget_that_leaves_out_drifted_is_a_warning() -> None:
    """It does nothing (docs/rules.md#budgets)."""
    path = "spec.disruption.budgets[0].reasons"
    assert warnings(budget(nodes="1", topologyKey="zone", reasons=["Empty"])) == [path]
    assert warnings(budget(nodes="1", topologyKey="zone", reasons=["Drifted"])) == []
    assert warnings(budget(nodes="1", topologyKey="zone")) == []


def test_an_empty_topology_key_is_none() -> None:
    """It is the same as a budget without one: flat, and nothing to go by in sequence."""
    assert validate_manifest(budget(nodes="1", topologyKey="", reasons=["Empty"])) == ()
    (finding,) = validate_manifest(budget(nodes="1", topologyKey="", sequential=True))
    assert "'sequential' requires 'topologyKey'" in finding.sentence()


@pytest.mark.parametrize(
    ("graceful", "forceful", "is_late"),
    [
        ("719h", None, False),
        ("30d", None, True),
        ("30d", "Never", False),
        ("24h", "24h", True),
        ("23h", "24h", False),
        ("Never", "24h", False),
    ],
)
def test_graceful_expiry_must_come_before_the_forceful_one(graceful: str, forceful: str | None, is_late: bool) -> None:
    """A warning says where Karpenter's own expiry comes first (docs/rules.md#karpenter)."""
    inner = {} if forceful is None else {"expireAfter": forceful}
    tree = pool(template=template(**inner), disruption={"expireAfter": graceful})
    assert (warnings(tree) == ["spec.disruption.expireAfter"]) is is_late


def test_an_unknown_time_zone_is_an_error() -> None:
    """The API server can't know; the controller does."""
    (finding,) = errors(window("TZ=Europe/Atlantis 0 9 * * *"))
    assert finding.path == "spec.disruption.budgets[0].schedule"


def test_a_window_of_no_length_is_a_warning() -> None:
    """It is accepted and never active."""
    assert warnings(window("@daily", "0h")) == ["spec.disruption.budgets[0].duration"]


@pytest.mark.parametrize(
    "tree",
    [
        None,
        5,
        [],
        {},
        {"kind": "Pod"},
        {"kind": "NodePool", "apiVersion": "karpenter.sh/v2"},
        {"kind": "NodePool", "apiVersion": "karpenter.sh/v1", "metadata": {"name": "p"}},
        {"kind": "NodePool", "apiVersion": "karpenter.sh/v1", "metadata": {"name": "p"}, "spec": None},
        {"kind": "NodePool", "apiVersion": "karpenter.sh/v1", "metadata": [], "spec": []},
        pool() | {"metadata": {}},
        pool() | {"metadata": {"name": "Upper"}},
        pool() | {"metadata": {"name": "p", "labels": {"a": 5}}},
        pool() | {"metadata": {"name": "p", "labels": {"a b": "c"}}},
        pool(template=template(requirements=[None])),
        pool(template=template(taints=["x"])),
        pool(template=template(nodeClassRef="x")),
        pool(template=template() | {"metadata": {"labels": {"a": "b c"}}}),
        pool(template=template() | {"metadata": {"labels": [1]}}),
        pool(limits={"cpu": 1.5}),
        pool(weight=True),
        pool(template=template(taints=[{"key": "a", "effect": "NoSchedule"}] * 2)),
        disruption(consolidationSavingsThreshold=float("inf")),
        disruption(budgets=[None]),
        disruption(budgets=["10%"]),
        disruption(expireAfter="9" * 5000 + "h"),
    ],
)
def test_what_is_wrong_altogether_is_refused(tree: Any) -> None:
    """Wrong types and missing parts, at any depth, are findings and never a crash."""
    assert has_errors(validate_manifest(tree))


def test_nulls_are_as_if_not_there() -> None:
    """The API server drops them, but for what is required."""
    assert errors(pool(disruption={"budgets": None, "consolidateAfter": None}, limits=None)) == []
    assert errors(pool(template=None))


def test_v1beta1_is_read_as_v1_with_a_warning() -> None:
    """Only a name was required of a class reference then."""
    tree = pool(template=template(nodeClassRef={"name": "default"})) | {"apiVersion": "karpenter.sh/v1beta1"}
    tree["spec"]["disruption"] = {"consolidationPolicy": "WhenUnderutilized"}
    assert errors(tree) == []
    assert warnings(tree) == ["apiVersion"]
    assert errors(tree | {"apiVersion": "karpenter.sh/v1"})


@needs_shared
def test_real_manifests_get_karpenters_verdict() -> None:
    """Karpenter's own valid manifests pass, its invalid ones are refused."""
    wrong = []
    with (SHARED / "manifests" / "index.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["kind"] in ("NodePool", "NodeClaim")]
    for row in rows:
        for document in split_documents(read_input(SHARED / "manifests" / row["file"])):
            refused = has_errors(validate_manifest(document.as_tree()))
            if row["expect"] in ("accept", "accept-or-warn", "reject") and refused != (row["expect"] == "reject"):
                wrong.append(row["file"])
    assert len(rows) > 50
    assert wrong == []


@needs_shared
def test_the_controller_refuses_what_karpenters_does() -> None:
    """The answers of Karpenter's own run-time validation are reproduced."""
    units = json.loads(gzip.decompress((SHARED / "golden" / "units.json.gz").read_bytes()))
    asked = [unit for unit in units if unit["question"]["kind"] == "validateNodePool"]
    assert asked
    for unit in asked:
        findings = tuple(controller_findings(unit["question"]["nodePool"]["spec"]["template"]))
        assert has_errors(findings) is not unit["answer"]["ok"], unit["question"]["id"]
