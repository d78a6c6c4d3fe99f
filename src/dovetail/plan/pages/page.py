"""The plan as a page: what would be done, what it saves, what holds the rest back, and every node with its reason.

Made from a `RoundResult` and the document of `plan.view`; decides nothing. Opens offline.
"""

from collections.abc import Sequence
from typing import Any

from dovetail import __version__
from dovetail.decide.billing_words import bill_text, use_rows
from dovetail.decide.outcome import UNLIMITED
from dovetail.decide.round import RoundResult
from dovetail.decide.words import clock, dollars
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command
from dovetail.model.verdicts import ELIGIBLE, NodeVerdict
from dovetail.plan.summary import first_step, price_text, prices_text, total_price
from dovetail.plan.to_end import ToEnd
from dovetail.plan.whole import Whole, length_text, monthly
from dovetail.report import page as html
from dovetail.report.words import action_words, count, listing

Json = dict[str, Any]
STEPS_MAX = 4
_NOTHING = "<p>Nothing: no node passes every gate at this moment.</p>"
_EXACT = "Figures are exact; money is shown rounded."


def plan_page(
    result: RoundResult,
    catalogue: Catalogue | None = None,
    sections: Sequence[str] = (),
    view: Json | None = None,
    notes: Sequence[str] = (),
    whole: Whole | None = None,
    cluster: str = "",
) -> str:
    """Return the whole page; with a catalogue, its foot says where the prices are from and of which day.

    `sections`: markup of `plan.pages.page_sections`, for what options asked for. `view`: the document of `plan.view`,
    which the page's script draws; without it the nodes are not listed one by one. `notes`: warnings about the input.
    `whole`: all rounds together, and what to change first. `cluster`: what was looked at, a file or a context.
    """
    verdicts = result.verdicts
    taken = {name for command in result.commands for name in command.nodes}
    groups = _groups(verdicts, taken)
    saved = sum(command.savings for command in result.commands)
    pods = sum(command.pods for command in result.commands)
    now = "".join(_command(command) for command in result.commands)
    going = [
        (f"{len(taken):,}", _now_label(len(taken), 0)),
        (dollars(saved), "saved per hour" + (" by that" if whole else "")),
        (f"{pods:,}", "pods restarted" + (" by that" if whole else "")),
    ]
    end = whole.end if whole is not None and whole.end is not None and whole.end.steps else None
    nodes = (f"{len(verdicts):,}", f"nodes, {total_price(result)}")
    figures = [nodes, *going] if end is None else [*_end_cards(end), (f"{len(taken):,}", _now_label(len(taken), saved))]
    body = [
        html.panel("Now", now or _NOTHING),
        *(f'<section class="panel">{section}</section>' for section in sections),
        html.panel("What holds the rest back", _held(result, groups, whole.remedy if whole else "")),
        html.panel("What is paid", _paid(result)) if result.bill is not None and result.bill.uses else "",
        '<div id="nodes"></div>' if view is not None else "",
        html.panel("Budgets", _budgets(result)),
        html.warnings([text for text in result.warnings if text not in notes]),
    ]
    return html.page(
        _title(result, len(taken), saved, end),
        _lead(result, cluster, whole.text if whole and end is None else ""),
        "".join(body),
        " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(catalogue, result.now), _EXACT))),
        above=html.notes(notes) + html.cards(figures),
        document=view,
    )


def _title(result: RoundResult, taken: int, saved: int, end: ToEnd | None) -> str:
    """Return the answer: what all rounds come to, else what would be done now."""
    if end is not None:
        nodes = f"{end.nodes_before:,} → {end.nodes:,} nodes"
        if end.saved > 0:
            return f"{monthly(end.saved)} a month can be saved: {nodes}"
        return f"{count(end.commands, 'command')}, {nodes}"
    if not taken:
        return f"Nothing to do now: {count(len(result.verdicts), 'node stays', 'nodes stay')}"
    money = f", saving {monthly(saved)} a month" if saved > 0 else ""
    return f"{count(taken, 'node')} would go now{money}"


def _lead(result: RoundResult, cluster: str, hint: str) -> str:
    """Return of which cluster and moment the page is, and by whose rules; the figures are in title and cards."""
    by = f"{cluster}, by the rules of" if cluster else "By the rules of"
    return html.text(f"{by} {result.called}, at {clock(result.now)}. {hint}".strip(), 1000)


def _now_label(taken: int, saved: int) -> str:
    return (
        ("node" if taken == 1 else "nodes")
        + " would go now"
        + (f", saving {dollars(saved)} per hour" if saved > 0 else "")
    )


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
    month = f" ({monthly(command.savings)} a month)" if command.savings > 0 else ""
    asked = f" where {dollars(command.required_savings)} is asked for" if command.required_savings else ""
    facts = [f"Saves {dollars(command.savings)} per hour{month}{asked}"]
    facts.append(f"restarts {count(command.pods, 'pod') if command.pods else 'no pod'}")
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


def _end_cards(end: ToEnd) -> list[tuple[str, str]]:
    """Return the figures of all rounds together; the title has the money of a month and the nodes."""
    start = end.first.cost_per_hour
    share = f"{100 * end.saved / start:.0f} % of " if start and end.saved > 0 else "of "
    took, _, paced = length_text(end.pace).partition(", ")
    return [
        (dollars(end.saved), f"per hour saved in all rounds, {share}{dollars(start)}"),
        (f"{end.pods_moved:,}", "pods restarted in all rounds"),
        (took[0].upper() + took[1:], paced or "for all rounds"),
    ]


def _held(result: RoundResult, groups: Sequence[tuple[str, list[NodeVerdict]]], remedy: str) -> str:
    held = [(gate, members) for gate, members in groups if gate not in ("taken now", ELIGIBLE)]
    if not held:
        return "<p>Nothing is held back.</p>"
    rows = []
    for gate, members in held:
        rows.append(
            [
                f"<code>{html.text(gate)}</code>",
                f"{len(members):,}",
                price_text(result, members),
                f"{html.name(members[0].node)}: {html.text(members[0].why)}",
                html.text(_steps(members), 600),
            ]
        )
    head = ["check", "nodes", "what they cost", "for example", "what would help"]
    note = "<p>What they cost is not what could be saved: <code>dovetail blockers</code> finds that.</p>"
    first = f"<p><b>{html.text(remedy, 1000)}</b></p>" if remedy else ""
    return first + html.table(head, rows, (1, 2)) + note


def _steps(members: Sequence[NodeVerdict]) -> str:
    """Return the first thing to change, with the pool's name where it differs from pool to pool."""
    pools: dict[str, dict[str, None]] = {}
    for entry in members:
        pools.setdefault(first_step(entry), {})[entry.node_pool] = None
    if len(pools) == 1:
        return next(iter(pools))
    shown = [f"{listing(list(named), 3)}: {step}" for step, named in pools.items() if step]
    more = f"; and so on for {len(shown) - STEPS_MAX} more pools" if len(shown) > STEPS_MAX else ""
    return "; ".join(shown[:STEPS_MAX]) + more


def _paid(result: RoundResult) -> str:
    """Return the bill in a sentence, and how much of each commitment is used."""
    rows = [
        [html.name(name), html.text(kind), f"{used:.0%}", html.text(free)]
        for name, kind, used, free in use_rows(result.bill)
    ]
    said = f"<p>{html.text(bill_text(result.bill), 2000)}</p>"
    note = (
        "<p>A node that a commitment pays for saves nothing when it goes; <code>dovetail explain NODE</code> says "
        "which price was used and why.</p>"
    )
    return said + html.table(["commitment", "kind", "used", "free"], rows, (2,)) + note


def _budgets(result: RoundResult) -> str:
    def amount(number: int) -> str:
        return "no limit" if number >= UNLIMITED - 100_000 else f"{number:,}"

    reasons: dict[tuple[str, int, int, int], list[str]] = {}
    for row in result.budgets:
        reasons.setdefault((row.node_pool, row.allowed, row.used, row.left_with_domains), []).append(row.reason.value)
    rows = [
        [html.name(pool), html.text(", ".join(named)), amount(allowed), f"{used:,}", amount(left)]
        for (pool, allowed, used, left), named in reasons.items()
    ]
    return html.table(["pool", "reasons", "allowed", "used", "left"], rows, (2, 3, 4)) if rows else "<p>No pools.</p>"
