"""The times of pod events are those of the wall clock."""

from datetime import UTC, datetime, timedelta

from dovetail.lifecycle.memory.pod_events import PodEvents
from tests.support.conversation import pod

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def test_events_are_times_of_the_wall() -> None:
    """Event times are wall times to the microsecond; removed nodes are forgotten."""
    events = PodEvents()
    events.note(None, pod("a", "n1"), 1_999_000)
    first = events.times(NOW, 5_000_000)
    assert first == {"n1": NOW - timedelta(microseconds=5000 - 1999)}
    assert events.times(NOW, 5_000_999) is first
    events.forget("unknown")
    assert events.times(NOW, 5_000_000) is first
    later = events.times(NOW + timedelta(seconds=1), 5_000_000)
    assert later == {"n1": NOW + timedelta(seconds=1) - timedelta(microseconds=3001)}
    events.forget("n1")
    assert events.times(NOW, 5_000_000) == {}
