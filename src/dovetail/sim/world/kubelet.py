"""The simulated kubelets: bound pods become running and ready, terminating pods stop, dead nodes are silent.

Decides only how long each step takes (drawn per pod from its shape). Knows nothing of why a pod comes or goes.
"""

from random import Random

from msgspec.structs import replace

from dovetail.model.objects import Condition, Pod
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.world.clock import Alarm, Clock
from dovetail.sim.world.placement.shapes import PodShape, Shapes
from dovetail.sim.world.store import WorldStore


class Kubelets:
    """All kubelets."""

    def __init__(self, store: WorldStore, clock: Clock, shapes: Shapes, dice: Random) -> None:
        self.store = store
        self.clock = clock
        self.shapes = shapes
        self.silent: set[str] = set()
        self._dice = dice
        self._stopping: dict[str, Alarm] = {}

    def start(self, key: str, pod: Pod, shape: PodShape) -> None:
        """Start a bound pod: it will run after its start time."""
        self.clock.after(shape.start.draw(self._dice), self._started, key, pod.metadata.uid)

    def _started(self, key: str, uid: str) -> None:
        pod = self.store.pods.get(key)
        if pod is None or pod.metadata.uid != uid or pod.metadata.deletion_timestamp is not None:
            return
        status = pod.status
        if pod.spec.node_name in self.silent or status.phase not in ("", "Pending"):
            return
        now = self.clock.instant()
        ready = Condition(type="Ready", status="True", last_transition_time=now)
        conditions = (*[entry for entry in status.conditions if entry.type != "Ready"], ready)
        status = replace(status, phase="Running", start_time=status.start_time or now, conditions=conditions)
        self.store.put_pod(pod, key, status=status)

    def finish(self, key: str, phase: str = "Succeeded") -> None:
        """Finish a pod: it is terminal, and not ready."""
        pod = self.store.pods.get(key)
        if pod is None or is_terminal(pod):
            return
        conditions = tuple(entry for entry in pod.status.conditions if entry.type != "Ready")
        self.store.put(pod, status=replace(pod.status, phase=phase, conditions=conditions))

    def stop(self, key: str) -> None:
        """Stop a pod: terminating at once, gone after its stop time; one that never ran is gone at once."""
        pod = self.store.pods.get(key)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if not pod.spec.node_name or is_terminal(pod):
            self.store.remove("Pod", key)
            return
        grace = pod.spec.termination_grace_period_seconds
        self.store.mark_deleting(pod, self.clock.instant(), 30 if grace is None else grace)
        if pod.spec.node_name not in self.silent:
            wait = self.shapes.of(key, pod).stop.draw(self._dice)
            self._stopping[key] = self.clock.after(wait, self._stopped, key, pod.metadata.uid)

    def kill(self, key: str) -> None:
        """Remove a pod now, whatever it was doing: its node is gone, or the deletion was forced."""
        timer = self._stopping.pop(key, None)
        if timer is not None:
            timer.cancel()
        self.store.remove("Pod", key)

    def _stopped(self, key: str, uid: str) -> None:
        self._stopping.pop(key, None)
        pod = self.store.pods.get(key)
        if pod is not None and pod.metadata.uid == uid and pod.spec.node_name not in self.silent:
            self.store.remove("Pod", key)
