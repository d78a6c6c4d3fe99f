"""The newest pod of each DaemonSet, followed from snapshot to snapshot by the pods that came and went.

Decides nothing; sits in scheduling, below the bindings.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from dovetail.model.objects import Pod

_DAWN: Final = datetime.min.replace(tzinfo=UTC)


def newest_by_owner(pods: Iterable[Pod]) -> dict[str, Pod]:
    """Return the newest pod of each controller, by its uid; of the same age, the first."""
    found: dict[str, Pod] = {}
    for pod in pods:
        for uid in _controllers(pod):
            if uid not in found or _since(pod) > _since(found[uid]):
                found[uid] = pod
    return found


def newest_after(before: Mapping[str, Pod], gone: Iterable[Pod], new: Iterable[Pod]) -> dict[str, Pod] | None:
    """Return the newest pods after some have gone and others have come; None if one has gone and none is newer.

    Pods are in the order of their namespaces and names.
    """
    found, lost = dict(before), dict[str, Pod]()
    for pod in gone:
        for uid in _controllers(pod):
            if found.get(uid) is pod:
                lost[uid] = found.pop(uid)
    for pod in new:
        for uid in _controllers(pod):
            known = found.get(uid) or lost.get(uid)
            if known is None or _is_newer(pod, known):
                found[uid] = pod
                lost.pop(uid, None)
    return None if lost else found


def _controllers(pod: Pod) -> Iterator[str]:
    for owner in pod.metadata.owner_references:
        if owner.uid and owner.controller:
            yield owner.uid


def _since(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or _DAWN


def _is_newer(pod: Pod, other: Pod) -> bool:
    """Return whether a pod is newer than another; of the same age, the first in the order counts."""
    mine, theirs = pod.metadata, other.metadata
    since, then = _since(pod), _since(other)
    return since > then or (since == then and (mine.namespace, mine.name) <= (theirs.namespace, theirs.name))
