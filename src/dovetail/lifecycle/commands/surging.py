"""The step `surging`: pods that can't be evicted leave their nodes by their Deployment's own rolling update.

See docs/rules.md#surge. Derived from the store, so that a successor finds the same: which Deployments still have such
pods on the command's nodes. Sits in lifecycle, below `steps` and `signals`.
"""

from dovetail.lifecycle.commands.command_run import Run, View
from dovetail.lifecycle.messages import SurgeDeployment
from dovetail.model import names
from dovetail.model.objects import Deployment, Pod, ReplicaSet
from dovetail.scheduling.pods.pod import is_active
from dovetail.scheduling.pods.surge import can_surge, deployment_of, replica_set_of


def waiting(run: Run, view: View) -> dict[str, Deployment]:
    """Return the Deployments, by `namespace/name`, that surge and still have pods on the command's nodes."""
    found: dict[str, Deployment] = {}
    for node in run.nodes:
        for pod in view.store.pods_on(node):
            item = _surging(pod, view) if is_active(pod) else None
            if item is not None:
                found[item.metadata.key] = item
    return dict(sorted(found.items()))


def _surging(pod: Pod, view: View) -> Deployment | None:
    namespace, name = replica_set_of(pod)
    owner = view.store.get(ReplicaSet, name, namespace) if name else None
    if owner is None:
        return None
    namespace, name = deployment_of(owner)
    item = view.store.get(Deployment, name, namespace) if name else None
    return item if item is not None and can_surge(item) else None


def is_wanted(run: Run, view: View) -> bool:
    """Return whether a Deployment has to roll before the command's NodeClaims may go."""
    return view.surges and bool(waiting(run, view))


def is_over(run: Run, view: View) -> bool:
    """Return whether no surging pod is left on the nodes."""
    return not waiting(run, view)


def surge_id(run: Run, name: str) -> str:
    """Return the id of the instruction that rolls a Deployment."""
    return f"{run.id}/surge/{name}"


def is_rolled(run: Run, name: str, view: View) -> bool:
    """Return whether a Deployment's rolling update was started for this command."""
    if run.attempts.succeeded(surge_id(run, name)):
        return True
    namespace, _, own = name.partition("/")
    item = view.store.get(Deployment, own, namespace)
    return item is None or item.spec.template.metadata.annotations.get(names.SURGED_AT) == mark(run)


def has_surged(run: Run, view: View) -> bool:
    """Return whether a Deployment rolls, or has rolled, for this command: its new pods may be on a replacement."""
    if any(map(run.attempts.may_be_done, run.attempts.ids_of(SurgeDeployment))):
        return True
    marks = (item.spec.template.metadata.annotations.get(names.SURGED_AT, "") for item in view.store.deployments())
    return any(mark.endswith(f" {run.id}") for mark in marks)


def mark(run: Run) -> str:
    """Return the mark in the pod template: the command's time and id, the same on every call."""
    at = run.began.isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{at} {run.id}"
