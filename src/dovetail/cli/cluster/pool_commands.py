"""What `hold`, `release`, `pause` and `resume` have in common: they name NodePools, change objects and count them."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.live.holds import HoldTally


def add_pool_command(subparsers: Any, name: str, what: str, epilog: str) -> argparse.ArgumentParser:
    """Add a command that names pools, with the options that say which cluster."""
    from dovetail.cli.live_cluster import add_cluster_options

    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pools", metavar="POOL", nargs="*", help="names of NodePools")
    parser.add_argument("--all", action="store_true", help="all pools")
    add_cluster_options(parser)
    return parser


def check_pools(args: argparse.Namespace) -> None:
    """Raise InputError unless the pools are named, or --all is given."""
    if bool(args.pools) == args.all:
        raise InputError("name the pools, or give --all")


def change_pools(args: argparse.Namespace, work: "Callable[[Any], Awaitable[HoldTally]]") -> "HoldTally":
    """Execute the work on the chosen cluster, and print what could not be changed."""
    from dovetail.cli.live_cluster import with_client
    from dovetail.live.holds import UnknownPoolError

    try:
        tally = with_client(args, work)
    except UnknownPoolError as error:
        raise InputError(str(error)) from None
    for line in sorted(tally.failed):
        print(f"not changed: {line}", file=sys.stderr)
    return tally
