"""Unschedulable pods are retried by shape, in the order in which they failed."""

from dataclasses import replace
from random import Random

import pytest

from dovetail.sim.world.placement.shapes import PodShape, Stuck, shape_of
from tests.support.design_world import NOW, Town


def _shapes() -> tuple[PodShape, PodShape]:

    town = Town(now=NOW)
    town.pod("small", cpu="100m")
    town.pod("large", cpu="4")
    return shape_of(town.pods["small"]), shape_of(town.pods["large"])


@pytest.mark.parametrize("by_shape", [True, False])
@pytest.mark.parametrize(
    ("placed", "tried"),
    [
        ((), ["a", "b"]),
        (("a",), ["a", "b", "c"]),
        (("b",), ["a", "b", "d"]),
        (("a", "b"), ["a", "b", "c", "d"]),
        (("a", "c", "e"), ["a", "b", "c", "e"]),
        (("a", "b", "c", "d", "e"), ["a", "b", "c", "d", "e"]),
    ],
)
def test_a_shape_is_tried_until_one_of_it_finds_no_place(
    placed: tuple[str, ...], tried: list[str], by_shape: bool
) -> None:
    """The first pod of each shape is tried; the next ones only if it was placed; the rest keep their order."""
    small, large = _shapes()
    stuck = Stuck()
    for key, shape in (("a", small), ("b", large), ("c", small), ("d", large), ("e", small)):
        stuck.add(key, shape)
    seen = []
    for key, _ in stuck.tries(by_shape=by_shape):
        seen.append(key)
        if key in placed:
            stuck.drop(key)
    assert seen == tried
    assert list(stuck) == [key for key in "abcde" if key not in placed]


@pytest.mark.parametrize("by_shape", [True, False])
def test_a_pod_that_goes_meanwhile_is_passed_over(by_shape: bool) -> None:
    """A pod that another placement removed is yielded once, and then the next of its shape."""
    small, large = _shapes()
    stuck = Stuck()
    for key, shape in (("a", small), ("b", large), ("c", large)):
        stuck.add(key, shape)
    seen = []
    for key, _ in stuck.tries(by_shape=by_shape):
        seen.append(key)
        stuck.drop("b")
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("by_shape", "apart", "tried"),
    [(False, False, ["a", "d"]), (True, False, ["a", "b", "d"]), (False, True, ["a", "b", "d"])],
    ids=["one of a kind", "others keep away", "they look at pods themselves"],
)
def test_shapes_of_one_kind_share_a_queue_where_no_pod_has_a_say(by_shape: bool, apart: bool, tried: list[str]) -> None:
    """If other pods matter too, the first of each shape is tried, otherwise the first of each kind."""
    small, large = _shapes()
    small = replace(small, looks_at_pods=apart)
    stuck = Stuck()
    for key, shape in (("a", small), ("b", replace(small)), ("c", small), ("d", large)):
        stuck.add(key, shape)
    assert [key for key, _ in stuck.tries(by_shape=by_shape)] == tried


def test_what_was_added_later() -> None:
    """Pods added after a number are distinguished from earlier ones; a pod that failed again counts as new."""
    small, _ = _shapes()
    stuck = Stuck()
    for key in "abc":
        stuck.add(key, small)
    known = stuck.number
    stuck.add("b", small)
    assert stuck.added_after(known) == []
    stuck.drop("a")
    stuck.add("d", small)
    stuck.add("a", small)
    assert sorted(stuck.added_after(known)) == ["a", "d"]
    assert sorted(stuck.added_after(0)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("by_shape", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_first_of_each_queue_whatever_came_and_went(seed: int, by_shape: bool) -> None:
    """After pods were added, dropped and added again, the tries are the first of each shape or kind, in order."""
    dice = Random(seed)
    small, large = _shapes()
    shapes = (small, replace(small), large, *(replace(large, kind=b"looks", looks_at_pods=True) for _ in range(3)))
    stuck, entries = Stuck(), dict[str, PodShape]()
    for _ in range(300):
        key = f"p{dice.randrange(20)}"
        if key in entries:
            del entries[key]
            stuck.drop(key)
        else:
            entries[key] = dice.choice(shapes)
            stuck.add(key, entries[key])
        if dice.random() < 0.1:
            entries.clear()
            stuck.clear()
        elif dice.random() < 0.5:
            continue  # tried now and then only
        firsts: dict[object, str] = {}
        for name, shape in entries.items():
            firsts.setdefault(shape if by_shape or shape.looks_at_pods else shape.kind, name)
        assert [name for name, _ in stuck.tries(by_shape=by_shape)] == list(firsts.values())
