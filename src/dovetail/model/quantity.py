"""Resource quantities as exact integers: cpu in millicores, everything else in base units (bytes, counts).

Parses texts such as ``1500m``, ``2Gi`` or ``1e3`` with Kubernetes' own suffixes and rounding: never less than was
requested, so fractions of the unit round away from zero. Knows nothing of pods or nodes. Sits at the bottom of the
model and is called for every container of every pod, hence memoised by text.

Where Kubernetes' 64-bit arithmetic wraps around (amounts beyond 2^63, and some negative ones), the amount here is exact
or the largest 64-bit integer. There are no other differences.
"""

from __future__ import annotations

import re
from functools import lru_cache

AMOUNT_MAX = 2**63 - 1
"""The largest amount; larger ones are read as this, so that every amount fits a 64-bit column."""

_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Kubernetes' own parser reads a number without digits ("m", ".") as zero, and so does this; it refuses an empty text.
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
)
_LONGEST = 1000
"""Longer texts are nobody's amount, and Python refuses to read numbers of more than some 4,000 digits."""
_BYTES = frozenset({"memory", "ephemeral-storage", "storage"})


class QuantityError(ValueError):
    """A text that is not a quantity; the message says what to write instead."""

    def __init__(self, value: object) -> None:
        self.value = value
        super().__init__(f"{repr(value)[:80]} is not a quantity; write a number such as 500m, 2, 1.5Gi or 1e3")


def _scaled(text: str | int | float, scale: int) -> int:
    """Return the quantity times ten to the ``scale``, rounded away from zero and kept within 64 bits."""
    if isinstance(text, bool):
        raise QuantityError(text)
    # The shortest text of a float is what its author wrote: 0.1 is a tenth, not 0.1000000000000000055.
    shown = text if isinstance(text, str) else repr(text)
    match = _QUANTITY.fullmatch(shown)
    if not shown or match is None or len(shown) > _LONGEST:
        raise QuantityError(text)
    part = match["part"] or ""
    mantissa = int((match["whole"] + part) or "0")
    suffix = match["suffix"] or ""
    binary = _BINARY_EXPONENTS.get(suffix)
    exponent = scale - len(part)
    if binary is not None:
        mantissa <<= binary
    else:
        exponent += int(match["exponent"] or _DECIMAL_EXPONENTS[suffix])
    # Beyond these bounds the answer is the cap or the smallest unit anyway; "1e999999999" must not cost memory.
    exponent = max(-len(shown) - 64, min(exponent, 64))
    power: int = 10 ** abs(exponent)
    amount = min(mantissa * power if exponent >= 0 else -(-mantissa // power), AMOUNT_MAX)
    return -amount if match["sign"] == "-" else amount


@lru_cache(maxsize=1 << 16, typed=True)
def milli(text: str | int | float) -> int:
    """Return thousandths of the quantity, rounded up, as cpu is counted."""
    return _scaled(text, 3)


@lru_cache(maxsize=1 << 16, typed=True)
def value(text: str | int | float) -> int:
    """Return whole units of the quantity, rounded up, as memory and counts are."""
    return _scaled(text, 0)


def resource_amount(resource: str, text: str | int | float) -> int:
    """Return the amount of a named resource in the unit that Dovetail uses for it."""
    return milli(text) if resource == "cpu" else value(text)


def format_amount(resource: str, amount: int) -> str:
    """Return the shortest exact way to write an amount; ``resource_amount`` reads it back."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and (resource in _BYTES or resource.startswith("hugepages-")):
        for suffix, exponent in reversed(_BINARY_EXPONENTS.items()):
            if amount % (1 << exponent) == 0:
                return f"{amount >> exponent}{suffix}"
    return str(amount)
