"""Detection of a Deployment's rolling update that was started for a command (docs/rules.md#surge)."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands import surging
from dovetail.lifecycle.commands.command_run import Run, View
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.messages import InstructionSucceeded
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import Deployment, Pod, ReplicaSet
from dovetail.scheduling.pods.surge import SURGE

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def deployment(**annotations: str) -> Deployment:
    """Build a Deployment whose pods carry these annotations."""
    tree: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "d", "uid": "w", "resourceVersion": "1"},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    }
    return msgspec.convert(tree, Deployment, strict=False)


@pytest.mark.parametrize(
    ("marked", "answered", "rolled"),
    [
        ("", False, False),
        ("2026-05-11T11:00:00Z other", False, False),
        ("2026-05-11T12:00:00Z c1", False, True),
        ("", True, True),
        ("2026-05-11T11:00:00Z other", True, True),
        (None, False, True),
    ],
    ids=["untouched", "another's", "seen", "answered, not seen yet", "answered, then another's", "gone"],
)
def test_when_a_rolling_update_has_begun(marked: str | None, answered: bool, rolled: bool) -> None:
    """A rollout has begun after the answer or the mark; a deleted Deployment needs none."""
    store = Store()
    if marked is not None:
        store.observe(deployment(**({names.SURGED_AT: marked} if marked else {})))
    run = Run(
        id="c1", action=Action.DELETE_DRIFTED, method=Method.DRIFTED, candidates=(), phase=Phase.SURGING, began=NOW
    )
    if answered:
        ident = surging.surge_id(run, "d/web")
        run.attempts.ask(ident, 0)
        run.attempts.answer(InstructionSucceeded(id=ident), 0)
    view = View(
        store=store,
        elapsed=1,
        now=NOW,
        replacement_timeout=1,
        launch_timeout=1,
        drain_patience=1,
        manages=lambda pool: True,
    )
    assert surging.is_rolled(run, "d/web", view) == rolled


def _rolled_pod(node: str, *, ends: bool = False) -> tuple[ReplicaSet, Pod]:
    """Build a pod of the Deployment on a node, with the ReplicaSet between them."""
    between = {"name": "web-1", "namespace": "d", "uid": "r", "ownerReferences": [_reference("Deployment", "web")]}
    own = {"name": f"p-{node}", "namespace": "d", "uid": node, "ownerReferences": [_reference("ReplicaSet", "web-1")]}
    pod = {"metadata": own, "spec": {"nodeName": node}, "status": {"phase": "Succeeded" if ends else "Running"}}
    return msgspec.convert({"metadata": between}, ReplicaSet, strict=False), msgspec.convert(pod, Pod, strict=False)


def _reference(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}


@pytest.mark.parametrize(
    ("asks", "node", "ends", "waits"),
    [
        (True, "a", False, True),
        (False, "a", False, False),
        (True, "elsewhere", False, False),
        (True, "a", True, False),
        (None, "a", False, False),
    ],
    ids=["it asks to surge", "it doesn't", "its pod is elsewhere", "its pod has ended", "it is gone"],
)
def test_which_deployments_have_to_roll_first(asks: bool | None, node: str, ends: bool, waits: bool) -> None:
    """Deployments with a surge and a running pod on the command's nodes roll before the deletions."""
    store = Store()
    if asks is not None:
        notes = {SURGE: "true"} if asks else {}
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        tree = {
            "metadata": {"name": "web", "namespace": "d", "uid": "w", "annotations": notes},
            "spec": {"replicas": 2, "strategy": rolling},
        }
        store.observe(msgspec.convert(tree, Deployment, strict=False))
    for item in _rolled_pod(node, ends=ends):
        store.observe(item)
    candidate = Candidate(node="a", claim="a", uid="a", pool="web")
    run = Run(
        id="c1",
        action=Action.DELETE_DRIFTED,
        method=Method.DRIFTED,
        candidates=(candidate,),
        phase=Phase.SURGING,
        began=NOW,
    )
    view = View(
        store=store,
        elapsed=1,
        now=NOW,
        replacement_timeout=1,
        launch_timeout=1,
        drain_patience=1,
        manages=lambda pool: True,
    )
    assert list(surging.waiting(run, view)) == (["d/web"] if waits else [])
    assert surging.is_over(run, view) != waits
