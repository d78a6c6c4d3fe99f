"""One node's explanation as a page: the words of `dovetail explain`, its gates and landings as tables. Sits in plan."""

from dovetail import __version__
from dovetail.plan.explanation import Explanation
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
    blockers = [[f"<code>{html.text(entry.gate.value)}</code>", html.text(entry.why, 600)] for entry in detail.blockers]
    landings = [
        [
            html.name(entry.pod),
            html.text(entry.owner),
            html.text(entry.node or (f"a new {entry.new}" if entry.new else "nowhere")),
            html.text(entry.why, 600),
        ]
        for entry in detail.landings
    ]
    opened = [[html.text(entry.if_, 600), html.text(entry.then, 600)] for entry in found.opened]
    body = [
        html.panel("Gates", html.table(["passed", "gate", "why"], gates)),
        html.panel("All that is in the way", html.table(["gate", "why"], blockers)) if blockers else "",
        html.panel("Where its pods would land", html.table(["pod", "of", "to", "why"], landings)) if landings else "",
        html.panel("What would change the result", html.table(["change", "then"], opened)) if opened else "",
        html.panel("In words", f"<pre>{html.text(found.text, 20_000).replace(chr(92) + 'u{a}', chr(10))}</pre>"),
    ]
    verdict = "would go" if answer.eligible else f"stays, at gate {answer.last.gate.value}"
    footer = " ".join(filter(None, (f"Dovetail {__version__}.", prices_text(question.catalogue, question.now))))
    lead = html.text(f"It {verdict}: {answer.last.why}", 600)
    return html.page(f"Node {answer.facts.name}", lead, "".join(body), footer, above=html.notes(question.cluster.notes))
