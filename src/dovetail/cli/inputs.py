"""The inputs that most commands share: -f, --catalog, --now, --profile, --settings; their options and their loading.

Only wiring: `api` reads the inputs. The clock is read here and nowhere below. Notes for people (what was ignored, what
takes long) go to standard error.
"""

import argparse
import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from dovetail.api.findings import InputError, one_line
from dovetail.cli.live_cluster import check_one_source, read_live

if TYPE_CHECKING:
    from dovetail.api.reading.decode import DecodedObjects
    from dovetail.decide.question import Question
    from dovetail.lifecycle.published import PublishedState
    from dovetail.model.catalogue import Catalogue
    from dovetail.model.cluster import Cluster
    from dovetail.model.settings import Settings

PROFILE: Final = "dovetail"
_PATIENCE: Final = 2.0
_NOTES_MAX: Final = 10
_YEARS: Final = (1970, 9000)


def add_input_options(parser: argparse.ArgumentParser, *, files: bool = True) -> None:
    """Add the options that say what to look at."""
    group = parser.add_argument_group("inputs")
    if files:
        group.add_argument(
            "-f",
            "--filename",
            dest="files",
            metavar="FILE",
            nargs="+",
            action="extend",
            help="what 'kubectl get ... -o json|yaml' printed; .gz and folders too; - is standard input",
        )
        group.add_argument(
            "--partial", action="store_true", help="accept files that lack something, such as the pods of a namespace"
        )
    group.add_argument(
        "--catalog",
        metavar="C",
        help="instance types and prices: aws:REGION, azure:REGION or gcp:REGION (built in), aws-live:REGION (asks "
        "AWS) or a JSON file; by default the cloud and region of the nodes",
    )
    group.add_argument(
        "--now",
        metavar="T",
        help="the moment to look from, such as 2026-03-14T15:30:00Z, or now; by default the time of the capture",
    )
    group.add_argument(
        "--profile",
        metavar="P",
        default=PROFILE,
        help="whose rules: dovetail (the default) or karpenter-1.9 to karpenter-1.15",
    )
    group.add_argument("--settings", metavar="FILE", help="YAML or JSON with settings; its keys win over the profile's")


def add_policy_option(parser: argparse.ArgumentParser) -> None:
    """Add --policy, for commands that plan."""
    parser.add_argument("--policy", metavar="NAME", help="a built-in policy: recommended, the one for new users")


def add_output_option(parser: argparse.ArgumentParser, choices: Sequence[str], default: str) -> None:
    """Add -o."""
    parser.add_argument(
        "-o", "--output", choices=list(choices), default=default, help=f"form of the answer (default: {default})"
    )


def load_live_question(args: argparse.Namespace) -> "Question":
    """As `load_question`; without -f the cluster of the kubeconfig, with what is in flight and its controller's state.

    The controller's settings count unless --settings, --profile or --policy name others.
    """
    if args.files:
        return load_question(args)
    found: list[PublishedState | None] = []

    def capture() -> "Cluster":
        cluster, state = read_live(args)
        found.append(state)
        return cluster

    question = load_question(args, capture)
    state = found[0]
    if state is not None and state.catalogue != question.catalogue.source:
        print(
            f"note: prices of {question.catalogue.source}; the controller's are of {state.catalogue}", file=sys.stderr
        )
    return with_controller(args, question, state)


def with_controller(args: argparse.Namespace, question: "Question", state: "PublishedState | None") -> "Question":
    """Return the question of a live cluster with what is in flight and what its controller has published, if it has.

    The controller's settings count unless the options name others.
    """
    from dovetail.lifecycle.published import live_question

    if state is None:
        return live_question(question, None)
    if names_settings(args):
        print("note: by the settings that you name; the controller's own may differ", file=sys.stderr)
    else:
        pools = managed_or_all(question.cluster, state.settings)
        question = replace(question, settings=state.settings, managed_pools=pools)
    return live_question(question, state)


def names_settings(args: argparse.Namespace) -> bool:
    """Return whether the options name settings of their own."""
    return bool(args.settings or args.profile != PROFILE or getattr(args, "policy", None))


def load_question(args: argparse.Namespace, capture: Callable[[], "Cluster"] | None = None) -> "Question":
    """Load everything that the options name; without -f the cluster comes from `capture`, if given.

    All pools of a captured cluster count as managed (contract.md, `pools`); of a live one, those that Dovetail manages.
    """
    settings = load_settings_option(args)
    check_now(args.now)
    from dovetail.model.policies.daemon_like import with_daemon_like

    cluster = with_daemon_like(load_cluster_option(args, capture, whole=True), settings.daemon_like)
    now = moment_of(args.now, cluster, noted=bool(getattr(args, "files", None)))
    catalogue = load_catalogue_option(args, cluster)
    from dovetail.decide.question import Question

    pools = None if getattr(args, "files", None) else managed_or_all(cluster, settings)
    return Question(cluster=cluster, catalogue=catalogue, settings=settings, now=now, managed_pools=pools)


def managed_or_all(cluster: "Cluster", settings: "Settings") -> tuple[str, ...] | None:
    """Return the managed pools of a live cluster (docs/rules.md#karpenter); None, which means all, if there is none."""
    from dovetail.model.policies.managed import managed_pools

    return managed_pools(cluster.node_pools, settings) or None


def note_unmanaged(args: argparse.Namespace, question: "Question") -> None:
    """Print a note if a live cluster has no pool that Dovetail manages: the answer is for all pools then."""
    from dovetail.model.names import MANAGE

    if not args.files and question.managed_pools is None:
        print(f"note: no NodePool is labelled {MANAGE}=true; planning as if all were", file=sys.stderr)


def load_cluster_option(
    args: argparse.Namespace, capture: Callable[[], "Cluster"] | None = None, *, whole: bool = False
) -> "Cluster":
    """Load the files of -f, or capture a live cluster without them.

    `whole`: the answer is about nodes and their pods, so files that lack something are refused without --partial. The
    cluster's `notes` say what the answer must say first.
    """
    from dovetail.api.reading.decode import decode_files

    check_one_source(args)
    files = getattr(args, "files", None)
    if not files:
        if capture is None:
            raise InputError("no input; give files with -f, such as -f cluster.json, or -f - for standard input")
        return capture()
    with patience(f"reading {', '.join(files)}"), quiet_collector():
        decoded = decode_files(files)
        cluster = decoded.cluster()
        notes = _lacking(args, decoded, cluster) if whole else ()
    if cluster.unknown_kinds:
        from dovetail.report.words import safe

        counted = safe(", ".join(f"{count} {kind}" for kind, count in cluster.unknown_kinds.items()))
        print(f"note: passed over {counted} (not needed)", file=sys.stderr)
    for name in decoded.passed_over:
        print(f"note: passed over {one_line(name)} (no Kubernetes object in it)", file=sys.stderr)
    return replace(cluster, notes=notes)


def _lacking(args: argparse.Namespace, decoded: "DecodedObjects", cluster: "Cluster") -> tuple[str, ...]:
    """Raise if the files lack something; return what the answer must say first."""
    from dovetail.api.reading.completeness import RECAPTURE, accepted, lacks_of

    lacks = lacks_of(decoded, cluster)
    if lacks.refusals and not getattr(args, "partial", False):
        raise InputError(f"{lacks.refusals[0]}; {RECAPTURE}")
    return (*accepted(lacks.refusals), *lacks.warnings)


def note_input(cluster: "Cluster") -> None:
    """Print to standard error what the input may lack, for commands whose answer has no place for it."""
    from dovetail.report.words import safe

    for text in cluster.notes:
        print(f"warning: {safe(text)}", file=sys.stderr)


def note_problems(cluster: "Cluster", settings: "Settings", *, launches: bool) -> None:
    """Print to standard error what `plan` lists as warnings: unknown names, pools that launch nothing."""
    from dovetail.api.manifests.pool_rules import launch_problems
    from dovetail.api.settings import unknown_names
    from dovetail.report.words import safe

    notes = list(unknown_names(settings, cluster))
    for pool in cluster.node_pools if launches else ():
        notes += [f"NodePool {pool.metadata.name}: {text}; it launches no node" for text in launch_problems(pool)]
    for text in notes[:_NOTES_MAX]:
        print(f"note: {safe(text)}", file=sys.stderr)
    if len(notes) > _NOTES_MAX:
        print(f"note: and {len(notes) - _NOTES_MAX} more; dovetail plan -o json lists all", file=sys.stderr)


@contextlib.contextmanager
def naming_the_culprit(cluster: "Cluster") -> Iterator[None]:
    """Return which object has an unreadable quantity; searched only after such an error."""
    from dovetail.model.labels.requirements import OperatorError
    from dovetail.model.quantity import QuantityError

    try:
        yield
    except QuantityError as error:
        from dovetail.api.reading.decode import unreadable_quantity

        raise InputError(unreadable_quantity(cluster) or str(error)) from None
    except OperatorError as error:
        raise InputError(f"a pod's affinity, or a volume's, can't be read: {error}") from None


def load_catalogue_option(args: argparse.Namespace, cluster: "Cluster") -> "Catalogue":
    """Load --catalog, or the built-in table of the nodes' cloud and region."""
    from dovetail.api.catalogue import CatalogueError, load_catalogue

    try:
        where = args.catalog
        if where is None:
            from dovetail.api.clouds.detect import choose_catalogue

            where, note = choose_catalogue(cluster.nodes)
            if note:
                print(f"note: {note}", file=sys.stderr)
        with patience(f"reading {where}"):
            return live_catalogue(where) if where.startswith("aws-live:") else load_catalogue(where)
    except CatalogueError as error:
        raise InputError(str(error)) from None


def live_catalogue(where: str) -> "Catalogue":
    """Ask AWS for the prices of a region; use the last ones or the built-in ones if it doesn't answer."""
    from dovetail.live.prices.aws_prices import PricesError
    from dovetail.live.prices.price_feed import live_prices

    prices = live_prices(where)
    assert prices is not None
    try:
        catalogue = prices.load()
    except PricesError as error:
        raise InputError(f"{error}; give --catalog aws:REGION or a file, or check the credentials") from None
    for text in prices.warnings:
        print(f"warning: {text}", file=sys.stderr)
    return catalogue


def load_settings_option(args: argparse.Namespace, other: str | None = None) -> "Settings":
    """Load --settings over --profile and --policy, or over another profile or policy."""
    from dovetail.api.settings import load_settings
    from dovetail.model.settings import RECOMMENDED_NAME

    if other == RECOMMENDED_NAME:
        return load_settings(args.settings, policy=other)
    if other is not None:
        return load_settings(args.settings, other)
    return load_settings(args.settings, args.profile, getattr(args, "policy", None))


def check_now(text: str | None, option: str = "--now") -> datetime | None:
    """Read --now; None if it is not given, or is the word now."""
    if text is None or text == "now":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InputError(f'{option} is "{text}"; write a time with its zone, such as 2026-03-14T15:30:00Z')
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        raise InputError(f'{option} is "{text}"; write a time between {_YEARS[0]} and {_YEARS[1]}')
    return moment.astimezone(UTC)


def moment_of(text: str | None, cluster: "Cluster", *, noted: bool = True) -> datetime:
    """Return the time of the decision: --now, else the time of the capture, else the present.

    A live cluster (not `noted`) was captured at the API server's time, which counts even if it is to come here.
    """
    from dovetail.api.reading.capture_time import capture_time

    present = datetime.now(UTC)
    given = check_now(text)
    if given is None and not noted and cluster.captured_at is not None:
        return cluster.captured_at
    if given is not None or text == "now":
        return given or present
    found = capture_time(cluster, present)
    if found is None:
        return present
    if noted:
        shown = found.at.isoformat(timespec="seconds").replace("+00:00", "Z")
        origin = "when it was captured" if found.is_exact else "the latest time found in it"
        print(f"note: looking at the cluster as of {shown}, {origin}; --now sets another time", file=sys.stderr)
    return found.at


@contextlib.contextmanager
def patience(doing: str) -> Iterator[None]:
    """Print to a terminal what is being done, once it takes longer than two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(_PATIENCE, lambda: print(f"{doing} ...", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """Disable the garbage collector while long-lived data is loaded, and exclude that data from later collections."""
    with no_collector():
        try:
            yield
        finally:
            gc.freeze()


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Disable the garbage collector meanwhile."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def leave_as_it_is(args: argparse.Namespace, *objects: object) -> None:
    """Keep objects until the process ends, if it ends with this command, and look at them no more.

    Freeing 80,000 pods takes most of the time that decoding them takes, and the system gets their memory back anyway.
    A list that holds itself is never freed if no collector looks at it.
    """
    if args.last:
        kept: list[object] = [*objects]
        kept.append(kept)
        gc.freeze()
