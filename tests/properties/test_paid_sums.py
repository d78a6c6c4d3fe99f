"""What commands promise under commitments adds up: the sum of their savings is the bill before less the bill after.

A round has one command, or several of static pools that promise nothing, so a round's sum is one difference of bills.
Here the same is checked over rounds: one after the other, and while none of the earlier commands has ended.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight, LeavingNode
from dovetail.decide.question import Question
from dovetail.model.command import Command
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED, Search, Settings
from dovetail.plan.apply import apply_commands
from dovetail.plan.to_end import plan_to_end
from dovetail.scheduling.under_way import UnderWay
from tests.properties.test_paid_decisions import a_tariff, types_of
from tests.support.commitments import paying
from tests.support.golden_cases import golden_cases
from tests.support.sizes import size

POLICIES = {
    "dovetail": DOVETAIL,
    "by value": replace(DOVETAIL, search=Search.VALUE, replacements_max=4),
    "recommended": RECOMMENDED,
    "karpenter": KARPENTER_1_15,
}
STEP = size(test=24, ci=12, long=1)
ROUNDS = 4
ROUNDING = 2
"""Units of money, for each command: promises are rounded to whole ones."""


def _questions(settings: Settings, name: str) -> Iterator[tuple[str, Question]]:
    for case in golden_cases()[::STEP]:
        dice = Random(f"{case.name} {name}")
        paid = paying(settings, **a_tariff(dice, types_of(case)))
        yield case.name, Question(cluster=case.cluster, catalogue=case.catalogue, settings=paid, now=case.now)


@pytest.mark.parametrize("name", POLICIES)
def test_rounds_one_after_the_other(name: str) -> None:
    """The end of `--to-end` is the sum of what its commands promise, round by round."""
    commands = 0
    for case, question in _questions(POLICIES[name], name):
        promised = made = 0
        for step in plan_to_end(question, ROUNDS).steps:
            promised += sum(command.savings for command in step.commands)
            made += len(step.commands)
            assert abs(step.saved - promised) <= ROUNDING * made, (case, step.round)
        commands += made
    assert commands


def _in_flight(commands: list[Command], question: Question) -> InFlight:
    leaving = [
        LeavingNode(node=node, method=command.method, since=question.now)
        for command in commands
        for node in command.nodes
    ]
    plans = UnderWay(
        launches=tuple(entry for command in commands for entry in command.replacements),
        placements=tuple(entry for command in commands for entry in command.placements),
    )
    return InFlight(leaving=tuple(leaving), under_way=plans)


def test_commands_in_flight_at_the_same_time() -> None:
    """A command counts with what earlier ones take and launch, though these have not ended."""
    several = 0
    ours = [name for name in POLICIES if name != "karpenter"]
    for case, question in (entry for name in ours for entry in _questions(POLICIES[name], name)):
        start = Decider().round(question)
        commands = list(start.commands)
        while commands and len(commands) < ROUNDS:
            asked = replace(question, in_flight=_in_flight(commands, question))
            found = Decider().round(asked).commands
            commands += found
            if not found:
                break
        several += len(commands) > 1
        end = apply_commands(question.cluster, commands, question.catalogue, question.now).cluster
        saved = start.staying_cost - Decider().round(replace(question, cluster=end)).staying_cost
        assert abs(saved - sum(command.savings for command in commands)) <= ROUNDING * len(commands), case
    assert several
