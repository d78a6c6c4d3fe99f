"""tools/renew_cloud_prices.py puts prices of Azure and Google Cloud into the built-in tables."""

import csv
import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tools import renew_cloud_prices as tool

from tests.paths import ROOT

LISTS = ROOT.parent / "shared" / "catalog" / "clouds"
HOME = {"azure": "westeurope", "gcp": "europe-west1"}
FILES = {"azure": "azure-prices-2026-06-18.csv.gz", "gcp": "gcp-prices-2026-08-03.csv.gz"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a copy of the built-in index and tables."""
    shutil.copy(tool.DATA / "index.csv.gz", tmp_path)
    for cloud in tool.CLOUDS:
        shutil.copytree(tool.DATA / cloud, tmp_path / cloud)
    return tmp_path


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def _rows(path: Path) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in csv.DictReader(io.StringIO(_text(path)))}


@pytest.mark.parametrize("cloud", tool.CLOUDS)
def test_the_lists_that_the_tables_were_made_from(data: Path, cloud: str) -> None:
    """They change the date of every region and no price."""
    source = LISTS / FILES[cloud]
    if not source.exists():
        pytest.skip(f"{source.name} is not here")
    before = {path.name: _text(path) for path in (data / cloud).glob("*.csv.gz")}
    said = tool.renew(data, cloud, "2026-11-18", tool.read(cloud, [source]))
    assert len(said) > 40
    assert all("; 0 changed, 0 not in the list kept" in line or "no built-in table" in line for line in said)
    assert {path.name: _text(path) for path in (data / cloud).glob("*.csv.gz")} == before
    index = [row.split(",") for row in _text(data / "index.csv.gz").splitlines()]
    assert {row[2] for row in index if row[0] == cloud} == {"2026-11-18"}
    assert "2026-11-18" not in {row[2] for row in index if row[0] != cloud}


def _item(name: str, price: float, **more: Any) -> dict[str, Any]:
    """Return an entry as Azure's Retail Prices API answers it."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": HOME["azure"],
        "location": "EU West",
        "effectiveStartDate": "2026-11-01T00:00:00Z",
        "meterName": name.removeprefix("Standard_").replace("_", " "),
        "productName": "Virtual Machines Dsv5 Series",
        "skuName": name.removeprefix("Standard_").replace("_", " "),
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": name,
        **more,
    }


def test_pages_of_azures_api(data: Path) -> None:
    """Linux counts, at the lower of two meters; spot beside it; Windows, low priority and reservations don't."""
    path = data / "azure" / f"{HOME['azure']}.csv.gz"
    listed = _rows(path)
    items = []
    for name, row in listed.items():
        price = float(row["on_demand"])
        items += [_item(name, price * 2), _item(name, price * 3)]
        items.append(_item(name, 99.0, productName="Virtual Machines Dsv5 Series Windows"))
        items.append(_item(name, 0.001, skuName=f"{name} Low Priority"))
        items.append(_item(name, 0.002, type="Reservation"))
        items.append(_item(name, price / 8, skuName=f"{name} Spot"))
    half = len(items) // 2
    pages = [{"BillingCurrency": "USD", "Items": part, "Count": len(part)} for part in (items[:half], items[half:])]
    (line,) = tool.renew(data, "azure", "2026-11-18", tool.from_retail(pages))
    assert f"{len(listed)} changed, 0 not in the list kept, 0 types unknown" in line
    for name, row in _rows(path).items():
        assert float(row["on_demand"]) == pytest.approx(2 * float(listed[name]["on_demand"]))
        if listed[name]["spot"]:
            assert float(row["spot"]) == pytest.approx(float(listed[name]["on_demand"]) / 8)


def test_googles_map(data: Path, tmp_path: Path) -> None:
    """The form in which Karpenter's provider for Google Cloud publishes them; spot prices stay."""
    path = data / "gcp" / f"{HOME['gcp']}.csv.gz"
    listed = _rows(path)
    source = tmp_path / "initial-on-demand-prices.json"
    tree = {HOME["gcp"]: {name: float(row["on_demand"]) * 2 for name, row in listed.items()}, "moon-1": {"n1": 1}}
    source.write_text(json.dumps(tree))
    said = tool.renew(data, "gcp", "2026-11-18", tool.read("gcp", [source]))
    assert said[-1] == "moon-1: there is no built-in table; left out"
    assert {name: row["spot"] for name, row in _rows(path).items()} == {n: row["spot"] for n, row in listed.items()}
    assert all(float(row["on_demand"]) > float(listed[name]["on_demand"]) for name, row in _rows(path).items())


BAD: dict[str, tuple[str, Any, str]] = {
    "no items": ("azure", {"products": {}}, "it has no Items; give a page of Azure's Retail Prices API"),
    "another currency": ("azure", {"Items": [_item("Standard_D2s_v5", 1, currencyCode="EUR")]}, "currencyCode is EUR"),
    "only Windows": ("azure", {"Items": [_item("x", 1, productName="Windows")]}, "it has no machine"),
    "a few types": ("gcp", {HOME["gcp"]: {"n2-standard-4": 0.2}}, "it prices 1 of"),
    "no map": ("gcp", [1], "it is no map from region"),
    "a price that is none": ("gcp", {HOME["gcp"]: {"n2-standard-4": -1}}, "europe-west1.n2-standard-4 is -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_lists_that_can_not_be_used(case: str, data: Path, tmp_path: Path) -> None:
    """One sentence, and nothing is written."""
    cloud, tree, wanted = BAD[case]
    source = tmp_path / "list.json"
    source.write_text(json.dumps(tree))
    before = {path: path.read_bytes() for path in data.rglob("*.csv.gz")}
    with pytest.raises(tool.PriceListError, match=wanted):
        tool.renew(data, cloud, "2026-11-18", tool.read(cloud, [source]))
    assert {path: path.read_bytes() for path in data.rglob("*.csv.gz")} == before


def test_a_table_without_its_columns_and_a_day_that_is_none(data: Path) -> None:
    """Both are named."""
    with pytest.raises(tool.PriceListError, match="lacks the columns region, name and on_demand"):
        tool.from_table("a,b\n1,2\n")
    with pytest.raises(tool.PriceListError, match="--date is 'today'"):
        tool.renew(data, "gcp", "today", {"europe-west1": {}})
