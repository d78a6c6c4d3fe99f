"""The plan as a page: what would be done, what it saves, what holds the rest back, and every node with its reason.

Made from a `RoundResult` and the document of `plan.view`; decides nothing. Opens offline.
"""

from collections.abc import Sequence
from typing import Any

from dovetail import __version__
from dovetail.decide.optimal import optimal_of
from dovetail.decide.outcome import UNLIMITED, RoundResult
from dovetail.decide.words import clock
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command
from dovetail.model.verdicts import ELIGIBLE, Gate, NodeVerdict
from dovetail.plan.summary import FIRST_STEP, optimal_text, price_text, prices_text, total_price
from dovetail.report import page as html
from dovetail.report.words import action_words, count, dollars

Json = dict[str, Any]
_NOTHING = "<p>Nothing: no node passes every gate at this moment.</p>"
_EXACT = "Figures are exact; money is shown rounded."


def plan_page(
    result: RoundResult,
    catalogue: Catalogue | None = None,
    sections: Sequence[str] = (),
    view: Json | None = None,
) -> str:
    """Return the whole page; with a catalogue, its foot says where the prices are from and of which day.

    `sections`: markup of `plan.pages.page_sections`, for what options asked for. `view`: the document of `plan.view`,
    which the page's script draws; without it the nodes are not listed one by one.
    """
    verdicts = result.verdicts
    taken = {name for command in result.commands for name in command.nodes}
    groups = _groups(verdicts, taken)
    saved = sum(command.savings for command in result.commands)
    pods = sum(command.pods for command in result.commands)
    now = "".join(_command(command) for command in result.commands)
    reached = optimal_text(optimal_of(result.commands, result.value_at_most))
    above = html.cards(
        [
            (f"{len(verdicts):,}", f"nodes, {total_price(result)}"),
            (f"{len(taken):,}", "would go now"),
            (dollars(saved, 2), "saved per hour"),
            (f"{pods:,}", "pods restarted"),
        ]
    )
    body = [
        html.panel("Now", (now or _NOTHING) + (f"<p>{html.text(reached, 500)}</p>" if reached else "")),
        *(f'<section class="panel">{section}</section>' for section in sections),
        html.panel("What holds the rest back", _held(result, groups)),
        html.panel("Budgets", _budgets(result) + _warnings(result.warnings)),
    ]
    return html.page(
        "What would be done next, and why",
        f"At {html.text(clock(result.now))}, by the rules of {html.text(result.profile.value)}: "
        f"{html.text(_lead(result, len(taken), saved))}",
        "".join(body),
        " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(catalogue), _EXACT))),
        above=above,
        document=view,
    )


def _lead(result: RoundResult, taken: int, saved: int) -> str:
    if not taken:
        return "nothing would be done."
    actions = sorted({action_words(command.action.value) for command in result.commands})
    return f"{' and '.join(actions)}, {count(taken, 'node')}, saving {dollars(saved, 2)} per hour."


def _groups(verdicts: Sequence[NodeVerdict], taken: set[str]) -> list[tuple[str, list[NodeVerdict]]]:
    groups: dict[str, list[NodeVerdict]] = {}
    for entry in verdicts:
        groups.setdefault("taken now" if entry.node in taken else entry.verdict, []).append(entry)
    return sorted(groups.items(), key=lambda group: (group[0] != "taken now", -len(group[1]), group[0]))


def _command(command: Command) -> str:
    nodes = ", ".join(html.name(node) for node in command.nodes[:12])
    if len(command.nodes) > 12:
        nodes += f" and {len(command.nodes) - 12} more"
    title = f"{action_words(command.action.value)}: {count(len(command.nodes), 'node')}"
    parts = [f"<h3>{html.text(title.capitalize())}</h3><p>{nodes}</p>"]
    facts = [f"saves {dollars(command.savings)} per hour"]
    if command.required_savings:
        facts.append(f"{dollars(command.required_savings)} asked for")
    facts.append(f"restarts {count(command.pods, 'pod')} (disruption cost {command.disruption_cost:.4g})")
    parts.append(f"<p>{html.text(', '.join(facts))}.</p>")
    for entry in command.replacements:
        kinds = ", ".join(entry.instance_types[:6]) or "from the pool's template"
        more = f" and {len(entry.instance_types) - 6} more" if len(entry.instance_types) > 6 else ""
        where = f"{'/'.join(entry.capacity_types) or 'any'}, {', '.join(entry.zones) or 'any zone'}"
        parts.append(
            f"<p>First a new node of {html.name(entry.node_pool)}: {html.text(kinds + more)} ({html.text(where)}).</p>"
        )
    if command.placements:
        rows = [[html.name(entry.node), html.text(", ".join(entry.pods), 2000)] for entry in command.placements]
        table = html.table(["takes", "pods"], rows)
        parts.append(f"<details><summary>where the pods go</summary>{table}</details>")
    return "".join(parts)


def _held(result: RoundResult, groups: Sequence[tuple[str, list[NodeVerdict]]]) -> str:
    held = [(gate, members) for gate, members in groups if gate not in ("taken now", ELIGIBLE)]
    if not held:
        return "<p>Nothing is held back.</p>"
    rows = []
    for gate, members in held:
        step = FIRST_STEP.get(Gate(gate), "")
        rows.append(
            [
                f"<code>{html.text(gate)}</code>",
                f"{len(members):,}",
                price_text(result, members),
                f"{html.name(members[0].node)}: {html.text(members[0].why)}",
                html.text(step),
            ]
        )
    head = ["gate", "nodes", "price of these nodes", "for example", "what would help"]
    note = (
        "<p>The price is what these nodes cost, not what could be saved: <code>dovetail blockers</code> finds that.</p>"
    )
    return html.table(head, rows, (1, 2)) + note


def _budgets(result: RoundResult) -> str:
    def amount(number: int) -> str:
        return "no limit" if number >= UNLIMITED - 100_000 else f"{number:,}"

    rows = [
        [html.name(row.node_pool), html.text(row.reason.value), amount(row.allowed), f"{row.used:,}", amount(row.left)]
        for row in result.budgets
    ]
    return html.table(["pool", "reason", "allowed", "used", "left"], rows, (2, 3, 4)) if rows else "<p>No pools.</p>"


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{html.text(text, 500)}</li>" for text in warnings)
    opened = " open" if len(warnings) <= 5 else ""
    return f"<details{opened}><summary>{count(len(warnings), 'warning')}</summary><ul>{items}</ul></details>"
