"""The irreversible step of a command: its first deletion of a candidate's NodeClaim, or its first eviction.

Before it, everything that could have changed while replacements started is read again, once, over all candidates (the
instruction `LookAtPods`); while that refuses, the command waits with its taints for at most `drainPatience`. After it,
PDBs that the command itself uses up don't count, and no undo deletes a ready replacement. Nothing is undone before all
deletions are answered. See docs/rules.md#carrying-out. Sits in lifecycle, below `steps` and `signals`.
"""

from typing import Final

from dovetail.decide.gates.candidates import MAY_WAIT, is_bounded
from dovetail.lifecycle.commands import surging
from dovetail.lifecycle.commands.attempts import FATAL, SECOND
from dovetail.lifecycle.commands.command_run import Run, View, claim_of, is_initialized, is_leaving
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.messages import EvictPod, Failure, LookAtPods
from dovetail.model.command import Method
from dovetail.model.objects import Node, NodePool

LOOK_HOLDS: Final = 15 * SECOND
"""How old the last look may be when the first deletion is requested, or requested again."""


# ---------------------------------------------------------------- before it


def drain_for(run: Run, entry: Candidate, view: View) -> int | None:
    """Return how long the drain of a repaired node may take; None: as long as its claim allows."""
    node, pool = view.store.get(Node, entry.node), view.store.get(NodePool, entry.pool)
    if run.method is not Method.UNHEALTHY or node is None or pool is None:
        return None
    return view.drain_for(pool, node)


def spares_protected(run: Run, entry: Candidate, view: View) -> bool:
    """Return whether a candidate's pods may refuse: not where its drain has an end (docs/rules.md#gates, gate 6)."""
    claim = claim_of(entry, view.store)
    bounded = run.method in MAY_WAIT and claim is not None and is_bounded(claim)
    return not bounded and drain_for(run, entry, view) is None


def last_look(run: Run, view: View) -> LookAtPods | None:
    """Return the instruction that reads again what may refuse; None if nothing may."""
    if not view.looks_last:
        return None
    nodes = [
        entry.node
        for entry in run.candidates
        if not is_leaving(run, entry, view) and spares_protected(run, entry, view)
    ]
    if not nodes:
        return None
    return LookAtPods(
        id=run.look_id(),
        command_id=run.id,
        nodes=tuple(nodes),
        asks_pdbs=run.method is not Method.EMPTY and not has_begun(run, view),
        asks_windows=run.method not in (Method.EMPTY, Method.UNHEALTHY),
        roll_first=view.surging_sets() if view.surges else (),
        daemon_like=view.daemon_like,
    )


def may_begin(run: Run, view: View) -> bool:
    """Return whether the last look refused nothing."""
    return run.attempts.succeeded(run.look_id()) or last_look(run, view) is None


def note_refusal(run: Run, view: View) -> None:
    """Start the command's patience when the last look refuses for the first time."""
    if run.refused_at is None and refusal(run):
        run.refused_at = view.elapsed
        run.deadline = view.elapsed + view.drain_patience


def refusal(run: Run) -> str:
    """Return why the last look refused; empty if it did not."""
    attempt = run.attempts.get(run.look_id())
    return attempt.detail if attempt is not None and attempt.failure is Failure.OCCUPIED else ""


def is_look_old(run: Run, view: View) -> bool:
    """Return whether the first deletion has been tried for so long that what it relies on must be read again."""
    if not view.looks_last or has_begun(run, view) or is_deletion_refused(run, view):
        return False
    return view.elapsed - run.cleared_at >= LOOK_HOLDS


# ---------------------------------------------------------------- after it


def has_begun(run: Run, view: View) -> bool:
    """Return whether a deletion or an eviction of the command is known to be out."""
    if run.evicted_before or any(is_leaving(run, entry, view) for entry in run.candidates):
        return True
    return any(map(run.attempts.succeeded, run.attempts.ids_of(EvictPod)))


def may_have_begun(run: Run, view: View) -> bool:
    """Return whether pods may have left because of the command, as far as is known: by whatever way."""
    if has_begun(run, view) or surging.has_surged(run, view):
        return True
    deletions = [run.delete_id(entry.claim) for entry in run.candidates]
    return any(map(run.attempts.may_be_done, (*deletions, *run.attempts.ids_of(EvictPod))))


def keeps(run: Run, name: str, view: View) -> bool:
    """Return whether a rollback must keep a replacement as an ordinary node.

    It must if it is ready and pods have left, or if the last look at it found pods.
    """
    if run.attempts.failed(run.delete_id(name)) is Failure.OCCUPIED:
        return True
    return is_initialized(run, name, view) and may_have_begun(run, view)


def is_deletion_refused(run: Run, view: View) -> bool:
    """Return whether a candidate's deletion failed for good."""
    return any(
        run.attempts.failed(run.delete_id(entry.claim)) in FATAL
        for entry in run.candidates
        if not is_leaving(run, entry, view)
    )


def all_answered(run: Run, view: View) -> bool:
    """Return whether it is known of every requested deletion whether it was executed, or the answer is overdue."""
    for entry in run.candidates:
        ident = run.delete_id(entry.claim)
        attempt = run.attempts.get(ident)
        if attempt is None or is_leaving(run, entry, view) or not run.attempts.may_be_done(ident):
            continue
        if view.elapsed < attempt.again_at:
            return False
    return True
