"""`dovetail crds`: prints the CRDs."""

import argparse
from typing import Any

_EPILOG = """\
A superset of Karpenter v1.15's NodePool and NodeClaim: what Karpenter accepts is accepted, and Karpenter runs on them
unchanged. Where Karpenter's chart owns the CRDs, leave them and use the annotation dovetail.dev/disruption instead.

examples:
  dovetail crds | kubectl apply --server-side --force-conflicts -f -
  dovetail crds | kubectl diff -f -
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "crds",
        help="print the CRDs",
        description="Prints the CRDs of NodePool and NodeClaim as YAML.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Print the CRDs."""
    from dovetail.api.crds.definitions import crds_yaml

    print(crds_yaml(), end="")
    return 0
