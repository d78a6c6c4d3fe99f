"""Print the tables of docs/internals/live-runs.md from live.json: `python -m benchmarks.live_tables`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
_HEADS = {
    "alone": "Karpenter alone",
    "default": "Dovetail beside it, default settings",
    "recommended": "Dovetail beside it, `recommended`",
}
_OF_PROCESSES = (
    "CPU seconds",
    "MiB peak",
    "reads a minute",
    "writes a minute",
    "kB written",
    "writes that changed nothing",
    "writes refused",
)


def tables(rows: list[Tree]) -> str:
    """Return one table for each size, with a column for each run."""
    parts = []
    for nodes in sorted({row["nodes"] for row in rows}):
        of_size = sorted((row for row in rows if row["nodes"] == nodes), key=lambda row: list(_HEADS).index(row["who"]))
        heads = [_HEADS[row["who"]] + row.get("label", "") for row in of_size]
        parts += [f"### {nodes:,} machines, {of_size[0]['pods']:,} pods\n", f"| | {' | '.join(heads)} |"]
        parts.append("|---" * (len(heads) + 1) + "|")
        for name, cell in _lines():
            cells = [cell(row) for row in of_size]
            if any(cells):
                parts.append(f"| {name} | {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def _lines() -> list[tuple[str, Callable[[Tree], str]]]:
    """Return the title of each line and the function that makes its cells."""
    lines: list[tuple[str, Callable[[Tree], str]]] = [
        ("machines before / after", lambda row: f"{row['nodes']:,} / {row['nodes after']:,}"),
        (
            "dollars an hour before / after",
            lambda row: f"${row['dollars an hour before']:.0f} / ${row['dollars an hour after']:.0f}",
        ),
        ("dollars over the course", lambda row: f"${row['dollars']:.2f}"),
        *(
            (title, lambda row, name=name: f"{row[name]:,}")
            for title, name in (
                ("pods moved", "pods moved"),
                ("machines launched", "nodes launched"),
                ("short lives", "short lives"),
                ("pods that wait at the end", "pods waiting at the end"),
            )
        ),
        ("seconds from each step to the first decision", lambda row: _seconds(row, "decided")),
        ("seconds from each step to the first command begun", lambda row: _seconds(row, "begun")),
    ]
    for process in ("karpenter", "dovetail"):
        lines += [(f"{process.title()}: {name}", _figure(process, name)) for name in _OF_PROCESSES]
    lines += [
        ("API server: CPU seconds", lambda row: f"{row['CPU seconds of the rest']['kube-apiserver']:,.0f}"),
        ("etcd, scheduler, controller manager: CPU seconds", _rest),
        ("seconds until every machine was held", lambda row: _plain(row, "seconds until every node was held")),
        ("Dovetail's rounds", lambda row: _plain(row, "rounds")),
        ("seconds of a round on the clock, mean", lambda row: _plain(row, "seconds of a round, mean")),
        ("Dovetail's commands done", lambda row: _plain(row, "commands")),
        ("lines of Dovetail's log", lambda row: _plain(row, "lines of log")),
        ("cores that the run had in all", _cores),
        ("cores that other work took meanwhile", lambda row: _plain(row, "cores that others used")),
    ]
    return lines


def _figure(process: str, name: str) -> Callable[[Tree], str]:
    return lambda row: _amount(row[process][name]) if process in row else ""


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:g}"


def _seconds(row: Tree, name: str) -> str:
    found = [step.get(name) for step in row["seconds from step to decision"]]
    if all(name not in step for step in row["seconds from step to decision"]):
        return ""
    return ", ".join("-" if each is None else f"{each:.0f}" for each in found)


def _rest(row: Tree) -> str:
    names = ("etcd", "kube-scheduler", "kube-controller-manager")
    return f"{sum(row['CPU seconds of the rest'][name] for name in names):,.0f}"


def _cores(row: Tree) -> str:
    """Return how many cores all processes of the run used together."""
    own = sum(row[name]["CPU seconds"] for name in ("karpenter", "dovetail") if name in row)
    return f"{(own + sum(row['CPU seconds of the rest'].values())) / row['seconds']:.2f}"


def _plain(row: Tree, name: str) -> str:
    return f"{row[name]:,}" if name in row else ""


if __name__ == "__main__":
    path = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "live.json"
    sys.stdout.write(tables(json.loads(path.read_text())["rows"]))
