"""What a change is to a pod, in bits, so that listeners of the simulated API server hear only of what they follow.

Most changes of pods are of their conditions only, and most listeners follow few steps of a pod's life. Pure.
"""

from typing import Final

from dovetail.model.objects import Pod, is_true
from dovetail.scheduling.pods.pod import is_terminal

CAME: Final = 1
"""It is new; it may have come on a node, ready, terminating or ended, and then that is a step, too."""
WENT: Final = 2
BOUND: Final = 4
"""It had no node before, and has one now."""
LEAVING: Final = 8
"""It began to terminate."""
ENDED: Final = 16
"""It has succeeded or failed."""
REPLACED: Final = 32
"""It has another owner, left its node, or is another pod under the same name."""
READY: Final = 64
"""Its phase is another one, or it became ready or unready."""
OTHER: Final = 128
"""Nothing of all that."""

MOVES: Final = CAME | WENT | BOUND | LEAVING | ENDED | REPLACED
EVERY: Final = MOVES | READY | OTHER


def steps_between(old: Pod | None, new: Pod | None) -> int:
    """Return the steps of a pod between two of its versions (None: it was not there yet, or it is gone)."""
    if new is None:
        return WENT
    if old is None:
        return _steps_of_new(new)
    steps = 0
    then, now = old.metadata, new.metadata
    if then.deletion_timestamp is not now.deletion_timestamp:
        steps = LEAVING
    if then.owner_references is not now.owner_references or then.uid != now.uid:
        steps |= REPLACED
    if old.spec is not new.spec:
        before, after = old.spec.node_name, new.spec.node_name
        if before != after:
            steps |= REPLACED if before else BOUND
    was, status = old.status, new.status
    if was is not status:
        if was.phase != status.phase:
            steps |= READY
            if is_terminal(old) != is_terminal(new):
                steps |= ENDED
        elif was.conditions is not status.conditions:
            ready = is_true(status.conditions, "Ready")
            if ready != is_true(was.conditions, "Ready"):
                steps |= READY
    return steps or OTHER


def _steps_of_new(pod: Pod) -> int:
    steps = CAME
    if pod.spec.node_name:
        steps |= BOUND
    if pod.metadata.deletion_timestamp is not None:
        steps |= LEAVING
    if is_terminal(pod):
        steps |= ENDED
    if pod.status.phase not in ("", "Pending") or is_true(pod.status.conditions, "Ready"):
        steps |= READY
    return steps
