"""The history of departures: written before the taint, removed by a rollback, never counted twice."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.lifecycle.effects.pool_history import history_outcome
from dovetail.lifecycle.effects.writes import Done, Failed, Patch, Writes
from dovetail.lifecycle.messages import ForgetDisruption, NoteDisruption
from dovetail.model.timing.duration import HOUR

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def pool(history: str | None) -> dict[str, Any]:
    """Build a NodePool with a history."""
    annotations = {} if history is None else {"dovetail.dev/recent-disruptions": history}
    return {"metadata": {"name": "web", "resourceVersion": "7", "annotations": annotations}}


def entry(ago: timedelta, command: str) -> dict[str, Any]:
    """Build an entry of a history."""
    at = (NOW - ago).isoformat().replace("+00:00", "Z")
    return {"at": at, "nodes": 1, "reason": "Empty", "command": command}


NOTE = NoteDisruption(id="c/note/web", command_id="c", node_pool="web", nodes=2, reason="Drifted", at=NOW, keep=HOUR)
FORGET = ForgetDisruption(id="c/forget/web", command_id="c", node_pool="web")


def written(outcome: object) -> list[dict[str, Any]] | None:
    """Return the history that an outcome writes; None means that it removes the annotation."""
    assert isinstance(outcome, Writes)
    (patch,) = outcome.writes
    assert isinstance(patch, Patch)
    assert patch.resource_version == "7"
    value = patch.tree["metadata"]["annotations"]["dovetail.dev/recent-disruptions"]
    return None if value is None else json.loads(value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, ["c"]),
        ([entry(timedelta(minutes=59), "a")], ["a", "c"]),
        ([entry(timedelta(minutes=60), "a")], ["c"]),
    ],
)
def test_a_start_is_noted_and_old_entries_go(before: list[dict[str, Any]] | None, after: list[str]) -> None:
    """A new entry has time, number, reason and command; entries older than the span are removed."""
    found = written(history_outcome(NOTE, pool(None if before is None else json.dumps(before))))
    assert found is not None
    assert [item["command"] for item in found] == after
    assert found[-1] == {"at": "2026-05-11T12:00:00Z", "nodes": 2, "reason": "Drifted", "command": "c"}


def test_noting_twice_and_forgetting_twice_write_once() -> None:
    """Adding and removing an entry is idempotent; a deleted pool needs neither."""
    noted = pool(json.dumps([entry(timedelta(0), "c")]))
    assert history_outcome(NOTE, noted) == Done()
    assert written(history_outcome(FORGET, noted)) is None
    assert history_outcome(FORGET, pool(None)) == Done()
    assert history_outcome(NOTE, None) == Done()


def test_forgetting_leaves_the_others() -> None:
    """A rollback removes only the entry of its command."""
    both = pool(json.dumps([entry(timedelta(minutes=5), "a"), entry(timedelta(0), "c")]))
    found = written(history_outcome(FORGET, both))
    assert found is not None
    assert [item["command"] for item in found] == ["a"]


def test_a_history_that_cannot_be_read_is_not_overwritten() -> None:
    """A command with an unreadable history is refused with a remedy."""
    outcome = history_outcome(NOTE, pool("nonsense"))
    assert isinstance(outcome, Failed)
    assert "take dovetail.dev/recent-disruptions off" in outcome.detail
