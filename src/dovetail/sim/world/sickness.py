"""Nodes that fall ill in the simulated cluster: a condition turns bad, and may turn good again.

A node that is not ready takes no new pods and its pods are not ready; with status Unknown its kubelet is silent. Five
minutes later its pods are evicted, as Kubernetes does with the default tolerations. Repair rules (docs/rules.md#repair)
decide what happens to such a node. Sits in sim, beside the kubelets.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from dovetail.sim.world.clock import MINUTE, Alarm, Clock
from dovetail.sim.world.karpenter.node_objects import NOT_READY, not_ready, with_condition, without_condition
from dovetail.sim.world.kubelet import Kubelets
from dovetail.sim.world.placement.shapes import Shapes
from dovetail.sim.world.store import WorldStore

PODS_LEAVE_AFTER: Final = 5 * MINUTE


class NodeIllness:
    """All nodes that are ill."""

    def __init__(self, store: WorldStore, clock: Clock, shapes: Shapes, kubelets: Kubelets) -> None:
        self.store, self.clock, self.shapes, self.kubelets = store, clock, shapes, kubelets
        self._ill: dict[str, set[str]] = {}
        self._evicting: dict[str, Alarm] = {}
        self.on_leave: Callable[[str], None] = lambda node: None

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that are ill, in order."""
        return sorted(name for name in self._ill if name in self.store.nodes)

    def begin(self, name: str, condition: str, status: str) -> None:
        """Start a node's illness."""
        node = self.store.nodes.get(name)
        if node is None:
            return
        self._ill.setdefault(name, set()).add(condition)
        now = self.clock.instant()
        if condition != "Ready":
            conditions = with_condition(node.status.conditions, condition, status, now)
            self.store.put(replace(node, status=replace(node.status, conditions=conditions)))
            return
        self.store.put(not_ready(node, status, now))
        if status == "Unknown":
            self.kubelets.silent.add(name)
        self._serve(name, "False")
        if name not in self._evicting:
            self._evicting[name] = self.clock.after(PODS_LEAVE_AFTER, self._leave, name)

    def end(self, name: str) -> None:
        """End all illnesses of a node."""
        node, had = self.store.nodes.get(name), self._ill.pop(name, set())
        if node is None or not had:
            return
        conditions = node.status.conditions
        for condition in sorted(had - {"Ready"}):
            conditions = without_condition(conditions, condition)
        taints = node.spec.taints
        if "Ready" in had:
            conditions = with_condition(conditions, "Ready", "True", self.clock.instant())
            taints = tuple(taint for taint in taints if taint.key != NOT_READY.key)
        status, spec = replace(node.status, conditions=conditions), replace(node.spec, taints=taints)
        self.store.put(replace(node, status=status, spec=spec))
        if "Ready" in had:
            self._evicting.pop(name).cancel()
            self._speak_again(name)

    def _speak_again(self, name: str) -> None:
        """Resume a silent kubelet: pods to stop are stopped, pods to start are started."""
        self.kubelets.silent.discard(name)
        for key, pod in sorted(self.store.pods_on.get(name, {}).items()):
            if pod.metadata.deletion_timestamp is not None:
                self.kubelets.kill(key)
            elif pod.status.phase in ("", "Pending"):
                self.kubelets.start(key, pod, self.shapes.of(key, pod))
        self._serve(name, "True")

    def _serve(self, name: str, status: str) -> None:
        """Set the condition Ready of the pods that run on a node."""
        for _, pod in sorted(self.store.pods_on.get(name, {}).items()):
            if pod.status.phase == "Running":
                conditions = with_condition(pod.status.conditions, "Ready", status, self.clock.instant())
                self.store.put(replace(pod, status=replace(pod.status, conditions=conditions)))

    def _leave(self, name: str) -> None:
        """Remove the pods whose toleration has ended."""
        self.on_leave(name)
        for key, pod in sorted(self.store.pods_on.get(name, {}).items()):
            if not self.shapes.of(key, pod).survives_drain and not self.shapes.of(key, pod).daemon:
                self.kubelets.stop(key)
