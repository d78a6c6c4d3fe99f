"""Which signals of a command's phase are true, and which transition follows.

Level-triggered: every signal is derived from the store and the answers so far, so that a lost, late or repeated event
changes when something happens, never what. Decides neither which nodes go (`decide`) nor the order (`machine`). Sits in
lifecycle, below `engine`.
"""

from collections.abc import Callable
from typing import Final

from dovetail.lifecycle.commands import evictions, surging
from dovetail.lifecycle.commands.attempts import FATAL
from dovetail.lifecycle.commands.command_run import (
    Run,
    View,
    hands_off,
    has_vanished,
    is_gone,
    is_initialized,
    is_leaving,
    launch_failure,
    look,
    replacement,
)
from dovetail.lifecycle.commands.machine import SIGNALS, TRANSITIONS, Phase, Signal, Step
from dovetail.lifecycle.commands.records import carries, is_tainted
from dovetail.lifecycle.commands.steps import is_done, open_steps
from dovetail.lifecycle.messages import Failure
from dovetail.model.objects import Node


def signal(run: Run, view: View) -> Signal | None:
    """Find the first signal of the phase that is true."""
    for candidate in SIGNALS[run.phase]:
        if _HOLDS[candidate](run, view):
            return candidate
    return None


def advance(run: Run, view: View) -> list[tuple[Phase, Signal, Phase]]:
    """Advance as far as the signals allow; return the transitions taken."""
    taken = []
    look(run, view)
    while (found := signal(run, view)) is not None:
        source = run.phase
        _note_why(run, found, view)
        enter(run, TRANSITIONS[source, found].phase, view)
        run.history.append((source, found))
        taken.append((source, found, run.phase))
    return taken


def enter(run: Run, phase: Phase, view: View) -> None:
    """Enter a phase."""
    run.phase = phase
    run.phase_since = view.elapsed
    if phase in (Phase.NOTING, Phase.TAINTING, Phase.LAUNCHING, Phase.SURGING):
        run.deadline = view.elapsed + view.replacement_timeout


def _note_why(run: Run, found: Signal, view: View) -> None:
    if found is Signal.HANDS_OFF:
        run.why = hands_off(run, view)
    elif found is Signal.INSTRUCTION_REFUSED:
        run.why = _refusal(run)
    elif found is Signal.TIMED_OUT:
        missing = [name for name in run.replacements if not is_initialized(run, name, view)]
        run.why = f"not ready in time: {', '.join(missing)}" if missing else "not carried out in time"
    elif found is Signal.REPLACEMENT_VANISHED:
        run.why = f"replacement gone: {', '.join(name for name in run.replacements if has_vanished(run, name, view))}"
    elif found is Signal.LAUNCH_FAILED:
        run.why = "; ".join(why for name in run.replacements if (why := launch_failure(run, name, view)))
    elif found is Signal.CANDIDATES_GONE:
        run.why = "all its nodes went by themselves"
    elif found is Signal.FOUND_BROKEN:
        run.why = "its beginner did not get far enough for it to be finished safely"


def _refusal(run: Run) -> str:
    for ident in run.attempts.ids():
        attempt = run.attempts.get(ident)
        if attempt is not None and attempt.failure in FATAL:
            return f"{ident.partition('/')[2]}: {attempt.failure.value} {attempt.detail}".rstrip()
    return "pool not found"


def _is_refused(run: Run, view: View) -> bool:
    """Return whether an instruction of this phase failed permanently; so does a creation without its pool."""
    if run.phase is Phase.NOTING:
        return any(run.attempts.failed(run.note_id(pool)) in FATAL for pool in run.source_pools)
    if run.phase is Phase.SURGING:
        return any(run.attempts.failed(surging.surge_id(run, name)) in FATAL for name in surging.waiting(run, view))
    if run.phase is Phase.TAINTING:
        return any(run.attempts.failed(run.taint_id(entry)) in FATAL for entry in run.candidates)
    if run.phase is Phase.LAUNCHING:
        return any(
            run.attempts.failed(run.create_id(name)) in (*FATAL, Failure.NOT_FOUND)
            for name in run.replacements
            if replacement(run, name, view) is None
        )
    return any(
        run.attempts.failed(run.delete_id(entry.claim)) in FATAL
        for entry in run.candidates
        if not is_leaving(run, entry, view)
    )


def _all_tainted(run: Run, view: View) -> bool:
    return all(is_done(run, Step.TAINT, entry.node, view) for entry in run.candidates)


def _all_initialized(run: Run, view: View) -> bool:
    return all(is_initialized(run, name, view) for name in run.replacements)


def _all_gone(run: Run, view: View) -> bool:
    return all(is_gone(run, entry, view) for entry in run.candidates)


def _found_complete(run: Run, view: View) -> bool:
    if not run.replacements:
        return False
    for name in run.replacements:
        claim = replacement(run, name, view)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return False
    for entry in run.candidates:
        if is_leaving(run, entry, view):
            continue
        node = view.store.get(Node, entry.node)
        if node is not None and not (is_tainted(node) and carries(node, run.id)):
            return False
    return True


def _steps_done(run: Run, view: View) -> bool:
    return next(open_steps(run, view), None) is None


_HOLDS: Final[dict[Signal, Callable[[Run, View], bool]]] = {
    Signal.VALIDATED_TO_NOTE: lambda run, view: (
        run.verdict is Signal.VALIDATED and any(view.rate_span(pool) for pool in run.source_pools)
    ),
    Signal.NOTED: _steps_done,
    Signal.VALIDATED: lambda run, _: run.verdict is Signal.VALIDATED,
    Signal.VALIDATION_REFUSED: lambda run, _: run.verdict is Signal.VALIDATION_REFUSED,
    Signal.CANDIDATES_GONE: _all_gone,
    Signal.TAINTED: lambda run, view: bool(run.replacements) and _all_tainted(run, view),
    Signal.TAINTED_TO_SURGE: lambda run, view: (
        not run.replacements and _all_tainted(run, view) and surging.is_wanted(run, view)
    ),
    Signal.INITIALIZED_TO_SURGE: lambda run, view: _all_initialized(run, view) and surging.is_wanted(run, view),
    Signal.SURGED_TO_EVICT: lambda run, view: surging.is_over(run, view) and evictions.is_wanted(run, view),
    Signal.SURGED: surging.is_over,
    Signal.TAINTED_TO_EVICT: lambda run, view: (
        not run.replacements and _all_tainted(run, view) and evictions.is_wanted(run, view)
    ),
    Signal.TAINTED_NOTHING_TO_LAUNCH: lambda run, view: not run.replacements and _all_tainted(run, view),
    Signal.LAUNCHED: _steps_done,
    Signal.INITIALIZED_TO_EVICT: lambda run, view: _all_initialized(run, view) and evictions.is_wanted(run, view),
    Signal.INITIALIZED: lambda run, view: _all_initialized(run, view),
    Signal.EVICTED: evictions.is_over,
    Signal.REPLACEMENT_VANISHED: lambda run, view: any(has_vanished(run, name, view) for name in run.replacements),
    Signal.LAUNCH_FAILED: lambda run, view: any(launch_failure(run, name, view) for name in run.replacements),
    Signal.TIMED_OUT: lambda run, view: view.elapsed >= run.deadline,
    Signal.INSTRUCTION_REFUSED: _is_refused,
    Signal.HANDS_OFF: lambda run, view: bool(hands_off(run, view)),
    Signal.DELETED: lambda run, view: all(is_leaving(run, entry, view) for entry in run.candidates),
    Signal.DRAINED: _all_gone,
    Signal.CLEARED: _steps_done,
    Signal.ROLLED_BACK: _steps_done,
    Signal.FOUND_COMPLETE: _found_complete,
    Signal.FOUND_LEAVING: lambda run, view: all(is_leaving(run, entry, view) for entry in run.candidates),
    Signal.FOUND_BROKEN: lambda run, view: True,
}
