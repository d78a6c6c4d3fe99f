"""Check each invariant by breaking it."""

from collections.abc import Callable

import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.invariants import CHECKS, violations
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, World, engine_for


def busy_engine(seconds: float) -> Engine:
    """Build an engine with two commands in progress."""
    world = World()
    world.add_pool()
    world.add_node("a", want="replace")
    world.add_node("b", want="replace")
    return Driver(world, engine_for(CALM, ScriptedPlanner())).begin().run(seconds).engine


def _share_a_node(engine: Engine) -> None:
    one, two = engine.runs
    two.candidates = one.candidates


def _end_and_stay(engine: Engine) -> None:
    engine.runs[0].phase = Phase.DONE
    engine.runs[0].history.append((Phase.FINISHING, Signal.CLEARED))


def _not_lead(engine: Engine) -> None:
    engine._state.is_leader = False


def _jump(engine: Engine) -> None:
    engine.runs[0].phase = Phase.ROLLING_BACK


def _wait_for_ever(engine: Engine) -> None:
    engine.runs[0].deadline += 3600 * SECOND


def _act_early(engine: Engine) -> None:
    engine.runs[0].attempts.ask("x/taint/a", 0)


def _validate_late(engine: Engine) -> None:
    engine.runs[0].validate_at = -1


def _nominate_twice(engine: Engine) -> None:
    engine._state.pacing.lingering[engine.runs[0].replacements[0]] = engine.elapsed + SECOND


@pytest.mark.parametrize(
    ("seconds", "damage", "words"),
    [
        (20, _share_a_node, "belongs to the commands"),
        (20, _end_and_stay, "still kept"),
        (20, _not_lead, "may not act"),
        (20, _jump, "its history ends at"),
        (20, _wait_for_ever, "waits until"),
        (5, _act_early, "before it was validated"),
        (5, _validate_late, "should have been validated"),
        (20, _nominate_twice, "nominated by a command that ended"),
    ],
)
def test_damage_is_found(seconds: float, damage: Callable[[Engine], None], words: str) -> None:
    """A sound engine reports no violation; a damaged one reports what is wrong."""
    engine = busy_engine(seconds)
    assert violations(engine) == []
    damage(engine)
    assert any(words in sentence for sentence in violations(engine))


def test_every_check_is_tried() -> None:
    """Every check has at least one row in the table above."""
    assert len(CHECKS) <= 8
