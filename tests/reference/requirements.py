"""Requirements on labels, as Karpenter's scheduler understands them: sets of values, complements of sets, bounds.

Written on its own, without `model.labels.requirements`, so that the two check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dovetail.model.objects import SelectorRequirement

# What a pod may ask of a new node although its pool says nothing about it; the provider's own labels come on top.
WELL_KNOWN = frozenset(
    {
        "karpenter.sh/nodepool",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "karpenter.sh/capacity-type",
        "node.kubernetes.io/windows-build",
    }
)
ALIASES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in "+-" else text
    return int(text) if digits.isascii() and digits.isdigit() else None


@dataclass(frozen=True)
class Requirement:
    """The values that a label may have: `values`, or (complement) all but `values`, within the bounds."""

    key: str
    values: frozenset[str] = frozenset()
    complement: bool = False
    at_least: int | None = None
    at_most: int | None = None
    min_values: int | None = None

    @property
    def operator(self) -> str:
        """Return the operator this comes down to; bounds alone count as Exists."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def forbids_only(self) -> bool:
        """Return whether a node without the label satisfies this."""
        return self.operator in ("NotIn", "DoesNotExist")

    def within_bounds(self, value: str) -> bool:
        """Return whether a value lies within the bounds; with bounds, only integers do."""
        if self.at_least is None and self.at_most is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self.at_least is None or number >= self.at_least) and (self.at_most is None or number <= self.at_most)

    def has(self, value: str) -> bool:
        """Return whether this value is allowed."""
        return (value in self.values) != self.complement and self.within_bounds(value)

    def allows_nothing(self) -> bool:
        """Return whether no value at all is allowed."""
        return not self.complement and not self.values

    def intersection(self, other: Requirement) -> Requirement:
        """Return what both allow."""
        at_least = _extreme(max, self.at_least, other.at_least)
        at_most = _extreme(min, self.at_most, other.at_most)
        min_values = _extreme(max, self.min_values, other.min_values)
        if at_least is not None and at_most is not None and at_least > at_most:
            return Requirement(self.key, min_values=min_values)
        complement = self.complement and other.complement
        if complement:
            values = self.values | other.values
        elif self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        bounded = Requirement(self.key, at_least=at_least, at_most=at_most)
        kept = frozenset(value for value in values if bounded.within_bounds(value))
        if not complement:
            at_least = at_most = None
        return Requirement(self.key, kept, complement, at_least, at_most, min_values)

    def overlaps(self, other: Requirement) -> bool:
        """Return whether some value satisfies both; two complements do unless their bounds exclude each other."""
        if self.complement and other.complement:
            return self.intersection(other).complement
        finite = other if self.complement else self
        return any(self.has(value) and other.has(value) for value in finite.values)

    def printed(self) -> list[tuple[str, str, tuple[str, ...], int | None]]:
        """Return the requirement as entries (key, operator, values, minValues) of a NodeClaim."""
        entries: list[tuple[str, str, tuple[str, ...], int | None]] = []
        if self.at_least is not None:
            entries.append((self.key, "Gte", (str(self.at_least),), self.min_values))
        if self.at_most is not None:
            entries.append((self.key, "Lte", (str(self.at_most),), self.min_values))
        return entries or [(self.key, self.operator, tuple(sorted(self.values)), self.min_values)]


def _extreme(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return choose(one, other)


def requirement(key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None) -> Requirement:
    """Return one requirement as written in an object."""
    key = ALIASES.get(key, key)
    given = tuple(values)
    match operator:
        case "In":
            return Requirement(key, frozenset(given), min_values=min_values)
        case "NotIn":
            return Requirement(key, frozenset(given), complement=True, min_values=min_values)
        case "Exists":
            return Requirement(key, complement=True, min_values=min_values)
        case "DoesNotExist":
            return Requirement(key, min_values=min_values)
    number = (_integer(given[0]) if given else None) or 0
    match operator:
        case "Gt":
            return Requirement(key, complement=True, at_least=number + 1, min_values=min_values)
        case "Lt":
            return Requirement(key, complement=True, at_most=number - 1, min_values=min_values)
        case "Gte":
            return Requirement(key, complement=True, at_least=number, min_values=min_values)
        case "Lte":
            return Requirement(key, complement=True, at_most=number, min_values=min_values)
    return Requirement(key, complement=True, min_values=min_values)


class Requirements:
    """Requirements by key; adding one to a key that is there leaves what both allow."""

    def __init__(self, items: Iterable[Requirement] = ()) -> None:
        self._by_key: dict[str, Requirement] = {}
        self.add(items)

    def add(self, items: Iterable[Requirement]) -> None:
        """Narrows by these."""
        for item in items:
            present = self._by_key.get(item.key)
            self._by_key[item.key] = item if present is None else item.intersection(present)

    def replace(self, item: Requirement) -> None:
        """Puts this in the place of whatever its key had."""
        self._by_key[item.key] = item

    def remove(self, key: str) -> None:
        """Forgets a key."""
        self._by_key.pop(key, None)

    def copy(self) -> Requirements:
        """Return a copy that can be narrowed on its own."""
        return Requirements(self)

    def __iter__(self) -> Iterator[Requirement]:
        return iter(self._by_key.values())

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def get(self, key: str) -> Requirement:
        """Return the requirement of a key; anything goes where there is none."""
        return self._by_key.get(key) or Requirement(key, complement=True)

    def key(self) -> frozenset[Requirement]:
        """Return a value that is equal for equal requirements."""
        return frozenset(self._by_key.values())

    def has_min_values(self) -> bool:
        """Return whether any requirement asks for a number of distinct values."""
        return any(item.min_values is not None for item in self)

    def intersects(self, others: Requirements) -> bool:
        """Return whether on every key that both name some value is left (two prohibitions never quarrel)."""
        for theirs in others:
            ours = self._by_key.get(theirs.key)
            if ours is None or ours.overlaps(theirs) or (ours.forbids_only and theirs.forbids_only):
                continue
            return False
        return True

    def defines(self, wanted: Requirements, *, may_lack: Collection[str] = ()) -> bool:
        """Return whether every label that is asked for is defined here, but for those that it `may_lack`."""
        return all(item.key in self or item.forbids_only or item.key in may_lack for item in wanted)

    def compatible(self, wanted: Requirements, *, may_lack: Collection[str] = ()) -> bool:
        """Return whether a node described by these can satisfy `wanted`: labels asked for are defined, and overlap."""
        return self.defines(wanted, may_lack=may_lack) and self.intersects(wanted)

    def relax_min_values(self, key: str, number: int) -> None:
        """Lowers the number of distinct values that a key asks for."""
        self._by_key[key] = replace(self.get(key), min_values=number)


def from_labels(labels: Mapping[str, str]) -> Requirements:
    """Return the requirements that labels stand for."""
    return Requirements(requirement(key, "In", (value,)) for key, value in labels.items())


def from_expressions(expressions: Iterable[SelectorRequirement]) -> Requirements:
    """Return the requirements of an object's expressions, all of which must hold."""
    return Requirements(requirement(item.key, item.operator, item.values, item.min_values) for item in expressions)
