"""`dovetail record`: record what happens in a real cluster, for `whatif`, `tune`, `regret` and `ui`."""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.live.kubernetes.client import ApiClient
    from dovetail.live.kubernetes.watch import Informer
    from dovetail.live.recorder import ClusterRecorder

_LATER_SECONDS: Final = 120.0
"""How much later than the first of several clusters the others may be done."""
_EPILOG = """\
Needs only the right to read. Writes a file an hour, each readable alone, and a manifest; a crash loses at most the
last minute. Pods are kept by owner, requests and constraints: never their environment, images or arguments.

examples:
  dovetail record -o last-week --for 168h                a week of this cluster
  dovetail record -o last-week --anonymise               the same, with made-up names, to be shared
  dovetail ui last-week                                  look at what happened
"""


class _Done(NamedTuple):
    """How a recording ended: whether everything was listed at its begin, and whether what was seen could be written."""

    listed: bool
    kept: bool

    def error(self, folder: Path) -> str:
        """Return why nothing can be answered from it; empty if something can."""
        if not self.listed:
            return "it was not watched: the time was over before all its objects had been listed"
        return "" if self.kept else f"what was seen could not be kept in {folder}; free some space for temporary files"


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    from dovetail.cli.live_cluster import add_cluster_options

    parser = subparsers.add_parser(
        "record",
        help="record what happens in a live cluster",
        description="Records what happens in a live cluster, so that policies can be tried on what really happened.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder to write to; may have files")
    parser.add_argument("--for", dest="length", metavar="D", help="stop after this time, such as 30m or 168h")
    parser.add_argument("--keep", metavar="D", help="remove files older than this, such as 14d")
    parser.add_argument("--max-size", metavar="MIB", type=int, help="remove the oldest files above this size")
    parser.add_argument(
        "--anonymise", "--anonymize", action="store_true", help="replace names and labels by made-up ones"
    )
    parser.add_argument(
        "--catalog", metavar="C", help="prices: aws:REGION or a JSON file; default: the nodes' region, if it is known"
    )
    add_cluster_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Record until the time is over or the user stops it."""
    return 0 if _alone(args).kept else 1


def _alone(args: argparse.Namespace) -> _Done:
    from dovetail.cli.live_cluster import with_client

    work = _recording(args)

    async def until_a_signal(client: "ApiClient") -> _Done:
        return await work(client, _stopped_by_a_signal())

    return with_client(args, until_a_signal)


def watched_for(flag: str, text: str | None) -> int | None:
    """Return a length of time of the command line in nanoseconds. InputError: it can't be read."""
    from dovetail.model.timing.duration import parse_simple

    try:
        found = None if text is None else parse_simple(text, "smhd")
    except ValueError:
        found = 0
    if found == 0:
        raise InputError(f"{flag} is {text}; write a duration such as 30m, 8h or 7d")
    return found


def _recording(args: argparse.Namespace) -> "Callable[[ApiClient, asyncio.Event], Awaitable[_Done]]":
    """Check the options and the folder; return what records a cluster until it is told to stop."""
    from datetime import timedelta

    from dovetail.recordings.store import Limits

    seconds, keep = watched_for("--for", args.length), watched_for("--keep", args.keep)
    if args.max_size is not None and args.max_size < 1:
        raise InputError(f"--max-size is {args.max_size}; write a size in MiB, 1 or more")
    limits = Limits(
        keep=None if keep is None else timedelta(microseconds=keep // 1000),
        bytes_max=None if args.max_size is None else args.max_size << 20,
    )
    folder = Path(args.output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").write_bytes(b"")
        (folder / ".writable").unlink()
    except OSError as error:
        raise InputError(f"{folder} can't be written ({error.strerror})") from None

    async def work(client: "ApiClient", stop: asyncio.Event) -> _Done:
        return await _record(args, client, folder, limits, None if seconds is None else seconds / 1e9, stop)

    return work


def _stopped_by_a_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def watch_into(args: argparse.Namespace, folder: Path) -> None:
    """Record the chosen cluster for `args.length`, for a command that answers from it."""
    error = _alone(_for_an_answer(args, folder)).error(folder)
    if error:
        raise InputError(error)


def watch_side_by_side(clusters: Mapping[Path, argparse.Namespace]) -> dict[str, str]:
    """Record several clusters at the same time, each into its folder; return why some could not be, by cluster."""

    async def all_of_them() -> dict[str, str]:
        stop = _stopped_by_a_signal()
        done = await asyncio.gather(*(_beside(args, folder, stop) for folder, args in clusters.items()))
        return {args.cluster: error for args, error in zip(clusters.values(), done, strict=True) if error}

    return asyncio.run(all_of_them()) if clusters else {}


async def _beside(args: argparse.Namespace, folder: Path, stop: asyncio.Event) -> str:
    """Record one of several clusters; return why it could not be."""
    from dovetail.cli.live_cluster import beside_others

    work = _recording(_for_an_answer(args, folder))
    try:
        done = await beside_others(args, lambda client: work(client, stop))
    except InputError as error:
        return str(error)
    asyncio.get_running_loop().call_later(_LATER_SECONDS, stop.set)  # whoever asks waits for the last one
    return done.error(folder)


def _for_an_answer(args: argparse.Namespace, folder: Path) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), "output": folder, "keep": None, "max_size": None, "anonymise": False})


async def _record(
    args: argparse.Namespace,
    client: "ApiClient",
    folder: Path,
    limits: Any,
    seconds: float | None,
    stop: asyncio.Event,
) -> _Done:
    from dovetail.live.feeds import catalogue_for
    from dovetail.live.kubernetes.resources import ALL_RESOURCES
    from dovetail.live.kubernetes.watch import Informer
    from dovetail.live.observability.logs import Log
    from dovetail.live.observability.repeats import Repeats
    from dovetail.live.recorder import ClusterRecorder, cluster_id, load_names_key, new_fold

    several = getattr(args, "cluster", "")
    whose = f"{several}: " if several else ""

    def say(message: str) -> None:
        print(f"{whose}{message}", file=sys.stderr, flush=True)

    try:
        catalogue = await catalogue_for(client, args.catalog, Log("error"))
    except InputError as error:
        if args.catalog is not None:
            raise
        catalogue = None
        say(f"warning: no prices are recorded: {error}")
    key = load_names_key(folder) if args.anonymise else None
    informers: list[Informer] = []
    recorder = ClusterRecorder(
        folder=folder,
        fold=new_fold(await cluster_id(client), catalogue, key),
        limits=limits,
        note=lambda message: say(f"warning: {message}"),
        missing=lambda: tuple(each.resource.kind for each in informers if each.is_missing),
    )

    async def deliver(event: Any) -> None:
        recorder.take(event)

    def warn(kind: str, text: str) -> None:
        say(f"warning: {text}")

    repeats = Repeats()

    def warn_rarely(kind: str, text: str) -> None:
        if repeats.let_through(kind) is not None:
            say(f"warning: {kind}: {text}")

    informers += [
        Informer(client=client, resource=resource, deliver=deliver, note=warn, failed=warn_rarely)
        for resource in ALL_RESOURCES
    ]
    tasks = [asyncio.create_task(informer.run(), name=informer.resource.kind) for informer in informers]
    try:
        listed = await _whole(informers, tasks, stop)
        if listed:
            say(f"recording into {folder}; stop with Ctrl-C")
            tasks += [asyncio.create_task(recorder.run()), asyncio.create_task(_report(recorder, say))]
            await _until(stop, tasks, seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    recorder.finish()
    say(f"wrote {recorder.files} files to {folder}: {recorder.lines:,} lines, {recorder.bytes_written:,} bytes")
    return _Done(listed=listed, kept=not recorder.fault)


async def _whole(informers: "list[Informer]", tasks: "list[asyncio.Task[None]]", stop: asyncio.Event) -> bool:
    """Wait until every kind has been listed: a file begins with everything that is there. Return whether it was."""
    synced = asyncio.ensure_future(asyncio.gather(*(informer.synced.wait() for informer in informers)))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        waiting: list[asyncio.Future[Any]] = [synced, stopped, *tasks]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        _raise_fault(tasks)
        return not stop.is_set()
    finally:
        synced.cancel()
        stopped.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await synced


async def _until(stop: asyncio.Event, tasks: "list[asyncio.Task[None]]", seconds: float | None) -> None:
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait([stopped, *tasks], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    _raise_fault(tasks)


def _raise_fault(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        if task.done() and not task.cancelled():
            fault = task.exception()
            if fault is not None:
                raise fault


async def _report(recorder: "ClusterRecorder", say: Any) -> None:
    """Print once a minute how much there is."""
    while True:
        await asyncio.sleep(60)
        say(f"{recorder.lines:,} lines, {recorder.bytes_written:,} bytes, {recorder.files} files")
