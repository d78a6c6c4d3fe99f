"""All objects of one kind, kept by place and listed in order.

Changes are only noted; the order is brought up to date when the objects are listed next, so an object that changes ten
times between two listings costs one search. Sits at the bottom of lifecycle; `store` has one column per kind.
"""

from array import array
from bisect import bisect_left
from typing import Final

from dovetail.model.listing import Listing
from dovetail.model.objects import AnyObject

Place = tuple[str, str]
"""Namespace and name."""
_NOWHERE: Final = -1
"""The place of an object that was not in the listing before (`Listing.origin`)."""
_MOVED_MAX: Final = 64
"""If more objects came or went, making new lists is cheaper than moving the rest of the old ones each time."""


class Column:
    """Objects by (namespace, name), each with the resource version that was seen last.

    `version` grows with every change of an object.
    """

    __slots__ = ("_changed", "_items", "_listing", "_mark", "_numbers", "_places", "by_place", "seen", "version")

    def __init__(self) -> None:
        self.by_place: dict[Place, AnyObject] = {}
        self.seen: dict[Place, str] = {}
        self.version = 0
        self._changed: dict[Place, None] = {}
        self._places: list[Place] = []
        self._items: list[AnyObject] = []
        self._listing: tuple[AnyObject, ...] = ()
        self._mark: object = None
        self._numbers = array("q")

    def put(self, place: Place, item: AnyObject) -> None:
        """Store an object, new or changed."""
        self.by_place[place] = item
        self._changed[place] = None
        self.version += 1

    def drop(self, place: Place) -> None:
        """Remove the object at a place."""
        del self.by_place[place]
        self.seen.pop(place, None)
        self._changed[place] = None
        self.version += 1

    def listed(self) -> tuple[AnyObject, ...]:
        """Return all objects, by place; the same tuple until one changes."""
        if self._changed:
            gone: list[AnyObject] = []
            new: list[AnyObject] = []
            origin = self._merge(gone, new)
            self._changed = {}
            listing = Listing.of(self._items, self._mark, origin, gone, new)
            self._listing, self._mark = listing, listing.mark
        return self._listing

    def _merge(self, gone: list[AnyObject], new: list[AnyObject]) -> "array[int]":
        """Update the order; return where each object was, and add what is not there any more and what is new."""
        places, items = self._places, self._items
        if len(self._numbers) < len(places):
            self._numbers = array("q", range(2 * len(places)))
        origin = self._numbers[: len(places)]
        moved: list[_Moved] = []
        for place in sorted(self._changed):
            at = bisect_left(places, place)
            known = at < len(places) and places[at] == place
            item = self.by_place.get(place)
            if known:
                gone.append(items[at])
            if item is not None:
                new.append(item)
            if known and item is not None:
                items[at], origin[at] = item, _NOWHERE
            elif known or item is not None:
                moved.append((at, place, item))
        if len(moved) <= _MOVED_MAX:
            for at, place, item in reversed(moved):
                if item is None:
                    del places[at], items[at], origin[at]
                else:
                    places.insert(at, place)
                    items.insert(at, item)
                    origin.insert(at, _NOWHERE)
            return origin
        return self._join(moved, origin)

    def _join(self, moved: "list[_Moved]", origin: "array[int]") -> "array[int]":
        """Build the order from the parts between the objects that came or went; return where each object was."""
        places: list[Place] = []
        items: list[AnyObject] = []
        joined = array("q")
        begin = 0
        for at, place, item in (*moved, (len(self._places), ("", ""), None)):
            places += self._places[begin:at]
            items += self._items[begin:at]
            joined += origin[begin:at]
            begin = at
            if item is None:
                begin += 1
            else:
                places.append(place)
                items.append(item)
                joined.append(_NOWHERE)
        self._places, self._items = places, items
        return joined


_Moved = tuple[int, Place, AnyObject | None]
"""Where an object came (or went: None) in the order before."""
