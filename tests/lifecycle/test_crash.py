"""A crash at every point of a command, followed by a successor that knows only the cluster."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from dovetail.model.objects import Node, NodeClaim
from tests.support.lifecycle_world import CALM, Crash, Driver, ScriptedPlanner, World, engine_for

WISHES = ("delete", "replace", "replace2")


def _world(wish: str, *, launches: bool = True) -> World:
    world = World(launches=launches)
    world.add_pool()
    world.add_node("a", want=wish)
    world.add_node("b")
    return world


def _acts(wish: str, *, launches: bool, seconds: float) -> int:
    """Count the instructions of an undisturbed run."""
    driver = Driver(_world(wish, launches=launches), engine_for(CALM, ScriptedPlanner(limit=1))).begin()
    return driver.run(seconds).acted


def _points() -> Iterator[tuple[str, bool, int, bool]]:
    for wish in WISHES:
        for launches in (True, False):
            if wish == "delete" and not launches:
                continue
            for index in range(_acts(wish, launches=launches, seconds=300 if launches else 620)):
                for after in (False, True):
                    yield wish, launches, index, after


POINTS = tuple(_points())


def _crashed(wish: str, launches: bool, index: int, after: bool) -> World:
    world = _world(wish, launches=launches)
    driver = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1)), crash_at=(index, after))
    with pytest.raises(Crash):
        driver.begin().run(2000)
    return world


def _assert_clean(world: World, driver: Driver) -> None:
    assert world.tainted() == []
    assert world.recorded() == []
    assert driver.engine.runs == ()
    assert driver.engine.nominated() == ()
    assert len(world.created) == len(set(world.created))
    assert all(claim.metadata.deletion_timestamp is None for claim in world.all(NodeClaim))


def test_there_are_points_to_crash_at() -> None:
    """The crash points include holds, taint, creations, deletion and clearing."""
    assert len(POINTS) >= 40
    assert {wish for wish, *_ in POINTS} == set(WISHES)


@pytest.mark.parametrize("planner_wants_more", [True, False], ids=["goes-on", "only-cleans-up"])
@pytest.mark.parametrize(("wish", "launches", "index", "after"), POINTS)
def test_successor_finishes_or_undoes(
    wish: str, launches: bool, index: int, after: bool, planner_wants_more: bool
) -> None:
    """After any crash the successor leaves no taint, no record and no duplicate."""
    world = _crashed(wish, launches, index, after)
    world.launches = True
    successor = Driver(world, engine_for(CALM, ScriptedPlanner(limit=1 if planner_wants_more else 0), identity="two"))
    successor.begin().run(1500)
    _assert_clean(world, successor)
    survivors = [node.metadata.name for node in world.all(Node) if node.metadata.name != "b"]
    count = {"delete": 0, "replace": 1, "replace2": 2}[wish]
    if "a" in survivors:
        assert survivors == ["a"], "undone: the node is back and no replacement is left"
        assert not planner_wants_more, "a successor that wants it gets it in the end"
    else:
        assert len(survivors) == count, "finished: the node is gone and its replacements are there, once"


@pytest.mark.parametrize(("wish", "launches", "index", "after"), POINTS)
def test_second_crash_of_the_successor(wish: str, launches: bool, index: int, after: bool) -> None:
    """A third engine cleans up after a successor that crashed at its first instruction."""
    world = _crashed(wish, launches, index, after)
    second = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0), identity="two"), crash_at=(0, after))
    with suppress(Crash):
        second.begin().run(1500)
    world.launches = True
    third = Driver(world, engine_for(CALM, ScriptedPlanner(limit=0), identity="three")).begin().run(1500)
    _assert_clean(world, third)
