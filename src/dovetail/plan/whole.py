"""The whole before the round: what all rounds together save, at what price, and how long they take, in one sentence.

Asked only where the answer comes within seconds: `END_NODES_MAX` bounds the cluster, `rounds_within` the rounds, both
by the work and not by a clock, so that the same input gives the same answer everywhere. Words only; the rounds are
those of `plan.to_end`. Sits in plan.
"""

from dataclasses import dataclass
from typing import Final

from dovetail.decide.document import unpriced_nodes
from dovetail.decide.question import Question
from dovetail.decide.words import dollars
from dovetail.model.money import HOURS_A_MONTH, Money
from dovetail.plan.pace import BY_ITSELF, Pace
from dovetail.plan.to_end import ROUNDS_MAX, ToEnd, plan_to_end
from dovetail.report.words import count

END_NODES_MAX: Final = 1000
"""Up to how many nodes `plan` asks for the end by itself."""
_WORK_MAX: Final = 2_000_000
"""How many nodes and pods may be looked at in all rounds together: about five seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """What a plan leads with: all rounds, if they could be had within seconds, and what to change first."""

    end: ToEnd | None
    text: str
    remedy: str = ""


def the_end(question: Question) -> ToEnd | None:
    """Return all rounds, if the cluster is small enough to have them within seconds; None if it is not."""
    cluster = question.cluster
    if len(cluster.nodes) > END_NODES_MAX:
        return None
    plan = plan_to_end(question, rounds_within(len(cluster.nodes) + len(cluster.pods)))
    return plan if plan.complete else None


def rounds_within(size: int) -> int:
    """Return how many rounds of a cluster with so many nodes and pods come within seconds."""
    return max(1, min(ROUNDS_MAX, _WORK_MAX // max(1, size)))


def whole_text(plan: ToEnd) -> str:
    """Return what all rounds together come to; empty if there is nothing to do."""
    if not plan.steps:
        return ""
    start = plan.first.cost_per_hour
    share = f"{100 * plan.saved / start:.0f} %, " if start and plan.saved > 0 else ""
    nodes = f"{plan.nodes_before:,} → {plan.nodes:,} nodes"
    rest = f"{nodes}, {count(plan.pods_moved, 'pod restart')}, {length_text(plan.pace)}"
    more = "" if plan.complete else " so far; more rounds are left"
    unpriced = frozenset(unpriced_nodes(plan.first))
    lacking = sum(node in unpriced for step in plan.steps for command in step.commands for node in command.nodes)
    without = f", not counting {count(lacking, 'node')} without a price" if lacking else ""
    if plan.saved > 0:
        money = f"{dollars(plan.saved)}/h ({share}{monthly(plan.saved)} a month)"
        return f"In all {money} can be saved{without}{more}: {rest}."
    commands = f"In all {count(plan.commands, 'command')}{more}"
    if plan.saved < 0:
        return f"{commands}, which cost {dollars(-plan.saved)}/h more{without}: {rest}."
    saves = f"an unknown amount ({count(lacking, 'node')} without a price)" if lacking else "nothing"
    return f"{commands}, which save {saves}: {rest}."


def hint_text(question: Question) -> str:
    """Return how to get the whole, for a cluster that is too large to have it within seconds."""
    nodes = count(len(question.cluster.nodes), "node")
    return f"What all rounds together save, and how long they take: add --to-end ({nodes}: it takes a while)."


def length_text(pace: Pace) -> str:
    """Return how long the rounds take, and what paces them."""
    seconds = pace.seconds
    if seconds is None:
        return f"not all of it ever: {pace.paced_by} does not allow it"
    return rough(seconds) if pace.paced_by == BY_ITSELF else f"{rough(seconds)}, paced by {pace.paced_by}"


def rough(seconds: float) -> str:
    """Return a length of time as people say it: `about 25 minutes`."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return f"about {round(seconds / size):,} {unit}s"
    return "about a minute"


def monthly(amount: Money) -> str:
    """Return money per hour as money per month of 730 hours; from 100 dollars on without cents."""
    bill = amount * HOURS_A_MONTH
    whole = round(abs(bill) / 10**18)
    return f"{'-' if bill < 0 else ''}${whole:,}" if whole >= 100 else dollars(bill)
