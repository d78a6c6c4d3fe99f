"""`dovetail replay`: a recording of a real run, played again under several policies on several seeds; the means.

The playing itself is `scenarios.recording`'s. Adds what was recorded where the recording holds it. Sits in sim;
`cli.simulation.replay` prints it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.sim.compare import cores
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.recording import Recording, replay
from dovetail.sim.scenarios.scenario import Policy, recommended_policy
from dovetail.sim.workers import Progress, run_in_workers

SHORT_LIFE_SECONDS = 15 * 60
_DOLLAR = 10**18


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One policy on all seeds."""

    policy: str
    results: tuple[Result, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the means over the seeds, as the contract names them."""
        results = self.results
        return {
            "policy": self.policy,
            "seeds": len(results),
            "cost": round(mean(entry.cost for entry in results) / _DOLLAR, 6),
            "podsDisrupted": round(mean(entry.pods_disrupted for entry in results), 3),
            "podsDisruptedMoreThanOnce": round(mean(entry.pods_disrupted_more_than_once for entry in results), 3),
            "shortLivedNodes": round(mean(entry.short_lived_nodes for entry in results), 3),
            "nodeHours": round(mean(entry.node_hours for entry in results), 4),
            "commands": round(mean(len(entry.commands) for entry in results), 3),
            "violations": sum(len(entry.violations) for entry in results),
        }


def default_policies() -> tuple[Policy, ...]:
    """Return the policies that are played where none is named."""
    karpenter = Policy(name="karpenter-1.15", settings=KARPENTER_1_15)
    return (karpenter, Policy(name="default", settings=DOVETAIL), recommended_policy())


Task = tuple[Recording, Catalogue, Policy, int]


def play(task: Task, _: Progress) -> Result:
    """Play once; module level, so that a worker can import it."""
    recording, catalogue, policy, seed = task
    return replay(recording, catalogue, policy.settings, policy.disruption or None, seed, policy.name)


def play_all(
    recording: Recording,
    catalogue: Catalogue,
    policies: Sequence[Policy],
    seeds: int,
    progress: Progress | None = None,
) -> list[Played]:
    """Play every policy on every seed, on all cores; the results are those of one core."""
    tasks = [(recording, catalogue, policy, seed) for policy in policies for seed in range(seeds)]
    workers = min(len(tasks), cores())
    if workers <= 1:
        results = [play(task, lambda share: None) for task in tasks]
    else:
        results = run_in_workers(play, tasks, workers, progress)
    return [
        Played(policy=policy.name, results=tuple(results[at * seeds : (at + 1) * seeds]))
        for at, policy in enumerate(policies)
    ]


def recorded(recording: Recording, catalogue: Catalogue) -> dict[str, Any] | None:
    """Return what the recording itself says came of it; None where it holds no course."""
    if not recording.claims and not recording.commands:
        return None
    end = recording.seconds
    prices = {
        (kind.name, offering.zone, offering.capacity_type): offering.price_float
        for kind in catalogue.instance_types
        for offering in kind.offerings
    }
    node_seconds = cost = 0.0
    short = 0
    for entry in recording.claims:
        seen, gone = float(entry["seen"]), float(entry.get("gone", end))
        lived = max(0.0, min(gone, end) - max(0.0, seen))
        node_seconds += lived
        bought = (entry.get("type", ""), entry.get("zone", ""), entry.get("capacityType", names.ON_DEMAND))
        cost += lived / 3600 * prices.get(bought, 0.0)
        short += "gone" in entry and gone - seen < SHORT_LIFE_SECONDS
    return {
        "cost": round(cost, 6),
        "podsDisrupted": sum(int(entry.get("pods", 0)) for entry in recording.commands),
        "shortLivedNodes": short,
        "nodeHours": round(node_seconds / 3600, 4),
        "commands": len(recording.commands),
    }
