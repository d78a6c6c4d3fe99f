"""Requirements on node labels as sets: values, complements of values, bounds; and what two of them have in common.

The algebra of the hot path: hashable values, memoised operations. It decides whether requirements go together, as
Karpenter v1.15 does (Gt n is Gte n+1, Lt n is Lte n-1; two of NotIn and DoesNotExist never conflict). It knows nothing
of nodes or pods.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from dovetail.model import names
from dovetail.model.objects import SelectorRequirement

WELL_KNOWN: Final = frozenset(
    {
        names.NODEPOOL,
        names.ZONE,
        "topology.kubernetes.io/region",
        names.INSTANCE_TYPE,
        names.ARCH,
        names.OS,
        names.CAPACITY_TYPE,
        "node.kubernetes.io/windows-build",
    }
)
WELL_KNOWN_PREFIXES: Final = ("karpenter.k8s.aws/", "karpenter.kwok.sh/instance-")
ALIASES: Final = {
    "failure-domain.beta.kubernetes.io/zone": names.ZONE,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/arch": names.ARCH,
    "beta.kubernetes.io/os": names.OS,
    "beta.kubernetes.io/instance-type": names.INSTANCE_TYPE,
}
_INT_MAX: Final = 2**63 - 1
_EMPTY: Final[frozenset[str]] = frozenset()


class Requirement(NamedTuple):
    """The values that a label may have: `values`, or all but `values` where `complement`, within the bounds."""

    key: str
    complement: bool
    values: frozenset[str]
    gte: int | None = None
    lte: int | None = None
    min_values: int | None = None

    def has(self, value: str) -> bool:
        """Whether the value is allowed."""
        if (value in self.values) == self.complement:
            return False
        return (self.gte is None and self.lte is None) or _within(value, self.gte, self.lte)

    @property
    def excludes(self) -> bool:
        """Whether it comes down to NotIn or DoesNotExist: such a label may be missing."""
        return bool(self.values) if self.complement else not self.values

    @property
    def is_in(self) -> bool:
        """Whether it lists the allowed values."""
        return not self.complement and bool(self.values)

    @property
    def only(self) -> str | None:
        """The one allowed value, if there is just one."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 else None


Requirements = dict[str, Requirement]


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(text)
    return value if -_INT_MAX - 1 <= value <= _INT_MAX else None


def _within(text: str, gte: int | None, lte: int | None) -> bool:
    number = _integer(text)
    if number is None:
        return False
    return (gte is None or number >= gte) and (lte is None or number <= lte)


def anything(key: str) -> Requirement:
    """Any value at all: Exists."""
    return Requirement(key, True, _EMPTY)


def one_of(key: str, values: Iterable[str]) -> Requirement:
    """One of these values; DoesNotExist where there are none."""
    return Requirement(key, False, frozenset(values))


@lru_cache(maxsize=1 << 16)
def requirement(key: str, operator: str, values: tuple[str, ...], min_values: int | None = None) -> Requirement:
    """A requirement as written, with older names of labels turned into today's."""
    key = ALIASES.get(key, key)
    if operator == "In":
        return Requirement(key, False, frozenset(values), None, None, min_values)
    if operator == "DoesNotExist":
        return Requirement(key, False, _EMPTY, None, None, min_values)
    if operator == "NotIn":
        return Requirement(key, True, frozenset(values), None, None, min_values)
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        bound = (_integer(values[0]) if values else None) or 0
        if operator == "Gt":
            if bound == _INT_MAX:
                return Requirement(key, False, _EMPTY)
            return Requirement(key, True, _EMPTY, bound + 1, None, min_values)
        if operator == "Gte":
            return Requirement(key, True, _EMPTY, bound, None, min_values)
        return Requirement(key, True, _EMPTY, None, bound - 1 if operator == "Lt" else bound, min_values)
    return Requirement(key, True, _EMPTY, None, None, min_values)


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


@lru_cache(maxsize=1 << 16)
def intersection(a: Requirement, b: Requirement) -> Requirement:
    """What both allow."""
    gte, lte = _larger(a.gte, b.gte), _smaller(a.lte, b.lte)
    min_values = _larger(a.min_values, b.min_values)
    if gte is not None and lte is not None and gte > lte:
        return Requirement(a.key, False, _EMPTY, None, None, min_values)
    complement = a.complement and b.complement
    if complement:
        values = a.values | b.values
    elif a.complement:
        values = b.values - a.values
    elif b.complement:
        values = a.values - b.values
    else:
        values = a.values & b.values
    if gte is not None or lte is not None:
        values = frozenset(v for v in values if _within(v, gte, lte))
    if not complement:
        gte = lte = None
    return Requirement(a.key, complement, values, gte, lte, min_values)


@lru_cache(maxsize=1 << 16)
def agree(existing: Requirement, incoming: Requirement) -> bool:
    """Whether both have a value in common, or both may be missing."""
    gte, lte = _larger(existing.gte, incoming.gte), _smaller(existing.lte, incoming.lte)
    if gte is not None and lte is not None and gte > lte:
        common = False
    elif existing.complement and incoming.complement:
        common = True
    else:
        common = bool(intersection(existing, incoming).values)
    return common or (existing.excludes and incoming.excludes)


def intersects(existing: Mapping[str, Requirement], incoming: Mapping[str, Requirement]) -> bool:
    """Whether all keys that both name agree."""
    if len(existing) > len(incoming):
        return all(agree(existing[key], entry) for key, entry in incoming.items() if key in existing)
    return all(agree(entry, incoming[key]) for key, entry in existing.items() if key in incoming)


def first_conflict(
    existing: Mapping[str, Requirement], incoming: Mapping[str, Requirement], known: frozenset[str] = frozenset()
) -> Requirement | None:
    """The first incoming requirement (by key) that can't be met; `known` keys may be undefined."""
    for key in sorted(incoming):
        entry = incoming[key]
        if key in existing:
            if not agree(existing[key], entry):
                return entry
        elif key not in known and not entry.excludes:
            return entry
    return None


def compatible(
    existing: Mapping[str, Requirement], incoming: Mapping[str, Requirement], known: frozenset[str] = frozenset()
) -> bool:
    """Whether the incoming requirements can be met; a key that is not defined must be `known`, or excluded."""
    for key, entry in incoming.items():
        mine = existing.get(key)
        if mine is None:
            if key not in known and not entry.excludes:
                return False
        elif not agree(mine, entry):
            return False
    return True


def add(base: Requirements, more: Iterable[Requirement]) -> None:
    """Narrows `base` in place."""
    for entry in more:
        mine = base.get(entry.key)
        base[entry.key] = entry if mine is None else intersection(entry, mine)


def from_selectors(entries: Iterable[SelectorRequirement]) -> Requirements:
    """Requirements as written in a pool, a pod or a volume."""
    found: Requirements = {}
    add(found, (requirement(e.key, e.operator, e.values, e.min_values) for e in entries))
    return found


def from_labels(labels: Mapping[str, str]) -> Requirements:
    """Each label as the one value that is allowed."""
    found: Requirements = {}
    add(found, (requirement(key, "In", (value,)) for key, value in labels.items()))
    return found


def serialised(reqs: Mapping[str, Requirement]) -> tuple[SelectorRequirement, ...]:
    """The form in which Karpenter writes them, sorted by key; two bounds make two entries."""
    found: list[SelectorRequirement] = []
    for key in sorted(reqs):
        found.extend(_entries(reqs[key]))
    return tuple(found)


def _entries(entry: Requirement) -> list[SelectorRequirement]:
    def made(operator: str, values: Iterable[str] = ()) -> SelectorRequirement:
        return SelectorRequirement(
            key=entry.key, operator=operator, values=tuple(sorted(values)), min_values=entry.min_values
        )

    bounds = []
    if entry.gte is not None:
        bounds.append(made("Gte", (str(entry.gte),)))
    if entry.lte is not None:
        bounds.append(made("Lte", (str(entry.lte),)))
    if bounds:
        return bounds
    if entry.complement:
        return [made("NotIn", entry.values) if entry.values else made("Exists")]
    return [made("In", entry.values) if entry.values else made("DoesNotExist")]
