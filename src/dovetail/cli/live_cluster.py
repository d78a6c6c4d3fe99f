"""Talks to the cluster of the kubeconfig, for commands that need one; an error becomes one sentence."""

import argparse
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar

from dovetail import __version__
from dovetail.api.findings import InputError
from dovetail.model.timing.duration import format_duration

if TYPE_CHECKING:
    from dovetail.lifecycle.published import PublishedState
    from dovetail.live.capture import Captured
    from dovetail.live.kubernetes.client import ApiClient
    from dovetail.live.publish import StateReading
    from dovetail.model.cluster import Cluster

T = TypeVar("T")
_SKEW_MAX: Final = timedelta(minutes=1)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster."""
    group = parser.add_argument_group("cluster")
    group.add_argument("--kubeconfig", metavar="FILE", help="by default $KUBECONFIG, ~/.kube/config, or this pod's own")
    group.add_argument("--context", metavar="NAME", help="a context of the kubeconfig; by default the current one")


def add_live_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster, and where its controller publishes what it knows."""
    add_cluster_options(parser)
    parser.add_argument(
        "--controller-namespace",
        metavar="NS",
        help="where Dovetail's controller runs, whose settings and waits count; by default dovetail or kube-system",
    )


def check_one_source(args: argparse.Namespace) -> None:
    """Raise if files and a live cluster are both named: the answer would be about only one of them."""
    named = [word for word in ("--context", "--kubeconfig") if getattr(args, word[2:], None) is not None]
    if named and getattr(args, "files", None):
        raise InputError(f"{named[0]} names a live cluster and -f files; leave one of them out")


def with_client(args: argparse.Namespace, work: "Callable[[ApiClient], Awaitable[T]]") -> T:
    """Run `work` with a client of the chosen cluster; raise InputError with one sentence on failure."""
    import asyncio  # slow to load, and most commands read files

    found: list[T] = []  # not what `session` returns: at its end asyncio.run has a name made of that, all pods in words

    async def session() -> None:
        found.append(await beside_others(args, work))

    asyncio.run(session())
    return found[0]


async def beside_others(args: argparse.Namespace, work: "Callable[[ApiClient], Awaitable[T]]") -> T:
    """Do what `with_client` does, in a loop that runs already: several clusters side by side."""
    from dovetail.live.kubernetes.client import ApiClient, ApiError
    from dovetail.live.kubernetes.credentials import CredentialsError, UnreachableError, connect

    try:
        connection = connect(getattr(args, "kubeconfig", None), getattr(args, "context", None))
        async with ApiClient(connection, user_agent=f"dovetail/{__version__}") as client:
            return await work(client)
    except CredentialsError as error:
        raise InputError(str(error)) from None
    except UnreachableError as error:
        raise InputError(f"the API server does not answer ({error}); check the kubeconfig's address") from None
    except ApiError as error:
        if error.status == 401:
            raise InputError(
                "the API server refused the credentials (401); renew the kubeconfig's credentials"
            ) from None
        raise InputError(f"the API server refused: {error}") from None


def capture_live(args: argparse.Namespace) -> "Cluster":
    """Read everything that a plan needs from the live cluster; its notes say what could not be read."""
    return read_live(args, with_state=False)[0]


def read_live(args: argparse.Namespace, *, with_state: bool = True) -> "tuple[Cluster, PublishedState | None]":
    """Read the live cluster, and what its controller has published; its notes say what could not be read.

    It is captured at the API server's time, so a wrong clock of this machine does not matter.
    """
    from dovetail.live.capture import CaptureError, capture
    from dovetail.live.publish import StateReading, read_state

    async def both(client: "ApiClient") -> "tuple[Captured, StateReading, datetime]":
        captured = await capture(client)
        now = client.server_time or datetime.now(UTC).replace(microsecond=0)
        if not with_state:
            return captured, StateReading(), now
        return captured, await read_state(client, args.controller_namespace, now), now

    try:
        captured, reading, now = with_client(args, both)
    except CaptureError as error:
        raise InputError(str(error)) from None
    notes = (*_skew(now), *([reading.problem] if reading.problem else []), *captured.warnings)
    return replace(captured.cluster, captured_at=now, notes=notes), reading.state


def _skew(server: datetime) -> list[str]:
    """Return a note if this machine's clock differs from the API server's by more than answers take."""
    ahead = datetime.now(UTC) - server
    if abs(ahead) <= _SKEW_MAX:
        return []
    away = format_duration(round(abs(ahead).total_seconds()) * 10**9)
    way = "ahead of" if ahead > timedelta() else "behind"
    return [f"this machine's clock is {away} {way} the API server's; the server's counts"]
