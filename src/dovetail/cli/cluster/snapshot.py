"""`dovetail snapshot`: captures what `plan` needs from a live cluster, and nothing more."""

import argparse
import gzip
import os
import sys
from pathlib import Path
from typing import Any

from dovetail.api.findings import InputError
from dovetail.cli.output import print_bytes

_EPILOG = """\
Needs get and list on what it reads, and says which permission is missing. Only fields that some rule reads are kept:
never environment, arguments, commands, images, managed fields or the last-applied annotation. The file is written so
that only you can read it.

examples:
  dovetail snapshot -o cluster.json.gz                   capture the cluster of the current context
  dovetail snapshot --anonymise -o share.json.gz         the same under made-up names; the same plan results
  dovetail plan -f cluster.json.gz                       plan on it later, elsewhere
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.live_cluster import add_cluster_options

    parser = subparsers.add_parser(
        "snapshot",
        help="capture what plan needs from a live cluster",
        description="Captures what plan, explain, budgets and simulate need from a live cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write; .gz compresses; by default stdout")
    parser.add_argument(
        "--anonymise", "--anonymize", action="store_true", help="replace names and labels by made-up ones, same order"
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Capture, cut down and write."""
    from dovetail.cli.inputs import note_input
    from dovetail.cli.live_cluster import capture_live
    from dovetail.live.capture import dump

    cluster = capture_live(args)
    note_input(cluster)
    raw = dump(cluster, anonymise=args.anonymise)
    if args.output is None or args.output == "-":
        print_bytes(raw + b"\n")
        return 0
    if args.output.endswith(".gz"):
        raw = gzip.compress(raw, mtime=0)
    try:
        write_private(Path(args.output), raw)
    except OSError as error:
        raise InputError(f"{args.output} can't be written ({error.strerror})") from None
    print(
        f"wrote {args.output}: {len(cluster.nodes):,} nodes, {len(cluster.pods):,} pods, {len(raw):,} bytes",
        file=sys.stderr,
    )
    return 0


def write_private(path: Path, raw: bytes) -> None:
    """Write a file that only its owner can read, whatever the umask and whatever was there before."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(raw)
