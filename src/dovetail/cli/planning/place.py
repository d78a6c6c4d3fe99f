"""`dovetail place`: where the pending pods would go."""

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from dovetail.cli.inputs import add_input_options, add_output_option, load_question, naming_the_culprit, note_problems
from dovetail.cli.live_cluster import add_cluster_options, capture_live
from dovetail.cli.output import print_json

if TYPE_CHECKING:
    from dovetail.scheduling.result import PlacementResult

_EPILOG = """\
examples:
  dovetail place -f cluster.json --catalog aws:eu-west-1 -o json
  dovetail place -f cluster.json
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "place",
        help="where the pending pods would go",
        description="Says which pending pods would go where, which nodes would be new, and what finds no place.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_cluster_options(parser)
    add_output_option(parser, ("text", "json"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the placement."""
    from dovetail.scheduling.place import place

    question = load_question(args, capture=lambda: capture_live(args))
    note_problems(question.cluster, question.settings, launches=True)
    with naming_the_culprit(question.cluster):
        document = _document(place(question.snapshot()))
    if args.output == "json":
        print_json(document)
    else:
        print(_text(document))
    return 0


def _document(result: "PlacementResult") -> dict[str, Any]:
    from dovetail.decide.gates.gate_results import pod_name

    return {
        "existing": [{"node": entry.node, "pods": sorted(map(pod_name, entry.pods))} for entry in result.existing],
        "new": [
            {
                "nodePool": entry.pool,
                "instanceTypes": [kind.name for kind in entry.instance_types],
                "pods": sorted(map(pod_name, entry.pods)),
            }
            for entry in result.new
        ],
        "unplaced": [{"pod": pod_name(entry.pod), "why": entry.why} for entry in result.unplaced],
    }


def _text(document: dict[str, Any]) -> str:
    from dovetail.plan.summary import LINE_MAX
    from dovetail.report.words import safe  # names come from outside

    lines = [f"{entry['node']} takes {_some(entry['pods'])}" for entry in document["existing"]]
    for entry in document["new"]:
        types = entry["instanceTypes"]
        more = f" or one of {len(types) - 1} more types" if len(types) > 1 else ""
        lines.append(
            f"a new {types[0] if types else 'node'}{more} of NodePool {entry['nodePool']} takes {_some(entry['pods'])}"
        )
    lines.extend(f"{entry['pod']} finds no place: {entry['why']}" for entry in document["unplaced"])
    wrapped = (row for line in lines for row in _wrapped(safe(line, LINE_MAX)))
    return "\n".join(wrapped) or "No pod is waiting for a place."


def _wrapped(line: str) -> list[str]:
    """Return one entry in lines that fit a plain terminal, all but the first indented."""
    from dovetail.report.table import WIDTH

    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _some(pods: list[str]) -> str:
    from dovetail.report.words import count

    shown = ", ".join(pods[:3])
    return shown if len(pods) <= 3 else f"{shown} and {count(len(pods) - 3, 'more pod')}"
