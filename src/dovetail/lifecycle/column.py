"""All objects of one kind, kept by place and listed in order.

Changes are only noted; the order is brought up to date when the objects are listed next, so an object that changes ten
times between two listings costs one search. The order is kept in parts, and only parts with changes are made again, so
a listing makes little more than what has changed. Sits at the bottom of lifecycle; `store` has one column per kind.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Final

from dovetail.model.listing import Listing
from dovetail.model.objects import AnyObject

Place = tuple[str, str]
"""Namespace and name."""
_PART: Final = 256
"""The size of a part when it is made; it grows to twice that before it is cut."""
_SCATTERED: Final = 8
"""With so many times more parts than necessary, all are made again."""
_NOTED_MAX: Final = 1_000
"""How many more than twice as many changes as objects are noted before the order is given up."""


class Column:
    """Objects by (namespace, name), each with the resource version that was seen last.

    `version` grows with every change of an object.
    """

    __slots__ = ("_changed", "_firsts", "_listing", "_parts", "_places", "by_place", "seen", "version")

    def __init__(self) -> None:
        self.by_place: dict[Place, AnyObject] = {}
        self.seen: dict[Place, str] = {}
        self.version = 0
        self._changed: dict[Place, None] = {}
        self._firsts: list[Place] = []
        self._places: list[list[Place]] = []
        self._parts: list[list[AnyObject]] = []  # listings share them, so they are replaced and never changed
        self._listing: Listing[AnyObject] | None = None

    def put(self, place: Place, item: AnyObject) -> None:
        """Store an object, new or changed."""
        self.by_place[place] = item
        self._changed[place] = None
        self.version += 1

    def drop(self, place: Place) -> None:
        """Remove the object at a place.

        A replica that does not lead never lists its pods. So that it does not note every pod that ever was, it gives up
        the order at some point, and the next listing is made anew.
        """
        del self.by_place[place]
        self.seen.pop(place, None)
        self._changed[place] = None
        self.version += 1
        if len(self._changed) > 2 * len(self.by_place) + _NOTED_MAX:
            self._firsts, self._places, self._parts, self._listing = [], [], [], None
            self._changed = {place: None}

    def listed(self) -> Sequence[AnyObject]:
        """Return all objects, by place; the same sequence until one changes."""
        if self._changed:
            gone: dict[int, AnyObject] = {}
            new: dict[int, AnyObject] = {}
            self._merge(gone, new)
            self._changed = {}
            self._listing = Listing(self._parts, None if self._listing is None else self._listing.mark, gone, new)
        return () if self._listing is None else self._listing

    def _merge(self, gone: dict[int, AnyObject], new: dict[int, AnyObject]) -> None:
        """Update the order; add what is not there any more, by its place before, and what is new, by its place now."""
        if not self._parts:
            self._fill(sorted(self.by_place))
            if self._listing is not None:
                new.update(enumerate(chain.from_iterable(self._parts)))
            return
        starts = list(accumulate(map(len, self._parts), initial=0))
        changed = sorted(self._changed)
        touched: list[int] = []
        at = moved = 0
        while at < len(changed):
            part = max(bisect_right(self._firsts, changed[at]) - 1, 0)
            last = part + 1 == len(self._firsts)
            end = len(changed) if last else bisect_left(changed, self._firsts[part + 1], at)
            moved += self._edit(part, changed[at:end], starts[part], moved, gone, new)
            touched.append(part)
            at = end
        for part in reversed(touched):
            self._cut(part)
        if len(self._parts) > _SCATTERED * (1 + len(self.by_place) // _PART):
            self._fill(list(chain.from_iterable(self._places)))

    def _fill(self, places: list[Place]) -> None:
        """Make all parts again; the objects at these places are all there are."""
        self._places = [places[at : at + _PART] for at in range(0, len(places), _PART)]
        self._parts = [[self.by_place[place] for place in part] for part in self._places]
        self._firsts = [part[0] for part in self._places]

    def _edit(
        self,
        part: int,
        changed: list[Place],
        start: int,
        moved: int,
        gone: dict[int, AnyObject],
        new: dict[int, AnyObject],
    ) -> int:
        """Update one part that began at `start` and has moved by so many; return by how many it grew."""
        places, items = self._places[part], self._parts[part].copy()
        grown = 0
        for place in changed:
            here = bisect_left(places, place)
            known = here < len(places) and places[here] == place
            item = self.by_place.get(place)
            if known:
                gone[start + here - grown] = items[here]
            if item is not None:
                new[start + moved + here] = item
                if known:
                    items[here] = item
                else:
                    places.insert(here, place)
                    items.insert(here, item)
                    grown += 1
            elif known:
                del places[here], items[here]
                grown -= 1
        self._parts[part] = items
        return grown

    def _cut(self, part: int) -> None:
        """Cut a part that has grown too large, or remove it if nothing is left of it."""
        places, items = self._places[part], self._parts[part]
        if 0 < len(places) <= 2 * _PART:
            self._firsts[part] = places[0]
            return
        cuts = range(0, len(places), _PART)
        self._firsts[part : part + 1] = [places[at] for at in cuts]
        self._places[part : part + 1] = [places[at : at + _PART] for at in cuts]
        self._parts[part : part + 1] = [items[at : at + _PART] for at in cuts]
