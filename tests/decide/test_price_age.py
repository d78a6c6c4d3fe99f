"""How old prices are, in days and in words."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from dovetail.decide.document import price_age_days
from dovetail.model.catalogue import Catalogue
from dovetail.plan.summary import prices_text

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("date", "days"),
    [("2026-08-22", 88), ("2026-11-18", 0), ("2026-11-17T11:00:00Z", 1), ("2026-12-01", None), ("", None), ("x", None)],
)
def test_days(date: str, days: int | None) -> None:
    """Whole days; a table without a date, or with one to come, has no age."""
    assert price_age_days(date, NOW) == days


def test_words() -> None:
    """The last line of a plan names the table, its date and its age."""
    table = Catalogue(instance_types=(), source="my table", as_of="2026-11-17")
    assert prices_text(table, NOW) == "Prices: my table, of 2026-11-17. They are 1 day old."
    assert prices_text(replace(table, as_of="2026-11-18"), NOW) == "Prices: my table, of 2026-11-18."
    assert prices_text(replace(table, as_of=""), NOW) == ""
