"""The promise of stabilization is watched: a cost command that starts too soon is seen."""

from dataclasses import replace

import pytest

from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.reports import CommandAdvanced
from dovetail.model.command import Action, Method
from dovetail.model.settings import DOVETAIL, Stabilization, StabilizationEnds, StabilizationScope
from dovetail.sim.world.clock import MINUTE, SECOND
from tests.sim.test_checkers import watched
from tests.support.rogue import rules, settle, small_world


def done(method: Method, *pools: str) -> CommandAdvanced:
    """Return the report of an action's end."""
    return CommandAdvanced(
        command_id=f"ended-{method.value}",
        phase=Phase.DONE,
        source=Phase.FINISHING,
        signal=None,
        action=Action.DELETE_DRIFTED,
        method=method,
        nodes=(),
        pools=pools,
    )


@pytest.mark.parametrize(
    ("ended", "after", "method", "broken"),
    [
        ([(0, Method.DRIFTED, "blue")], 4 * MINUTE, Method.SINGLE_NODE, True),
        ([(0, Method.DRIFTED, "blue")], 5 * MINUTE, Method.SINGLE_NODE, False),
        ([(0, Method.DRIFTED, "green")], 4 * MINUTE, Method.SINGLE_NODE, False),
        ([(0, Method.DRIFTED, "blue")], 4 * MINUTE, Method.DRIFTED, False),
        ([(0, Method.UNHEALTHY, "blue")], MINUTE, Method.SINGLE_NODE, False),
        ([(0, Method.DRIFTED, "blue"), (60, Method.EMPTY, "blue")], 31 * SECOND, Method.SINGLE_NODE, False),
        ([(0, Method.EMPTY, "blue"), (60, Method.DRIFTED, "blue")], 31 * SECOND, Method.SINGLE_NODE, True),
        ([(0, Method.DRIFTED, "blue"), (60, Method.EMPTY, "green")], 31 * SECOND, Method.SINGLE_NODE, False),
        ([(60, Method.DRIFTED, "blue")] * 8, 4 * MINUTE, Method.SINGLE_NODE, False),
        ([(60, Method.MULTI_NODE, "blue")] * 8, 4 * MINUTE, Method.SINGLE_NODE, True),
    ],
)
def test_a_start_within_the_window_is_seen(
    ended: list[tuple[int, Method, str]], after: int, method: Method, broken: bool
) -> None:
    """The last action's window counts, in its pool, unless half an hour may be used up."""
    world = small_world(nodes=4)
    settle(world)
    watch, rogue = watched(world)
    windows = Stabilization(empty=30 * SECOND)
    rogue.host.engine._state.settings = replace(DOVETAIL, stabilization=windows)
    for gap, kind, pool in ended:
        world.run(world.now + gap * SECOND)
        watch.report(rogue.host, done(kind, pool))
    world.run(world.now + after)
    rogue.taint("cost", "n0", method=method)
    assert ("stabilization" in rules(watch)) is broken


@pytest.mark.parametrize(("first", "broken"), [("validated", False), ("ended", True)])
def test_an_action_that_ends_after_validation_does_not_count(first: str, broken: bool) -> None:
    """A command is judged by what had ended when it passed validation, not when its taints arrive."""
    world = small_world(nodes=4)
    settle(world)
    watch, rogue = watched(world)
    passed = replace(done(Method.SINGLE_NODE, "blue"), command_id="cost", phase=Phase.TAINTING, source=Phase.VALIDATING)
    ended = done(Method.DRIFTED, "blue")
    for report in (passed, ended) if first == "validated" else (ended, passed):
        watch.report(rogue.host, report)
        world.run(world.now + SECOND)
    rogue.taint("cost", "n0")
    assert ("stabilization" in rules(watch)) is broken


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        ({"stabilization_scope": StabilizationScope.CLUSTER}, True),
        ({"stabilization_ends": StabilizationEnds.LANDED}, False),
        ({}, False),
    ],
)
def test_settings_say_where_and_until_when(change: dict[str, object], broken: bool) -> None:
    """With the scope `cluster` another pool's action counts; landed pods end a cost action's window early."""
    world = small_world(nodes=4)
    settle(world)
    watch, rogue = watched(world)
    rogue.host.engine._state.settings = replace(DOVETAIL, **change)  # type: ignore[arg-type]
    pool, method = ("green", Method.DRIFTED) if "stabilization_ends" not in change else ("blue", Method.MULTI_NODE)
    watch.report(rogue.host, done(method, pool))
    world.run(world.now + MINUTE)
    rogue.taint("cost", "n0", method=Method.SINGLE_NODE)
    assert ("stabilization" in rules(watch)) is broken
