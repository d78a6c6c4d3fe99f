"""Pod events: a pod arrives on a node or leaves it (docs/rules.md#timers).

A pod that ends, or starts to terminate, leaves; pods of DaemonSets and mirror pods don't count. The engine, the
simulated Karpenter and the built-in provider share this rule. Pure; sits in scheduling.
"""

from dovetail.model.objects import Pod
from dovetail.scheduling.pods.pod import is_active, is_daemon, is_mirror


def present_on(pod: Pod | None) -> str:
    """Return the node that a pod counts on, or ""."""
    if pod is None or not pod.spec.node_name or not is_active(pod) or is_daemon(pod) or is_mirror(pod):
        return ""
    return pod.spec.node_name


def event_nodes(old: Pod | None, new: Pod | None) -> tuple[str, ...]:
    """Return the nodes on which a pod's change is a pod event: the one it left and the one it arrived on."""
    if old is None and new is not None and not new.spec.node_name:
        return ()
    if old is not None and new is not None and _stays(old, new):
        return ()
    before, after = present_on(old), present_on(new)
    if before == after and (old is None or new is None or old.metadata.uid == new.metadata.uid):
        return ()
    if not before or not after or before == after:
        return (before or after,) if before or after else ()
    return before, after


def _stays(old: Pod, new: Pod) -> bool:
    """Return whether a pod counts where it did before, at a glance: most changes of a pod are of its status only."""
    then, now = old.metadata, new.metadata
    return (
        (old.spec is new.spec or old.spec.node_name == new.spec.node_name)
        and then.uid == now.uid
        and (then.owner_references is now.owner_references or then.owner_references == now.owner_references)
        and is_active(old) == is_active(new)
    )
