"""A sweep as a page: the front as a picture, every policy as a row, the recommendation as a sentence.

Below the front, two runs of the first seed side by side: the policy that moves most pods, and the recommended one.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dovetail import __version__
from dovetail.report import page as html
from dovetail.report.words import count
from dovetail.sim.ledger import Result
from dovetail.sim.pages.comparison import PolicyPage
from dovetail.sim.pages.run_document import run_document

Json = dict[str, Any]


def sweep_page(found: Json, results: Sequence[Result] = (), start: datetime | None = None) -> str:
    """Return the page of a `sweep -o json` document; with the results, two of them are shown moment by moment."""
    front = set(found["front"])
    standings = sorted(found["standings"], key=lambda one: (one["cost"], one["podsDisrupted"], one["policy"]))
    rows = [
        [
            f"<b>{html.text(one['policy'])}</b>" if one["policy"] == found["recommended"] else html.text(one["policy"]),
            "recommended" if one["policy"] == found["recommended"] else "front" if one["policy"] in front else "",
            f"${one['cost']:.2f} ± {one['costSpread']:.2f}",
            f"{one['podsDisrupted']:.1f} ± {one['podsDisruptedSpread']:.1f}",
            str(one["violations"]),
        ]
        for one in standings
    ]
    runs = count(len(found["runs"]), "run")
    title = f"{found['scenario']}: {count(len(standings), 'policy', 'policies')}, {runs}"
    return html.page(
        title,
        html.text(found["why"], 1000),
        html.panel(
            "All policies", html.table(["policy", "place", "cost", "pod restarts", "violations"], rows, (2, 3, 4))
        ),
        f"Dovetail {__version__}. The same grid gives the same page, on any engine.",
        document=sweep_document(found, title, results, start),
    )


def sweep_document(found: Json, title: str, results: Sequence[Result] = (), start: datetime | None = None) -> Json:
    """Return the page's document: `report/schemas/sweep.schema.json`."""
    front = set(found["front"])
    pair = _pair(found, results)
    run = None
    if pair and start is not None:
        shown = PolicyPage(
            scenario=found["scenario"], about="", seed=pair[0].seed, seconds=pair[0].seconds, results=pair, start=start
        )
        run = run_document(shown, title)
    return {
        "kind": "sweep",
        "title": title,
        "points": [
            {
                "policy": one["policy"],
                "cost": one["cost"],
                "costSpread": one["costSpread"],
                "podsDisrupted": one["podsDisrupted"],
                "podsDisruptedSpread": one["podsDisruptedSpread"],
                "front": one["policy"] in front,
                "recommended": one["policy"] == found["recommended"],
            }
            for one in found["standings"]
        ],
        "run": run,
    }


def _pair(found: Json, results: Sequence[Result]) -> tuple[Result, ...]:
    """Return the first seed's runs of the policy that moves most pods and of the recommended one."""
    restless = max(found["standings"], key=lambda one: (one["podsDisrupted"], one["policy"]))["policy"]
    first = min((entry.seed for entry in results), default=0)
    of_seed = {entry.policy: entry for entry in results if entry.seed == first}
    chosen = dict.fromkeys((restless, found["recommended"]))
    return tuple(of_seed[policy] for policy in chosen if policy in of_seed)
