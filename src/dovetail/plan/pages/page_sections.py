"""Sections of the plan's page that options ask for: every method, every candidate, the rounds to the end, a comparison.

Markup of what was decided elsewhere. Sits in plan; `plan.pages.page` puts them on the page.
"""

from dovetail.decide.outcome import RoundResult
from dovetail.decide.words import cents
from dovetail.plan.comparison import ProfileComparison
from dovetail.plan.to_end import ToEnd
from dovetail.plan.to_end_text import folded
from dovetail.plan.whole import whole_text
from dovetail.report import page as html
from dovetail.report.words import count, listing

_FOLD_AT = 40


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
    """Return the end, and all rounds with their running totals, those of one kind folded."""
    if not plan.steps:
        return "<h2>To the end</h2><p>Nothing would be done.</p>"
    rows = []
    for entry in folded(plan):
        kinds = [each.machine.kind.name if each.machine else f"a node of {each.node_pool}" for each in entry.launched]
        rows.append(
            [
                html.text(entry.rounds),
                html.text(", ".join(action.value for action in entry.actions)),
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
    left = "" if plan.complete else " More rounds are left (--rounds)."
    said = html.text(whole_text(plan) + left, 1000)
    return f"<h2>To the end</h2><p>{said}</p>{html.table(head, rows, (4, 5, 6, 7))}"


def comparison_section(comparison: ProfileComparison) -> str:
    """Return what the other profile would do, and the nodes that differ."""
    other = comparison.other.called
    commands = comparison.other.commands
    saved = cents(sum(command.savings for command in commands))
    nodes = sum(len(command.nodes) for command in commands)
    pods = sum(command.pods for command in commands)
    said = f"{other} would take {count(nodes, 'node')} now, saving {saved} per hour with {count(pods, 'pod restart')}."
    ends = (
        ""
        if comparison.ends is None
        else f"<p>{html.text(other)}, to the end: {html.text(_end(comparison.ends[1]))}</p>"
    )
    rows = [
        [
            html.name(entry.node),
            html.name(entry.node_pool),
            html.text(entry.verdict),
            html.text(entry.other_verdict),
            html.text(entry.why, 600),
        ]
        for entry in comparison.differences
    ]
    head = ["node", "pool", comparison.own.called, other, "why they differ"]
    opened = " open" if len(rows) <= _FOLD_AT else ""
    table = f"<details{opened}><summary>{count(len(rows), 'node')} differ</summary>{html.table(head, rows)}</details>"
    return f"<h2>Compared with {html.text(other)}</h2><p>{html.text(said)}</p>{ends}{table}"


def _end(plan: ToEnd) -> str:
    return whole_text(plan) or "nothing would be done."
