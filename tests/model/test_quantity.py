import json

import pytest

from dovetail.model.quantity import AMOUNT_MAX, QuantityError, format_amount, milli, resource_amount, value
from tests.paths import ROOT

ANSWERS = json.loads((ROOT / "tests/golden/data/quantities.json").read_text())


@pytest.mark.parametrize(("text", "units", "thousandths"), ANSWERS)
def test_every_text_is_read_as_kubernetes_reads_it(text: str, units: object, thousandths: object) -> None:
    """Value and MilliValue agree with apimachinery; what wraps around there stays at the largest amount here."""
    if units is None:
        with pytest.raises(QuantityError):
            value(text)
        with pytest.raises(QuantityError):
            milli(text)
        return
    for ours, theirs in ((value(text), units), (milli(text), thousandths)):
        if theirs == "beyond":
            assert abs(ours) == AMOUNT_MAX
        else:
            assert ours == theirs


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "600m", 600),
        ("cpu", "1.5", 1500),
        ("cpu", 2, 2000),
        ("cpu", 0.1, 100),
        ("memory", "100m", 1),
        ("memory", "1.5Gi", 3 << 29),
        ("hugepages-2Mi", "1Gi", 1 << 30),
        ("pods", "110", 110),
        ("nvidia.com/gpu", 8, 8),
    ],
)
def test_cpu_counts_in_millicores_and_all_else_in_units(resource: str, text: str | int | float, amount: int) -> None:
    """The resource's name alone decides the unit; numbers from YAML are read like texts."""
    assert resource_amount(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 600, "600m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("cpu", -1500, "-1500m"),
        ("memory", 2 << 30, "2Gi"),
        ("memory", 1536 << 20, "1536Mi"),
        ("memory", 1573741824, "1573741824"),
        ("memory", -1024, "-1Ki"),
        ("ephemeral-storage", 0, "0"),
        ("hugepages-2Mi", 2 << 20, "2Mi"),
        ("pods", 1024, "1024"),
    ],
)
def test_amounts_are_written_in_the_largest_unit_that_divides_them(resource: str, amount: int, text: str) -> None:
    """Canonical text: m for cpu, binary suffixes for bytes, plain numbers for counts."""
    assert format_amount(resource, amount) == text


@pytest.mark.parametrize("text", ["", " 1", "1 Gi", "1gb", "ten", True, float("nan"), float("inf")])
def test_a_refusal_names_the_value_and_a_remedy(text: str | float) -> None:
    """A text that is no quantity is refused with the value and an example."""
    with pytest.raises(QuantityError, match="is not a quantity; write a number such as") as caught:
        value(text)
    assert repr(text) in str(caught.value)


def test_a_huge_exponent_costs_nothing() -> None:
    """A huge exponent gives the maximum or the smallest unit at once."""
    assert value("1e999999999") == AMOUNT_MAX
    assert value("1e-999999999") == 1
    assert value("0e999999999") == 0
