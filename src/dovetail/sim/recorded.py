"""A recording as a scenario, what really came of it, and how well a replay of the same policy agrees with that.

The load is `scenarios.recorded_load`'s. The policy that really ran is Karpenter's own for pools that Dovetail did not
manage, and Dovetail's for those that it did. Sits in sim; `cli.simulation.replay` prints it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import mean
from typing import Any, Final

from dovetail.api.findings import InputError
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings, Tariff
from dovetail.recordings.read import ClaimLife, ClusterRecording, PodLife
from dovetail.recordings.regret import SHORT_LIFE, moved_pods
from dovetail.sim.calibration import Calibration, calibrate_stretch
from dovetail.sim.compare import billed_alike, run_all
from dovetail.sim.ledger import Result
from dovetail.sim.recorded_bill import life_of, recorded_cost
from dovetail.sim.replay import Played
from dovetail.sim.scenarios.recorded_load import pools_of
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.sections import ScenarioFile
from dovetail.sim.workers import Progress

TODAY: Final = "today"
_NANOSECOND: Final = 1000
_DOLLAR: Final = 10**18
_SHORTEST: Final = timedelta(minutes=1)


def check_length(recording: ClusterRecording) -> None:
    """Raise if there is nothing to replay."""
    if recording.ends - recording.begins < _SHORTEST:
        raise InputError("the recording is shorter than a minute: there is nothing to replay")


def recorded_scenario(
    recording: ClusterRecording, catalogue: Catalogue, policies: Sequence[Policy], tariff: Tariff | None = None
) -> Scenario:
    """Return the scenario that replays a recording from its first second to its last; `tariff`: what is really paid."""
    check_length(recording)
    length = recording.ends - recording.begins
    cluster = recording.cluster_at(recording.begins)
    if not pools_of(recording):
        raise InputError("the recording has no NodePool: Karpenter does not manage these nodes")
    span = length // timedelta(microseconds=1) * _NANOSECOND
    return Scenario(
        name="recording",
        about="",
        source="recording",
        start=recording.begins,
        until=span,
        warm_up=0,
        file=ScenarioFile(name="recording", until=f"{int(length.total_seconds())}s", catalogue=(), policies={}),
        policies=tuple(policies),
        captured=cluster,
        recorded=recording,
        catalogue=catalogue,
        figures_only=True,
        tariff=tariff,
    )


def policy_of_today(recording: ClusterRecording, settings: Settings = DOVETAIL) -> Policy:
    """Return the policy that ran while the recording was made."""
    pools = pools_of(recording)
    every = tuple(sorted(pool.metadata.name for pool in pools))
    managed = tuple(
        sorted(
            pool.metadata.name
            for pool in pools
            if pool.metadata.labels.get(names.MANAGE) == "true" or pool.metadata.name in settings.pools
        )
    )
    if not managed:
        return Policy(name=TODAY, settings=KARPENTER_1_15)
    return Policy(name=TODAY, settings=replace(settings, pools=()), managed=managed, beside_karpenter=managed != every)


def name_of(policy: Policy) -> str:
    """Return what a policy of today is called: `karpenter-1.15`, `dovetail` or `mixed`."""
    if policy.settings.rules.plays_karpenter:
        return policy.settings.profile.value
    return "mixed" if policy.beside_karpenter else "dovetail"


# ---------------------------------------------------------------- what really happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Reality:
    """What a recording says came of the policy that ran."""

    recording: ClusterRecording

    def figures(self) -> dict[str, float]:
        """Return bill, node hours and restarts, as CALIBRATION names them."""
        return {
            "cost": round(sum(self._hours(claim) * float(claim.price or 0) for claim in self.recording.claims), 6),
            "nodeHours": round(sum(self._hours(claim) for claim in self.recording.claims), 4),
            "podsDisrupted": float(len(self.moved())),
        }

    def moved(self) -> list[PodLife]:
        """Return the pods that had to restart because their node went, oldest end first."""
        return moved_pods(self.recording)

    def unpriced(self) -> int:
        """Return how many machines have no known price."""
        return sum(claim.price is None for claim in self.recording.claims if self._hours(claim) > 0)

    def nodes_at(self, at: datetime) -> int:
        """Return how many machines ran."""
        return sum(begin <= at < end for begin, end in map(self._life, self.recording.claims))

    def cost_at(self, at: datetime) -> float:
        """Return what the machines that ran cost per hour."""
        lives = ((self._life(claim), float(claim.price or 0)) for claim in self.recording.claims)
        return sum(price for (begin, end), price in lives if begin <= at < end)

    def _life(self, claim: ClaimLife) -> tuple[datetime, datetime]:
        return life_of(claim, self.recording)

    def _hours(self, claim: ClaimLife) -> float:
        begin, end = self._life(claim)
        inside = min(end, self.recording.ends) - max(begin, self.recording.begins)
        return max(0.0, inside.total_seconds() / 3600)


def calibrate_recorded(
    recording: ClusterRecording, results: Sequence[Result], today: str, cost: float | None = None
) -> Calibration:
    """Compare the replays of the policy that really ran with what really happened.

    `cost`: what the machines really cost, if that is not the sum of their prices (`sim.recorded_bill`).
    """
    simulated = {
        "cost": round(mean(result.cost for result in results) / _DOLLAR, 6),
        "nodeHours": round(mean(result.node_hours for result in results), 4),
        "podsDisrupted": round(mean(float(result.pods_disrupted) for result in results), 2),
    }
    real = Reality(recording=recording).figures()
    if cost is not None:
        real["cost"] = round(cost, 6)
    return calibrate_stretch(real, simulated, today)


def course_of(recording: ClusterRecording, result: Result) -> list[dict[str, Any]]:
    """Return both courses minute by minute: nodes and dollars per hour, real and simulated."""
    reality = Reality(recording=recording)
    found = []
    series = result.series
    due = 0.0
    for index, second in enumerate(series.seconds):
        if second < due:
            continue
        due = second + 60
        at = recording.begins + timedelta(seconds=second)
        found.append(
            {
                "minute": round(second / 60, 2),
                "nodes": reality.nodes_at(at),
                "simulatedNodes": series.nodes[index],
                "costPerHour": round(reality.cost_at(at), 4),
                "simulatedCostPerHour": round(series.cost_per_hour[index], 4),
            }
        )
    return found


# ---------------------------------------------------------------- playing


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedRecording:
    """A recording under several policies; the first is the one that really ran.

    `cost`: what the machines really cost, if that is not the sum of their prices.
    """

    recording: ClusterRecording
    today: str
    policies: tuple[str, ...]
    results: tuple[tuple[Result, ...], ...]
    cost: float | None = None

    @property
    def calibration(self) -> Calibration:
        """Return how well the replay of the policy that ran agrees with what happened."""
        return calibrate_recorded(self.recording, self.results[0], self.today, self.cost)

    def notes(self) -> list[str]:
        """Return what the reader must know of the recording before its figures."""
        found = []
        gaps = sum(((gap.ends - gap.begins) for gap in self.recording.gaps), timedelta(0))
        if gaps:
            found.append(
                f"{len(self.recording.gaps)} gaps, {gaps.total_seconds() / 3600:.1f} hours in all: nothing is known "
                "of these, and the load stands still in them."
            )
        if self.recording.missing:
            found.append(f"Not recorded: {', '.join(self.recording.missing)}.")
        if self.recording.guessed:
            found.append(f"Guessed, not seen: {', '.join(self.recording.guessed)}.")
        unpriced = Reality(recording=self.recording).unpriced()
        if unpriced:
            found.append(f"{unpriced} machines have no recorded price and count as free.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `dovetail replay` on a recording of a cluster."""
        return {
            "today": self.today,
            "calibration": self.calibration.to_dict(),
            "course": course_of(self.recording, self.results[0][0]),
            "recorded": self._recorded(),
            "policies": [
                Played(policy=name, results=results).to_dict()
                for name, results in zip(self.policies, self.results, strict=True)
            ],
        }

    def _recorded(self) -> dict[str, Any]:
        lives = [(claim.created, claim.gone) for claim in self.recording.claims]
        short = sum(made is not None and gone is not None and gone - made < SHORT_LIFE for made, gone in lives)
        ended = [claim for claim in self.recording.claims if claim.gone is not None and claim.reason]
        real = Reality(recording=self.recording).figures()
        return {**real, "shortLivedNodes": short, "commands": len(ended)}


def play_recorded(
    recording: ClusterRecording,
    catalogue: Catalogue,
    policies: Sequence[Policy],
    seeds: int,
    progress: Progress | None = None,
    *,
    timeline: bool = False,
    tariff: Tariff | None = None,
) -> PlayedRecording:
    """Play every policy on every seed, on all cores; the first policy is the one that really ran.

    `timeline`: keep the history of the first seed, for a page. `tariff`: what is really paid.
    """
    scenario = billed_alike(recorded_scenario(recording, catalogue, policies, tariff), policies)
    tasks = [
        (replace(scenario, figures_only=not timeline or seed > 0), policy, seed, scenario.until)
        for policy in policies
        for seed in range(seeds)
    ]
    results = run_all(tasks, progress)
    return PlayedRecording(
        recording=recording,
        cost=None if scenario.tariff is None else recorded_cost(recording, catalogue, scenario.tariff),
        today=name_of(policies[0]),
        policies=tuple(policy.name for policy in policies),
        results=tuple(tuple(results[at * seeds : (at + 1) * seeds]) for at in range(len(policies))),
    )
