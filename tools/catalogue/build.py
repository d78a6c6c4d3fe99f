"""Packs the EC2 tables that ship with the project.

Reads the compiled catalogue (one folder of CSV files, see NOTICE-catalogue.md for the sources of each column) and
writes one small gzip per region plus one with the specifications that all regions share. Run from the project root:

    python tools/catalogue/build.py ../shared/catalog
"""

import csv
import gzip
import io
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "src" / "dovetail" / "api" / "data"
REGIONS = ("us-east-1", "us-west-2", "eu-west-1")
AS_OF = "2026-08-22"
SPECS = (
    "name", "family", "category", "generation", "size", "arch", "vcpu", "memory_mib", "cpu_manufacturer", "hypervisor",
    "bare_metal", "burstable", "flex", "gpu_count", "gpu_name", "gpu_manufacturer", "gpu_mem_mib", "accel_count",
    "accel_name", "accel_manufacturer", "local_nvme_gb", "ebs_mbps", "net_mbps", "max_pods", "pod_eni", "efa",
)  # fmt: skip


def write(path: Path, header: tuple[str, ...], rows: list[list[str]]) -> None:
    """One gzip with a fixed time stamp, so that the same input gives the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))
    print(f"{path.name}: {len(rows)} rows, {path.stat().st_size:,} bytes", file=sys.stderr)


def main(source: Path) -> None:
    """Packs the specifications, the prices and the zones."""
    with (source / "instance-types.csv").open() as file:
        specs = [[row[key] for key in SPECS] for row in csv.DictReader(file)]
    write(OUT / "ec2-types.csv.gz", SPECS, sorted(specs))
    with (source / "zones.csv").open() as file:
        names = {row["zone_id"]: row["zone_name"] for row in csv.DictReader(file)}
    for region in REGIONS:
        spot: dict[tuple[str, str], str] = {}
        with (source / f"aws-{region}-spot.csv").open() as file:
            for row in csv.DictReader(file):
                spot[row["name"], row["zone_id"]] = row["spot_usd_h"]
        rows = []
        with (source / f"aws-{region}.csv").open() as file:
            for row in csv.DictReader(file):
                zones = [zone for zone in row["zones"].split(";") if zone]
                cells = [f"{zone}|{names[zone]}|{spot.get((row['name'], zone), '')}" for zone in sorted(zones)]
                rows.append([row["name"], row["od_usd_h"], ";".join(cells)])
        write(OUT / f"ec2-{region}-{AS_OF}.csv.gz", ("name", "on_demand", "zones"), sorted(rows))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
