"""`dovetail replay` from the command line: a small recording, the promised JSON, bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.main import main

pytestmark = pytest.mark.usefixtures("one_core")


def _recording(folder: Path, **changes: Any) -> list[str]:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "900m", "memory": "100Mi"}}}]},
    }
    tree = {
        "about": "a test",
        "nodePool": {
            "metadata": {"name": "default"},
            "spec": {
                "disruption": {"consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]},
                "template": {"spec": {"requirements": [requirement]}},
            },
        },
        "deployments": [
            {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 6, "template": template}}
        ],
        "scale": [{"t": 60, "deployment": "web", "replicas": 2}],
        "nodeClaims": [
            {"seen": 1, "gone": 200, "type": "small", "zone": "a"},
            {"seen": 1, "type": "small", "zone": "a"},
        ],
        "commands": [{"t": 120, "decision": "delete", "pods": 2}],
        "pods": [{"t": t, "count": 6, "pending": 0, "nodes": 2} for t in range(0, 242, 2)],
        **changes,
    }
    (folder / "recording.json").write_text(json.dumps(tree))
    offering = {
        "Price": 0.1,
        "Available": True,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
        ],
    }
    types = [
        {
            "name": "small",
            "offerings": [offering],
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"},
        }
    ]
    (folder / "types.json").write_text(json.dumps(types))
    return [str(folder / "recording.json"), "--types", str(folder / "types.json")]


def test_the_promised_json(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The result has means over the seeds, for Karpenter's rules and the defaults, and the recorded numbers."""
    assert main(["replay", *_recording(tmp_path), "--seeds", "2", "-o", "json"]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert [entry["policy"] for entry in found["policies"]][:2] == ["karpenter-1.15", "default"]
    for entry in found["policies"]:
        assert entry["seeds"] == 2
        assert {
            "cost",
            "podsDisrupted",
            "podsDisruptedMoreThanOnce",
            "shortLivedNodes",
            "nodeHours",
            "commands",
        } <= set(entry)
        assert entry["nodeHours"] > 0
    assert found["recorded"]["commands"] == 1
    assert found["recorded"]["podsDisrupted"] == 2
    assert found["recorded"]["shortLivedNodes"] == 1
    assert found["recorded"]["nodeHours"] == round((199 + 239) / 3600, 4)


def test_a_recording_without_a_course(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`recorded` is null if the recording has no results; a policy file is read."""
    policy = tmp_path / "calm.yaml"
    policy.write_text("disruption: {consolidateAfter: Never}\n")
    options = _recording(tmp_path, nodeClaims=[], commands=[])
    assert main(["replay", *options, "--policy", f"calm={policy}", "--seeds", "1", "-o", "json"]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert found["recorded"] is None
    assert [(entry["policy"], entry["podsDisrupted"]) for entry in found["policies"]] == [("calm", 0)]


def test_the_table_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table fits 80 columns."""
    assert main(["replay", *_recording(tmp_path), "--seeds", "1", "--policy", "karpenter-1.15"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("recorded")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--seeds", "0"], "write a whole number from 1"),
        (["--policy", "mine"], "write NAME=FILE"),
        (["--policy", "mine=nowhere.yaml"], "can't be read"),
    ],
)
def test_bad_input(extra: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad input fails with one sentence and exit status 2."""
    assert main(["replay", *_recording(tmp_path), *extra]) == 2
    assert said in capsys.readouterr().err


def test_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing file and a file that is not a recording are errors."""
    options = _recording(tmp_path)
    assert main(["replay", str(tmp_path / "none.json"), *options[1:]]) == 2
    assert "can't be read" in capsys.readouterr().err
    (tmp_path / "recording.json").write_text("{}")
    assert main(["replay", *options]) == 2
    assert "not a recording" in capsys.readouterr().err
