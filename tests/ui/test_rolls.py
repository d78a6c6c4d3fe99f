"""Rolls in the live view and in `dovetail top`: by domain, with what is blocked and when it ends."""

from typing import Any

import pytest

from dovetail.ui.history import History
from dovetail.ui.terminal import Screen, plain, render
from dovetail.ui.watcher import Watcher
from tests.ui.test_live import simulated


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the document in the middle of a roll, zone by zone."""
    source = simulated(2, "image-roll")
    watcher = Watcher(source, History())
    for _ in range(40):
        source._pass(20)
        watcher.look()
    watcher._history.close()
    assert watcher.document is not None
    return watcher.document


def test_a_roll_is_shown_by_domain(document: dict[str, Any]) -> None:
    """Figures add up, one domain is active, and the end is said."""
    (roll,) = document["rolls"]
    assert roll["total"] == sum(roll[key] for key in ("replaced", "inFlight", "waiting", "blocked"))
    assert sum(entry["total"] for entry in roll["domains"]) == roll["total"]
    assert [entry["value"] for entry in roll["domains"] if entry["state"] == "active"] == [roll["activeDomain"]]
    assert roll["expectedEnd"] > document["now"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_top_draws_it(document: dict[str, Any], width: int) -> None:
    """The commands' view begins with the roll: a line for each domain, blocked nodes named, its end."""
    blocked = {"node": "n1", "gate": "pdb", "why": "PDB shop/api allows nothing"}
    never = {
        **document["rolls"][0],
        "blockers": [blocked],
        "blocked": 3,
        "expectedEnd": "",
        "why": "never, while it is full",
    }
    text = plain(render({**document, "rolls": [never]}, "", Screen(tab="commands"), width, 40))
    for entry in never["domains"]:
        assert f"{entry['replaced']:>3} of {entry['total']}" in text
    assert "blocked: n1 (pdb)" in text
    assert "and 2 more nodes" in text
    assert "never, while it is full" in text
    if width >= 80:
        assert "active" in text
