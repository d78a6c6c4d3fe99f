"""JSON forms of values that msgspec has none for: fractions and read-only mappings.

The journal and the published state use the same forms. Pure. Sits in lifecycle, below both.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any


def encode_value(value: Any) -> Any:
    """Return a value in a form that msgspec can encode: a fraction as `1/3`."""
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def decode_value(kind: type, value: Any) -> Any:
    """Return the value that `encode_value` wrote."""
    if kind is Fraction and isinstance(value, str):
        try:
            return Fraction(value)
        except ZeroDivisionError:
            raise ValueError(f"{value} is not a fraction") from None
    raise NotImplementedError(f"{kind.__name__} can't be read")
