"""One node's explanation as a page: the answer and the remedy first, then checks and landings. Sits in plan."""

from dovetail import __version__
from dovetail.plan.explanation import Explanation, more_text, verdict_text
from dovetail.plan.node_detail import detail_of
from dovetail.plan.summary import prices_text
from dovetail.report import page as html


def explanation_page(found: Explanation) -> str:
    """Return the whole page."""
    answer, question = found.answer, found.question
    detail = detail_of(answer.work, answer.facts)
    gates = [
        ["yes" if entry.passed else "no", f"<code>{html.text(entry.gate.value)}</code>", html.text(entry.why, 600)]
        for entry in answer.deciding.results
    ]
    others = [entry for entry in detail.blockers if entry.gate is not answer.last.gate]
    blockers = [[f"<code>{html.text(entry.gate.value)}</code>", html.text(entry.why, 600)] for entry in others]
    landings = [
        [
            html.name(entry.pod),
            html.text(entry.owner),
            html.text(entry.node or (f"a new {entry.new}" if entry.new else "nowhere")),
            html.text(entry.why, 600),
        ]
        for entry in detail.landings
    ]
    columns = ["pod", "of", "to", "why"]
    if not any(entry.why for entry in detail.landings):
        columns, landings = columns[:-1], [row[:-1] for row in landings]
    opened = [[html.text(entry.if_, 600), html.text(entry.then, 600)] for entry in found.opened]
    more = html.text(more_text(found, detail), 20_000).replace(chr(92) + "u{a}", chr(10))
    body = [
        html.panel("What would change the result", html.table(["change", "then"], opened)) if opened else "",
        html.panel("Every check", html.table(["passed", "check", "why"], gates)),
        html.panel("Also in the way", html.table(["check", "why"], blockers)) if blockers else "",
        html.panel("Where its pods would land", html.table(columns, landings)) if landings else "",
        html.panel("The node and its policy", f"<pre>{more}</pre>"),
    ]
    name = answer.facts.name
    title = f"{name} would go now" if answer.command else f"{name} may go later" if answer.eligible else f"{name} stays"
    footer = " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(question.catalogue, question.now))))
    lead = html.text(verdict_text(found), 600)
    return html.page(title, lead, "".join(body), footer, above=html.notes(question.cluster.notes))
