"""The page of `dovetail whatif`: the recommendation and the patch, then the comparison of the three runs."""

import json

from dovetail.report import page as html
from dovetail.sim.pages.comparison import Comparison
from dovetail.sim.pages.run_page import simulation_page
from dovetail.sim.whatif import Answer
from dovetail.sim.world.clock import SECOND


def whatif_page(answer: Answer, footer: str) -> str:
    """Return the whole page."""
    changes = ", ".join(f"{key} {value}" for key, value in answer.asked.fields.items())
    recommendation = answer.recommendation
    story = Comparison(
        scenario=f"What if {changes}?",
        about=f"{'Apply it' if recommendation.apply else 'Not recommended'}. {recommendation.why}",
        seed=answer.asked.seed,
        seconds=answer.asked.length / SECOND,
        results=answer.results,
    )
    page = simulation_page(story, footer)
    pools = ", ".join(answer.asked.chosen)
    patch = html.text(json.dumps(answer.patch, indent=2), 4000).replace("\\u{a}", "\n")
    section = f"<h2>The patch</h2><p>For NodePool {html.text(pools, 2000)}:</p><pre><code>{patch}</code></pre>"
    return page.replace("<footer>", f"{section}<footer>", 1)
