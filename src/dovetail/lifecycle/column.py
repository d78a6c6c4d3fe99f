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
_MOVED_MAX: Final = 256
"""If more objects than that came or went, or one in eight, putting all in order is cheaper than moving the rest."""


class Column:
    """Objects by (namespace, name), each with the resource version that was seen last.

    `version` grows with every change of an object.
    """

    __slots__ = (
        "_changed",
        "_items",
        "_listing",
        "_mark",
        "_moved",
        "_numbers",
        "_places",
        "by_place",
        "seen",
        "version",
    )

    def __init__(self) -> None:
        self.by_place: dict[Place, AnyObject] = {}
        self.seen: dict[Place, str] = {}
        self.version = 0
        self._changed: dict[Place, None] = {}
        self._moved = 0
        self._places: list[Place] = []
        self._items: list[AnyObject] = []
        self._listing: tuple[AnyObject, ...] = ()
        self._mark: object = None
        self._numbers = array("q")

    def put(self, place: Place, item: AnyObject) -> None:
        """Store an object, new or changed."""
        if place not in self.by_place:
            self._moved += 1
        self.by_place[place] = item
        self._changed[place] = None
        self.version += 1

    def drop(self, place: Place) -> None:
        """Remove the object at a place."""
        del self.by_place[place], self.seen[place]
        self._moved += 1
        self._changed[place] = None
        self.version += 1

    def listed(self) -> tuple[AnyObject, ...]:
        """Return all objects, by place; the same tuple until one changes."""
        if self._changed:
            many = self._moved > min(_MOVED_MAX, len(self._places) // 8)
            origin = self._sort() if many else self._merge()
            self._changed, self._moved = {}, 0
            listing = Listing.of(self._items, self._mark, origin)
            self._listing, self._mark = listing, listing.mark
        return self._listing

    def _sort(self) -> "array[int]":
        """Put all places in order; return where each object was."""
        changed, by_place = self._changed, self.by_place
        was = {place: at for at, place in enumerate(self._places) if place not in changed}
        self._places = sorted([*was, *sorted([place for place in changed if place in by_place])])
        self._items = [by_place[place] for place in self._places]
        return array("q", [was.get(place, _NOWHERE) for place in self._places])

    def _merge(self) -> "array[int]":
        """Move the changed places only; return where each object was."""
        places, items = self._places, self._items
        if len(self._numbers) < len(places):
            self._numbers = array("q", range(2 * len(places)))
        origin = self._numbers[: len(places)]
        for place in self._changed:
            at = bisect_left(places, place)
            known = at < len(places) and places[at] == place
            item = self.by_place.get(place)
            if item is None:
                if known:
                    del places[at], items[at], origin[at]
            elif known:
                items[at], origin[at] = item, _NOWHERE
            else:
                places.insert(at, place)
                items.insert(at, item)
                origin.insert(at, _NOWHERE)
        return origin
