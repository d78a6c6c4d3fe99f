"""`dovetail whatif`: the last day of a captured cluster, replayed under its policy, Karpenter's, and a changed one.

The capture says what was there a day ago and which pods came since (`scenarios.arrivals`); a capture whose pods are all
older runs on from its own time instead. Same seed and same world for all three. The recommendation follows one rule,
which it states. Decides nothing about disruption. Sits in sim; `cli.simulation.whatif` prints it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
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
from dovetail.sim.weighing import RESTART_PRICE
from dovetail.sim.workers import Progress

BASELINE: Final = "baseline"
CHANGED: Final = "changed"
WARM_UP: Final = 10 * MINUTE
SECONDS_PER_NODE_HOUR: Final = 0.012
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
class WhatIfAnswer:
    """The three runs, what to do, and how."""

    asked: WhatIf
    window: ReplayWindow
    baseline: Result
    karpenter: Result
    changed: Result
    recommendation: Recommendation
    patch: dict[str, Any]

    @property
    def results(self) -> tuple[Result, Result, Result]:
        """Return all three, in the order they are shown."""
        return self.baseline, self.karpenter, self.changed

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the contract."""
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
    """Return roughly how long the three runs take on so many cores."""
    rounds = -(-3 // max(1, min(cores, 3)))
    hours = (asked.length + WARM_UP) / HOUR
    return 2 + rounds * hours * max(10, len(asked.cluster.nodes)) * SECONDS_PER_NODE_HOUR


def what_if(asked: WhatIf, progress: Progress | None = None, workers: int | None = None) -> WhatIfAnswer:
    """Run all three and compare."""
    check(asked)
    window = window_of(asked)
    scenario = _scenario(asked, window)
    tasks = [(scenario, policy, asked.seed, None) for policy in scenario.policies]
    baseline, karpenter, changed = run_all(tasks, progress, workers)
    pools = [pool for pool in asked.cluster.node_pools if pool.metadata.name in asked.chosen]
    return WhatIfAnswer(
        asked=asked,
        window=window,
        baseline=baseline,
        karpenter=karpenter,
        changed=changed,
        recommendation=recommend(baseline, changed),
        patch=patch_of(pools, asked.fields),
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


def recommend(baseline: Result, changed: Result) -> Recommendation:
    """Weigh the bill and the restarts; a change that breaks a promise or keeps pods waiting is not recommended."""
    saved = (baseline.cost - changed.cost) / UNIT
    calmer = baseline.pods_disrupted - changed.pods_disrupted
    waited = changed.pending_pod_seconds - baseline.pending_pod_seconds
    said = f"Compared with the policy you have, it costs {_money(saved)} and restarts {_restarts(calmer)}."
    if len(changed.violations) > len(baseline.violations):
        return Recommendation(apply=False, why=f"{said} It broke a promise ({changed.violations[0].what}): don't.")
    if waited > max(60.0, 0.25 * baseline.pending_pod_seconds) and waited > 2 * abs(calmer):
        why = f"{said} Pods wait {waited / 60:.0f} minutes longer in all for a node: don't."
        return Recommendation(apply=False, why=why)
    worth = saved + calmer * RESTART_PRICE
    rule = f"With a restart counted as ${RESTART_PRICE:.2f}, that is worth {_signed(worth)}"
    floor = 0.002 * baseline.cost / UNIT
    if abs(worth) <= floor:
        return Recommendation(apply=False, why=f"{said} {rule}: too little to tell from chance.")
    verdict = "apply it" if worth > 0 else "don't"
    return Recommendation(apply=worth > 0, why=f"{said} {rule} over this time: {verdict}.")


def _money(saved: float) -> str:
    if abs(saved) < 0.005:
        return "the same"
    return f"${abs(saved):.2f} {'less' if saved > 0 else 'more'}"


def _restarts(calmer: int) -> str:
    if not calmer:
        return "as many pods"
    return f"{abs(calmer):,} {'fewer' if calmer > 0 else 'more'} pods"


def _signed(amount: float) -> str:
    return f"{'+' if amount >= 0 else '-'}${abs(amount):.2f}"
