"""How Karpenter drains a node: taint, evict in waves respecting PDBs, wait, force at the deadline.

Waves and times as in Karpenter v1.15: ordinary pods first, then DaemonSet pods, then critical ones; an eviction that a
PodDisruptionBudget refuses is retried with growing pauses; at least five seconds; a terminationGracePeriod ends the
wait. Knows nothing of machines: it reports when a node is empty.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final

from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.objects import Pod, Taint
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.world.clock import SECOND, Alarm, Clock
from dovetail.sim.world.eviction import EvictionAnswer, Evictions
from dovetail.sim.world.karpenter.outage import Outage
from dovetail.sim.world.kubelet import Kubelets
from dovetail.sim.world.placement.shapes import Shapes
from dovetail.sim.world.steps import BOUND, CAME, EVERY
from dovetail.sim.world.store import Change, WorldStore

MIN_DRAIN: Final = 5 * SECOND
_FIRST_PAUSE: Final = SECOND
_LONGEST_PAUSE: Final = 10 * SECOND
_STUCK_AFTER: Final = timedelta(minutes=1)
_CRITICAL: Final = ("system-cluster-critical", "system-node-critical")


@dataclass(slots=True)
class _Drain:
    began: int
    deadline: int | None
    pauses: dict[str, int] = field(default_factory=dict)
    timer: Alarm | None = None
    done: bool = False


class Draining:
    """All nodes that are being emptied."""

    def __init__(
        self, store: WorldStore, clock: Clock, shapes: Shapes, evictions: Evictions, kubelets: Kubelets, dice: Random
    ) -> None:
        self.store = store
        self.dice = dice
        self.clock = clock
        self.shapes = shapes
        self.evictions = evictions
        self.kubelets = kubelets
        self.outage = Outage(clock)
        self.on_drained: Callable[[str], None] = lambda node: None
        self.on_forced: Callable[[str, Pod], None] = lambda key, pod: None
        self._drains: dict[str, _Drain] = {}
        store.listen_to_pods(self._on_change, EVERY & ~(CAME | BOUND))

    def begin(self, name: str, deadline: int | None) -> None:
        """Start to empty a node; beginning twice is fine."""
        node = self.store.nodes.get(name)
        if node is None or name in self._drains:
            return
        self._drains[name] = _Drain(self.clock.now, deadline)
        taint = Taint(key=names.DISRUPTED_TAINT, effect="NoSchedule")
        taints = (*(entry for entry in node.spec.taints if entry.key != names.DISRUPTED_TAINT), taint)
        metadata = replace(node.metadata, deletion_timestamp=node.metadata.deletion_timestamp or self.clock.instant())
        self.store.put(replace(node, metadata=metadata, spec=replace(node.spec, taints=taints)))
        if deadline is not None:
            self.clock.at(deadline, self._force, name)
        self._step(name)

    def is_draining(self, name: str) -> bool:
        """Return whether a node is being emptied."""
        return name in self._drains

    def silence(self, name: str) -> None:
        """Note that the node died: its pods can't stop in an orderly way any more."""
        self.kubelets.silent.add(name)

    def abandon(self, name: str) -> None:
        """Remove the pods of a node that is gone."""
        for key in sorted(self.store.pods_on.get(name, {})):
            self.on_forced(key, self.store.pods[key])
            self.kubelets.kill(key)

    def forget(self, name: str) -> None:
        """End the node; what is left on it (DaemonSet pods and the like) ends with it."""
        self._drains.pop(name, None)
        self.kubelets.silent.discard(name)
        for key in sorted(self.store.pods_on.get(name, {})):
            self.kubelets.kill(key)

    def _on_change(self, change: Change) -> None:
        if self._drains and change.old is not None:
            node = change.old.spec.node_name  # type: ignore[union-attr]
            if node in self._drains:
                self._soon(node, SECOND // 10)

    def _soon(self, name: str, wait: int) -> None:
        drain = self._drains[name]
        due = self.clock.now + wait
        if drain.timer is not None and drain.timer.action is not None:
            if self.clock.now <= drain.timer.due <= due:
                return
            drain.timer.cancel()
        drain.timer = self.clock.at(due, self._step, name)

    def _waves(self, name: str) -> tuple[list[list[str]], int]:
        """Return the pods still to be evicted, by wave, and how many of all are still there."""
        waves: list[list[str]] = [[], [], [], []]
        there = 0
        for key, pod in sorted(self.store.pods_on.get(name, {}).items()):
            shape = self.shapes.of(key, pod)
            if shape.survives_drain or is_terminal(pod) or self._is_stuck(name, pod):
                continue
            there += 1
            if pod.metadata.deletion_timestamp is None:
                waves[2 * (pod.spec.priority_class_name in _CRITICAL) + shape.daemon].append(key)
        return waves, there

    def _is_stuck(self, name: str, pod: Pod) -> bool:
        """Return whether a pod should have stopped a minute ago: Karpenter does not wait for it any longer."""
        began = pod.metadata.deletion_timestamp
        if name not in self.kubelets.silent or began is None:
            return False
        grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
        return self.clock.instant() >= began + grace + _STUCK_AFTER

    def _step(self, name: str) -> None:
        if self.outage.puts_off(self._step, name):
            return
        drain = self._drains.get(name)
        if drain is None or drain.done:
            return
        drain.timer = None
        waves, there = self._waves(name)
        for wave in waves:
            if wave:
                self._evict(drain, wave, name)
                return
        if there:
            if name in self.kubelets.silent:
                self._soon(name, _LONGEST_PAUSE)  # nobody says when they have stopped
            return  # all are stopping; the last one's end wakes us
        if self.clock.now - drain.began < MIN_DRAIN:
            self._soon(name, drain.began + MIN_DRAIN - self.clock.now)
            return
        drain.done = True
        self.on_drained(name)

    def _evict(self, drain: _Drain, wave: list[str], name: str) -> None:
        again: int | None = None
        self.dice.shuffle(wave)  # Karpenter evicts a wave all at once: which pod is first is chance
        for key in wave:
            pod = self.store.pods.get(key)
            if pod is None:
                continue
            is_protected = pod.metadata.annotations.get(names.DO_NOT_DISRUPT) == "true"
            refused = is_protected or self.evictions.evict(key) is EvictionAnswer.REFUSED
            if refused:
                pause = drain.pauses[key] = min(2 * drain.pauses.get(key, _FIRST_PAUSE // 2), _LONGEST_PAUSE)
                again = pause if again is None else min(again, pause)
        if again is not None:
            self._soon(name, again)

    def _force(self, name: str) -> None:
        if self.outage.puts_off(self._force, name):
            return
        if name not in self._drains:
            return
        for key in sorted(self.store.pods_on.get(name, {})):
            pod = self.store.pods[key]
            if not self.shapes.of(key, pod).survives_drain:
                self.on_forced(key, pod)
                self.kubelets.kill(key)
