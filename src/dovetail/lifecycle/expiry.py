"""How many nodes Karpenter is about to end by force, as a report. Sits at the bottom of lifecycle, below `reports`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import ClassVar, Final

from dovetail.decide.methods.outlook import expiring_days
from dovetail.decide.outcome import ExpiringNode

_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryChanged:
    """How many nodes of a pool Karpenter ends by force within a day and a week; `late`: that budgets can't take before.

    `why`: the days on which they can't, in words.
    """

    topic: ClassVar[str] = "expiry"
    pool: str
    within_day: int
    within_week: int
    late: int
    why: str = ""

    @property
    def message(self) -> str:
        """Return it in words."""
        if self.why:
            return self.why
        return f"{self.within_week} nodes of NodePool {self.pool} expire within a week, {self.within_day} within a day"

    @property
    def figures(self) -> dict[str, str | int | float]:
        """Return the numbers."""
        return {"pool": self.pool, "withinDay": self.within_day, "withinWeek": self.within_week, "late": self.late}


def expiry_reports(nodes: Iterable[ExpiringNode]) -> dict[str, ExpiryChanged]:
    """Build the report of every pool that has such nodes, by name."""
    pools: dict[str, list[ExpiringNode]] = {}
    for entry in nodes:
        pools.setdefault(entry.node_pool, []).append(entry)
    return {
        pool: ExpiryChanged(
            pool=pool,
            within_day=sum(entry.left <= _DAY for entry in entries),
            within_week=len(entries),
            late=sum(not entry.in_time for entry in entries),
            why="; ".join(text for day in expiring_days(entries, UTC) if (text := day.late(UTC))),
        )
        for pool, entries in pools.items()
    }
