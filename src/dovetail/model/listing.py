"""Tuples and dicts that know how they differ from the ones before them.

A store that hands out its objects again and again thus says which of them are unchanged, so that readers need not
compare thousands of them. To everything else they are plain tuples and dicts. Sits at the bottom of model.
"""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")


class Listing(tuple[Item, ...]):  # noqa: SLOT001 - a tuple can have no slots of its own
    """`origin`: the index of each object in the listing with the mark `since`; -1: it was not there throughout.

    `gone` and `new`: what was taken out of that listing and what was put into this one, in order; an object that was
    put again may be in both.
    """

    mark: object
    since: object
    origin: "array[int]"
    gone: Sequence[Item]
    new: Sequence[Item]

    @classmethod
    def of(
        cls, items: Iterable[Item], since: object, origin: "array[int]", gone: Sequence[Item], new: Sequence[Item]
    ) -> "Listing[Item]":
        """Make a listing with a mark of its own."""
        found = cls(items)
        found.mark, found.since, found.origin, found.gone, found.new = object(), since, origin, gone, new
        return found


def are_the_same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether two sequences hold identical objects."""
    return len(some) == len(others) and all(map(is_, some, others))


class Table(dict[str, Value]):
    """`changed`: the keys that were added, removed or given another value since the table with the mark `since`."""

    __slots__ = ("changed", "mark", "since")
    changed: Collection[str]
    mark: object
    since: object

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Table[Value]":
        """Make a table that follows no other."""
        found = cls(values)
        found.mark, found.since, found.changed = object(), None, ()
        return found

    def edited(self, values: Mapping[str, Value | None]) -> "Table[Value]":
        """Return the table with some keys changed; None: removed."""
        found = Table(self)
        for key, value in values.items():
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        found.mark, found.since, found.changed = object(), self.mark, values.keys()
        return found


def keys_changed(before: Mapping[str, object], after: Mapping[str, object]) -> Collection[str]:
    """Return the keys whose values may differ between two mappings."""
    if before is after:
        return ()
    if isinstance(before, Table) and isinstance(after, Table) and after.since is before.mark:
        return after.changed
    changed = {key for key, value in after.items() if before.get(key) != value}
    changed.update(before.keys() - after.keys())
    return changed
