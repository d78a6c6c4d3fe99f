"""Steering marks are written slowly, moved rarely, and removed at the end (docs/rules.md#steering)."""

from dataclasses import replace

import msgspec
import pytest

from dovetail.decide.outcome import NOTHING, SteeringPlan, Victim
from dovetail.lifecycle.messages import CloseNode, Failure, MarkPod, OpenNode, SettingsChanged, UnmarkPod
from dovetail.model import names
from dovetail.model.objects import Node, Pod
from dovetail.model.settings import SteeringMode
from tests.support.lifecycle_world import CALM, Driver, Found, ScriptedPlanner, World, engine_for

PREFER = replace(CALM, steering=SteeringMode.PREFER)


class _Steerer(ScriptedPlanner):
    """Propose nothing but a steering plan."""

    plan: SteeringPlan = NOTHING

    def round(self, question: object) -> Found:
        return Found(steering=self.plan)


def _pod(world: World, name: str, owner: str = "web", **annotations: str) -> None:
    tree = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": {key.replace("__", "/"): value for key, value in annotations.items()},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}],
        },
        "spec": {"nodeName": "a"},
        "status": {"phase": "Running"},
    }
    world.put(msgspec.convert(tree, Pod, strict=False))


def _victims(*names_and_owners: tuple[str, str]) -> tuple[Victim, ...]:
    return tuple(Victim(owner=owner, namespace="default", name=name, uid=name) for name, owner in names_and_owners)


def _start(plan: SteeringPlan, pods: int = 3, settings: object = PREFER) -> tuple[World, Driver, _Steerer]:
    world, steerer = World(), _Steerer()
    world.add_pool()
    for name in ("a", "b"):
        world.add_node(name)
    for number in range(pods):
        _pod(world, f"web-{number}")
    steerer.plan = plan
    return world, Driver(world, engine_for(settings, steerer)).begin(), steerer  # type: ignore[arg-type]


def _marked(world: World) -> list[str]:
    return [pod.metadata.name for pod in world.all(Pod) if names.STEERING_MARK in pod.metadata.annotations]


def _closing(world: World) -> list[str]:
    nodes = world.all(Node)
    return [n.metadata.name for n in nodes if any(taint.key == names.CLOSING_TAINT for taint in n.spec.taints)]


def test_what_is_proposed_is_written_once() -> None:
    """A proposal causes one mark and one taint, and no further write while it stays."""
    world, driver, _ = _start(SteeringPlan(closing=("a",), victims=_victims(("web-1", "web"))))
    driver.run(300)
    assert (_marked(world), _closing(world)) == (["web-1"], ["a"])
    assert (len(driver.told(MarkPod)), len(driver.told(CloseNode))) == (1, 1)


def test_a_mark_moves_at_most_once_a_minute() -> None:
    """A ReplicaSet keeps its mark for a minute, however often the proposal changes."""
    world, driver, steerer = _start(SteeringPlan(victims=_victims(("web-0", "web"))))
    for turn in range(60):
        driver.run(5)
        steerer.plan = SteeringPlan(victims=_victims((f"web-{turn % 3}", "web")))
        world.add_node(f"n{turn}")  # something happens, so that there is a round
        assert len(_marked(world)) <= 1
    assert len(driver.told(MarkPod)) <= 6


def test_the_rate_is_held_and_the_rest_follows() -> None:
    """Twenty victims at five writes a minute take four minutes."""
    owners = [(f"one-{number:02d}", f"rs-{number:02d}") for number in range(20)]
    settings = replace(PREFER, steering_writes_per_minute=5)
    world, steerer = World(), _Steerer()
    world.add_pool()
    world.add_node("a")
    for name, owner in owners:
        _pod(world, name, owner)
    steerer.plan = SteeringPlan(victims=_victims(*owners))
    driver = Driver(world, engine_for(settings, steerer)).begin()
    counts = []
    for _ in range(5):
        before = len(driver.told(MarkPod))
        driver.run(60)
        counts.append(len(driver.told(MarkPod)) - before)
    assert max(counts) <= 5
    assert len(_marked(world)) == 20


@pytest.mark.parametrize("how", ["switched off", "nothing proposed any more"])
def test_everything_is_taken_back(how: str) -> None:
    """All of Dovetail's marks and taints are removed."""
    world, driver, steerer = _start(SteeringPlan(closing=("a", "b"), victims=_victims(("web-1", "web"))))
    driver.run(30)
    assert _marked(world)
    if how == "switched off":
        driver.send(SettingsChanged(settings=CALM))
    else:
        steerer.plan = NOTHING
        world.add_node("c")
    driver.run(120)
    assert (_marked(world), _closing(world)) == ([], [])
    assert driver.told(UnmarkPod)
    assert driver.told(OpenNode)


def test_a_node_does_not_open_and_close_every_round() -> None:
    """A node that is no longer proposed stays closing for three minutes."""
    world, driver, steerer = _start(SteeringPlan(closing=("a",)))
    driver.run(15)
    steerer.plan = SteeringPlan(closing=("b",))
    world.add_node("c")
    driver.run(60)
    assert _closing(world) == ["a", "b"]
    world.add_node("d")
    driver.run(150)
    world.add_node("e")
    driver.run(30)
    assert _closing(world) == ["b"]


def test_a_value_of_somebody_else_stays() -> None:
    """A value that a person wrote is not overwritten, even if the proposal is late."""
    world, driver, _ = _start(SteeringPlan(victims=_victims(("web-1", "web"))), pods=0)
    _pod(world, "web-1", **{"controller.kubernetes.io__pod-deletion-cost": "7"})
    driver.run(200)
    [pod] = [pod for pod in world.all(Pod) if pod.metadata.name == "web-1"]
    assert pod.metadata.annotations == {names.POD_DELETION_COST: "7"}


def test_without_the_right_nothing_is_asked_for_again_and_again() -> None:
    """After a refusal one pod mark a minute is tried, and one sentence names the right; nodes are still closing."""
    plan = SteeringPlan(closing=("a",), victims=_victims(("web-1", "web"), ("web-2", "db")))
    world, steerer = World(), _Steerer()
    world.add_pool()
    world.add_node("a")
    _pod(world, "web-1")
    _pod(world, "web-2", "db")
    steerer.plan = plan
    world.fail = lambda instruction: Failure.FORBIDDEN if isinstance(instruction, MarkPod) else None
    driver = Driver(world, engine_for(PREFER, steerer)).begin()
    for turn in range(8):
        world.add_node(f"n{turn}")
        driver.run(60)
    assert len(driver.told(MarkPod)) <= 2 + 8
    assert _closing(world) == ["a"]
    assert driver.reports("instruction-failed") == []
    [said] = driver.reports("right")
    assert "rights.steering=true" in said.message


def test_a_right_that_is_given_is_used_soon() -> None:
    """Within a minute and a half after the right was given every mark is there."""
    owners = [(f"one-{number:02d}", f"rs-{number:02d}") for number in range(8)]
    world, steerer = World(), _Steerer()
    world.add_pool()
    world.add_node("a")
    for name, owner in owners:
        _pod(world, name, owner)
    steerer.plan = SteeringPlan(victims=_victims(*owners))
    world.fail = lambda instruction: Failure.FORBIDDEN if isinstance(instruction, MarkPod) else None
    driver = Driver(world, engine_for(PREFER, steerer)).begin()
    driver.run(200)
    assert _marked(world) == []
    world.fail = lambda instruction: None
    driver.run(90)
    assert len(_marked(world)) == 8
    assert [report.message for report in driver.reports("right")][1:] == [
        "allowed to mark pods for scale-downs (the setting steering) now"
    ]


def test_a_pool_that_is_taken_away_opens_its_nodes_at_once() -> None:
    """An un-labelled pool loses its closing taints although other pools' nodes stay closing."""
    world, driver, steerer = _start(SteeringPlan(closing=("a", "x")), pods=0)
    world.add_pool("other")
    world.add_node("x", pool="other")
    driver.run(30)
    assert _closing(world) == ["a", "x"]
    steerer.plan = SteeringPlan(closing=("a",))
    world.add_pool("other", managed=False)
    driver.run(15)
    assert _closing(world) == ["a"]
