"""Sections of the plan's page that options ask for: every method, every candidate, the rounds to the end, a comparison.

Markup of what was decided elsewhere. Sits in plan; `plan.pages.page` puts them on the page.
"""

from dovetail.decide.outcome import RoundResult
from dovetail.plan.comparison import ProfileComparison
from dovetail.plan.summary import optimal_text
from dovetail.plan.to_end import ToEnd
from dovetail.report import page as html
from dovetail.report.words import count, dollars, listing

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
                html.text(dollars(saved, 2)),
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
                "-" if each.command is None else html.text(dollars(each.command.savings, 2)),
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
    """Return all rounds with their running totals."""
    if not plan.steps:
        return "<h2>To the end</h2><p>Nothing would be done.</p>"
    rows = []
    for step in plan.steps:
        for command, opened in zip(step.commands, step.launched, strict=True):
            new = [entry.machine.kind.name if entry.machine else f"a node of {entry.node_pool}" for entry in opened]
            rows.append(
                [
                    str(step.round),
                    html.text(command.action.value),
                    html.text(listing(command.nodes, 6)),
                    html.text(", ".join(new) or "-"),
                    html.text(dollars(command.savings, 2)),
                    f"{command.pods:,}",
                    html.text(dollars(step.saved, 2)),
                    f"{step.pods_moved:,}",
                ]
            )
    head = ["round", "action", "nodes", "new nodes", "saves per hour", "pods", "saved so far", "restarts so far"]
    table = html.table(head, rows, (0, 4, 5, 6, 7))
    said = (
        f"{count(plan.commands, 'command')} in {count(len(plan.steps), 'round')}: {len(plan.first.prices):,} nodes "
        f"become {plan.nodes:,}, {dollars(plan.saved, 2)} per hour is saved, {count(plan.pods_moved, 'pod restart')}."
    )
    left = "" if plan.complete else " More rounds are left (--rounds)."
    reached = f" {optimal_text(plan.optimal, to_end=True)}"
    return f"<h2>To the end</h2><p>{html.text(said + left + reached, 1000)}</p>{table}"


def comparison_section(comparison: ProfileComparison) -> str:
    """Return what the other profile would do, and the nodes that differ."""
    other = comparison.other.profile.value
    commands = comparison.other.commands
    saved = dollars(sum(command.savings for command in commands), 2)
    nodes = sum(len(command.nodes) for command in commands)
    pods = sum(command.pods for command in commands)
    said = f"{other} would take {count(nodes, 'node')} now, saving {saved} per hour with {count(pods, 'pod restart')}."
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
    head = ["node", "pool", comparison.own.profile.value, other, "why they differ"]
    opened = " open" if len(rows) <= _FOLD_AT else ""
    table = f"<details{opened}><summary>{count(len(rows), 'node')} differ</summary>{html.table(head, rows)}</details>"
    return f"<h2>Compared with {html.text(other)}</h2><p>{html.text(said)}</p>{table}"
