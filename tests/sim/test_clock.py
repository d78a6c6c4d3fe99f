"""Virtual time."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from dovetail.sim.world.clock import MINUTE, SECOND, Alarm, Clock, Dice, Span, seconds

START = datetime(2026, 1, 5, tzinfo=UTC)


def test_things_happen_in_order_of_time_then_of_asking() -> None:
    """Of two timers at one instant, the one that was set first runs first."""
    clock, seen = Clock(START), []
    clock.at(2 * SECOND, seen.append, "late")
    clock.at(SECOND, seen.append, "first")
    clock.at(SECOND, seen.append, "second")
    clock.run(3 * SECOND)
    assert seen == ["first", "second", "late"]
    assert clock.now == 3 * SECOND


@pytest.mark.parametrize("seed", range(4))
def test_order_holds_however_far_ahead_actions_are_scheduled(seed: int) -> None:
    """Near or far ahead, from within other actions or not, and in whatever steps time passes: time, then asking."""
    dice, clock = Random(seed), Clock(START)
    asked: list[tuple[int, int]] = []
    seen: list[tuple[int, int]] = []
    alarms: list[Alarm] = []

    def act(number: int) -> None:
        seen.append((clock.now, number))
        if dice.random() < 0.4:
            ask()

    def ask() -> None:
        number = len(asked)
        due = clock.now + dice.choice((0, 1, SECOND // 100, SECOND, 7 * MINUTE)) * dice.randrange(3)
        asked.append((due, number))
        alarms.append(clock.at(due, act, number))

    for _ in range(60):
        for _ in range(dice.randrange(8)):
            ask()
        late = [alarm for alarm in alarms if alarm.due > clock.now]
        if late:
            dice.choice(late).cancel()
        clock.run(clock.now + dice.choice((0, 1, SECOND // 3, 40 * SECOND, 5 * MINUTE)))
    cancelled = {number for number, alarm in enumerate(alarms) if alarm.action is None}
    clock.run(clock.now + 20 * MINUTE)
    assert seen == sorted(entry for entry in asked if entry[1] not in cancelled and entry[0] <= clock.now)
    assert clock.happened == len(seen) > 200


def test_an_action_may_run_the_clock_itself() -> None:
    """What an action scheduled while it ran the clock happens in order with what was scheduled before."""
    clock, seen = Clock(START), list[str]()
    clock.at(SECOND, lambda: clock.run(2 * SECOND + 10))
    clock.at(2 * SECOND, lambda: clock.at(2 * SECOND + 100, seen.append, "late"))
    clock.at(2 * SECOND + 50, seen.append, "early")
    clock.run(3 * SECOND)
    assert seen == ["early", "late"]


def test_what_is_asked_for_in_the_past_happens_now() -> None:
    """A timer in the past runs now: time never goes back."""
    clock, seen = Clock(START), []
    clock.run(MINUTE)
    clock.at(SECOND, lambda: seen.append(clock.now))
    clock.run(MINUTE)
    assert seen == [MINUTE]


def test_cancelled_timer_does_not_happen() -> None:
    """A cancelled timer does not run, and cancelling twice is fine."""
    clock, seen = Clock(START), []
    timer = clock.after(SECOND, seen.append, 1)
    timer.cancel()
    timer.cancel()
    clock.run(MINUTE)
    assert seen == []


def test_instants_and_nanoseconds_go_both_ways() -> None:
    """An object's time and the clock's nanoseconds convert both ways."""
    clock = Clock(START)
    clock.run(90 * SECOND)
    assert clock.instant() == START + timedelta(seconds=90)
    assert clock.since_start(clock.instant()) == 90 * SECOND
    assert clock.since_start(START - timedelta(hours=1)) == -60 * MINUTE


def test_streams_of_chance_do_not_disturb_each_other() -> None:
    """Random numbers of one subsystem never change those of another."""
    alone = [Dice(7).stream("prices").random() for _ in range(1)]
    dice = Dice(7)
    for _ in range(100):
        dice.stream("scheduler").random()
    assert [dice.stream("prices").random() for _ in range(1)] == alone
    assert dice.of("spot", "n1").random() == Dice(7).of("spot", "n1").random()
    assert dice.of("spot", "n1").random() != dice.of("spot", "n2").random()


def test_span_stays_within_its_bounds() -> None:
    """A span of width zero returns its one value and draws nothing."""
    dice = Dice(1).stream("x")
    before = dice.getstate()
    assert seconds(3).draw(dice) == 3 * SECOND
    assert dice.getstate() == before
    assert all(SECOND <= seconds(1, 2).draw(dice) <= 2 * SECOND for _ in range(50))


@pytest.mark.parametrize("high", [SECOND, SECOND + 1, SECOND + 2, SECOND + 3, 4 * SECOND, 2**40])
def test_span_draws_as_randrange_does(high: int) -> None:
    """A span draws the numbers that `randrange` would, and leaves the stream where it would."""
    span, dice, other = Span(SECOND, high), Random(5), Random(5)
    assert [span.draw(dice) for _ in range(50)] == [
        other.randrange(SECOND, high + 1) if high > SECOND else SECOND for _ in range(50)
    ]
    assert dice.getstate() == other.getstate()
