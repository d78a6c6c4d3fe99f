"""What the engine says about commands: numbers first, names of a few nodes, all of them in the figures."""

import pytest

from dovetail.lifecycle.announce import command_event, command_report
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.reports import some_of
from dovetail.model.command import Action, Method
from tests.lifecycle.world import T0


def run_of(nodes: int, replacements: int) -> Run:
    """A command on that many nodes."""
    candidates = tuple(
        Candidate(node=f"n{index}", claim=f"c{index}", uid=f"u{index}", pool="web") for index in range(nodes)
    )
    return Run(
        id="abc",
        action=Action.REPLACE_DRIFTED,
        method=Method.DRIFTED,
        candidates=candidates,
        replacements=tuple(f"r{index}" for index in range(replacements)),
        phase=Phase.TAINTING,
        began=T0,
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "n0"),
        (4, "n0, n1, n2, n3"),
        (5, "5 nodes (n0, n1, n2 and 2 more)"),
        (32, "32 nodes (n0, n1, n2 and 29 more)"),
    ],
)
def test_many_nodes_are_counted_and_few_are_named(count: int, said: str) -> None:
    """A line about 32 nodes stays a line."""
    assert some_of([f"n{index}" for index in range(count)]) == said


@pytest.mark.parametrize(
    ("nodes", "replacements", "said"),
    [
        (1, 0, "replaceDrifted of n0 is tainting"),
        (1, 1, "replaceDrifted of n0 is tainting (1 replacement)"),
        (2, 3, "replaceDrifted of n0, n1 is tainting (3 replacements)"),
        (32, 1, "replaceDrifted of 32 nodes (n0, n1, n2 and 29 more) is tainting (1 replacement)"),
    ],
)
def test_report_says_how_many_nodes_a_command_removes_and_launches(nodes: int, replacements: int, said: str) -> None:
    """The numbers are figures of their own; every node is named once, in the figures."""
    report = command_report(run_of(nodes, replacements), Phase.VALIDATING, Signal.VALIDATED, Phase.TAINTING, 0)
    figures = dict(report.figures)
    assert (figures["removes"], figures["launches"]) == (nodes, replacements)
    assert report.message == said
    assert figures["nodes"] == ",".join(f"n{index}" for index in range(nodes))


def test_event_of_a_node_names_few_replacements() -> None:
    """The event on each node of a command with many replacements stays short."""
    event = next(command_event(run_of(1, 8), Phase.TAINTING))
    assert event.message == "replaceDrifted (abc): leaves once 8 nodes (r0, r1, r2 and 5 more) are ready."
