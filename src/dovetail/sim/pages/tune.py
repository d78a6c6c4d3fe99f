"""The page of `dovetail tune`: bill against restarts, every policy a point, the frontier joined, the choice named."""

import json
from typing import Any

from dovetail import __version__
from dovetail.report import page as html
from dovetail.report.words import count

Json = dict[str, Any]


def tune_page(found: Json) -> str:
    """Return the page of a `tune -o json` document."""
    rows = [
        [
            _names(one, alike, found["chosen"]),
            "chosen" if one["policy"] == found["chosen"] else "" if one["beaten"] else "frontier",
            f"${one['cost']:.3f}{_spread(one['scatter']['cost'], 3)}",
            f"{one['podsDisrupted']:.1f}{_spread(one['scatter']['podsDisrupted'], 1)}",
            f"{one['podsDisruptedMoreThanOnce']:.1f}",
            f"{one['shortLivedNodes']:.1f}",
            f"${one['cost'] + found['restartPrice'] * one['podsDisrupted']:.3f}",
        ]
        for one, alike in _folded(found)
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
            f"{count(len(found['frontier']), 'policy', 'policies')}, total at ${found['restartPrice']:g} a restart",
            '<p class="soft">The least total comes first. Policies with the same outcome share a row. Of policies that '
            "chance can't tell apart, the one that changes least is chosen. Frontier: no other policy is cheaper and "
            "restarts less.</p>" + html.table(head, rows, (2, 3, 4, 5, 6)),
        )
        + _patch(found)
        + _dropped(found),
        f"Dovetail {__version__}. The same recording gives the same page, on any engine.",
        above=html.notes(warnings),
        document=_document(found, title),
    )


def _folded(found: Json) -> list[tuple[Json, list[str]]]:
    """Return one policy of each outcome, the least total first, with the names of the others; the chosen one leads."""
    groups: dict[str, list[Json]] = {}
    for one in found["frontier"]:
        figures = {key: value for key, value in one.items() if key not in ("policy", "set")}
        groups.setdefault(json.dumps(figures, sort_keys=True), []).append(one)
    rows = []
    for group in groups.values():
        first = next((one for one in group if one["policy"] == found["chosen"]), group[0])
        rows.append((first, [one["policy"] for one in group if one is not first]))
    return sorted(rows, key=lambda row: row[0]["cost"] + found["restartPrice"] * row[0]["podsDisrupted"])


def _names(one: Json, alike: list[str], chosen: str) -> str:
    name = html.text(one["policy"])
    shown = f"<b>{name}</b>" if one["policy"] == chosen else name
    if not alike:
        return shown
    listed = "".join(f"<li>{html.text(other)}</li>" for other in alike)
    return f"{shown}<details><summary>and {len(alike)} alike</summary><ul>{listed}</ul></details>"


def _patch(found: Json) -> str:
    """Return what applies the choice: the patch of the NodePools and the settings of the controller."""
    parts = [("The patch of the NodePools", found["patch"]), ("The settings of the controller", found["settings"])]
    shown = ((title, json.dumps(tree, indent=2)) for title, tree in parts if tree)
    code = [f"<h3>{title}</h3><pre><code>{html.text(text, 4000)}</code></pre>" for title, text in shown]
    return html.panel("How to apply it", "".join(code).replace("\\u{a}", "\n")) if code else ""


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
