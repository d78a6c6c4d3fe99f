"""How periods are written in the reasons that people read."""

from datetime import timedelta

import pytest

from dovetail.decide.words import seconds


@pytest.mark.parametrize(
    ("span", "written"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=-90), "0s"),
        (timedelta(microseconds=-1), "0s"),
        (timedelta(microseconds=1), "1s"),
        (timedelta(seconds=59, microseconds=1), "1m"),
        (timedelta(seconds=60), "1m"),
        (timedelta(minutes=14), "14m"),
        (timedelta(hours=2, minutes=5), "2h5m"),
        (timedelta(hours=24), "1d"),
        (timedelta(days=30, seconds=1), "30d1s"),
        (timedelta(days=1, hours=23, minutes=59, seconds=59), "1d23h59m59s"),
    ],
)
def test_a_period_is_written_in_short_form(span: timedelta, written: str) -> None:
    """A period is rounded up to whole seconds, and units without an amount are left out."""
    assert seconds(span) == written
