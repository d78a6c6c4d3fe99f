"""Sections of the plan's page that options ask for: every method, every candidate, the rounds to the end, a comparison.

Markup of what was decided elsewhere. Sits in plan; `plan.pages.page` puts them on the page.
"""

from dovetail.decide.round import RoundResult
from dovetail.decide.words import cents
from dovetail.plan.comparison import ProfileComparison, by_kind, now_row
from dovetail.plan.to_end import ToEnd
from dovetail.plan.to_end_text import end_text, folded
from dovetail.plan.whole import whole_text
from dovetail.report import page as html
from dovetail.report.words import action_words, count, listing

_FOLD_AT = 40
_NAMED = 12


def methods_section(result: RoundResult) -> str:
    """Return a table of what every method would do on the cluster as it is."""
    rows = []
    for entry in result.methods:
        nodes = [name for command in entry.commands for name in command.nodes]
        actions = ", ".join(sorted({command.action.value for command in entry.commands})) or "nothing"
        saved = sum(command.savings for command in entry.commands)
        rows.append(
            [
                html.text(entry.method.value),
                f"{len(entry.candidates):,}",
                html.text(actions),
                f"{len(nodes):,}",
                html.text(cents(saved)),
                f"{sum(command.pods for command in entry.commands):,}",
                html.text(listing(nodes, 6) or "-"),
            ]
        )
    head = ["method", "candidates", "would do", "nodes", "saves per hour", "pods restarted", "which"]
    return f"<h2>Every method</h2><p>Each on the cluster as it is now.</p>{html.table(head, rows, (1, 3, 4, 5))}"


def candidates_section(result: RoundResult) -> str:
    """Return what drift and one-node cost would do with each candidate alone."""
    parts = ["<h2>Every candidate, alone</h2><p>Budgets left aside.</p>"]
    for entry in result.methods:
        if entry.alone is None:
            continue
        rows = [
            [
                html.name(each.node),
                "-" if each.command is None else html.text(each.command.action.value),
                "-" if each.command is None else html.text(cents(each.command.savings)),
                "-" if each.command is None else f"{each.command.pods:,}",
                html.text(each.why),
            ]
            for each in entry.alone
        ]
        table = html.table(["node", "would", "saves per hour", "pods restarted", "why"], rows, (2, 3))
        opened = " open" if len(rows) <= _FOLD_AT else ""
        summary = f"<b>{html.text(entry.method.value)}</b>: {count(len(rows), 'candidate')}"
        parts.append(f"<details{opened}><summary>{summary}</summary>{table if rows else '<p>None.</p>'}</details>")
    return "".join(parts)


def to_end_section(plan: ToEnd) -> str:
    """Return all rounds with their running totals, those of one kind folded; title and cards have the end."""
    if not plan.steps:
        return "<h2>To the end</h2><p>Nothing would be done.</p>"
    rows = []
    for entry in folded(plan):
        kinds = [each.machine.kind.name if each.machine else f"a node of {each.node_pool}" for each in entry.launched]
        rows.append(
            [
                html.text(entry.rounds),
                html.text(", ".join(action_words(action.value) for action in entry.actions)),
                html.text(f"{len(entry.nodes):,}: {listing(entry.nodes, 6)}", 600),
                html.text(listing(kinds, 4) or "-"),
                html.text(cents(entry.saves)),
                f"{entry.restarts:,}",
                html.text(cents(entry.saved)),
                f"{entry.restarted:,}",
            ]
        )
    head = [
        "rounds",
        "action",
        "nodes that go",
        "new nodes",
        "saves per hour",
        "restarts",
        "saved so far",
        "restarts so far",
    ]
    left = "" if plan.complete else "<p>More rounds are left (--rounds).</p>"
    end = f"<p><b>{html.text(end_text(plan))}</b></p>"
    return f"<h2>To the end</h2>{left}{html.table(head, rows, (4, 5, 6, 7))}{end}"


def comparison_section(comparison: ProfileComparison) -> str:
    """Return both sides' round and end, and the nodes that differ, grouped by how."""
    own, other = comparison.own, comparison.other
    now = [[html.text(cell) for cell in now_row(side.called, side)] for side in (own, other)]
    sides = html.table(["rules", "now", "nodes", "saves per hour", "restarts", "could go later"], now, (2, 3, 4, 5))
    ends = "".join(
        f"<p>{html.text(end.first.called)}, to the end: {html.text(whole_text(end) or 'nothing would be done.')}</p>"
        for end in comparison.ends or ()
    )
    rows = [
        [
            f"{len(group):,}",
            html.text(group[0].verdict),
            html.text(group[0].other_verdict),
            f"{html.name(group[0].node)}: {html.text(group[0].why, 600)}",
            html.text(listing([entry.node for entry in group], _NAMED), 2000),
        ]
        for group in by_kind(comparison.differences)
    ]
    head = ["nodes", own.called, other.called, "why they differ, for example", "which"]
    differ = f"<h3>{count(len(comparison.differences), 'node differs', 'nodes differ')}</h3>"
    table = html.table(head, rows, (0,)) if rows else "<p>Every node gets the same verdict from both.</p>"
    return f"<h2>Compared with {html.text(other.called)}</h2>{sides}{ends}{differ}{table}"
