import contextlib

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.timing.duration import (
    DURATION_MAX,
    SECOND,
    DurationError,
    format_duration,
    go_format,
    parse_go_duration,
    parse_simple,
)


@given(st.integers(-DURATION_MAX - 1, DURATION_MAX))
def test_what_is_written_reads_back_the_same(duration: int) -> None:
    """Both formats are read back to the nanosecond."""
    assert parse_go_duration(go_format(duration)) == duration
    assert parse_go_duration(format_duration(duration)) == duration


@given(st.integers(0, DURATION_MAX // SECOND))
def test_whole_seconds_are_written_as_crd_fields_take_them(seconds: int) -> None:
    """A CRD field accepts the value that Dovetail writes."""
    assert parse_simple(format_duration(seconds * SECOND)) == seconds * SECOND


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text is read or refused, without another exception."""
    for read in (parse_go_duration, parse_simple):
        with contextlib.suppress(DurationError):
            assert isinstance(read(text), int)
