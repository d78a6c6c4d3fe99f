"""The cron rules of the CRD, evaluated with Python's regular expressions; `test_crds` uses the real server."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.api.crds.cron_rules import FIELDS, CelRule, CronField, backward_pattern, field_pattern, schedule_rules
from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.schedule import parse_schedule
from tests.support.crd_rules import SCHEDULES_BAD, SCHEDULES_GOOD, SCHEDULES_ODD

CALL = re.compile(r"(!?)self\.matches\(r'([^']*)'\)")


def keeps(rule: CelRule, schedule: str) -> bool:
    """Return whether a schedule meets one rule: calls of matches joined by ||, each perhaps negated."""
    calls = CALL.findall(rule.rule)
    assert " || ".join(f"{sign}self.matches(r'{pattern}')" for sign, pattern in calls) == rule.rule
    return any(bool(re.search(pattern.replace("$", r"\Z"), schedule)) is (sign == "") for sign, pattern in calls)


def accepted(schedule: str) -> bool:
    """Return whether a schedule meets all rules."""
    return all(keeps(rule, schedule) for rule in schedule_rules())


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_value_and_range_of_a_field(field: CronField) -> None:
    """A value is accepted within the bounds, a range if both ends are and run from low to high; names count too."""
    whole, backward = re.compile(field_pattern(field)), re.compile(backward_pattern())
    values = [(n, str(n)) for n in range(70)] + [(field.low + i, name) for i, name in enumerate(field.names)]
    for start, first in values:
        assert bool(whole.fullmatch(first)) is (field.low <= start <= field.high)
        for end, last in values:
            text = f"{first}-{last}"
            read = whole.fullmatch(text) is not None and backward.search(text) is None
            assert read is (field.low <= start <= end <= field.high), text


@pytest.mark.parametrize("schedule", SCHEDULES_GOOD + SCHEDULES_ODD)
def test_good_schedules(schedule: str) -> None:
    """A schedule that cron can read meets every rule."""
    assert accepted(schedule)


@pytest.mark.parametrize("schedule", SCHEDULES_BAD)
def test_bad_schedules(schedule: str) -> None:
    """A schedule that no cron can read breaks a rule."""
    assert not accepted(schedule)


def test_a_schedule_of_the_wrong_shape_breaks_one_rule_only() -> None:
    """A schedule without five fields breaks only the rule on its shape."""
    broken = [rule for rule in schedule_rules() if not keeps(rule, "0 0 * *")]
    assert [rule.message.split(" such as")[0] for rule in broken] == ["schedule must be five cron fields"]


WORDS = ("jan", "DEC", "mon", "Fri", "sun", "sat", "monday", "x", "L", "")
numbers = st.integers(0, 65).map(str)
values = st.one_of(numbers, numbers, st.sampled_from(WORDS), numbers.map("0{}".format), numbers.map("+{}".format))
spans = st.one_of(st.sampled_from("*?"), values, st.tuples(values, values).map("-".join), st.just("*-5"))
steps = st.one_of(
    st.just(""), st.just(""), st.sampled_from(("/1", "/5", "/0", "/100", "/x", "/", "/+2", "/1/2", "/-1"))
)
items = st.tuples(spans, steps).map("".join)
fields = st.one_of(st.just("*"), st.lists(items, min_size=1, max_size=3).map(",".join))
zones = st.sampled_from(("", "", "", "TZ=Europe/Berlin ", "CRON_TZ=UTC  "))
texts = st.tuples(zones, st.lists(fields, min_size=4, max_size=6).map(" ".join)).map("".join)


@given(texts)
def test_the_api_server_and_run_time_agree_on_schedules(schedule: str) -> None:
    """The CRD accepts a schedule exactly if it can be read at run time."""
    assume(not any(set(field) == {","} for field in schedule.split()))
    try:
        parse_schedule(schedule)
    except ScheduleError:
        read = False
    else:
        read = True
    assert accepted(schedule) is read
