"""`dovetail tune`: the frontier of bill against restarts for one cluster, and the setting that a restart's price picks.

Tries Karpenter's own settings and Dovetail's on the same load: a recording, or a captured cluster that runs on. Of a
long recording most policies see only short stretches (`sim.halving`). A policy is chosen by its total: bill plus price
times restarts, means over the seeds; of policies that the scatter leaves undecided the first of the list is chosen,
which is the one that changes least. Nothing is chosen on a replay that does not agree with reality. Sits in sim;
`cli.simulation.tune` prints it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any, Final

from dovetail.api.policy_change import patch_of
from dovetail.api.settings import settings_of
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED_DISRUPTION, RECOMMENDED_NAME
from dovetail.sim.calibration import Calibration
from dovetail.sim.halving import Dropped, PolicySearch
from dovetail.sim.ledger import Result
from dovetail.sim.means import standard_error
from dovetail.sim.scenarios.scenario import Policy
from dovetail.sim.weighing import undecided

RESTART_PRICE: Final = 0.005
"""Dollars: what a restart is worth if the user does not say."""
_DOLLAR: Final = 10**18
_KARPENTERS: Final[tuple[dict[str, Any], ...]] = (
    {"consolidateAfter": "1m"},
    {"consolidateAfter": "5m"},
    {"consolidateAfter": "15m"},
    {"consolidateAfter": "30m"},
    {"consolidationPolicy": "Balanced"},
    {"consolidationPolicy": "WhenEmpty"},
)
_DOVETAILS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"consolidationSavingsThreshold": 0.005},
    {"consolidationSavingsThreshold": 0.02},
    {"consolidationGracePeriod": "10m"},
    {"consolidationGracePeriod": "30m"},
)
_PRICES: Final = ("0.005", "0.001", "0.0025", "0.01", "0.02")
_MORE_KARPENTERS: Final[tuple[dict[str, Any], ...]] = (
    {"consolidateAfter": "30s"},
    {"consolidateAfter": "2m"},
    {"consolidateAfter": "10m"},
    {"consolidateAfter": "1h"},
    *({"consolidationPolicy": "Balanced", "consolidateAfter": after} for after in ("1m", "5m", "15m", "30m")),
)
_MORE_DOVETAILS: Final[tuple[dict[str, Any], ...]] = (
    {"consolidateAfter": "5m"},
    {"consolidationSavingsThreshold": 0.01},
    {"consolidationSavingsThreshold": 0.05},
    {"consolidationGracePeriod": "5m"},
    {"consolidationGracePeriod": "1h"},
    {"consolidationGracePeriod": "10m", "consolidationSavingsThreshold": 0.01},
    {"consolidationGracePeriod": "30m", "consolidationSavingsThreshold": 0.01},
    {"consolidationGracePeriod": "30m", "consolidationSavingsThreshold": 0.05},
)
_MORE_RECOMMENDED: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"restartPrice": "0.05"},
    *({"restartPrice": price, "consolidateAfter": "5m"} for price in ("0.005", "0.02")),
    *({"restartPrice": price, "consolidationGracePeriod": "10m"} for price in ("0.005", "0.02")),
    {"restartPrice": "0.005", "consolidationSavingsThreshold": 0.05},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A policy that can be chosen: `fields` for the NodePools, `words` for the settings, and who manages them."""

    name: str
    fields: Mapping[str, Any]
    words: Mapping[str, Any]
    is_dovetails: bool

    def policy(self) -> Policy:
        """Return the policy to simulate."""
        if not self.is_dovetails:
            return Policy(name=self.name, settings=KARPENTER_1_15, disruption=dict(self.fields))
        settings = replace(settings_of(dict(self.words), DOVETAIL), pools=())
        return Policy(name=self.name, settings=settings, disruption=dict(self.fields))

    def to_set(self) -> dict[str, Any]:
        """Return what a user would set."""
        return {**self.words, **self.fields, **({"manage": True} if self.is_dovetails else {})}


def choices() -> tuple[Choice, ...]:
    """Return the policies that are tried beside today's, those that change least first."""
    return (
        *(_karpenter(fields) for fields in _KARPENTERS),
        *(_dovetail(fields) for fields in _DOVETAILS),
        *(_recommended({"restartPrice": price}) for price in _PRICES),
    )


def more_choices() -> tuple[Choice, ...]:
    """Return what is tried on a recording besides: a long one drops most of them early."""
    return (
        *(_karpenter(fields) for fields in _MORE_KARPENTERS),
        *(_dovetail(fields) for fields in _MORE_DOVETAILS),
        *(_recommended(fields) for fields in _MORE_RECOMMENDED),
    )


def _karpenter(fields: Mapping[str, Any]) -> Choice:
    return Choice(name=f"karpenter {_shown(fields)}", fields=fields, words={}, is_dovetails=False)


def _dovetail(fields: Mapping[str, Any]) -> Choice:
    return Choice(name=f"dovetail {_shown(fields)}".rstrip(), fields=fields, words={}, is_dovetails=True)


def _recommended(fields: Mapping[str, Any]) -> Choice:
    return Choice(
        name=f"{RECOMMENDED_NAME} {_shown(fields)}".rstrip(),
        fields={**RECOMMENDED_DISRUPTION, **fields},
        words={"base": RECOMMENDED_NAME},
        is_dovetails=True,
    )


def _shown(fields: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One policy on all seeds."""

    policy: str
    choice: Choice | None
    results: tuple[Result, ...]

    @property
    def cost(self) -> float:
        """Return the mean bill in dollars."""
        return mean(result.cost for result in self.results) / _DOLLAR

    @property
    def restarts(self) -> float:
        """Return the mean number of restarts."""
        return mean(float(result.pods_disrupted) for result in self.results)

    def totals(self, price: float) -> list[float]:
        """Return bill plus price times restarts, seed by seed."""
        return [result.cost / _DOLLAR + price * result.pods_disrupted for result in self.results]

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of `frontier`."""
        results = self.results
        costs = [result.cost / _DOLLAR for result in results]
        return {
            "policy": self.policy,
            "set": {} if self.choice is None else self.choice.to_set(),
            "cost": round(self.cost, 4),
            "podsDisrupted": round(self.restarts, 2),
            "podsDisruptedMoreThanOnce": round(mean(each.pods_disrupted_more_than_once for each in results), 2),
            "shortLivedNodes": round(mean(each.short_lived_nodes for each in results), 2),
            "pendingPodSeconds": round(mean(each.pending_pod_seconds for each in results), 1),
            "scatter": {
                "cost": _rounded(standard_error(costs)),
                "podsDisrupted": _rounded(standard_error([float(each.pods_disrupted) for each in results])),
            },
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedChoice:
    """A policy that was dropped before it played the whole recording, and why (`sim.halving`)."""

    choice: Choice
    by: str
    dropped: Dropped

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of `dropped`."""
        return {
            "policy": self.choice.name,
            "set": self.choice.to_set(),
            "round": self.dropped.round,
            "hours": round(self.dropped.hours, 2),
            "by": self.by,
            "why": self.why,
        }

    @property
    def why(self) -> str:
        """Return what the policy that beat it did in the same hours."""
        bill, restarts = self.dropped.bill, self.dropped.restarts
        money = f"{100 * abs(bill):.1f} % {'cheaper' if bill >= 0 else 'dearer'}"
        calm = "no restarts" if restarts is None else f"{100 * abs(restarts):.0f} % {_fewer(restarts)} restarts"
        return f"{self.by} was {money}, with {calm}"


def _fewer(share: float) -> str:
    return "fewer" if share >= 0 else "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Every policy that played to the end, the first is today's; and those that were dropped before."""

    points: tuple[Point, ...]
    pools: tuple[NodePool, ...]
    restart_price: float
    calibration: Calibration | None = None
    dropped: tuple[DroppedChoice, ...] = ()
    recalled: tuple[str, ...] = ()

    def on_frontier(self) -> tuple[Point, ...]:
        """Return the policies that no other beats in both bill and restarts, cheapest first."""
        found = [point for point in self.points if not any(_beats(other, point) for other in self.points)]
        return tuple(sorted(found, key=lambda point: (point.cost, point.restarts, point.policy)))

    @property
    def chosen(self) -> Point:
        """Return the policy of the least total; today's where chance decides or the replay can't be relied on."""
        if self.calibration is not None and not self.calibration.reliable:
            return self.points[0]
        best = min(self.points, key=lambda point: (mean(point.totals(self.restart_price)), point.policy))
        totals = best.totals(self.restart_price)
        return next(
            point for point in self.points if point is best or undecided(point.totals(self.restart_price), totals)
        )

    @property
    def why(self) -> str:
        """Return one sentence about the choice."""
        today, found = self.points[0], self.chosen
        if self.calibration is not None and not self.calibration.reliable:
            return f"Nothing is recommended: {self.calibration.why}"
        before, after = (mean(point.totals(self.restart_price)) for point in (today, found))
        if found is today:
            return f"No other policy is better than today's by more than chance, at ${self.restart_price:g} a restart."
        share = 100 * (before - after) / before if before else 0.0
        return (
            f"{found.policy}: ${found.cost:.3f} and {found.restarts:.0f} restarts instead of ${today.cost:.3f} and "
            f"{today.restarts:.0f}; at ${self.restart_price:g} a restart that is {share:.1f} % less in all."
        )

    def patch(self) -> dict[str, Any]:
        """Return the merge patch of the NodePools that the choice needs."""
        choice = self.chosen.choice
        if choice is None:
            return {}
        return patch_of(self.pools, choice.fields, manage=choice.is_dovetails)

    def settings(self) -> dict[str, Any]:
        """Return the settings file that the choice needs."""
        choice = self.chosen.choice
        return {} if choice is None else dict(choice.words)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of the contract; `frontier` has every policy, those that are beaten too."""
        best = {point.policy for point in self.on_frontier()}
        order = sorted(self.points, key=lambda point: (point.cost, point.restarts, point.policy))
        return {
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "frontier": [{**point.to_dict(), "beaten": point.policy not in best} for point in order],
            "chosen": self.chosen.policy,
            "restartPrice": self.restart_price,
            "why": self.why,
            "patch": self.patch(),
            "settings": self.settings(),
            "dropped": [each.to_dict() for each in self.dropped],
            "recalled": list(self.recalled),
        }


def _beats(one: Point, other: Point) -> bool:
    better = one.cost <= other.cost and one.restarts <= other.restarts
    return better and (one.cost < other.cost or one.restarts < other.restarts)


def tuning_of(
    today: Policy,
    tried: Sequence[Choice],
    found: PolicySearch,
    *,
    pools: Sequence[NodePool],
    restart_price: float,
    calibration: Calibration | None,
) -> Tuning:
    """Join a search with the policies that it was about; today's comes first."""
    names = (today.name, *(choice.name for choice in tried))
    return Tuning(
        points=tuple(
            Point(policy=names[place], choice=None if place == 0 else tried[place - 1], results=results)
            for place, results in sorted(found.whole.items())
        ),
        pools=tuple(pools),
        restart_price=restart_price,
        calibration=calibration,
        dropped=tuple(
            DroppedChoice(choice=tried[each.policy - 1], by=names[each.by], dropped=each) for each in found.dropped
        ),
        recalled=tuple(names[place] for place in found.recalled),
    )
