"""Whether to apply a change that was simulated: yes, no, or that nobody can tell. The rule is stated with the answer.

A change is weighed by what it saves and by the restarts that it avoids (`sim.weighing`). Nothing is recommended on a
replay that does not agree with the cluster, or by a difference that is not larger than its scatter over the seeds.
Pure. Sits in sim.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from dovetail.model.money import UNIT
from dovetail.sim.calibration import Calibration
from dovetail.sim.ledger import Result
from dovetail.sim.means import standard_error
from dovetail.sim.weighing import RESTART_PRICE, score, undecided

Pairs = Sequence[tuple[Result, Result]]
"""Today's policy and the changed one, seed by seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Whether to apply the change (None: can't tell), and why."""

    apply: bool | None
    why: str

    @property
    def words(self) -> str:
        """Return the answer in two words."""
        return {True: "Apply it", False: "Not recommended", None: "Can't tell"}[self.apply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What the change makes of the bill (dollars) and of the restarts: means over the seeds, and standard errors."""

    seeds: int
    cost: float
    cost_spread: float | None
    restarts: float
    restarts_spread: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "cost": {"mean": round(self.cost, 4), "spread": _rounded(self.cost_spread, 4)},
            "podsDisrupted": {"mean": round(self.restarts, 2), "spread": _rounded(self.restarts_spread, 2)},
        }

    def scatter(self) -> str:
        """Return how far chance moves the difference."""
        if self.cost_spread is None or self.restarts_spread is None:
            return "One seed; --seeds 3 shows how far chance moves these figures."
        if not self.cost_spread and not self.restarts_spread:
            return f"All {self.seeds} seeds agree on the difference."
        cost = f"{self.cost_spread:.2f}" if self.cost_spread >= 0.01 else f"{self.cost_spread:.2g}"
        restarts = f"{self.restarts_spread:.0f}" if self.restarts_spread >= 10 else f"{self.restarts_spread:.2g}"
        return (
            f"Chance moves the difference by ± ${cost} and ± {restarts} restarts "
            f"(standard errors of {self.seeds} seeds)."
        )


def _rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)


def difference_of(pairs: Pairs) -> Effect:
    """Return what the change makes of bill and restarts over the seeds."""
    costs = [(changed.cost - baseline.cost) / UNIT for baseline, changed in pairs]
    restarts = [float(changed.pods_disrupted - baseline.pods_disrupted) for baseline, changed in pairs]
    return Effect(
        seeds=len(pairs),
        cost=mean(costs),
        cost_spread=standard_error(costs),
        restarts=mean(restarts),
        restarts_spread=standard_error(restarts),
    )


def recommend(pairs: Pairs, calibration: Calibration | None = None) -> Recommendation:
    """Weigh the bill and the restarts; a change that breaks a promise or keeps pods waiting is not recommended."""
    found = difference_of(pairs)
    saved, calmer = -found.cost, -found.restarts
    said = f"Compared with the policy you have, it costs {_money(saved)} and restarts {_restarts(calmer)}"
    said += f", on average over {len(pairs)} seeds." if len(pairs) > 1 else "."
    if calibration is not None and not calibration.reliable:
        return Recommendation(apply=None, why=f"{calibration.why} ({said})")
    broken = next((after.violations for before, after in pairs if len(after.violations) > len(before.violations)), None)
    if broken:
        return Recommendation(apply=False, why=f"{said} It broke a promise ({broken[0].what}): don't.")
    waited = mean(after.pending_pod_seconds - before.pending_pod_seconds for before, after in pairs)
    longest = max(60.0, 0.25 * mean(before.pending_pod_seconds for before, _ in pairs))
    if waited > longest and waited > 2 * abs(calmer):
        why = f"{said} Pods wait {waited / 60:.0f} minutes longer in all for a node: don't."
        return Recommendation(apply=False, why=why)
    worth = saved + calmer * RESTART_PRICE
    rule = f"With a restart counted as ${RESTART_PRICE:.2f}, that is worth {_signed(worth)}"
    floor = 0.002 * mean(before.cost for before, _ in pairs) / UNIT
    if len(pairs) > 1 and undecided(*(_scores(results) for results in zip(*pairs, strict=True))):
        why = f"{said} {rule}, which is not more than the seeds scatter by: too little to tell from chance."
        return Recommendation(apply=None, why=why)
    if abs(worth) <= floor:
        return Recommendation(apply=None, why=f"{said} {rule}: too little to tell from chance.")
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
    pods = "pod" if round(abs(calmer)) == 1 else "pods"
    return f"{abs(calmer):,.0f} {'fewer' if calmer > 0 else 'more'} {pods}"


def _signed(amount: float) -> str:
    return f"{'+' if amount >= 0 else '-'}${abs(amount):.2f}"
