"""Sequences and dicts that know how they differ from the ones before them.

A store that hands out its objects again and again thus says which of them are unchanged, so that readers need not
compare thousands of them. To everything else they are sequences and dicts. Sits at the bottom of model.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import is_
from typing import Final, TypeVar, overload

Item = TypeVar("Item")
Value = TypeVar("Value")
_END: Final = 1 << 60


Run = tuple[int, int, int]
"""Where neighbours begin in the listing before and in this one, and how many they are."""


class Listing(Sequence[Item]):
    """Objects in parts: the listing after this one shares all parts in which nothing changed.

    `gone` and `new`: what was taken out of the listing with the mark `since` and what was put into this one, in order,
    with the places in that listing and in this one; an object that was put again may be in both.
    """

    __slots__ = ("_parts", "_starts", "gone", "gone_at", "mark", "new", "new_at", "since")

    def __init__(
        self,
        parts: Iterable[Sequence[Item]],
        since: object = None,
        gone: Mapping[int, Item] | None = None,
        new: Mapping[int, Item] | None = None,
    ) -> None:
        """Make a listing with a mark of its own; `gone`, `new`: objects by place, ascending.

        Nobody may change the parts afterwards.
        """
        self._parts = tuple(parts)
        self._starts = list(accumulate(map(len, self._parts), initial=0))
        self.mark, self.since = object(), since
        self.gone_at, self.gone = list(gone or ()), list((gone or {}).values())
        self.new_at, self.new = list(new or ()), list((new or {}).values())

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, at: int) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, at: int | slice) -> Item | tuple[Item, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        starts = self._starts
        place = at if at >= 0 else at + starts[-1]
        part = bisect_right(starts, place) - 1
        if not 0 <= part < len(self._parts):
            raise IndexError(at)
        return self._parts[part][place - starts[part]]

    def at(self, places: Iterable[int]) -> list[Item]:
        """Return the objects at some places; faster than one by one."""
        starts, parts = self._starts, self._parts
        return [parts[part := bisect_right(starts, place) - 1][place - starts[part]] for place in places]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | Listing) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def follows(self, other: Sequence[Item]) -> bool:
        """Return whether `gone` and `new` lead here from another listing."""
        return isinstance(other, Listing) and other.mark is self.since

    def shifts(self) -> list[Run]:
        """Return the runs of places whose objects came from the listing before, in order.

        A run may also hold objects that were replaced where they were.
        """
        found: list[Run] = []
        gone_at, new_at = iter((*self.gone_at, _END)), iter((*self.new_at, _END))
        now = shift = 0
        gone, new = next(gone_at), next(new_at)
        while gone < _END or new < _END:
            if gone + shift == new:
                gone, new = next(gone_at), next(new_at)
                continue
            end = min(gone + shift, new)
            if end > now:
                found.append((now - shift, now, end - now))
            if new == end:
                now, shift, new = end + 1, shift + 1, next(new_at)
            else:
                now, shift, gone = end, shift - 1, next(gone_at)
        if now < len(self):
            found.append((now - shift, now, len(self) - now))
        return found


def are_the_same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Return whether two sequences hold identical objects."""
    return some is others or (len(some) == len(others) and all(map(is_, some, others)))


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
