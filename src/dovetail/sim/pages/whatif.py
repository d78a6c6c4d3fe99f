"""The page of `dovetail whatif`: the recommendation and the patch, then the comparison of the three runs."""

import json
from dataclasses import replace
from typing import Any

from dovetail.report import page as html
from dovetail.sim.advice import difference_of
from dovetail.sim.pages.comparison import PolicyPage
from dovetail.sim.pages.run_page import simulation_page
from dovetail.sim.pages.story import change_in_words
from dovetail.sim.whatif import WhatIfAnswer
from dovetail.sim.world.clock import SECOND


def whatif_page(answer: WhatIfAnswer, footer: str) -> str:
    """Return the whole page."""
    asked, first, recommendation = answer.asked, answer.first, answer.recommendation
    shown = {**asked.changes, **asked.fields, **({} if asked.manage is None else {"manage": asked.manage})}
    named = ", ".join(f"{key}={value}" for key, value in shown.items())
    same = first.karpenter == replace(first.baseline, policy=first.karpenter.policy)
    results = (first.baseline, first.changed) if same else (first.baseline, first.karpenter, first.changed)
    story = PolicyPage(
        scenario=f"What if {named}?",
        about="",
        seed=asked.seed,
        seconds=asked.length / SECOND,
        results=results,
        start=asked.now,
        pair=(first.baseline, first.changed),
    )
    many = len(answer.trios) > 1
    lead = [
        f"<strong>{recommendation.words}.</strong> {html.text(recommendation.why, 2000)}",
        html.text(answer.calibration.why, 2000) if answer.calibration.reliable else "",
        html.text(difference_of(answer.pairs()).scatter()),
        html.text(f"All below the patch shows seed {asked.seed}." if many else ""),
    ]
    pools = ", ".join(asked.chosen)
    sections = [html.panel("The patch", f"<p>For NodePool {html.text(pools, 2000)}:</p>{_code(asked.patch)}")]
    if asked.new_words:
        sections.append(html.panel("The settings", f"<p>Of the controller, with it:</p>{_code(asked.new_words)}"))
    means = answer.means()
    pair = (means["baseline"], means["changed"])
    return simulation_page(
        story,
        footer,
        title=_title(named, pair, reliable=answer.calibration.reliable),
        lead=" ".join(filter(None, lead)),
        sections=tuple(sections),
        means=pair,
        told=not many,  # it is of one seed, and the figures above it are means
    )


def _title(named: str, means: tuple[dict[str, Any], dict[str, Any]], *, reliable: bool) -> str:
    """Return what the change does on average over the seeds, unless the replay does not agree with the cluster."""
    if not reliable:
        return f"Can't tell what {named} would do"
    before, after = means
    changed = change_in_words(
        before["podsDisrupted"], after["podsDisrupted"], float(before["cost"]), float(after["cost"])
    )
    return f"{named}: {changed}"


def _code(tree: dict[str, Any]) -> str:
    text = html.text(json.dumps(tree, indent=2), 4000).replace("\\u{a}", "\n")
    return f"<pre><code>{text}</code></pre>"
