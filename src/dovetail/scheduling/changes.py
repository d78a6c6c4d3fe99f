"""Which objects of two listings of a cluster differ, by identity, and where the others were. Decides nothing."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.model.listing import Listing

Item = TypeVar("Item")
_Column = npt.NDArray[Any]
_Places = npt.NDArray[np.int64]
_MANY: Final = 200
"""With more runs than these, values are found one by one."""


def changes(before: Sequence[Item], after: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return the objects that are not there any more, and those that are new, in their order."""
    if before is after:
        return [], []
    if isinstance(after, Listing) and after.follows(before):
        return after.gone, after.new
    old_ids, new_ids = set(map(id, before)), set(map(id, after))
    return [item for item in before if id(item) not in new_ids], [item for item in after if id(item) not in old_ids]


def carried(columns: Iterable[_Column], after: Listing[Item]) -> list[_Column]:
    """Return columns of the listing before as columns of this one; the values of objects that are new are undefined."""
    runs, count = after.shifts(), len(after)
    if len(runs) > _MANY:
        places = np.zeros(count, dtype=np.int64)
        for was, now, length in runs:
            places[now : now + length] = np.arange(was, was + length)
        return [column.take(places) for column in columns]
    found = []
    for column in columns:
        values = np.empty(count, dtype=column.dtype)
        for was, now, length in runs:
            values[now : now + length] = column[was : was + length]
        found.append(values)
    return found


def places_before(after: Listing[Item], places: _Places) -> _Places:
    """Return where the objects at these places were in the listing before; -1 if they were not there."""
    was, now, _ = np.array(after.shifts() or [(0, 0, 0)], dtype=np.int64).T
    run = np.searchsorted(now, places, side="right") - 1
    is_new = np.zeros(len(after), dtype=np.bool_)
    is_new[after.new_at] = True
    return np.where(is_new[places], -1, places - now[run] + was[run])
