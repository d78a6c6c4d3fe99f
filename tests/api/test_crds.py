"""Dovetail's CRDs on a real API server."""

import csv
import json
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from dovetail.api.crds.definitions import crds, crds_yaml
from tests.paths import SHARED, needs_shared
from tests.support.control_plane import Client, ControlPlane, eventually
from tests.support.crd_rules import (
    KARPENTER_RULES,
    RULES,
    SCHEDULES_BAD,
    SCHEDULES_GOOD,
    SCHEDULES_ODD,
    Manifest,
    Rule,
    budget,
    claim,
    disruption,
    pool,
    template,
    window,
)

MANIFESTS = SHARED / "manifests"


@pytest.fixture(scope="module")
def client(api_server: ControlPlane) -> Iterator[Client]:
    """Build one client for the module."""
    with api_server.client() as made:
        yield made


def judge(client: Client, manifest: Manifest) -> tuple[int, str]:
    """Return the server's answer to a dry run of an object."""
    status, answer = client.create(manifest, dryRun="All")
    return status, answer.get("message", "") if status >= 300 else ""


@pytest.mark.parametrize("rule", RULES + KARPENTER_RULES, ids=lambda rule: rule.name)
def test_a_rule_accepts_what_keeps_it_and_refuses_what_breaks_it(client: Client, rule: Rule) -> None:
    """The server accepts the good object of each rule, and names the field in its refusal of the bad one."""
    assert judge(client, rule.good) == (201, "")
    status, message = judge(client, rule.bad)
    assert status == 422
    assert rule.field in message


@pytest.mark.parametrize("schedule", SCHEDULES_GOOD + SCHEDULES_ODD)
def test_a_schedule_that_cron_reads_is_accepted(client: Client, schedule: str) -> None:
    """Whatever Karpenter's cron library reads is accepted, with a time zone in front too."""
    assert judge(client, window(schedule)) == (201, "")


@pytest.mark.parametrize("schedule", SCHEDULES_BAD)
def test_the_refusal_of_a_schedule_says_what_to_write(client: Client, schedule: str) -> None:
    """A schedule is refused in words, not by a pattern alone."""
    _, message = judge(client, window(schedule))
    assert "must" in message
    assert "such as" in message
    assert "self.matches" not in message


def test_fifty_long_budgets_stay_within_the_cost_of_cel(client: Client) -> None:
    """The largest policy that the schema lets through is judged, not refused for what it costs."""
    minutes = ",".join(str(n) for n in range(60))
    hours = ",".join(str(n) for n in range(24))
    days = ",".join(str(n) for n in range(1, 32))
    months = "jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec"
    schedule = f"TZ=America/Argentina/ComodRivadavia {minutes} {hours} {days} {months} sun,mon,tue,wed,thu,fri,sat"
    key = "a." * 126 + "a/zone"
    one = {"nodes": "5", "schedule": schedule, "duration": "1h", "topologyKey": key, "sequential": True}
    assert judge(client, disruption(budgets=[dict(one) for _ in range(50)])) == (201, "")


def test_defaults_of_the_disruption_policy(client: Client) -> None:
    """A pool without a policy gets the defaults of docs/rules.md#policy, 15s among them."""
    _, stored = client.create(pool(), dryRun="All")
    assert stored["spec"]["disruption"] == {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "15s",
        "consolidationSavingsThreshold": 0.01,
        "budgets": [{"nodes": "10%"}],
    }
    assert stored["spec"]["template"]["spec"]["expireAfter"] == "720h"


def test_an_object_that_holds_0s_keeps_it(client: Client) -> None:
    """A stored value 0s from Karpenter's default is kept."""
    _, stored = client.create(disruption(consolidateAfter="0s"), dryRun="All")
    assert stored["spec"]["disruption"]["consolidateAfter"] == "0s"


def test_a_budget_without_nodes_gets_a_tenth(client: Client) -> None:
    """The nodes of a budget default to 10%."""
    _, stored = client.create(budget(reasons=["Drifted"]), dryRun="All")
    assert stored["spec"]["disruption"]["budgets"] == [{"nodes": "10%", "reasons": ["Drifted"]}]


def test_sequential_is_refused_in_the_words_of_the_design(client: Client) -> None:
    """The message is the one of topology-budgets, Validation."""
    for written in ({"sequential": True}, {"sequential": True, "topologyKey": ""}):
        status, message = judge(client, budget(nodes="1", **written))
        assert status == 422
        assert "'sequential' requires 'topologyKey'" in message


def test_an_integer_for_nodes_is_refused(client: Client) -> None:
    """Karpenter's own type is a string, so an integer must not be stored."""
    status, message = judge(client, budget(nodes=5))
    assert status == 422
    assert "spec.disruption.budgets[0].nodes" in message


def test_every_new_field_is_stored(client: Client) -> None:
    """No field of the disruption policy is pruned, under strict validation too."""
    policy = {
        "consolidationPolicy": "Balanced",
        "consolidateAfter": "30s",
        "expireAfter": "30d",
        "consolidationGracePeriod": "1h",
        "consolidationSavingsThreshold": 0.05,
        "budgets": [
            {"nodes": "1", "reasons": ["Drifted"], "topologyKey": "topology.kubernetes.io/zone", "sequential": True},
            {"nodes": "0", "schedule": "TZ=Europe/Berlin 0 9 * * mon-fri", "duration": "8h0m0s"},
        ],
    }
    status, stored = client.create(disruption(**policy), dryRun="All", fieldValidation="Strict")
    assert status == 201
    assert stored["spec"]["disruption"] == policy


def test_a_field_that_nobody_knows_is_refused_under_strict_reading(client: Client) -> None:
    """Strict validation refuses an unknown field."""
    status, answer = client.create(disruption(consolidateAfterwards="1m"), dryRun="All", fieldValidation="Strict")
    assert status == 400
    assert "consolidateAfterwards" in answer["message"]


def test_a_pool_cannot_turn_static(client: Client) -> None:
    """Setting replicas later, or another kind of node class, is refused."""
    manifest = pool(replicas=1)
    manifest["metadata"]["name"] = "stays-static"
    client.apply(manifest)
    other = template(nodeClassRef={"group": "karpenter.test", "kind": "OtherNodeClass", "name": "default"})
    for change in ({"replicas": None}, {"template": other}):
        status, _ = client.request(
            "PATCH", client.path_of(manifest), {"spec": change}, kind="application/merge-patch+json"
        )
        assert status == 422
    client.delete(manifest)


def test_the_scale_subresource_sets_replicas(client: Client) -> None:
    """A static pool can be scaled as a Deployment can."""
    manifest = pool(replicas=1)
    manifest["metadata"]["name"] = "scales"
    client.apply(manifest)
    scale = {"spec": {"replicas": 3}}
    path = client.path_of(manifest)
    assert client.request("PATCH", f"{path}/scale", scale, kind="application/merge-patch+json")[0] == 200
    assert client.request("GET", path)[1]["spec"]["replicas"] == 3
    client.delete(manifest)


def test_the_spec_of_a_claim_never_changes_and_its_status_holds_pod_events(client: Client) -> None:
    """A NodeClaim's spec is fixed; its status takes lastPodEventTime and conditions through its own door."""
    manifest = claim()
    manifest["metadata"]["name"] = "keeps-its-spec"
    client.apply(manifest)
    path = client.path_of(manifest)
    kind = "application/merge-patch+json"
    assert client.request("PATCH", path, {"spec": {"expireAfter": "1h"}}, kind=kind)[0] == 422
    status = {
        "lastPodEventTime": "2026-01-02T03:04:05Z",
        "nodeName": "node-1",
        "conditions": [{"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
    }
    code, stored = client.request("PATCH", f"{path}/status", {"status": status}, kind=kind)
    assert code == 200
    assert stored["status"] == status
    client.delete(manifest)


def test_an_object_of_an_older_crd_can_still_be_changed(new_api_server: Callable[..., ControlPlane]) -> None:
    """A schedule from an older CRD does not block other changes of the pool."""
    older = crds()
    properties = older[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    budgets = properties["disruption"]["properties"]["budgets"]
    del budgets["items"]["properties"]["schedule"]["x-kubernetes-validations"]
    with new_api_server(install=False).client() as client:
        client.install_crds(older)
        stored = window("@dailyXYZ")
        assert client.create(stored)[0] == 201
        client.install_crds(crds())
        other = window("@dailyXYZ")
        other["metadata"]["name"] = "other"
        eventually(lambda: client.create(other, dryRun="All")[0] == 422)
        patch = client.request(
            "PATCH", client.path_of(stored), {"spec": {"weight": 7}}, kind="application/merge-patch+json"
        )
        assert patch[0] == 200


def _rows(*statuses: str) -> list[Any]:
    if not MANIFESTS.is_dir():
        return []
    with (MANIFESTS / "index.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["apiVersion"] == "karpenter.sh/v1"]
    kept = [row for row in rows if row["kind"] in ("NodePool", "NodeClaim") and row["status"] in statuses]
    return [pytest.param(row, id=row["file"]) for row in kept]


def _load(row: dict[str, str]) -> Manifest:
    manifest: Manifest = yaml.safe_load((MANIFESTS / row["file"]).read_text())
    return manifest


@needs_shared
@pytest.mark.parametrize("row", _rows("valid", "valid-unknown-fields"))
def test_manifests_that_karpenter_accepts_are_accepted(client: Client, row: dict[str, str]) -> None:
    """Real manifests that are valid for Karpenter v1.15 are valid here."""
    assert judge(client, _load(row)) == (201, "")


@needs_shared
@pytest.mark.parametrize("row", _rows("invalid", "partial"))
def test_manifests_that_karpenter_refuses_are_refused(client: Client, row: dict[str, str]) -> None:
    """Real manifests that Karpenter's schema refuses are refused here, but for a status, which creation drops."""
    status, _ = judge(client, _load(row))
    only_status = all(error.startswith("status.") for error in row["errors"].split(" || "))
    assert status == (201 if only_status else 422)


def test_kubectl_reads_the_server_and_applies_what_we_print(api_server: ControlPlane) -> None:
    """The printed YAML goes through kubectl, which can parse the server's version."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl")
    base = [kubectl, f"--kubeconfig={api_server.kubeconfig}", f"--cache-dir={api_server.folder / 'kubectl'}"]
    version = subprocess.run([*base, "version", "-o", "json"], capture_output=True, text=True, check=True)
    assert json.loads(version.stdout)["serverVersion"]["gitVersion"] == "v1.36.3"
    done = subprocess.run(
        [*base, "apply", "--server-side", "--force-conflicts", "-f", "-"],
        input=crds_yaml(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_columns_say_who_manages_a_pool_and_what_happens_to_it(api_server: ControlPlane, client: Client) -> None:
    """What `kubectl get nodepools` prints has the columns Managed, Rolling and Paused; -o wide how far a roll is."""
    tree = pool()
    annotations = {"dovetail.dev/paused": "2031-01-01T00:00:00Z"}
    tree["metadata"] = {"name": "columns", "labels": {"dovetail.dev/manage": "true"}, "annotations": annotations}
    client.apply(tree)
    condition = {
        "type": "dovetail.dev/RolloutComplete",
        "status": "False",
        "reason": "Requested",
        "message": "1 of 3 nodes replaced (request)",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = client.path_of(tree)
    change = {"status": {"conditions": [condition]}}
    assert client.request("PATCH", f"{path}/status", change, kind="application/merge-patch+json")[0] == 200
    request = urllib.request.Request(
        f"{api_server.base_url}{path}",
        headers={
            "Authorization": f"Bearer {api_server.token}",
            "Accept": "application/json;as=Table;g=meta.k8s.io;v=v1",
        },
    )
    trusted = ssl.create_default_context(cafile=str(api_server.ca_path))
    with urllib.request.urlopen(request, context=trusted) as answer:
        table = json.load(answer)
    names = [column["name"] for column in table["columnDefinitions"]]
    shown = dict(zip(names, table["rows"][0]["cells"], strict=True))
    found = [shown[name] for name in ("Managed", "Rolling", "Paused", "Roll")]
    assert found == ["true", "Requested", "2031-01-01T00:00:00Z", "1 of 3 nodes replaced (request)"]
    client.delete(tree)


def test_the_server_has_no_complaint_about_the_crds(client: Client) -> None:
    """No condition of the stored CRDs says that their schema is not structural."""
    for crd in crds():
        stored = client.get(crd)
        assert stored is not None
        conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
        assert conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions
