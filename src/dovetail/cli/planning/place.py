"""`dovetail place`: where the pending pods would go."""

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from dovetail.cli.inputs import (
    add_input_options,
    add_output_option,
    add_policy_option,
    load_live_question,
    naming_the_culprit,
    note_problems,
)
from dovetail.cli.live_cluster import add_live_options
from dovetail.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dovetail.model.money import Money
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
        description="Shows where each pending pod would go, which nodes would be new, and which pods fit nowhere.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_input_options(parser)
    add_policy_option(parser)
    add_live_options(parser)
    add_output_option(parser, ("text", "json"), "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the placement."""
    from dataclasses import replace

    from dovetail.decide.decider import Decider
    from dovetail.model.settings import Tariff
    from dovetail.scheduling.simulate import place

    paying = load_live_question(args)
    # Karpenter launches the nodes of pending pods, and knows no commitments, discounts or surcharges.
    question = replace(paying, settings=paying.settings.paying(Tariff()))
    note_problems(question.cluster, question.settings, launches=True)
    with naming_the_culprit(question.cluster):
        result = place(question.snapshot())
        document = _document(result)
        if question.settings != paying.settings:
            _add_costs(document, Decider().scene(paying).billing.added(result.new))
    notes = question.cluster.notes
    if args.output == "json":
        print_json({**document, "warnings": list(notes)} if notes else document)
    else:
        from dovetail.report.table import note_lines

        print("\n".join([*note_lines(notes), _text(document)]))
    return 0


def _add_costs(document: dict[str, Any], added: "Sequence[Money | None]") -> None:
    """Add what each new node adds to the bill, where that is not its list price."""
    from dovetail.model.money import format_money

    for entry, cost in zip(document["new"], added, strict=True):
        entry["addsPerHour"] = None if cost is None else format_money(cost)


def _document(result: "PlacementResult") -> dict[str, Any]:
    return {
        "existing": [
            {"node": entry.node, "pods": sorted(pod.metadata.key for pod in entry.pods)} for entry in result.existing
        ],
        "new": [
            {
                "nodePool": entry.pool,
                "instanceTypes": [kind.name for kind in entry.instance_types],
                "pods": sorted(pod.metadata.key for pod in entry.pods),
            }
            for entry in result.new
        ],
        "unplaced": [{"pod": entry.pod.metadata.key, "why": entry.why} for entry in result.unplaced],
    }


def _text(document: dict[str, Any]) -> str:
    from dovetail.plan.summary import LINE_MAX
    from dovetail.report.words import safe  # names come from outside

    lines = [f"{entry['node']} takes {_some(entry['pods'])}" for entry in document["existing"]]
    for entry in document["new"]:
        types = entry["instanceTypes"]
        more = f" or one of {len(types) - 1} more types" if len(types) > 1 else ""
        lines.append(
            f"a new {types[0] if types else 'node'}{more} of NodePool {entry['nodePool']}{_adds(entry)} takes "
            f"{_some(entry['pods'])}"
        )
    lines.extend(f"{entry['pod']} finds no place: {entry['why']}" for entry in document["unplaced"])
    wrapped = (row for line in lines for row in _wrapped(safe(line, LINE_MAX)))
    return "\n".join(wrapped) or "No pod is waiting for a place."


def _adds(entry: dict[str, Any]) -> str:
    """Return what a new node adds to the bill, in words; empty if that was not asked."""
    from dovetail.decide.words import dollars
    from dovetail.model.money import parse_money

    if "addsPerHour" not in entry:
        return ""
    cost = entry["addsPerHour"]
    if cost is None:
        return " (its price is unknown)"
    more = f"{dollars(parse_money(cost))}/h more" if parse_money(cost) else "nothing more: it is paid for already"
    return f" ({more})"


def _wrapped(line: str) -> list[str]:
    """Return one entry in lines that fit a plain terminal, all but the first indented."""
    from dovetail.report.table import WIDTH

    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _some(pods: list[str]) -> str:
    from dovetail.report.words import count

    shown = ", ".join(pods[:3])
    return shown if len(pods) <= 3 else f"{shown} and {count(len(pods) - 3, 'more pod')}"
