"""Draw the tables and the plot of the measurements, as Markdown and SVG, from the JSON files alone."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import frontier

_TITLES = {
    "kernel": "Scheduling kernel: one simulation for every node",
    "plan": "`dovetail plan --every-method`, whole command",
    "questions": "Questions of a first hour: `plan --to-end`, `blockers`, `whatif`",
    "engine": "Lifecycle engine",
    "simulator": "Simulator",
    "whatif": "`whatif`, one seed",
    "compare": "Beside an earlier commit, in turn",
    "sweep": "A sweep on Dask workers",
}
_ONLY_IN_JSON = frozenset(
    {
        *("decodeSeconds", "snapshotSeconds", "microsecondsPerSimulation", "karpenterMemoryMib", "methodsWithActions"),
        *(
            "idleRoundMicroseconds",
            "pods",
            "eventsPerSecond",
            "rounds",
            "events",
            "podsDisrupted",
            "violations",
            "repeated",
        ),
        *("fewestRunsOfAWorker", "mostRunsOfAWorker", "firstFiguresAfter", "simulatedHours", "nodes"),
    }
)
"""Columns that the page leaves out."""
_SHOWN_SIZES = ("-500", "-5000")
"""Clusters that the page shows; the files have the others too."""


def write_page(folder: Path) -> None:
    """Write README.md and growth.svg to the folder."""
    documents = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in _TITLES
        if (folder / f"{name}.json").exists()
    }
    parts = [
        "# Benchmarks\n",
        (
            "Made by `make bench` on noisy machines: read ratios. Karpenter's columns: v1.15.0's own packages. Best of several "
            "runs; engine and simulator: CPU seconds; `seconds` of `plan`: wall time. The JSON files have more.\n"
        ),
    ]
    for name, document in documents.items():
        rows: list[dict[str, Any]] = [row for row in document["rows"] if _is_shown(row)]
        parts.append(f"\n## {_TITLES[name]}\n")
        parts.append(f"Commit {document['commit']}, {document['date']}.\n")
        if rows:
            heads = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in _ONLY_IN_JSON]
            parts.append("| " + " | ".join(heads) + " |")
            parts.append("|" + "---|" * len(heads))
            parts += ["| " + " | ".join(_cell(row.get(key)) for key in heads) + " |" for row in rows]
    if (folder.parent / "internals" / "live-runs.md").exists():
        parts.append(
            "\n## Controller on a real API server\n\n[Figures and how they were taken](../internals/live-runs.md).\n"
        )
    if (folder / "quality.json").exists():
        document = json.loads((folder / "quality.json").read_text())
        parts.append("\n## Quality of decisions\n")
        parts.append(f"Commit {document['commit']}, {document['date']}.\n")
        parts.append("What it means: [better decisions](../better-decisions.md).\n")
        parts += quality_tables(document["rows"])
        edge = [row for row in document["rows"] if row["kind"] == "frontier"]
        if edge:
            (folder / "frontier.svg").write_text(frontier.plot(edge))
            parts += ["", *frontier.summary(edge)]
            parts.append("\n![totals against the best tuned Karpenter](frontier.svg)\n")
    if "kernel" in documents:
        (folder / "growth.svg").write_text(_growth(documents["kernel"]["rows"]))
        parts += ["\n## Growth\n", "![seconds of a full pass against nodes, both axes logarithmic](growth.svg)\n"]
    (folder / "README.md").write_text("\n".join(parts) + "\n")


def quality_tables(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of two tables: each policy against the optimum, and against Karpenter's bill and moves."""
    parts = []
    clusters = _by_policy(row for row in rows if row["kind"] == "cluster")
    if clusters:
        first = next(iter(clusters.values()))
        parts.append(
            f"{len(first)} clusters with a known optimum; objective: dollars per hour at the end + 0.01 x moves.\n"
        )
        parts += ["| policy | mean gap | worst gap | dollars per hour | pods moved |", "|---|---|---|---|---|"]
        best = [sum(row[key] for row in first) for key in ("optimumDollarsPerHour", "optimumPodsMoved")]
        parts.append(f"| optimum | 0 % | 0 % | {best[0]:.2f} | {best[1]:,} |")
        for policy, own in clusters.items():
            gaps = [row["gapPercent"] for row in own]
            rate, moved = (sum(row[key] for row in own) for key in ("dollarsPerHour", "podsMoved"))
            parts.append(f"| {policy} | {mean(gaps):.1f} % | {max(gaps):.1f} % | {rate:.2f} | {moved:,} |")
    courses = [row for row in rows if row["kind"] in ("recording", "scenario")]
    if courses:
        parts.append("\nRecordings and scenarios, means over the seeds; bill and moves in percent of Karpenter's.\n")
        parts.append("| | seeds | policy | bill | | pods moved | | moved more than once |")
        parts.append("|---|---|---|---|---|---|---|---|")
        theirs = {row["name"]: row for row in courses if row["policy"] == "karpenter-1.15"}
        for row in courses:
            of_theirs = [_share(row, theirs.get(row["name"]), key) for key in ("dollars", "podsMoved")]
            parts.append(
                f"| {row['name']} | {row['seeds']} | {row['policy']} | ${row['dollars']:.3f} | {of_theirs[0]} "
                f"| {row['podsMoved']:,} | {of_theirs[1]} | {row['podsMovedMoreThanOnce']:,} |"
            )
    return parts


def _is_shown(row: dict[str, Any]) -> bool:
    cluster = row.get("cluster", "")
    shown = cluster.endswith(_SHOWN_SIZES) and not cluster.startswith("packedsimple")
    return "nodes" not in row or not cluster or shown


def _by_policy(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["policy"], []).append(row)
    return found


def _share(row: dict[str, Any], theirs: dict[str, Any] | None, key: str) -> str:
    return "" if theirs is None or not theirs[key] else f"{100 * row[key] / theirs[key]:.0f} %"


def _cell(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _growth(rows: list[dict[str, Any]]) -> str:
    """Return the seconds per pass against the number of nodes, for Dovetail and Karpenter, on logarithmic axes."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        family = row["cluster"].split("-")[0]
        lines.setdefault(f"dovetail {family}", []).append((row["nodes"], row["passSeconds"]))
        if row.get("karpenterPassSeconds"):
            lines.setdefault(f"karpenter {family}", []).append((row["nodes"], row["karpenterPassSeconds"]))
    points = [point for line in lines.values() for point in line]
    if not points:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'
    low_x, high_x = (math.log10(f(p[0] for p in points)) for f in (min, max))
    low_y, high_y = math.floor(math.log10(min(p[1] for p in points))), math.ceil(math.log10(max(p[1] for p in points)))

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / (high_x - low_x or 1)
        up = (math.log10(y) - low_y) / (high_y - low_y or 1)
        return round(60 + across * 480, 1), round(330 - up * 300, 1)

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 370" font-family="sans-serif" font-size="12">']
    parts.append('<rect width="760" height="370" fill="#fff"/>')
    for power in range(low_y, high_y + 1):
        _, y = place(10**low_x, 10.0**power)
        parts.append(
            f'<path d="M60 {y}H540" stroke="#ddd"/><text x="54" y="{y + 4}" text-anchor="end">{10.0**power:g} s</text>'
        )
    for nodes in sorted({point[0] for point in points}):
        x, _ = place(nodes, 10.0**low_y)
        parts.append(f'<text x="{x}" y="350" text-anchor="middle">{nodes:,.0f}</text>')
    colours = {"mixed": "#0072b2", "packed": "#d55e00", "packedsimple": "#00795c"}
    taken: list[float] = []
    for name, line in sorted(lines.items()):
        who, family = name.split(" ")
        dash = ' stroke-dasharray="6 4"' if who == "karpenter" else ""
        path = "L".join(f"{x} {y}" for x, y in (place(*point) for point in sorted(line)))
        parts.append(f'<path d="M{path}" fill="none" stroke="{colours[family]}" stroke-width="2"{dash}/>')
        _, end = place(*max(line))
        while any(abs(end - other) < 15 for other in taken):
            end += 15
        taken.append(end)
        parts.append(f'<text x="550" y="{end + 4}" fill="{colours[family]}">{name}</text>')
    parts.append('<text x="300" y="366" text-anchor="middle">nodes</text></svg>')
    return "".join(parts)
