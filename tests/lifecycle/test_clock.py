"""A wall clock that jumps while a command is in progress does not affect the command."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from dovetail.lifecycle.messages import ClockSet, Event, Instruction, WakeAt
from tests.lifecycle.test_faults import assert_clean, world_with
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, engine_for

JUMPS = (timedelta(hours=2), timedelta(hours=-2), timedelta(days=400), timedelta(seconds=-1))
POLL = timedelta(seconds=10)


@dataclass
class Skewed(Driver):
    """Set the engine's wall clock by `jump` before the event of that number; the world's time is unchanged.

    `says_so`: the shell notices, and says so. `done`: what the engine asked for, and when by the world's time.
    """

    jump: timedelta = timedelta(0)
    jump_at: int = -1
    says_so: bool = False
    skew: timedelta = timedelta(0)
    seen: int = 0
    done: list[tuple[datetime, str]] = field(default_factory=list)

    def send(self, event: Event) -> None:
        """Deliver events one by one with the engine's own wall clock."""
        self.inbox.append(event)
        while self.inbox:
            given = self.inbox.pop(0)
            if self.seen == self.jump_at:
                self.skew += self.jump
                # Wake-ups are kept by the wall; whatever it says, the shell gives the engine a turn at every poll.
                self.wakes = [at - self.jump for at in self.wakes] + [self.world.now + POLL]
                if self.says_so:
                    self._give(ClockSet(by=self.jump // timedelta(microseconds=1)))
            self.seen += 1
            self._give(given)

    def _give(self, event: Event) -> None:
        for instruction in self.engine.handle(event, self.world.now + self.skew):
            self._do(instruction)

    def _do(self, instruction: Instruction) -> None:
        if isinstance(instruction, WakeAt):
            instruction = WakeAt(at=instruction.at - self.skew)
        else:
            self.done.append((self.world.now, type(instruction).__name__))
        super()._do(instruction)

    def without_rounds(self) -> list[tuple[datetime, str]]:
        """Return what was done without the reports of rounds: one that finds nothing may be left out."""
        return [entry for entry in self.done if entry[1] != "RoundEnded"]


def _run(jump: timedelta, at: int, *, launches: bool = True, says_so: bool = False) -> Skewed:
    world, engine = world_with(a="replace"), engine_for(CALM, ScriptedPlanner(limit=1))
    world.launches = launches
    driver = Skewed(world, engine, jump=jump, jump_at=at, says_so=says_so)
    driver.begin().run(200 if launches else 1200)
    return driver


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_a_clock_that_is_set_changes_nothing(jump: timedelta) -> None:
    """A clock jump before any event does not delay or repeat any step of a replacement."""
    calm = _run(timedelta(0), -1)
    assert calm.ends() == ["done"]
    for at in range(calm.seen):
        driver = _run(jump, at)
        assert driver.ends() == ["done"], f"set before event {at}"
        assert len(driver.world.created) == len(driver.world.deleted) == 1
        assert_clean(driver)


@pytest.mark.parametrize("launches", [True, False], ids=["it comes", "it never comes"])
@pytest.mark.parametrize("jump", [*JUMPS, timedelta(seconds=30)], ids=str)
def test_no_wait_ends_early_or_late_if_the_shell_says_so(jump: timedelta, launches: bool) -> None:
    """Each step of a replacement happens when it would have happened, wherever the clock was set meanwhile."""
    calm = _run(timedelta(0), -1, launches=launches)
    assert len(calm.done) > 5
    for at in range(0, calm.seen, 1 if launches else 7):
        driver = _run(jump, at, launches=launches, says_so=True)
        assert driver.without_rounds() == calm.without_rounds(), f"set before event {at}"


def test_a_replacement_that_never_comes_is_given_up_after_a_jump_too() -> None:
    """A clock jump of hours neither ends nor extends the wait for a machine."""
    for jump in JUMPS:
        world = world_with(a="replace")
        world.launches = False
        driver = Skewed(world, engine_for(CALM, ScriptedPlanner(limit=1)), jump=jump, jump_at=12)
        driver.begin().run(400)
        assert driver.ends() == []
        driver.run(600)
        assert driver.ends()[:1] == ["failed"]
        assert driver.skew == jump
