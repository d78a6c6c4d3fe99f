"""Which policies play the whole of a long recording: those that may be worth it, and what that promises."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.settings import KARPENTER_1_15
from dovetail.recordings.read import ClusterRecording, RecordingGap
from dovetail.sim.compare import Task
from dovetail.sim.halving import BILL_MARGIN, COUNT, RESTART_MARGIN, plan_of, search
from dovetail.sim.ledger import LedgerSeries, Result
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.sections import ScenarioFile
from dovetail.sim.world.clock import HOUR
from tests.support.sizes import size

BEGINS = datetime(2026, 3, 2, tzinfo=UTC)
DOLLAR = 10**18
PRICE = 0.01
OWN_SWING = 0.02
Rate = Callable[[int], float]
"""What a policy costs, or restarts, in one hour of the week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp:
    """A policy whose bill and restarts are known for every hour."""

    bill: Rate
    restarts: Rate


def week(hours: int = 168, gaps: tuple[tuple[int, int], ...] = ()) -> Scenario:
    """Return a recording in which nothing happened, of so many hours."""
    recording = ClusterRecording(
        cluster="x",
        begins=BEGINS,
        ends=BEGINS + timedelta(hours=hours),
        gaps=tuple(
            RecordingGap(begins=BEGINS + timedelta(hours=since), ends=BEGINS + timedelta(hours=until), why="")
            for since, until in gaps
        ),
    )
    return Scenario(
        name="recording",
        about="",
        source="",
        start=BEGINS,
        until=hours * HOUR,
        warm_up=0,
        file=ScenarioFile(name="recording", until="1h", catalogue=(), policies={}),
        policies=(),
        recorded=recording,
    )


@dataclass(slots=True)
class Bench:
    """Runs made-up policies, and counts the hours that each played."""

    policies: tuple[MadeUp, ...]
    whole: Scenario
    hours: float = 0.0

    def named(self) -> list[Policy]:
        """Return the policies by their number."""
        return [Policy(name=str(place), settings=KARPENTER_1_15) for place in range(len(self.policies))]

    def run(self, _: str, tasks: Sequence[Task]) -> list[Result]:
        """Add up the hours of each task, in steps of ten minutes."""
        return [self._result(*task[:3]) for task in tasks]

    def _result(self, scenario: Scenario, policy: Policy, seed: int) -> Result:
        made = self.policies[int(policy.name)]
        first = (scenario.start - BEGINS).total_seconds() + scenario.settle / 10**9
        times = [int(first // 600) + at for at in range(scenario.until * 6 // HOUR)]
        self.hours += len(times) / 6
        return Result(
            policy=policy.name,
            seed=seed,
            seconds=0.0,
            nodes_started=0,
            nodes_ended=0,
            actions={},
            pods_disrupted=round(sum(made.restarts(at // 6) for at in times) / 6),
            pods_disrupted_more_than_once=0,
            node_hours=0.0,
            cost=round(sum(made.bill(at // 6) for at in times) * DOLLAR / 6),
            median_node_life_seconds=None,
            short_lived_nodes=0,
            pending_pod_seconds=0.0,
            violations=(),
            pods_disrupted_most=0,
            nodes_at_start=0,
            nodes_at_end=0,
            moves={},
            commands=(),
            lives=(),
            series=LedgerSeries(step_seconds=1.0),
        )


def always(value: float) -> Rate:
    """Return the same for every hour."""
    return lambda hour: value


TODAY = MadeUp(bill=always(10.0), restarts=always(100.0))


def tried(*policies: MadeUp, today: MadeUp = TODAY) -> tuple[Bench, set[int], set[int]]:
    """Return the bench, who played the whole, and who was recalled to."""
    bench = Bench(policies=(today, *policies), whole=week())
    found = search(bench.whole, bench.named(), 1, PRICE, plan_of(bench.whole), bench.run)
    assert set(found.whole) | {each.policy for each in found.dropped} == set(range(len(bench.policies)))
    assert not set(found.whole) & {each.policy for each in found.dropped}
    return bench, set(found.whole), set(found.recalled)


def test_stretches_lie_over_the_whole_week_and_the_whole_day() -> None:
    """In each round every seventh of the week has a stretch, and every quarter of the day is seen."""
    plan = plan_of(week())
    assert plan is not None
    for each in plan.rounds:
        assert [7 * at // (168 * HOUR - plan.settle - plan.measured) for at in each] == list(range(COUNT))
        assert {at // HOUR % 24 // 6 for at in each} == {0, 1, 2, 3}


def test_a_short_recording_is_played_whole() -> None:
    """Below 32 hours nothing is dropped, nor where gaps leave too few stretches; no stretch lies in a gap."""
    assert plan_of(week(31)) is None
    assert plan_of(week(gaps=((5, 120),))) is None
    plan = plan_of(week(gaps=((50, 60),)))
    assert plan is not None
    span = plan.settle + plan.measured
    assert all(at + span <= 50 * HOUR or at >= 60 * HOUR for each in plan.rounds for at in each)


def test_the_beaten_play_stretches_only() -> None:
    """Policies that are dearer and less calm are dropped in the first round; the frontier plays the whole."""
    dear = [MadeUp(bill=always(11.0 + at), restarts=always(110.0 + at)) for at in range(20)]
    calm = MadeUp(bill=always(12.0), restarts=always(10.0))
    bench, whole, recalled = tried(calm, *dear)
    assert whole == {0, 1}
    assert not recalled
    assert bench.hours == pytest.approx(2 * 168 + (22 + 2) * 7 * 80 / 60)


def test_who_wins_only_in_the_last_days_plays_the_whole() -> None:
    """A policy that is dearer for five days and far cheaper in the last two is not dropped, whoever is beside it."""
    late = MadeUp(bill=lambda hour: 10.2 if hour < 120 else 7.0, restarts=always(100.0))
    _, whole, _ = tried(late, MadeUp(bill=always(9.9), restarts=always(99.0)))
    assert 1 in whole


def test_a_drop_is_judged_again_by_the_whole_runs() -> None:
    """A policy comes back if the one that beat it did worse in the hours that no stretch saw."""
    scenario = week()
    plan = plan_of(scenario)
    assert plan is not None
    seen = {(at + plan.settle) // HOUR + part for each in plan.rounds for at in each for part in (0, 1, 2)}
    flattered = MadeUp(bill=lambda hour: 5.0 if hour in seen else 20.0, restarts=always(50.0))
    steady = MadeUp(bill=always(9.0), restarts=always(60.0))
    same = [MadeUp(bill=always(9.5 + at), restarts=always(50.0 - 10 * at)) for at in (0.5, 1.0)]
    _, whole, recalled = tried(flattered, steady, *same)
    assert {2} <= recalled <= whole


@settings(max_examples=size(test=20, ci=60, long=600))
@given(
    st.lists(
        st.tuples(st.floats(5.0, 15.0), st.floats(20.0, 300.0), st.floats(0.0, OWN_SWING), st.integers(0, 23)),
        min_size=1,
        max_size=12,
    )
)
def test_whoever_is_dropped_is_no_better_than_the_margins(drawn: list[tuple[float, float, float, int]]) -> None:
    """Some policy of the answer is as good as each dropped one, up to the margins and what stretches see of a day.

    The load swings alike for all, and each policy does by day and by night a little better or worse than on average.
    """

    def made(bill: float, restarts: float, swing: float, peak: int) -> MadeUp:
        def wave(hour: int) -> float:
            return (1 + 0.3 * (1 if hour % 24 < 12 else -1)) * (1 + swing * (1 if (hour - peak) % 24 < 12 else -1))

        return MadeUp(bill=lambda hour: bill * wave(hour), restarts=lambda hour: restarts * wave(hour))

    bench, whole, _ = tried(*(made(*each) for each in drawn), today=made(10.0, 100.0, 0.0, 0))
    results = [bench._result(bench.whole, policy, 0) for policy in bench.named()]
    for place, mine in enumerate(results):
        assert place in whole or any(
            results[other].cost <= mine.cost * (1 + BILL_MARGIN + 2 * OWN_SWING)
            and results[other].pods_disrupted <= mine.pods_disrupted * (1 + RESTART_MARGIN + 2 * OWN_SWING)
            for other in whole
        )


@settings(max_examples=size(test=20, ci=60, long=600))
@given(st.lists(st.tuples(st.floats(5.0, 15.0), st.floats(0.0, 300.0)), min_size=1, max_size=12))
def test_the_best_of_steady_policies_is_found(drawn: list[tuple[float, float]]) -> None:
    """Where every hour is alike, the least total of the answer is that of a search that drops nothing."""
    bench, whole, _ = tried(*(MadeUp(bill=always(bill), restarts=always(round(moves))) for bill, moves in drawn))
    totals = [
        each.cost / DOLLAR + PRICE * each.pods_disrupted
        for each in (bench._result(bench.whole, policy, 0) for policy in bench.named())
    ]
    assert min(totals[place] for place in whole) == pytest.approx(min(totals))
