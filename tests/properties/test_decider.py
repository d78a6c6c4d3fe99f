"""A decider with memory answers as the oracle, which has none: every question is asked both ways.

The questions are those of simulated days, of the swarm's runs with faults and of the golden cases. `make test` asks a
part of them, CI more, `make test-long` all: whole days and more seeds.
"""

from dataclasses import fields, replace
from datetime import timedelta

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.round import RoundResult, decide
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.cached import cached
from dovetail.model.command import Command
from dovetail.model.settings import DOVETAIL
from dovetail.sim.checks.swarm import run_seed
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario, recommended_policy
from dovetail.sim.world.clock import MINUTE
from tests.support.golden_cases import GoldenCase, golden_cases
from tests.support.golden_decisions import question_of
from tests.support.sizes import LONG, size

VERDICTS_EVERY = 1 if LONG else 10
"""Of how many rounds one is read to the last verdict: verdicts take most of the time."""
_COMPARED = [
    *(field.name for field in fields(RoundResult) if field.name not in ("scene", "done", "runs")),
    *(
        name
        for name, part in vars(RoundResult).items()
        if isinstance(part, cached | property) and name not in ("verdicts", "brief_verdicts", "_in_brief", "catalogue")
    ),
]
"""What a result says, but for the verdicts."""


class Oracle(Decider):
    """Decide without memory."""

    def __init__(self) -> None:
        super().__init__(memory=False)


class BothWays(Decider):
    """Answer with memory, and check each answer against the oracle's."""

    asked = 0

    def scene(self, question: Question) -> Scene:
        """Return the view with memory after checking that a whole round on it equals the oracle's."""
        compare(decide(Work(super().scene(question))), decide(Work(Oracle().scene(question))), BothWays.asked)
        BothWays.asked += 1
        return super().scene(question)

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Check that both deciders validate the command equally."""
        answer = super().revalidate(command, question)
        assert answer == Oracle().revalidate(command, question)
        return answer


def compare(one: RoundResult, other: RoundResult, number: int = 0) -> None:
    """Check that two results are equal; for most, without the verdicts."""
    for name in _COMPARED:
        assert getattr(one, name) == getattr(other, name), name
    if number % VERDICTS_EVERY == 0:
        assert one.verdicts == other.verdicts
        for result in (one, other):
            full = [(entry.node, entry.node_pool, entry.verdict) for entry in result.verdicts]
            assert list(map(tuple, result.brief_verdicts)) == full
            assert [result.why(entry.node) for entry in result.verdicts[::20]] == [v.why for v in result.verdicts[::20]]


@pytest.fixture(autouse=True)
def _both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every engine, and the simulated Karpenter's loop, query both deciders."""
    monkeypatch.setattr("dovetail.lifecycle.engine.Decider", BothWays)
    monkeypatch.setattr("dovetail.sim.world.karpenter.loop.Decider", BothWays)
    monkeypatch.setattr(BothWays, "asked", 0)


DAYS = [
    ("issue-7146", "karpenter-1.15", 20),
    ("issue-7146", "both", 40),
    ("day-night", "both", 30),
    ("image-roll", "zone-by-zone", 30),
    ("fleet-expiry", "graceful", 60),
    ("spot-market", "threshold", 30),
    ("batch-churn", "grace-5m", 20),
    ("day-night", "recommended", 15),
    ("batch-churn", "recommended", 15),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "policy", "minutes"), DAYS)
def test_every_question_of_a_simulated_day(name: str, policy: str, minutes: int) -> None:
    """Rounds and validations of a run get the same answers with and without memory."""
    scenario = load_scenario(name)
    chosen = next(entry for entry in (*scenario.policies, recommended_policy()) if entry.name == policy)
    run_scenario(scenario, chosen, seed=1, until=scenario.until if LONG else minutes * MINUTE)
    assert BothWays.asked >= 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(size(test=8, ci=30, long=200)))
def test_every_question_of_a_run_with_faults(seed: int) -> None:
    """Crashes, lost events and clock jumps change no answer."""
    assert not run_seed(seed).violations
    assert BothWays.asked >= 1


CASES = golden_cases()[:: size(test=4, ci=1, long=1)]


@pytest.mark.parametrize("first", range(0, len(CASES), 25))
def test_every_golden_case(first: int) -> None:
    """One decider is asked about cluster after cluster, at one time, later and earlier again, under both profiles."""
    decider, oracle = Decider(), Oracle()
    for case in CASES[first : first + 25]:
        for question in _questions(case):
            compare(decider.round(question), oracle.round(question))


def _questions(case: GoldenCase) -> list[Question]:
    theirs = question_of(case)
    ours = question_of(case, replace(DOVETAIL, nominated_nodes=case.settings.nominated_nodes))
    later = replace(ours, now=ours.now + timedelta(hours=1))
    return [theirs, ours, later, ours]
