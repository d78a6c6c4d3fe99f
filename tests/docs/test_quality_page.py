"""The section on the quality of decisions: what the benchmark measured, against the optimum and against Karpenter."""

import json
from pathlib import Path
from typing import Any

from benchmarks import frontier
from benchmarks.page import quality_tables, write_page


def _cluster(policy: str, gap: float, moved: int) -> dict[str, Any]:
    best = {"optimumDollarsPerHour": 2.0, "optimumPodsMoved": 30}
    own = {"dollarsPerHour": 2.5, "podsMoved": moved, "gapPercent": gap}
    return {"kind": "cluster", "name": f"c{moved}", "policy": policy, **own, **best}


def _course(policy: str, dollars: float, moved: float, kind: str = "scenario") -> dict[str, Any]:
    figures = {"seeds": 4, "dollars": dollars, "podsMoved": moved, "podsMovedMoreThanOnce": 3.5}
    return {"kind": kind, "name": "day-night", "policy": policy, **figures}


ROWS = [
    _cluster("recommended", 1.0, 40),
    _cluster("recommended", 4.0, 50),
    _course("karpenter-1.15", 80.0, 1200.0),
    _course("recommended", 78.4, 300.0),
]


def test_policies_stand_beside_the_optimum_and_beside_karpenter() -> None:
    """The table has the mean and worst gap, sums over the clusters, and bill and moves as shares of Karpenter's."""
    lines = quality_tables(ROWS)
    assert "| optimum | 0 % | 0 % | 4.00 | 60 |" in lines
    assert "| recommended | 2.5 % | 4.0 % | 5.00 | 90 |" in lines
    assert "| day-night | 4 | karpenter-1.15 | $80.000 | 100 % | 1,200.0 | 100 % | 3.5 |" in lines
    assert "| day-night | 4 | recommended | $78.400 | 98 % | 300.0 | 25 % | 3.5 |" in lines


def test_parts_that_were_not_run_leave_gaps_and_no_nonsense() -> None:
    """Without Karpenter's rows there are no shares; without clusters there is no table of clusters."""
    lines = quality_tables(ROWS[3:])
    assert "| day-night | 4 | recommended | $78.400 |  | 300.0 |  | 3.5 |" in lines
    assert not any("optimum" in line for line in lines)
    assert quality_tables([]) == []


def test_the_page_has_the_section_where_it_was_measured(tmp_path: Path) -> None:
    """With a file of measurements there is a section with the commit; without one there is none."""
    write_page(tmp_path)
    assert "Quality" not in (tmp_path / "README.md").read_text()
    stamp = {"commit": "abc", "date": "2026-01-01", "python": "3.11"}
    (tmp_path / "quality.json").write_text(json.dumps({**stamp, "rows": ROWS}))
    write_page(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "## Quality of decisions" in page
    assert "Commit abc" in page
    assert quality_tables(ROWS)[-1] in page


def _edge(policy: str, bill: float, restarts: int) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": "frontier", "name": "tide", "level": "1", "policy": policy, "seeds": 2, "bill": bill}
    return row | {f"total at ${price}": bill + price * restarts for price in frontier.PRICES}


def test_the_frontier_has_a_row_for_each_course(tmp_path: Path) -> None:
    """Each policy stands against the best tuned Karpenter of that price; what was not run leaves a gap."""
    made = [
        _edge("karpenter", 1.0, 100),
        _edge("karpenter Balanced", 1.2, 20),
        _edge("recommended", 1.1, 20),
        _edge(frontier.told(0.005), 1.05, 10),
    ]
    rows = [row | frontier.gaps(row, made) for row in made]
    assert frontier.summary(rows)[-1] == "| tide | x 1 | 2 | Balanced | +1.8, -7.7, -6.2 | ?, -15.4, ? |"
    stamp = {"commit": "abc", "date": "2026-01-01", "python": "3.11"}
    (tmp_path / "quality.json").write_text(json.dumps({**stamp, "rows": rows}))
    write_page(tmp_path)
    assert "](frontier.svg)" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "frontier.svg").read_text().count("<circle") == 6, "two Karpenters, and the legend"
