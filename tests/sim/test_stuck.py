"""Stuck pods are tried again by shape, in the order in which they failed."""

import pytest

from dovetail.sim.world.placement.shapes import PodShape, Stuck, shape_of
from tests.support.design_world import NOW, Town


def _shapes() -> tuple[PodShape, PodShape]:

    town = Town(now=NOW)
    town.pod("small", cpu="100m")
    town.pod("large", cpu="4")
    return shape_of(town.pods["small"]), shape_of(town.pods["large"])


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
def test_a_shape_is_tried_until_one_of_it_finds_no_place(placed: tuple[str, ...], tried: list[str]) -> None:
    """The first of each shape is tried; those behind it only if it found a place; what is left keeps its order."""
    small, large = _shapes()
    stuck = Stuck()
    for key, shape in (("a", small), ("b", large), ("c", small), ("d", large), ("e", small)):
        stuck.add(key, shape)
    seen = []
    for key, _ in stuck.tries():
        seen.append(key)
        if key in placed:
            stuck.drop(key)
    assert seen == tried
    assert list(stuck) == [key for key in "abcde" if key not in placed]


def test_a_pod_that_goes_meanwhile_is_passed_over() -> None:
    """A pod that another one's placing took out is yielded once, and the next of its shape after it."""
    small, large = _shapes()
    stuck = Stuck()
    for key, shape in (("a", small), ("b", large), ("c", large)):
        stuck.add(key, shape)
    seen = []
    for key, _ in stuck.tries():
        seen.append(key)
        stuck.drop("b")
    assert seen == ["a", "b", "c"]
