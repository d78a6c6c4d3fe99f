"""Limits of a search that a test sets with one function."""

from collections.abc import Callable, Sequence


class Allowing:
    """Allow the sets that a function allows; by default all."""

    def __init__(self, allows: Callable[[Sequence[int]], bool] = lambda _: True) -> None:
        self.allows = allows

    def along(self, order: Sequence[int]) -> list[int]:
        """Return the nodes of an order that are allowed as one set, taken greedily."""
        kept: list[int] = []
        for place in order:
            kept += [place] if self.allows([*kept, place]) else []
        return kept
