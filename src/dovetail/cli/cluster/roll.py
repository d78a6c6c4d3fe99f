"""`dovetail roll`: have the nodes of a pool replaced, or single nodes, within the budgets and in order."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.live.kubernetes.client import ApiClient
    from dovetail.live.rolls import Asked

_PATIENCE: Final = "60s"
_EPILOG: Final = """\
Every node that was created before the request counts as drifted from now on: budgets, windows, the order of zones and
every other rule hold as for drift. The request is an annotation (dovetail.dev/roll) and needs a running controller;
the command returns once the NodePool's condition dovetail.dev/RolloutComplete is False, so that a pipeline can wait for
it to become True. The times are those of the API server; the clock of your machine does not matter.

Exit status: 0 the controller has taken the request up (or there is nothing to replace), 1 it has not within --timeout:
the request stays, and a controller that starts later takes it up.

examples:
  dovetail roll web --reason "new kernel"           all nodes of NodePool web
  dovetail roll web --before 2026-11-01T00:00:00Z   those that were created before
  dovetail roll ip-10-0-1-7 ip-10-0-2-9             two nodes
  dovetail rollout status web --wait --timeout 2h
  dovetail roll web --cancel                        nodes that leave already still go
"""


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.live_cluster import add_cluster_options

    parser = subparsers.add_parser(
        "roll",
        help="replace the nodes of a pool, or single nodes, in order",
        description="Asks the controller to replace the nodes of NodePools, or single nodes, within their budgets.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", metavar="POOL|NODE", nargs="+", help="NodePools, or nodes of them; node/NAME works too"
    )
    parser.add_argument("--reason", metavar="TEXT", default="", help="shown by explain, events and notifications")
    parser.add_argument(
        "--before", metavar="T", help="only nodes created before, such as 2026-03-14T15:30:00Z; by default all"
    )
    parser.add_argument("--cancel", action="store_true", help="take the request back")
    parser.add_argument(
        "--timeout", metavar="D", default=_PATIENCE, help=f"how long the controller may take (default: {_PATIENCE})"
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write or remove the requests; return 1 if no controller takes them up."""
    from dovetail.cli.inputs import check_now
    from dovetail.cli.live_cluster import with_client
    from dovetail.live.rolls import RollError
    from dovetail.model.timing.duration import parse_simple

    if args.cancel and (args.before is not None or args.reason):
        raise InputError("--cancel takes a request back; leave --before and --reason out")
    if args.before == "now":
        raise InputError("--before is now already; leave it out to replace all nodes that are there now")
    before = check_now(args.before, option="--before")
    try:
        patience = parse_simple(args.timeout, "smhd") / 1e9
    except ValueError as problem:
        raise InputError(f"--timeout: {problem}") from None

    async def work(client: "ApiClient") -> int:
        from dovetail.live.rolls import Fleet, ask, check_managed, taken_up

        fleet = await Fleet.read(client)
        targets = fleet.targets(args.names)
        if args.cancel:
            return await _cancel(client, fleet, targets)
        check_managed(targets)
        asked = await ask(client, fleet, targets, before, args.reason)
        for entry in asked:
            print(_line(entry))
        late = await taken_up(client, asked, patience, lambda text: print(text, file=sys.stderr, flush=True))
        for pool in late:
            print(
                f"NodePool {pool}: no controller has taken the request up within {args.timeout}; it stays there. Check "
                "that dovetail run is running, or take it back with --cancel",
                file=sys.stderr,
            )
        if any(entry.nodes for entry in asked) and not late:
            pools = sorted({entry.target.pool_name for entry in asked if entry.nodes})
            print(f"taken up; wait for it with: dovetail rollout status {' '.join(pools)} --wait")
        return 1 if late else 0

    try:
        return with_client(args, work)
    except RollError as error:
        raise InputError(str(error)) from None


def _line(asked: "Asked") -> str:
    from dovetail.decide.words import clock

    before, words = clock(asked.request.before), asked.target.words
    if not asked.nodes:
        return f"{words}: nothing to do, no node is older than {before}"
    instead = f"; this replaces the request of {clock(asked.replaces.requested)}" if asked.replaces else ""
    if asked.target.claim is not None:
        return f"{words}: will be replaced{instead}"
    return f"{words}: {asked.nodes} of {asked.of} nodes are older than {before} and will be replaced{instead}"


async def _cancel(client: "ApiClient", fleet: Any, targets: Any) -> int:
    from dovetail.live.rolls import cancel

    done = await cancel(client, targets)
    for target in targets:
        was = "the request is taken back; nodes that leave already still go" if target in done else "no request"
        print(f"{target.words}: {was}")
        own = fleet.requests_on_nodes(target.pool_name) if target.claim is None else []
        if own:
            print(
                f"note: some nodes have requests of their own: dovetail roll {' '.join(own)} --cancel takes them back"
            )
    return 0
