from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.money import UNIT, as_float, at_least, format_money, parse_money

AMOUNTS = st.integers(-(10**30), 10**30)


@given(AMOUNTS)
def test_what_is_written_reads_back_the_same(amount: int) -> None:
    """Parsing a printed amount returns the same amount."""
    assert parse_money(format_money(amount)) == amount


@given(AMOUNTS, st.integers(0, 25))
def test_rounded_text_is_within_half_a_digit(amount: int, places: int) -> None:
    """Written with places, an amount is off by at most half of the last digit."""
    shown = format_money(amount, places)
    assert abs(Fraction(shown) - Fraction(amount, UNIT)) * 2 <= Fraction(1, 10**places)
    assert len(shown.partition(".")[2]) == places


@given(st.floats(0.01, 1000))
def test_a_price_survives_as_float_and_back(price: float) -> None:
    """The eighteen places tell apart all prices from a cent an hour on that floats tell apart."""
    assert abs(Fraction(parse_money(price), UNIT) - Fraction(Decimal(repr(price)))) * 2 <= Fraction(1, UNIT)
    assert as_float(parse_money(price)) == price


@given(st.integers(0, 10**20), st.integers(0, 10**18), st.fractions(0, 100))
def test_the_threshold_gate_is_monotone_and_tight(savings: int, threshold: int, cost: Fraction) -> None:
    """More savings never close the gate, and it opens exactly at threshold x cost."""
    opened = at_least(savings, threshold, cost)
    assert opened == (savings * cost.denominator >= threshold * cost.numerator)
    assert not opened or at_least(savings + 1, threshold, cost)
