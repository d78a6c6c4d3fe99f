"""A sweep as a page: the front as a picture, every policy as a row, the recommendation as a sentence."""

from typing import Any

from dovetail import __version__
from dovetail.report import page as html
from dovetail.report.svg import Dot, scatter
from dovetail.report.words import count


def sweep_page(found: dict[str, Any]) -> str:
    """The page of a `sweep -o json` document."""
    front = set(found["front"])
    dots = [
        Dot(
            name=one["policy"],
            x=one["cost"],
            y=one["podsDisrupted"],
            front=one["policy"] in front,
            marked=one["policy"] == found["recommended"],
        )
        for one in found["standings"]
    ]
    rows = [
        [
            f"<b>{html.text(one['policy'])}</b>" if one["policy"] == found["recommended"] else html.text(one["policy"]),
            "recommended" if one["policy"] == found["recommended"] else "front" if one["policy"] in front else "",
            f"${one['cost']:.2f} ± {one['costSpread']:.2f}",
            f"{one['podsDisrupted']:.1f} ± {one['podsDisruptedSpread']:.1f}",
            str(one["violations"]),
        ]
        for one in sorted(found["standings"], key=lambda one: (one["cost"], one["podsDisrupted"], one["policy"]))
    ]
    body = html.figure(
        "Cost against disruption",
        scatter(
            "cost against disruption", dots, x_label="cost of the run, dollars", y_label="pods moved, mean over seeds"
        ),
        "Each dot is a policy. Filled and joined: no other is both cheaper and calmer. The large one is recommended.",
    )
    body += "<h2>All policies</h2>" + html.table(["policy", "", "cost", "pods moved", "violations"], rows, (2, 3, 4))
    runs = count(len(found["runs"]), "run")
    return html.page(
        f"{found['scenario']}: {count(len(found['standings']), 'policy', 'policies')}, {runs}",
        html.text(found["why"], 1000),
        body,
        f"Dovetail {__version__}. The same grid gives the same page, on any engine.",
    )
