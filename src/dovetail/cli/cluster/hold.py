"""`dovetail hold` and `dovetail release`: protect a pool's nodes from Karpenter's own disruption, or release them."""

import argparse
import sys
from typing import Any

from dovetail.api.findings import InputError
from dovetail.cli.cluster.pool_commands import add_pool_command, change_pools, check_pools

_HOLD = """\
Puts karpenter.sh/do-not-disrupt on the pools' nodes, with Dovetail's mark (dovetail.dev/hold). Nodes on which a person
already put it are left alone. Karpenter's own expiry is forceful and no hold stops it. The controller places holds by
itself for the pools that it manages; this command needs no running controller.

examples:
  dovetail hold batch web
"""
_RELEASE = """\
Removes Dovetail's holds; what a person put on a node stays. With --all it removes everything of Dovetail, in all
pools: holds, and the taints and records of commands that a controller left when it stopped. Run it before you uninstall
(the chart does); with --stop-controller a running controller steps down first, so that it puts nothing back.

examples:
  dovetail release batch
  dovetail release --all
  dovetail release --all --stop-controller dovetail/dovetail
"""


def register(subparsers: Any) -> None:
    """Add both commands to the command line."""
    for name, what, epilog in (
        ("hold", "take Karpenter's own voluntary disruption off a pool's nodes", _HOLD),
        ("release", "give Karpenter's own voluntary disruption back", _RELEASE),
    ):
        parser = add_pool_command(subparsers, name, what, epilog)
        if name == "release":
            parser.add_argument(
                "--stop-controller",
                metavar="NS/LEASE",
                help="with --all: take this Lease over first, so that controllers which run step down for an hour",
            )
        parser.set_defaults(run=run, releasing=name == "release")


def run(args: argparse.Namespace) -> int:
    """Hold or release, and print what was done; return 1 if something could not be changed."""
    from dovetail.live.holds import HoldTally, hold, pool_names, release, still_given

    check_pools(args)
    lease = _lease(args)

    async def work(client: Any) -> HoldTally:
        if lease is not None:
            from dovetail.live.step_down import stop_controllers

            await stop_controllers(client, *lease)
        if args.releasing:
            pools = None if args.all else args.pools
            for pool in await still_given(client, pools):
                print(
                    f"note: NodePool {pool} is still given to Dovetail: a controller that runs will hold its nodes "
                    f"again; take it back with: kubectl label nodepool {pool} dovetail.dev/manage-",
                    file=sys.stderr,
                )
            tally = await release(client, pools)
            # Nodes that registered meanwhile, or were written just before the controller stepped down.
            return tally.plus(await release(client, pools)) if lease is not None else tally
        return await hold(client, await pool_names(client) if args.all else args.pools)

    tally = change_pools(args, work)
    done = "released" if args.releasing else "held"
    print(f"{done} {len(tally.changed)}, left {len(tally.kept)} as they were, failed {len(tally.failed)}")
    return 1 if tally.failed else 0


def _lease(args: argparse.Namespace) -> tuple[str, str] | None:
    given = getattr(args, "stop_controller", None)
    if given is None:
        return None
    namespace, _, name = given.partition("/")
    if not args.all or not namespace or not name or "/" in name:
        raise InputError("--stop-controller goes with --all and names a Lease, such as dovetail/dovetail")
    return namespace, name
