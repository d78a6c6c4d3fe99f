"""`dovetail import prometheus`: a recording of the time before anybody recorded, from the series of a Prometheus."""

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.progress import progress_bar

if TYPE_CHECKING:
    from dovetail.live.prometheus import ImportPlan
    from dovetail.model.catalogue import Catalogue
    from dovetail.recordings.imported import Import
    from dovetail.recordings.series import SeriesRuns

_EPILOG = """\
Reads the series of kube-state-metrics and Karpenter, an hour at a time; if it is
interrupted, the same command goes on where it stopped. What the series don't
say (NodePools, PDBs, constraints of workloads) comes from a capture with -f.
What is missing or guessed is printed, and kept in the recording.

examples:
  dovetail snapshot -o cluster.json.gz
  dovetail import prometheus --url http://localhost:9090 --for 7d -o last-week \\
    -f cluster.json.gz
  dovetail replay last-week
"""
_WORK = ".importing"
_NANOSECONDS = 1e9


def register(subparsers: Any) -> None:
    """Add the command to the command line."""
    outer = subparsers.add_parser(
        "import",
        help="make a recording from the series of a Prometheus",
        description="Makes a recording from what another system has kept.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser = outer.add_subparsers(dest="source", metavar="SOURCE", required=True).add_parser(
        "prometheus",
        help="from the series of kube-state-metrics and Karpenter",
        description="Makes a recording of your cluster's past from the series of kube-state-metrics and Karpenter.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--url", metavar="U", required=True, help="Prometheus' address, such as http://localhost:9090")
    parser.add_argument("--for", dest="length", metavar="D", required=True, help="how far back, such as 12h or 7d")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder of the recording")
    parser.add_argument(
        "-f", "--filename", dest="files", action="append", default=[], metavar="CAPTURE", help="a captured cluster"
    )
    parser.add_argument("--catalog", metavar="C", help="prices: aws:REGION or a JSON file; default: the nodes' region")
    parser.add_argument("--step", metavar="D", default="1m", help="how often to look; not below the scrape interval")
    parser.add_argument("--until", metavar="T", help="the end, as RFC 3339; default: now")
    parser.add_argument("--match", metavar="M", default="", help='labels that pick one cluster, such as cluster="prod"')
    parser.add_argument("--token-file", metavar="FILE", help="a file with a bearer token")
    parser.add_argument("--timeout", metavar="D", default="2m", help="how long to wait for one answer (2m)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the series, make the recording and say what it lacks."""
    import asyncio

    from dovetail.live.prometheus import SeriesReader, forget_empty, keep_plan
    from dovetail.model.cluster import Cluster
    from dovetail.recordings.imported import import_series
    from dovetail.recordings.read import is_recording

    folder = Path(args.output)
    if is_recording(folder):
        raise InputError(f"{folder} has a recording already; give another folder")
    plan, timeout, token = _plan(args, folder / _WORK), _seconds("--timeout", args.timeout), _token(args.token_file)
    capture = Cluster()
    if args.files:
        from dovetail.api.reading.decode import load_cluster

        capture = load_cluster(args.files)
    try:
        keep_plan(folder / _WORK, plan)
        with progress_bar(f"{plan.length / 3600:.0f} hours of series") as progress:
            reader = SeriesReader(plan=plan, folder=folder / _WORK, token=token, timeout=timeout, progress=progress)
            series: dict[str, list[SeriesRuns]] = asyncio.run(reader.read())
        found = import_series(series, plan.step, capture)
        catalogue = _catalogue(args, found)
        cluster = capture.origin.uid or f"{plan.url} {plan.match}".strip()
        files = _write(folder, found, catalogue, cluster)
    except OSError as error:
        raise InputError(
            f"{folder} can't be written ({error.strerror or error}); mend that and run the same command again: it "
            "goes on from here"
        ) from None
    except InputError:
        forget_empty(folder / _WORK)
        raise
    _report(folder, files, found)
    return 0


def _plan(args: argparse.Namespace, work: Path) -> "ImportPlan":
    from datetime import datetime

    from dovetail.live.prometheus import ImportPlan, load_plan

    if not args.url.startswith(("http://", "https://")):
        raise InputError(f"--url is {args.url}; write an address such as http://localhost:9090")
    url, length, step = args.url.rstrip("/"), _seconds("--for", args.length), _seconds("--step", args.step)
    if step < 1 or length < 2 * step:
        raise InputError(f"--step is {args.step}; write a duration of at least 1s, and --for at least twice as long")
    ends = time.time()
    if args.until is not None:
        try:
            ends = datetime.fromisoformat(args.until).timestamp()
        except ValueError:
            raise InputError(f"--until is {args.until}; write a time such as 2026-11-18T00:00:00Z") from None
    ends = ends // step * step
    known = load_plan(work)
    if known is not None:
        same = (known.url, known.match, known.length, known.step) == (url, args.match, length, step)
        if same and (args.until is None or known.ends == ends):
            return known
        raise InputError(
            f"{work.parent} holds an import of something else ({known.url}, {known.length / 3600:g} hours); remove "
            f"{work} or give another folder"
        )
    return ImportPlan(
        url=url, match=args.match, length=length, step=step, begins=ends - length // step * step, ends=ends
    )


def _seconds(flag: str, text: str) -> float:
    from dovetail.model.timing.duration import parse_simple

    try:
        found = parse_simple(text, "smhd") / _NANOSECONDS
    except ValueError:
        found = 0.0
    if found <= 0:
        raise InputError(f"{flag} is {text}; write a duration such as 30s, 12h or 7d")
    return found


def _token(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file {path} can't be read ({error})") from None


def _catalogue(args: argparse.Namespace, found: "Import") -> "Catalogue | None":
    from dovetail.api.catalogue import CatalogueError, load_catalogue
    from dovetail.api.clouds.detect import choose_catalogue

    try:
        return load_catalogue(args.catalog if args.catalog is not None else choose_catalogue(found.nodes)[0])
    except CatalogueError as error:
        if args.catalog is not None:
            raise InputError(str(error)) from None
        print(f"warning: the recording has no prices: {error}", file=sys.stderr)
        return None


def _write(folder: Path, found: "Import", catalogue: "Catalogue | None", cluster: str) -> int:
    """Write the files beside their place and move them there when all are whole."""
    from dovetail.live.recorder import new_fold
    from dovetail.recordings.imported import write_import
    from dovetail.recordings.store import files_of, write_manifest

    new = folder / _WORK / "files"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    fold = new_fold(cluster, catalogue)
    files = write_import(new, found, fold)
    for path in files_of(new):
        path.replace(folder / path.name)
    write_manifest(folder, fold.cluster, fold.catalogue, found.missing, fold.recorder)
    shutil.rmtree(folder / _WORK, ignore_errors=True)
    return files


def _report(folder: Path, files: int, found: "Import") -> None:
    first, last = found.stretches[0], found.stretches[-1]
    hours = (last.ends - first.begins).total_seconds() / 3600
    print(f"wrote {files} files to {folder}: {hours:.1f} hours, {len(found.nodes)} nodes", file=sys.stderr)
    if len(found.stretches) > 1:
        print(f"gaps: {len(found.stretches) - 1}; nothing is known of these", file=sys.stderr)
    for word, texts in (("missing", found.missing), ("guessed", found.guessed)):
        for text in texts:
            print(f"{word}: {text}", file=sys.stderr)
