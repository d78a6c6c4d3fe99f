"""The page of `dovetail tune`: bill against restarts, every policy a point, the frontier joined, the choice named."""

from typing import Any

from dovetail import __version__
from dovetail.report import page as html
from dovetail.report.words import count

Json = dict[str, Any]


def tune_page(found: Json) -> str:
    """Return the page of a `tune -o json` document."""
    rows = [
        [
            f"<b>{html.text(one['policy'])}</b>" if one["policy"] == found["chosen"] else html.text(one["policy"]),
            "chosen" if one["policy"] == found["chosen"] else "" if one["beaten"] else "frontier",
            f"${one['cost']:.3f}{_spread(one['scatter']['cost'], 3)}",
            f"{one['podsDisrupted']:.1f}{_spread(one['scatter']['podsDisrupted'], 1)}",
            f"{one['podsDisruptedMoreThanOnce']:.1f}",
            f"{one['shortLivedNodes']:.1f}",
            f"${one['cost'] + found['restartPrice'] * one['podsDisrupted']:.3f}",
        ]
        for one in found["frontier"]
    ]
    head = ["policy", "place", "bill", "restarts", "more than once", "nodes under 15 min", "total"]
    title = f"{found['chosen']} fits best" if found["patch"] or found["settings"] else "Today's policy stays"
    calibration = found["calibration"]
    warnings = [calibration["why"]] if calibration is not None and not calibration["reliable"] else []
    lead = html.text(found["why"], 1000)
    if calibration is not None and calibration["reliable"]:
        lead += f" {html.text(calibration['why'], 1000)}"
    return html.page(
        title,
        lead,
        html.panel(
            f"{count(len(rows), 'policy', 'policies')}, total at ${found['restartPrice']:g} a restart",
            html.table(head, rows, (2, 3, 4, 5, 6)),
        )
        + _dropped(found),
        f"Dovetail {__version__}. The same recording gives the same page, on any engine.",
        above=html.notes(warnings),
        document=_document(found, title),
    )


def _dropped(found: Json) -> str:
    """Return the policies that did not play the whole recording, if there are any."""
    if not found["dropped"]:
        return ""
    rows = [[html.text(one["policy"]), f"{one['hours']:.0f} h", html.text(one["why"])] for one in found["dropped"]]
    title = f"{count(len(rows), 'policy was', 'policies were')} dropped after short stretches"
    return html.panel(title, html.table(["policy", "after", "because"], rows, (1,)))


def _spread(value: float | None, places: int) -> str:
    return "" if value is None else f" ± {value:.{places}f}"


def _document(found: Json, title: str) -> Json:
    """Return the page's document: `report/schemas/sweep.schema.json`."""
    return {
        "kind": "sweep",
        "title": title,
        "points": [
            {
                "policy": one["policy"],
                "cost": one["cost"],
                "costSpread": one["scatter"]["cost"] or 0.0,
                "podsDisrupted": one["podsDisrupted"],
                "podsDisruptedSpread": one["scatter"]["podsDisrupted"] or 0.0,
                "front": not one["beaten"],
                "recommended": one["policy"] == found["chosen"],
            }
            for one in found["frontier"]
        ],
        "run": None,
    }
