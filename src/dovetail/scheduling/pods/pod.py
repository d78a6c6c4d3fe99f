"""A single pod as the scheduler sees it: its filters, its host ports, what it tolerates, when it comes and goes.

Pure questions about one pod, answered as Karpenter v1.15 answers them. Knows nothing of nodes, pools or other pods;
`scheduling.classes` asks once per class of equal pods and keeps the answers. Requests are in `requests`.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from dovetail.model import names
from dovetail.model.objects import Pod, PodSpec, Taint, Toleration
from dovetail.scheduling.pods.requests import Amounts

_DISRUPTED: Final = Taint(key=names.DISRUPTED_TAINT, effect="NoSchedule")


def is_terminal(pod: Pod) -> bool:
    """Return whether it has ended, successfully or not."""
    return pod.status.phase in ("Failed", "Succeeded")


def is_terminating(pod: Pod) -> bool:
    """Return whether its deletion has been requested."""
    return pod.metadata.deletion_timestamp is not None


def is_active(pod: Pod) -> bool:
    """Return whether a pod is neither terminal nor terminating."""
    return not is_terminal(pod) and not is_terminating(pod)


def is_owned_by(pod: Pod, kind: str, api_version: str = "apps/v1") -> bool:
    """Return whether some owner is of that kind and version."""
    for owner in pod.metadata.owner_references:  # noqa: SIM110  a loop is faster, and this is asked of every change
        if owner.kind == kind and owner.api_version == api_version:
            return True
    return False


def is_daemon(pod: Pod) -> bool:
    """Return whether the pod belongs to a DaemonSet."""
    return is_owned_by(pod, "DaemonSet")


def is_mirror(pod: Pod) -> bool:
    """Return whether it is a static pod, which its node owns."""
    return is_owned_by(pod, "Node", "v1")


def is_reschedulable(pod: Pod) -> bool:
    """Return whether it needs another place when its node is removed (docs/rules.md#gates)."""
    if not is_active(pod) and not (is_terminating(pod) and is_owned_by(pod, "StatefulSet")):
        return False
    return not is_daemon(pod) and not is_mirror(pod)


def is_scheduled(pod: Pod) -> bool:
    """Return whether it is bound to a node."""
    return pod.spec.node_name != ""


def is_pending(pod: Pod) -> bool:
    """Return whether its phase is Pending; a bound pod whose containers have not started is pending too."""
    return pod.status.phase == "Pending"


def failed_to_schedule(pod: Pod) -> bool:
    """Return whether the scheduler said Unschedulable."""
    return any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions)


def is_provisionable(pod: Pod) -> bool:
    """Return whether it waits for a node that does not exist yet."""
    return (
        failed_to_schedule(pod)
        and not is_scheduled(pod)
        and not pod.status.nominated_node_name
        and not is_daemon(pod)
        and not is_mirror(pod)
    )


def tolerates_disruption(pod: Pod) -> bool:
    """Return whether it tolerates Karpenter's own disruption taint, and so is never evicted by it."""
    tolerations = pod.spec.tolerations
    return bool(tolerations) and tolerates(tolerations, (_DISRUPTED,))


def _number(text: str) -> int | None:
    """Return a 64-bit integer without leading zeros or plus sign, as comparison operators of tolerations require."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0") or text == "-0":
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _tolerates_one(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Lt", "Gt"):
        wanted, given = _number(toleration.value), _number(taint.value)
        if wanted is None or given is None:
            return False
        return given < wanted if toleration.operator == "Lt" else given > wanted
    return False


def tolerates(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> bool:
    """Return whether every taint, whatever its effect, is tolerated."""
    return all(any(_tolerates_one(t, taint) for t in tolerations) for taint in taints)


def untolerated(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that is not tolerated."""
    return next((x for x in taints if not any(_tolerates_one(t, x) for t in tolerations)), None)


def fits(wanted: Amounts, room: Amounts) -> bool:
    """Return whether it fits; never if any free amount is negative, requested or not."""
    if any(amount < 0 for amount in room.values()):
        return False
    return all(amount <= room.get(name, 0) for name, amount in wanted.items())


class HostPort(NamedTuple):
    """A port of the node itself. `ip` is None if the text is not an address; `anywhere` is 0.0.0.0 or ::."""

    ip: str | None
    port: int
    protocol: str
    anywhere: bool

    def clashes(self, other: "HostPort") -> bool:
        """Return whether both can't be on one node."""
        if self.protocol != other.protocol or self.port != other.port:
            return False
        return self.ip == other.ip or self.anywhere or other.anywhere


@lru_cache(maxsize=1024)
def _address(text: str) -> tuple[str | None, bool]:
    try:
        address = ipaddress.ip_address(text or "0.0.0.0")  # noqa: S104 (what Kubernetes takes for "any")
    except ValueError:
        return None, False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address), address.is_unspecified


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of a pod's containers."""
    found = []
    for container in spec.containers:
        for port in container.ports:
            if port.host_port:
                ip, anywhere = _address(port.host_ip)
                found.append(HostPort(ip, port.host_port, port.protocol, anywhere))
    return tuple(found)


def ports_clash(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Return whether some requested port is in use."""
    taken = tuple(used)
    return any(port.clashes(other) for port in wanted for other in taken)


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
