"""Renew the on-demand prices of the built-in EC2 tables from AWS's public price lists.

Anybody can run it: the lists need no account. Get one for each region that you want to renew, then pass the files:

    curl -O https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/eu-west-1/index.json
    python tools/renew_aws_prices.py index.json

Only prices and their date change. Types, zones and spot prices stay as they are (`tools/catalogue/build.py` makes
those); types that a list has and the table has not are counted, since their sizes are not in the list.
"""

import csv
import gzip
import io
import json
import sys
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "src" / "dovetail" / "api" / "clouds" / "data"
WANTED = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
"""What a machine of a node is in AWS's words; all other products are left out."""
COVERED_MIN = 0.9
"""Which share of a table's types a list must price: a list of another service or a cut one has fewer."""


class PriceListError(Exception):
    """A file that can't be used; one sentence."""


def prices_in(tree: Any) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the date of a price list, and its dollars an hour by region and type."""
    if not isinstance(tree, dict) or "products" not in tree or "terms" not in tree:
        raise PriceListError("it has no products and terms; give the index.json of AmazonEC2")
    date = str(tree.get("publicationDate", ""))[:10]
    if len(date) != len("2026-01-01"):
        raise PriceListError("publicationDate is missing; give the index.json as AWS publishes it")
    offers = tree["terms"].get("OnDemand", {})
    found: dict[str, dict[str, str]] = {}
    for sku, product in tree["products"].items():
        about = product.get("attributes", {})
        if any(about.get(key) != value for key, value in WANTED.items()) or "instanceType" not in about:
            continue
        for term in offers.get(sku, {}).values():
            for part in term.get("priceDimensions", {}).values():
                amount = part.get("pricePerUnit", {}).get("USD")
                if part.get("unit") == "Hrs" and amount is not None and _is_price(amount):
                    found.setdefault(about.get("regionCode", ""), {})[about["instanceType"]] = _plain(amount)
    return date, found


def _is_price(text: str) -> bool:
    try:
        return Decimal(text) > 0
    except InvalidOperation:
        return False


def _plain(text: str) -> str:
    return format(Decimal(text).normalize(), "f")


def renew(data: Path, tree: Any) -> list[str]:
    """Write the prices of a list into the tables under `data`; return what was done, a line a region."""
    date, found = prices_in(tree)
    index = _read(data / "index.csv.gz")
    said = []
    for region, prices in sorted(found.items()):
        path = data / "aws" / f"{region}.csv.gz"
        if not path.exists():
            said.append(f"{region}: there is no built-in table; left out")
            continue
        table = _read(path)
        covered = [row for row in table if row["name"] in prices]
        if len(covered) < COVERED_MIN * len(table):
            raise PriceListError(f"{region}: it prices {len(covered)} of {len(table)} types; give the whole list")
        changed = 0
        for row in covered:
            if Decimal(row["on_demand"] or 0) != Decimal(prices[row["name"]]):
                row["on_demand"], changed = prices[row["name"]], changed + 1
        _write(path, table)
        for row in index:
            if (row["cloud"], row["region"]) == ("aws", region):
                row["as_of"] = date
        new = len(prices.keys() - {row["name"] for row in table})
        kept = len(table) - len(covered)
        said.append(f"{region}: prices of {date}; {changed} changed, {kept} not in the list kept, {new} types unknown")
    if not found:
        raise PriceListError("it has no Linux machine on shared hardware; give the index.json of AmazonEC2")
    _write(data / "index.csv.gz", index)
    return said


def _read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))


def _write(path: Path, table: list[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, table[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    path.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))


def main(files: list[str]) -> int:
    """Renew the tables from every file; 2 if one can't be used."""
    if not files:
        print(__doc__, file=sys.stderr)
        return 2
    for name in files:
        try:
            tree = json.loads(Path(name).read_text(encoding="utf-8"))
            for line in renew(DATA, tree):
                print(line)
        except (OSError, ValueError, PriceListError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
