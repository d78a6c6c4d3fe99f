"""Bills in words and as JSON: what is committed, what is not covered, and which price of a node was used and why.

Sits in decide, beside the document.
"""

from fractions import Fraction
from typing import Any, Final

from dovetail.decide.billing import Billing
from dovetail.decide.words import cents, dollars
from dovetail.model.commitments import HOURS_A_MONTH, Bill, CommitmentKind, Use
from dovetail.model.money import Money, format_money, nearest

Json = dict[str, Any]
KIND_WORDS: Final = {
    CommitmentKind.RESERVED_INSTANCES: "reserved instances",
    CommitmentKind.SAVINGS_PLAN: "savings plan",
}


def monthly(amount: Money | Fraction) -> str:
    """Write an hourly amount as dollars a month (730 hours)."""
    return f"{cents(amount * HOURS_A_MONTH)} a month"


def bill_document(bill: Bill | None) -> Json | None:
    """Return a bill as JSON; None if the nodes cost the sum of their prices."""
    if bill is None:
        return None
    return {
        "costPerHour": format_money(nearest(bill.total)),
        "costPerMonth": format_money(nearest(bill.total * HOURS_A_MONTH), 2),
        "committedPerHour": format_money(nearest(bill.committed)),
        "uncoveredPerHour": format_money(nearest(bill.uncovered)),
        "commitments": [_use(use) for use in bill.uses],
    }


def _use(use: Use) -> Json:
    entry = use.commitment
    figures = {"name": entry.name, "kind": entry.kind.value}
    if entry.is_plan:
        return {
            **figures,
            "hourly": format_money(entry.hourly),
            "usedPerHour": format_money(nearest(use.used)),
            "freePerHour": format_money(nearest(use.free)),
        }
    unit = "units" if entry.families else "machines"
    return {**figures, "unit": unit, "count": float(use.available), "used": float(use.used), "free": float(use.free)}


def use_rows(bill: Bill | None) -> list[tuple[str, str, float, str]]:
    """Return, for each commitment, its name, its kind, which share of it is used, and what is free, in words."""
    return [
        (use.commitment.name, KIND_WORDS[use.commitment.kind], float(used_share(use)), _free(use))
        for use in (() if bill is None else bill.uses)
    ]


def used_share(use: Use) -> Fraction:
    """Return which share of a commitment is used; all of one of nothing."""
    return use.used / use.available if use.available else Fraction(1)


def bill_text(bill: Bill | None) -> str:
    """Return a bill in one sentence; empty if there are no commitments."""
    if bill is None or not bill.uses:
        return ""
    uses = "; ".join(f"{use.commitment.name}: {_free(use)}" for use in bill.uses)
    parts = f"{dollars(bill.committed)}/h is committed, {dollars(bill.uncovered)}/h is not covered"
    return f"Of {dollars(bill.total)}/h ({monthly(bill.total)}) {parts}. {uses}."


def _free(use: Use) -> str:
    if use.commitment.is_plan:
        return f"{dollars(use.free)}/h of {dollars(use.available)}/h is free"
    unit = "units" if use.commitment.families else "machines"
    return f"{float(use.free):g} of {float(use.available):g} {unit} are free"


def price_reason(billing: Billing, name: str) -> str:
    """Return which price of a node was used and why; empty if it is its list price."""
    price, listed = billing.price(name), billing.list_price(name)
    if price is None or listed is None or not billing.has_commitments:
        return ""
    covered = billing.coverage(name)
    if not covered:
        return (
            "no commitment covers it"
            if price == listed
            else f"its going saves {dollars(price)}/h of {dollars(listed)}/h"
        )
    share = sum(part for _, part in covered)
    by = " and ".join(name for name, _ in covered)
    how = "covered" if share == 1 else f"{float(share):.0%} of such nodes are covered"
    free = [f"{use.commitment.name}: {_free(use)}" for use in billing.bill.uses if use.commitment.name in dict(covered)]
    return f"{how} by {by}: going saves {dollars(price)}/h of its {dollars(listed)}/h ({'; '.join(free)})"


def price_document(billing: Billing, name: str) -> Json | None:
    """Return the price of a node that was used and why, as JSON; None if it is unknown."""
    price, listed = billing.price(name), billing.list_price(name)
    if price is None or listed is None:
        return None
    return {
        "perHour": format_money(price),
        "perMonth": format_money(nearest(Fraction(price * HOURS_A_MONTH)), 2),
        "listPerHour": format_money(listed),
        "coveredBy": [{"commitment": entry, "share": round(float(part), 6)} for entry, part in billing.coverage(name)],
        "why": price_reason(billing, name) or "its price in the catalogue",
    }
