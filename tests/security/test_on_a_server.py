"""On a real API server: hostile text in annotations and names, secrets in logs, certificates of strangers."""

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import InstructionSucceeded, PublishEvent, SetPoolCondition
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import UnreachableError, connect
from dovetail.model import names
from tests.support.certificates import write_certificates
from tests.support.control_plane import ControlPlane, eventually
from tests.support.crd_rules import pool
from tests.support.hostile import HOSTILE, unsafe_in
from tests.support.processes import COMMAND, environment, running

SEAL = Seal((b"the key of these tests",))
every_text = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


def _annotated(text: str, name: str) -> dict[str, Any]:
    """Return a pool whose policy annotation is that text, and which is given to Dovetail."""
    tree = pool()
    # etcd keeps anything but NUL in an annotation
    annotations = {names.POLICY_ANNOTATION: text.replace("\x00", ""), "note": text.replace("\x00", "")}
    tree["metadata"] = {"name": name, "labels": {names.MANAGE: "true"}, "annotations": annotations}
    return tree


@every_text
def test_events_and_conditions_are_plain_text(api_server: ControlPlane, text: str) -> None:
    """The server accepts an event and a condition with hostile text, and they have no invisible characters."""
    name = f"hostile-{sha256(text.encode()).hexdigest()[:8]}"
    with api_server.client() as admin:
        admin.apply(_annotated("{}", name))
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        admin.apply(node)

        async def write() -> list[Any]:
            async with ApiClient(connect(str(api_server.kubeconfig))) as client:
                actuator = Actuator(client=client, identity=text, seal=SEAL)
                told = PublishEvent(id="1", kind="Node", name=name, reason="Tried", message=text)
                kept = SetPoolCondition(
                    id="2", node_pool=name, type="DovetailPolicyReadable", status="False", reason="Tried", message=text
                )
                return [await actuator.carry_out(told), await actuator.carry_out(kept)]

        assert [type(answer) for answer in asyncio.run(write())] == [InstructionSucceeded] * 2
        events = admin.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")[1]["items"]
        said = [event for event in events if event["regarding"].get("name") == name]
        assert len(said) == 1
        assert unsafe_in(said[0]["note"] + said[0]["reportingInstance"], "") == []
        conditions = admin.get(_annotated("{}", name))["status"]["conditions"]
        assert unsafe_in(conditions[0]["message"], "") == []


def test_the_longest_names_have_events_too(api_server: ControlPlane) -> None:
    """A name of 253 characters, or one that would be cut at a dot, still gets its event."""
    longest = ".".join(["n" * 63] * 3 + ["n" * 61])
    assert len(longest) == 253
    for name in (longest, "a" * 199 + ".b", "a" * 199 + "-b", "a" * 198 + ".b.c"):

        async def write(name: str = name) -> Any:
            async with ApiClient(connect(str(api_server.kubeconfig))) as client:
                order = PublishEvent(id="1", kind="Node", name=name, reason="Tried", message="x")
                return await Actuator(client=client, identity="tried", seal=SEAL).carry_out(order)

        assert isinstance(asyncio.run(write()), InstructionSucceeded), name


@pytest.mark.slow
def test_a_controller_survives_hostile_objects(api_server: ControlPlane, tmp_path: Path) -> None:
    """A controller with all hostile texts at once logs valid JSON, answers the probes, and nothing is forged."""
    with api_server.client() as admin:
        for number, text in enumerate(HOSTILE.values()):
            assert admin.create(_annotated(text, f"hostile-run-{number}"))[0] == 201
            meta = {"name": f"hostile-run-{number}", "namespace": "default"}
            clean = text.replace("\x00", "")
            meta["annotations"] = {names.DISRUPTION_COST: clean, names.DO_NOT_DISRUPT: clean}  # type: ignore[assignment]
            container = {"name": "main", "image": "none"}
            tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
            assert admin.create(tree)[0] == 201
        arguments = [
            "run",
            f"--kubeconfig={api_server.kubeconfig}",
            "--catalog=aws:us-east-1",
            "--listen=127.0.0.1:0",
            "--log-level=debug",
            "--lease-namespace=default",
        ]
        try:
            with running(arguments, tmp_path / "log") as controller:
                controller.wait_for(message="leading")
                port = controller.wait_for(message="starting")["port"]
                broken = _annotated("", "hostile-run-0")
                eventually(lambda: admin.get(broken).get("status", {}).get("conditions"))
                _only_metrics_and_probes(port)
                assert controller.stop() == 0
                lines = controller.lines()
                assert unsafe_in(controller.text) == []
        finally:
            for number in range(len(HOSTILE)):
                admin.delete(_annotated("", f"hostile-run-{number}"))
                meta = {"name": f"hostile-run-{number}", "namespace": "default"}
                admin.delete({"apiVersion": "v1", "kind": "Pod", "metadata": meta})
    assert [line for line in lines if line["message"] == "forged"] == []
    assert {line["level"] for line in lines} <= {"debug", "info", "warning"}
    assert api_server.token not in controller.text


def _only_metrics_and_probes(port: int) -> None:
    """Check that the open port answers three paths and no other, with any method."""

    def ask(path: str, method: str = "GET") -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert [ask(path) for path in ("/metrics", "/healthz", "/readyz")] == [200, 200, 200]
    assert [ask(path) for path in ("/", "/debug", "/metrics/../etc/passwd", "/config", "/static/x")] == [404] * 5
    assert [ask("/metrics", method) for method in ("POST", "PUT", "DELETE")] == [405] * 3


# ---------------------------------------------------------------- secrets and certificates


def _kubeconfig(path: Path, server: str, authority: Path, token: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))
    return path


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**environment(), "DOVETAIL_DEBUG": "1"}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, env=surroundings)


def test_a_certificate_that_nobody_vouches_for_is_refused(api_server: ControlPlane, tmp_path: Path) -> None:
    """With a foreign certificate authority the connection is refused before the token is sent."""
    write_certificates(tmp_path)
    config = _kubeconfig(tmp_path / "config", api_server.base_url, tmp_path / "ca.crt", api_server.token)

    async def ask() -> None:
        async with ApiClient(connect(str(config))) as client:
            await client.request("GET", "/version", tries=1)

    with pytest.raises(UnreachableError, match=r"(?i)certificate") as caught:
        asyncio.run(ask())
    assert api_server.token not in str(caught.value)


@pytest.mark.parametrize("command", [["plan"], ["snapshot"], ["release", "--all"], ["run", "--listen=127.0.0.1:0"]])
@pytest.mark.parametrize("trouble", ["refused", "unknown", "forbidden", "certificate"])
def test_no_command_shows_a_token(api_server: ControlPlane, tmp_path: Path, command: list[str], trouble: str) -> None:
    """Nobody there, an unknown token, one without rights, a wrong certificate: one sentence, without the token."""
    token, server, authority = "sh-very-secret-token", api_server.base_url, api_server.ca_path
    if trouble == "refused":
        server = "https://127.0.0.1:9"
    elif trouble == "forbidden":
        token = api_server.tokens["nobody"]
    elif trouble == "certificate":
        write_certificates(tmp_path)
        authority = tmp_path / "ca.crt"
    config = _kubeconfig(tmp_path / "config", server, authority, token)
    where = [f"--kubeconfig={config}"] + (["--catalog=aws:us-east-1"] if command[0] in ("plan", "run") else [])
    if command[0] == "run" and trouble == "forbidden":
        with running([*command, *where, "--observe", "--log-level=debug"], tmp_path / "log") as controller:
            controller.wait_for(kind="Node", level="warning")
            os.kill(controller.process.pid, signal.SIGTERM)
            assert controller.process.wait(30) == 0
            shown = controller.text
        assert 'add {apiGroups: [""], resources: ["nodes"]' in shown.replace('\\"', '"')
    elif command[0] == "run" and trouble == "refused":
        with running([*command, *where, "--log-level=debug"], tmp_path / "log") as controller:
            controller.wait_for(level="warning", server=server)  # it waits for the server
            assert controller.process.poll() is None
            shown = controller.text
        assert "does not answer" in shown
    else:
        done = _run(*command, *where)
        shown = done.stdout + done.stderr
        assert done.returncode in (1, 2), shown
    assert token not in shown
    assert "Bearer" not in shown
    assert "Traceback" not in shown
