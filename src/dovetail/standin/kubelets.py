"""Plays the kubelets: renews the Leases of nodes, starts their pods and ends terminating ones.

Works on the view of the cluster that `standin.provider` keeps.
"""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final

import msgspec

from dovetail.lifecycle.store import Store
from dovetail.live.kubernetes.client import JSON, ApiError
from dovetail.live.kubernetes.resources import BY_KIND, LEASE
from dovetail.model.objects import Node, Pod, is_true
from dovetail.standin.trees import Tree, ready_condition, stamp
from dovetail.standin.writer import Work, Writer

BAD_IMAGE: Final = "dovetail.dev/stand-in-bad-image"
"""A label on a Node: pods on it run and never become ready, to try how a roll stops."""
DEAD_KUBELET: Final = "dovetail.dev/stand-in-dead-kubelet"
"""An annotation on a Node: its stand-in kubelet says nothing any more, to try what repair does."""


@dataclass(slots=True, kw_only=True)
class StandInKubelets:
    """The kubelets of all nodes whose provider IDs begin with `machines`."""

    writer: Writer
    store: Store
    machines: str
    lease_seconds: float = 10.0
    _leases: dict[str, float] = field(default_factory=dict)

    def forget(self, node: str) -> None:
        """Forget a node that is gone."""
        self._leases.pop(node, None)

    async def look(self) -> None:
        """Renew the Leases of nodes, and start and end their pods."""
        now = time.monotonic()
        works: list[Work] = []
        for node in self.store.nodes():
            name = node.metadata.name
            if not node.spec.provider_id.startswith(self.machines) or DEAD_KUBELET in node.metadata.annotations:
                continue
            if now - self._leases.get(name, float("-inf")) > self.lease_seconds:
                self._leases[name] = now
                works.append(partial(self._renew, name))
            if not is_true(node.status.conditions, "Ready"):
                ready = {"status": {"conditions": [ready_condition()]}}
                works.append(partial(self.writer.patch, BY_KIND["Node"], name, ready, "status"))
            works += [partial(self._kubelet, pod) for pod in self.store.pods_on(name) if _needs_kubelet(pod)]
        await self.writer.attempt_all(works)

    async def _kubelet(self, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            if datetime.now(UTC) >= meta.deletion_timestamp or (meta.deletion_grace_period_seconds or 0) <= 30:
                await self.writer.delete(BY_KIND["Pod"], meta.name, meta.namespace, at_once=True)
        else:
            now = stamp()
            node = self.store.get(Node, pod.spec.node_name)
            ready = "False" if node is not None and BAD_IMAGE in node.metadata.labels else "True"
            conditions = [
                {"type": kind, "status": status, "lastTransitionTime": now}
                for kind, status in (
                    ("PodScheduled", "True"),
                    ("Initialized", "True"),
                    ("ContainersReady", ready),
                    ("Ready", ready),
                )
            ]
            status = {"phase": "Running", "startTime": now, "conditions": conditions}
            await self.writer.patch(BY_KIND["Pod"], meta.name, {"status": status}, "status", meta.namespace)

    async def _renew(self, node: str) -> None:
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": stamp(micro=True)}
        body: Tree = {"metadata": {"name": node, "namespace": "kube-node-lease"}, "spec": spec}
        try:
            await self.writer.patch(LEASE, node, {"spec": spec}, namespace="kube-node-lease")
        except ApiError as error:
            if error.status != 404:
                raise
            body |= {"apiVersion": LEASE.api_version, "kind": "Lease"}
            path = LEASE.path(namespace="kube-node-lease")
            await self.writer.client.request("POST", path, body=msgspec.json.encode(body), content_type=JSON)


def _needs_kubelet(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None or pod.status.phase in ("", "Pending")
