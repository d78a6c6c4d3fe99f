"""Runs several policies (and seeds) of a scenario in parallel, one process each, and orders the results.

Results are in the order of the tasks, whatever finishes first, so the same question gives the same bytes on one core or
on many. Pages are built from `Comparison.story`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from dovetail.api.findings import InputError
from dovetail.model.timing.duration import format_duration
from dovetail.sim.calibration import Calibration
from dovetail.sim.ledger import Interim, Result
from dovetail.sim.pages.comparison import PolicyPage as Story
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.workers import Heard, Progress, run_in_workers
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.world import START

__all__ = ["Comparison", "Progress", "Task", "billed_alike", "compare", "cores", "run_all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The same scenario under several policies; `until` in nanoseconds."""

    scenario: str
    about: str
    seed: int
    until: int
    results: tuple[Result, ...]
    start: datetime = START
    calibration: Calibration | None = None

    def figures(self) -> dict[str, Any]:
        """Return the contract's `simulate -o json`."""
        calibration = {} if self.calibration is None else {"calibration": self.calibration.to_dict()}
        return {
            **calibration,
            "scenario": self.scenario,
            "seed": self.seed,
            "until": format_duration(self.until),
            "policies": [result.to_dict() for result in self.results],
        }

    def story(self) -> Story:
        """Return the same, as pages and sentences take it."""
        return Story(
            scenario=self.scenario,
            about=self.about,
            seed=self.seed,
            seconds=self.until / SECOND,
            results=self.results,
            start=self.start,
        )


def cores() -> int:
    """Return how many processes may run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def compare(
    scenario: Scenario,
    policies: Sequence[Policy],
    seed: int = 0,
    until: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run every policy on the same seed, billed alike."""
    scenario = billed_alike(scenario, policies)
    tasks = [(scenario, policy, seed, until) for policy in policies]
    return Comparison(
        scenario=scenario.name,
        about=scenario.about,
        seed=seed,
        until=scenario.until if until is None else until,
        results=tuple(run_all(tasks, progress)),
        start=measured_from(scenario),
    )


def billed_alike(scenario: Scenario, policies: Sequence[Policy]) -> Scenario:
    """Return the scenario with the tariff that the policies name, if it has none of its own.

    A bill under commitments compares with no bill without them. Raise if the policies name different ones.
    """
    if scenario.tariff is not None:
        return scenario
    named = [policy for policy in policies if policy.settings.tariff]
    if not named:
        return scenario
    first = named[0]
    other = next((policy for policy in named if policy.settings.tariff != first.settings.tariff), None)
    if other is not None:
        raise InputError(
            f"policies {first.name} and {other.name} name different commitments, discounts or surcharges; write them "
            "once, under `prices` of the scenario, so that all policies are billed alike"
        )
    return replace(scenario, tariff=first.settings.tariff)


def measured_from(scenario: Scenario) -> datetime:
    """Return when the measured part of a scenario begins: after its warm-up."""
    return scenario.start + timedelta(microseconds=scenario.warm_up // 1000)


Task = tuple[Scenario, Policy, int, int | None]


def run_all(
    tasks: Sequence[Task],
    progress: Progress | None = None,
    workers: int | None = None,
    done: Callable[[int, Result], None] | None = None,
    heard: Heard | None = None,
) -> list[Result]:
    """Run all tasks, on as many cores as there are; results in the order of the tasks.

    `done` is called with each result as it comes, and the index of its task; `heard` with each run's figures so far.
    """
    workers = min(len(tasks), cores() if workers is None else workers)
    if workers > 1:
        return run_in_workers(run_task, tasks, workers, progress, done, heard)
    results = []
    for index, task in enumerate(tasks):
        results.append(_alone(task, index, len(tasks), progress, heard))
        if done is not None:
            done(index, results[-1])
    return results


def _alone(task: Task, index: int, total: int, progress: Progress | None, heard: Heard | None) -> Result:
    def part(share: float, figures: Interim) -> None:
        if progress is not None:
            progress((index + share) / total)
        if heard is not None:
            heard(index, share, figures)

    return run_scenario(*task, watch=part)


def run_task(task: Task, progress: Progress) -> Result:
    """Run one task; module level, so that a worker can import it."""
    note = getattr(progress, "note", None)
    return run_scenario(*task, progress=None if note else progress, watch=note)
