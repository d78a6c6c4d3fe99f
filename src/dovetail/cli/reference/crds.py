"""`dovetail crds`: prints the CRDs."""

import argparse
from typing import Any

_EPILOG = """\
A superset of Karpenter v1.15's NodePool and NodeClaim: what Karpenter accepts is accepted, and Karpenter runs on them
unchanged. Where Karpenter's chart owns the CRDs, leave them and use the annotation dovetail.dev/disruption instead.
With --from, the CRDs of the Karpenter that you run (v1.9 to v1.15), with Dovetail's fields added.

examples:
  kubectl get crd nodepools.karpenter.sh nodeclaims.karpenter.sh -o yaml \\
    | dovetail crds --from -
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
    parser.add_argument(
        "--from",
        dest="sources",
        action="append",
        metavar="FILE",
        help="add Dovetail's fields to these CRDs; - for stdin",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the CRDs."""
    from dovetail.api.crds.definitions import crds_yaml

    print(crds_yaml(_enriched(args.sources) if args.sources else None), end="")
    return 0


def _enriched(sources: list[str]) -> "list[dict[str, Any]]":
    from dovetail.api.crds.enrich import enriched
    from dovetail.api.findings import InputError
    from dovetail.api.reading.documents import MANIFEST_MAX, read_input, split_documents

    found = []
    for source in sources:
        try:
            found += [enriched(entry.as_tree(), source) for entry in split_documents(read_input(source, MANIFEST_MAX))]
        except InputError as error:
            raise InputError(str(error) if source in str(error) else f"{source}: {error}") from None
    if not found:
        raise InputError(f"{', '.join(sources)}: there is no CRD in it")
    return found
