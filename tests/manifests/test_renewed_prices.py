"""tools/renew_aws_prices.py puts the prices of AWS's public lists into the built-in tables."""

import csv
import gzip
import io
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.chart import script

REGION = "us-east-1"


@pytest.fixture
def tool() -> ModuleType:
    """Return the script."""
    return script("renew_aws_prices")


@pytest.fixture
def data(tmp_path: Path, tool: ModuleType) -> Path:
    """Return a copy of the built-in index and of one region's table."""
    (tmp_path / "aws").mkdir()
    shutil.copy(tool.DATA / "index.csv.gz", tmp_path)
    shutil.copy(tool.DATA / "aws" / f"{REGION}.csv.gz", tmp_path / "aws")
    return tmp_path


def _table(path: Path) -> dict[str, str]:
    rows = csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode()))
    return {row["name"]: row["on_demand"] for row in rows}


def _price_list(prices: dict[str, str], **about: str) -> dict[str, Any]:
    """Return a price list as AWS publishes it, with a Windows product beside each type."""
    products, terms = {}, {}
    base = {"regionCode": REGION, "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", **about}
    for number, (name, price) in enumerate(sorted(prices.items())):
        for system, amount in (("Linux", price), ("Windows", "99")):
            sku = f"{system}{number}"
            products[sku] = {"attributes": {**base, "instanceType": name, "operatingSystem": system}}
            part = {"unit": "Hrs", "pricePerUnit": {"USD": f"{float(amount):.10f}"}}
            terms[sku] = {f"{sku}.T": {"priceDimensions": {f"{sku}.T.D": part}}}
    return {"publicationDate": "2026-11-17T20:00:00Z", "products": products, "terms": {"OnDemand": terms}}


def test_the_same_prices_change_only_the_date(data: Path, tool: ModuleType) -> None:
    """A list with the prices that are built in leaves the table as it is, to the byte."""
    path = data / "aws" / f"{REGION}.csv.gz"
    before, listed = path.read_bytes(), _table(path)
    (line,) = tool.renew(data, _price_list(listed))
    assert line == f"{REGION}: prices of 2026-11-17; 0 changed, 0 not in the list kept, 0 types unknown"
    assert gzip.decompress(path.read_bytes()) == gzip.decompress(before)
    index = gzip.decompress((data / "index.csv.gz").read_bytes()).decode().splitlines()
    assert next(row for row in index if row.startswith(f"aws,{REGION},")).split(",")[2] == "2026-11-17"
    assert sum("2026-11-17" in row for row in index) == 1


def test_new_prices_are_taken(data: Path, tool: ModuleType) -> None:
    """A price that changed is written; a type that the table doesn't have is counted."""
    path = data / "aws" / f"{REGION}.csv.gz"
    (line,) = tool.renew(data, _price_list({**_table(path), "m5.large": "0.0971", "zz9.large": "1"}))
    assert "1 changed, 0 not in the list kept, 1 types unknown" in line
    assert _table(path)["m5.large"] == "0.0971"
    assert "zz9.large" not in _table(path)


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ([], "no products and terms"),
        ({"products": {}, "terms": {}}, "publicationDate is missing"),
        (_price_list({"m5.large": "0.1"}), "it prices 1 of"),
        (_price_list({"m5.large": "0.1"}, tenancy="Dedicated"), "no Linux machine on shared hardware"),
    ],
)
def test_other_files_are_refused(tree: Any, problem: str, data: Path, tool: ModuleType) -> None:
    """A list of another service, a cut one, or one without a date changes nothing."""
    before = (data / "index.csv.gz").read_bytes(), (data / "aws" / f"{REGION}.csv.gz").read_bytes()
    with pytest.raises(tool.PriceListError, match=problem):
        tool.renew(data, tree)
    assert before == ((data / "index.csv.gz").read_bytes(), (data / "aws" / f"{REGION}.csv.gz").read_bytes())
