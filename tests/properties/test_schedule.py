import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import MINUTE
from dovetail.model.timing.schedule import Schedule
from dovetail.model.timing.windows import Window

INSTANTS = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"]


@st.composite
def field(draw: st.DrawFn, low: int, high: int, names: tuple[str, ...] = ()) -> str:
    """Build any field that all implementations read alike: star, values, names, ranges, steps, lists."""
    values = st.integers(low, high)

    def item() -> str:
        first, last = sorted((draw(values), draw(values)))
        step = draw(st.integers(1, 12))
        named = names[first - low] if names else str(first)
        forms = ["*", str(first), named, f"*/{step + 1}"]
        if first < last:  # croniter reads 0-0 as the whole week
            forms += [f"{first}-{last}", f"{first}-{last}/{step}"]
        return draw(st.sampled_from(forms))

    items = [item() for _ in range(draw(st.integers(1, 3)))]
    # A star within a list is read as an open field by some and as all values by others.
    return "*" if "*" in items else ",".join(items)


MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FIELDS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12, MONTHS), field(0, 6, DAYS))


@given(FIELDS, INSTANTS)
def test_generated_schedules_agree_with_two_others_in_utc(fields: tuple[str, ...], now: datetime) -> None:
    """The next hits are those of cronsim and croniter, where these read the day rule as Karpenter's library does."""
    # Others take */2 in a day field for an open star, and croniter a range over the whole week or month.
    text, days = " ".join(fields), (fields[2], fields[4])
    schedule = Schedule.parse(text)
    assume(schedule.possible())
    ours: list[datetime] = []
    when: datetime | None = now
    while len(ours) < 3 and when is not None and (when := schedule.next_after(when)) is not None:
        ours.append(when)
    assume(len(ours) == 3)
    if not any("*/" in day for day in days) or "*" in days:
        other = CronSim(text, now.replace(microsecond=0))
        assert ours == [next(other) for _ in ours]
    if "*" in days:
        second = croniter(text, now.replace(microsecond=0))
        assert ours == [second.get_next(datetime) for _ in ours]


@given(FIELDS, INSTANTS, st.sampled_from(ZONES))
def test_searching_back_finds_what_searching_on_found(fields: tuple[str, ...], now: datetime, zone: str) -> None:
    """No hit lies between an instant and the next; the last hit up to the next one is that one."""
    schedule = Schedule.parse(f"TZ={zone} {' '.join(fields)}")
    coming, last = schedule.next_after(now), schedule.prev_at_or_before(now)
    assume(coming is not None and last is not None)
    assert coming is not None
    assert last is not None
    assert last <= now < coming
    assert schedule.prev_at_or_before(coming) == coming
    assert schedule.prev_at_or_before(coming - timedelta(seconds=1)) == last
    assert schedule.next_after(last) == coming


@given(FIELDS, INSTANTS, st.sampled_from(ZONES))
@example(("30", "2", "*", "*", "*"), datetime(2026, 3, 28, 12, tzinfo=UTC), "Europe/Berlin")
def test_every_hit_shows_on_the_wall_clock(fields: tuple[str, ...], now: datetime, zone: str) -> None:
    """In the schedule's zone a hit's minute and hour are those of the fields, whatever the clock does that day."""
    local, plain = Schedule.parse(f"TZ={zone} {' '.join(fields)}"), Schedule.parse(" ".join(fields))
    coming = local.next_after(now)
    assume(coming is not None)
    assert coming is not None
    wall = coming.astimezone(ZoneInfo(zone)).replace(tzinfo=UTC, fold=0)
    assert plain.prev_at_or_before(wall) == wall


@given(
    FIELDS,
    INSTANTS,
    st.sampled_from(ZONES),
    st.integers(0, 3000),
    st.lists(st.integers(-10_000, 10_000), max_size=5),
)
def test_a_window_answers_by_its_definition_whatever_was_asked_before(
    fields: tuple[str, ...], now: datetime, zone: str, minutes: int, questions: list[int]
) -> None:
    """Open exactly where the next hit after now - duration is not after now; what it remembers never shows."""
    window = Window(Schedule.parse(f"TZ={zone} {' '.join(fields)}"), minutes * MINUTE)
    for shift in [0, *questions]:
        when = now + timedelta(minutes=shift)
        coming = window.schedule.next_after(when - timedelta(minutes=minutes))
        assert window.active(when) is (coming is not None and coming <= when)


@given(FIELDS, INSTANTS, st.sampled_from(ZONES), st.integers(1, 3000), st.integers(0, 1000))
def test_nothing_changes_before_the_next_change(
    fields: tuple[str, ...], now: datetime, zone: str, minutes: int, share: int
) -> None:
    """The answer is constant until the next change and different at it."""
    schedule = Schedule.parse(f"TZ={zone} {' '.join(fields)}")
    window = Window(schedule, minutes * MINUTE)
    active, change = window.active(now), window.next_change(now)
    if change is None:
        change, changes = now + timedelta(days=3 * 365), False
    else:
        changes = True
    assert change > now
    between = now + (change - now) * share / 1001
    assert Window(schedule, minutes * MINUTE).active(between) is active
    if changes:
        assert Window(schedule, minutes * MINUTE).active(change) is not active


@given(st.text(alphabet="0123456789*/,-? @tzTZ=monfrijan", max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Any text is read or refused without another exception, and a schedule prints as it was written."""
    with contextlib.suppress(ScheduleError):
        schedule = Schedule.parse(text)
        assert str(schedule) == text
        assert Schedule.parse(str(schedule)) == schedule
