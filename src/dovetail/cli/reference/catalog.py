"""`dovetail catalog show|types|export`: the built-in instance types and prices, how old they are, a file to edit."""

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from dovetail.api.findings import InputError
from dovetail.cli.inputs import load_catalogue_option
from dovetail.cli.output import print_bytes

if TYPE_CHECKING:
    from dovetail.api.clouds.tables import Region
    from dovetail.model.catalogue import Catalogue, InstanceType

_EPILOG: Final = """\
examples:
  dovetail catalog show                             every region with a built-in table
  dovetail catalog show azure:westeurope            one region: its date, its size, what is not known of it
  dovetail catalog types gcp:europe-west1           the types of a region, cheapest first
  dovetail catalog export aws:eu-central-1 > my.json      a file to edit, for --catalog my.json
  dovetail catalog export --from-nodes -f cluster.json > my.json    a cloud that is not built in: fill in the prices
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "catalog",
        help="the built-in instance types and prices",
        description="Shows which instance types and prices are built in, how old they are, and writes them to a file.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", metavar="show|types|export", choices=["show", "types", "export"], help="what to print")
    parser.add_argument(
        "catalog", metavar="C", nargs="?", help="aws:REGION, azure:REGION, gcp:REGION, aws-live:REGION or a file"
    )
    parser.add_argument("--from-nodes", action="store_true", help="export: make a file to fill in from the nodes of -f")
    parser.add_argument("-f", "--filename", dest="files", metavar="FILE", nargs="+", action="extend")
    parser.add_argument("--partial", action="store_true", help="as in plan; only the nodes of -f are read here anyway")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="form of the answer")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was asked for."""
    if args.files and not args.from_nodes:
        raise InputError("-f goes with export --from-nodes")
    if args.from_nodes:
        return _export_nodes(args)
    if args.what == "show":
        return _show(args)
    if args.catalog is None:
        raise InputError(
            f"which catalogue? Write, for example, 'dovetail catalog {args.what} aws:us-east-1'; "
            "'dovetail catalog show' lists them"
        )
    catalogue = load_catalogue_option(args, _no_cluster())
    if args.what == "export":
        from dovetail.api.catalogue import encode_catalogue

        print_bytes(encode_catalogue(catalogue) + b"\n")
        return 0
    if args.output == "json":
        print(json.dumps({"source": catalogue.source, "asOf": catalogue.as_of, "types": _rows(catalogue)}, indent=2))
    else:
        for line in _type_lines(catalogue):
            print(line)
    return 0


def _no_cluster() -> Any:
    from dovetail.model.cluster import Cluster

    return Cluster()


def _export_nodes(args: argparse.Namespace) -> int:
    from dovetail.cli.inputs import load_cluster_option
    from dovetail.plan.own_catalogue import catalogue_to_fill_in

    if args.what != "export":
        raise InputError("--from-nodes goes with export")
    document = catalogue_to_fill_in(load_cluster_option(args).nodes)
    if not document["instanceTypes"]:
        raise InputError("no node has the label node.kubernetes.io/instance-type; give a capture with nodes that do")
    print(json.dumps(document, indent=2))
    return 0


def _show(args: argparse.Namespace) -> int:
    from dovetail.api.clouds.tables import regions

    cloud, _, region = (args.catalog or "").partition(":")
    found = [
        entry for entry in regions() if (not cloud or entry.cloud == cloud) and (not region or entry.name == region)
    ]
    if not found:
        from dovetail.api.catalogue import CatalogueError, load_catalogue

        try:
            load_catalogue(args.catalog)
        except CatalogueError as error:
            raise InputError(str(error)) from None
        raise InputError(f"{args.catalog} is a file; 'dovetail catalog types {args.catalog}' shows what it holds")
    if args.output == "json":
        print(json.dumps({"catalogues": [_region_tree(entry) for entry in found]}, indent=2))
        return 0
    for line in _region_lines(found, detailed=bool(region)):
        print(line)
    return 0


def _region_tree(entry: "Region") -> dict[str, Any]:
    return {
        "catalog": entry.catalogue,
        "cloud": entry.cloud,
        "region": entry.name,
        "asOf": entry.as_of,
        "types": entry.types,
        "gaps": entry.gaps.split("; ") if entry.gaps else [],
    }


def _region_lines(found: "list[Region]", *, detailed: bool) -> Iterator[str]:
    from dovetail.report.table import paragraph

    if detailed:
        for entry in found:
            yield f"{entry.catalogue}: {entry.types:,} types, prices of {entry.as_of}"
            for gap in entry.gaps.split("; ") if entry.gaps else ():
                yield from paragraph(f"not known: {gap}", indent="  ")
        return
    yield f"{'CATALOG':<28} {'PRICES OF':<11} {'TYPES':>6}  GAPS"
    for entry in found:
        gaps = "; ".join(gap.partition(":")[0] for gap in entry.gaps.split("; ") if gap)
        yield f"{entry.catalogue:<28} {entry.as_of:<11} {entry.types:>6,}  {_cut(gaps, 29) or '-'}"
    yield ""
    yield "'dovetail catalog show aws:us-east-1' says more about one."
    yield "Prices are US dollars per hour, Linux."


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _rows(catalogue: "Catalogue") -> list[dict[str, Any]]:
    return [_row(entry) for entry in sorted(catalogue.instance_types, key=_cheapest)]


def _cheapest(entry: "InstanceType") -> tuple[float, str]:
    prices = [offering.price_float for offering in entry.offerings if offering.available]
    return min(prices, default=float("inf")), entry.name


def _row(entry: "InstanceType") -> dict[str, Any]:
    from dovetail.model.money import format_money
    from dovetail.model.names import ON_DEMAND, SPOT
    from dovetail.model.quantity import format_amount

    room = entry.allocatable()
    prices = {
        kind: sorted({offering.price for offering in entry.offerings if offering.capacity_type == kind})
        for kind in (ON_DEMAND, SPOT)
    }
    gpus = sum(amount for name, amount in entry.capacity.items() if name.endswith(".com/gpu"))
    return {
        "name": entry.name,
        "cpu": format_amount("cpu", entry.capacity.get("cpu", 0)),
        "memory": format_amount("memory", entry.capacity.get("memory", 0)),
        "allocatable": {key: format_amount(key, amount) for key, amount in sorted(room.items())},
        "gpus": gpus,
        "onDemand": format_money(prices[ON_DEMAND][0]) if prices[ON_DEMAND] else None,
        "spotFrom": format_money(prices[SPOT][0]) if prices[SPOT] else None,
        "spotTo": format_money(prices[SPOT][-1]) if prices[SPOT] else None,
        "zones": sorted({offering.zone for offering in entry.offerings if offering.available}),
    }


def _type_lines(catalogue: "Catalogue") -> Iterator[str]:
    gib = 1 << 30
    yield f"{len(catalogue.instance_types):,} types, {catalogue.source}, prices of {catalogue.as_of or 'unknown date'}"
    yield f"{'TYPE':<32} {'CPU':>5} {'MEM GiB':>8} {'GPU':>3} {'ON-DEMAND':>10} {'SPOT FROM':>10} {'ZONES':>5}"
    sizes = {entry.name: entry for entry in catalogue.instance_types}
    for row in _rows(catalogue):
        size = sizes[row["name"]].capacity
        yield (
            f"{_cut(row['name'], 32):<32} {size.get('cpu', 0) / 1000:>5g} {size.get('memory', 0) / gib:>8.1f} "
            f"{row['gpus'] or '-':>3} {_dollars(row['onDemand']):>10} {_dollars(row['spotFrom']):>10} "
            f"{len(row['zones']):>5}"
        )


def _dollars(price: str | None) -> str:
    return "unknown" if price is None else f"${float(price):.4f}"
