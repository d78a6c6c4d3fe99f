"""Nodes that exist, as the scheduler sees them: a Node, its NodeClaim, or both, and what still fits on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dovetail.model.cluster import Cluster
from dovetail.model.names import HOSTNAME, INITIALIZED_LABEL, INSTANCE_TYPE, NODEPOOL, REGISTERED_LABEL
from dovetail.model.objects import Node, NodeClaim, Taint, is_true
from tests.reference.quantities import Resources, amounts

# Taints that go away by themselves while a node comes up.
EPHEMERAL = (
    ("node.kubernetes.io/not-ready", "NoSchedule"),
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoSchedule"),
    ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
    ("karpenter.sh/unregistered", "NoExecute"),
)
EPHEMERAL_PREFIX = "readiness.k8s.io/"


@dataclass(frozen=True)
class StateNode:
    """A machine: its Node, its NodeClaim, or both."""

    node: Node | None
    claim: NodeClaim | None

    @property
    def managed(self) -> bool:
        """Return whether a NodeClaim stands behind it."""
        return self.claim is not None

    def _marked(self, label: str) -> bool:
        return not self.managed or (self.node is not None and self.node.metadata.labels.get(label) == "true")

    @property
    def registered(self) -> bool:
        """Return whether the Node has joined; unmanaged nodes have."""
        return self._marked(REGISTERED_LABEL)

    @property
    def initialized(self) -> bool:
        """Return whether the Node is ready for pods; unmanaged nodes are."""
        return self._marked(INITIALIZED_LABEL)

    @property
    def name(self) -> str:
        """Return the Node's name once it is registered, the NodeClaim's before."""
        return self._face().metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the Node's labels once it is registered, the NodeClaim's before."""
        return self._face().metadata.labels

    def _face(self) -> Node | NodeClaim:
        if self.node is not None and (self.claim is None or self.registered):
            return self.node
        assert self.claim is not None
        return self.claim

    @property
    def host(self) -> str:
        """Return the domain of the hostname label."""
        return self.labels.get(HOSTNAME) or self.name

    @property
    def pool(self) -> str:
        """Return the pool it belongs to, or nothing."""
        return self.labels.get(NODEPOOL, "")

    @property
    def leaving(self) -> bool:
        """Return whether it is being deleted."""
        if self.claim is not None:
            terminating = is_true(self.claim.status.conditions, "InstanceTerminating")
            return self.claim.metadata.deletion_timestamp is not None or terminating
        return self.node is not None and self.node.metadata.deletion_timestamp is not None

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The taints that will stay: those of starting up don't count while a managed node is not initialized."""
        if self.node is None or (self.claim is not None and not self.registered):
            assert self.claim is not None
            taints = self.claim.spec.taints
        else:
            taints = self.node.spec.taints
        if self.claim is None or self.initialized:
            return taints
        startup = {(taint.key, taint.effect) for taint in self.claim.spec.startup_taints}
        return tuple(
            taint
            for taint in taints
            if (taint.key, taint.effect) not in startup
            and (taint.key, taint.effect) not in EPHEMERAL
            and not taint.key.startswith(EPHEMERAL_PREFIX)
        )

    @property
    def capacity(self) -> Resources:
        """Return what the machine has; and it is one of `nodes`."""
        return {**self._resources("capacity"), "nodes": 1}

    @property
    def allocatable(self) -> Resources:
        """Return what pods can have of it."""
        return self._resources("allocatable")

    def _resources(self, which: str) -> Resources:
        of_node = amounts(getattr(self.node.status, which)) if self.node is not None else {}
        if self.claim is None or self.initialized:
            return of_node
        # Until it is initialized a node may not report all yet: the claim knows what is still to come.
        promised = amounts(getattr(self.claim.status, which))
        missing = {name: amount for name, amount in promised.items() if of_node.get(name, 0) == 0}
        return {**of_node, **missing}


def state_nodes(cluster: Cluster) -> list[StateNode]:
    """Return all machines, claims and nodes joined by provider id, by name."""
    claims = {claim.status.provider_id: claim for claim in cluster.node_claims if claim.status.provider_id}
    joined: dict[str, StateNode] = {identity: StateNode(None, claim) for identity, claim in claims.items()}
    for node in cluster.nodes:
        identity = node.spec.provider_id
        labels = node.metadata.labels
        in_pool = bool(labels.get(NODEPOOL))
        if in_pool and not identity:
            continue
        if in_pool and not labels.get(INSTANCE_TYPE) and not labels.get(INITIALIZED_LABEL):
            continue
        identity = identity or node.metadata.name
        joined[identity] = StateNode(node, claims.get(identity))
    return sorted(joined.values(), key=lambda state: state.name)


def by_scheduling_order(nodes: Iterable[StateNode]) -> list[StateNode]:
    """Return the order in which existing nodes are tried: initialized first, then by name."""
    return sorted(nodes, key=lambda state: (not state.initialized, state.name))
