"""Cron schedules as CEL rules, with which the API server refuses an invalid schedule.

A rule is a regular expression (RE2, as CEL has it) with a sentence for people. They accept exactly what the cron
library of Karpenter reads, its oddities included (`1,,2`, `+5`, `*-5`), except for fields of commas alone and for
`@every`, which has no fixed hits and which Karpenter's own schema refuses. Checking that a range runs from low to high
needs arithmetic with a high CEL cost, so one pattern lists the backward pairs. Whether a time zone exists is checked at
run time. Sits in api; `crds` puts these rules into the NodePool's schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

SCHEDULE_LENGTH_MAX: Final = 640  # listing every minute, hour, day and month takes some 430; bounds CEL's cost
_DESCRIPTORS: Final = ("yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ZEROS: Final = r"\+?0*"
_ZONE: Final = r"(?:(?:CRON_)?TZ=[^\s=@]+\s+)?"
_WORD: Final = r"[^\s=@]+"
_STEP: Final = rf"(?:/{_ZEROS}[1-9][0-9]{{0,17}})?"
_ANY: Final = r"[*?](?:-[^\s,/]*)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronField:
    """One of the five fields: its bounds, and the names of its values, from the lowest."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CelRule:
    """A CEL expression over `self` and its error message."""

    rule: str
    message: str


FIELDS: Final = (
    CronField(name="minute", low=0, high=59),
    CronField(name="hour", low=0, high=23),
    CronField(name="day of month", low=1, high=31),
    CronField(name="month", low=1, high=12, names=_MONTHS),
    CronField(name="day of week", low=0, high=6, names=_DAYS),
)


def schedule_rules() -> tuple[CelRule, ...]:
    """Return the rules of a schedule: its shape, each field (skipped if the shape is wrong), the order in ranges."""
    five = rf"^\s*{_ZONE}{_WORD}(?:\s+{_WORD}){{4}}\s*$"
    named = rf"^\s*{_ZONE}@(?:{'|'.join(_DESCRIPTORS)})\s*$"
    shape = CelRule(
        rule=f"{_matches(five)} || {_matches(named)}",
        message="schedule must be five cron fields such as '0 9 * * mon-fri', or one of "
        f"{', '.join('@' + word for word in _DESCRIPTORS)}; 'TZ=Area/City ' may stand in front",
    )
    order = CelRule(
        rule=f"!{_matches(backward_pattern())}",
        message="ranges in schedule must run from low to high, such as 9-17 or mon-fri; past midnight: 22-23,0-6",
    )
    return shape, *(_field_rule(five, index, field) for index, field in enumerate(FIELDS)), order


def _field_rule(five: str, index: int, field: CronField) -> CelRule:
    before = rf"(?:{_WORD}\s+){{{index}}}" if index else ""
    pattern = rf"^\s*{_ZONE}{before}{field_pattern(field)}(?:\s|$)"
    names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
    return CelRule(
        rule=f"!{_matches(five)} || {_matches(pattern)}",
        message=f"field {index + 1} of schedule ({field.name}) must be *, ?, or a list of values {field.low} to "
        f"{field.high}{names}, ranges such as {field.low}-{field.high}, and steps such as */5",
    )


def field_pattern(field: CronField) -> str:
    """Return the expression that matches one field: a list of values, ranges and steps, possibly with empty items."""
    value = _value(field, field.low, field.high)
    item = f"(?:{_ANY}|{value}(?:-{value})?){_STEP}"
    return f",*{item}(?:,+{item})*,*"


def backward_pattern() -> str:
    """Return the expression that finds a range whose end lies before its start, in whichever field."""
    pairs = [_ZEROS + f"(?:{'|'.join(_backward_numbers(59))})"]
    pairs += [pair for field in FIELDS if field.names for pair in _backward_names(field)]
    return rf"(?:^|[\s,])(?:{'|'.join(pairs)})(?:[\s,/]|$)"


def _backward_numbers(high: int) -> Iterator[str]:
    """Yield the backward pairs by the tens digit of their start: to a smaller one, or backward within the same one."""
    for ten in range(high // 10 + 1):
        if ten:
            yield f"{ten}[0-9]-{_ZEROS}(?:{'|'.join(_numbers(0, ten * 10 - 1))})"
        for unit in range(1, 10):
            yield f"{_digits(ten, unit, unit)}-{_ZEROS}{_digits(ten, 0, unit - 1)}"


def _backward_names(field: CronField) -> Iterator[str]:
    """Yield the pairs that have a name on at least one side."""
    for start in range(field.low + 1, field.high + 1):
        name = field.names[start - field.low]
        yield f"(?i:{name})-{_value(field, field.low, start - 1)}"
        yield f"{_ZEROS}{start}-(?i:{'|'.join(field.names[: start - field.low])})"


def _value(field: CronField, low: int, high: int) -> str:
    """Match one value within the bounds, as a number or by name."""
    number = f"{_ZEROS}(?:{'|'.join(_numbers(low, high))})"
    if not field.names:
        return number
    return f"(?:{number}|(?i:{'|'.join(field.names[low - field.low : high - field.low + 1])}))"


def _numbers(low: int, high: int) -> Iterator[str]:
    """Return expressions that together match the numbers from low to high, without leading zeros."""
    tens = [(max(low, ten * 10), min(high, ten * 10 + 9), ten) for ten in range(low // 10, high // 10 + 1)]
    whole = [ten for first, last, ten in tens if ten and last - first == 9]
    for first, last, ten in tens:
        if ten not in whole:
            yield _digits(ten, first % 10, last % 10)
    if whole:
        yield f"{_class(whole[0], whole[-1])}[0-9]"


def _digits(ten: int, first: int, last: int) -> str:
    return (str(ten) if ten else "") + _class(first, last)


def _class(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"


def _matches(pattern: str) -> str:
    return f"self.matches(r'{pattern}')"
