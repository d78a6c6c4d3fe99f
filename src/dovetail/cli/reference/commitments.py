"""`dovetail commitments import aws`: the settings' `commitments` from what the AWS CLI prints."""

import argparse
import json
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from dovetail.api.findings import InputError, shown
from dovetail.cli.inputs import load_catalogue_option
from dovetail.cli.output import print_bytes, yaml_bytes

_EPILOG: Final = """\
examples:
  aws savingsplans describe-savings-plans > plans.json
  aws savingsplans describe-savings-plan-rates --savings-plan-id ID > rates.json
  aws ec2 describe-reserved-instances --region eu-west-1 > reserved.json
  dovetail commitments import aws plans.json rates.json reserved.json \\
      --region eu-west-1 --share 40% >> settings.yaml

Commitments are shared by all clusters of an organisation: --share is this
cluster's part. Each plan needs its rates, one file a plan; in their place the
answer of describe-savings-plans-offering-rates will do.
"""
_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%")


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser(
        "commitments",
        help="savings plans and reserved instances for the settings",
        description="Prints the settings' `commitments` (YAML) from what the AWS CLI prints about savings plans and "
        "reserved instances. Notes about what is left out go to stderr.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", metavar="import", choices=["import"], help="what to do")
    parser.add_argument("cloud", metavar="aws", choices=["aws"], help="whose answers the files hold")
    parser.add_argument("files", metavar="FILE", nargs="+", help="JSON that the AWS CLI printed; '-' for stdin")
    parser.add_argument("--region", metavar="R", help="the region of your cluster, such as eu-west-1")
    parser.add_argument(
        "--catalog", metavar="C", help="the types that there are: aws:REGION or a file (default: aws:REGION)"
    )
    parser.add_argument("--share", metavar="P", default="100%", help="this cluster's part of them, such as 40%%")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the commitments."""
    from dovetail.api.clouds.aws_commitments import import_aws
    from dovetail.model.cluster import Cluster

    share = _share(args.share)
    region = args.region or (args.catalog or "").partition("aws:")[2]
    if not region:
        raise InputError(
            "reserved instances don't say their region, and rates differ between regions; give your cluster's, such "
            "as --region eu-west-1"
        )
    args.catalog = args.catalog or f"aws:{region}"
    catalogue = load_catalogue_option(args, Cluster())
    found = import_aws([_read(name) for name in args.files], catalogue, region, share)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if not found.commitments:
        print("note: nothing in these files covers nodes of this cluster", file=sys.stderr)
    print_bytes(yaml_bytes({"commitments": found.commitments}))
    return 0


def _share(text: str) -> Fraction:
    found = _SHARE.fullmatch(text.strip())
    if found is None or not 0 < Fraction(found[1]) <= 100:
        raise InputError(f"--share is {shown(text)}; write a percentage above 0% and up to 100%, such as 40%")
    return Fraction(found[1]) / 100


def _read(name: str) -> Any:
    from dovetail.api.clouds.aws_commitments import AwsAnswer

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{name} can't be read ({why}); give JSON that the AWS CLI printed") from None
    try:
        return AwsAnswer(name=name, tree=json.loads(text))
    except (ValueError, RecursionError):
        raise InputError(f"{name} is not JSON; run the AWS CLI with --output json") from None
