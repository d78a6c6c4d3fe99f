"""The simulated kubelets: bound pods become running and ready, terminating pods stop, dead nodes are silent.

Decides only how long each step takes (drawn per pod from its shape). Knows nothing of why a pod comes or goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from msgspec.structs import replace

from dovetail.model.objects import Condition, Pod
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.world.clock import Alarm, Clock, Span
from dovetail.sim.world.placement.shapes import PodShape, Shapes
from dovetail.sim.world.store import WorldStore

EVERY_OWNER: Final = ""
"""The key of the times of pods whose owner has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTimes:
    """How long pods of one owner take from being bound to ready, and from being deleted to gone."""

    start: Span
    stop: Span


def owner_key(namespace: str, pod: Pod) -> str:
    """Return the key of the owner of a pod, for its times."""
    owner = next(iter(pod.metadata.owner_references), None)
    return f"{namespace}/{owner.kind}/{owner.name}" if owner is not None else EVERY_OWNER


class Kubelets:
    """All kubelets.

    `times`: how long pods take, by `owner_key`; those without an entry take what their shape says.
    """

    def __init__(self, store: WorldStore, clock: Clock, shapes: Shapes, dice: Random) -> None:
        self.store = store
        self.clock = clock
        self.shapes = shapes
        self.silent: set[str] = set()
        self.times: Mapping[str, PodTimes] = {}
        self._dice = dice
        self._stopping: dict[str, Alarm] = {}

    def start(self, key: str, pod: Pod, shape: PodShape) -> None:
        """Start a bound pod: it will run after its start time."""
        times = self._times_of(pod)
        start = shape.start if times is None else times.start
        self.clock.after(start.draw(self._dice), self._started, key, pod.metadata.uid)

    def _times_of(self, pod: Pod) -> PodTimes | None:
        if not self.times:
            return None
        return self.times.get(owner_key(pod.metadata.namespace, pod)) or self.times.get(EVERY_OWNER)

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
            times = self._times_of(pod)
            stop = self.shapes.of(key, pod).stop if times is None else times.stop
            wait = stop.draw(self._dice)
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
