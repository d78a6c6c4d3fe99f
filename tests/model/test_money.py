from decimal import Decimal
from fractions import Fraction

import pytest

from dovetail.model.money import (
    UNIT,
    MoneyError,
    as_float,
    at_least,
    format_money,
    nearest,
    parse_money,
    required,
    times,
)


@pytest.mark.parametrize(
    ("value", "dollars"),
    [
        ("0.096", Fraction(96, 1000)),
        (0.1, Fraction(1, 10)),
        (0.0116, Fraction(116, 10000)),
        (1e-05, Fraction(1, 100000)),
        (3, Fraction(3)),
        (Decimal("0.30"), Fraction(3, 10)),
        ("1e2", Fraction(100)),
        ("-0.5", Fraction(-1, 2)),
        (0.0, Fraction(0)),
        ("1e-99999999", Fraction(0)),
    ],
)
def test_amounts_are_read_exactly(value: str | float | int | Decimal, dollars: Fraction) -> None:
    """A float is the decimal that its author wrote; texts, integers and decimals are what they say."""
    assert parse_money(value) == dollars * UNIT


@pytest.mark.parametrize("value", ["", "ten", "$1", "1,5", "nan", float("inf"), "1e999999999", True, "0x1"])
def test_a_refusal_names_the_value_and_a_remedy(value: str | float) -> None:
    """A text that is no amount is refused with an example."""
    with pytest.raises(MoneyError, match="is not an amount of dollars; write a decimal number"):
        parse_money(value)


def test_digits_beyond_the_eighteenth_place_are_rounded_half_to_even() -> None:
    """Amounts are rounded to 10^-18 dollars, half to even."""
    assert parse_money("0.0000000000000000015") == 2
    assert parse_money("0.0000000000000000025") == 2
    assert parse_money("0.00000000000000000251") == 3


@pytest.mark.parametrize(
    ("text", "places", "shown"),
    [
        ("0.1234", None, "0.1234"),
        ("0.10", None, "0.1"),
        ("5", None, "5"),
        ("0", None, "0"),
        ("-0.05", None, "-0.05"),
        ("0.000000000000000001", None, "0.000000000000000001"),
        ("1234567", None, "1234567"),
        ("0.1234", 2, "0.12"),
        ("0.125", 2, "0.12"),
        ("0.135", 2, "0.14"),
        ("2", 4, "2.0000"),
        ("2.5", 0, "2"),
        ("-0.001", 2, "0.00"),
        ("1", 20, "1.00000000000000000000"),
    ],
)
def test_amounts_are_written_plainly(text: str, places: int | None, shown: str) -> None:
    """No exponent, no trailing zeros; with places exactly that many digits, half to even."""
    assert format_money(parse_money(text), places) == shown


def test_savings_that_equal_the_threshold_are_enough() -> None:
    """Savings-threshold: 1.00 - 0.90 is 0.10 and reaches a required 0.10; binary floats would say no."""
    savings = parse_money(1.00) - parse_money(0.90)
    assert savings >= parse_money(0.10)
    assert 1.00 - 0.90 < 0.10
    assert at_least(savings, parse_money("0.01"), 10)
    assert not at_least(savings - 1, parse_money("0.01"), 10)


def test_threshold_times_cost_is_exact() -> None:
    """0.01 dollars a unit at a cost of 5 is 0.05 dollars; thirds stay thirds until they are written."""
    assert format_money(times(Decimal("0.01"), 5.0)) == "0.05"
    assert required(parse_money("0.01"), Fraction(5)) == parse_money("0.05")
    third = required(parse_money("0.01"), Fraction(1, 3))
    assert third * 3 == parse_money("0.01")
    assert format_money(nearest(third), 6) == "0.003333"
    assert not at_least(nearest(third), parse_money("0.01"), Fraction(1, 3))


def test_floats_for_plots_are_the_nearest() -> None:
    """The float of an amount is the one that the same decimal gives."""
    assert as_float(parse_money("0.096")) == 0.096
