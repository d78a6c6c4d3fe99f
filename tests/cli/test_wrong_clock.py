"""Commands on a live cluster go by the API server's clock, not by that of the laptop that they run on."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dovetail.api.roll_request import RollRequest, write_request
from dovetail.cli.main import main
from dovetail.model import names

POOL, CLASS = "web", {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def _objects(now: datetime) -> dict[str, list[dict[str, Any]]]:
    """Return a pool whose nodes were asked for five minutes ago, and one of them."""
    asked = RollRequest(before=now - timedelta(minutes=5), requested=now - timedelta(minutes=5))
    created = (now - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    labels = {"karpenter.sh/nodepool": POOL, "karpenter.sh/capacity-type": "on-demand",
              "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "us-east-1a",
              "topology.kubernetes.io/region": "us-east-1", "karpenter.sh/initialized": "true",
              "karpenter.sh/registered": "true"}  # fmt: skip
    room = {"cpu": "2", "memory": "8Gi", "pods": "29"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": created}
    spec = {"nodeClassRef": CLASS, "requirements": [], "expireAfter": "Never"}
    return {
        "nodepools": [{
            "metadata": {"name": POOL, "uid": "p", "generation": 1, "labels": {names.MANAGE: "true"},
                         "annotations": {names.ROLL: write_request(asked)}},
            "spec": {"template": {"spec": spec}, "disruption": {"budgets": [{"nodes": "0"}]}},
        }],
        "nodeclaims": [{
            "metadata": {"name": "web-0", "uid": "c", "creationTimestamp": created, "labels": labels},
            "spec": spec,
            "status": {"nodeName": "n0", "providerID": "aws:///i-0", "capacity": room, "allocatable": room,
                       "conditions": [{**ready, "type": kind} for kind in ("Launched", "Registered", "Initialized")]},
        }],
        "nodes": [{
            "metadata": {"name": "n0", "uid": "n", "creationTimestamp": created, "labels": labels},
            "spec": {"providerID": "aws:///i-0"},
            "status": {"capacity": room, "allocatable": room, "conditions": [ready]},
        }],
    }  # fmt: skip


@pytest.fixture(params=["2031-05-04T03:02:01", "2021-05-04T03:02:01"], ids=["laptop behind", "laptop ahead"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[datetime, str]]:
    """Yield the clock of an API server, and a kubeconfig for it."""
    now = datetime.fromisoformat(request.param).replace(tzinfo=UTC)
    objects = _objects(now)

    class Handler(BaseHTTPRequestHandler):
        def date_time_string(self, timestamp: float | None = None) -> str:
            return format_datetime(now, usegmt=True)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = "configmaps" not in path
            items = objects.get(path.rpartition("/")[2], [])
            tree = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            body = json.dumps(tree if found else {"kind": "Status", "code": 404, "reason": "NotFound"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    config = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{listener.server_port}"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    yield now, str(path)
    listener.shutdown()
    listener.server_close()
    thread.join()


def _json(capture: pytest.CaptureFixture[bytes], *words: str) -> dict[str, Any]:
    assert main([*words, "-o", "json"]) == 0
    return dict(json.loads(capture.readouterr().out))


def test_plan(server: tuple[datetime, str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """The plan is of the server's time, and a warning says that the clocks differ."""
    now, config = server
    found = _json(capsysbinary, "plan", "--kubeconfig", config, "--catalog", "aws:us-east-1")
    assert found["now"] == now.isoformat().replace("+00:00", "Z")
    (said,) = [text for text in found["warnings"] if "clock" in text]
    assert ("behind the API server's" in said) == (now.year == 2031)


def test_a_roll(server: tuple[datetime, str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """A request of five minutes ago is under way, however wrong the laptop's clock is."""
    _, config = server
    (roll,) = _json(capsysbinary, "rollout", "status", "--kubeconfig", config, "--catalog", "aws:us-east-1")["rollouts"]
    assert (roll["nodePool"], roll["cause"], roll["total"], roll["replaced"]) == (POOL, "request", 1, 0)
