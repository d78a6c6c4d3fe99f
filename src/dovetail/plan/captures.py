"""`dovetail diff A B`: what changed between two captures, in nodes, cost and blockers. Sits in plan."""

from dataclasses import dataclass

from dovetail.decide.decider import Decider
from dovetail.decide.document import Json
from dovetail.decide.question import Question
from dovetail.decide.words import dollars
from dovetail.model.money import Money, format_money
from dovetail.plan.blocking.blockers import Blocker, find_blockers
from dovetail.plan.whole import monthly
from dovetail.report.table import paragraph
from dovetail.report.words import count, listing, safe


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturesDiff:
    """What two captures differ in."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    cost: tuple[Money, Money]
    new: tuple[Blocker, ...]
    gone: tuple[Blocker, ...]

    def to_dict(self) -> Json:
        """Return the JSON of the contract."""
        return {
            "nodes": {"added": list(self.added), "removed": list(self.removed)},
            "costPerHour": {"before": format_money(self.cost[0]), "after": format_money(self.cost[1])},
            "blockers": {
                "new": [entry.to_dict() for entry in self.new],
                "gone": [entry.to_dict() for entry in self.gone],
            },
        }

    @property
    def text(self) -> str:
        """Return it in words."""
        before, after = self.cost
        lines = paragraph(
            f"{dollars(before)}/h → {dollars(after)}/h ({monthly(after - before)} a month); "
            f"{count(len(self.added), 'node')} came, {count(len(self.removed), 'node')} went."
        )
        for word, some in (("came", self.added), ("went", self.removed)):
            lines += paragraph(f"{word}: {listing(some, 10)}", indent="  ") if some else []
        for word, blockers in (("New blockers", self.new), ("Blockers that are gone", self.gone)):
            lines += ["", f"{word}:"] if blockers else []
            for entry in blockers:
                what = f"{entry.kind} {entry.name} ({entry.gate}): {dollars(entry.savings)}/h"
                lines += paragraph(what, indent="  ")
        return "\n".join(safe(line, 2000) for line in lines)


def captures_diff(before: Question, after: Question) -> CapturesDiff:
    """Return what changed from one capture to the other."""
    nodes = [frozenset(node.metadata.name for node in side.cluster.nodes) for side in (before, after)]
    prices = [sum(Decider(memory=False).round(side).prices.values()) for side in (before, after)]
    blockers = [{(e.kind, e.name, e.gate): e for e in find_blockers(side)} for side in (before, after)]
    return CapturesDiff(
        added=tuple(sorted(nodes[1] - nodes[0])),
        removed=tuple(sorted(nodes[0] - nodes[1])),
        cost=(prices[0], prices[1]),
        new=tuple(entry for key, entry in blockers[1].items() if key not in blockers[0]),
        gone=tuple(entry for key, entry in blockers[0].items() if key not in blockers[1]),
    )
