"""`dovetail blockers` in words and as a page: formats what `plan.blocking.blockers` found. Sits in plan."""

from collections.abc import Sequence

from dovetail import __version__
from dovetail.decide.question import Question
from dovetail.decide.words import clock
from dovetail.plan.blocking.blockers import Blocker
from dovetail.plan.summary import prices_text
from dovetail.report import page as html
from dovetail.report.table import WIDTH, paragraph, text_table
from dovetail.report.words import count, dollars, safe

SHOWN_MAX = 10
_ALONE = "Each is lifted alone, on the cluster as it is now, within the budgets; savings don't add up."


def blockers_text(question: Question, blockers: Sequence[Blocker], *, wide: bool = False) -> str:
    """Return the ranking in words: the most expensive with reason and remedy, the rest as a table."""
    head = f"{clock(question.now)}, profile {question.settings.profile.value}: {_counted(blockers)}"
    lines = [*paragraph(head), ""]
    if not blockers:
        return "\n".join([*lines, "Nothing holds a node back that could be lifted."])
    shown = blockers if wide else blockers[:SHOWN_MAX]
    for entry in shown:
        mark = "  NEVER" if entry.impossible else ""
        what = f"{entry.kind} {entry.name} ({entry.gate}){mark}"
        lines.append(safe(f"{dollars(entry.savings, 2):>9}/h  {what}", WIDTH * 3))
        lines += paragraph(f"{_held(entry)}{entry.why}", indent="             ")
        lines += paragraph(f"-> {entry.remedy}", indent="             ")
    rest = blockers[len(shown) :]
    if rest:
        lines += ["", "The rest:"]
        rows = [
            (dollars(each.savings, 2), f"{each.nodes:,}", "yes" if each.impossible else "", each.gate, _named(each))
            for each in rest[:30]
        ]
        lines += text_table(("SAVES/H", "NODES", "NEVER", "GATE", "WHAT"), rows, right=(0, 1))
        if len(rest) > 30:
            lines.append(f"and {len(rest) - 30:,} more (-o wide lists all)")
    lines += ["", *paragraph(_ALONE)]
    if any(entry.impossible for entry in blockers):
        lines += paragraph("NEVER: no eviction is ever allowed, so a drain would not end; change these first.")
    return "\n".join([*lines, prices_text(question.catalogue)]).rstrip()


def _named(entry: Blocker) -> str:
    short = {"PodDisruptionBudget": "PDB"}.get(entry.kind, entry.kind)
    return f"{short} {entry.name}"


def _held(entry: Blocker) -> str:
    """Return how many nodes it blocks, and for how many it is the only blocker."""
    if not entry.nodes:
        return ""
    nodes = count(entry.nodes, "node")
    if entry.alone >= entry.nodes:
        return f"The only blocker of {nodes}. "
    if not entry.alone:
        return f"Holds {nodes}, all together with other blockers. "
    return f"Holds {nodes}, and is the only blocker of {entry.alone:,}. "


def _counted(blockers: Sequence[Blocker]) -> str:
    never = sum(entry.impossible for entry in blockers)
    tail = f", {never:,} of which can never give way" if never else ""
    return f"{count(len(blockers), 'blocker')}{tail}"


def blockers_page(question: Question, blockers: Sequence[Blocker]) -> str:
    """Return the ranking as a page."""
    rows = [[f"{dollars(entry.savings, 2)}/h", f"{entry.nodes:,}", _page_cell(entry)] for entry in blockers]
    table = html.table(["would save", "nodes", "what, why, and what to do"], rows, (0, 1))
    cards = html.cards(
        [
            (f"{len(blockers):,}", "blockers"),
            (dollars(max((entry.savings for entry in blockers), default=0), 2), "per hour, the dearest of them"),
            (f"{sum(entry.impossible for entry in blockers):,}", "never give way"),
        ]
    )
    body = cards + (table if rows else "<p>Nothing holds a node back that could be lifted.</p>")
    lead = (
        f"At {html.text(clock(question.now))}, by the rules of {html.text(question.settings.profile.value)}. {_ALONE}"
    )
    footer = " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(question.catalogue))))
    return html.page("What holds back how much money", lead, body, footer)


def _page_cell(entry: Blocker) -> str:
    """Return what, why and remedy under each other, so that a phone shows all of it."""
    never = " <b>It never gives way.</b>" if entry.impossible else ""
    return (
        f"{html.text(entry.kind)} {html.name(entry.name)} (<code>{html.text(entry.gate)}</code>){never}"
        f"<p>{html.text(entry.why, 600)}</p><p><b>Remedy:</b> {html.text(entry.remedy)}</p>"
    )
