"""The promises of the operators' controls are watched, and a breach of each is seen."""

import dataclasses
from datetime import timedelta

import msgspec
import pytest

from dovetail.lifecycle.messages import NoteDisruption
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL
from dovetail.sim.world.clock import HOUR, MINUTE
from dovetail.sim.world.world import World
from tests.sim.test_checkers import watched
from tests.support.rogue import rules, settle, small_world, work


def annotated(world: World, value: str) -> None:
    """Pause the pool."""
    pool = world.store.pools["blue"]
    meta = msgspec.structs.replace(pool.metadata, annotations={"dovetail.dev/paused": value})
    world.set_pool(msgspec.structs.replace(pool, metadata=meta))


@pytest.mark.parametrize(("between", "broken"), [(30 * MINUTE, ["rate"]), (61 * MINUTE, [])])
def test_a_rate_is_counted_over_any_span(between: int, broken: list[str]) -> None:
    """A second node within the hour is one too many; after it, it is not."""
    world = small_world(nodes=4, budgets=[{"nodes": "100%"}, {"nodes": "1", "per": "1h"}])
    settle(world)
    watch, rogue = watched(world)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    world.run(world.now + between)
    rogue.taint("two", "n1", method=Method.DRIFTED)
    assert [rule for rule in rules(watch) if rule == "rate"] == broken


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        (0, -20, ["rate"]),  # the first start is 10 min ago still
        (0, -40, []),  # it is 10 min ahead: a rate counts `t <= now`
        (0, 20, ["rate"]),
        (50, 0, []),
        (-50, -50, ["rate"]),
    ],
)
def test_a_start_that_is_dated_ahead_does_not_count(before: int, after: int, broken: list[str]) -> None:
    """A second node half an hour later, by a wall clock that is so many minutes off before and after."""
    world = small_world(nodes=4, budgets=[{"nodes": "100%"}, {"nodes": "1", "per": "3h"}])
    settle(world)
    watch, rogue = watched(world)
    rogue.host.skew = timedelta(minutes=before)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    world.run(world.now + 30 * MINUTE)
    rogue.host.skew = timedelta(minutes=after)
    rogue.taint("two", "n1", method=Method.DRIFTED)
    assert [rule for rule in rules(watch) if rule == "rate"] == broken


def test_a_start_that_came_later_counts_whatever_its_date() -> None:
    """One note is written first and its taint comes last: the command between the two is not ahead of it."""
    world = small_world(nodes=4, budgets=[{"nodes": "100%"}, {"nodes": "1", "per": "1h"}])
    settle(world)
    watch, rogue = watched(world)
    at = rogue.host.now()
    rogue.do(
        NoteDisruption(id="one/note", command_id="one", node_pool="blue", nodes=1, reason="Drifted", at=at, keep=HOUR)
    )
    world.run(world.now + 5 * MINUTE)
    rogue.taint("two", "n1", method=Method.DRIFTED)
    assert "rate" not in rules(watch)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    assert rules(watch).count("rate") == 1


def test_a_command_that_was_rolled_back_no_longer_counts() -> None:
    """Its taint is taken off: the next one may start."""
    world = small_world(nodes=4, budgets=[{"nodes": "100%"}, {"nodes": "1", "per": "1h"}])
    settle(world)
    watch, rogue = watched(world)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    rogue.untaint("one", "n0")
    rogue.taint("two", "n1", method=Method.DRIFTED)
    assert "rate" not in rules(watch)


@pytest.mark.parametrize(("schedule", "broken"), [("0 0 1 6 *", ["window"]), ("* * * * *", [])])
def test_a_start_outside_every_window_is_seen(schedule: str, broken: list[str]) -> None:
    """The world begins in January: a window in June is closed."""
    world = small_world(nodes=3, windows=[{"schedule": schedule, "duration": "1h", "reasons": ["Drifted"]}])
    settle(world)
    watch, rogue = watched(world)
    world.run(world.now + 10 * MINUTE)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    assert [rule for rule in rules(watch) if rule == "window"] == broken


@pytest.mark.parametrize(
    ("method", "broken"),
    [(Method.EMPTY, ["min-node-age"]), (Method.SINGLE_NODE, ["min-node-age"]), (Method.DRIFTED, [])],
)
def test_a_node_that_is_too_young_is_seen(method: Method, broken: list[str]) -> None:
    """The nodes of the world are two hours old."""
    world = small_world(nodes=3, minNodeAge="5h")
    settle(world)
    watch, rogue = watched(world)
    rogue.taint("one", "n0", method=method)
    assert [rule for rule in rules(watch) if rule == "min-node-age"] == broken


@pytest.mark.parametrize(
    ("pool", "own", "lead", "broken"),
    [
        ("Never", "720h", None, True),  # from 696h on
        ("119m", "720h", None, False),
        ("3h", "720h", None, True),
        ("Never", "132m", None, False),  # a tenth before: from 118.8m on
        ("Never", "140m", None, True),
        ("Never", "140m", 25 * MINUTE, False),
        ("Never", "Never", None, True),
    ],
)
def test_a_node_that_is_taken_as_expired_too_soon_is_seen(pool: str, own: str, lead: int | None, broken: bool) -> None:
    """Two hours old: old enough by the pool's expireAfter, or by the claim's own less the lead."""
    world = small_world(nodes=3, expireAfter=pool)
    claim = world.store.claims["n0"]
    world.store.put(claim, spec=msgspec.structs.replace(claim.spec, expire_after=own))
    settle(world)
    watch, rogue = watched(world)
    rogue.host.engine._state.settings = dataclasses.replace(DOVETAIL, expiry_lead=lead)
    rogue.taint("one", "n0", method=Method.EXPIRED)
    assert ("expiry" in rules(watch)) is broken


@pytest.mark.parametrize(("value", "broken"), [("true", ["pause"]), ("2026-01-01T00:00:00Z", [])])
def test_a_start_in_a_paused_pool_is_seen(value: str, broken: list[str]) -> None:
    """A pause that is over holds nothing."""
    world = small_world(nodes=3)
    settle(world)
    watch, rogue = watched(world)
    annotated(world, value)
    world.run(world.now + HOUR)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    assert [rule for rule in rules(watch) if rule == "pause"] == broken


@pytest.mark.parametrize(("surges", "broken"), [(True, ["surge"]), (False, [])])
def test_an_eviction_of_the_only_pod_of_a_deployment_that_surges_is_seen(surges: bool, broken: list[str]) -> None:
    """A command that deletes the claim without rolling the Deployment first breaks the promise."""
    world = small_world(nodes=2)
    made = dataclasses.replace(work(replicas=1), surges=surges)
    (world.rollouts if surges else world.workloads).add(made)
    settle(world)
    watch, rogue = watched(world)
    node = next(name for name, pods in world.store.pods_on.items() if pods)
    rogue.taint("one", node, method=Method.DRIFTED)
    rogue.delete("one", node)
    settle(world, 60)
    assert [rule for rule in rules(watch) if rule == "surge"] == broken
