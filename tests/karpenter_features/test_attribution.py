"""Evictions name the true reason: the condition DisruptionReason is set on a claim after its deletion has begun."""

from typing import Any

import pytest

from dovetail.lifecycle.effects.effect import effect
from dovetail.lifecycle.effects.effect_context import EffectContext
from dovetail.lifecycle.effects.writes import Done, Patch, Ref, Writes
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure, Instruction, SetDisruptionReason
from tests.karpenter_features.world import world_with
from tests.support.lifecycle_world import CALM, SEAL, T0, Driver, ScriptedPlanner, engine_for

ASKED = SetDisruptionReason(id="i", command_id="c", name="n", uid="u", reason="Underutilized")
OURS = {"type": "DisruptionReason", "status": "True", "reason": "Underutilized", "message": "Underutilized"}


def _claim(*, deleting: bool = True, uid: str = "u", conditions: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    meta = {"name": "n", "uid": uid, "resourceVersion": "7"}
    if deleting:
        meta["deletionTimestamp"] = "2026-03-02T09:00:00Z"
    return {"metadata": meta, "status": {"conditions": conditions or []}}


CASES: dict[str, tuple[dict[str, Any] | None, Any]] = {
    "gone": (None, Done()),
    "another one by now": (_claim(uid="other"), Done()),
    "not deleted yet": (_claim(deleting=False), Done()),
    "there already": (_claim(conditions=[{**OURS, "lastTransitionTime": "x"}]), Done()),
    "another reason": (_claim(conditions=[{**OURS, "reason": "Drifted", "message": "Drifted"}]), "patch"),
    "beside others": (_claim(conditions=[{"type": "Ready", "status": "True"}]), "patch"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_written(case: str) -> None:
    """The condition is written only to the right claim, only while it is being deleted, beside other conditions."""
    claim, wanted = CASES[case]
    outcome = effect(ASKED, {Ref(kind="NodeClaim", name="n"): claim}, EffectContext(now=T0, seal=SEAL))
    if isinstance(outcome, Writes):
        assert wanted == "patch"
        (patch,) = outcome.writes
        assert isinstance(patch, Patch)
        assert patch.subresource == "status"
        written = patch.tree["status"]["conditions"]
        assert {key: written[-1][key] for key in OURS} == OURS
        assert written[-1]["lastTransitionTime"]
        assert claim is not None
        others = [entry for entry in claim["status"]["conditions"] if entry["type"] != "DisruptionReason"]
        assert written[:-1] == others
    else:
        assert outcome == wanted


def _of(driver: Driver, *kinds: type) -> list[Instruction]:
    return [item for _, item in driver.log if isinstance(item, kinds)]


@pytest.mark.parametrize(("want", "reason"), [("delete", "Drifted"), ("cost-delete", "Underutilized")])
def test_it_comes_after_the_deletion(want: str, reason: str) -> None:
    """The engine requests the condition once the deletion has begun, with the command's reason."""
    driver = Driver(world_with(a=want), engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(120)
    asked = _of(driver, DeleteNodeClaim, SetDisruptionReason)
    assert [type(item) for item in asked[:2]] == [DeleteNodeClaim, SetDisruptionReason]
    assert {item.reason for item in asked if isinstance(item, SetDisruptionReason)} == {reason}
    assert driver.ends() == ["done"]


@pytest.mark.parametrize("failure", [Failure.FORBIDDEN, Failure.REFUSED, Failure.NOT_FOUND, Failure.UNREACHABLE])
def test_a_command_ends_without_it(failure: Failure) -> None:
    """The condition is best effort: a missing permission does not delay a command."""
    world = world_with(a="delete")
    world.fail = lambda item: failure if isinstance(item, SetDisruptionReason) else None
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1))).begin().run(200)
    assert driver.ends() == ["done"]
