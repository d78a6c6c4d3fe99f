"""`plan --compare PROFILE`: what another profile would do on the same input, node by node, and why they differ.

Both answers are the core's own. This module adds which rule causes each difference. Sits in plan;
`cli.planning.plan` prints it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.decide.document import Json, action
from dovetail.decide.round import RoundResult
from dovetail.decide.words import cents
from dovetail.model.verdicts import ELIGIBLE, Gate, NodeVerdict
from dovetail.plan.to_end import ToEnd
from dovetail.plan.whole import monthly, rough
from dovetail.report.table import WIDTH, paragraph, text_table
from dovetail.report.words import count

_SHOWN = 12

RULES: dict[str, str] = {
    Gate.SAVINGS_THRESHOLD.value: "karpenter-1.15 has no savings threshold",
    Gate.GRACE_PERIOD.value: "karpenter-1.15 has no consolidationGracePeriod",
    Gate.TOPOLOGY_BUDGET.value: "karpenter-1.15 has no budgets per topology domain",
    Gate.CONSOLIDATE_AFTER.value: (
        "dovetail counts consolidateAfter from the last pod event, karpenter-1.15 reads the condition Consolidatable"
    ),
    Gate.SPOT_TO_SPOT.value: "spot to spot is off in karpenter-1.15 unless its feature gate is on, and on in dovetail",
    Gate.BUDGET.value: "the two read this budget differently (a broken one, a time zone) or take others first",
    Gate.NOT_EXPIRED.value: "dovetail retires expired nodes gracefully, karpenter-1.15 by force and outside its rounds",
    Gate.NOT_EMPTY.value: "karpenter-1.15 calls a node empty if none of its pods has a positive cost",
    Gate.SIMULATION.value: (
        "karpenter-1.15 moves no pod to a node within its consolidateAfter, and counts pending pods in every simulation"
    ),
    Gate.NEW_NODES.value: (
        "karpenter-1.15 moves no pod to a node within its consolidateAfter, and counts pending pods in every simulation"
    ),
    Gate.PRICE.value: "the two see different room: karpenter-1.15 hides nodes within their consolidateAfter",
    Gate.BALANCED.value: "the two measure disruption differently",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDifference:
    """A node that the two profiles judge differently."""

    node: str
    node_pool: str
    verdict: str
    other_verdict: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileComparison:
    """What another profile would do, and where it differs; `ends`: all rounds of both, if they were asked for."""

    own: RoundResult
    other: RoundResult
    differences: tuple[ProfileDifference, ...]
    ends: tuple[ToEnd, ToEnd] | None = None

    def to_dict(self) -> Json:
        """Return `compare` in the contract's form."""
        return {
            "profile": self.other.called,
            "actions": [action(command) for command in self.other.commands],
            "nodes": [
                {
                    "name": entry.node,
                    "nodePool": entry.node_pool,
                    "verdict": entry.verdict,
                    "otherVerdict": entry.other_verdict,
                    "why": entry.why,
                }
                for entry in self.differences
            ],
            **({} if self.ends is None else {"end": self.ends[1].steps_document()["end"]}),
        }


def compare(own: RoundResult, other: RoundResult, ends: tuple[ToEnd, ToEnd] | None = None) -> ProfileComparison:
    """Compare two rounds on the same input."""
    theirs = {entry.node: entry for entry in other.verdicts}
    found = []
    for mine in own.verdicts:
        his = theirs.get(mine.node)
        if his is not None and mine.verdict != his.verdict:
            found.append(
                ProfileDifference(
                    node=mine.node,
                    node_pool=mine.node_pool,
                    verdict=mine.verdict,
                    other_verdict=his.verdict,
                    why=_why(own, mine, other, his),
                )
            )
    return ProfileComparison(own=own, other=other, differences=tuple(found), ends=ends)


def _why(own: RoundResult, mine: NodeVerdict, other: RoundResult, his: NodeVerdict) -> str:
    taken, closed = (mine, his) if mine.verdict == ELIGIBLE else (his, mine)
    expired = taken.verdict == ELIGIBLE and any(entry.gate is Gate.NOT_EXPIRED for entry in taken.gates)
    rule = (
        RULES.get(Gate.NOT_EXPIRED.value if expired else closed.verdict, "") if own.profile is not other.profile else ""
    )
    because = f" ({rule})" if rule else ""
    return f"{own.called}: {_sentence(mine)} {other.called}: {_sentence(his)}{because}"


def _sentence(verdict: NodeVerdict) -> str:
    return verdict.why if verdict.why.endswith((".", "?")) else f"{verdict.why}."


# ---------------------------------------------------------------- in words


def comparison_text(comparison: ProfileComparison, *, wide: bool = False) -> str:
    """Return the comparison in words: actions, pools, nodes that differ."""
    own, other = comparison.own, comparison.other
    mine, theirs = own.called, other.called
    width = None if wide else WIDTH
    lines = [f"{mine} against {theirs}, on the same cluster", ""]
    if comparison.ends is not None:
        lines += [*_end_lines(comparison.ends), ""]
    rows = [now_row(mine, own), now_row(theirs, other)]
    head = ("RULES", "NOW", "NODES", "SAVES/H", "RESTARTS", "COULD GO")
    lines += text_table(head, rows, right=(2, 3, 4, 5), flexible=(1,), width=width)
    lines += paragraph(
        "NOW: the actions of this round, their NODES, savings and pod restarts. COULD GO: eligible nodes."
    )
    columns = ("POOL", "NODES", f"GO: {mine}", f"GO: {theirs}", "DIFFER")
    lines += ["", *text_table(columns, _pool_rows(comparison), right=(1, 2, 3, 4), flexible=(0,), width=width)]
    lines += paragraph("GO: nodes that could go by these rules. DIFFER: nodes with different answers.")
    if not comparison.differences:
        return "\n".join([*lines, "", "Every node gets the same verdict from both."])
    lines += ["", f"{count(len(comparison.differences), 'node')} differ:"]
    shown = comparison.differences if wide else _examples(comparison.differences)
    lines += text_table(
        ("NODE", "POOL", mine.upper(), theirs.upper()),
        [(entry.node, entry.node_pool, entry.verdict, entry.other_verdict) for entry in shown],
        flexible=(0, 1),
        width=width,
    )
    if len(shown) < len(comparison.differences):
        lines.append(f"and {len(comparison.differences) - len(shown):,} more (-o wide or -o json lists all)")
    lines += ["", "Why, one example of each kind:"]
    for entry in _one_of_each(comparison.differences):
        lines += paragraph(f"{entry.node}: {entry.why}", indent="  ")
    return "\n".join(lines)


def _end_lines(ends: tuple[ToEnd, ToEnd]) -> list[str]:
    """Return what all rounds of both come to."""
    rows = [
        (
            end.first.called,
            cents(end.saved),
            monthly(end.saved),
            f"{end.pods_moved:,}",
            f"{end.nodes_before:,} → {end.nodes:,}",
            "never" if end.pace.seconds is None else rough(end.pace.seconds).removeprefix("about "),
        )
        for end in ends
    ]
    head = ("RULES", "SAVES/H", "A MONTH", "RESTARTS", "NODES", "TAKES")
    left = [end.first.called for end in ends if not end.complete]
    more = f" {' and '.join(left)}: more rounds are left." if left else ""
    legend = "All rounds to the end; TAKES: about how long, by the budgets and timers."
    return [*text_table(head, rows, right=(1, 2, 3)), *paragraph(legend + more)]


def now_row(profile: str, result: RoundResult) -> tuple[str, ...]:
    """Return what one side would do now, as cells of a table."""
    commands = result.commands
    what = ", ".join(sorted({command.action.value for command in commands})) or "nothing"
    return (
        profile,
        what,
        f"{sum(len(command.nodes) for command in commands):,}",
        cents(sum(command.savings for command in commands)),
        f"{sum(command.pods for command in commands):,}",
        f"{sum(entry.verdict == ELIGIBLE for entry in result.verdicts):,}",
    )


def _pool_rows(comparison: ProfileComparison) -> list[tuple[str, ...]]:
    pools = sorted({entry.node_pool for entry in comparison.own.verdicts})
    rows: list[tuple[str, ...]] = []
    for pool in pools:
        mine = [entry for entry in comparison.own.verdicts if entry.node_pool == pool]
        his = [entry for entry in comparison.other.verdicts if entry.node_pool == pool]
        differ = sum(entry.node_pool == pool for entry in comparison.differences)
        rows.append((pool or "(no pool)", f"{len(mine):,}", _going(mine), _going(his), f"{differ:,}"))
    return rows


def _going(verdicts: Iterable[NodeVerdict]) -> str:
    return f"{sum(entry.verdict == ELIGIBLE for entry in verdicts):,}"


def by_kind(differences: Iterable[ProfileDifference]) -> list[list[ProfileDifference]]:
    """Return the differences grouped by the two verdicts."""
    kinds: dict[tuple[str, str], list[ProfileDifference]] = {}
    for entry in differences:
        kinds.setdefault((entry.verdict, entry.other_verdict), []).append(entry)
    return list(kinds.values())


def _one_of_each(differences: Iterable[ProfileDifference]) -> list[ProfileDifference]:
    return [group[0] for group in by_kind(differences)]


def _examples(differences: tuple[ProfileDifference, ...]) -> tuple[ProfileDifference, ...]:
    """Return a dozen: one of each kind first, then the first by name; in order of name."""
    chosen = {entry.node: entry for entry in _one_of_each(differences)[:_SHOWN]}
    for entry in differences:
        if len(chosen) >= _SHOWN:
            break
        chosen.setdefault(entry.node, entry)
    return tuple(sorted(chosen.values(), key=lambda entry: entry.node))
