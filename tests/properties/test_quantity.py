from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.quantity import AMOUNT_MAX, format_amount, milli, resource_amount, value

RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "example.com/gpu"])
SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
SUFFIXES |= {name: Fraction(1000) ** (place + 1) for place, name in enumerate("kMGTPE")}
SUFFIXES |= {name + "i": Fraction(1024) ** (place + 1) for place, name in enumerate("KMGTPE")}


@given(RESOURCES, st.integers(-AMOUNT_MAX, AMOUNT_MAX))
def test_what_is_written_reads_back_the_same(resource: str, amount: int) -> None:
    """Parsing a printed quantity returns the same quantity, for every resource."""
    assert resource_amount(resource, format_amount(resource, amount)) == amount


@given(st.decimals(0, 10**12, allow_nan=False, places=6), st.sampled_from(sorted(SUFFIXES)))
def test_amounts_are_the_smallest_integer_not_below_the_exact_value(number: object, suffix: str) -> None:
    """Amounts round up by less than one unit, for any suffix."""
    exact = Fraction(str(number)) * SUFFIXES[suffix]
    for ours, wanted in ((value(f"{number}{suffix}"), exact), (milli(f"{number}{suffix}"), exact * 1000)):
        assert ours == AMOUNT_MAX or wanted <= ours < wanted + 1
        assert ours <= AMOUNT_MAX
