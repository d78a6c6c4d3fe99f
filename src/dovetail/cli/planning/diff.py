"""`dovetail diff`: what applying manifests does to a cluster; or what changed between two captures."""

import argparse
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError, Severity
from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    load_live_question,
    load_question,
    naming_the_culprit,
    note_unmanaged,
)
from dovetail.cli.live_cluster import add_live_options
from dovetail.cli.output import print_bytes, print_json, print_lines, print_page

if TYPE_CHECKING:
    from dovetail.cli.reference.validate import Located
    from dovetail.decide.question import Question
    from dovetail.model.objects import AnyObject
    from dovetail.plan.change import ManifestChange

_FAILURES = ("error", "drift", "cost")
_EPILOG = """\
Drift is Karpenter's own: the hash of the template, with the CRD's defaults, and
requirements that a node no longer meets. Changes of a NodeClass are not
predicted. Exit status 1 with --exit-code if a manifest has an error, and for
what --fail-on names.

examples:
  dovetail diff -f cluster.json.gz --change nodepools/
  dovetail diff -f cluster.json.gz --change pool.yaml -o markdown
  dovetail diff -f last-week/ --change pool.yaml              a recording's end
  dovetail diff --change pool.yaml --fail-on error,drift      the live cluster
  dovetail diff monday.json.gz tuesday.json.gz                two captures
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "diff",
        help="what a change of a NodePool would do, before it is merged",
        description="Shows which nodes drift if you apply manifests, how long the roll takes, and what it costs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("captures", metavar="CAPTURE", nargs="*", help="two captures to compare with each other")
    parser.add_argument("--change", metavar="FILE", nargs="+", action="extend", help="manifests, or folders of them")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if a manifest has an error")
    parser.add_argument(
        "--fail-on", metavar="WHAT", help="exit with 1 on error, drift or cost (a higher bill); several with commas"
    )
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    add_output_option(parser, ("text", "json", "markdown", "html"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the difference."""
    failures = _failures(args)
    if args.captures:
        return _two_captures(args)
    if not args.change:
        raise InputError("what would change? Write --change FILE, or two captures to compare: dovetail diff A B")
    from dovetail.cli.reference.validate import findings_in

    located = findings_in(args.change)
    objects, classes = _objects(args.change, located)
    question = _question(args)
    from dovetail.plan.change import change_of

    with naming_the_culprit(question.cluster):
        change = change_of(question, objects, classes)
    _print(args, change, located)
    broken = any(entry.finding.severity is Severity.ERROR for entry in located)
    found = {"error": broken, "drift": change.drifting > 0, "cost": change.costs_more > 0}
    return 1 if any(found[what] for what in failures) else 0


def _question(args: argparse.Namespace) -> "Question":
    """Load the capture, the end of a recording, or the live cluster."""
    from pathlib import Path

    from dovetail.recordings.read import is_recording

    if args.files and len(args.files) == 1 and is_recording(Path(args.files[0])):
        from dovetail.recordings.read import load_cluster_recording

        recording = load_cluster_recording(Path(args.files[0]))
        recorded = copy(args)
        recorded.files, recorded.catalog = None, args.catalog or recording.catalogue or None
        return load_question(recorded, capture=lambda: recording.cluster_at(recording.ends))
    question = load_live_question(args)
    note_unmanaged(args, question)
    return question


def _failures(args: argparse.Namespace) -> tuple[str, ...]:
    named = tuple(filter(None, (args.fail_on or "").split(",")))
    unknown = [word for word in named if word not in _FAILURES]
    if unknown or (args.fail_on is not None and not named):
        shown = unknown[0] if unknown else args.fail_on
        raise InputError(f'--fail-on is "{shown}"; valid values: {", ".join(_FAILURES)}')
    return (*named, "error") if args.exit_code else named


def _objects(paths: Sequence[str], located: "Sequence[Located]") -> "tuple[list[AnyObject], list[str]]":
    """Return the objects that would be applied, without those that the API server refuses, and the NodeClasses."""
    from dovetail.api.reading.decode import decode_files
    from dovetail.model.objects import NodePool

    decoded = decode_files(paths)
    refused = {entry.name for entry in located if entry.finding.severity is Severity.ERROR}
    classes = [f"{count} {kind}" for kind, count in decoded.unknown_kinds.items() if kind.endswith("NodeClass")]
    kept = [
        item
        for item in decoded.objects
        if not (isinstance(item, NodePool) and f"NodePool/{item.metadata.name}" in refused)
    ]
    return kept, classes


def _print(args: argparse.Namespace, change: "ManifestChange", located: "Sequence[Located]") -> None:
    from dovetail.plan.change_text import change_markdown, change_page, change_text

    sentences = [f"{entry.file}: {entry.name}: {entry.finding.line()}" for entry in located]
    if args.output == "json":
        from dovetail.cli.reference.validate import findings_document

        print_json({"findings": findings_document(located), **change.to_dict()})
    elif args.output == "markdown":
        print_bytes(change_markdown(change, sentences).encode())
    elif args.output == "html":
        print_page(change_page(change, sentences))
    else:
        print_lines(change_text(change, sentences).split("\n"))


def _two_captures(args: argparse.Namespace) -> int:
    from dovetail.plan.captures import captures_diff

    if len(args.captures) != 2:
        raise InputError(f"{len(args.captures)} captures are named; give two: dovetail diff A B")
    if args.change or args.files or args.fail_on or args.exit_code:
        raise InputError("two captures are compared alone; leave out -f, --change, --exit-code and --fail-on")
    if args.output not in ("text", "json"):
        raise InputError(f"-o {args.output} goes with --change; two captures are printed as text or json")
    sides: list[Any] = []
    for path in args.captures:
        side = copy(args)
        side.files = [path]
        sides.append(load_question(side))
    found = captures_diff(*sides)
    if args.output == "json":
        print_json(found.to_dict())
    else:
        print_lines(found.text.split("\n"))
    return 0
