"""Looks that the engine saves would have found nothing: looking every time, at every command, gives the same run."""

from collections.abc import Container

import pytest

from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.lookout import Lookout
from dovetail.lifecycle.commands.marks import Marks
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import InstructionFailed, InstructionSucceeded
from dovetail.sim.checks.swarm import run_seed
from dovetail.sim.ledger import Result
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.world.clock import MINUTE
from tests.support.sizes import size

SAVED = {"looks": 0}


class _All(Lookout):
    """Select every command after any event."""

    def chosen(self, runs: dict[str, Run], elapsed: int, *, something_happened: bool) -> list[Run]:
        fewer = super().chosen(runs, elapsed, something_happened=something_happened)
        found = list(runs.values()) if something_happened else fewer
        SAVED["looks"] += len(found) - len(fewer)
        return found


class _Searched(Marks):
    """Search all marks whenever one has changed."""

    def have_changed(self, controller: str, *known: Container[str]) -> bool:
        SAVED["looks"] += not super().have_changed(controller, *known)
        return True


class _Busy(Engine):
    """Look at everything after every answer, also after the thousandth hold of the same moment."""

    def _answer(self, event: InstructionSucceeded | InstructionFailed):  # type: ignore[no-untyped-def]
        SAVED["looks"] += self._idle_at is not None and self._idle_at == self._state.moment
        self._idle_at = None
        return super()._answer(event)


@pytest.fixture
def all_looked_at(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return a patch that is not active yet."""
    SAVED["looks"] = 0
    return monkeypatch


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + size(test=6, ci=15, long=150)))
def test_a_run_with_faults(seed: int, all_looked_at: pytest.MonkeyPatch) -> None:
    """The run is the same with crashes, lost answers and vanished objects."""
    outcome = run_seed(seed)
    all_looked_at.setattr("dovetail.lifecycle.command_runner.Lookout", _All)
    all_looked_at.setattr("dovetail.lifecycle.store.Marks", _Searched)
    all_looked_at.setattr("dovetail.sim.world.world.Engine", _Busy)
    assert run_seed(seed) == outcome


@pytest.mark.parametrize(
    ("name", "policy", "minutes"),
    [("issue-7146", "recommended", 30), ("image-roll", "flat", 40), ("batch-churn", "threshold", 20)],
)
def test_a_run(name: str, policy: str, minutes: int, all_looked_at: pytest.MonkeyPatch) -> None:
    """The run is the same with evictions, replacements and drains, and some checks are skipped."""
    before = _run(name, policy, minutes)
    all_looked_at.setattr("dovetail.lifecycle.command_runner.Lookout", _All)
    assert _run(name, policy, minutes) == before
    assert SAVED["looks"] > 0


@pytest.mark.parametrize(
    ("name", "policy", "minutes"), [("issue-7146", "recommended", 30), ("batch-churn", "threshold", 20)]
)
def test_answers_of_one_moment(name: str, policy: str, minutes: int, all_looked_at: pytest.MonkeyPatch) -> None:
    """The run is the same if every answer to a hold makes the engine look, and some of these looks are saved."""
    before = _run(name, policy, minutes)
    all_looked_at.setattr("dovetail.sim.world.world.Engine", _Busy)
    assert _run(name, policy, minutes) == before
    assert SAVED["looks"] > 0


def _run(name: str, policy: str, minutes: int) -> Result:
    scenario = load_scenario(name)
    chosen = next(entry for entry in scenario.policies if entry.name == policy)
    return run_scenario(scenario, chosen, 0, minutes * MINUTE)
