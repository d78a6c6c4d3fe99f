"""The figures of several clusters side by side, and their sums: of plans, and of what holds back how much money.

Sits in plan; `cli.many` asks the clusters and prints the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dovetail.decide.round import RoundResult
from dovetail.decide.words import cents
from dovetail.model.money import Money, format_money
from dovetail.plan.blocking.blockers import Blocker
from dovetail.plan.to_end import ToEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """A cluster's next round, and what all rounds save; None where that is not known (a large cluster)."""

    TITLE: ClassVar[str] = "What would be done next, cluster by cluster"
    HEAD: ClassVar[tuple[str, ...]] = ("nodes", "cost/h", "commands", "saves/h", "restarts", "in all/h")

    nodes: int = 0
    cost: Money = 0
    commands: int = 0
    saves: Money = 0
    restarts: int = 0
    end_saves: Money | None = 0

    @classmethod
    def of(cls, result: RoundResult, end: ToEnd | None) -> Self:
        """Return the figures of a round."""
        return cls(
            nodes=len(result.prices),
            cost=result.cost_per_hour,
            commands=len(result.commands),
            saves=sum(command.savings for command in result.commands),
            restarts=sum(command.pods for command in result.commands),
            end_saves=None if end is None else end.saved,
        )

    def plus(self, other: Self) -> Self:
        """Return the sum."""
        ends = None if self.end_saves is None or other.end_saves is None else self.end_saves + other.end_saves
        return type(self)(
            nodes=self.nodes + other.nodes,
            cost=self.cost + other.cost,
            commands=self.commands + other.commands,
            saves=self.saves + other.saves,
            restarts=self.restarts + other.restarts,
            end_saves=ends,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the total of the JSON document."""
        return {
            "nodes": self.nodes,
            "costPerHour": format_money(self.cost),
            "actions": self.commands,
            "savingsPerHour": format_money(self.saves),
            "pods": self.restarts,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        end = "?" if self.end_saves is None else cents(self.end_saves)
        return (
            f"{self.nodes:,}", cents(self.cost), f"{self.commands:,}", cents(self.saves), f"{self.restarts:,}", end,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockerFigures:
    """What holds nodes of a cluster back. `dearest`: what the dearest saves alone; savings of several don't add up."""

    TITLE: ClassVar[str] = "What holds back how much money, cluster by cluster"
    HEAD: ClassVar[tuple[str, ...]] = ("blockers", "never", "nodes", "dearest/h", "which")

    blockers: int = 0
    impossible: int = 0
    nodes: int = 0
    dearest: Money = 0
    which: str = ""

    @classmethod
    def of(cls, blockers: Sequence[Blocker]) -> Self:
        """Return the figures of a cluster; its blockers come the dearest first."""
        first = blockers[0] if blockers else None
        return cls(
            blockers=len(blockers),
            impossible=sum(entry.impossible for entry in blockers),
            nodes=sum(entry.nodes for entry in blockers),
            dearest=0 if first is None else first.savings,
            which="" if first is None else f"{first.kind} {first.name}",
        )

    def plus(self, other: Self) -> Self:
        """Return the sum; of the dearest the dearer."""
        dearer = self if self.dearest >= other.dearest and self.which else other
        return type(self)(
            blockers=self.blockers + other.blockers,
            impossible=self.impossible + other.impossible,
            nodes=self.nodes + other.nodes,
            dearest=dearer.dearest,
            which=dearer.which,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the total of the JSON document."""
        return {
            "blockers": self.blockers,
            "impossible": self.impossible,
            "dearest": {"name": self.which, "savingsPerHour": format_money(self.dearest)} if self.which else None,
        }

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        return f"{self.blockers:,}", f"{self.impossible:,}", f"{self.nodes:,}", cents(self.dearest), self.which
