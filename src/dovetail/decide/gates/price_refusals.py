"""Why the price gates refuse: one sentence with its numbers for each.

Decides nothing: `decide.gates.price` says which refusal it is. Sits in decide, below the gates.
"""

from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from dovetail.decide.words import dollars
from dovetail.model.command import Command
from dovetail.model.money import Money
from dovetail.model.verdicts import Figure, Gate

PRICE_GATES: Final = (
    Gate.PRICE,
    Gate.SAVINGS_THRESHOLD,
    Gate.WASTE,
    Gate.SAME_TYPE,
    Gate.SPOT_TO_SPOT,
    Gate.SPOT_FLEXIBILITY,
    Gate.MIN_VALUES,
    Gate.BALANCED,
)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The gate that refused a command, its numbers and its sentence.

    `instead`: what would be done now with less than the command would launch; the room for that is there.
    """

    gate: Gate
    why: str
    figures: dict[str, Figure] = msgspec.field(default_factory=dict)
    savings: Money = 0
    required: Fraction = Fraction(0)
    simulated: bool = True
    due: datetime | None = None
    instead: Command | None = None

    @property
    def is_price(self) -> bool:
        """Return whether the pods would have fitted and only the price gates refused."""
        return self.gate in PRICE_GATES


@lru_cache(maxsize=1024)
def not_less(price: Money, least: Money) -> Refusal:
    """Build the refusal that a replacement costs no less; cached, because machines have few prices."""
    return Refusal(
        gate=Gate.PRICE,
        why=f"No cheaper node would do: some of its pods fit on no other node, and a machine for them costs at least "
        f"{dollars(least)}/h, not less than its {dollars(price)}/h.",
        figures={"price": dollars(price, bare=True), "cheapestReplacement": dollars(least, bare=True)},
        simulated=False,
    )


def no_cheaper(price: Money, cheapest: Money | None) -> Refusal:
    """Build the refusal that nothing cheaper fits."""
    if cheapest is None:
        why = "No instance type that fits can be launched now."
    else:
        why = (
            f"No cheaper node would do: the cheapest that fits costs {dollars(cheapest)}, now {dollars(price)} is paid."
        )
    figures: dict[str, Figure] = {"price": dollars(price, bare=True)}
    if cheapest is not None:
        figures["cheapestReplacement"] = dollars(cheapest, bare=True)
    return Refusal(gate=Gate.PRICE, why=why, figures=figures)


class TooLittle(Refusal, frozen=True, kw_only=True):
    """A command saves too little for what it disturbs.

    A round refuses many nodes for this, and what they have to save changes with time. The sentence and the figures are
    therefore written when they are read, from the other fields alone. `cheaper`: how many types would have cost less,
    if that is known.
    """

    price: Money
    replaced: bool
    cheaper: int | None = None

    @property  # type: ignore[misc] # the fields of other refusals
    def why(self) -> str:
        """Return the sentence."""
        what = "The cheapest replacement saves" if self.replaced else "Even deleting it saves only"
        return f"{what} {dollars(self.savings)}/h and disturbing its pods has to save {dollars(self.required)}/h."

    @property  # type: ignore[misc]
    def figures(self) -> dict[str, Figure]:
        """Return the numbers."""
        figures: dict[str, Figure] = {
            "savingsPerHour": dollars(self.savings, bare=True),
            "requiredSavingsPerHour": dollars(self.required, bare=True),
            "price": dollars(self.price, bare=True),
        }
        if self.cheaper is not None:
            figures["cheaperTypes"] = self.cheaper
        return figures


def below_threshold(
    savings: Money,
    price: Money,
    required: Fraction,
    *,
    replaced: bool,
    cheaper: int | None = None,
    simulated: bool = True,
) -> Refusal:
    """Build the refusal that it saves too little for what it disturbs."""
    return TooLittle(
        gate=Gate.SAVINGS_THRESHOLD,
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
