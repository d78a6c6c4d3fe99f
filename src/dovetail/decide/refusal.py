"""Why a command is refused: the gate, its numbers and one sentence.

A round refuses thousands of nodes, and most of the sentences are never read. Refusals that are common therefore store
the numbers, and write the sentence and the figures when they are read. Decides nothing: `gates.price` says which of the
refusals for a price it is. Sits in decide, below the gates.
"""

from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from dovetail.decide.words import clock, dollars, nanoseconds, two_sums
from dovetail.model.command import Command
from dovetail.model.money import Money
from dovetail.model.verdicts import Figure, Gate, GateResult

PRICE_GATES: Final = (
    Gate.PRICE,
    Gate.SAVINGS_THRESHOLD,
    Gate.WASTE,
    Gate.RESTART_PRICE,
    Gate.SAME_TYPE,
    Gate.SPOT_TO_SPOT,
    Gate.SPOT_FLEXIBILITY,
    Gate.MIN_VALUES,
    Gate.BALANCED,
)


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The gate that refused a command, its numbers and its sentence.

    `simulated`: whether a simulation ran. `due`: when time alone opens the gate, if that is known. `instead`: what
    would be done now with less than the command would launch; the room for that is there.
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

    def as_result(self) -> GateResult:
        """Return the result of the gate that refused it."""
        return GateResult(gate=self.gate, passed=False, why=self.why, figures=self.figures, due=self.due)

    def told_as(self, kind: "type[Told]", gate: Gate, due: datetime | None, **own: Any) -> "Told":
        """Return the refusal as one of another gate, with that kind's own fields; the numbers stay the same."""
        same = {name: getattr(self, name) for name in ("savings", "required", "simulated", "instead")}
        return kind(gate=gate, why="", due=due, **same, **own)


Told = TypeVar("Told", bound=Refusal)


class TooLittle(Refusal, frozen=True, kw_only=True):
    """A command saves too little for what it disturbs.

    `cheaper`: how many types would have cost less, if that is known.
    """

    price: Money
    replaced: bool
    cheaper: int | None = None

    @property  # type: ignore[misc] # the fields of other refusals
    def why(self) -> str:
        """Return the sentence."""
        what = "The cheapest replacement" if self.replaced else "Deleting it"
        saves, asked = two_sums(self.savings, self.required)
        return f"{what} saves {saves}/h; restarting its pods must save at least {asked}/h."

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


class NotWastedEnough(Refusal, frozen=True, kw_only=True):
    """A node saves too little to go at once, and has not wasted enough yet to go anyway.

    `at_once`: why it does not go at once. `asked`: the money that it has to waste, as a ratio. `for_jobs`: pods of Jobs
    run on it, which end by themselves. `restless_until`: until when its pool counts as restless.
    """

    at_once: Refusal
    wasted: Money
    asked: tuple[int, int]
    pool: str
    for_jobs: bool
    restless_until: datetime | None

    @property  # type: ignore[misc] # the fields of other refusals
    def why(self) -> str:
        """Return the sentence."""
        when = "once it could go" if self.due is None else f"at {clock(self.due)}"
        return (
            f"It waits: {self._why_not_at_once}. It goes when keeping it has cost {dollars(Fraction(*self.asked))}, "
            f"{when}; so far {dollars(self.wasted)}."
        )

    @property
    def _why_not_at_once(self) -> str:
        if self.for_jobs:
            return "pods of Jobs run on it"
        why = self.at_once.why[:1].lower() + self.at_once.why[1:].rstrip(".")
        if self.restless_until is None:
            return why
        until = clock(self.restless_until)
        return f"{why}; half as much again until {until}, as nodes were opened in NodePool {self.pool} lately"

    @property  # type: ignore[misc]
    def figures(self) -> dict[str, Figure]:
        """Return the numbers."""
        return {
            **self.at_once.figures,
            "wasted": dollars(self.wasted, bare=True),
            "asked": dollars(Fraction(*self.asked), bare=True),
            "at": None if self.due is None else clock(self.due),
        }


class NotWorthRestarts(Refusal, frozen=True, kw_only=True):
    """What a node's going saves is not expected to last long enough for its restarts (docs/rules.md#one-price).

    `worth`: what the restarts and the launch cost. `duration`: how long such savings last, in nanoseconds; `learned`:
    whether the pool has shown that. `earning`: a cost command launched the node, and it has not paid for itself yet;
    then the duration may not be known.
    """

    pods: int
    worth: Fraction
    duration: int | None
    learned: bool
    earning: bool
    for_jobs: bool

    @property  # type: ignore[misc] # the fields of other refusals
    def why(self) -> str:
        """Return the sentence."""
        when = "not yet" if self.due is None else f"not yet, at {clock(self.due)}"
        if self.earning or self.duration is None:
            return f"A command that saves money launched it, and it has not earned what that cost: {when}."
        lasted = "lasted" if self.learned else "are expected to last"
        jobs = ", and pods of Jobs run on it, which end by themselves" if self.for_jobs else ""
        restarts = "1 restart is" if self.pods == 1 else f"{self.pods} restarts are"
        return (
            f"It saves {dollars(self.savings)}/h; such savings {lasted} {nanoseconds(self.duration)} here; {restarts} "
            f"worth {dollars(self.worth)}{jobs}: {when}."
        )

    @property  # type: ignore[misc]
    def figures(self) -> dict[str, Figure]:
        """Return the numbers."""
        return {
            "savingsPerHour": dollars(self.savings, bare=True),
            "expectedDuration": None if self.duration is None else nanoseconds(self.duration),
            "restarts": self.pods,
            "restartsWorth": dollars(self.worth, bare=True),
            "at": None if self.due is None else clock(self.due),
        }


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
