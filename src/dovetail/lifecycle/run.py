"""One command under way: what it stands on, which signals hold, and what its phase asks for.

Level-triggered: every signal is read off the store and the answers so far, so that a lost, late or repeated event
changes when something happens, never what. Decides neither which nodes go (`decide`) nor what follows what (`machine`).
Times are nanoseconds of the engine's own clock, except those written into records. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, assert_never

from dovetail.lifecycle.attempts import FATAL, SECOND, Attempts
from dovetail.lifecycle.machine import SIGNALS, STEPS, TERMINAL, TRANSITIONS, Phase, Signal, Step
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    Instruction,
    TaintNode,
    UntaintNode,
)
from dovetail.lifecycle.records import DOVETAIL, Candidate, Record, carries, encode_record, is_tainted, record_of
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Command, Method, Replacement
from dovetail.model.objects import Node, NodeClaim, is_true

LINGER: Final = 60 * SECOND
"""How long a Node may outlive its NodeClaim before the command no longer waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What signals are read off: the cluster, the time, and which pools are ours to act on."""

    store: Store
    elapsed: int
    now: datetime
    replacement_timeout: int
    manages: Callable[[str], bool]


@dataclass(slots=True, kw_only=True)
class Run:
    """A command under way. Mutable, and changed by the engine only."""

    id: str
    action: Action
    method: Method
    candidates: tuple[Candidate, ...]
    replacements: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    phase: Phase
    by: str = DOVETAIL
    command: Command | None = None
    began: datetime
    began_at: int = 0
    phase_since: int = 0
    retry_at: int | None = None
    validate_at: int = 0
    deadline: int = 0
    why: str = ""
    attempts: Attempts = field(default_factory=Attempts)
    seen: dict[str, str] = field(default_factory=dict)
    tainted: dict[str, None] = field(default_factory=dict)
    claim_gone_at: dict[str, int] = field(default_factory=dict)
    verdict: Signal | None = None
    history: list[tuple[Phase, Signal]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.phase in TERMINAL

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that it takes."""
        return tuple(candidate.node for candidate in self.candidates)

    @property
    def destinations(self) -> tuple[str, ...]:
        """The nodes that exist already and that its pods are to move to."""
        return () if self.command is None else tuple(place.node for place in self.command.placements)

    def record(self, phase: Phase, now: datetime) -> str:
        """Word what its objects carry."""
        return encode_record(
            Record(
                id=self.id,
                action=self.action,
                method=self.method,
                phase=phase.value,
                since=now,
                nodes=self.candidates,
                replacements=self.replacements,
                pools=self.pools,
                by=self.by,
            )
        )

    def next_at(self) -> int | None:
        """When it wants to be looked at again, should no event come."""
        times = [] if self.retry_at is None else [self.retry_at]
        if self.phase is Phase.VALIDATING:
            times.append(self.validate_at)
        elif self.phase in (Phase.TAINTING, Phase.LAUNCHING, Phase.WAITING):
            times.append(self.deadline)
        elif self.phase is Phase.DRAINING:
            times += [at + LINGER for at in self.claim_gone_at.values()]
        return min(times, default=None)

    # ------------------------------------------------------------ ids

    def taint_id(self, candidate: Candidate) -> str:
        """Name the tainting of a candidate."""
        return f"{self.id}/taint/{candidate.node}"

    def untaint_id(self, candidate: Candidate) -> str:
        """Name the untainting of a candidate."""
        return f"{self.id}/untaint/{candidate.node}"

    def create_id(self, name: str) -> str:
        """Name the creation of a replacement."""
        return f"{self.id}/create/{name}"

    def delete_id(self, name: str) -> str:
        """Name the deletion of a NodeClaim."""
        return f"{self.id}/delete/{name}"

    def clear_id(self, name: str) -> str:
        """Name the clearing of a replacement's record."""
        return f"{self.id}/clear/{name}"


# ---------------------------------------------------------------- what is seen


def look(run: Run, view: View) -> None:
    """Note what the store shows of the command's objects; later absences are judged by it."""
    for name in run.replacements:
        claim = view.store.get(NodeClaim, name)
        if claim is not None and carries_or_made(run, claim):
            run.seen[name] = claim.metadata.uid
    for candidate in run.candidates:
        node = view.store.get(Node, candidate.node)
        if node is not None and carries(node, run.id):
            run.tainted[candidate.node] = None
        if claim_of(candidate, view.store) is None:
            run.claim_gone_at.setdefault(candidate.node, view.elapsed)


def carries_or_made(run: Run, claim: NodeClaim) -> bool:
    """Whether a NodeClaim under a replacement's name is really this command's."""
    if carries(claim, run.id):
        return True
    attempt = run.attempts.get(run.create_id(claim.metadata.name))
    return run.seen.get(claim.metadata.name) == claim.metadata.uid or (attempt is not None and attempt.succeeded)


def claim_of(candidate: Candidate, store: Store) -> NodeClaim | None:
    """Give the candidate's NodeClaim if it is still the one that was meant."""
    claim = store.get(NodeClaim, candidate.claim)
    return claim if claim is not None and claim.metadata.uid == candidate.uid else None


def is_gone(run: Run, candidate: Candidate, view: View) -> bool:
    """Whether nothing is left of a candidate: NodeClaim and Node, the latter for at most a minute more."""
    if claim_of(candidate, view.store) is not None:
        return False
    node = view.store.get(Node, candidate.node)
    if node is None or not (carries(node, run.id) or candidate.node in run.tainted):
        return True
    if record_of(node) is None and not is_tainted(node):
        return True  # another node under the same name, or someone took the taint off an orphan
    gone_at = run.claim_gone_at.get(candidate.node, view.elapsed)
    return view.elapsed - gone_at >= LINGER


def is_leaving(run: Run, candidate: Candidate, view: View) -> bool:
    """Whether a candidate's deletion has begun: seen, or told by the shell."""
    claim = claim_of(candidate, view.store)
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return True
    ident = run.delete_id(candidate.claim)
    return run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND


def replacement(run: Run, name: str, view: View) -> NodeClaim | None:
    """Give a replacement's NodeClaim, if it is there."""
    claim = view.store.get(NodeClaim, name)
    return claim if claim is not None and carries_or_made(run, claim) else None


def _vanished(run: Run, name: str, view: View) -> bool:
    claim = replacement(run, name, view)
    if claim is None:
        return name in run.seen
    return claim.metadata.deletion_timestamp is not None


def is_initialized(run: Run, name: str, view: View) -> bool:
    """Whether a replacement is ready for pods."""
    claim = replacement(run, name, view)
    return claim is not None and is_true(claim.status.conditions, names.CONDITION_INITIALIZED)


def hands_off(run: Run, view: View) -> str:
    """Say why a person no longer wants a candidate touched; empty where nobody does."""
    for candidate in run.candidates:
        if not view.manages(candidate.pool):
            return f"pool {candidate.pool} is no longer managed"
        for item in (view.store.get(Node, candidate.node), claim_of(candidate, view.store)):
            if item is not None and item.metadata.annotations.get(names.ALWAYS_DO_NOT_DISRUPT) == "true":
                return f"{candidate.node} now carries {names.ALWAYS_DO_NOT_DISRUPT}"
    return ""


# ---------------------------------------------------------------- signals


def signal(run: Run, view: View) -> Signal | None:
    """Find the first signal of the phase that holds."""
    for candidate in SIGNALS[run.phase]:
        if _HOLDS[candidate](run, view):
            return candidate
    return None


def advance(run: Run, view: View) -> list[tuple[Phase, Signal, Phase]]:
    """Move on as far as the signals carry; gives the transitions taken."""
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
    """Begin a phase."""
    run.phase = phase
    run.phase_since = view.elapsed
    if phase in (Phase.TAINTING, Phase.LAUNCHING):
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
        run.why = f"replacement gone: {', '.join(name for name in run.replacements if _vanished(run, name, view))}"
    elif found is Signal.CANDIDATES_GONE:
        run.why = "all its nodes went by themselves"
    elif found is Signal.FOUND_BROKEN:
        run.why = "its beginner did not get far enough for it to be finished safely"


def _refusal(run: Run) -> str:
    for ident in run.attempts.ids():
        attempt = run.attempts.get(ident)
        if attempt is not None and attempt.failure in FATAL:
            return f"{ident.split('/', 1)[1]}: {attempt.failure.value} {attempt.detail}".rstrip()
    return "pool not found"


def _is_refused(run: Run, view: View) -> bool:
    """Whether an instruction of this phase failed for good. A creation without its pool is one of them."""
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
    return all(_is_done(run, Step.TAINT, entry.node, view) for entry in run.candidates)


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
    return next(_open_steps(run, view), None) is None


_HOLDS: Final[dict[Signal, Callable[[Run, View], bool]]] = {
    Signal.VALIDATED: lambda run, _: run.verdict is Signal.VALIDATED,
    Signal.VALIDATION_REFUSED: lambda run, _: run.verdict is Signal.VALIDATION_REFUSED,
    Signal.CANDIDATES_GONE: _all_gone,
    Signal.TAINTED: lambda run, view: bool(run.replacements) and _all_tainted(run, view),
    Signal.TAINTED_NOTHING_TO_LAUNCH: lambda run, view: not run.replacements and _all_tainted(run, view),
    Signal.LAUNCHED: _steps_done,
    Signal.INITIALIZED: lambda run, view: all(is_initialized(run, name, view) for name in run.replacements),
    Signal.REPLACEMENT_VANISHED: lambda run, view: any(_vanished(run, name, view) for name in run.replacements),
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


# ---------------------------------------------------------------- steps

_ABOUT_NODES: Final = (Step.TAINT, Step.DELETE, Step.UNTAINT)


def keeps(run: Run, name: str, view: View) -> bool:
    """Whether a roll-back must leave a replacement: it is ready, and pods of a node that already leaves need it."""
    return is_initialized(run, name, view) and any(is_leaving(run, entry, view) for entry in run.candidates)


def _open_steps(run: Run, view: View) -> Iterator[tuple[Step, str]]:
    """All that the phase still asks for, in order."""
    for step in STEPS.get(run.phase, ()):
        targets = run.nodes if step in _ABOUT_NODES else run.replacements
        for target in targets:
            kept = step is Step.DELETE_REPLACEMENTS and keeps(run, target, view)
            wanted = Step.CLEAR if kept else step
            if not _is_done(run, wanted, target, view):
                yield wanted, target


def _is_done(run: Run, step: Step, target: str, view: View) -> bool:
    match step:
        case Step.TAINT:
            return _taint_done(run, _entry(run, target), view)
        case Step.CREATE:
            return replacement(run, target, view) is not None or run.attempts.succeeded(run.create_id(target))
        case Step.DELETE:
            return _delete_done(run, _entry(run, target), view)
        case Step.CLEAR:
            return _clear_done(run, target, view)
        case Step.UNTAINT:
            return _untaint_done(run, _entry(run, target), view)
        case Step.DELETE_REPLACEMENTS:
            return _undo_done(run, target, view)
        case _:
            assert_never(step)


def _entry(run: Run, node: str) -> Candidate:
    return next(entry for entry in run.candidates if entry.node == node)


def _taint_done(run: Run, entry: Candidate, view: View) -> bool:
    node = view.store.get(Node, entry.node)
    if node is None or (is_tainted(node) and carries(node, run.id)):
        return True
    ident = run.taint_id(entry)
    return run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND


def _delete_done(run: Run, entry: Candidate, view: View) -> bool:
    """In the phase after the deletion only what is seen counts, so that one that was lost is asked for again."""
    claim = claim_of(entry, view.store)
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return True
    ident = run.delete_id(entry.claim)
    if run.attempts.failed(ident) is Failure.NOT_FOUND:
        return True
    return run.phase is Phase.DELETING and run.attempts.succeeded(ident)


def _clear_done(run: Run, name: str, view: View) -> bool:
    ident = run.clear_id(name)
    if run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND:
        return True
    claim = view.store.get(NodeClaim, name)
    if claim is None:
        return True
    node = view.store.get(Node, claim.status.node_name) if claim.status.node_name else None
    return not carries(claim, run.id) and (node is None or not carries(node, run.id))


def _untaint_done(run: Run, entry: Candidate, view: View) -> bool:
    """Whether a candidate is free again. One that leaves keeps its taint; one without a NodeClaim must not."""
    node, claim = view.store.get(Node, entry.node), claim_of(entry, view.store)
    if node is None or node.metadata.deletion_timestamp is not None:
        return True
    if claim is not None and is_leaving(run, entry, view):
        return True
    ident = run.untaint_id(entry)
    if run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND:
        return True
    if carries(node, run.id):
        return False
    # No record is seen. Either there never was one, or it is gone, or our taint is still on its way.
    return run.taint_id(entry) not in run.attempts or entry.node in run.tainted


def _undo_done(run: Run, name: str, view: View) -> bool:
    """Whether a replacement is off the cluster or on its way off. One whose creation is unanswered is waited for."""
    ident = run.delete_id(name)
    if run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND:
        return True
    claim = replacement(run, name, view)
    if claim is not None:
        return claim.metadata.deletion_timestamp is not None
    if name in run.seen:
        return True
    creation = run.attempts.get(run.create_id(name))
    if creation is None or creation.failure in (*FATAL, Failure.NOT_FOUND):
        return True
    if creation.succeeded and creation.uid:
        return False
    return view.elapsed >= creation.again_at


# ---------------------------------------------------------------- instructions


def instructions(run: Run, view: View) -> list[Instruction]:
    """Word what the phase asks for and what is due to be asked; notes when to ask for the rest."""
    wanted: list[Instruction] = []
    run.retry_at = None
    for step, target in _open_steps(run, view):
        worded = _word(run, step, target, view)
        ident = run.create_id(target) if worded is None else worded.id
        if worded is not None and run.attempts.due(ident, view.elapsed):
            run.attempts.ask(ident, view.elapsed)
            wanted.append(worded)
        attempt = run.attempts.get(ident)
        if attempt is not None:
            run.retry_at = attempt.again_at if run.retry_at is None else min(run.retry_at, attempt.again_at)
    return wanted


Worded = TaintNode | UntaintNode | CreateNodeClaim | DeleteNodeClaim | ClearRecord


def _word(run: Run, step: Step, target: str, view: View) -> Worded | None:
    match step:
        case Step.TAINT:
            entry = _entry(run, target)
            record = run.record(Phase.TAINTING, run.began)
            return TaintNode(id=run.taint_id(entry), command_id=run.id, node=target, record=record)
        case Step.UNTAINT:
            return UntaintNode(id=run.untaint_id(_entry(run, target)), command_id=run.id, node=target)
        case Step.CREATE:
            return CreateNodeClaim(
                id=run.create_id(target),
                command_id=run.id,
                name=target,
                replacement=_specs(run)[run.replacements.index(target)],
                record=run.record(Phase.LAUNCHING, view.now),
            )
        case Step.DELETE:
            entry = _entry(run, target)
            return DeleteNodeClaim(id=run.delete_id(entry.claim), command_id=run.id, name=entry.claim, uid=entry.uid)
        case Step.CLEAR:
            return ClearRecord(id=run.clear_id(target), command_id=run.id, node_claim=target)
        case Step.DELETE_REPLACEMENTS:
            return _undo(run, target, view)
        case _:
            assert_never(step)


def _specs(run: Run) -> tuple[Replacement, ...]:
    assert run.command is not None, "only a command of this engine's own launches"
    return run.command.replacements


def _undo(run: Run, name: str, view: View) -> DeleteNodeClaim | None:
    claim = replacement(run, name, view)
    creation = run.attempts.get(run.create_id(name))
    uid = claim.metadata.uid if claim is not None else creation.uid if creation is not None else ""
    if not uid:
        return None
    return DeleteNodeClaim(id=run.delete_id(name), command_id=run.id, name=name, uid=uid)
