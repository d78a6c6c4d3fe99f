"""A drain that does not end: since when a command's nodes drain, and which pod and PDB hold the first of them.

Karpenter drains; it never gives up where nothing bounds the drain. So the command that waits for it reports what holds
it after five minutes, and again every quarter of an hour. Decides nothing. Sits in lifecycle, above `command_run`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dovetail.decide.facts.drainability import Guards, protection
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run, View, claim_of, is_gone
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.reports import DrainHangs
from dovetail.model import names
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.scheduling.pods.pod import is_active, is_mirror, is_terminal, tolerates_disruption

WARN_AFTER: Final = 300 * SECOND
WARN_AGAIN: Final = 900 * SECOND
_MICROSECOND: Final = timedelta(microseconds=1)


def since(run: Run) -> int:
    """Return since when a command is in its phase, on the engine's clock; for a drain, since the first deletion."""
    return run.phase_since if run.drains_since is None else run.drains_since


def begun_at(run: Run, view: View) -> int:
    """Return when the first node that is still there began to drain, on the engine's clock; also of a predecessor."""
    claims = [claim_of(entry, view.store) for entry in run.candidates]
    times = [claim.metadata.deletion_timestamp for claim in claims if claim is not None]
    begun = min((at for at in times if at is not None), default=None)
    if begun is None:
        return run.phase_since
    return min(run.phase_since, view.elapsed - max(0, (view.now - begun) // _MICROSECOND * 1000))


def warning_due(run: Run, view: View) -> DrainHangs | None:
    """Return the report of a drain that takes too long, if it is time for one; note when to look again."""
    if run.phase is not Phase.DRAINING:
        run.warn_at = run.drains_since = None
        return None
    begun = run.drains_since = begun_at(run, view)
    if run.warn_at is None:
        run.warn_at = begun + WARN_AFTER
    if view.elapsed < run.warn_at:
        return None
    run.warn_at = view.elapsed + WARN_AGAIN
    waiting = [entry for entry in run.candidates if not is_gone(run, entry, view)]
    if not waiting:
        return None
    entry, others = waiting[0], len(waiting) - 1
    pod, pdb, why = holder(view.store.pods_on(entry.node), view.store.cluster().pdbs, view.now)
    more = f"; {others} more node{'s' if others > 1 else ''} of the command still drain{'' if others > 1 else 's'}"
    return DrainHangs(
        command_id=run.id,
        node=entry.node,
        pool=entry.pool,
        seconds=(view.elapsed - begun) // SECOND,
        pod=pod,
        pdb=pdb,
        why=why + (more if others else ""),
    )


def holder(there: Sequence[Pod], pdbs: Sequence[PodDisruptionBudget], now: datetime) -> tuple[str, str, str]:
    """Return the pod and the PDB that hold a node's drain, as far as that can be told, and a sentence about them."""
    drained = [pod for pod in there if not (is_mirror(pod) or is_terminal(pod) or tolerates_disruption(pod))]
    pods = sorted(drained, key=lambda pod: pod.metadata.key)
    for pod in pods:
        if protection(pod, now) is not None:
            return (
                pod.metadata.key,
                "",
                f"pod {pod.metadata.key} carries {names.DO_NOT_DISRUPT}",
            )
    guards = Guards(pdbs)
    for pod in pods:
        veto = guards.veto(pod, now)
        if veto is not None and len(veto.pdbs) > 1:
            listed = ", ".join(veto.pdbs)
            return (
                pod.metadata.key,
                listed,
                f"pod {pod.metadata.key} has {len(veto.pdbs)} PodDisruptionBudgets ({listed})",
            )
        if veto is not None:
            return (
                pod.metadata.key,
                veto.pdbs[0],
                f"PodDisruptionBudget {veto.pdbs[0]} allows no disruption of {pod.metadata.key}",
            )
    for pod in pods:
        if not is_active(pod):
            return pod.metadata.key, "", f"pod {pod.metadata.key} does not stop"
    if pods:
        return pods[0].metadata.key, "", f"pod {pods[0].metadata.key} is still on it"
    return "", "", "no pod holds it; Karpenter has not removed it yet"
