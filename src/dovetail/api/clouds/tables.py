"""The packed tables of instance types and prices, and the index of the regions that they cover.

One small gzip per region, read only when that region is asked for. `tools/catalogue/build.py` writes them from the
sources named in NOTICE-catalogue.md. Knows columns as text; the modules of the clouds know what they mean.
"""

import functools
from collections.abc import Callable

import msgspec

from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.money import parse_money
from dovetail.model.objects import SelectorRequirement

Row = dict[str, str]


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """A region with a built-in table: its date, its number of types, and what is not known about it."""

    cloud: str
    name: str
    as_of: str
    types: int
    gaps: str

    @property
    def catalogue(self) -> str:
        """Return the value for `--catalog`."""
        return f"{self.cloud}:{self.name}"


@functools.cache
def regions() -> tuple[Region, ...]:
    """Return every region with a built-in table, by cloud and name."""
    return tuple(
        Region(cloud=row["cloud"], name=row["region"], as_of=row["as_of"], types=int(row["types"]), gaps=row["gaps"])
        for row in rows("index")
    )


def region_of(cloud: str, name: str) -> Region | None:
    """Return a region of a cloud, or None if there is no table for it."""
    return next((region for region in regions() if (region.cloud, region.name) == (cloud, name)), None)


def rows(table: str) -> list[Row]:
    """Read a table, such as `aws/us-east-1`."""
    import csv
    import gzip
    import io
    from importlib import resources  # imported here: most commands name a catalogue, and starting them takes less

    *folders, name = table.split("/")
    path = resources.files("dovetail.api.clouds").joinpath("data", *folders, f"{name}.csv.gz")
    return list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))


def built_in(cloud: str, region: str, title: str, build: Callable[[Row, Row], InstanceType]) -> Catalogue:
    """Return the table of one region, each type built from its specification and its row; raise KeyError if none."""
    found = region_of(cloud, region)
    if found is None:
        raise KeyError(region)
    specifications = {row["name"]: row for row in rows(f"{cloud}/types")}
    types = [build(specifications[row["name"]], row) for row in rows(f"{cloud}/{region}")]
    return Catalogue(
        instance_types=tuple(sorted(types, key=lambda entry: entry.name)),
        source=f"built-in {title} table of {region}",
        as_of=found.as_of,
    )


def one_of(key: str, value: str) -> SelectorRequirement:
    """Build the requirement that a label has one value."""
    return SelectorRequirement(key=key, operator="In", values=(value,))


def any_of(key: str, values: set[str]) -> SelectorRequirement:
    """Build the requirement that a label has one of several values."""
    return SelectorRequirement(key=key, operator="In", values=tuple(sorted(values)))


def label(key: str, value: str) -> SelectorRequirement:
    """Build the requirement of a label whose column is empty or 0 if the type does not have it."""
    if value and value != "0":
        return one_of(key, value)
    return SelectorRequirement(key=key, operator="DoesNotExist")


def offering(capacity_type: str, zone: str, price: str) -> Offering:
    """Build an offering from its price as text."""
    return Offering(capacity_type=capacity_type, zone=zone, price=parse_money(price), price_float=float(price))


def graded(amount: int, brackets: tuple[tuple[int | None, int], ...]) -> list[int]:
    """Return the sum over the brackets (upper bound or None, share in ten-thousandths) of an amount, times 10,000."""
    taken, lower = [], 0
    for upper, rate in brackets:
        top = amount if upper is None else min(amount, upper)
        taken.append(max(top - lower, 0) * rate)
        lower = top
    return taken
