"""Annotations of a NodePool: nodes that started leaving, why it halts, and its roll (docs/rules.md#rates and #health).

Written before the first taint, so that a crash can only count too much. Pure; `effect` calls it.
"""

from typing import assert_never

from dovetail.api.pool_marks import Departure, decode_history, pruned, write_history
from dovetail.api.rolling import begin_domain
from dovetail.lifecycle.effects.writes import Done, Failed, Outcome, Patch, Ref, Tree, Writes, annotation, text
from dovetail.lifecycle.messages import BeginDomain, Failure, ForgetDisruption, HaltPool, KeepRoll, NoteDisruption
from dovetail.model.names import HALTED, RECENT_DISRUPTIONS, ROLLING_DOMAIN, ROLLOUT
from dovetail.model.policies.reasons import Reason


def pool_outcome(
    asked: NoteDisruption | ForgetDisruption | HaltPool | BeginDomain | KeepRoll, pool: Tree | None
) -> Outcome:
    """Return what to do with a pool's annotations."""
    match asked:
        case NoteDisruption() | ForgetDisruption():
            return history_outcome(asked, pool)
        case HaltPool():
            wanted = {HALTED: asked.value}
        case BeginDomain():
            there = ((name, annotation(pool, name)) for name in (ROLLING_DOMAIN, ROLLOUT))
            known = {name: value for name, value in there if value is not None}
            wanted = begin_domain(known, asked.key, asked.domain, asked.at)
        case KeepRoll():
            is_as_seen = pool is not None and tuple(annotation(pool, name) for name, _ in asked.marks) == asked.seen
            wanted = dict(asked.marks) if is_as_seen else {}
        case _:
            assert_never(asked)
    changes = {name: value for name, value in wanted.items() if pool is not None and annotation(pool, name) != value}
    if pool is None or not changes:
        return Done()
    tree: Tree = {"metadata": {"annotations": changes}}
    ref = Ref(kind="NodePool", name=asked.node_pool)
    return Writes(writes=(Patch(ref=ref, resource_version=text(pool, "metadata", "resourceVersion"), tree=tree),))


def history_outcome(asked: NoteDisruption | ForgetDisruption, pool: Tree | None) -> Outcome:
    """Return what to do with a pool's history."""
    if pool is None:
        return Done()
    history = decode_history(annotation(pool, RECENT_DISRUPTIONS))
    if history is None:
        detail = f"the history of NodePool {asked.node_pool} can't be read; take {RECENT_DISRUPTIONS} off it"
        return Failed(failure=Failure.REFUSED, detail=detail)
    is_there = any(entry.command == asked.command_id for entry in history)
    if is_there is isinstance(asked, NoteDisruption):
        return Done()
    if isinstance(asked, NoteDisruption):
        entry = Departure(at=asked.at, nodes=asked.nodes, reason=Reason(asked.reason), command=asked.command_id)
        kept = (*pruned(history, asked.keep, asked.at), entry)
    else:
        kept = tuple(entry for entry in history if entry.command != asked.command_id)
    tree: Tree = {"metadata": {"annotations": {RECENT_DISRUPTIONS: write_history(kept) if kept else None}}}
    ref = Ref(kind="NodePool", name=asked.node_pool)
    return Writes(writes=(Patch(ref=ref, resource_version=text(pool, "metadata", "resourceVersion"), tree=tree),))
