"""`plan` and `explain` show the same verdict and sentence for a node."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.decide import verdict
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.plan.explaining.counterfactual import ask
from tests.support.design_world import Town, kind
from tests.support.towns import build, shapes

often = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
nails = st.lists(st.sampled_from(["", "", "own", "nowhere"]), min_size=28, max_size=28)


def explained(town: Town, profile: Settings) -> list[tuple[str, str, str]]:
    """Return the output of `explain` for every node."""
    world = Question(cluster=town.cluster, catalogue=town.catalogue, settings=profile, now=town.now)
    found = []
    for node in sorted(town.nodes):
        answer = ask(world, node)
        assert answer is not None
        gate = "eligible" if answer.eligible else answer.last.gate.value
        found.append((node, gate, "" if answer.eligible else answer.last.why))
    return found


@often
@given(shapes, nails)
def test_plan_and_explain_name_the_same_gate(shape: dict[str, Any], bound: list[str]) -> None:
    """For any number of blockers, both name the same first closed gate in the same words."""
    town = build(shape)
    for place, (name, pod) in enumerate(sorted(town.pods.items())):
        if pod.spec.node_name and bound[place % len(bound)]:
            host = pod.spec.node_name if bound[place % len(bound)] == "own" else "nowhere"
            town.pod(name, pod.spec.node_name, cpu="1500m", spec={"nodeSelector": {names.HOSTNAME: host}})
    for profile in (DOVETAIL, KARPENTER_1_15):
        town.settings = profile
        told = [
            (entry.node, entry.verdict, "" if entry.verdict == "eligible" else entry.why)
            for entry in town.round().verdicts
        ]
        assert told == explained(town, profile)


def test_what_could_not_pay_anyhow_is_simulated_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that fits nowhere is reported before a price that is too high, except in a large cluster."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidationSavingsThreshold": 1})
    town.node("n", "m")
    town.pod("p", "n", spec={"nodeSelector": {names.HOSTNAME: "n"}})
    assert town.verdicts() == {"n": "simulation"}
    monkeypatch.setattr(verdict, "FIRST_GATE_PODS_MAX", 0)
    assert town.verdicts() == {"n": "price"}
