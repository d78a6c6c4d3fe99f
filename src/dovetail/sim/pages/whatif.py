"""The page of `dovetail whatif`: the recommendation and the patch, then the comparison of the three runs."""

import json

from dovetail.report import page as html
from dovetail.sim.pages.comparison import PolicyPage
from dovetail.sim.pages.run_page import simulation_page
from dovetail.sim.whatif import WhatIfAnswer, scatter_sentence
from dovetail.sim.world.clock import SECOND


def whatif_page(answer: WhatIfAnswer, footer: str) -> str:
    """Return the whole page."""
    changes = ", ".join(f"{key} {value}" for key, value in answer.asked.fields.items())
    recommendation = answer.recommendation
    title = f"What if {changes}?"
    story = PolicyPage(
        scenario=title,
        about="",
        seed=answer.asked.seed,
        seconds=answer.asked.length / SECOND,
        results=answer.results,
        start=answer.window.begin,
        pair=(answer.baseline, answer.changed),
    )
    pools = ", ".join(answer.asked.chosen)
    patch = html.text(json.dumps(answer.patch, indent=2), 4000).replace("\\u{a}", "\n")
    advice = "Apply it" if recommendation.apply else "Not recommended"
    return simulation_page(
        story,
        footer,
        title=title,
        lead=f"<strong>{advice}.</strong> {html.text(recommendation.why, 2000)} {html.text(scatter_sentence(answer))}",
        sections=(
            html.panel("The patch", f"<p>For NodePool {html.text(pools, 2000)}:</p><pre><code>{patch}</code></pre>"),
        ),
    )
