"""Many policies on many seeds: what each costs, what each disturbs, which are worth a look, and which to take.

A grid file names a base policy of the scenario and the values to vary; every combination runs on every seed, on this
machine's cores or on a Dask cluster (`sim.engines`). The front holds the policies that no other beats on both mean cost
and mean pods disrupted; the recommended one lies closest to the corner where both are least, and of equals it is the
calmer. Sorted throughout: every engine gives the same document.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, Final

from dovetail.api.findings import InputError
from dovetail.api.yaml_tree import parse_yaml
from dovetail.model.duration import DurationError, parse_nillable
from dovetail.model.money import parse_money
from dovetail.sim.compare import Task
from dovetail.sim.knee import knee
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.scenario import Scenario

VARIED: Final = ("consolidationGracePeriod", "consolidationSavingsThreshold", "consolidateAfter")
_SHORT: Final = dict(zip(VARIED, ("grace", "threshold", "after"), strict=True))
RUNS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What to try: a base policy, values per field, how many seeds."""

    base: str
    vary: dict[str, tuple[str | int | float, ...]]
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A policy over all its seeds."""

    policy: str
    cost: float
    cost_spread: float
    disrupted: float
    disrupted_spread: float
    violations: int


def load_grid(path: str | Path, scenario: Scenario) -> Grid:
    """Reads a grid file; what is wrong is said with the file, the field and what to write."""
    name = str(path)
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: can't be read ({error.strerror})") from None
    try:
        trees = [document.tree for document in parse_yaml(text)]
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise InputError(
            f"{name}: write one map such as {{base: both, vary: {{consolidateAfter: [15s, 5m]}}, seeds: 5}}"
        )
    return _grid(trees[0], name, scenario)


def _grid(tree: dict[str, Any], name: str, scenario: Scenario) -> Grid:
    unknown = sorted(set(tree) - {"base", "vary", "seeds"})
    if unknown:
        raise InputError(f"{name}: {unknown[0]} is no field of a grid; there are base, vary and seeds")
    own = [policy.name for policy in scenario.policies]
    base = tree.get("base", own[0])
    if base not in own:
        raise InputError(f"{name}: base is {base!r}; {scenario.name} has the policies {', '.join(own)}")
    seeds = tree.get("seeds", 3)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or not 1 <= seeds <= 1000:
        raise InputError(f"{name}: seeds is {seeds!r}; write a number from 1 to 1000")
    vary = tree.get("vary")
    if not isinstance(vary, dict) or not vary:
        raise InputError(f"{name}: vary is missing; write e.g. vary: {{consolidationGracePeriod: [10m, 30m]}}")
    values: dict[str, tuple[str | int | float, ...]] = {}
    for key, entries in vary.items():
        if key not in VARIED:
            raise InputError(f"{name}: vary.{key} can't be varied; these can: {', '.join(VARIED)}")
        if not isinstance(entries, list) or not entries:
            raise InputError(f"{name}: vary.{key} is {entries!r}; write a list of values")
        values[key] = tuple(_value(name, key, entry) for entry in entries)
    runs = seeds
    for found in values.values():
        runs *= len(found)
    if runs > RUNS_MAX:
        raise InputError(f"{name}: that is {runs:,} runs; {RUNS_MAX:,} is the most, so vary less or use fewer seeds")
    return Grid(base=base, vary={key: values[key] for key in VARIED if key in values}, seeds=seeds)


def _value(name: str, key: str, entry: object) -> str | int | float:
    if key == "consolidationSavingsThreshold":
        try:
            if isinstance(entry, int | float) and not isinstance(entry, bool) and parse_money(entry) >= 0:
                return entry
        except ValueError:
            pass
        raise InputError(f"{name}: vary.{key} holds {entry!r}; write dollars per hour, 0 or more, such as 0.01")
    try:
        parse_nillable(str(entry), "smh")
    except DurationError as error:
        raise InputError(f"{name}: vary.{key}: {error}") from None
    return str(entry)


def tasks_of(scenario: Scenario, grid: Grid, until: int | None) -> list[Task]:
    """Every combination on every seed, in a fixed order."""
    base = next(policy for policy in scenario.policies if policy.name == grid.base)
    tasks: list[Task] = []
    for combination in product(*grid.vary.values()):
        chosen = dict(zip(grid.vary, combination, strict=True))
        policy = replace(
            base,
            name=",".join(f"{_SHORT[key]}={value}" for key, value in chosen.items()),
            disruption={**base.disruption, **chosen},
        )
        tasks += [(scenario, policy, seed, until) for seed in range(grid.seeds)]
    return tasks


def figures_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """The contract's `runs`."""
    return [{**result.to_dict(), "seed": result.seed} for result in results]


def standings(runs: Sequence[dict[str, Any]]) -> list[Standing]:
    """The policies with their means over the seeds, by name."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        grouped.setdefault(run["policy"], []).append(run)
    return [
        Standing(
            policy=policy,
            cost=mean(float(run["cost"]) for run in entries),
            cost_spread=pstdev([float(run["cost"]) for run in entries]),
            disrupted=mean(run["podsDisrupted"] for run in entries),
            disrupted_spread=pstdev([run["podsDisrupted"] for run in entries]),
            violations=sum(len(run["violations"]) for run in entries),
        )
        for policy, entries in sorted(grouped.items())
    ]


def front_of(table: Sequence[Standing]) -> list[Standing]:
    """Those that no other beats on both cost and disruption; equals stay together."""
    kept = [
        one
        for one in table
        if not any(
            other.cost <= one.cost
            and other.disrupted <= one.disrupted
            and (other.cost < one.cost or other.disrupted < one.disrupted)
            for other in table
        )
    ]
    return sorted(kept, key=lambda one: (one.cost, one.disrupted, one.policy))


def choose(front: Sequence[Standing]) -> Standing:
    """The one nearest to the corner of least cost and least disruption."""
    return knee(front, cost=lambda one: one.cost, moves=lambda one: one.disrupted, name=lambda one: one.policy)


def document(scenario: Scenario, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The contract's `sweep -o json`."""
    ordered = sorted(runs, key=lambda run: (run["policy"], run["seed"]))
    table = standings(ordered)
    sound = [one for one in table if not one.violations] or table
    front = front_of(sound)
    best = choose(front)
    return {
        "scenario": scenario.name,
        "runs": ordered,
        "front": [one.policy for one in front],
        "recommended": best.policy,
        "why": reasons(best, front, ordered),
        "standings": [
            {
                "policy": one.policy,
                "cost": round(one.cost, 4),
                "costSpread": round(one.cost_spread, 4),
                "podsDisrupted": round(one.disrupted, 2),
                "podsDisruptedSpread": round(one.disrupted_spread, 2),
                "violations": one.violations,
            }
            for one in table
        ],
    }


def reasons(best: Standing, front: Sequence[Standing], runs: Sequence[dict[str, Any]]) -> str:
    """Why this one, and how sure that is over the seeds."""
    cheapest = min(front, key=lambda one: (one.cost, one.policy))
    calmest = min(front, key=lambda one: (one.disrupted, one.policy))
    said = (
        f"{best.policy} costs ${best.cost:.2f} and moves {best.disrupted:.0f} pods on average; the cheapest, "
        f"{cheapest.policy}, costs ${cheapest.cost:.2f} and moves {cheapest.disrupted:.0f}, the calmest, "
        f"{calmest.policy}, costs ${calmest.cost:.2f} and moves {calmest.disrupted:.0f}."
    )
    seeds = sorted({run["seed"] for run in runs})
    agreeing = 0
    for seed in seeds:
        alone = front_of(standings([run for run in runs if run["seed"] == seed]))
        agreeing += choose(alone).policy == best.policy
    return f"{said} It is the choice on {agreeing} of {len(seeds)} seeds taken alone."
