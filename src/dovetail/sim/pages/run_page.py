"""The page of a comparison: story, figures and tables as markup, everything that moves as one document for the script.

Made from `Result`s only; runs nothing.
"""

from collections.abc import Sequence
from typing import Any

from dovetail.model.money import HOURS_A_MONTH
from dovetail.report import page as html
from dovetail.report.words import action_words, count
from dovetail.sim.ledger import Result
from dovetail.sim.pages.comparison import COLUMNS, PolicyPage, rows
from dovetail.sim.pages.run_document import run_document
from dovetail.sim.pages.story import featured, headline, story
from dovetail.sim.recorded_timeline import RECORDED

Json = dict[str, Any]
_DOLLAR = 10**18
_COLUMNS = (
    "More than once: pods that restarted so often. New nodes: launched in the run. Lived &lt; 15m: nodes that ended "
    "that young. Waiting: the time of pods without a node, added up. Violations: promises that did not hold, such as a "
    "budget or a PodDisruptionBudget."
)


def simulation_page(
    comparison: PolicyPage,
    footer: str,
    *,
    title: str = "",
    lead: str = "",
    sections: Sequence[str] = (),
    means: tuple[Json, Json] | None = None,
    told: bool = True,
) -> str:
    """Return the page of a comparison; `lead` and `sections`, which come before the table, are markup.

    `means`: the RESULTs of the two policies over several seeds, for the figures on top; else they are of the one seed.
    `told`: with the story of that seed.

    The end comes first (title, figures, table of all policies), then what happened on the way.
    """
    pair = featured(comparison)
    before, after = pair[0], pair[-1]
    policies = count(len(comparison.results), "policy", "policies")
    if not title:
        title = headline(comparison)
        against = f": {after.policy} against {before.policy}" if len(pair) > 1 else ""
        lead = lead or html.text(f"{comparison.scenario}, {policies}, the same world{against}.", 600)
    above = (
        _cards(means or (before.to_dict(), after.to_dict()), (before.policy, after.policy), comparison.seconds)
        + (html.story(story(comparison)) if told else "")
        + "".join(sections)
        + html.panel("Side by side", _side_by_side(comparison))
    )
    body = [
        html.panel(
            "What was done",
            _actions(comparison.results)
            + _outcomes(comparison.results)
            + _violations(comparison.results)
            + (f'<p class="soft">{html.text(comparison.about, 2000)}</p>' if comparison.about else ""),
        ),
    ]
    return html.page(title, lead, "".join(body), footer, above=above, document=run_document(comparison, title))


def _cards(results: tuple[Json, Json], names: tuple[str, str], seconds: float) -> str:
    """Return the four figures that decide, before and after."""
    before, after = results

    def figure(key: str) -> str:
        return _change(f"{before[key]:,.0f}", f"{after[key]:,.0f}")

    bills = _monthly(float(before["cost"]), seconds), _monthly(float(after["cost"]), seconds)
    return html.cards(
        [
            (_change(*bills), _change(*names, "a month at this rate, ")),
            (figure("podsDisrupted"), "pod restarts"),
            (figure("podsDisruptedMoreThanOnce"), "pods restarted more than once"),
            (figure("shortLivedNodes"), "nodes that lived under 15 minutes"),
        ]
    )


def _side_by_side(comparison: PolicyPage) -> str:
    """Return every policy's figures at the end: the bill, and that of a month at this rate, first."""
    place = COLUMNS.index("cost")
    head = [COLUMNS[0], "cost", "a month", *COLUMNS[1:place], *COLUMNS[place + 1 :]]
    table = [
        [html.text(row[0]), html.text(row[place]), html.text(_month(entry, comparison.seconds))]
        + [html.text(cell) for cell in (*row[1:place], *row[place + 1 :])]
        for row, entry in zip(rows(comparison.results), comparison.results, strict=True)
    ]
    return html.table(head, table, range(1, len(head))) + f'<p class="soft">{_COLUMNS}</p>'


def _month(result: Result, seconds: float) -> str:
    """Return the bill of a month in which the nodes cost as much per hour as in the run."""
    return _monthly(result.cost / _DOLLAR, seconds)


def _monthly(cost: float, seconds: float) -> str:
    return f"${cost * HOURS_A_MONTH * 3600 / seconds:,.0f}" if seconds else "-"


def _change(before: str, after: str, label: str = "") -> str:
    return f"{label}{before}" if before == after else f"{label}{before} → {after}"


def _actions(results: Sequence[Result]) -> str:
    kinds = sorted({kind for entry in results for kind in entry.actions})
    if not kinds:
        return '<p class="soft">No policy took any action.</p>'
    table = [
        [html.text(entry.policy), *(f"{entry.actions.get(kind, 0):,}" for kind in kinds), f"{entry.commands_failed:,}"]
        for entry in results
    ]
    return "<h3>Actions</h3>" + html.table(
        ["policy", *map(action_words, kinds), "undone"], table, range(1, len(kinds) + 2)
    )


def _outcomes(results: Sequence[Result]) -> str:
    """Return what commands promised beside what came of it within an hour; nothing where no hour was over."""
    if not any(entry.outcomes for entry in results):
        return ""
    table = [
        [
            html.text(entry.policy),
            f"{len(entry.outcomes):,}",
            f"{sum(one.held for one in entry.outcomes):,}",
            html.text(f"${sum(one.promised for one in entry.outcomes):,.2f}"),
            html.text(f"${sum(one.saved for one in entry.outcomes):,.2f}"),
            f"{sum(one.reopened for one in entry.outcomes):,}",
            f"{sum(one.pods for one in entry.outcomes):,}",
            f"{sum(one.moved_again for one in entry.outcomes):,}",
        ]
        for entry in results
    ]
    head = ["policy", "commands", "held", "promised", "saved", "nodes reopened", "pods restarted", "restarted again"]
    note = (
        "Commands that save money, in the hour after their end: what they promised for it, and what they saved less "
        "what nodes cost that were opened in their pools since. Held: nine tenths saved, and no pod restarted again."
    )
    return (
        "<h3>Promised and kept</h3>"
        + html.table(head, table, range(1, len(head)))
        + f'<p class="soft">{html.text(note, 500)}</p>'
    )


def _violations(results: Sequence[Result]) -> str:
    broken = [(entry.policy, violation) for entry in results for violation in entry.violations]
    if all(entry.policy == RECORDED for entry in results):
        return '<p class="soft">Nothing was simulated, so no promise was watched.</p>'
    if not broken:
        return '<p class="good">✓ No promise was broken: budgets, PDBs, pods, launches and taints were watched.</p>'
    table = [
        [html.text(policy), html.text(entry.rule), f"{entry.at:,.0f} s", html.text(entry.what, 500)]
        for policy, entry in broken[:50]
    ]
    columns = ["policy", "promise", "at", "what was seen"]
    return f'<p class="bad">✗ {count(len(broken), "broken promise")}</p>' + html.table(columns, table)
