"""Pack the tables of instance types and prices that ship with the project.

Reads the compiled catalogue (CSV files; NOTICE-catalogue.md names the source of each column) and writes, per cloud, one
gzip with the specifications that all regions share and one small gzip per region, plus an index with the date, the
size and the gaps of each region. Run from the project root:

    python tools/catalogue/build.py ../shared/catalog
"""

import csv
import gzip
import io
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "src" / "dovetail" / "api" / "clouds" / "data"
AWS_SPECS = (
    "name", "family", "category", "generation", "size", "arch", "vcpu", "memory_mib", "cpu_manufacturer", "hypervisor",
    "bare_metal", "burstable", "flex", "gpu_count", "gpu_name", "gpu_manufacturer", "gpu_mem_mib", "accel_count",
    "accel_name", "accel_manufacturer", "local_nvme_gb", "ebs_mbps", "net_mbps", "max_pods", "pod_eni", "efa",
)  # fmt: skip
AZURE_SPECS = (
    "name", "sku_family", "sku_series", "sku_version", "arch", "vcpu", "memory_mib", "gpu_count", "gpu_name",
    "gpu_manufacturer", "accel_net", "premium_io", "hyperv",
)  # fmt: skip
GCP_SPECS = (
    "name", "family", "shape", "generation", "size", "arch", "vcpu", "memory_mib", "shared_core", "gpu_count",
    "gpu_name", "local_ssd_gib", "bare_metal",
)  # fmt: skip
AZURE_AS_OF, GCP_AS_OF = "2026-06-18", "2026-08-03"
AZURE_UNSURE = ("amb?", "win?")

Index = list[tuple[str, str, str, int, str]]


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file, plain or gzip."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    yield from csv.DictReader(io.StringIO(text.decode()))


def write(name: str, header: tuple[str, ...], table: list[list[str]]) -> None:
    """Write one gzip with a fixed time stamp, so that the same input gives the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(table)
    path = OUT / f"{name}.csv.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))


def by_region(path: Path) -> dict[str, list[dict[str, str]]]:
    """Group the rows of a file by region."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows(path):
        found.setdefault(row["region"], []).append(row)
    return found


def aws(source: Path, index: Index) -> None:
    """Pack EC2: zones and spot prices per type where they are known, else every zone of the region."""
    clouds = source / "clouds"
    specs = {row["name"]: row for row in rows(clouds / "aws-extra-types.csv.gz")}
    specs |= {row["name"]: row for row in rows(source / "instance-types.csv")}
    write("aws/types", AWS_SPECS, [[specs[name][key] for key in AWS_SPECS] for name in sorted(specs)])
    zones = {(row["region"], row["name"]): row["zones"] for row in rows(clouds / "aws-zones-2026-08-22.csv.gz")}
    names = by_region(clouds / "aws-zone-names.csv.gz")
    for region, prices in sorted(by_region(clouds / "aws-prices-2026-08-22.csv.gz").items()):
        everywhere = ";".join(f"{row['zone_id']}|{row['zone_name']}|" for row in names[region])
        listed = any((region, row["name"]) in zones for row in prices)
        table = []
        for row in prices:
            cell = zones.get((region, row["name"]), "" if listed else everywhere)
            if row["name"] in specs and cell:
                table.append([row["name"], row["on_demand"], cell])
        (source_tag, _), *_ = Counter(row["source"] for row in prices).most_common(1)
        notes = []
        if not listed:
            notes.append("zones by type are not known: every zone of the region is taken to offer every type")
        if not any(zone.split("|")[2] for _, _, cell in table for zone in cell.split(";")):
            notes.append("spot prices are not known: no spot offering")
        elif any(row["mapping"] == "per-account" for row in names[region]):
            notes.append("AWS shuffles zone names per account here, so spot prices may belong to another of your zones")
        if any(row["source"].startswith("assumed") for row in names[region]):
            notes.append("zone names are matched to zone ids by their order")
        write(f"aws/{region}", ("name", "on_demand", "zones"), sorted(table))
        index.append(("aws", region, source_tag[-10:], len(table), "; ".join(notes)))


def azure(source: Path, index: Index) -> None:
    """Pack Azure: the sizes that Karpenter's Azure provider offers, with spot where the size allows it."""
    clouds = source / "clouds"
    specs = {row["name"]: row for row in rows(clouds / "azure-types.csv.gz") if row["karpenter"] == "1"}
    write("azure/types", AZURE_SPECS, [[specs[name][key] for key in AZURE_SPECS] for name in sorted(specs)])
    regional = {row["region"]: row["zones"] for row in rows(clouds / "azure-zones.csv.gz")}
    for region, prices in sorted(by_region(clouds / "azure-prices-2026-06-18.csv.gz").items()):
        offered = [row for row in prices if row["name"] in specs and row["listed"] != "0"]
        covered = any(row["listed"] for row in offered)
        fallback = "" if covered else regional.get(region, "").replace("?", "")
        table = [
            [row["name"], row["on_demand"], row["spot"] if row["spot_ok"] != "0" else "", row["zones"] or fallback]
            for row in offered
        ]
        notes = []
        if not covered and fallback:
            notes.append("zones by size are not known: every zone of the region is taken to offer every size")
        if not any(row[2] for row in table):
            notes.append("spot prices are not known: no spot offering")
        unsure = sum(row["flag"] in AZURE_UNSURE for row in offered)
        if unsure:
            notes.append(f"{unsure} prices may be those of Windows")
        write(f"azure/{region}", ("name", "on_demand", "spot", "zones"), sorted(table))
        index.append(("azure", region, AZURE_AS_OF, len(table), "; ".join(notes)))


def gcp(source: Path, index: Index) -> None:
    """Pack Google Cloud: zones per type where they are known, else every zone of the region."""
    clouds = source / "clouds"
    specs = {row["name"]: row for row in rows(clouds / "gcp-types.csv.gz")}
    write("gcp/types", GCP_SPECS, [[specs[name][key] for key in GCP_SPECS] for name in sorted(specs)])
    regional = {row["region"]: row["zones"] for row in rows(clouds / "gcp-zones.csv.gz")}
    for region, prices in sorted(by_region(clouds / "gcp-prices-2026-08-03.csv.gz").items()):
        offered = [row for row in prices if row["name"] in specs]
        table = [
            [row["name"], row["on_demand"], row["spot"], row["zones"] or regional.get(region, "")] for row in offered
        ]
        notes = []
        unknown = sum(not row["zones"] for row in offered)
        if unknown:
            notes.append(f"zones of {unknown} types are not known: every zone of the region is taken to offer them")
        write(f"gcp/{region}", ("name", "on_demand", "spot", "zones"), sorted(row for row in table if row[3]))
        index.append(("gcp", region, GCP_AS_OF, len(table), "; ".join(notes)))


def main(source: Path) -> None:
    """Pack every cloud and write the index."""
    index: Index = []
    aws(source, index)
    azure(source, index)
    gcp(source, index)
    write("index", ("cloud", "region", "as_of", "types", "gaps"), [[str(cell) for cell in row] for row in index])
    size = sum(path.stat().st_size for path in OUT.rglob("*.gz"))
    print(f"{len(index)} regions, {size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
