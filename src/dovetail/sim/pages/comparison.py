"""What a comparison of policies looks like to a person: the sentence and the table; `sim.pages.run_page` is the page.

Made from `Result`s only; runs nothing. One policy is the yardstick for the others: `karpenter-1.15` where it took part,
else the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.report.words import count, dollars, span
from dovetail.sim.knee import knee
from dovetail.sim.ledger import Result
from dovetail.sim.world.world import START

YARDSTICK = "karpenter-1.15"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPage:
    """Several policies on one world. `pair`: the two to put side by side; by default the yardstick and the best."""

    scenario: str
    about: str
    seed: int
    seconds: float
    results: Sequence[Result]
    start: datetime = START
    pair: tuple[Result, ...] = ()

    @property
    def yardstick(self) -> Result:
        """Return what the others are compared with."""
        return next((entry for entry in self.results if entry.policy == YARDSTICK), self.results[0])

    @property
    def best(self) -> Result:
        """Return the other policy nearest to least cost and fewest restarts together.

        Of equals the one with fewer restarts.
        """
        others = [entry for entry in self.results if entry is not self.yardstick] or [self.yardstick]
        return knee(
            others,
            cost=lambda entry: entry.cost,
            moves=lambda entry: entry.pods_disrupted,
            name=lambda entry: entry.policy,
        )


def sentence(comparison: PolicyPage) -> str:
    """Return what a manager wants to know, in one or two sentences."""
    before, after = comparison.yardstick, comparison.best
    began = (
        f"In {span(comparison.seconds)}, {before.policy} restarted pods {before.pods_disrupted:,} times "
        f"({count(before.pods_disrupted_more_than_once, 'pod')} more than once) and went through "
        f"{count(before.nodes_started, 'new node')}; {count(before.short_lived_nodes, 'node')} lived under 15 minutes"
    )
    if after is before:
        return f"{began}, for {dollars(before.cost, 2)}."
    return (
        f"{began}. With {after.policy} it was {after.pods_disrupted:,} times "
        f"({count(after.pods_disrupted_more_than_once, 'pod')} more than once) and "
        f"{count(after.nodes_started, 'new node')}; "
        f"the bill was {dollars(after.cost, 2)} instead of {dollars(before.cost, 2)} ({_change(before, after)})."
    )


def _change(before: Result, after: Result) -> str:
    if not before.cost:
        return "nothing to compare"
    percent = 100 * (after.cost - before.cost) / before.cost
    return f"{percent:+.1f} %" if abs(percent) >= 0.05 else "the same"


COLUMNS = (
    "policy", "pod restarts", "more than once", "new nodes", "lived < 15m", "median life", "node hours", "cost",
    "waiting", "violations",
)  # fmt: skip


def rows(results: Sequence[Result]) -> list[list[str]]:
    """Return the table of all policies, as text."""
    return [
        [
            entry.policy,
            f"{entry.pods_disrupted:,}",
            f"{entry.pods_disrupted_more_than_once:,}",
            f"{entry.nodes_started:,}",
            f"{entry.short_lived_nodes:,}",
            span(entry.median_node_life_seconds) if entry.median_node_life_seconds is not None else "none ended",
            f"{entry.node_hours:,.1f}",
            dollars(entry.cost, 2),
            span(entry.pending_pod_seconds),
            f"{len(entry.violations)}",
        ]
        for entry in results
    ]
