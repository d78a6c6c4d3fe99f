"""Talks to the cluster of the kubeconfig, for commands that need one; an error becomes one sentence."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from dovetail import __version__
from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.live.kubernetes.client import ApiClient
    from dovetail.model.cluster import Cluster

T = TypeVar("T")


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which cluster."""
    group = parser.add_argument_group("cluster")
    group.add_argument("--kubeconfig", metavar="FILE", help="by default $KUBECONFIG, ~/.kube/config, or this pod's own")
    group.add_argument("--context", metavar="NAME", help="a context of the kubeconfig; by default the current one")


def with_client(args: argparse.Namespace, work: "Callable[[ApiClient], Awaitable[T]]") -> T:
    """Run `work` with a client of the chosen cluster; raise InputError with one sentence on failure."""
    import asyncio  # slow to load, and most commands read files

    from dovetail.live.kubernetes.client import ApiClient, ApiError
    from dovetail.live.kubernetes.credentials import CredentialsError, UnreachableError, connect

    found: list[T] = []  # not what `session` returns: at its end asyncio.run has a name made of that, all pods in words

    async def session() -> None:
        connection = connect(getattr(args, "kubeconfig", None), getattr(args, "context", None))
        async with ApiClient(connection, user_agent=f"dovetail/{__version__}") as client:
            found.append(await work(client))

    try:
        asyncio.run(session())
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
    return found[0]


def capture_live(args: argparse.Namespace) -> "Cluster":
    """Read everything that a plan needs from the live cluster, and print what could not be read."""
    from dovetail.live.capture import CaptureError, capture

    try:
        captured = with_client(args, capture)
    except CaptureError as error:
        raise InputError(str(error)) from None
    for warning in captured.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return replace(captured.cluster, captured_at=datetime.now(UTC).replace(microsecond=0))
