"""Prices that the catalogue lacks are shown as unknown, never as zero."""

import gzip
import json
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.captures import whole_capture


def captured(folder: Path, kind: str) -> str:
    """Write a cluster of one empty node of an instance type."""
    labels = {
        "karpenter.sh/nodepool": "web",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/registered": "true",
        "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": "us-east-1a",
        "topology.kubernetes.io/region": "us-east-1",
    }
    old = "2026-01-01T00:00:00Z"
    initialized = {"type": "Initialized", "status": "True", "lastTransitionTime": old}
    items = [
        whole_capture(),
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "web"}, "spec": {}},
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": "c", "labels": labels, "creationTimestamp": old},
            "status": {"providerID": "x://1", "nodeName": "n", "conditions": [initialized]},
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n", "labels": labels, "creationTimestamp": old},
            "spec": {"providerID": "x://1"},
            "status": {
                "capacity": {"cpu": "2", "memory": "8Gi", "pods": "10"},
                "allocatable": {"cpu": "2", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": old}],
            },
        },
    ]
    path = folder / "cluster.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()))
    return str(path)


def plan(folder: Path, kind: str, capsys: pytest.CaptureFixture[str], output: str) -> str:
    """Return the output of `plan`."""
    file = captured(folder, kind)
    assert main(["plan", "-f", file, "--catalog", "aws:us-east-1", "--now", "2026-02-01T00:00:00Z", "-o", output]) == 0
    return capsys.readouterr().out


def test_text_says_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the cluster's cost nor the savings are shown as $0.00."""
    text = plan(tmp_path, "box.4", capsys, "text")
    assert "$0.00" not in text
    assert "price unknown" in text
    assert "saves an unknown amount" in text
    assert "In all 1 command, which save an unknown amount (1 node without a price)" in " ".join(text.split())


def test_a_known_price_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same cluster with a type of the catalogue has prices."""
    text = plan(tmp_path, "m5.large", capsys, "text")
    assert "unknown" not in text
    assert "saves $0.096" in text


def test_json_lists_the_nodes_without_a_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`unpricedNodes` lists the nodes."""
    assert json.loads(plan(tmp_path, "box.4", capsys, "json"))["unpricedNodes"] == ["n"]
    assert json.loads(plan(tmp_path, "m5.large", capsys, "json"))["unpricedNodes"] == []


def test_the_first_thing_to_change_is_the_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If a node is blocked because its price is missing, the advice names the catalogue."""
    file = captured(tmp_path, "box.4")
    tree = json.loads(gzip.decompress(Path(file).read_bytes()))
    tree["items"].append(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        }
    )
    Path(file).write_bytes(gzip.compress(json.dumps(tree).encode()))
    assert main(["plan", "-f", file, "--catalog", "aws:us-east-1", "--now", "2026-02-01T00:00:00Z"]) == 0
    assert "First thing to change: the catalogue" in capsys.readouterr().out
