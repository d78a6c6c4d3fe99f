"""`dovetail whatif`: the last day of a captured cluster, replayed under its policy, Karpenter's, and a changed one.

The capture says what was there a day ago and which pods came since (`scenarios.arrivals`); a capture whose pods are all
older runs on from its own time instead. Same seed and same world for all three; several seeds show the scatter. The
recommendation follows one rule, which it states. Decides nothing about disruption. Sits in sim;
`cli.simulation.whatif` prints it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import mean, pstdev
from typing import Any, Final

from dovetail.api.findings import InputError
from dovetail.api.policy_change import check_changes, patch_of
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.money import UNIT
from dovetail.model.settings import KARPENTER_1_15, RECOMMENDED, Settings
from dovetail.model.timing.duration import HOUR, MINUTE, format_duration
from dovetail.sim.compare import run_all
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.arrivals import stays_of
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.sections import ScenarioFile
from dovetail.sim.weighing import RESTART_PRICE, score, undecided
from dovetail.sim.workers import Progress

BASELINE: Final = "baseline"
CHANGED: Final = "changed"
WARM_UP: Final = 10 * MINUTE
SECONDS_PER_NODE_HOUR: Final = 0.02
"""How long a node's hour takes to simulate on an ordinary core, roughly; for the first estimate only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is asked: a cluster as of `now`, the change, the pools that it is for, how long to replay."""

    cluster: Cluster
    catalogue: Catalogue
    settings: Settings
    now: datetime
    fields: Mapping[str, Any]
    pools: tuple[str, ...]
    length: int
    seed: int = 0
    seeds: int = 1
    recommended: bool = False

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the pools that the change is for, by name."""
        every = tuple(pool.metadata.name for pool in self.cluster.node_pools)
        return tuple(name for name in every if not self.pools or name in self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWindow:
    """The time that is replayed. `arrivals`: how many pods come in it; 0: the capture runs on from its own time."""

    begin: datetime
    end: datetime
    arrivals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Whether to apply the change, and why."""

    apply: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """What the change makes of the bill (dollars) and of the restarts: means over the seeds, and how they scatter."""

    seeds: int
    cost: float
    cost_spread: float
    restarts: float
    restarts_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """The three runs on the first seed, the same on further seeds (`others`), what to do, and how."""

    asked: WhatIf
    window: ReplayWindow
    baseline: Result
    karpenter: Result
    changed: Result
    recommendation: Recommendation
    patch: dict[str, Any]
    others: tuple[tuple[Result, Result, Result], ...] = ()

    @property
    def scatter(self) -> Scatter | None:
        """Return how the difference that the change makes scatters; None with one seed."""
        pairs = [(baseline, changed) for baseline, _, changed in self._trios]
        return scatter_of(pairs) if self.others else None

    @property
    def results(self) -> tuple[Result, Result, Result]:
        """Return all three, in the order they are shown."""
        return self.baseline, self.karpenter, self.changed

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the contract; with several seeds, every run and the scatter too."""
        return {**self._one_seed(), **self._all_seeds()}

    def _all_seeds(self) -> dict[str, Any]:
        scatter = self.scatter
        if scatter is None:
            return {"seeds": 1}
        runs = [dict(zip(("baseline", "karpenter", "changed"), trio, strict=True)) for trio in self._trios]
        return {
            "seeds": len(runs),
            "runs": [
                {"seed": self.asked.seed + at, **{key: result.to_dict() for key, result in trio.items()}}
                for at, trio in enumerate(runs)
            ],
            "scatter": {
                "cost": {"mean": round(scatter.cost, 4), "spread": round(scatter.cost_spread, 4)},
                "podsDisrupted": {"mean": round(scatter.restarts, 2), "spread": round(scatter.restarts_spread, 2)},
            },
        }

    @property
    def _trios(self) -> tuple[tuple[Result, Result, Result], ...]:
        return (self.results, *self.others)

    def _one_seed(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline.to_dict(),
            "karpenter": self.karpenter.to_dict(),
            "changed": self.changed.to_dict(),
            "recommendation": {"apply": self.recommendation.apply, "why": self.recommendation.why},
            "patch": self.patch,
            "pools": list(self.asked.chosen),
            "replayed": {
                "from": self.window.begin.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "until": self.window.end.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "arrivals": self.window.arrivals,
            },
        }


def check(asked: WhatIf) -> None:
    """Raise for a change that no pool can take."""
    if not asked.cluster.node_pools:
        raise InputError("the input has no NodePool; capture it with `dovetail snapshot`, or kubectl get nodepools ...")
    for pool in asked.cluster.node_pools:
        if pool.metadata.name in asked.chosen:
            check_changes(pool, asked.fields, asked.settings)


def window_of(asked: WhatIf) -> ReplayWindow:
    """Return the time to replay: the last hours before the capture if pods came in them, else those after it."""
    span = timedelta(microseconds=asked.length // 1000)
    begin = asked.now - span
    arrivals = sum(begin < stay.since <= asked.now for stay in stays_of(asked.cluster))
    if not arrivals:
        return ReplayWindow(begin=asked.now, end=asked.now + span, arrivals=0)
    return ReplayWindow(begin=begin, end=asked.now, arrivals=arrivals)


def estimate_seconds(asked: WhatIf, cores: int) -> float:
    """Return roughly how long the runs take on so many cores."""
    runs = 3 * asked.seeds
    rounds = -(-runs // max(1, min(cores, runs)))
    hours = (asked.length + WARM_UP) / HOUR
    return 2 + rounds * hours * max(10, len(asked.cluster.nodes)) * SECONDS_PER_NODE_HOUR


def what_if(asked: WhatIf, progress: Progress | None = None, workers: int | None = None) -> WhatIfAnswer:
    """Run all three and compare."""
    check(asked)
    window = window_of(asked)
    scenario = _scenario(asked, window)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    tasks = [(scenario, policy, seed, None) for seed in seeds for policy in scenario.policies]
    results = run_all(tasks, progress, workers)
    (baseline, karpenter, changed), *others = zip(results[::3], results[1::3], results[2::3], strict=True)
    pools = [pool for pool in asked.cluster.node_pools if pool.metadata.name in asked.chosen]
    return WhatIfAnswer(
        asked=asked,
        window=window,
        baseline=baseline,
        karpenter=karpenter,
        changed=changed,
        recommendation=recommend(baseline, changed, [(one, other) for one, _, other in others]),
        patch=patch_of(pools, asked.fields),
        others=tuple(others),
    )


def _changed(asked: WhatIf) -> Settings:
    """Return the settings of the changed policy: the same, or those of the recommended one for the same cluster."""
    if not asked.recommended:
        return asked.settings
    return replace(RECOMMENDED, pools=asked.settings.pools, karpenter=asked.settings.karpenter)


def _scenario(asked: WhatIf, window: ReplayWindow) -> Scenario:
    settings = asked.settings
    policies = (
        Policy(name=BASELINE, settings=settings),
        Policy(name="karpenter-1.15", settings=KARPENTER_1_15),
        Policy(name=CHANGED, settings=_changed(asked), disruption=dict(asked.fields), pools=asked.chosen),
    )
    start = window.begin - timedelta(microseconds=WARM_UP // 1000)
    return Scenario(
        name="whatif",
        about="",
        source="whatif",
        start=start,
        until=asked.length,
        warm_up=WARM_UP,
        file=ScenarioFile(name="whatif", until=format_duration(asked.length), catalogue=(), policies={}),
        policies=policies,
        arrivals=asked.length if window.arrivals else None,
        begin=window.begin,
        captured=asked.cluster,
        catalogue=asked.catalogue,
    )


# ---------------------------------------------------------------- what to do


def scatter_of(pairs: Sequence[tuple[Result, Result]]) -> Scatter:
    """Return what the change makes of bill and restarts over the seeds, from pairs of (baseline, changed)."""
    costs = [(changed.cost - baseline.cost) / UNIT for baseline, changed in pairs]
    restarts = [changed.pods_disrupted - baseline.pods_disrupted for baseline, changed in pairs]
    return Scatter(
        seeds=len(pairs),
        cost=mean(costs),
        cost_spread=pstdev(costs),
        restarts=mean(restarts),
        restarts_spread=pstdev(restarts),
    )


def scatter_sentence(answer: WhatIfAnswer) -> str:
    """Return how far chance moves the difference that the change makes."""
    found, seed = answer.scatter, answer.asked.seed
    if found is None:
        return f"One seed ({seed}); --seeds 5 shows how far chance moves these figures."
    return (
        f"The table shows seed {seed}. Over {found.seeds} seeds the change makes {found.cost:+.2f} ± "
        f"{found.cost_spread:.2f} dollars and {found.restarts:+.1f} ± {found.restarts_spread:.1f} restarts."
    )


def recommend(baseline: Result, changed: Result, others: Sequence[tuple[Result, Result]] = ()) -> Recommendation:
    """Weigh the bill and the restarts; a change that breaks a promise or keeps pods waiting is not recommended.

    `others` are the same two runs on further seeds: the means count, and a difference within two standard errors is
    left to chance.
    """
    pairs = [(baseline, changed), *others]
    scatter = scatter_of(pairs)
    saved, calmer = -scatter.cost, -scatter.restarts
    waited = mean(after.pending_pod_seconds - before.pending_pod_seconds for before, after in pairs)
    said = f"Compared with the policy you have, it costs {_money(saved)} and restarts {_restarts(calmer)}"
    said += f", on average over {len(pairs)} seeds." if others else "."
    broken = next((after.violations for before, after in pairs if len(after.violations) > len(before.violations)), None)
    if broken:
        return Recommendation(apply=False, why=f"{said} It broke a promise ({broken[0].what}): don't.")
    longest = max(60.0, 0.25 * mean(before.pending_pod_seconds for before, _ in pairs))
    if waited > longest and waited > 2 * abs(calmer):
        why = f"{said} Pods wait {waited / 60:.0f} minutes longer in all for a node: don't."
        return Recommendation(apply=False, why=why)
    worth = saved + calmer * RESTART_PRICE
    rule = f"With a restart counted as ${RESTART_PRICE:.2f}, that is worth {_signed(worth)}"
    if others and undecided(*(_scores(results) for results in zip(*pairs, strict=True))):
        why = f"{said} {rule}, but the seeds scatter by more than that: too little to tell from chance."
        return Recommendation(apply=False, why=why)
    floor = 0.002 * mean(before.cost for before, _ in pairs) / UNIT
    if abs(worth) <= floor:
        return Recommendation(apply=False, why=f"{said} {rule}: too little to tell from chance.")
    verdict = "apply it" if worth > 0 else "don't"
    return Recommendation(apply=worth > 0, why=f"{said} {rule} over this time: {verdict}.")


def _scores(results: Sequence[Result]) -> list[float]:
    return [score(result.cost / UNIT, result.pods_disrupted) for result in results]


def _money(saved: float) -> str:
    if abs(saved) < 0.005:
        return "the same"
    return f"${abs(saved):.2f} {'less' if saved > 0 else 'more'}"


def _restarts(calmer: float) -> str:
    if abs(calmer) < 0.5:
        return "as many pods"
    return f"{abs(calmer):,.0f} {'fewer' if calmer > 0 else 'more'} pods"


def _signed(amount: float) -> str:
    return f"{'+' if amount >= 0 else '-'}${abs(amount):.2f}"
