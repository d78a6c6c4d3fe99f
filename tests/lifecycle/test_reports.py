"""Reports have a sentence and figures for a log, and survive the journal."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.journal import decode_line, encode_line
from dovetail.lifecycle.messages import ClockAdvanced
from dovetail.lifecycle.reports import (
    CommandAdvanced,
    CommandProposed,
    InstructionNotDone,
    LeadershipChanged,
    Report,
    command_of,
)
from dovetail.model.command import Action, Method
from tests.support.every_report import every_report

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("report", every_report("web"), ids=lambda report: type(report).__name__)
def test_a_report_has_words_and_survives_the_journal(report: Report) -> None:
    """A report has a sentence and figures, and is equal after a journal's line is read."""
    assert report.topic
    assert report.message
    assert all(isinstance(value, str | int | float) for value in report.figures.values())
    entry = decode_line(encode_line(NOW, ClockAdvanced(), [report]), 2)
    assert entry.instructions == (report,)


def test_reports_of_a_command_name_it() -> None:
    """Reports of a command carry its id from decision to end; other reports have none."""
    named = {type(report).__name__ for report in every_report("web") if command_of(report)}
    steps = {"CommandAdvanced", "CommandFound", "CommandOutcome", "InstructionNotDone", "DrainHangs"}
    assert named == steps | {"PoolBacksOff", "NodesBackOff"}


def advanced(**fields: Any) -> CommandAdvanced:
    """Build the report of a step."""
    base: dict[str, Any] = {
        "command_id": "c",
        "phase": Phase.TAINTING,
        "source": None,
        "signal": None,
        "action": Action.DELETE_COST,
        "method": Method.SINGLE_NODE,
        "nodes": ("a",),
    }
    return CommandAdvanced(**{**base, **fields})


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (advanced(), "deleteCost of a is tainting"),
        (advanced(why="no"), "deleteCost of a is tainting: no"),
        (advanced(replacements=("r",)), "deleteCost of a is tainting (1 replacement)"),
        (InstructionNotDone(command_id="c", id="i", failure="refused", detail=""), "refused"),
        (InstructionNotDone(command_id="c", id="i", failure="refused", detail="it is paused"), "it is paused"),
        (LeadershipChanged(leads=True), "gained"),
        (LeadershipChanged(leads=False), "lost"),
        (
            CommandProposed(action=Action.DELETE_COST, nodes=("a",), replacements=2, savings=0.25, pods=1),
            "deleteCost of a would be begun, after 2 new: it saves $0.25/h and restarts 1 pod",
        ),
        (
            CommandProposed(action=Action.DELETE_COST, nodes=("a",)),
            "deleteCost of a would be begun: it saves $0/h and restarts 0 pods",
        ),
    ],
)
def test_words_of_reports(report: Report, words: str) -> None:
    """Report sentences use singular and plural, with and without a reason."""
    assert report.message == words


def test_figures_of_a_step() -> None:
    """The figures include the previous phase, if any, and the money, if known."""
    found = advanced().figures
    assert (found["from"], found["signal"], "savings" in found) == ("", "", False)
    moved = advanced(source=Phase.VALIDATING, signal=Signal.VALIDATED, savings=0.5).figures
    assert (moved["from"], moved["signal"], moved["savings"]) == ("validating", "validated", 0.5)
