"""Many nodes at once: what the sieve says of generated clusters in motion is what is said of each node alone."""

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as change

from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.refusals import shelter, sieve
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.launches import Launches, Least
from dovetail.decide.refusals.planned_room import PlannedRoom
from dovetail.decide.refusals.sieve import NO_ROW, Found, Possible, Sieve, SieveView
from dovetail.decide.refusals.unready import STARTING, Unready
from dovetail.model.verdicts import Gate
from dovetail.scheduling.result import LaunchPrice
from dovetail.scheduling.simulate import planned_places
from tests.decide.test_bound_tables import Scene
from tests.decide.test_foresight import Crowd
from tests.support.scheduling_build import node, pod, pool, snapshot
from tests.support.sizes import size

SEEDS = size(test=250, ci=800, long=5000)


class _Asked:
    """Ask about all initialized nodes of a crowd, at once and one by one."""

    def __init__(self, crowd: Crowd) -> None:
        self.seen = seen = crowd.seen
        planned = PlannedRoom(seen, planned_places(seen, crowd.plan) if seen.leaving else None)
        launches = Launches(seen.frame)
        self.bounds = Bounds(seen, crowd.closed, launches, planned)
        self.unready = Unready(seen, crowd.closed, planned)
        self.sieve = Sieve(self.bounds.for_moved.width, launches)
        rows = {at: self.sieve.add(seen.movers(at)) for at in range(seen.initialized)}
        self.rows = {at: row for at, row in rows.items() if row != NO_ROW}

    def at_once(self, most: int) -> tuple[list[Found], dict[int, list[Least]]]:
        """Return what is certain, and the bounds of each; one of `most` dollar-cents is refused."""
        told = defaultdict[int, list[Least]](list)

        def refuse(number: int, least: int, launch: LaunchPrice | None) -> Refusal | None:
            told[number].append((least, launch))
            return _refuse(least, launch, most)

        found = SieveView(self.sieve, self.bounds, self.unready).rule_out([*self.rows.values()], [*self.rows], refuse)
        return found, told

    def alone(self, place: int, most: int) -> tuple[Found, list[Least]]:
        """Return the same of one node."""
        told, launch = list[Least](), None
        for least, launch, _ in self.bounds.replacement_at_least(place):
            told.append((least, launch))
            refusal = _refuse(least, launch, most)
            if refusal is not None:
                return refusal, told
        return (Possible(launch) if self.unready.destination((place,)) is None else STARTING), told


def _refuse(least: int, launch: LaunchPrice | None, most: int) -> Refusal | None:
    if least > 1 or (launch is not None and launch.as_float * 100 >= most):
        return Refusal(gate=Gate.PRICE, why=f"{least} {launch}")
    return None


@pytest.mark.parametrize("counted", [0, 16], ids=["never counted", "counted"])
def test_at_once_as_alone(counted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sieve says of each node what bounds and starting nodes say of it, or nothing, and says it again."""
    monkeypatch.setattr(shelter, "COUNTED_MAX", counted)
    kinds = Counter[Any]()
    for seed in range(SEEDS):
        asked = _Asked(Crowd(seed))
        for most in (0, 20, 30, 1000):
            asked.sieve.refusals[:] = [None] * len(asked.sieve.refusals)
            asked.sieve.answered[:] = -1
            for again in (False, True):
                found, told = asked.at_once(most)
                for number, place in enumerate(asked.rows):
                    expected, bounds = asked.alone(place, most)
                    assert found[number] in (None, expected), (seed, place)
                    assert again or found[number] is None or told[number] == bounds, (seed, place)
                    kinds[None if found[number] is None else expected.__class__, expected is STARTING] += 1
                    kinds["kept"] += again and isinstance(found[number], Refusal) and number not in told
    assert min(kinds[Refusal, False], kinds[Possible, False], kinds[Refusal, True]) > SEEDS // 4, kinds
    assert kinds["kept"] > SEEDS


def test_rows_are_used_again() -> None:
    """The row of a node that is gone serves the next one, and nothing is left in it of the pods before."""
    seen = snapshot(
        pool(), *node("a", 8), *node("b", 8), pod("a-1", "1", on="a"), pod("a-2", "2", on="a"), pod("b-1", "1", on="b")
    )
    launches = Launches(seen.frame)
    kept = Sieve(seen.frame.room.shape[1], launches)
    first = kept.add(seen.movers(0))
    for _ in range(3):
        kept.remove(first)
        assert kept.add(seen.movers(1)) == first
    fresh = Sieve(seen.frame.room.shape[1], launches)
    row = fresh.add(seen.movers(1))
    for name in ("specs", "spec_counts", "kinds", "kind_counts"):
        told, expected = getattr(kept, name)[first].tolist(), getattr(fresh, name)[row].tolist()
        assert [number for number in told if number] == [number for number in expected if number]
    assert kept.demand[first].tolist() == fresh.demand[row].tolist()


def test_pods_that_go_into_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with pods of too many kinds, or with one that has not started, is asked about alone."""
    seen = snapshot(pool(), *node("a", 8), pod("a-1", "1", on="a"), pod("a-2", "2", on="a"))
    kept = Sieve(seen.frame.room.shape[1], Launches(seen.frame))
    assert kept.add(seen.movers(0)) != NO_ROW
    monkeypatch.setattr(sieve, "KINDS_MAX", 1)
    assert kept.add(seen.movers(0)) == NO_ROW
    bound = pod("a-1", "1", on="a")
    waits = snapshot(pool(), *node("a", 8), change(bound, status=change(bound.status, phase="Pending")))
    assert kept.add(waits.movers(0)) == NO_ROW


def test_room_beyond_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of all nodes together may need more than 64 bits; the node's own room is taken from it exactly."""
    monkeypatch.setattr(shelter, "COUNTED_MAX", 0)
    bounds = Scene(rooms=[(2**62, 9)] * 4, started={0: {2: 1}}).bounds()
    movers: Any = bounds._snapshot.movers(0)
    movers.classes = []
    nothing_starts: Any = SimpleNamespace(any=False)
    kept = Sieve(2, bounds._launches)
    view = SieveView(kept, bounds, nothing_starts)
    assert view.rule_out([kept.add(movers)], [0], lambda *_: None) == [Possible(None)]


def test_demands_of_too_many_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many different demands are kept; a node with another one is asked about alone."""
    monkeypatch.setattr(sieve, "MARKS_MAX", 1)
    seen = snapshot(pool(), *node("a", 8), *node("b", 8), pod("a-1", "1", on="a"), pod("b-1", "2", on="b"))
    kept = Sieve(seen.frame.room.shape[1], Launches(seen.frame))
    assert [kept.add(seen.movers(0)), kept.add(seen.movers(1)), kept.add(seen.movers(0))] == [0, NO_ROW, 1]
