"""Which objects of two listings of a cluster differ, by identity. Decides nothing."""

from collections.abc import Sequence
from typing import TypeVar

from dovetail.model.listing import Listing

Item = TypeVar("Item")


def changes(before: Sequence[Item], after: Sequence[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    """Return the objects that are not there any more, and those that are new, in their order."""
    if before is after:
        return [], []
    if isinstance(before, Listing) and isinstance(after, Listing) and after.since is before.mark:
        return after.gone, after.new
    old_ids, new_ids = set(map(id, before)), set(map(id, after))
    return [item for item in before if id(item) not in new_ids], [item for item in after if id(item) not in old_ids]
