import json

import pytest

from dovetail.model.timing.duration import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    DurationError,
    format_duration,
    go_format,
    parse_go_duration,
    parse_nillable,
    parse_simple,
)
from tests.paths import ROOT

ANSWERS = json.loads((ROOT / "tests/golden/data/durations.json").read_text())


@pytest.mark.parametrize(("text", "nanoseconds", "written"), ANSWERS)
def test_every_text_is_read_and_written_as_go_does(text: str, nanoseconds: int | None, written: str | None) -> None:
    """Parsing and printing agree with ParseDuration and String of Go's library."""
    if nanoseconds is None:
        with pytest.raises(DurationError):
            parse_go_duration(text)
    else:
        assert parse_go_duration(text) == nanoseconds
        assert go_format(nanoseconds) == written


@pytest.mark.parametrize(
    ("text", "units", "duration"),
    [
        ("15s", "smh", 15 * SECOND),
        ("1h30m", "smh", 90 * MINUTE),
        ("30m1h", "smh", 90 * MINUTE),
        ("10m10m", "smh", 20 * MINUTE),
        ("0s", "smh", 0),
        ("30d", "smhd", 30 * DAY),
        ("1d12h", "smhd", 36 * HOUR),
    ],
)
def test_crd_fields_take_whole_numbers_with_their_units(text: str, units: str, duration: int) -> None:
    """Parts may repeat and come in any order, as the schema's pattern has it."""
    assert parse_simple(text, units) == duration
    assert parse_nillable(text, units) == duration


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("", "smh"),
        ("5", "smh"),
        ("1.5h", "smh"),
        ("-1h", "smh"),
        ("1d", "smh"),
        ("1h ", "smh"),
        ("never", "smh"),
        ("1w", "smhd"),
        ("9999999h", "smh"),
    ],
)
def test_other_texts_are_refused_with_a_remedy(text: str, units: str) -> None:
    """The message has the value and the valid forms, including Never if it is allowed."""
    with pytest.raises(DurationError, match="is not a duration; write ") as caught:
        parse_simple(text, units)
    assert repr(text) in str(caught.value)
    with pytest.raises(DurationError, match=r"or Never$"):
        parse_nillable(text, units)


def test_never_is_none() -> None:
    """Only the word Never is read as None."""
    assert parse_nillable("Never") is None
    assert format_duration(None) == "Never"


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (90 * MINUTE, "1h30m"),
        (HOUR, "1h"),
        (10 * MINUTE, "10m"),
        (10 * HOUR, "10h"),
        (15 * SECOND, "15s"),
        (0, "0s"),
        (HOUR + SECOND, "1h0m1s"),
        (-MINUTE, "-1m"),
        (1500, "1.5µs"),
        (20 * HOUR + 10 * MINUTE, "20h10m"),
    ],
)
def test_durations_are_written_the_short_way(duration: int, text: str) -> None:
    """Zero minutes and zero seconds at the end are left out."""
    assert format_duration(duration) == text
