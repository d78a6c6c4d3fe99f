"""Many policies on many seeds: what each costs, what each disrupts, which are worth considering, and which to choose.

A grid file names a base policy of the scenario and the values to vary; every combination runs on every seed, on this
machine's cores or on a Dask cluster (`sim.engines`), and beside them `karpenter-1.15`, the baseline. The front holds
the policies that no other beats on both mean cost and mean pods disrupted; which of them is recommended follows
`sim.weighing`. Sorted throughout: every engine gives the same document.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, Final

import msgspec

from dovetail.api.findings import InputError
from dovetail.api.manifests.manifest_shapes import DISRUPTION
from dovetail.api.policy import effective_policy
from dovetail.api.policy_change import with_policy_field
from dovetail.api.reading.yaml_tree import parse_yaml
from dovetail.api.settings import SETTINGS, settings_of
from dovetail.model.money import parse_money
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED_NAME
from dovetail.model.timing.duration import DurationError, parse_nillable
from dovetail.sim.compare import Task, billed_alike
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.scenario import Policy, Scenario, recommended_policy
from dovetail.sim.weighing import RULE, score, undecided

_FIRST: Final = ("consolidationGracePeriod", "consolidationSavingsThreshold", "consolidateAfter")
VARIED: Final = (*_FIRST, *(key for key in DISRUPTION.fields if key not in _FIRST))
"""Fields of spec.disruption, in the order in which they stand in a policy's name; settings can be varied as well."""
_SHORT: Final = dict(zip(_FIRST, ("grace", "threshold", "after"), strict=True))
BASELINE: Final = "karpenter-1.15"
RUNS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What to try: a base policy, values per field, how many seeds."""

    base: str
    vary: dict[str, tuple[Any, ...]]
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStanding:
    """A policy over all its seeds."""

    policy: str
    cost: float
    cost_spread: float
    disrupted: float
    disrupted_spread: float
    violations: int
    scores: tuple[float, ...] = ()
    """Bill and restarts weighed (`sim.weighing`), seed by seed."""

    @property
    def score(self) -> float:
        """Return bill and restarts weighed, on average."""
        return score(self.cost, self.disrupted)


def load_grid(path: str | Path, scenario: Scenario) -> Grid:
    """Read a grid file; what is wrong is said with the file, the field and what to write."""
    name = str(path)
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InputError(f"{name}: it can't be read ({why}); check its name") from None
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
        raise InputError(f"{name}: {unknown[0]} is not a field of a grid; valid fields: base, vary and seeds")
    own = [*dict.fromkeys([*(policy.name for policy in scenario.policies), RECOMMENDED_NAME])]
    base = tree.get("base", own[0])
    if base not in own:
        raise InputError(f"{name}: base is {base!r}; {scenario.name} has the policies {', '.join(own)}")
    seeds = tree.get("seeds", 3)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or not 1 <= seeds <= 1000:
        raise InputError(f"{name}: seeds is {seeds!r}; write a number from 1 to 1000")
    vary = tree.get("vary")
    if not isinstance(vary, dict) or not vary:
        raise InputError(f"{name}: vary is missing; write e.g. vary: {{consolidationGracePeriod: [10m, 30m]}}")
    values: dict[str, tuple[Any, ...]] = {}
    for key, entries in vary.items():
        if key not in VARIED and key not in SETTINGS:
            near = difflib.get_close_matches(str(key), [*VARIED, *SETTINGS], n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"these can, and every setting: {', '.join(VARIED)}"
            raise InputError(f"{name}: vary.{key} can't be varied; {hint}")
        if not isinstance(entries, list) or not entries:
            raise InputError(f"{name}: vary.{key} is {entries!r}; write a list of values")
        values[key] = tuple(_value(name, key, entry) for entry in entries)
    runs = seeds
    for found in values.values():
        runs *= len(found)
    if runs > RUNS_MAX:
        raise InputError(f"{name}: that is {runs:,} runs; {RUNS_MAX:,} is the most, so vary less or use fewer seeds")
    ordered = [*VARIED, *(key for key in SETTINGS if key not in VARIED)]
    return Grid(base=base, vary={key: values[key] for key in ordered if key in values}, seeds=seeds)


def _value(name: str, key: str, entry: object) -> Any:
    if key == "consolidationSavingsThreshold":
        try:
            if isinstance(entry, int | float) and not isinstance(entry, bool) and parse_money(entry) >= 0:
                return entry
        except ValueError:
            pass
        raise InputError(f"{name}: vary.{key} holds {entry!r}; write dollars per hour, 0 or more, such as 0.01")
    if key not in VARIED:
        try:
            settings_of({key: entry}, DOVETAIL)
        except InputError as error:
            raise InputError(f"{name}: vary.{key}: {error}") from None
        return entry
    if key in ("consolidationGracePeriod", "consolidateAfter"):
        try:
            parse_nillable(str(entry), "smh")
        except DurationError as error:
            raise InputError(f"{name}: vary.{key}: {error}") from None
        return str(entry)
    problem = next((text for text in _problems(key, entry)), None)
    if problem is not None:
        raise InputError(f"{name}: vary.{key}: {problem}")
    return entry


def _problems(key: str, entry: object) -> tuple[str, ...]:
    """Return why a pool could not have this value in its policy."""
    try:
        pool = with_policy_field(NodePool(), key, entry)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        return (f"{entry!r} can't be read ({error})",)
    return effective_policy(pool, DOVETAIL).problems


def tasks_of(scenario: Scenario, grid: Grid, until: int | None) -> list[Task]:
    """Return every combination on every seed, in a fixed order."""
    base = next(policy for policy in (*scenario.policies, recommended_policy()) if policy.name == grid.base)
    tasks: list[Task] = []
    for combination in product(*grid.vary.values()):
        chosen = dict(zip(grid.vary, combination, strict=True))
        settings = {key: value for key, value in chosen.items() if key not in VARIED}
        policy = replace(
            base,
            name=",".join(f"{_SHORT.get(key, key)}={_shown(value)}" for key, value in chosen.items()),
            settings=settings_of(settings, base.settings) if settings else base.settings,
            disruption={**base.disruption, **{key: value for key, value in chosen.items() if key in VARIED}},
        )
        tasks += [(scenario, policy, seed, until) for seed in range(grid.seeds)]
    billed = billed_alike(scenario, [task[1] for task in tasks])
    return [(billed, *task[1:]) for task in tasks]


def baseline_tasks(scenario: Scenario, grid: Grid, until: int | None) -> list[Task]:
    """Return Karpenter's own rules on every seed: what all policies are measured against."""
    own = next((policy for policy in scenario.policies if policy.name == BASELINE), None)
    policy = own or Policy(name=BASELINE, settings=KARPENTER_1_15)
    base = next((entry for entry in scenario.policies if entry.name == grid.base), policy)
    return [(billed_alike(scenario, [base]), policy, seed, until) for seed in range(grid.seeds)]


def _shown(value: Any) -> str:
    """Write a value in a policy's name: budgets as their parts."""
    if isinstance(value, list):
        return "+".join(_shown(entry) for entry in value)
    if isinstance(value, dict):
        return "/".join(str(entry) for entry in value.values())
    return str(value)


def figures_of(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the contract's `runs`."""
    return [{**result.to_dict(), "seed": result.seed} for result in results]


def standings(runs: Sequence[dict[str, Any]]) -> list[PolicyStanding]:
    """Return the policies with their means over the seeds, by name."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        grouped.setdefault(run["policy"], []).append(run)
    return [
        PolicyStanding(
            policy=policy,
            cost=mean(float(run["cost"]) for run in entries),
            cost_spread=pstdev([float(run["cost"]) for run in entries]),
            disrupted=mean(run["podsDisrupted"] for run in entries),
            disrupted_spread=pstdev([run["podsDisrupted"] for run in entries]),
            violations=sum(len(run["violations"]) for run in entries),
            scores=tuple(
                score(float(run["cost"]), run["podsDisrupted"]) for run in sorted(entries, key=lambda run: run["seed"])
            ),
        )
        for policy, entries in sorted(grouped.items())
    ]


def front_of(table: Sequence[PolicyStanding]) -> list[PolicyStanding]:
    """Return those that no other beats on both cost and disruption; equals stay together."""
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


def choose(table: Sequence[PolicyStanding]) -> PolicyStanding:
    """Return the one with the lowest score; of those not significantly different, the cheapest, then fewest moves."""
    best = min(table, key=lambda one: (one.score, one.cost, one.policy))
    equals = [one for one in table if one is best or undecided(one.scores, best.scores)]
    return min(equals, key=lambda one: (one.cost, one.disrupted, one.policy))


def document(scenario: Scenario, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the contract's `sweep -o json`."""
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
        "why": reasons(best, sound, ordered),
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


def reasons(best: PolicyStanding, table: Sequence[PolicyStanding], runs: Sequence[dict[str, Any]]) -> str:
    """Return why this one, against the baseline, by which rule, and how sure that is over the seeds."""
    said = f"{best.policy} costs ${best.cost:.2f} and moves {best.disrupted:.0f} pods on average"
    baseline = next((one for one in table if one.policy == BASELINE), None)
    if baseline is not None and baseline is not best:
        said += f"; {BASELINE} costs ${baseline.cost:.2f} and moves {baseline.disrupted:.0f}"
    cheapest = min(table, key=lambda one: (one.cost, one.policy))
    if cheapest.policy not in (best.policy, BASELINE):
        said += f"; the cheapest, {cheapest.policy}, costs ${cheapest.cost:.2f} and moves {cheapest.disrupted:.0f}"
    close = [one.policy for one in table if one is not best and undecided(one.scores, best.scores)]
    tied = f" {len(close)} of the others can't be told from it by these seeds." if close else ""
    seeds = sorted({run["seed"] for run in runs})
    agreeing = 0
    for seed in seeds:
        alone = standings([run for run in runs if run["seed"] == seed])
        agreeing += choose(front_of(alone)).policy == best.policy
    return f"{said}. {RULE}{tied} It is the choice on {agreeing} of {len(seeds)} seeds taken alone."
