"""The page of `dovetail tune`: one row for each outcome, the least total first."""

from typing import Any

from dovetail.sim.pages.tune import tune_page


def _policy(name: str, cost: float, restarts: float) -> dict[str, Any]:
    return {
        "policy": name,
        "set": {"consolidateAfter": name},
        "cost": cost,
        "podsDisrupted": restarts,
        "podsDisruptedMoreThanOnce": 0,
        "shortLivedNodes": 0,
        "pendingPodSeconds": 0,
        "scatter": {"cost": 0.001, "podsDisrupted": 1.0},
        "beaten": False,
    }


def test_policies_with_one_outcome_share_a_row() -> None:
    """The chosen one names the row; the others are folded below it; rows are in the order of their totals."""
    found = {
        "frontier": [_policy("2m", 1.0, 90), _policy("10m", 1.1, 10), _policy("5m", 1.1, 10), _policy("1h", 1.1, 10)],
        "chosen": "5m",
        "restartPrice": 0.01,
        "patch": {"spec": {}},
        "settings": {},
        "why": "It is best.",
        "calibration": None,
        "dropped": [],
    }
    page = tune_page(found)
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    assert body.count("<tr>") == 2
    assert "<b>5m</b><details><summary>and 2 alike</summary><ul><li>10m</li><li>1h</li></ul></details>" in body
    assert body.index("<b>5m</b>") < body.index("2m</td>")
