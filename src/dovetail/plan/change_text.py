"""`dovetail diff` in words, as Markdown for a pull request, and as a page. Formats what `plan.change` found."""

from collections.abc import Callable, Sequence

from dovetail import __version__
from dovetail.decide.words import clock, dollars
from dovetail.plan.change import ManifestChange, Side
from dovetail.plan.whole import monthly, rough
from dovetail.report import page as html
from dovetail.report.table import paragraph, text_table
from dovetail.report.words import count, listing, safe

_HEAD = ("", "before", "after", "difference")
_NAMED_MAX = 200
_UNPREDICTED = "NOT PREDICTED"
"""How a warning begins about a change whose drift can't be told."""


def headline(change: ManifestChange) -> str:
    """Return what the change does, in one sentence."""
    parts = []
    if change.drifts:
        pools = listing([entry.node_pool for entry in change.drifts], 3)
        pools = f"NodePool{'s' if len(change.drifts) > 1 else ''} {pools}"
        parts.append(f"{count(change.drifting, 'node')} of {pools} drift" if change.drifting else "no node drifts")
    else:
        parts.append("no node drifts")
    more = change.costs_more
    if more:
        word = "higher" if more > 0 else "lower"
        parts.append(f"the bill ends {dollars(abs(more))}/h ({monthly(abs(more))} a month) {word}")
    else:
        parts.append("the bill ends where it would without the change")
    return f"{parts[0][0].upper()}{parts[0][1:]}, and {parts[1]}."


def roll_text(change: ManifestChange) -> str:
    """Return how long the roll takes, and what paces it."""
    if change.roll is None:
        return ""
    seconds, nodes = change.roll.seconds, f"The roll of {count(change.drifting, 'node')}"
    if seconds is None:
        return f"The roll never ends: {change.roll.paced_by} does not allow it."
    assert change.roll.end is not None
    until = f"{rough(seconds)}, until {clock(change.roll.end)}, paced by {change.roll.paced_by}"
    if not change.never:
        return f"{nodes} takes {until}."
    others = change.drifting - len(change.blocked)
    rest = f"; the other {others} {'takes' if others == 1 else 'take'} {until}" if others else ""
    return f"{nodes} never ends while {change.never}{rest}."


def _rows(change: ManifestChange) -> list[tuple[str, str, str]]:
    sides = (change.before, change.after)
    rows = [
        ("cost per hour now", *(dollars(side.cost) for side in sides)),
        ("commands of the next round", *(f"{side.commands:,}" for side in sides)),
    ]
    if all(side.end is not None for side in sides):
        rows += [
            ("cost per hour at the end of all rounds", *(_ended(side, "cost") for side in sides)),
            ("the same per month", *(_ended(side, "month") for side in sides)),
            ("nodes at the end", *(_ended(side, "nodes") for side in sides)),
            ("pod restarts on the way", *(_ended(side, "restarts") for side in sides)),
        ]
    return [(row[0], row[1], row[2]) for row in rows]


def _ended(side: Side, what: str) -> str:
    assert side.end is not None
    return {
        "cost": dollars(side.end.cost),
        "month": monthly(side.end.cost),
        "nodes": f"{side.end.nodes:,}",
        "restarts": f"{side.end.pods_moved:,}",
    }[what]


def _differences(change: ManifestChange) -> list[str]:
    """Return the last column of the page's table, row by row as `_rows`."""
    before, after = change.before, change.after
    found = [_signed(after.cost - before.cost, dollars), _signed(after.commands - before.commands, "{:,}".format)]
    if before.end is not None and after.end is not None:
        more = after.end.cost - before.end.cost
        share = f" ({more / before.end.cost:+.0%})".replace("%", " %") if more and before.end.cost else ""
        found += [
            _signed(more, dollars),
            _signed(more, monthly) + share,
            _signed(after.end.nodes - before.end.nodes, "{:,}".format),
            _signed(after.end.pods_moved - before.end.pods_moved, "{:,}".format),
        ]
    return found


def _signed(more: int, words: Callable[[int], str]) -> str:
    return "" if more == 0 else f"{'+' if more > 0 else '-'}{words(abs(more))}"


def _drift_rows(change: ManifestChange) -> list[tuple[str, str, str]]:
    return [(entry.node_pool, f"{len(entry.nodes):,}", ", ".join(entry.fields)) for entry in change.drifts]


def change_text(change: ManifestChange, findings: Sequence[str]) -> str:
    """Return everything in words."""
    lines = [line for text in change.warnings for line in paragraph(f"warning: {text}")]
    lines += [*([""] if lines else []), *paragraph(headline(change)), *paragraph(roll_text(change)), ""]
    lines += text_table(("", "BEFORE", "AFTER"), _rows(change), right=(1, 2), flexible=(0,))
    if change.drifts:
        lines += ["", *text_table(("NODEPOOL", "NODES", "DRIFT BY"), _drift_rows(change), right=(1,))]
    for pool, nodes in change.new_pools:
        lines += paragraph(f"NodePool {pool} is new; {count(nodes, 'node')} would be launched in it.")
    if findings:
        lines += ["", f"{count(len(findings), 'finding')} in the manifests:"]
        lines += [line for text in findings for line in paragraph(text, indent="  ")]
    return "\n".join(safe(line, 2000) for line in lines)


def _cell(text: str) -> str:
    """Return text that can't leave its cell: no bars, no line breaks, no markup."""
    shown = safe(text, 500).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return shown.replace("`", "'")


def change_markdown(change: ManifestChange, findings: Sequence[str]) -> str:
    """Return everything as Markdown for a pull request."""
    lines = [
        "### What this change does to the cluster",
        "",
        f"**{_cell(headline(change))}** {_cell(roll_text(change))}".rstrip(),
        "",
    ]
    lines += [f"> ⚠️ {_cell(text)}" for text in change.warnings if text.startswith(_UNPREDICTED)]
    lines += ["", "| | before | after |", "|---|---:|---:|"]
    lines += [f"| {_cell(name)} | {_cell(old)} | {_cell(new)} |" for name, old, new in _rows(change)]
    if change.drifts:
        lines += ["", "| NodePool | nodes that drift | because of |", "|---|---:|---|"]
        lines += [f"| `{_cell(a)}` | {b} | {_cell(c)} |" for a, b, c in _drift_rows(change)]
    for pool, nodes in change.new_pools:
        lines += ["", f"`{_cell(pool)}` is new; {count(nodes, 'node')} would be launched in it."]
    others = [text for text in change.warnings if not text.startswith(_UNPREDICTED)]
    folded = [*(f"- {_cell(text)}" for text in findings), *(f"- {_cell(text)}" for text in others)]
    if folded:
        said = f"{count(len(findings), 'finding')} in the manifests, {count(len(others), 'warning')}"
        lines += ["", f"<details><summary>{said}</summary>", "", *folded, "", "</details>"]
    return "\n".join([*lines, "", f"<sub>dovetail {__version__}</sub>", ""])


def change_page(change: ManifestChange, findings: Sequence[str]) -> str:
    """Return everything as a page."""
    rows = [(*row, more) for row, more in zip(_rows(change), _differences(change), strict=True)]
    table = html.table(list(_HEAD), [[html.text(cell) for cell in row] for row in rows], (1, 2, 3))
    drifts = [[html.name(a), b, f'<span class="path">{html.text(c, 600)}</span>'] for a, b, c in _drift_rows(change)]
    body = [html.panel("Before and after", table)]
    if drifts:
        table = html.table(["NodePool", "nodes", "because of"], drifts, (1,))
        body.append(html.panel("Nodes that drift", table + _drifting_names(change)))
    for pool, nodes in change.new_pools:
        launched = html.text(f" is new; {count(nodes, 'node')} would be launched in it.")
        body.append(html.panel("A new NodePool", f"<p>{html.name(pool)}{launched}</p>"))
    if findings:
        items = "".join(f"<li>{html.text(text, 500)}</li>" for text in findings)
        body.append(html.panel("Findings in the manifests", f"<ul>{items}</ul>"))
    loud = [text for text in change.warnings if text.startswith(_UNPREDICTED)]
    body.append(html.warnings([text for text in change.warnings if text not in loud]))
    lead = html.text(roll_text(change), 1000)
    return html.page(_title(change), lead, "".join(body), f"Dovetail {__version__}.", above=html.notes(loud))


def _drifting_names(change: ManifestChange) -> str:
    names = [node for entry in change.drifts for node in entry.nodes]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_MAX:,} more" if len(names) > _NAMED_MAX else ""
    shown = ", ".join(html.name(node) for node in names[:_NAMED_MAX])
    return f"<details><summary>which nodes</summary><p>{shown}{more}</p></details>"


def _title(change: ManifestChange) -> str:
    """Return the answer; a change whose drift is not predicted must not look harmless."""
    answer = headline(change).removesuffix(".")
    if any(text.startswith(_UNPREDICTED) for text in change.warnings):
        return f"As far as predicted: {answer[0].lower()}{answer[1:]}"
    return answer
