"""A tuple that knows where each of its objects was in the tuple before it.

A store that hands out its objects again and again thus says which of them are unchanged, so that readers need not
compare thousands of them. To everything else it is a plain tuple. Sits at the bottom of model.
"""

from array import array
from collections.abc import Iterable, Sequence
from operator import is_
from typing import TypeVar

Item = TypeVar("Item")


class Listing(tuple[Item, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """`origin`: the index of each object in the listing with the mark `since`; -1: it was not there throughout."""

    mark: object
    since: object
    origin: "array[int]"

    @classmethod
    def of(cls, items: Iterable[Item], since: object, origin: "array[int]") -> "Listing[Item]":
        """Make a listing with a mark of its own."""
        found = cls(items)
        found.mark, found.since, found.origin = object(), since, origin
        return found


def are_the_same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether two sequences hold identical objects."""
    return len(some) == len(others) and all(map(is_, some, others))
