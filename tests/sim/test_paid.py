"""A simulated cluster is billed as a round is: by commitments, discounts and surcharges, to the last digit."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.findings import InputError
from dovetail.api.settings import settings_of
from dovetail.cli.main import main
from dovetail.model.money import UNIT
from dovetail.model.settings import DOVETAIL
from dovetail.recordings.read import ClaimLife, ClusterRecording
from dovetail.sim.compare import billed_alike
from dovetail.sim.ledger import Result
from dovetail.sim.recorded_bill import recorded_cost
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Scenario, ScenarioError, parse_scenario
from dovetail.sim.scenarios.simulated_cloud import catalogue_of

SCENARIO = """
name: paid
until: 2h
warmUp: 1m
zones: [zone-a]
catalogue:
  - {name: m5.large, cpu: 2, memory: 8Gi, price: 0.096, pods: 29}
  - {name: m5.xlarge, cpu: 4, memory: 16Gi, price: 0.192, pods: 58}
cloud: {shutdown: 5s}
prices:
  commitments:
    - {name: ri, kind: ReservedInstances, instanceTypes: [m5.large], count: 2, rates: {m5.large: 0.06}}
    - {name: everything, kind: SavingsPlan, hourly: 0.10, rates: "50%"}
pools:
  - name: default
    disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m, budgets: [{nodes: "5"}]}
nodes:
  - {pool: default, type: m5.large, count: 3}
  - {pool: default, type: m5.xlarge, count: 1}
workloads:
  - {name: large, replicas: 3, cpu: 1500m, nodeSelector: {node.kubernetes.io/instance-type: m5.large}}
  - {name: xlarge, replicas: 1, cpu: 3000m, nodeSelector: {node.kubernetes.io/instance-type: m5.xlarge}}
steps:
  - {at: 1h, scale: {large: 2}}
policies:
  karpenter-1.15: {profile: karpenter-1.15}
  dovetail: {}
"""

# By hand, dollars an hour. The reservations cost 2 x 0.06 and the plan 0.10, whatever runs.
#   3 m5.large, 1 m5.xlarge: two m5.large reserved; the plan covers the third for 0.048 (the lowest rate first) and
#   with the other 0.052 of 0.096 a share of 0.541666 of the m5.xlarge; the rest of it costs 0.458333 x 0.192 = 0.088.
BEFORE = 0.12 + 0.10 + 0.088
#   2 m5.large, 1 m5.xlarge: both reserved; the plan covers the m5.xlarge for 0.096.
AFTER = 0.12 + 0.10


def _run(scenario: Scenario, policy: str) -> Result:
    return run_scenario(scenario, scenario.policy(policy))


@pytest.mark.parametrize("policy", ["karpenter-1.15", "dovetail"])
def test_the_bill_of_a_simulated_cluster_is_the_table_made_by_hand(policy: str) -> None:
    """Each policy is billed by the commitments of the world, whatever its own settings know."""
    result = _run(parse_scenario(SCENARIO, "paid"), policy)
    (end,) = [life.ended for life in result.lives if life.ended is not None]
    assert 3600 < end < 4200
    assert result.violations == ()
    wanted = (BEFORE * end + AFTER * (7200 - end)) / 3600
    assert result.cost / UNIT == pytest.approx(wanted, abs=1e-6)
    assert result.series.cost_per_hour[0] == pytest.approx(BEFORE, abs=1e-6)
    assert result.series.cost_per_hour[-1] == pytest.approx(AFTER, abs=1e-6)


def test_discounts_and_surcharges_are_billed_too() -> None:
    """A discount is off on-demand prices of the pool's cloud, and a surcharge comes on top for its NodeClass."""
    scenario = parse_scenario(SCENARIO, "paid")
    words = {"surcharge": [{"nodeClassKind": "SimNodeClass", "percent": 12}], "discount": {"aws": "20%"}}
    tariff = settings_of(words, DOVETAIL).tariff
    result = run_scenario(replace(scenario, tariff=tariff), scenario.policy("karpenter-1.15"), until=600 * 10**9)
    assert result.cost / UNIT == pytest.approx((3 * 0.096 + 0.192) * 0.8 * 1.12 / 6, abs=1e-6)


def test_policies_that_name_commitments_bill_all_others_by_them() -> None:
    """A bill under commitments is not compared with one without; different ones are refused."""
    scenario = replace(parse_scenario(SCENARIO, "paid"), tariff=None)
    karpenter, dovetail = scenario.policies
    words = {"commitments": [{"name": "p", "kind": "SavingsPlan", "hourly": 1, "rates": "10%"}]}
    committed = replace(dovetail, settings=settings_of(words, DOVETAIL))
    assert billed_alike(scenario, [karpenter, committed]).tariff == committed.settings.tariff
    assert billed_alike(scenario, [karpenter, dovetail]).tariff is None
    other = replace(dovetail, name="other", settings=settings_of({"discount": {"aws": "5%"}}, DOVETAIL))
    with pytest.raises(InputError, match="policies dovetail and other name different commitments"):
        billed_alike(scenario, [karpenter, committed, other])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("  commitment: []", r"prices\.commitment: there is no such key; write one of: commitments, discount"),
        ("  discount: {aws: 20}", r"prices: discount\.aws is 20"),
    ],
)
def test_mistakes_in_the_prices_of_a_scenario(line: str, problem: str) -> None:
    """A sentence names the key."""
    begin, end = SCENARIO.index("  commitments:"), SCENARIO.index("pools:")
    with pytest.raises(ScenarioError, match=problem):
        parse_scenario(SCENARIO[:begin] + line + "\n" + SCENARIO[end:], "paid")


def test_whatif_bills_every_column_by_the_settings(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reservations for everything make all columns free, Karpenter's too, and the calibration compares such bills."""
    monkeypatch.setattr("dovetail.sim.compare.cores", lambda: 1)
    capture, settings = tmp_path / "cluster.json", tmp_path / "settings.yaml"
    capture.write_text(json.dumps(_captured("m5.large")))
    settings.write_text("commitments: [{name: ri, kind: ReservedInstances, instanceTypes: [m5.large], count: 9}]")
    words = ["-f", str(capture), "--catalog", "aws:us-east-1", "--partial", "--for", "10m", "--seeds", "1"]
    words += ["--set", "consolidateAfter=5m", "-o", "json"]
    assert main(["whatif", *words]) == 0
    listed = json.loads(capsysbinary.readouterr().out)
    assert main(["whatif", *words, "--settings", str(settings)]) == 0
    paid = json.loads(capsysbinary.readouterr().out)
    for column in ("baseline", "karpenter", "changed"):
        assert float(listed[column]["cost"]) > 0.01
        assert float(paid[column]["cost"]) == 0
    assert listed["calibration"]["real"] == {"costPerHour": 0.096}
    assert paid["calibration"]["real"] == {"costPerHour": 0.0}
    assert paid["settings"]["commitments"]
    assert listed["today"] == paid["today"] == "karpenter-1.15"


def _captured(kind: str) -> dict[str, Any]:
    labels = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": "us-east-1a",
        "topology.kubernetes.io/region": "us-east-1",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    meta = {"name": "n", "uid": "u", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    room = {"cpu": "1930m", "memory": "7Gi", "pods": "29"}
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]
    done = [{**ready[0], "type": name} for name in ("Launched", "Registered", "Initialized")]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    wanted = ("node.kubernetes.io/instance-type", "karpenter.sh/capacity-type")
    needs = [{"key": key, "operator": "In", "values": [labels[key]]} for key in wanted]
    spec = {"nodeClassRef": reference, "requirements": needs}
    pool = {"template": {"spec": spec}, "disruption": {"consolidateAfter": "1m", "budgets": [{"nodes": "1"}]}}
    box = {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w", "controller": True}
    claim = {"providerID": "aws:///us-east-1a/i-1", "nodeName": "n", "capacity": room, "conditions": done}
    items = [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": pool},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta, "spec": spec, "status": claim},
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {**meta, "labels": {**labels, "karpenter.sh/initialized": "true"}},
            "spec": {"providerID": "aws:///us-east-1a/i-1"},
            "status": {"capacity": room, "allocatable": room, "conditions": ready},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "ownerReferences": [owner]},
            "spec": {"nodeName": "n", "containers": [box]},
            "status": {"phase": "Running"},
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.mark.parametrize("reserved", [0, 1, 2, 3])
def test_what_a_recording_really_cost(reserved: int) -> None:
    """One machine for two hours, one for the first of them, a third for a second, at $1: billed stretch by stretch."""
    begins = datetime(2026, 1, 5, tzinfo=UTC)
    half, ends = begins + timedelta(hours=1), begins + timedelta(hours=2)
    lives = [("a", begins, half), ("b", begins, None), ("c", half - timedelta(seconds=1), half)]
    recording = ClusterRecording(
        begins=begins,
        ends=ends,
        claims=tuple(
            ClaimLife(name=name, instance_type="m", zone="zone-a", capacity_type="on-demand", launched=came, gone=gone)
            for name, came, gone in lives
        ),
    )
    words = [{"name": "ri", "kind": "ReservedInstances", "instanceTypes": ["m"], "count": reserved}]
    tariff = settings_of({"commitments": words}, DOVETAIL).tariff
    catalogue = catalogue_of(parse_scenario(SCENARIO.replace("m5.large", "m").replace("0.096", "1"), "paid"))
    short = 1 / 3600  # c ran for a second beside both
    by_hand = {0: 3 + short, 1: 1 + short, 2: short, 3: 0.0}
    assert recorded_cost(recording, catalogue, tariff) == pytest.approx(by_hand[reserved])
    assert recorded_cost(recording, catalogue, DOVETAIL.tariff) is None
