"""Label selectors, compiled: which labels a selector matches.

Doesn't know which objects carry the labels. Sits above `model.objects`, whose written forms it compiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dovetail.model.objects import LabelSelectorSpec, SelectorRequirement


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled label selector: equal selectors are equal values.

    ``nothing``: the selector is null, or can't be read; then ``problem`` says why.
    """

    equal: tuple[tuple[str, str], ...] = ()
    expressions: tuple[tuple[str, bool, frozenset[str], bool], ...] = ()
    """Each as (key, whether the value must be among the values, the values, whether the label may be missing)."""
    nothing: bool = False
    problem: str | None = None

    @staticmethod
    def compile(spec: LabelSelectorSpec | None) -> LabelSelector:
        """Compile a selector as written: null matches nothing, an empty one everything."""
        if spec is None:
            return MATCHES_NOTHING
        expressions = []
        for entry in spec.match_expressions:
            values = frozenset(entry.values)
            match entry.operator:
                case "In" | "NotIn" if values:
                    wanted = entry.operator == "In"
                    expressions.append((entry.key, wanted, values, not wanted))
                case "Exists" | "DoesNotExist" if not values:
                    # Exists: no value is excluded; DoesNotExist: no value is allowed.
                    missing = entry.operator == "DoesNotExist"
                    expressions.append((entry.key, missing, values, missing))
                case _:
                    return LabelSelector(nothing=True, problem=_selector_problem(entry))
        expressions.sort(key=lambda entry: (entry[0], entry[1], entry[3], sorted(entry[2])))
        return LabelSelector(equal=tuple(sorted(spec.match_labels.items())), expressions=tuple(expressions))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        if self.nothing:
            return False
        for key, value in self.equal:
            if labels.get(key) != value:
                return False
        for key, wanted, values, missing in self.expressions:
            found = labels.get(key)
            if found is None:
                if not missing:
                    return False
            elif (found in values) != wanted:
                return False
        return True

    def with_equal(self, pairs: Iterable[tuple[str, str]]) -> LabelSelector:
        """Return the selector that also requires these labels, as matchLabelKeys adds them."""
        return msgspec.structs.replace(self, equal=tuple(sorted({*self.equal, *pairs})))


MATCHES_NOTHING: Final = LabelSelector(nothing=True)


MATCHES_EVERYTHING: Final = LabelSelector()


def _selector_problem(entry: SelectorRequirement) -> str:
    if entry.operator in {"In", "NotIn"}:
        return f"operator {entry.operator} on {entry.key} needs values; write at least one"
    if entry.operator in {"Exists", "DoesNotExist"}:
        return f"operator {entry.operator} on {entry.key} takes no values; leave them out"
    return f"{entry.operator!r} on {entry.key} is not an operator; write In, NotIn, Exists or DoesNotExist"
