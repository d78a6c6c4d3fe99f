"""Columns of pods as lists, node by node. Decides nothing; sits in scheduling, below the bindings."""

from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")


class ByNode(Generic[Value]):
    """The values of a column for the pods of each node: slices of one list are faster than those of an array."""

    __slots__ = ("_edges", "_values")

    def __init__(self, values: list[Value], edges: list[int]) -> None:
        self._values, self._edges = values, edges

    def __getitem__(self, node: int) -> list[Value]:
        return self._values[self._edges[node] : self._edges[node + 1]]


class Listed(NamedTuple):
    """Columns as lists: indexes, flags and oddness of the pods of each node, and the numbers of all pods' classes."""

    places: ByNode[int]
    flags: ByNode[int]
    odd: ByNode[bool]
    classes: list[int]
