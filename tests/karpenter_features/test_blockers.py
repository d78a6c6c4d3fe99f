"""`dovetail blockers` names resource claims and CapacityBuffers, with the savings that each blocks."""

import pytest

from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.money import parse_money
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.plan.blocking.blockers import find_blockers
from tests.karpenter_features.world import buffer, told
from tests.support.design_world import Town, kind


def _question(town: Town) -> Question:
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


CLAIMS = {
    "of the pod": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    "of a container": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}, "claims": [{"name": "gpu"}]}}]
    },
}


@pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter"])
@pytest.mark.parametrize("shape", CLAIMS)
def test_resource_claims_are_a_blocker(shape: str, settings: Settings) -> None:
    """The workload is named, with the savings of its node if its pod could move."""
    town = Town(kind("m", "0.20", cpu=4), settings=settings)
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    ready = {"type": "Consolidatable", "status": "True"}
    town.node("held", "m", conditions=[ready])
    town.pod("train", "held", cpu="500m", spec=CLAIMS[shape])
    town.node("room", "m", conditions=[ready])
    town.pod("stays", "room", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[])
    found = {(entry.gate, entry.name): entry for entry in find_blockers(_question(town))}
    entry = next(entry for (gate, _), entry in found.items() if gate == "dynamic-resources")
    assert (entry.nodes, entry.alone, entry.example) == (1, 1, "held")
    assert entry.savings == parse_money("0.20")
    assert "default/train" in entry.why
    assert "devices" in entry.remedy


def test_each_capacity_buffer_is_a_blocker() -> None:
    """Each of two buffers on a node of its own is worth its node; without buffers there is no blocker."""
    town = Town(kind("m", "0.20", cpu=4), settings=told(featureGates="CapacityBuffer=true"))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name in ("one", "two"):
        town.node(name, "m", conditions=[{"type": "Consolidatable", "status": "True"}])
    assert "capacity-buffer" not in {entry.gate for entry in find_blockers(_question(town))}
    for name in ("small", "large"):
        town.others += buffer(name, cpu="3", replicas=1)
    found = {entry.name: entry for entry in find_blockers(_question(town)) if entry.gate == "capacity-buffer"}
    assert sorted(found) == ["default/large", "default/small"]
    for entry in found.values():
        assert entry.kind == "CapacityBuffer"
        assert (entry.nodes, entry.savings) == (1, parse_money("0.20"))
        assert "smaller" in entry.remedy
