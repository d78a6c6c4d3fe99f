"""What a busy controller writes to a real API server: no object twice with the same content."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.lifecycle.conditions import POLICY_READABLE
from dovetail.live.kubernetes.client import ApiClient
from dovetail.model import names
from dovetail.standin.provider import simulated_provider
from tests.support.background import Inside, running_inside
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.e2e_world import World, pool, write_catalogue, write_settings

Tree = dict[str, Any]


class Written:
    """Every write of ours that the server took: method, path, what was sent and what came back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[tuple[str, str, Tree, Tree]] = []
        send = ApiClient.request

        async def watched(client: ApiClient, method: str, path: str, **rest: Any) -> bytes:
            answer = await send(client, method, path, **rest)
            if (rest.get("params") or {}).get("fieldManager") == "dovetail":
                self.all.append((method, path, json.loads(rest["body"]), json.loads(answer)))
            return answer

        monkeypatch.setattr(ApiClient, "request", watched)

    def idle(self) -> list[str]:
        """Name the patches after which the object was what it was before: the server gives it no new version."""
        return [
            f"{path}: {body}"
            for method, path, body, answer in self.all
            if method == "PATCH" and answer["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]
        ]

    def events(self) -> list[tuple[str, str, str]]:
        """List what was said, on which object and why, as often as it was sent."""
        found = [answer for _, path, _, answer in self.all if "/events" in path]
        return [(each["regarding"]["name"], each["reason"], each["note"]) for each in found]

    def kinds(self) -> set[str]:
        """List what was written to: plural, and the subresource."""
        parts = [path.strip("/").split("/") for _, path, _, _ in self.all]
        return {"/".join(part for part in each if part in _NAMES) for each in parts}


def _readable(world: World, of: Tree) -> str:
    return conditions_of(world.api.get(of) or {}).get(POLICY_READABLE, "")


_NAMES = ("nodes", "nodeclaims", "nodepools", "events", "status")


def test_a_busy_controller_writes_nothing_twice(
    cluster: ControlPlane, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty, expired and drifted nodes go, some are replaced, some must stay, a policy can't be read for a while."""
    written = Written(monkeypatch)
    settings = write_settings(tmp_path, steering="Prefer")
    catalogue = write_catalogue(tmp_path)
    inside = Inside(cluster.kubeconfig, catalogue, settings)
    inside._parts = {"background_tasks": [simulated_provider(inside.engine.catalogue)]}
    with running_inside(inside):
        web = world.pool(pool("web", consolidateAfter="Never"))
        for name in ("idle-1", "idle-2", "roomy"):
            world.node(name, web, "medium")
        world.fill("stay", ["roomy", "roomy"])
        old = world.pool(pool("old", consolidateAfter="Never"))
        world.node("aged-1", old)
        world.node("aged-2", old)
        world.fill("move", ["aged-1", "aged-2"], cpu="1500m")
        odd = world.pool(pool("odd"))
        world.patch(odd, {"metadata": {"annotations": {names.POLICY_ANNOTATION: "{"}}})
        eventually(lambda: _readable(world, odd) == "False")
        world.patch(odd, {"metadata": {"annotations": {names.POLICY_ANNOTATION: None}}})
        eventually(lambda: _readable(world, odd) == "True")
        world.patch(web, {"spec": {"disruption": {"consolidateAfter": "0s"}}})
        world.patch(old, {"spec": {"disruption": {"expireAfter": "1s"}}})
        eventually(lambda: not {"idle-1", "idle-2", "aged-1", "aged-2"} & set(world.nodes()))
        world.patch(old, {"spec": {"disruption": {"expireAfter": "Never"}}})
        eventually(lambda: not world.leftovers())
        world.wait_running("move", 2)
    assert written.idle() == []
    said = written.events()
    assert sorted(set(said)) == sorted(said)
    assert {"nodes", "nodeclaims", "events", "nodeclaims/status", "nodepools/status"} <= written.kinds()
