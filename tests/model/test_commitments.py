"""Bills under commitments: the worked examples of docs/commitments.md, to the last digit, and what must always hold."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.commitments import BilledMachine, Bills, Commitment, CommitmentKind, family_of, units_of
from dovetail.model.money import UNIT, format_money, parse_money
from tests.paths import ROOT

ON_DEMAND, SPOT = "on-demand", "spot"


def machine(
    name: str, price: str, *, capacity: str = ON_DEMAND, region: str = "us-east-1", extra: str = "0"
) -> BilledMachine:
    """Return a machine of a type."""
    return BilledMachine(
        instance_type=name,
        capacity_type=capacity,
        price=parse_money(price),
        extra=parse_money(extra),
        region=region,
        family=family_of(name),
        units=units_of(name, 2000),
    )


def reserved(name: str, count: str, *what: str, families: bool = False, region: str = "", **rates: str) -> Commitment:
    """Return reserved instances of types, or of families."""
    return Commitment(
        name=name,
        kind=CommitmentKind.RESERVED_INSTANCES,
        region=region,
        instance_types=() if families else what,
        families=what if families else (),
        count=Fraction(count),
        rates=tuple((key.replace("_", "."), parse_money(rate)) for key, rate in rates.items()),
    )


def plan(name: str, hourly: str, off: str = "", *families: str, region: str = "", **rates: str) -> Commitment:
    """Return a savings plan for everything, or for families; `off` in percent, or rates by type."""
    return Commitment(
        name=name,
        kind=CommitmentKind.SAVINGS_PLAN,
        region=region,
        families=families,
        hourly=parse_money(hourly),
        percent_off=Fraction(off) / 100 if off else None,
        rates=tuple((key.replace("_", "."), parse_money(rate)) for key, rate in rates.items()),
    )


def total(commitments: list[Commitment], *machines: BilledMachine) -> str:
    """Return the bill of some machines, in dollars."""
    amount = Bills(commitments).bill(Counter(machines)).total
    assert amount.denominator == 1
    return format_money(int(amount))


M_LARGE = machine("m5.large", "0.096")
M_XLARGE = machine("m5.xlarge", "0.192")
C_LARGE = machine("c5.large", "0.085")
M_SPOT = machine("m5.large", "0.035", capacity=SPOT)

THREE_AND_TWO = [reserved("ri", "2", "m5.large")]
HALF = [plan("sp", "0.0480", "50")]
FLEXIBLE = [reserved("flex", "12", "m5", families=True)]
ORDER = [
    plan("everything", "0.05", "", m5_large="0.070", m5_xlarge="0.140", c5_large="0.060"),
    plan("m5-plan", "0.06", "", "m5", m5_large="0.060", m5_xlarge="0.120"),
    reserved("m5-large", "1", "m5.large"),
]

EXAMPLES: dict[str, tuple[list[Commitment], list[BilledMachine], str]] = {
    "three nodes, two reservations": (THREE_AND_TWO, [M_LARGE] * 3, "0.096"),
    "one of them gone": (THREE_AND_TWO, [M_LARGE] * 2, "0"),
    "two of them gone: no further savings": (THREE_AND_TWO, [M_LARGE], "0"),
    "all gone: no further savings": (THREE_AND_TWO, [], "0"),
    "reservations that say what they cost": (
        [reserved("ri", "2", "m5.large", m5_large="0.06")],
        [M_LARGE] * 3,
        "0.216",
    ),
    "a plan that covers half": (HALF, [M_LARGE] * 2, "0.144"),
    "half, one gone: the other half is all that is left": (HALF, [M_LARGE], "0.048"),
    "half, both gone: the plan is paid for anyway": (HALF, [], "0.048"),
    "a plan that covers part of a machine": ([plan("sp", "0.024", "50")], [M_LARGE], "0.072"),
    "flexible: 12 units are a large and an xlarge": (FLEXIBLE, [M_LARGE, M_XLARGE], "0"),
    "flexible: three large": (FLEXIBLE, [M_LARGE] * 3, "0"),
    "flexible: two xlarge, one and a half covered": (FLEXIBLE, [M_XLARGE] * 2, "0.096"),
    "flexible: the smallest first": (FLEXIBLE, [M_XLARGE] * 2 + [M_LARGE], "0.192"),
    "flexible: another family is not covered": (FLEXIBLE, [C_LARGE], "0.085"),
    "a plan that becomes free makes another type cheaper": (HALF, [M_XLARGE], "0.144"),
    "the same without the large one beside it": (HALF, [M_LARGE, M_XLARGE], "0.24"),
    "spot is never covered": (THREE_AND_TWO, [M_SPOT], "0.035"),
    "two plans and a reservation: the reservation first": (ORDER, [M_LARGE], "0.11"),
    "then the plan of the family": (ORDER, [M_LARGE] * 2, "0.11"),
    "then the plan for everything": (ORDER, [M_LARGE] * 3, "0.137428571428571428"),
    "no commitments at all": ([], [M_LARGE, M_SPOT], "0.131"),
}


@pytest.mark.parametrize("case", EXAMPLES)
def test_worked_examples(case: str) -> None:
    """What an hour of these machines costs."""
    commitments, machines, wanted = EXAMPLES[case]
    amount = Bills(commitments).bill(Counter(machines)).total
    assert format_money(round(amount - Fraction(1, 2)) if amount.denominator > 1 else int(amount)) == wanted


DOCUMENTED: list[tuple[list[Commitment], list[BilledMachine]]] = [
    *((THREE_AND_TWO, [M_LARGE] * count) for count in (3, 2, 1)),
    *((HALF, [M_LARGE] * count) for count in (2, 1, 0)),
    ([plan("sp", "0.024", "50")], [M_LARGE]),
    (FLEXIBLE, [M_LARGE, M_XLARGE]),
    (FLEXIBLE, [M_XLARGE] * 2),
    (FLEXIBLE, [M_XLARGE] * 2 + [M_LARGE]),
    (HALF, [M_LARGE, M_XLARGE]),
    (HALF, [M_XLARGE]),
    *((ORDER, [M_LARGE] * count) for count in (1, 2, 3)),
]


def test_the_table_of_the_docs_is_what_bills_are() -> None:
    """Each row of the worked examples in docs/commitments.md has the bill that these machines get."""
    page = (ROOT / "docs" / "commitments.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.partition("## Worked examples")[2].splitlines() if line.startswith("|")]
    bills = [row[3].strip().removeprefix("$") for row in rows[2:]]
    made = [Bills(commitments).bill(Counter(machines)).total for commitments, machines in DOCUMENTED]
    assert [f"{float(amount) / UNIT:.4f}" for amount in made] == [f"{float(text):.4f}" for text in bills]


def test_the_greatest_percentage_off_is_covered_first() -> None:
    """Of two types a plan covers the one with the greater percentage off, whatever they are called."""
    rates = {"a1_large": "0.09", "z1_large": "0.05"}
    dear, cheap = machine("a1.large", "0.1"), machine("z1.large", "0.1")
    bill = Bills([plan("sp", "0.05", "", **rates)]).bill({dear: 1, cheap: 1})
    assert bill.covered == {cheap: (("sp", Fraction(1)),)}
    assert bill.uncovered == dear.price


def test_of_the_same_percentage_the_lowest_rate_is_covered_first() -> None:
    """With the same percentage off the cheaper type is covered first; the bill is the same either way."""
    bill = Bills([plan("sp", "0.048", "50")]).bill({M_LARGE: 1, M_XLARGE: 1})
    assert bill.covered == {M_LARGE: (("sp", Fraction(1)),)}


def test_names_break_ties_between_plans() -> None:
    """Of two plans with the same rates the one with the first name is used first."""
    bill = Bills([plan("b", "0.048", "50"), plan("a", "0.048", "50")]).bill({M_LARGE: 1})
    assert [(use.commitment.name, use.used) for use in bill.uses] == [("b", 0), ("a", parse_money("0.048"))]


def test_another_region_is_not_covered() -> None:
    """A commitment of one region covers nothing in another; without a region it covers any."""
    far = machine("m5.large", "0.096", region="eu-west-1")
    near = reserved("ri", "1", "m5.large", region="us-east-1")
    assert total([near], far) == "0.096"
    assert total([near], M_LARGE) == "0"
    assert total([reserved("ri", "1", "m5.large")], far) == "0"


def test_a_surcharge_is_paid_for_covered_machines_too() -> None:
    """What comes on top of a price is never covered."""
    assert total(THREE_AND_TWO, machine("m5.large", "0.096", extra="0.01152")) == "0.01152"


def test_a_type_without_a_rate_is_not_covered() -> None:
    """A plan with rates by type covers only the types that it has a rate for."""
    assert total([plan("sp", "1", "", m5_large="0.06")], C_LARGE) == "1.085"


@pytest.mark.parametrize(
    ("name", "cpu", "units"),
    [
        ("t3.nano", 2000, Fraction(1, 4)),
        ("t3.micro", 2000, Fraction(1, 2)),
        ("t3.small", 2000, Fraction(1)),
        ("t3.medium", 2000, Fraction(2)),
        ("m5.large", 2000, Fraction(4)),
        ("m5.xlarge", 4000, Fraction(8)),
        ("m5.24xlarge", 96000, Fraction(192)),
        ("m7i.metal-24xl", 96000, Fraction(192)),
        ("c5.metal", 96000, Fraction(192)),
        ("n2-standard-4", 4000, Fraction(8)),
    ],
)
def test_normalisation_factors(name: str, cpu: int, units: Fraction) -> None:
    """A small machine is one unit, each xlarge eight; other sizes go by their CPUs."""
    assert units_of(name, cpu) == units


TYPES = [M_LARGE, M_XLARGE, C_LARGE, M_SPOT, machine("c5.xlarge", "0.17"), machine("t3.medium", "0.0416")]
SETS = st.lists(st.sampled_from(TYPES), max_size=12)
COMMITMENTS = st.lists(
    st.sampled_from(
        [*THREE_AND_TWO, *HALF, *FLEXIBLE, *ORDER, plan("c5-plan", "0.1", "40", "c5"), plan("big", "2", "28")]
    ),
    max_size=4,
    unique_by=lambda entry: entry.name,
)


@given(SETS, COMMITMENTS)
def test_a_bill_is_never_less_than_committed_nor_more_than_on_demand(
    machines: list[BilledMachine], commitments: list[Commitment]
) -> None:
    """The bill is at least what is committed, and at most that and the on-demand price of everything."""
    bill = Bills(commitments).bill(Counter(machines))
    assert bill.committed <= bill.total <= bill.committed + sum(entry.price for entry in machines)
    assert all(0 <= use.used <= use.available for use in bill.uses)
    for entry, parts in bill.covered.items():
        assert 0 < sum(part for _, part in parts) <= machines.count(entry)


@given(SETS, COMMITMENTS, st.sampled_from(TYPES))
def test_one_more_machine_never_lowers_the_bill(
    machines: list[BilledMachine], commitments: list[Commitment], more: BilledMachine
) -> None:
    """A machine that goes saves nothing or something, and never more than its price at every rate together."""
    bills = Bills(commitments)
    before, after = bills.total(Counter(machines)), bills.total(Counter([*machines, more]))
    assert before <= after


def test_what_is_asked_twice_is_the_same() -> None:
    """A bill that was made before is remembered, and equals one that is made anew."""
    bills = Bills(ORDER)
    counts = Counter([M_LARGE] * 5)
    assert bills.total(counts) == bills.total(counts) == Bills(ORDER).bill(counts).total
    assert UNIT == 10**18
