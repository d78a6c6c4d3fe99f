"""Evictions in order: which pod of a command is evicted next, and when the rest is left to Karpenter's drain.

See docs/rules.md#evictions. The plan packs pods largest first, but a drain evicts all at once, and then small pods may
take the places of large ones. So the pods of a command's nodes are evicted one by one, the largest first; the next one
follows when the previous one is bound again or a short time has passed. Side by side (`evictionsSideBySide`), a pod
does not wait for those of its own size that are planned for other places: they can take each other's, while a smaller
pod could take the room that a larger one needs. The first new pod of its owner that has a node counts as the previous
one (`Lookout` makes the command look at once); a pod without a successor delays little. Karpenter drains whatever is
refused, and whatever is left when the time is over. Sits in lifecycle, below `steps` and `signals`.
"""

from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Evicted, Run, View
from dovetail.lifecycle.messages import Failure
from dovetail.model import names
from dovetail.model.command import COST_METHODS
from dovetail.model.objects import Pod
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.scheduling.pods.requests import pod_requests

LEAST_WAIT: Final = SECOND
"""How long a pod's successor may take to be seen. One that has a node sooner ends the wait."""
SHORT_TIME: Final = 6 * SECOND
"""How long the next eviction waits for a pod that finds no node."""
PATIENCE: Final = 180 * SECOND
"""After how long the rest of a command's pods is left to the drain."""
IN_THE_AIR_MAX: Final = 20
"""How many pods of a command are evicted side by side at most."""


def evict_id(run: Run, pod: Pod) -> str:
    """Return the id of the instruction that evicts a pod."""
    return f"{run.id}/evict/{pod.metadata.key}/{pod.metadata.uid}"


def is_wanted(run: Run, view: View) -> bool:
    """Return whether the pods of this command are evicted in order before its NodeClaims are deleted."""
    return view.evicts and run.method in COST_METHODS and bool(_left(run, view))


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


def _size(pod: Pod) -> tuple[bool, int, int]:
    """Return what decides where a pod stands in the order."""
    amounts = pod_requests(pod)
    return not _is_picky(pod), -amounts.get("cpu", 0), -amounts.get("memory", 0)


def _by_size(pod: Pod) -> tuple[bool, int, int, str, str]:
    """Order pods as the plan places them: the largest first. Pods that require certain nodes come before all others.

    Those have fewer possible places, which pods without such requirements must not take.
    """
    return *_size(pod), pod.metadata.namespace, pod.metadata.name


def _is_picky(pod: Pod) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    return bool(pod.spec.node_selector) or required is not None


def next_pods(run: Run, view: View) -> list[Pod]:
    """Return the pods to evict now; none while one has not landed that they could compete with for room.

    In order: the next one, once the one before has landed. Side by side: also pods of the same size that are planned
    for other places than all that have not landed yet. A node's next eviction waits for the answer to its last one,
    because each writes the record on the node, which names all of them.
    """
    run.in_the_air = air = tuple([entry for entry in run.in_the_air if not _has_landed(run, entry, view)])
    if air and not view.evicts_side_by_side:
        return []
    left = _left(run, view)
    if run.to_evict is None:
        # A pod that tolerates the taint may come back; the drain then handles it.
        run.to_evict = {pod.metadata.uid: None for pod in left}
    if not view.evicts_side_by_side:
        return left[:1]
    return _apart(run, left, air)[: max(0, IN_THE_AIR_MAX - len(air))]


def _apart(run: Run, left: list[Pod], air: tuple[Evicted, ...]) -> list[Pod]:
    """Return the pods, in order, that compete with none before them and none in the air."""
    found: list[Pod] = []
    places, size = {entry.place for entry in air}, air[0].size if air else None
    nodes = {entry.node for entry in air if not run.attempts.succeeded(entry.ident)}
    for pod in left:
        if None in places:
            break  # nobody knows where that one goes
        if size is not None and _size(pod) != size:
            break  # all others are smaller and could take the room of those before
        size = _size(pod)
        place = _place(run, pod)
        if place is None and places:
            break
        if place not in places and pod.spec.node_name not in nodes:
            found.append(pod)
            nodes.add(pod.spec.node_name)
        places.add(place)  # smaller pods for the same place wait for this one, whatever it waits for
    return found


def _place(run: Run, pod: Pod) -> str | None:
    return run.goal(pod.metadata.key)


def note(run: Run, pod: Pod, view: View) -> None:
    """Remember which pods were evicted, which are not known to have landed, and which pods their owners have now."""
    run.evicted.setdefault(pod.spec.node_name, {})[pod.metadata.key] = None
    owners = tuple([owner.uid for owner in pod.metadata.owner_references])
    siblings = frozenset(other.metadata.uid for uid in owners for other in view.store.pods_owned_by(uid))
    ident, node = evict_id(run, pod), pod.spec.node_name
    run.in_the_air += (Evicted(ident, view.elapsed, node, _place(run, pod), _size(pod), owners, siblings),)


def _has_landed(run: Run, evicted: Evicted, view: View) -> bool:
    """Return whether no eviction has to wait for this one: the pod is bound again, refused, or took too long."""
    attempt = run.attempts.get(evicted.ident)
    waited = view.elapsed - evicted.at
    if waited >= SHORT_TIME or attempt is None or attempt.failure is not None:
        return True
    if not attempt.succeeded:
        return False
    owners = evicted.owners
    if any(owner.uid in owners for pod in view.store.pending_pods() for owner in pod.metadata.owner_references):
        return False
    if waited >= LEAST_WAIT:
        return True
    came = sum(pod.metadata.uid not in evicted.siblings for uid in owners for pod in view.store.pods_owned_by(uid))
    return came >= sum(other.owners == owners and other.at <= evicted.at for other in run.in_the_air)


def is_over(run: Run, view: View) -> bool:
    """Return whether the drain may start: all pods are bound again, evictions are forbidden, or the time is over."""
    if view.elapsed - run.phase_since >= PATIENCE or run.attempts.any_failed(Failure.FORBIDDEN):
        return True
    return all(_has_landed(run, entry, view) for entry in run.in_the_air) and not _left(run, view)
