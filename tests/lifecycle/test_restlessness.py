"""Restless pools: nodes that are opened soon after others were removed, and the engine's reaction."""

from dataclasses import replace

import pytest

from dovetail.decide.question import Question
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.memory.restlessness import Restlessness
from dovetail.model import names
from dovetail.model.objects import NodeClaim, ObjectMeta
from dovetail.model.settings import DOVETAIL, RECOMMENDED
from tests.support.lifecycle_world import CALM, Driver, Found, ScriptedPlanner, World, engine_for

MINUTE = 60 * SECOND
QUIET = 30 * MINUTE


@pytest.mark.parametrize(
    ("took", "opened", "until"),
    [
        ([0], [1, 2], 31),
        ([0], [1], None),
        ([], [1, 2], None),
        ([0], [1, 2, 5], 32),
        ([0], [29, 30], None),
        ([0], [29, 29], 59),
        ([0, 20], [1, 40], 31),
        ([0, 20], [10, 40], 40),
    ],
    ids=[
        "two after a command", "one may be for what was moved", "load that only grows", "the last two count",
        "the second too late", "both just in time", "the earlier is nearly forgotten", "a later command counts too",
    ],
)  # fmt: skip
def test_two_nodes_opened_after_a_command_make_a_pool_restless(
    took: list[int], opened: list[int], until: int | None
) -> None:
    """Two nodes opened after a removal make the pool restless until the given minute."""
    book = Restlessness()
    for minute, is_new in sorted([*((at, False) for at in took), *((at, True) for at in opened)]):
        if is_new:
            book.opened("web", minute * MINUTE, QUIET)
        else:
            book.took(("web",), minute * MINUTE)
    now = max([*took, *opened]) * MINUTE
    expected = {} if until is None or until * MINUTE <= now else {"web": until * MINUTE}
    assert book.until(QUIET, now) == expected
    assert book.until(QUIET, 60 * MINUTE) == {}
    assert book.until(0, now) == {}, "switched off since"


def test_pools_are_apart_and_off_means_off() -> None:
    """Each pool counts separately; without a quiet period nothing counts."""
    book = Restlessness()
    book.took(("web", "batch"), 0)
    for pool, quiet in (("web", QUIET), ("web", QUIET), ("batch", QUIET), ("other", QUIET), ("off", 0), ("off", 0)):
        book.took(("off",), 0)
        book.opened(pool, MINUTE, quiet)
    assert book.until(QUIET, MINUTE) == {"web": 31 * MINUTE}


class Noting(ScriptedPlanner):
    """Record every query."""

    asked: Question

    def round(self, question: Question) -> Found:
        """Answer as the script says."""
        self.asked = question
        return super().round(question)


def _claims(driver: Driver, *opened: str, **annotations: str) -> None:
    for name in opened:
        meta = ObjectMeta(name=name, labels={names.NODEPOOL: "web"}, annotations=annotations)
        driver.world.put(NodeClaim(metadata=meta))
    changes, driver.world.changes = driver.world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(20)


@pytest.mark.parametrize(
    ("want", "quiet", "ours", "restless"),
    [
        ("cost-delete", QUIET, False, True),
        ("cost-delete", 0, False, False),
        ("cost-delete", QUIET, True, False),
        ("delete", QUIET, False, False),
        ("", QUIET, False, False),
    ],
    ids=["for cost", "off", "our own replacements", "for another reason", "no command"],
)
def test_the_engine_tells_the_round_which_pools_are_restless(want: str, quiet: int, ours: bool, restless: bool) -> None:
    """A cost command followed by two NodeClaims of others makes the pool restless in the next round."""
    world, planner = World(), Noting()
    world.add_pool()
    world.add_node("z")
    world.add_node("a", want=want)
    driver = Driver(world, engine_for(replace(CALM, quiet_before_haste=quiet), planner)).begin().run(60)
    marks = {names.HOLD: "x"} if ours else {}
    _claims(driver, "n1", **marks)
    assert not planner.asked.restless
    _claims(driver, "n2", **marks)
    assert set(planner.asked.restless) == ({"web"} if restless else set())
    driver.run(31 * 60)
    assert not driver.engine._state.question().restless


def test_what_is_asked_for_by_default() -> None:
    """The quiet period is off by default, and in the recommended policy, which learns how long savings last."""
    assert DOVETAIL.quiet_before_haste == RECOMMENDED.quiet_before_haste == 0
