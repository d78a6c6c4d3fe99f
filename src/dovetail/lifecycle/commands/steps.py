"""What the phase of a command requests, and whether it is done: each step as instructions.

A step is done when the store shows it or the shell reports it; until then it is repeated under the same id. So a lost
instruction or answer only delays a command. Sits in lifecycle, below `signals`.
"""

from collections.abc import Iterator
from typing import Final, assert_never

from dovetail.api.pool_marks import read_history
from dovetail.api.rolling import read_rolling
from dovetail.lifecycle.commands import evictions, irreversible, surging
from dovetail.lifecycle.commands.attempts import FATAL, UNKNOWN_WAIT
from dovetail.lifecycle.commands.command_run import (
    Run,
    View,
    claim_of,
    is_anothers,
    is_leaving,
    replacement,
)
from dovetail.lifecycle.commands.machine import STEPS, Phase, Step
from dovetail.lifecycle.commands.records import Candidate, carries, is_tainted
from dovetail.lifecycle.messages import (
    BeginDomain,
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    ForgetDisruption,
    Instruction,
    LookAtPods,
    NoteDisruption,
    SetDisruptionReason,
    SurgeDeployment,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.command import REASON_OF, Action, Method, Replacement
from dovetail.model.objects import Node, NodeClaim, NodePool, Pod, is_true

_ABOUT_NODES: Final = (Step.TAINT, Step.DELETE, Step.ATTRIBUTE, Step.UNTAINT)
_ABOUT_POOLS: Final = (Step.NOTE, Step.BEGIN, Step.FORGET)


def open_steps(run: Run, view: View) -> Iterator[tuple[Step, str]]:
    """Yield everything that the phase still requests, in order."""
    for step in STEPS.get(run.phase, ()):
        if step is Step.EVICT:
            continue  # in order: `evictions.next_pods`
        targets = tuple(surging.waiting(run, view)) if step is Step.SURGE else _targets(run, step)
        for target in targets:
            kept = step is Step.DELETE_REPLACEMENTS and irreversible.keeps(run, target, view)
            wanted = Step.CLEAR if kept else step
            if not is_done(run, wanted, target, view):
                yield wanted, target


def _targets(run: Run, step: Step) -> tuple[str, ...]:
    if step in _ABOUT_POOLS:
        return run.source_pools
    if step is Step.LOOK:
        return ("",)
    return run.nodes if step in _ABOUT_NODES else run.replacements


def is_done(run: Run, step: Step, target: str, view: View) -> bool:
    """Return whether one target of a step needs nothing more."""
    match step:
        case Step.NOTE:
            return not view.rate_span(target) or _note_done(run, target, view)
        case Step.BEGIN:
            return run.attempts.succeeded(run.begin_id(target)) or domain_to_begin(run, target, view) is None
        case Step.FORGET:
            return _forget_done(run, target, view)
        case Step.TAINT:
            return _taint_done(run, run.candidate(target), view)
        case Step.CREATE:
            return replacement(run, target, view) is not None or run.attempts.succeeded(run.create_id(target))
        case Step.SURGE:
            return surging.is_rolled(run, target, view)
        case Step.LOOK:
            return irreversible.may_begin(run, view)
        case Step.EVICT:
            return evictions.is_over(run, view)
        case Step.DELETE:
            return _delete_done(run, run.candidate(target), view)
        case Step.ATTRIBUTE:
            return _attribute_done(run, run.candidate(target), view)
        case Step.CLEAR:
            return _clear_done(run, target, view)
        case Step.UNTAINT:
            return _untaint_done(run, run.candidate(target), view)
        case Step.DELETE_REPLACEMENTS:
            return _undo_done(run, target, view)
        case _:
            assert_never(step)


def domain_to_begin(run: Run, pool: str, view: View) -> tuple[str, str] | None:
    """Return the topology key and the domain that a pool must name before the command's first taint; None: it does.

    Design: topology-budgets.
    """
    item = view.store.get(NodePool, pool)
    if run.method is not Method.DRIFTED or item is None:
        return None
    begun = view.begins(next(entry for entry in run.candidates if entry.pool == pool))
    rolling = read_rolling(item)
    return None if rolling is not None and (rolling.key, rolling.domain) == begun else begun


def _is_noted(run: Run, pool: str, view: View) -> bool:
    item = view.store.get(NodePool, pool)
    history = () if item is None else read_history(item)
    return any(entry.command == run.id for entry in history or ())


def _note_done(run: Run, pool: str, view: View) -> bool:
    ident = run.note_id(pool)
    return run.attempts.succeeded(ident) or view.store.get(NodePool, pool) is None or _is_noted(run, pool, view)


def _forget_done(run: Run, pool: str, view: View) -> bool:
    """Return whether a rollback keeps the pool's history: a node that is already leaving counts."""
    if any(is_leaving(run, entry, view) for entry in run.candidates if entry.pool == pool):
        return True
    ident = run.forget_id(pool)
    if run.attempts.succeeded(ident) or run.attempts.failed(ident) in FATAL:
        return True
    return run.note_id(pool) not in run.attempts and not _is_noted(run, pool, view)


def _taint_done(run: Run, entry: Candidate, view: View) -> bool:
    node = view.store.get(Node, entry.node)
    if node is None or (is_tainted(node) and carries(node, run.id)):
        return True
    ident = run.taint_id(entry)
    return run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND


def _delete_done(run: Run, entry: Candidate, view: View) -> bool:
    """Return whether a deletion is done; after that phase only the store counts, so that a lost one is repeated."""
    claim = claim_of(entry, view.store)
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return True
    return run.phase is Phase.DELETING and is_leaving(run, entry, view)


def _attribute_done(run: Run, entry: Candidate, view: View) -> bool:
    """Return whether the reason on a candidate's NodeClaim is done: best effort, once its deletion has started."""
    claim = claim_of(entry, view.store)
    if run.phase is Phase.DELETING:
        # Requested once together with the deletion and executed right after it: Karpenter's drain starts at once.
        return claim is None or run.attribute_id(entry.claim, at_once=True) in run.attempts
    if claim is None or not is_leaving(run, entry, view):
        return True
    if is_true(claim.status.conditions, names.CONDITION_DISRUPTION_REASON):
        return True
    ident = run.attribute_id(entry.claim)
    return run.attempts.succeeded(ident) or run.attempts.failed(ident) in (*FATAL, Failure.NOT_FOUND)


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
    """Return whether a candidate is untainted. A leaving one keeps its taint; one without a NodeClaim must not."""
    node, claim = view.store.get(Node, entry.node), claim_of(entry, view.store)
    if node is None or node.metadata.deletion_timestamp is not None:
        return True
    if claim is not None and (is_leaving(run, entry, view) or is_anothers(run, entry, view)):
        return True
    ident = run.untaint_id(entry)
    if run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND:
        return True
    if carries(node, run.id):
        return False
    # No record is seen. It never existed, is gone, or the taint is not visible yet.
    return run.taint_id(entry) not in run.attempts or entry.node in run.tainted


def _undo_done(run: Run, name: str, view: View) -> bool:
    """Return whether a replacement is gone or being deleted.

    Wait for a replacement whose creation is unanswered.
    """
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
    """Build the instructions of the phase that are due, and record when to request the rest."""
    wanted: list[Instruction] = []
    run.retry_at = None
    # Once a deletion is refused no other is requested; those that are out are waited for before anything is undone.
    stops = run.phase is Phase.DELETING and irreversible.is_deletion_refused(run, view)
    for step, target in open_steps(run, view):
        worded = _build(run, step, target, view)
        ident = run.create_id(target) if worded is None else worded.id
        if worded is not None and not stops and run.attempts.due(ident, view.elapsed):
            patience = UNKNOWN_WAIT if step is Step.CREATE else 0
            run.attempts.ask(ident, view.elapsed, patience, what=type(worded))
            wanted.append(worded)
        attempt = run.attempts.get(ident)
        if attempt is not None:
            run.retry_at = attempt.again_at if run.retry_at is None else min(run.retry_at, attempt.again_at)
    if Step.EVICT in STEPS.get(run.phase, ()):
        wanted += [_evict(run, pod, view) for pod in evictions.next_pods(run, view)]
    return wanted


def _evict(run: Run, pod: Pod, view: View) -> EvictPod:
    ident, meta, node = evictions.evict_id(run, pod), pod.metadata, pod.spec.node_name
    run.attempts.ask(ident, view.elapsed, what=EvictPod)
    evictions.note(run, pod, view)
    record = run.record(Phase.EVICTING, run.began, tuple(run.evicted[node]))
    return EvictPod(
        id=ident,
        command_id=run.id,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=node,
        record=record,
    )


Built = (
    BeginDomain
    | SurgeDeployment
    | NoteDisruption
    | ForgetDisruption
    | TaintNode
    | UntaintNode
    | CreateNodeClaim
    | DeleteNodeClaim
    | LookAtPods
    | SetDisruptionReason
    | ClearRecord
)


def _build(run: Run, step: Step, target: str, view: View) -> Built | None:
    match step:
        case Step.NOTE:
            return NoteDisruption(
                id=run.note_id(target),
                command_id=run.id,
                node_pool=target,
                nodes=sum(entry.pool == target for entry in run.candidates),
                reason=REASON_OF[run.method].value,
                at=run.began,
                keep=view.rate_span(target),
            )
        case Step.BEGIN:
            begun = domain_to_begin(run, target, view)
            assert begun is not None
            key, domain = begun
            return BeginDomain(
                id=run.begin_id(target), command_id=run.id, node_pool=target, key=key, domain=domain, at=run.began
            )
        case Step.FORGET:
            return ForgetDisruption(id=run.forget_id(target), command_id=run.id, node_pool=target)
        case Step.SURGE:
            namespace, _, name = target.partition("/")
            ident, mark = surging.surge_id(run, target), surging.mark(run)
            return SurgeDeployment(id=ident, command_id=run.id, namespace=namespace, name=name, mark=mark)
        case Step.LOOK:
            return irreversible.last_look(run, view)
        case Step.TAINT:
            entry = run.candidate(target)
            record = run.record(Phase.TAINTING, run.began)
            return TaintNode(id=run.taint_id(entry), command_id=run.id, node=target, record=record)
        case Step.UNTAINT:
            return UntaintNode(id=run.untaint_id(run.candidate(target)), command_id=run.id, node=target)
        case Step.CREATE:
            return CreateNodeClaim(
                id=run.create_id(target),
                command_id=run.id,
                name=target,
                replacement=_specs(run)[run.replacements.index(target)],
                record=run.record(Phase.LAUNCHING, view.now),
            )
        case Step.DELETE:
            return _deletion(run, run.candidate(target), view)
        case Step.ATTRIBUTE:
            entry = run.candidate(target)
            return SetDisruptionReason(
                id=run.attribute_id(entry.claim, at_once=run.phase is Phase.DELETING),
                command_id=run.id,
                name=entry.claim,
                uid=entry.uid,
                reason=REASON_OF[run.method].value,
            )
        case Step.CLEAR:
            return ClearRecord(id=run.clear_id(target), command_id=run.id, node_claim=target)
        case Step.DELETE_REPLACEMENTS:
            return _undo(run, target, view)
        case Step.EVICT:
            return None
        case _:
            assert_never(step)


def _deletion(run: Run, entry: Candidate, view: View) -> DeleteNodeClaim:
    """Build a candidate's deletion, with the conditions on its pods that match the gates of the command."""
    return DeleteNodeClaim(
        id=run.delete_id(entry.claim),
        command_id=run.id,
        name=entry.claim,
        uid=entry.uid,
        node=entry.node,
        only_empty=run.action is Action.DELETE_EMPTY and (run.command is None or run.command.pods == 0),
        spares_protected=irreversible.spares_protected(run, entry, view),
        roll_first=view.surging_sets() if view.surges else (),
        drain_for=irreversible.drain_for(run, entry, view),
        daemon_like=view.daemon_like,
    )


def _specs(run: Run) -> tuple[Replacement, ...]:
    assert run.command is not None, "only a command of this engine's own launches"
    return run.command.replacements


def _undo(run: Run, name: str, view: View) -> DeleteNodeClaim | None:
    claim = replacement(run, name, view)
    creation = run.attempts.get(run.create_id(name))
    uid = claim.metadata.uid if claim is not None else creation.uid if creation is not None else ""
    if not uid:
        return None
    candidates = tuple((entry.claim, entry.uid) for entry in run.candidates)
    return DeleteNodeClaim(
        id=run.delete_id(name), command_id=run.id, name=name, uid=uid, undo=True, candidates=candidates
    )
