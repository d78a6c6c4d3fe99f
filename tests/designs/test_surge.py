"""Surge (docs/rules.md#surge): which Deployments move by a rolling update, its cost, and what blocks it."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.model.objects import Deployment, ReplicaSet
from dovetail.scheduling.pods.surge import can_surge, why_not_now
from tests.support.design_world import Town, kind, moved

MINUTE = timedelta(minutes=1)


def deployment(
    replicas: int = 1,
    *,
    surge: Any = 1,
    unavailable: Any = 0,
    strategy: str = "RollingUpdate",
    annotation: str | None = "true",
    **more: Any,
) -> Deployment:
    """Build a Deployment whose rollout is complete."""
    status = {
        "observedGeneration": 3,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
        **more.pop("status", {}),
    }
    tree = {
        "metadata": {
            "name": "web",
            "namespace": "default",
            "generation": 3,
            "annotations": {} if annotation is None else {"dovetail.dev/surge": annotation},
        },
        "spec": {
            "replicas": replicas,
            "strategy": {"type": strategy, "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
            **more,
        },
        "status": status,
    }
    return msgspec.convert(tree, Deployment, strict=False)


@pytest.mark.parametrize(
    ("item", "able"),
    [
        pytest.param(deployment(), True, id="one more, none less"),
        pytest.param(deployment(surge="25%", unavailable="25%"), True, id="25 % of one: one more, none less"),
        pytest.param(deployment(4, surge="25%", unavailable="25%"), False, id="25 % of four is one less"),
        pytest.param(deployment(3, surge="1%", unavailable="33%"), True, id="33 % of three is none"),
        pytest.param(deployment(surge=0, unavailable=0), False, id="no surge"),
        pytest.param(deployment(unavailable=1), False, id="one less"),
        pytest.param(deployment(strategy="Recreate"), False, id="Recreate"),
        pytest.param(deployment(annotation=None), False, id="does not ask"),
        pytest.param(deployment(annotation="yes"), False, id="only true asks"),
        pytest.param(deployment(0), False, id="no pods wanted"),
        pytest.param(deployment(surge="lots"), False, id="unreadable"),
    ],
)
def test_which_deployments_surge(item: Deployment, able: bool) -> None:
    """RollingUpdate with maxSurge of 1 or more and maxUnavailable of 0, after rounding."""
    assert can_surge(item) is able


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (deployment(), ""),
        (deployment(paused=True), "it is paused"),
        (deployment(status={"observedGeneration": 2}), "it is in the middle of a rollout"),
        (deployment(2, status={"updatedReplicas": 1}), "it is in the middle of a rollout"),
        (deployment(status={"replicas": 2}), "it is in the middle of a rollout"),
        (deployment(status={"availableReplicas": 0}), "it is in the middle of a rollout"),
        (
            deployment(
                status={
                    "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
                }
            ),
            "its last rollout missed the progress deadline",
        ),
    ],
)
def test_what_keeps_a_deployment_from_rolling(item: Deployment, why: str) -> None:
    """A Deployment that is paused, rolling or failed does not roll."""
    assert why_not_now(item) == why


def town(item: Deployment, *, allowed: int | None = 0, pods: int = 1) -> Town:
    """Build a drifted node with a pod of the Deployment, other nodes with more of its pods, and room."""
    made = Town(kind("m", "0.20"))
    made.pool(disruption={"consolidateAfter": "Never"})
    made.node("old", "m", drifted=MINUTE)
    made.node("room", "m")
    owner = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": True}]
    tree = {"metadata": {"name": "rs", "namespace": "default", "ownerReferences": owner}}
    made.others += [item, msgspec.convert(tree, ReplicaSet, strict=False)]
    for number in range(pods):
        made.pod(f"web-{number}", "old" if number == 0 else "room", labels={"app": "web"})
    if allowed is not None:
        made.pdb("guard", {"app": "web"}, allowed)
    return made


def test_a_pod_that_cant_be_evicted_no_longer_blocks() -> None:
    """The node goes, and the command names the Deployment that rolls."""
    made = town(deployment())
    command = made.act()
    assert moved(command) == ("deleteDrifted", ("old",))
    assert command is not None
    assert command.surges == ("default/web",)


def test_without_the_annotation_the_pdb_blocks_as_ever() -> None:
    """Without the annotation the PDB blocks the node."""
    assert town(deployment(annotation=None)).verdicts()["old"] == "pdb"


def test_one_replica_surges_without_a_pdb_and_several_only_behind_one() -> None:
    """A single pod surges without a PDB; several pods surge only if a PDB blocks them."""
    alone = town(deployment(), allowed=None).act()
    assert alone is not None
    assert alone.surges == ("default/web",)
    several = town(deployment(3), allowed=1, pods=3).act()
    assert several is not None
    assert several.surges == ()
    blocked = town(deployment(3), allowed=0, pods=3).act()
    assert blocked is not None
    assert blocked.surges == ("default/web",)


@pytest.mark.parametrize("item", [deployment(paused=True), deployment(status={"observedGeneration": 1})])
def test_a_deployment_that_cant_roll_now_blocks_with_its_own_gate(item: Deployment) -> None:
    """The gate `surge` names the Deployment that cannot roll."""
    made = town(item)
    verdict = next(entry for entry in made.round().verdicts if entry.node == "old")
    assert verdict.verdict == "surge"
    assert "default/web" in verdict.why


def test_without_the_right_the_gate_says_so() -> None:
    """Without permission to patch Deployments the node stays."""
    result = town(deployment()).round(may_surge=False)
    assert result.commands == ()
    assert "no right" in next(entry.why for entry in result.verdicts if entry.node == "old")


def test_the_whole_deployment_counts_as_disturbed() -> None:
    """Each pod of the Deployment counts once, wherever it runs."""
    command = town(deployment(3), pods=3).act()
    assert command is not None
    assert command.disruption_cost == pytest.approx(3.0)


def test_the_simulation_must_find_a_place_for_it() -> None:
    """The simulation places a surging pod even if its PDB never allows an eviction."""
    made = town(deployment())
    made.pod("full", "room", cpu="3950m")
    command = made.act()
    assert moved(command) == ("replaceDrifted", ("old",))


def test_do_not_disrupt_still_holds() -> None:
    """A surge does not lift do-not-disrupt."""
    made = town(deployment())
    made.pod("web-0", "old", labels={"app": "web"}, annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert made.verdicts()["old"] == "pod-do-not-disrupt"
