"""`dovetail doctor`: is everything there that Dovetail needs, and what to do if not."""

import argparse
import platform
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dovetail import __version__
from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.live.doctor import Check
    from dovetail.live.kubernetes.client import ApiClient

_EPILOG = """\
Reads only. A line is ok, warn (it works, but not as you may think), fail (it does not work) or unknown (you may not
look). The exit status is 1 if a check fails.

examples:
  dovetail doctor
  dovetail doctor --context prod -o json
"""
_VERDICTS = {
    "ok": "Nothing is missing.",
    "warn": "Nothing fails; look at the warnings.",
    "unknown": "Nothing fails; what is unknown could not be looked at.",
    "fail": "Fix what fails, from the top, then run this again.",
}


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.inputs import add_output_option
    from dovetail.cli.live_cluster import add_cluster_options

    parser = subparsers.add_parser(
        "doctor",
        help="what is installed, reachable, allowed, managed and missing",
        description="Checks what Dovetail needs in the cluster of the kubeconfig, and says how to fix what is missing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", metavar="FILE", help="the controller's settings, if they name pools")
    add_output_option(parser, ("text", "json"), "text")
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print every check; return 1 if one fails."""
    from dovetail.api.settings import load_settings
    from dovetail.cli.live_cluster import with_client
    from dovetail.cli.output import print_json, print_lines
    from dovetail.live.doctor import Check, examine, unreached, worst

    settings = load_settings(args.settings)

    async def work(client: "ApiClient") -> list[Check]:
        return await examine(client, settings, lambda: datetime.now(UTC))

    program = Check(name="dovetail", state="ok", why=f"dovetail {__version__}, Python {platform.python_version()}")
    try:
        checks = [program, *with_client(args, work)]
    except InputError as error:
        why, _, remedy = str(error).partition("; ")
        checks = [program, *unreached(why, remedy or "check the kubeconfig and your rights")]
    state = worst(checks)
    if args.output == "json":
        print_json({"checks": [_entry(check) for check in checks]})
    else:
        print_lines([*_lines(checks), "", _VERDICTS[state]])
    return 1 if state == "fail" else 0


def _entry(check: "Check") -> dict[str, str]:
    return {"name": check.name, "state": check.state, "why": check.why, "remedy": check.remedy}


def _lines(checks: "Sequence[Check]") -> list[str]:
    from dovetail.live.doctor import NOT_REACHED

    shown = []
    for check in checks:
        if check.why == NOT_REACHED:  # the one line about the cluster says it all
            continue
        shown += textwrap.wrap(
            check.why, 79, initial_indent=f"{check.state:<8}{check.name:<11}", subsequent_indent=" " * 19
        )
        if check.remedy:
            shown += textwrap.wrap(
                f"-> {check.remedy}",
                79,
                initial_indent=" " * 19,
                subsequent_indent=" " * 22,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return shown
