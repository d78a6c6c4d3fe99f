"""Evictions in order: which pod of a command is evicted next, and when the rest is left to Karpenter's drain.

Spec section 24. The plan packs pods largest first, but a drain evicts all at once, and then small pods may take the
places of large ones. So the pods of a command's nodes are evicted one by one, the largest first; the next one follows
when the previous one is bound again or a short time has passed. The first new pod of its owner that has a node counts
as the previous one (`Lookout` makes the command look at once); a pod without a successor delays little. Karpenter
drains whatever is refused, and whatever is left when the time is over. Sits in lifecycle, below `steps` and `signals`.
"""

from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Evicted, Run, View
from dovetail.lifecycle.messages import Failure
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.scheduling.pods.requests import pod_requests

LEAST_WAIT: Final = SECOND
"""How long a pod's successor may take to be seen. One that has a node sooner ends the wait."""
SHORT_TIME: Final = 6 * SECOND
"""How long the next eviction waits for a pod that finds no node."""
PATIENCE: Final = 180 * SECOND
"""After how long the rest of a command's pods is left to the drain."""
_COST: Final = (Method.MULTI_NODE, Method.SINGLE_NODE)


def evict_id(run: Run, pod: Pod) -> str:
    """Return the id of the instruction that evicts a pod."""
    return f"{run.id}/evict/{pod.metadata.namespace}/{pod.metadata.name}/{pod.metadata.uid}"


def is_wanted(run: Run, view: View) -> bool:
    """Return whether the pods of this command are evicted in order before its NodeClaims are deleted."""
    return view.evicts and run.method in _COST and bool(_left(run, view))


def _left(run: Run, view: View) -> list[Pod]:
    """Return the pods that have no eviction yet, largest first."""
    found = [
        pod
        for node in run.nodes
        for pod in view.store.pods_on(node)
        if is_reschedulable(pod)
        and pod.metadata.deletion_timestamp is None
        and pod.metadata.annotations.get(names.DO_NOT_DISRUPT) is None
        and evict_id(run, pod) not in run.attempts
        and (run.to_evict is None or pod.metadata.uid in run.to_evict)
    ]
    return sorted(found, key=_by_size)


def _by_size(pod: Pod) -> tuple[bool, int, int, str, str]:
    """Order pods as the plan places them: the largest first. Pods that require certain nodes come before all others.

    Those have fewer possible places, which pods without such requirements must not take.
    """
    amounts, meta = pod_requests(pod), pod.metadata
    return not _is_picky(pod), -amounts.get("cpu", 0), -amounts.get("memory", 0), meta.namespace, meta.name


def _is_picky(pod: Pod) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return bool(pod.spec.node_selector) or required is not None


def next_pod(run: Run, view: View) -> Pod | None:
    """Return the pod to evict now; None while the one before has not landed."""
    if not _has_landed(run, view):
        return None
    left = _left(run, view)
    if run.to_evict is None:
        # A pod that tolerates the taint may come back; the drain then handles it.
        run.to_evict = {pod.metadata.uid: None for pod in left}
    return left[0] if left else None


def note(run: Run, pod: Pod, view: View) -> None:
    """Remember which pod was evicted last, and which pods its owners have now."""
    owners = tuple([owner.uid for owner in pod.metadata.owner_references])
    siblings = frozenset(other.metadata.uid for uid in owners for other in view.store.pods_owned_by(uid))
    run.evicted_last = Evicted(evict_id(run, pod), view.elapsed, owners, siblings)


def _has_landed(run: Run, view: View) -> bool:
    """Return whether the next eviction may follow: the last pod is bound again, refused, or took too long."""
    last = run.evicted_last
    if last is None:
        return True
    attempt = run.attempts.get(last.ident)
    waited = view.elapsed - last.at
    if waited >= SHORT_TIME or attempt is None or attempt.failure is not None:
        return True
    if not attempt.succeeded:
        return False
    if any(owner.uid in last.owners for pod in view.store.pending_pods() for owner in pod.metadata.owner_references):
        return False
    owned = (pod for uid in last.owners for pod in view.store.pods_owned_by(uid))
    return waited >= LEAST_WAIT or any(pod.metadata.uid not in last.siblings for pod in owned)


def is_over(run: Run, view: View) -> bool:
    """Return whether the drain may start: all pods are bound again, evictions are forbidden, or the time is over."""
    if view.elapsed - run.phase_since >= PATIENCE or run.attempts.any_failed(Failure.FORBIDDEN):
        return True
    return _has_landed(run, view) and not _left(run, view)
