"""Machines that Dovetail launches to save money stay for a while (docs/rules.md#one-price)."""

import pytest

from dovetail.model.command import Action
from dovetail.model.timing.duration import HOUR, SECOND
from dovetail.sim.ledger import SHORT_LIFE
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario, recommended_policy
from tests.support.sizes import size

COURSES = [("issue-7146", 0, 6), ("batch-churn", 1, 5)]


@pytest.mark.parametrize(("course", "seed", "hours"), COURSES[: size(test=1, ci=2, long=2)])
def test_no_machine_is_launched_for_a_few_minutes(course: str, seed: int, hours: int) -> None:
    """Under `recommended`, one that a cost command launched lives a quarter of an hour, unless it became empty."""
    timeline = run_scenario(load_scenario(course), recommended_policy(), seed, hours * HOUR).timeline
    cost = [taken for taken in timeline.commands if taken.action == Action.REPLACE_COST.value]
    launched = {name for taken in cost for name in taken.replacements}
    over = [machine for machine in timeline.machines if machine.name in launched and machine.ended >= 0]
    short = [machine for machine in over if (machine.ended - machine.started) * SECOND < SHORT_LIFE]
    assert [machine for machine in short if machine.fate != "empty"] == []
    assert launched or course != "batch-churn", "this course launches one"
