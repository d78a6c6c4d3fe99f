"""Finds the policies that are worth a whole run of a long recording: all play short stretches, the beaten are dropped.

Stretches lie evenly over the whole recording, at changing hours of the day, and each begins with the cluster as it
really was; what a policy does while it settles is not counted. After each round a policy is dropped if another one that
stays is not dearer by more than `BILL_MARGIN` and does not restart more by more than `RESTART_MARGIN`, both with two
standard errors over the stretches to spare, and has no larger total at the price of a restart. The rest play the whole
recording. Then every drop is judged once more, with the whole runs: a policy that none of them beats is recalled and
plays the whole, too. So a dropped policy could have been better than one that was kept by no more than the margins,
unless its stretches are further from its whole than chance and the other policies explain.

Pure but for the runs, which `run` makes. The same results give the same decisions, so a resumed search ends alike. Sits
in sim; `sim.tune` shows what is found.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from math import sqrt
from statistics import mean, median, stdev
from typing import Final

from dovetail.report.words import count
from dovetail.sim.compare import Task
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.world.clock import HOUR, MINUTE

BILL_MARGIN: Final = 0.01
"""By which share of its bill a dropped policy may be cheaper than the one that beats it."""
RESTART_MARGIN: Final = 0.05
"""By which share of its restarts a dropped policy may be calmer than the one that beats it."""
SURE: Final = 2.0
"""How many standard errors over the stretches count as certain."""
COUNT: Final = 7
ROUNDS: Final = 2
_SHORTEST: Final = 15 * MINUTE
_LONGEST: Final = 80 * MINUTE
_PARTS: Final = 126
"""A stretch counts for this part of the recording: 80 minutes of a week."""
_FEWEST: Final = 4
_DOLLAR: Final = 10**18

Run = Callable[[str, Sequence[Task]], Sequence[Result]]
"""Runs tasks, in their order; the first argument says what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """When the stretches of each round begin, after how long they count and for how long; nanoseconds."""

    rounds: tuple[tuple[int, ...], ...]
    settle: int
    measured: int

    def scenario(self, whole: Scenario, begin: int) -> Scenario:
        """Return the scenario of one stretch."""
        assert whole.recorded is not None
        start = whole.recorded.begins + timedelta(microseconds=begin // 1000)
        return replace(
            whole,
            start=start,
            captured=whole.recorded.cluster_at(start),
            until=self.measured,
            settle=self.settle,
        )

    def hours(self, rounds: int) -> float:
        """Return how much each policy has played after so many rounds."""
        return sum(len(each) for each in self.rounds[:rounds]) * self.measured / HOUR


def plan_of(whole: Scenario) -> Plan | None:
    """Return the stretches of a recording; None if it is so short that every policy plays the whole."""
    if whole.recorded is None or whole.until // _PARTS < _SHORTEST:
        return None
    measured = min(_LONGEST, whole.until // _PARTS)
    return spread(whole, settle=measured // 2, measured=measured)


def spread(whole: Scenario, *, settle: int, measured: int) -> Plan | None:
    """Return stretches over all of a recording, one in each part of it in each round; none lies in a gap.

    Where in its part a stretch lies follows the golden ratio, which comes near every hour of the day.
    """
    last = whole.until - settle - measured
    rounds = tuple(
        tuple(
            begin
            for part in range(COUNT)
            if not _in_gap(whole, begin := last * _place(part, number) // (1000 * COUNT), settle + measured)
        )
        for number in range(ROUNDS)
    )
    if last <= 0 or min(len(each) for each in rounds) < _FEWEST:
        return None
    return Plan(rounds=rounds, settle=settle, measured=measured)


def _place(part: int, number: int) -> int:
    """Return where a stretch of a round lies, in thousandths of a part."""
    return 1000 * part + (618 * part + 1000 * number // ROUNDS) % 1000


def _in_gap(whole: Scenario, begin: int, length: int) -> bool:
    assert whole.recorded is not None
    first = whole.recorded.begins + timedelta(microseconds=begin // 1000)
    end = first + timedelta(microseconds=length // 1000)
    return any(gap.begins < end and first < gap.ends for gap in whole.recorded.gaps)


# ---------------------------------------------------------------- what was seen


@dataclass(slots=True)
class Seen:
    """What one policy did on the stretches so far: dollars and restarts of each, per hour."""

    bills: list[float]
    restarts: list[float]

    def total(self, price: float) -> float:
        """Return bill plus price times restarts, per hour."""
        return mean(self.bills) + price * mean(self.restarts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A policy that did not play the whole: after how many hours, because of which other, and by how much.

    `bill` and `restarts`: by which share the other was better on the stretches; None if nothing was restarted.
    """

    policy: int
    by: int
    round: int
    hours: float
    bill: float
    restarts: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySearch:
    """The whole runs, by the place of their policy; who was dropped, and who was dropped and then recalled."""

    whole: dict[int, tuple[Result, ...]]
    dropped: tuple[Dropped, ...] = ()
    recalled: tuple[int, ...] = ()


def beats(one: Seen, other: Seen, price: float) -> bool:
    """Return whether a policy is surely not worse than another by more than the margins, and no dearer in all."""
    return (
        one.total(price) <= other.total(price)
        and _surely(other.bills, one.bills, BILL_MARGIN)
        and _surely(other.restarts, one.restarts, RESTART_MARGIN)
    )


def _surely(theirs: Sequence[float], ours: Sequence[float], margin: float) -> bool:
    apart = [there - here for there, here in zip(theirs, ours, strict=True)]
    doubt = SURE * stdev(apart) / sqrt(len(apart)) if len(apart) > 1 else 0.0
    return mean(apart) - doubt >= -margin * mean(theirs)


# ---------------------------------------------------------------- the search


def search(
    whole: Scenario, policies: Sequence[Policy], seeds: int, price: float, plan: Plan | None, run: Run
) -> PolicySearch:
    """Return the whole runs of the policies that are worth it; the first policy always is."""
    seen = [Seen([], []) for _ in policies]
    left = list(range(len(policies)))
    dropped: dict[int, Dropped] = {}
    for number in range(0 if plan is None else len(plan.rounds)):
        assert plan is not None
        _look(whole, policies, left, plan, number, seen, run)
        found = _cut(left, seen, price, plan, number)
        dropped |= {each.policy: each for each in found}
        left = [place for place in left if place not in dropped]
    results = _play(whole, policies, left, seeds, run)
    recalled = [] if plan is None else _recall(whole, seen, results, dropped)
    results |= _play(whole, policies, recalled, seeds, run)
    return PolicySearch(
        whole=results,
        dropped=tuple(each for each in dropped.values() if each.policy not in recalled),
        recalled=tuple(recalled),
    )


def _look(
    whole: Scenario, policies: Sequence[Policy], left: list[int], plan: Plan, number: int, seen: list[Seen], run: Run
) -> None:
    """Play the stretches of a round and note what came of them."""
    parts = [(plan.scenario(whole, begin), begin) for begin in plan.rounds[number]]
    tasks: list[Task] = [(part, policies[place], seed, None) for seed, (part, _) in enumerate(parts) for place in left]
    label = f"{len(left)} policies on {len(parts)} stretches, round {number + 1} of {len(plan.rounds)}"
    hours = plan.measured / HOUR
    for (_, policy, _, _), place, result in zip(tasks, left * len(parts), run(label, tasks), strict=True):
        assert policy is policies[place]
        seen[place].bills.append(result.cost / _DOLLAR / hours)
        seen[place].restarts.append(result.pods_disrupted / hours)


def _cut(left: list[int], seen: list[Seen], price: float, plan: Plan, number: int) -> list[Dropped]:
    """Return who is beaten by one that stays; the policy of today, which comes first, always stays."""
    kept: list[int] = []
    found: list[Dropped] = []
    for place in sorted(left, key=lambda at: (seen[at].total(price), at)):
        by = next((other for other in kept if beats(seen[other], seen[place], price)), None)
        if by is None or place == 0:
            kept.append(place)
            continue
        bill, other_bill = mean(seen[place].bills), mean(seen[by].bills)
        restarts, other_restarts = mean(seen[place].restarts), mean(seen[by].restarts)
        found.append(
            Dropped(
                policy=place,
                by=by,
                round=number + 1,
                hours=plan.hours(number + 1),
                bill=(bill - other_bill) / bill if bill else 0.0,
                restarts=(restarts - other_restarts) / restarts if restarts else None,
            )
        )
    return found


def _play(
    whole: Scenario, policies: Sequence[Policy], places: Sequence[int], seeds: int, run: Run
) -> dict[int, tuple[Result, ...]]:
    if not places:
        return {}
    tasks: list[Task] = [(whole, policies[place], seed, None) for place in places for seed in range(seeds)]
    results = run(f"{len(places)} policies, {count(seeds, 'seed')}", tasks)
    return {place: tuple(results[at * seeds : (at + 1) * seeds]) for at, place in enumerate(places)}


def _recall(
    whole: Scenario, seen: list[Seen], results: dict[int, tuple[Result, ...]], dropped: dict[int, Dropped]
) -> list[int]:
    """Return the dropped policies that no whole run beats, if their whole compares with their stretches as usual."""
    hours = whole.until / HOUR
    bills = {place: mean(each.cost for each in own) / _DOLLAR / hours for place, own in results.items()}
    moves = {place: mean(float(each.pods_disrupted) for each in own) / hours for place, own in results.items()}
    usual_bill = _usual([(bills[place], mean(seen[place].bills)) for place in results])
    usual_moves = _usual([(moves[place], mean(seen[place].restarts)) for place in results])

    def is_beaten(place: int) -> bool:
        bill, restarts = usual_bill * mean(seen[place].bills), usual_moves * mean(seen[place].restarts)
        return any(
            bills[other] <= bill * (1 + BILL_MARGIN) and moves[other] <= restarts * (1 + RESTART_MARGIN)
            for other in results
        )

    return [place for place in sorted(dropped) if not is_beaten(place)]


def _usual(pairs: Sequence[tuple[float, float]]) -> float:
    """Return how the whole compares with the stretches, for the median policy."""
    shares = [whole / stretches for whole, stretches in pairs if stretches > 0]
    return median(shares) if shares else 1.0
