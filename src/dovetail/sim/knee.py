"""Chooses the policy with the best balance: nearest to the corner of least cost and fewest moves.

Both are scaled from 0 (the least) to 1 (the most). Ties go to fewer moves, then to the first name.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def knee(items: Sequence[T], *, cost: Callable[[T], float], moves: Callable[[T], float], name: Callable[[T], str]) -> T:
    """Return the item that lies nearest to the corner."""
    costs, counts = [cost(item) for item in items], [moves(item) for item in items]

    def share(value: float, values: list[float]) -> float:
        low, high = min(values), max(values)
        return (value - low) / (high - low) if high > low else 0.0

    def rank(item: T) -> tuple[float, float, str]:
        away = share(cost(item), costs) ** 2 + share(moves(item), counts) ** 2
        return (away, moves(item), name(item))

    return min(items, key=rank)
