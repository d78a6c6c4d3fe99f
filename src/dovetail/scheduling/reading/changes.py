"""Which objects of two listings of a cluster differ, by identity. Decides nothing."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from dovetail.model.listing import Listing

Item = TypeVar("Item")


def changes(before: Sequence[Item], after: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Return the objects that are not there any more, and those that are new, in their order."""
    if before is after:
        return [], []
    if isinstance(before, Listing) and isinstance(after, Listing) and after.since is before.mark:
        was = np.frombuffer(after.origin, dtype=np.int64)
        stays = np.zeros(len(before), dtype=np.bool_)
        stays[was[was >= 0]] = True
        gone, new = np.flatnonzero(~stays).tolist(), np.flatnonzero(was < 0).tolist()
        return [before[place] for place in gone], [after[place] for place in new]
    old_ids, new_ids = set(map(id, before)), set(map(id, after))
    return [item for item in before if id(item) not in new_ids], [item for item in after if id(item) not in old_ids]
