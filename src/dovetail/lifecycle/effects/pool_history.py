"""Annotations of a NodePool: nodes that started leaving (spec section 13), and why it halts (section 17).

Written before the first taint, so that a crash can only count too much. Pure; `effect` calls it.
"""

from dovetail.api.pool_marks import Departure, decode_history, pruned, write_history
from dovetail.lifecycle.effects.writes import Done, Failed, Outcome, Patch, Ref, Tree, Writes, annotation, text
from dovetail.lifecycle.messages import Failure, ForgetDisruption, HaltPool, NoteDisruption
from dovetail.model.names import HALTED, RECENT_DISRUPTIONS
from dovetail.model.policies.reasons import Reason


def pool_outcome(asked: NoteDisruption | ForgetDisruption | HaltPool, pool: Tree | None) -> Outcome:
    """Return what to do with a pool's annotations."""
    if not isinstance(asked, HaltPool):
        return history_outcome(asked, pool)
    if pool is None or annotation(pool, HALTED) == asked.value:
        return Done()
    tree: Tree = {"metadata": {"annotations": {HALTED: asked.value}}}
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
