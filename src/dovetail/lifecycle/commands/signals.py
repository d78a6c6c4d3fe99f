"""Which signals of a command's phase are true, and which transition follows.

Level-triggered: every signal is derived from the store and the answers so far, so that a lost, late or repeated event
changes when something happens, never what. Decides neither which nodes go (`decide`) nor the order (`machine`). Sits in
lifecycle, below `engine`.
"""

from collections.abc import Callable
from typing import Final

from dovetail.lifecycle.commands import evictions, irreversible, surging
from dovetail.lifecycle.commands.attempts import FATAL, SECOND
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
from dovetail.lifecycle.commands.machine import BEGINNING, SIGNALS, TRANSITIONS, Phase, Signal, Step
from dovetail.lifecycle.commands.records import carries, is_tainted
from dovetail.lifecycle.commands.steps import domain_to_begin, is_done, open_steps
from dovetail.lifecycle.messages import Failure
from dovetail.model.objects import Node

BEGIN_WITHIN: Final = 30 * SECOND
"""How long after its validation a command tries to begin; later, budgets and gates may say something else."""


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
    irreversible.note_refusal(run, view)
    while (found := signal(run, view)) is not None:
        source = run.phase
        _note_why(run, found, view)
        enter(run, TRANSITIONS[source, found].phase, view)
        run.history.append((source, found))
        taken.append((source, found, run.phase))
    return taken


def enter(run: Run, phase: Phase, view: View) -> None:
    """Enter a phase."""
    before, run.phase = run.phase, phase
    run.phase_since = view.elapsed
    if phase is Phase.CHECKING:
        run.looks += 1
        run.refused_at = None
        run.deadline = view.elapsed + view.replacement_timeout
    elif phase in (Phase.EVICTING, Phase.DELETING) and before is Phase.CHECKING:
        run.cleared_at = view.elapsed
    if phase in (*BEGINNING, Phase.LAUNCHING, Phase.SURGING):
        run.deadline = view.elapsed + view.replacement_timeout
    if phase in BEGINNING and before not in BEGINNING:
        run.begin_by = view.elapsed + BEGIN_WITHIN


def _is_stale(run: Run, view: View) -> bool:
    """Return whether a command failed to begin for so long that what it was allowed to do is to be asked again.

    Without a failure it goes on: a clock that was set must not end it.
    """
    return run.phase in BEGINNING and view.elapsed >= run.begin_by and run.attempts.any_open_failure()


def _note_why(run: Run, found: Signal, view: View) -> None:
    if found is Signal.HANDS_OFF:
        run.why = hands_off(run, view)
    elif found is Signal.INSTRUCTION_REFUSED:
        run.why = _refusal(run)
    elif found is Signal.STILL_REFUSED:
        run.why = irreversible.refusal(run) or "pods and PDBs could not be read in time"
    elif found is Signal.TIMED_OUT:
        missing = [name for name in run.replacements if not is_initialized(run, name, view)]
        run.why = f"not ready in time: {', '.join(missing)}" if missing else "not carried out in time"
        if _is_stale(run, view):
            run.why = "it could not begin while its decision was fresh"
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
        idents = [ident for pool in run.source_pools for ident in (run.note_id(pool), run.begin_id(pool))]
        return any(run.attempts.failed(ident) in FATAL for ident in idents)
    if run.phase is Phase.SURGING:
        return any(run.attempts.failed(surging.surge_id(run, name)) in FATAL for name in surging.waiting(run, view))
    if run.phase is Phase.CHECKING:
        return run.attempts.failed(run.look_id()) in (Failure.FORBIDDEN, Failure.REFUSED)
    if run.phase is Phase.TAINTING:
        return any(run.attempts.failed(run.taint_id(entry)) in FATAL for entry in run.candidates)
    if run.phase is Phase.LAUNCHING:
        return any(
            run.attempts.failed(run.create_id(name)) in (*FATAL, Failure.NOT_FOUND)
            for name in run.replacements
            if replacement(run, name, view) is None
        )
    return irreversible.is_deletion_refused(run, view) and irreversible.all_answered(run, view)


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
        run.verdict is Signal.VALIDATED
        and any(view.rate_span(pool) or domain_to_begin(run, pool, view) for pool in run.source_pools)
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
    Signal.SURGED: surging.is_over,
    Signal.MAY_EVICT: lambda run, view: irreversible.may_begin(run, view) and evictions.is_wanted(run, view),
    Signal.MAY_DELETE: irreversible.may_begin,
    Signal.STILL_REFUSED: lambda run, view: view.elapsed >= run.deadline,
    Signal.LOOK_IS_OLD: irreversible.is_look_old,
    Signal.TAINTED_NOTHING_TO_LAUNCH: lambda run, view: not run.replacements and _all_tainted(run, view),
    Signal.LAUNCHED: _steps_done,
    Signal.INITIALIZED: lambda run, view: _all_initialized(run, view),
    Signal.EVICTED: evictions.is_over,
    Signal.REPLACEMENT_VANISHED: lambda run, view: any(has_vanished(run, name, view) for name in run.replacements),
    Signal.LAUNCH_FAILED: lambda run, view: any(launch_failure(run, name, view) for name in run.replacements),
    Signal.TIMED_OUT: lambda run, view: view.elapsed >= run.deadline or _is_stale(run, view),
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
