"""Whole conversations of the engine with a scripted world, to the second: `conversations/*.txt` holds each.

A test elsewhere says what must hold; these say what happens, so that nothing changes unseen: an instruction more or
less, another time to wake up, another question to the planner. After a change that is meant, write them again with
`python -m tests.lifecycle.test_conversations` and read what has changed.
"""

from itertools import zip_longest
from pathlib import Path

import pytest

from tests.lifecycle.scenes import commands, faults, found, memory
from tests.lifecycle.scenes.stage import SCENARIOS

FOLDER = Path(__file__).parent / "conversations"
__all__ = ["commands", "faults", "found", "memory"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_conversation(name: str) -> None:
    """The conversation is identical to the recorded one."""
    known = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    for number, (said, written) in enumerate(zip_longest(SCENARIOS[name](), known), 1):
        if said != written:
            pytest.fail(f"{name}.txt, line {number}: {said!r} instead of {written!r}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for title, act in SCENARIOS.items():
        (FOLDER / f"{title}.txt").write_text("\n".join(act()) + "\n", encoding="utf-8")
