"""Pods that found no node, by shape and in order: thousands may be stuck, and only some shapes are worth another try.

The order is that in which they failed last. Sits in sim.world, below the scheduler.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from dovetail.sim.world.shapes import PodShape


class Stuck:
    """The keys of stuck pods, in order."""

    def __init__(self) -> None:
        self._shapes: dict[str, PodShape] = {}
        self._queues: dict[PodShape, dict[str, int]] = {}
        self._number = 0

    def __len__(self) -> int:
        """Count them."""
        return len(self._shapes)

    def __iter__(self) -> Iterator[str]:
        """Go through all keys, in order."""
        return iter(self._shapes)

    def add(self, key: str, shape: PodShape) -> None:
        """Put a pod at the end, unless it is there."""
        if key not in self._shapes:
            self._number += 1
            self._shapes[key] = shape
            self._queues.setdefault(shape, {})[key] = self._number

    def drop(self, key: str) -> None:
        """Take a pod out, if it is there."""
        shape = self._shapes.pop(key, None)
        if shape is not None:
            queue = self._queues[shape]
            del queue[key]
            if not queue:
                del self._queues[shape]

    def clear(self) -> None:
        """Take all out."""
        self._shapes.clear()
        self._queues.clear()

    def tries(self) -> Iterator[tuple[str, PodShape]]:
        """Yield the first pod of each shape, in order; then the next of that shape, if the last one was taken out."""
        heads = [(*_first(queue), shape) for shape, queue in self._queues.items()]
        heapify(heads)
        while heads:
            _, key, shape = heappop(heads)
            yield key, shape
            if key not in self._shapes and shape in self._queues:
                heappush(heads, (*_first(self._queues[shape]), shape))


def _first(queue: dict[str, int]) -> tuple[int, str]:
    key, number = next(iter(queue.items()))
    return number, key
