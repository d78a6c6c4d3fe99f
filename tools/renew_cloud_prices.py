"""Renew the prices of the built-in Azure and Google Cloud tables from public price lists.

Anybody can run it. Azure's Retail Prices API needs no account; it answers in pages, one file each:

    curl -G https://prices.azure.com/api/retail/prices -d '$filter=serviceName eq %27Virtual Machines%27' > page-1.json
    python -m tools.renew_cloud_prices azure --date 2026-11-18 page-*.json

For Google Cloud give a table with the columns region, name, on_demand and spot (`.csv` or `.csv.gz`; the other clouds'
tables are read as well), or JSON such as `{"europe-west1": {"n2-standard-4": 0.2136}}`, the form in which
cloudpilot-ai/karpenter-provider-gcp publishes its prices:

    python -m tools.renew_cloud_prices gcp --date 2026-11-18 initial-on-demand-prices.json

Only prices and their date change. Types and zones stay as they are (`tools/catalogue/build.py` makes those).
"""

import argparse
import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from tools.renew_aws_prices import COVERED_MIN, DATA, PriceListError, _plain, _read, _write

CLOUDS = ("azure", "gcp")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class Price(NamedTuple):
    """Dollars an hour, as text; empty: unknown."""

    on_demand: str = ""
    spot: str = ""


Prices = dict[str, dict[str, Price]]
"""By region and type."""


def _amount(value: Any) -> str:
    """Return a positive amount as plain text; empty if it is none."""
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return ""
    return _plain(str(value)) if found.is_finite() and found > 0 else ""


def from_retail(pages: Iterable[Any]) -> Prices:
    """Return the prices of Linux machines in pages of Azure's Retail Prices API.

    Some series have two meters that both look like Linux, and one is Windows': the lower price is Linux'.
    """
    found: Prices = {}
    for page in pages:
        if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
            raise PriceListError("it has no Items; give a page of Azure's Retail Prices API")
        for item in page["Items"]:
            if item.get("currencyCode", "USD") != "USD":
                raise PriceListError(f"currencyCode is {item['currencyCode']}; ask for USD")
            words = f"{item.get('productName', '')} {item.get('skuName', '')}"
            is_machine = item.get("type") == "Consumption" and item.get("unitOfMeasure") == "1 Hour"
            if not is_machine or re.search(r"Windows|Low Priority|CloudServices|Dedicated Host", words):
                continue
            name, amount = str(item.get("armSkuName") or ""), _amount(item.get("retailPrice"))
            if name and amount:
                _lower(found.setdefault(str(item.get("armRegionName")), {}), name, amount, spot="Spot" in words)
    return found


def _lower(prices: dict[str, Price], name: str, amount: str, *, spot: bool) -> None:
    known = prices.get(name, Price())
    before = known.spot if spot else known.on_demand
    least = amount if not before or Decimal(amount) < Decimal(before) else before
    prices[name] = known._replace(spot=least) if spot else known._replace(on_demand=least)


def from_table(text: str) -> Prices:
    """Return the prices of a table."""
    rows = csv.DictReader(io.StringIO(text))
    if not {"region", "name", "on_demand"} <= set(rows.fieldnames or ()):
        raise PriceListError("it lacks the columns region, name and on_demand")
    found: Prices = {}
    for row in rows:
        price = Price(on_demand=_amount(row["on_demand"]), spot=_amount(row.get("spot") or ""))
        found.setdefault(row["region"], {})[row["name"]] = price
    return found


def from_map(tree: Any) -> Prices:
    """Return the prices of a map from region to a map from type to dollars an hour."""
    if not isinstance(tree, dict) or not all(isinstance(types, dict) for types in tree.values()):
        raise PriceListError("it is no map from region to a map from type to dollars an hour")
    found: Prices = {}
    for region, types in tree.items():
        for name, value in types.items():
            if not _amount(value):
                raise PriceListError(f"{region}.{name} is {value!r}; an amount above 0 is wanted")
            found.setdefault(region, {})[name] = Price(on_demand=_amount(value))
    return found


def read(cloud: str, files: Sequence[Path]) -> Prices:
    """Return the prices in some files of one list."""
    if any(path.name.endswith((".csv", ".csv.gz")) for path in files):
        if len(files) > 1:
            raise PriceListError("give one table")
        raw = files[0].read_bytes()
        return from_table((gzip.decompress(raw) if files[0].suffix == ".gz" else raw).decode())
    trees = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    if cloud == "azure":
        return from_retail(trees)
    if len(trees) > 1:
        raise PriceListError("give one file")
    return from_map(trees[0])


def renew(data: Path, cloud: str, date: str, found: Prices) -> list[str]:
    """Write prices into the tables under `data`; return what was done, a line a region. Nothing is written if one fails."""
    if not _DATE.fullmatch(date):
        raise PriceListError(f"--date is {date!r}; write the day of the list, such as 2026-11-18")
    if not found:
        raise PriceListError("it has no machine; give another list")
    index, said, tables = _read(data / "index.csv.gz"), [], {}
    for region, prices in sorted(found.items()):
        path = data / cloud / f"{region}.csv.gz"
        if not path.exists():
            said.append(f"{region}: there is no built-in table; left out")
            continue
        table = _read(path)
        priced = [row for row in table if prices.get(row["name"], Price()).on_demand]
        if len(priced) < COVERED_MIN * len(table):
            raise PriceListError(f"{region}: it prices {len(priced)} of {len(table)} types; give the whole list")
        changed = sum(_put(row, prices[row["name"]]) for row in priced)
        tables[path] = table
        for row in index:
            if (row["cloud"], row["region"]) == (cloud, region):
                row["as_of"] = date
        new = len(prices.keys() - {row["name"] for row in table})
        kept = len(table) - len(priced)
        said.append(f"{region}: prices of {date}; {changed} changed, {kept} not in the list kept, {new} types unknown")
    for path, table in tables.items():
        _write(path, table)
    _write(data / "index.csv.gz", index)
    return said


def _put(row: dict[str, str], price: Price) -> bool:
    """Put a price into a row; return whether that changes it. A spot price that a list doesn't have stays."""
    before = (row["on_demand"], row["spot"])
    if Decimal(row["on_demand"] or 0) != Decimal(price.on_demand):
        row["on_demand"] = price.on_demand
    if price.spot and row["spot"] and Decimal(row["spot"]) != Decimal(price.spot):
        row["spot"] = price.spot
    return before != (row["on_demand"], row["spot"])


def main(words: list[str]) -> int:
    """Renew the tables of a cloud; 2 if a file can't be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cloud", choices=CLOUDS)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--date", required=True, help="the day of the list")
    args = parser.parse_args(words)
    try:
        for line in renew(DATA, args.cloud, args.date, read(args.cloud, args.files)):
            print(line)
    except (OSError, ValueError, PriceListError) as error:
        print(f"{args.files[0]}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
