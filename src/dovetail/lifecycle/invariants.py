"""Invariants of the engine's own state, which must be true after every event.

Used by tests and by the checkers of the simulated world; changes nothing. The simulated world checks the invariants of
the cluster (budgets, PDBs, taints), because only it knows the true state. Sits beside `engine`.
"""

from collections.abc import Callable, Iterator
from typing import Final

from dovetail.lifecycle.commands.machine import TERMINAL, TRANSITIONS, Phase
from dovetail.lifecycle.engine import Engine


def _one_command_per_node(engine: Engine) -> Iterator[str]:
    owner: dict[str, str] = {}
    for run in engine.runs:
        for name in (*run.nodes, *run.replacements):
            if name in owner:
                yield f"{name} belongs to the commands {owner[name]} and {run.id}"
            owner[name] = run.id


def _nothing_over_is_kept(engine: Engine) -> Iterator[str]:
    for run in engine.runs:
        if run.phase in TERMINAL:
            yield f"command {run.id} is {run.phase.value} and still kept"


def _only_a_leader_has_commands(engine: Engine) -> Iterator[str]:
    if engine.runs and (engine.observe or not engine.is_leader):
        yield f"{len(engine.runs)} commands under way in an engine that may not act"


def _history_follows_the_table(engine: Engine) -> Iterator[str]:
    for run in engine.runs:
        phase = run.history[0][0] if run.history else run.phase
        for source, found in run.history:
            if source is not phase or (source, found) not in TRANSITIONS:
                yield f"command {run.id} went from {source.value} by '{found.value}', which no table allows"
                break
            phase = TRANSITIONS[source, found].phase
        if phase is not run.phase:
            yield f"command {run.id} is {run.phase.value} but its history ends at {phase.value}"


def _every_wait_ends(engine: Engine) -> Iterator[str]:
    if not engine.acts:
        return  # its view is old: commands stop until it is fresh again
    for run in engine.runs:
        limit = engine.settings.replacement_timeout
        timed = run.phase in (Phase.TAINTING, Phase.LAUNCHING, Phase.WAITING)
        if timed and not engine.elapsed <= run.deadline <= engine.elapsed + limit:
            yield f"command {run.id} waits until {run.deadline}, now is {engine.elapsed}, the limit {limit}"
        if run.phase is Phase.VALIDATING and run.validate_at < engine.elapsed and run.verdict is None:
            yield f"command {run.id} should have been validated at {run.validate_at}"


def _launches_only_what_was_validated(engine: Engine) -> Iterator[str]:
    for run in engine.runs:
        if run.phase is Phase.VALIDATING and run.attempts.ids():
            yield f"command {run.id} acts before it was validated: {run.attempts.ids()[0]}"


def _nominations_have_an_owner(engine: Engine) -> Iterator[str]:
    for name in engine.lingering:
        if any(name in run.replacements for run in engine.runs):
            yield f"{name} is nominated by a command that ended and by one that did not"


CHECKS: Final[tuple[Callable[[Engine], Iterator[str]], ...]] = (
    _one_command_per_node,
    _nothing_over_is_kept,
    _only_a_leader_has_commands,
    _history_follows_the_table,
    _every_wait_ends,
    _launches_only_what_was_validated,
    _nominations_have_an_owner,
)


def violations(engine: Engine) -> list[str]:
    """Return all violations, in plain sentences."""
    return [sentence for check in CHECKS for sentence in check(engine)]
