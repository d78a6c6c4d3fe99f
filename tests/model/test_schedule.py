import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import HOUR, MINUTE, parse_go_duration
from dovetail.model.timing.schedule import Schedule, parse_schedule
from dovetail.model.timing.windows import Window, window
from tests.paths import ROOT

ANSWERS = json.loads((ROOT / "tests/golden/data/cron.json").read_text())
BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def at(text: str) -> datetime:
    """Read an instant in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def hits(schedule: str, start: str, end: str) -> list[str]:
    """List the hits after start and up to end, as local times with their offsets."""
    parsed, now = Schedule.parse(schedule), at(start)
    found: list[str] = []
    zone = ZoneInfo(parsed.zone)
    while (coming := parsed.next_after(now)) is not None and coming <= at(end):
        found.append(coming.astimezone(zone).strftime("%d %H:%M%z"))
        now = coming
    return found


@pytest.mark.parametrize(("start", "schedule", "expected"), ANSWERS)
def test_hits_are_those_of_karpenters_library(start: str, schedule: str, expected: list[str] | str) -> None:
    """Syntax with its oddities, and the next hits around clock changes; what it refuses is refused with a remedy."""
    if expected == "error":
        with pytest.raises(ScheduleError, match="; write "):
            Schedule.parse(schedule)
        return
    parsed = Schedule.parse(schedule)
    now: datetime | None = datetime.fromisoformat(start)
    found: list[str] = []
    while len(found) < 6 and now is not None and (now := parsed.next_after(now)) is not None:
        found.append(now.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert found == expected


@pytest.mark.parametrize(
    ("schedule", "start", "end", "expected"),
    [
        # Berlin: 02:00 to 03:00 doesn't exist on 29 March 2026, and comes twice on 25 October.
        (
            f"TZ={BERLIN} 30 2 * * *",
            "2026-03-28",
            "2026-03-31",
            ["28 02:30+0100", "30 02:30+0200"],
        ),
        (
            f"TZ={BERLIN} 30 2 * * *",
            "2026-10-24T12:00",
            "2026-10-26T12:00",
            ["25 02:30+0200", "25 02:30+0100", "26 02:30+0100"],
        ),
        (
            f"TZ={BERLIN} 0 * * * *",
            "2026-03-28T23:30",
            "2026-03-29T02:00",
            ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200"],
        ),
        # New York: 02:00 to 03:00 doesn't exist on 8 March 2026; 01:00 to 02:00 comes twice on 1 November.
        (f"CRON_TZ={NEW_YORK} 0 2 * * sun", "2026-03-02", "2026-03-16", ["15 02:00-0400"]),
        (f"CRON_TZ={NEW_YORK} 15 1 1 11 *", "2026-01-01", "2026-12-31", ["01 01:15-0400", "01 01:15-0500"]),
        # Lord Howe: half an hour. No 02:00 to 02:30 on 4 October 2026; 01:30 to 02:00 comes twice on 5 April.
        (f"TZ={LORD_HOWE} */15 2 * * *", "2026-10-03T12:00", "2026-10-04T12:00", ["04 02:30+1100", "04 02:45+1100"]),
        (f"TZ={LORD_HOWE} 45 1 * * *", "2026-04-04T12:00", "2026-04-05T12:00", ["05 01:45+1100", "05 01:45+1030"]),
        (f"TZ={LORD_HOWE} 0 0 * * *", "2026-04-04", "2026-04-06", ["05 00:00+1100", "06 00:00+1030"]),
        # Samoa had no 30 December 2011; in Beirut the clock skips midnight itself.
        (
            "TZ=Pacific/Apia 0 0 * * *",
            "2011-12-28T12:00",
            "2011-12-31T12:00",
            ["29 00:00-1000", "31 00:00+1400", "01 00:00+1400"],
        ),
        ("TZ=Asia/Beirut 0 0 * * *", "2026-03-27T23:00", "2026-03-30T12:00", ["30 00:00+0300"]),
    ],
)
def test_clock_changes_skip_and_repeat_hits(schedule: str, start: str, end: str, expected: list[str]) -> None:
    """A time that the clock skips does not happen; one that comes twice happens at both offsets."""
    assert hits(schedule, start, end) == expected


@pytest.mark.parametrize(
    "schedule", ["", ",  * * * *", "0 0 , * *", "TZ=UTC", "TZ=../etc/passwd 0 0 * * *", "TZ=/etc 0 0 * * *"]
)
def test_what_no_cron_can_read_is_refused(schedule: str) -> None:
    """Empty texts, fields of commas alone, zones that are paths: one sentence with a remedy."""
    with pytest.raises(ScheduleError, match="; write "):
        Schedule.parse(schedule)


def test_a_refusal_names_field_value_and_remedy() -> None:
    """The refusal has its field, value and remedy as separate parts."""
    with pytest.raises(ScheduleError) as caught:
        Schedule.parse("0 25 * * *")
    assert (caught.value.field, caught.value.value, caught.value.reason) == ("hour", "25", "is outside 0 to 23")
    assert "0 to 23" in caught.value.remedy


def test_budgets_refuse_every() -> None:
    """@every has no fixed hits: Karpenter's schema refuses it, its library doesn't, and so with us."""
    assert Schedule.parse("@every 90s").next_after(at("2026-05-01T00:00:00")) == at("2026-05-01T00:01:30")
    assert Schedule.parse("@every 90s").prev_at_or_before(at("2026-05-01T00:00:00")) is None
    with pytest.raises(ScheduleError, match="write @hourly"):
        parse_schedule("@every 90s")
    assert parse_schedule("@hourly") is Schedule.parse("@hourly")


def test_impossible_days_never_come() -> None:
    """30 February gives no hit, in either direction; 29 February may be too far away."""
    never = Schedule.parse("0 0 30 2 *")
    assert not never.possible()
    assert never.next_after(at("2026-01-01")) is never.prev_at_or_before(at("2026-01-01")) is None
    leap = Schedule.parse("0 0 29 2 *")
    assert leap.next_after(at("2096-03-01")) is None
    assert leap.next_after(at("2099-01-01")) == at("2104-02-29")
    assert Window(never, HOUR).never_hits()
    assert Window(never, HOUR).next_change(at("2026-01-01")) is None


def test_the_hit_is_inside_and_the_end_outside() -> None:
    """A window is [hit, hit + duration), to the microsecond."""
    office = window("0 9 * * mon-fri", 8 * HOUR)
    instant = timedelta(microseconds=1)
    opened, closed = at("2026-05-13T09:00"), at("2026-05-13T17:00")
    assert [office.active(when) for when in (opened - instant, opened, closed - instant, closed)] == [
        False,
        True,
        True,
        False,
    ]
    assert office.next_change(opened - instant) == opened
    assert office.next_change(opened) == office.next_change(closed - instant) == closed
    assert office.next_change(closed) == at("2026-05-14T09:00")
    assert office.next_change(at("2026-05-15T17:00")) == at("2026-05-18T09:00")


@pytest.mark.parametrize(
    ("schedule", "duration", "now", "active", "change"),
    [
        ("0 * * * *", "1h", "2026-05-01T10:30", True, None),  # each window ends as the next one opens
        ("* * * * *", "1m", "2026-05-01T10:30", True, None),
        ("*/15 * * * *", "20m", "2026-05-01T10:30", True, None),
        ("*/15 9-16 * * *", "20m", "2026-05-01T10:30", True, "2026-05-01T17:05"),
        ("0 0 * * sat,sun", "24h", "2026-05-02T10:00", True, "2026-05-04T00:00"),
        ("0 0 * * *", "24h", "2026-05-02T10:00", True, None),
        ("0 0 * * *", "30h", "2026-05-02T10:00", True, None),
        ("0 0 1 * *", "240h", "2026-05-20T10:00", False, "2026-06-01T00:00"),
        ("0 22 * * *", "8h", "2026-05-02T03:00", True, "2026-05-02T06:00"),
        ("0 9 * * *", "0s", "2026-05-02T09:00", False, None),
        ("@every 1h", "10m", "2026-05-02T09:00", False, None),
        ("@every 1h", "1h", "2026-05-02T09:00", True, None),
        # A day of 25 hours leaves the last one open; on the day of 23 hours the windows overlap.
        (f"TZ={BERLIN} 0 0 * * *", "24h", "2026-05-01T10:30", True, "2026-10-25T22:00"),
        (f"TZ={BERLIN} * * * * *", "1m", "2026-05-01T10:30", True, None),
    ],
)
def test_windows_that_touch_are_one(schedule: str, duration: str, now: str, active: bool, change: str | None) -> None:
    """Overlapping and adjoining windows change only where the last one closes."""
    asked = window(schedule, parse_go_duration(duration))
    assert asked.active(at(now)) is active
    assert asked.next_change(at(now)) == (None if change is None else at(change))


def test_windows_and_schedules_are_values() -> None:
    """Windows and schedules are equal if their texts and durations are, whatever was queried before."""
    one, other = Window(Schedule.parse("0 9 * * *"), HOUR), Window(Schedule("0 9 * * *"), HOUR)
    assert one.active(at("2026-05-01T09:30"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Window(Schedule.parse("0 9 * * *"), MINUTE)
    assert not one.active(at("2020-05-01T08:30"))
    assert window("0 9 * * *", HOUR) is window("0 9 * * *", HOUR)


def test_instants_of_any_zone_are_taken() -> None:
    """Only the instant of a query matters, not its time zone."""
    noon = datetime(2026, 5, 13, 12, 0, tzinfo=ZoneInfo(BERLIN))
    assert window("0 10 * * *", MINUTE).active(noon)
    assert Schedule.parse("0 10 * * *").next_after(noon) == at("2026-05-14T10:00")
    assert Schedule.parse("0 10 * * *").prev_at_or_before(noon) == at("2026-05-13T10:00")
