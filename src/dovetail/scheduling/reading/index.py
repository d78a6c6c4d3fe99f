"""The places of nodes by name, without an index of all of them while few are asked for. Decides nothing."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar, overload

_Other = TypeVar("_Other")
_MANY: Final = 500
"""If more names are asked for, making a dict of all of them is faster."""


class NodeIndex(Mapping[str, int]):
    """The places of names that are in two sorted parts; of two equal names, the last one's.

    `every`: the same as a dict, once there is one.
    """

    __slots__ = ("_asked", "_names", "_parted", "every")

    def __init__(self, names: Sequence[str], parted: int, *, has_namesakes: bool) -> None:
        """Create an index of names that are sorted up to the place `parted`, and again from there on."""
        self._names, self._parted = names, parted
        self._asked = 0
        self.every: dict[str, int] | None = self._index() if has_namesakes else None

    def _index(self) -> dict[str, int]:
        return dict(zip(self._names, range(len(self._names)), strict=True))

    @overload
    def get(self, name: str, default: None = None, /) -> int | None: ...
    @overload
    def get(self, name: str, default: int | _Other, /) -> int | _Other: ...
    def get(self, name: str, default: object = None, /) -> object:
        """Return the place of a name, or the default."""
        if self.every is not None:
            return self.every.get(name, default)
        self._asked += 1
        if self._asked > _MANY:
            self.every = self._index()
        names, parted = self._names, self._parted
        place = bisect_left(names, name, 0, parted)
        if place == parted or names[place] != name:
            place = bisect_left(names, name, parted)
        return place if place < len(names) and names[place] == name else default

    def __getitem__(self, name: str) -> int:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names if self.every is None else self.every)

    def __len__(self) -> int:
        return len(self._names if self.every is None else self.every)
