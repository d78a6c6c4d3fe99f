"""Multiplying every price by the same number changes no decision of `recommended` (docs/rules.md#one-price)."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from dovetail.model.catalogue import Catalogue
from dovetail.model.money import UNIT
from dovetail.model.persistence import Persistence
from dovetail.model.settings import RECOMMENDED
from dovetail.model.timing.duration import MINUTE
from dovetail.model.waste import Wasted
from dovetail.sim.ledger import Result
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario, recommended_policy
from dovetail.sim.scenarios.simulated_cloud import catalogue_of
from tests.support.design_world import NOW, Town, kind
from tests.support.sizes import size

SCALES = ("0.35", "4", "10")
TINY = "0.000001"
"""At this level any rounding to a fixed part of a dollar would show."""
TIMES = (None, "15m", "7m/cpu")
"""Prices of a restart that mean the same at any level; None: what `recommended` says."""


def scaled(catalogue: Catalogue, factor: Fraction) -> Catalogue:
    """Return a catalogue with every price multiplied."""
    kinds = []
    for entry in catalogue.instance_types:
        amounts = [offer.price * factor for offer in entry.offerings]
        assert all(amount.denominator == 1 for amount in amounts)
        pairs = zip(entry.offerings, amounts, strict=True)
        offers = tuple(replace(o, price=int(a), price_float=float(a / UNIT)) for o, a in pairs)
        kinds.append(replace(entry, offerings=offers))
    return replace(catalogue, instance_types=tuple(kinds))


def _town(dice: Random, price: str | None) -> Town:
    """Build a small cluster of machines of odd prices."""
    kinds = [
        kind(f"m{cpu}-{family}", f"{cpu * 0.0217 * cost:.6f}", cpu=cpu, memory=4 * cpu)
        for family, cost in (("a", 1.0), ("b", 0.913))
        for cpu in (2, 4, 8)
    ]
    town = Town(*kinds, settings=RECOMMENDED)
    town.pool(disruption={} if price is None else {"restartPrice": price})
    for number in range(dice.randint(4, 9)):
        made = dice.choice(kinds)
        town.node(f"n{number}", made.name, age=timedelta(hours=3))
        cpu = made.capacity["cpu"]
        while (cpu := cpu - (size := dice.choice((100, 250, 700, 1300)))) > 0 and dice.random() < 0.7:
            age = (NOW - timedelta(minutes=dice.randint(1, 90))).strftime("%Y-%m-%dT%H:%M:%SZ")
            town.pod(f"n{number}-{cpu}", f"n{number}", cpu=f"{size}m", creationTimestamp=age)
    return town


def _decided(town: Town, factor: Fraction, seed: int) -> Any:
    """Return all that a round decides, without its money."""
    dice = Random(seed)
    waste = {
        name: Wasted(amount=int(dice.randint(0, 40) * UNIT * factor) // 1000, rate=int(UNIT * factor) // 50, at=NOW)
        for name in town.nodes
    }
    calm = NOW - timedelta(minutes=dice.randint(1, 300))
    shown = {"default": Persistence(learned=dice.randint(2, 16) * MINUTE, removals=4, calm_since=calm)}
    result = town.round(catalogue=scaled(town.catalogue, factor), waste=waste, persistence=shown)
    commands = [
        (c.nodes, [r.instance_types for r in c.replacements], c.placements, c.pays_after) for c in result.commands
    ]
    verdicts = [(entry.node, entry.verdict, entry.gates[-1].figures.get("at")) for entry in result.verdicts]
    return commands, verdicts, result.next_change, result.steering.closing


@pytest.mark.parametrize("seed", range(size(test=15, ci=60, long=400)))
def test_rounds(seed: int) -> None:
    """The same commands, refusals and times to look again at any price level; a price in dollars is scaled too."""
    dollars = Fraction(seed % 7, 1000)
    for price in (*TIMES, f"{float(dollars)}"):
        plain = _decided(_town(Random(seed), price), Fraction(1), seed)
        for scale in (*SCALES, TINY):
            told = price if price in TIMES else f"{float(dollars * Fraction(scale)):.15f}"
            assert _decided(_town(Random(seed), told), Fraction(scale), seed) == plain, (price, scale)


def _days(course: str, price: str | None) -> Iterator[tuple[Fraction, Result]]:
    scenario = load_scenario(course)
    base = catalogue_of(scenario)
    for scale in ("1", *SCALES):
        factor = Fraction(scale)
        policy = recommended_policy()
        if price is not None:
            told = price if price in TIMES else f"{float(Fraction(price) * factor)}"
            policy = replace(policy, disruption={"restartPrice": told})
        yield factor, run_scenario(replace(scenario, catalogue=scaled(base, factor)), policy, 0, 100 * MINUTE)


@pytest.mark.parametrize(
    ("course", "price"),
    [("issue-7146", None), ("issue-7146", "15m"), ("issue-7146", "0.005"), ("batch-churn", None)],
)
def test_simulated_hours(course: str, price: str | None) -> None:
    """Simulated hours take the same course at any price level, and their bills are in proportion."""
    (_, plain), *others = list(_days(course, price))
    assert plain.pods_disrupted > 0
    for factor, result in others:
        assert (result.actions, result.pods_disrupted, result.lives) == (
            plain.actions,
            plain.pods_disrupted,
            plain.lives,
        )
        assert abs(result.cost - plain.cost * factor) <= plain.cost * factor / 10**9
