"""`dovetail blockers` in words and as a page: formats what `plan.blocking.blockers` found. Sits in plan."""

from collections.abc import Sequence

from dovetail import __version__
from dovetail.decide.held_back import GateSavings
from dovetail.decide.question import Question
from dovetail.decide.words import cents, clock, dollars
from dovetail.plan.blocking.blockers import Blocker
from dovetail.plan.summary import prices_text, rules_named
from dovetail.plan.whole import monthly
from dovetail.report import page as html
from dovetail.report.table import WIDTH, note_lines, paragraph, text_table
from dovetail.report.words import count, safe

SHOWN_MAX = 10
_ALONE = (
    "Each is lifted alone, and the round is asked again within the budgets: what it saves more, by the empty nodes and "
    "the best other method. Savings don't add up."
)
_HELD_HEAD = ("POOL", "CHECK", "NODES", "SAVES/H")
_NOTHING = "Nothing holds a node back that could be lifted."


def blockers_text(
    question: Question, blockers: Sequence[Blocker], held: Sequence[GateSavings] = (), *, wide: bool = False
) -> str:
    """Return the ranking in words: the most expensive with reason and remedy, the rest as a table.

    `wide`: all of them, and what each gate and pool holds back.
    """
    head = f"{clock(question.now)}, {rules_named(question.settings)}: {_counted(blockers)}"
    lines = [*note_lines(question.cluster.notes), *paragraph(head), ""]
    if not blockers:
        return "\n".join([*lines, "Nothing holds a node back that could be lifted."])
    first = [entry for entry in blockers if wide or entry.savings or entry.impossible]
    later = [entry for entry in blockers if entry not in first and entry.by_themselves]
    later.sort(key=lambda entry: -entry.by_themselves)
    shown = first if wide else first[:SHOWN_MAX]
    for entry in shown:
        lines += _in_full(entry)
    if not shown:
        lines += paragraph("None of them alone holds back money in the next round.")
    rest = first[len(shown) :]
    if rest:
        lines += ["", "The rest:"]
        rows = [
            (_saves(each), f"{each.nodes:,}", "yes" if each.impossible else "", each.gate, _named(each))
            for each in rest[:30]
        ]
        lines += text_table(("SAVES/H", "NODES", "NEVER", "GATE", "WHAT"), rows, right=(0, 1))
        if len(rest) > 30:
            lines.append(f"and {len(rest) - 30:,} more (-o wide lists all)")
    lines += _later_lines(later)
    nothing = len(blockers) - len(first) - len(later)
    if nothing:
        more = f"{count(nothing, 'more blocker')} would save nothing alone now (-o wide lists all)."
        lines += ["", *paragraph(more)]
    if wide and held:
        lines += ["", "By pool and check:", *text_table(_HELD_HEAD, _held_rows(held), right=(2, 3))]
    lines += ["", *paragraph(_ALONE)]
    if any(entry.impossible for entry in blockers):
        lines += paragraph("NEVER: no eviction is ever allowed, so a drain would not end; change these first.")
    return "\n".join([*lines, prices_text(question.catalogue, question.now)]).rstrip()


def _in_full(entry: Blocker) -> list[str]:
    mark = "  NEVER" if entry.impossible else ""
    saves = f"{_saves(entry)}/h" if entry.savings else ""
    lines = [safe(f"{saves:>11}  {entry.kind} {entry.name} ({entry.gate}){mark}", WIDTH * 3)]
    lines += paragraph(f"{_held(entry)}{_later(entry)}{entry.why}", indent="             ")
    return [*lines, *paragraph(f"-> {entry.remedy}", indent="             ")]


def _later_lines(later: Sequence[Blocker]) -> list[str]:
    """Return the table of those that save nothing in the next round, because other nodes go first."""
    if not later:
        return []
    why = "Nothing more in the next round, in which other nodes go first; their own nodes alone would save:"
    rows = [(cents(each.by_themselves), f"{each.nodes:,}", each.gate, _named(each)) for each in later[:SHOWN_MAX]]
    table = text_table(("ALONE/H", "NODES", "GATE", "WHAT"), rows, right=(0, 1))
    more = [f"and {len(later) - SHOWN_MAX:,} more (-o wide lists all)"] if len(later) > SHOWN_MAX else []
    return ["", *paragraph(why), *table, *more]


def _saves(entry: Blocker) -> str:
    """Return what it would save more now: in cents, or as small as it is; no figure if it is nothing."""
    text = cents(entry.savings) if entry.savings else ""
    return dollars(entry.savings) if text.endswith("$0.00") else text


def _held_rows(held: Sequence[GateSavings]) -> list[tuple[str, str, str, str]]:
    return [
        (entry.lift.node_pool or "(all)", entry.lift.gate.value, f"{len(entry.lift.nodes):,}", cents(entry.savings))
        for entry in held
        if entry.savings
    ]


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


def _later(entry: Blocker) -> str:
    """Return what its nodes would save if no other went, where that is more than the next round gets out of it."""
    if entry.by_themselves <= max(entry.savings, 0):
        return ""
    return f"Its nodes alone would save {cents(entry.by_themselves)}/h if no other node went. "


def _counted(blockers: Sequence[Blocker]) -> str:
    never = sum(entry.impossible for entry in blockers)
    tail = f", {never:,} of which can never give way" if never else ""
    return f"{count(len(blockers), 'blocker')}{tail}"


def blockers_page(question: Question, blockers: Sequence[Blocker], held: Sequence[GateSavings] = ()) -> str:
    """Return the ranking as a page, and what each gate and pool holds back."""
    rows = [
        [f"{_saves(entry)}/h" if entry.savings else "nothing now", f"{entry.nodes:,}", _page_cell(entry)]
        for entry in blockers
    ]
    table = html.table(["would save", "nodes", "what, why, and what to do"], rows, (0, 1))
    cards = html.cards(
        [
            (f"{len(blockers):,}", "blockers"),
            (cents(max((entry.savings for entry in blockers), default=0)), "per hour, the dearest of them"),
            (f"{sum(entry.impossible for entry in blockers):,}", "never give way"),
        ]
    )
    body = cards + html.panel("Every blocker", table if rows else f"<p>{_NOTHING}</p>")
    if held:
        cells = [[html.text(cell) for cell in row] for row in _held_rows(held)]
        body += html.panel("By pool and check", html.table([word.lower() for word in _HELD_HEAD], cells, (2, 3)))
    lead = f"At {html.text(clock(question.now))}, by the rules of {html.text(question.settings.called)}. {_ALONE}"
    footer = " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(question.catalogue, question.now))))
    notes = html.notes(question.cluster.notes)
    return html.page(_title(blockers), lead, body, footer, above=notes)


def _title(blockers: Sequence[Blocker]) -> str:
    """Return what holds back most, and how much."""
    first = max(blockers, key=lambda entry: entry.savings, default=None)
    if first is None or first.savings <= 0:
        return "Nothing that could be lifted holds money back"
    return f"{first.kind} {first.name} holds back most: {monthly(first.savings)} a month ({first.gate})"


def _page_cell(entry: Blocker) -> str:
    """Return what, why and remedy under each other, so that a phone shows all of it."""
    never = " <b>It never gives way.</b>" if entry.impossible else ""
    return (
        f"{html.text(entry.kind)} {html.name(entry.name)} (<code>{html.text(entry.gate)}</code>){never}"
        f"<p>{html.text(_later(entry) + entry.why, 600)}</p><p><b>Remedy:</b> {html.text(entry.remedy)}</p>"
    )
