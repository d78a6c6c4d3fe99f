"""`plan` shows its assumptions about Karpenter, the buffers, and the overlays that were left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main
from dovetail.model.settings import DOVETAIL
from dovetail.plan.summary import plan_text
from tests.karpenter_features.world import buffer, thing, told
from tests.support.design_world import Town, kind


def _town(**karpenter: Any) -> Town:
    town = Town(kind("m", "1"), settings=told(DOVETAIL, **karpenter) if karpenter else DOVETAIL)
    town.pool()
    town.node("n", "m")
    return town


def test_the_document() -> None:
    """The JSON has every gate, every assumption in words, and every buffer with its nodes."""
    town = _town()
    town.others += buffer("spare", replicas=6, cpu="1")
    found = town.round().to_dict()["karpenter"]
    assert found["featureGates"] == {
        "ReservedCapacity": True,
        "NodeRepair": False,
        "SpotToSpotConsolidation": False,
        "NodeOverlay": False,
        "StaticCapacity": False,
        "CapacityBuffer": True,
        "TerminateFirstDrift": False,
        "TerminateFirstRepair": False,
        "PodDeletionCostManagement": False,
    }
    row = {"buffer": "default/spare", "replicas": 6, "carried": 4, "nodes": [{"node": "n", "virtualPods": 4}]}
    assert found["buffers"] == [row]
    assert any(text.startswith("CapacityBuffer is on (objects carry a condition") for text in found["assumed"])


def test_the_text() -> None:
    """The text shows differences from Karpenter's defaults, and buffers; -o wide shows everything."""
    town = _town(featureGates="NodeRepair=true")
    town.others += buffer("spare", replicas=1, cpu="1")
    text = plan_text(town.round())
    assert "CapacityBuffer default/spare: 1 virtual pod, 1 on n" in text
    assert "assumed of Karpenter: NodeRepair is on (the settings say so)" in text
    assert "ReservedCapacity" not in text
    assert "ReservedCapacity is on" in plan_text(town.round(), wide=True)
    assert "assumed of Karpenter" not in plan_text(_town().round())


def test_an_overlay_that_is_left_out_is_a_warning() -> None:
    """The warning has the overlay's name and the one that it conflicts with."""
    town = _town(featureGates="NodeOverlay=true")
    for name in ("a", "b"):
        town.others.append(thing("NodeOverlay", name, spec={"requirements": [], "price": "1"}))
    assert any("NodeOverlay a is left out" in text for text in town.round().warnings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("karpenter: {featureGates: NodeOverlay}", "karpenter.featureGates"),
        ("karpenter: {schedulerConfig: {podTopologySpread: {defaultingType: List}}}", "defaultingType"),
        ("karpenter: yes please", "write a map"),
    ],
)
def test_bad_settings_are_one_sentence(
    settings: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad settings exit with status 2 and name the field, without a traceback."""
    file = tmp_path / "settings.yaml"
    file.write_text(settings)
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}}
    (tmp_path / "c.json").write_text(json.dumps(pool))
    arguments = ["plan", "-f", str(tmp_path / "c.json"), "--catalog", "aws:us-east-1", "--settings", str(file)]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert len(said.strip().splitlines()) == 1
