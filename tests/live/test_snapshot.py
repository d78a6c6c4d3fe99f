"""`dovetail snapshot`, and `plan`, `explain` and `budgets` on the live cluster of a kubeconfig."""

import gzip
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_plane import Client, ControlPlane
from tests.support.e2e_world import claim, pod, pool, write_catalogue

SECRET = "hunter2-do-not-tell"
NODES = ("snap-a", "snap-b")


def _dovetail(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    return subprocess.run(
        [sys.executable, "-m", "dovetail.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**clean, **environment},
        check=False,
    )


def _status(api: Client, path: str, status: dict[str, Any]) -> None:
    code, answer = api.request("PATCH", f"{path}/status", {"status": status}, kind="application/merge-patch+json")
    assert code == 200, answer


def _true(*kinds: str) -> list[dict[str, str]]:
    at = "2026-01-01T00:00:00Z"
    return [
        {"type": kind, "status": "True", "reason": kind, "message": SECRET, "lastTransitionTime": at} for kind in kinds
    ]


def _make_node(api: Client, name: str, of: dict[str, Any]) -> None:
    labels = {
        "karpenter.sh/nodepool": of["metadata"]["name"], "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true", "node.kubernetes.io/instance-type": "small",
        "topology.kubernetes.io/zone": "zone-a", "karpenter.sh/capacity-type": "on-demand",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
        "example.com/owner": "team-rocket",
    }  # fmt: skip
    room = {"cpu": "1900m", "memory": "3900Mi", "pods": "50"}
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"example.com/password": SECRET}},
        "spec": {"providerID": f"simulated:///{name}"},
    }
    assert api.create(tree)[0] == 201
    api.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, kind="application/merge-patch+json")
    _status(api, f"/api/v1/nodes/{name}", {"capacity": room, "allocatable": room, "conditions": _true("Ready")})
    machine = claim(name, of)
    machine["metadata"]["labels"] |= labels
    machine["metadata"]["labels"].pop("kubernetes.io/hostname")
    assert api.create(machine)[0] == 201
    done = {
        "nodeName": name, "providerID": f"simulated:///{name}", "imageID": SECRET,
        "lastPodEventTime": "2026-01-01T00:00:00Z", "conditions": _true("Launched", "Registered", "Initialized"),
    }  # fmt: skip
    _status(api, f"/apis/karpenter.sh/v1/nodeclaims/{name}", done)


@pytest.fixture
def plane(api_server: ControlPlane) -> Iterator[ControlPlane]:
    """Yield two half-used nodes, with secrets in all places where people put them."""
    with api_server.client() as api:
        status, made = api.create(pool("snap", consolidateAfter="0s"))
        assert status == 201, made
        _status(api, "/apis/karpenter.sh/v1/nodepools/snap", {"conditions": _true("Ready")})
        for name in NODES:
            _make_node(api, name, made)
        for index, node in enumerate((*NODES, NODES[1])):
            tree = pod(f"snap-{index}", "snap", node)
            container = tree["spec"]["containers"][0]
            container |= {
                "name": f"{SECRET}-name", "image": f"registry/{SECRET}:1", "command": ["run", SECRET],
                "args": [f"--password={SECRET}"], "env": [{"name": "PASSWORD", "value": SECRET}],
            }  # fmt: skip
            tree["metadata"]["annotations"] = {
                "example.com/token": SECRET,
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET}),
                "karpenter.sh/disruption-cost": "5",
            }
            tree["metadata"]["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "snap", "uid": "u", "controller": True}
            ]
            container["name"] = "c"
            assert api.create(tree)[0] == 201
            _status(
                api, f"/api/v1/namespaces/default/pods/snap-{index}",
                {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": _true("Ready")},
            )  # fmt: skip
        yield api_server
        for index in range(3):
            api.request("DELETE", f"/api/v1/namespaces/default/pods/snap-{index}", {"gracePeriodSeconds": 0})
        for name in NODES:
            api.request("DELETE", f"/apis/karpenter.sh/v1/nodeclaims/{name}")
            api.request("DELETE", f"/api/v1/nodes/{name}")
        api.request("DELETE", "/apis/karpenter.sh/v1/nodepools/snap")


def test_nothing_but_what_is_needed(plane: ControlPlane, tmp_path: Path) -> None:
    """The file has no secret from env, args, commands, images, annotations or messages; only its owner can read it."""
    out = tmp_path / "cluster.json.gz"
    out.write_text("an older file that anybody may read")
    out.chmod(0o644)
    done = _dovetail("snapshot", "-o", str(out), "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    text = gzip.decompress(out.read_bytes()).decode()
    assert SECRET not in text
    for word in ('"env"', '"args"', '"command"', '"image"', "managedFields", "last-applied", 'resourceVersion":""'):
        assert word not in text
    items = json.loads(text)["items"]
    kept = next(item for item in items if item["metadata"]["name"] == "snap-0")
    assert kept["metadata"]["annotations"] == {"karpenter.sh/disruption-cost": "5"}
    assert kept["spec"]["containers"] == [{"resources": {"requests": {"cpu": "500m"}}}]
    assert str(plane.token) not in done.stderr


def _plan(*words: str) -> dict[str, Any]:
    done = _dovetail("plan", "-o", "json", *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_live_captured_and_anonymised_plans_agree(plane: ControlPlane, tmp_path: Path) -> None:
    """`plan` has the same action, savings and verdicts live, on the snapshot and on the anonymised one."""
    catalogue = ("--catalog", str(write_catalogue(tmp_path)))
    now = ("--now", "2026-12-01T00:00:00Z")
    live = _plan(*catalogue, *now, "--kubeconfig", str(plane.kubeconfig))
    ours = [action for action in live["actions"] if set(action["nodes"]) & set(NODES)]
    assert [(action["action"], action["nodes"]) for action in ours] == [("deleteCost", ["snap-a"])]
    plain, hidden = tmp_path / "plain.json", tmp_path / "hidden.json"
    assert _dovetail("snapshot", "-o", str(plain), KUBECONFIG=str(plane.kubeconfig)).returncode == 0
    assert _dovetail("snapshot", "--anonymise", "-o", str(hidden), KUBECONFIG=str(plane.kubeconfig)).returncode == 0
    captured = _plan("-f", str(plain), *catalogue, *now)
    assert captured["actions"] == live["actions"]
    assert captured["nodes"] == live["nodes"]
    text = hidden.read_text()
    for name in (*NODES, "snap-0", "team-rocket", "example.com"):
        assert name not in text
    anonymous = _plan("-f", str(hidden), *catalogue, *now)
    figures = ("action", "savingsPerHour", "requiredSavingsPerHour", "disruptionCost", "pods")
    assert [[each[key] for key in figures] for each in anonymous["actions"]] == [
        [each[key] for key in figures] for each in captured["actions"]
    ]
    assert [each["verdict"] for each in anonymous["nodes"]] == [each["verdict"] for each in captured["nodes"]]


def test_explain_and_budgets_on_the_live_cluster(plane: ControlPlane, tmp_path: Path) -> None:
    """`explain` and `budgets` read the cluster of the kubeconfig."""
    shared = ("--catalog", str(write_catalogue(tmp_path)), "--kubeconfig", str(plane.kubeconfig))
    explained = _dovetail("explain", "snap-b", *shared)
    assert explained.returncode == 0, explained.stderr
    assert "snap-b" in explained.stdout
    budgets = _dovetail("budgets", *shared)
    assert budgets.returncode == 0, budgets.stderr
    assert "snap" in budgets.stdout


def test_a_missing_right_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    """A missing permission to list an essential kind fails with one sentence, the rule to add and exit status 2."""
    config = plane.write_kubeconfig(tmp_path / "nobody", user="nobody")
    done = _dovetail("snapshot", "--kubeconfig", str(config))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "not allowed to list" in done.stderr
    assert "verbs: [get, list]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--kubeconfig", "/nonexistent/config"), "does not exist"),
        (("--context", "prod"), "no context 'prod'"),
    ],
)
def test_a_wrong_kubeconfig(plane: ControlPlane, words: tuple[str, ...], wanted: str) -> None:
    """A wrong kubeconfig fails with one sentence."""
    done = _dovetail("snapshot", *words, KUBECONFIG=str(plane.kubeconfig))
    assert (done.returncode, done.stdout) == (2, "")
    assert wanted in done.stderr


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """An unreachable server is reported with the part of the kubeconfig to check."""
    config = tmp_path / "config"
    tree = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "current-context": "c",
    }
    config.write_text(json.dumps(tree))
    done = _dovetail("hold", "web", "--kubeconfig", str(config))
    assert done.returncode == 2
    assert "does not answer" in done.stderr
    assert SECRET not in done.stderr
