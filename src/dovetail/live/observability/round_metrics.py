"""Metrics that are read off the last round when Prometheus asks: backlogs and their age, money held back, rolls.

Names and labels are those of Karpenter's design for disruption performance metrics where it has them. They describe the
last round whose verdicts were computed, so a scrape computes nothing that the controller would not.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dovetail.decide.rollouts.status import RollStatus
from dovetail.decide.round import RoundResult
from dovetail.lifecycle.engine import Engine
from dovetail.model.money import as_float, nearest
from dovetail.model.verdicts import ELIGIBLE

_KARPENTER: Final = "karpenter_voluntary_disruption"
_BACKLOG: Final = ("nodepool", "reason", "consolidation_type", "blocker")
_COMMITMENT: Final = ("commitment", "unit")
_MONEY: Final = ("nodepool", "consolidation_type", "blocker", "pricing_status")


class RoundMetrics(Collector):
    """Reads the rounds of `engine`; nothing until that is set."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.engine: Engine | None = None
        registry.register(self)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics without their values."""
        return iter((*_families().values(),))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics."""
        families = _families()
        ages = {} if self.engine is None else self.engine.command_ages()
        for (action, phase), (count, age) in ages.items():
            families["commands"].add_metric([action, phase], count)
            families["command_age"].add_metric([action, phase], age)
        result = None if self.engine is None else self.engine.told_round
        if isinstance(result, RoundResult):
            _add_backlog(families, result)
            _add_bill(families, result)
            for status in result.rollouts:
                _add_roll(families, status)
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        "remaining": GaugeMetricFamily(
            f"{_KARPENTER}_candidates_remaining",
            "Unhealthy, expired and drifted nodes that a gate holds.",
            labels=_BACKLOG,
        ),
        "oldest": GaugeMetricFamily(
            f"{_KARPENTER}_oldest_backlog_age_seconds",
            "How long the oldest of these nodes has waited.",
            labels=_BACKLOG,
        ),
        "held": GaugeMetricFamily(
            f"{_KARPENTER}_consolidation_source_cost_upper_bound_usd_per_hour",
            "Price of the nodes that a gate holds: lifting it saves no more.",
            labels=_MONEY,
        ),
        "bill": GaugeMetricFamily(
            "dovetail_bill_dollars_per_hour",
            "What the nodes cost: committed, and not covered by commitments.",
            labels=("part",),
        ),
        "available": GaugeMetricFamily(
            "dovetail_commitment_available",
            "This cluster's share of a commitment: dollars_per_hour, machines or units.",
            labels=_COMMITMENT,
        ),
        "used": GaugeMetricFamily(
            "dovetail_commitment_used", "What the nodes use of it, in the same unit.", labels=_COMMITMENT
        ),
        "commands": GaugeMetricFamily(
            "dovetail_commands_by_action", "Commands in progress.", labels=("action", "phase")
        ),
        "command_age": GaugeMetricFamily(
            "dovetail_command_age_seconds",
            "How long ago the oldest command was decided.",
            labels=("action", "phase"),
        ),
        "roll": GaugeMetricFamily(
            "dovetail_rollout_nodes",
            "Nodes of a roll: replaced, in_flight, waiting, blocked.",
            labels=("nodepool", "cause", "state"),
        ),
        "end": GaugeMetricFamily(
            "dovetail_rollout_expected_end_timestamp_seconds",
            "When a roll is expected to end; +Inf: never, as things are.",
            labels=("nodepool", "cause"),
        ),
    }


def _add_backlog(families: dict[str, GaugeMetricFamily], result: RoundResult) -> None:
    verdicts = {entry.node: entry.verdict for entry in result.brief_verdicts}
    waiting = {entry.node: entry for entry in result.waiting}
    ages: dict[tuple[str, str, str, str], list[float]] = {}
    for entry in waiting.values():
        gate = verdicts.get(entry.node, "")
        key = (entry.node_pool, entry.reason.value.lower(), "", "" if gate == ELIGIBLE else gate)
        ages.setdefault(key, []).append((result.now - entry.since).total_seconds())
    for key, found in sorted(ages.items()):
        families["remaining"].add_metric(key, len(found))
        families["oldest"].add_metric(key, max(0.0, *found))
    held: dict[tuple[str, str], int] = {}
    for brief in result.brief_verdicts:
        if brief.node_pool and brief.verdict != ELIGIBLE and brief.node not in waiting:
            key_of = brief.node_pool, brief.verdict
            held[key_of] = held.get(key_of, 0) + result.prices.get(brief.node, 0)
    for (pool, gate), money in sorted(held.items()):
        families["held"].add_metric([pool, "", gate, "available"], as_float(money))


def _add_bill(families: dict[str, GaugeMetricFamily], result: RoundResult) -> None:
    bill = result.bill
    if bill is None:
        families["bill"].add_metric(["uncovered"], as_float(result.cost_per_hour))
        return
    families["bill"].add_metric(["committed"], as_float(nearest(bill.committed)))
    families["bill"].add_metric(["uncovered"], as_float(nearest(bill.uncovered)))
    for use in bill.uses:
        entry = use.commitment
        unit = "dollars_per_hour" if entry.is_plan else "units" if entry.families else "machines"
        for key, amount in (("available", use.available), ("used", use.used)):
            families[key].add_metric([entry.name, unit], as_float(nearest(amount)) if entry.is_plan else float(amount))


def _add_roll(families: dict[str, GaugeMetricFamily], status: RollStatus) -> None:
    counts = {
        "replaced": status.replaced,
        "in_flight": status.in_flight,
        "waiting": status.waiting,
        "blocked": status.blocked,
    }
    for state, count in counts.items():
        families["roll"].add_metric([status.node_pool, status.cause, state], count)
    end = float("inf") if status.expected_end is None else status.expected_end.timestamp()
    families["end"].add_metric([status.node_pool, status.cause], end)
