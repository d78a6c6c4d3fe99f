"""Requirements on labels: their algebra, as Karpenter's scheduler understands it.

Decides which values of a label a requirement admits, what two of them admit together, and whether a set of requirements
can be met by another. Doesn't know which objects carry the labels. Sits above `model.objects`,
whose written forms it compiles. The scheduling kernel calls it in its inner loops, hence plain slotted values and set
operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import msgspec

from dovetail.model import names
from dovetail.model.labels.syntax import ALIASES
from dovetail.model.objects import NodeAffinity, SelectorRequirement

INT_MAX: Final = 2**63 - 1
INT_MIN: Final = -(2**63)


_OLD_NAMES: Final = {new: old for old, new in ALIASES.items()}

_NOTHING: Final[frozenset[str]] = frozenset()
_INTEGER = re.compile(r"[+-]?[0-9]+")


@lru_cache(maxsize=1 << 14)
def _integer(text: str) -> int | None:
    """Read a value as a 64-bit integer; ``None`` if it is not one."""
    if not _INTEGER.fullmatch(text) or len(text) > 64:
        return None
    number = int(text)
    return number if INT_MIN <= number <= INT_MAX else None


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    """Return whether a value is within the bounds; if there are any, a value that is not an integer is outside."""
    if gte is None and lte is None:
        return True
    number = _integer(value)
    return number is not None and (gte is None or number >= gte) and (lte is None or number <= lte)


def _highest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _lowest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a label may have: ``values``, or (``complement``) all but those, within inclusive bounds.

    An empty ``values`` without ``complement`` means that the label must be absent.
    """

    key: str
    complement: bool = False
    values: frozenset[str] = _NOTHING
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    @staticmethod
    def of(key: str, operator: str, values: Iterable[str] = (), min_values: int | None = None) -> Requirement:
        """Build a requirement from a key, an operator and values; deprecated label names become the current ones.

        Gt and Lt become inclusive bounds. A bound that is not an integer counts as 0; validation refuses those.
        """
        return _made(key, operator, tuple(values), min_values)

    @staticmethod
    def from_spec(spec: SelectorRequirement) -> Requirement:
        """Compile a requirement as it stands in a NodePool, a node affinity or a catalogue."""
        return _made(spec.key, spec.operator, spec.values, spec.min_values)

    def operator(self) -> str:
        """Return the equivalent operator; bounds alone count as Exists."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    def size(self) -> int:
        """Return how many values are admitted; for a complement, the largest integer less the excluded values."""
        return INT_MAX - len(self.values) if self.complement else len(self.values)

    def lenient(self) -> bool:
        """Return whether a node without the label is acceptable: NotIn and DoesNotExist."""
        return self.complement == bool(self.values)

    def has(self, value: str) -> bool:
        """Return whether the label may have this value."""
        return (value in self.values) != self.complement and (
            (self.gte is None and self.lte is None) or _within(value, self.gte, self.lte)
        )

    def intersection(self, other: Requirement) -> Requirement:
        """Return the intersection; the larger of the two minValues is kept."""
        gte = _highest(self.gte, other.gte)
        lte = _lowest(self.lte, other.lte)
        min_values = _highest(self.min_values, other.min_values)
        if gte is not None and lte is not None and gte > lte:
            return Requirement(key=self.key, min_values=min_values)
        complement = self.complement and other.complement
        if complement:
            values = self.values | other.values
        elif self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        if gte is not None or lte is not None:
            values = frozenset(value for value in values if _within(value, gte, lte))
        if not complement:
            gte = lte = None
        return Requirement(key=self.key, complement=complement, values=values, gte=gte, lte=lte, min_values=min_values)

    def has_intersection(self, other: Requirement) -> bool:
        """Return whether some value is admitted by both, without building the intersection."""
        gte = _highest(self.gte, other.gte)
        lte = _lowest(self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return False
        if self.complement and other.complement:
            return True
        if gte is None and lte is None:
            if self.complement:
                return not other.values <= self.values
            if other.complement:
                return not self.values <= other.values
            return not self.values.isdisjoint(other.values)
        concrete, judge = (other, self) if self.complement else (self, other)
        return any(
            (value in judge.values) != judge.complement and _within(value, gte, lte) for value in concrete.values
        )

    def to_spec(self) -> tuple[SelectorRequirement, ...]:
        """Write it as Karpenter does: bounds first, as Gte and Lte, and then without the excluded values."""
        if self.gte is not None or self.lte is not None:
            return tuple(
                SelectorRequirement(key=self.key, operator=operator, values=(str(bound),), min_values=self.min_values)
                for operator, bound in (("Gte", self.gte), ("Lte", self.lte))
                if bound is not None
            )
        return (
            SelectorRequirement(
                key=self.key, operator=self.operator(), values=tuple(sorted(self.values)), min_values=self.min_values
            ),
        )

    def __str__(self) -> str:
        """Return ``key In [a b] >=5 minValues 2``, with at most five values."""
        shown = sorted(self.values)
        if len(shown) > 5:
            shown[5:] = [f"and {len(shown) - 5} others"]
        text = f"{self.key} {self.operator()}" + (f" [{' '.join(shown)}]" if shown else "")
        if self.gte is not None:
            text += f" >={self.gte}"
        if self.lte is not None:
            text += f" <={self.lte}"
        return text if self.min_values is None else f"{text} minValues {self.min_values}"


class OperatorError(ValueError):
    """An unknown operator; the message says what to write instead."""


def _bound(values: tuple[str, ...]) -> int:
    text = values[0] if values else ""
    if not _INTEGER.fullmatch(text):
        return 0
    return max(INT_MIN, min(int(text[:64]), INT_MAX))


@lru_cache(maxsize=1 << 14)
def _made(key: str, operator: str, values: tuple[str, ...], min_values: int | None) -> Requirement:
    key = ALIASES.get(key, key)
    match operator:
        case "In":
            return Requirement(key=key, values=frozenset(values), min_values=min_values)
        case "NotIn":
            return Requirement(key=key, complement=True, values=frozenset(values), min_values=min_values)
        case "Exists":
            return Requirement(key=key, complement=True, min_values=min_values)
        case "DoesNotExist":
            return Requirement(key=key, min_values=min_values)
        case "Gt" | "Gte":
            bound = _bound(values) + (operator == "Gt")
            if bound > INT_MAX:  # nothing is greater than the greatest integer
                return Requirement(key=key)
            return Requirement(key=key, complement=True, gte=bound, min_values=min_values)
        case "Lt" | "Lte":
            bound = _bound(values) - (operator == "Lt")
            return Requirement(key=key, complement=True, lte=bound, min_values=min_values)
    raise OperatorError(
        f"{operator!r} is not an operator on labels; write In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte"
    )


class Requirements:
    """Requirements by key, at most one for each; an immutable value. Iterates by key, in order."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Requirement] = {}
        _add(by_key, requirements)
        self._by_key = by_key
        self._hash: int | None = None

    @staticmethod
    def from_spec(specs: Iterable[SelectorRequirement]) -> Requirements:
        """Compile written requirements; several on one key are intersected."""
        return Requirements(_made(spec.key, spec.operator, spec.values, spec.min_values) for spec in specs)

    @staticmethod
    def from_labels(labels: Mapping[str, str]) -> Requirements:
        """Build the requirements that exactly these labels meet."""
        return Requirements(_made(key, "In", (value,), None) for key, value in labels.items())

    def add(self, *requirements: Requirement) -> Requirements:
        """Return these requirements with others added; requirements on the same key are intersected."""
        if not requirements:
            return self
        added = Requirements()
        added._by_key = dict(self._by_key)
        _add(added._by_key, requirements)
        return added

    def union(self, other: Requirements) -> Requirements:
        """Return the requirements of both; requirements on the same key are intersected."""
        if not self._by_key:
            return other
        return self.add(*other._by_key.values())

    def get(self, key: str) -> Requirement | None:
        """Return the requirement on a key, or None."""
        return self._by_key.get(key)

    def admits(self, labels: Mapping[str, str]) -> bool:
        """Return whether an existing node with these labels is compatible.

        Equal to `compatible` with `from_labels`, at less cost.
        """
        for key, requirement in self._by_key.items():
            value = labels.get(key)
            if value is None and key in _OLD_NAMES:
                value = labels.get(_OLD_NAMES[key])
            if value is None:
                if not requirement.lenient():
                    return False
            elif not requirement.has(value):
                return False
        return True

    def is_compatible(self, other: Requirements, allow_undefined: AbstractSet[str] = _NOTHING) -> bool:
        """Return whether ``other`` can be met here; see `compatible`."""
        mine = self._by_key
        for key, incoming in other._by_key.items():
            existing = mine.get(key)
            if existing is None:
                if key not in allow_undefined and not incoming.lenient():
                    return False
            elif not _meet(existing, incoming):
                return False
        return True

    def compatible(self, other: Requirements, allow_undefined: AbstractSet[str] = _NOTHING) -> str | None:
        """Return why ``other`` (a pod's) can't be met here (by a pool, a type, a node), or ``None`` if it can.

        A key that is not defined here is acceptable if it is in ``allow_undefined`` or ``other`` doesn't need the
        label.
        """
        if self.is_compatible(other, allow_undefined):
            return None
        for key, incoming in other.items():
            if key not in self._by_key and key not in allow_undefined and not incoming.lenient():
                return f'no value of label "{key}" is defined here{self._hint(key, allow_undefined)}'
        return self.intersects(other)

    def intersects(self, other: Requirements) -> str | None:
        """Return the keys that both have but that admit no common value, or ``None`` if there are none."""
        clashes = [
            f"{incoming} asked for, {existing} given"
            for key, incoming in other.items()
            if (existing := self._by_key.get(key)) is not None and not _meet(existing, incoming)
        ]
        return "; ".join(clashes) or None

    def is_intersecting(self, other: Requirements) -> bool:
        """Return whether all keys that both have admit a common value; the quick form of `intersects`."""
        few, many = self._by_key, other._by_key
        if len(few) > len(many):
            few, many = many, few
        return all(key not in many or _meet(requirement, many[key]) for key, requirement in few.items())

    def has_min_values(self) -> bool:
        """Return whether any of them asks for a number of different values."""
        return any(requirement.min_values is not None for requirement in self._by_key.values())

    def to_spec(self) -> tuple[SelectorRequirement, ...]:
        """Write them as a list, by key."""
        return tuple(spec for _, requirement in self.items() for spec in requirement.to_spec())

    def items(self) -> list[tuple[str, Requirement]]:
        """Return keys and requirements, by key."""
        return sorted(self._by_key.items())

    def keys(self) -> AbstractSet[str]:
        """Return the keys."""
        return self._by_key.keys()

    def _hint(self, key: str, allow_undefined: AbstractSet[str]) -> str:
        """Return a label that was probably meant: one that contains the key or has the same ending."""
        ending = key.partition("/")[2] or key
        for known in (*sorted(allow_undefined), *sorted(self._by_key)):
            if key in known or known.endswith(ending):
                return f' (did you mean "{known}"?)'
        return ""

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[Requirement]:
        return iter([requirement for _, requirement in self.items()])

    def __len__(self) -> int:
        return len(self._by_key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Requirements) and self._by_key == other._by_key

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.values()))
        return self._hash

    def __str__(self) -> str:
        return ", ".join(str(requirement) for requirement in self if requirement.key != names.HOSTNAME)

    def __repr__(self) -> str:
        return f"Requirements({self})"


def _add(by_key: dict[str, Requirement], requirements: Iterable[Requirement]) -> None:
    for requirement in requirements:
        existing = by_key.get(requirement.key)
        by_key[requirement.key] = requirement if existing is None else requirement.intersection(existing)


def _meet(existing: Requirement, incoming: Requirement) -> bool:
    """Return whether two requirements on one key can be met by one node.

    A node without the label meets two lenient ones.
    """
    return existing.has_intersection(incoming) or (existing.lenient() and incoming.lenient())


def pod_requirements(
    node_selector: Mapping[str, str], node_affinity: NodeAffinity | None, *, preferences: bool = True
) -> Requirements:
    """Return a pod's requirements on its node: its selector, its first required term, its heaviest preferred one.

    The last only with ``preferences``: Karpenter treats it as required until it is relaxed. matchFields is ignored.
    """
    requirements = Requirements.from_labels(node_selector)
    if node_affinity is None:
        return requirements
    preferred = node_affinity.preferred_during_scheduling_ignored_during_execution
    if preferences and preferred:
        heaviest = max(preferred, key=lambda term: term.weight)
        requirements = requirements.union(Requirements.from_spec(heaviest.preference.match_expressions))
    required = node_affinity.required_during_scheduling_ignored_during_execution
    if required is not None and required.node_selector_terms:
        first = required.node_selector_terms[0]
        requirements = requirements.union(Requirements.from_spec(first.match_expressions))
    return requirements
