"""Why the price gates refuse: one sentence with its numbers for each.

Decides nothing: `decide.gates.price` says which refusal it is. Sits in decide, below the gates.
"""

from fractions import Fraction
from functools import lru_cache

from dovetail.decide.refusal import Refusal, TooLittle
from dovetail.decide.words import dollars
from dovetail.model.money import Money
from dovetail.model.verdicts import Figure, Gate


@lru_cache(maxsize=1024)
def not_less(price: Money, least: Money) -> Refusal:
    """Build the refusal that a replacement costs no less; cached, because machines have few prices."""
    return Refusal(
        gate=Gate.PRICE,
        why=f"No cheaper replacement fits the pods: some of them fit on no other node, and a machine for those costs "
        f"at least {dollars(least)}/h, not less than the node's {dollars(price)}/h.",
        figures={"price": dollars(price, bare=True), "cheapestReplacement": dollars(least, bare=True)},
        simulated=False,
    )


def no_cheaper(price: Money, cheapest: Money | None) -> Refusal:
    """Build the refusal that nothing cheaper fits."""
    if cheapest is None:
        why = "No instance type that fits can be launched now."
    else:
        paid = f"the cheapest costs {dollars(cheapest)}, now {dollars(price)} is paid"
        why = f"No cheaper replacement fits the pods: {paid}."
    figures: dict[str, Figure] = {"price": dollars(price, bare=True)}
    if cheapest is not None:
        figures["cheapestReplacement"] = dollars(cheapest, bare=True)
    return Refusal(gate=Gate.PRICE, why=why, figures=figures)


def below_threshold(
    savings: Money,
    price: Money,
    required: Fraction,
    *,
    replaced: bool,
    cheaper: int | None = None,
    simulated: bool = True,
    gate: Gate = Gate.SAVINGS_THRESHOLD,
) -> Refusal:
    """Build the refusal that it saves too little for what it disturbs."""
    return TooLittle(
        gate=gate,
        why="",
        savings=savings,
        required=required,
        price=price,
        replaced=replaced,
        cheaper=cheaper,
        simulated=simulated,
    )


def spot_switched_off(price: Money) -> Refusal:
    """Build the refusal that spot-to-spot consolidation is switched off."""
    return Refusal(
        gate=Gate.SPOT_TO_SPOT,
        why="A spot node would be replaced by a spot node, and spotToSpotConsolidation is off.",
        figures={"price": dollars(price, bare=True), "spotToSpotConsolidation": False},
    )
