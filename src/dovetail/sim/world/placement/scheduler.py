"""The simulated kube-scheduler: takes pending pods one by one, chooses a node for each, and binds it.

`sim.world.placement.node_choice` filters and scores the nodes. This module decides where a pod goes, not the plan.
Not modelled: preemption, image locality, volumes but for what node affinity says, waiting plugins.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from random import Random
from typing import Final, cast

from msgspec.structs import replace

from dovetail.model.objects import Condition, Pod
from dovetail.scheduling.pods.pod import is_terminal
from dovetail.sim.world.clock import SECOND, Clock
from dovetail.sim.world.placement.node_choice import NodeChoice
from dovetail.sim.world.placement.shapes import PodShape, Shapes, Stuck
from dovetail.sim.world.steps import MOVES
from dovetail.sim.world.store import Change, WorldStore

_CYCLE: Final = SECOND // 100


class Scheduler:
    """Binds pending pods.

    `on_unschedulable` hears of pods that found no place, each time they were tried, `on_still_stuck` of all that are
    stuck after those that were stuck before were tried again.
    `pace`: the time per pod. With 0 all pending pods are placed at once, which is fast and differs only if nodes appear
    one after the other.
    """

    def __init__(self, store: WorldStore, clock: Clock, shapes: Shapes, dice: Random) -> None:
        self.store = store
        self.clock = clock
        self.shapes = shapes
        self.choice = NodeChoice(store, shapes, dice)
        self.table = self.choice.table
        self.on_unschedulable: Callable[[Sequence[str]], None] = lambda keys: None
        self.on_still_stuck: Callable[[Stuck], None] = lambda stuck: None
        self.on_bound: Callable[[str, Pod, PodShape], None] = lambda key, pod, shape: None
        self.pace = 0
        self.waiting: dict[str, None] = {}
        self.stuck = Stuck()
        self._tried: set[str] = set()
        self._binding = ""
        self._settled_at: tuple[int, int] | None = None  # the state of the table when all that was stuck had no place
        self._has_priorities = False
        self._cycle_asked = False
        self._retry_asked = False
        self._verdict: tuple[datetime, str, tuple[Condition, ...]] = (clock.start, "", ())
        store.listen_to_pods(self._on_pod_change, MOVES)
        store.listen(self._on_node_change, "Node")

    # ------------------------------------------------------------ what changed

    def _on_node_change(self, change: Change) -> None:
        if change.new is None:
            self.table.drop_node(change.key)
        else:
            before = len(self.table.log)
            self.table.set_node(change.new)  # type: ignore[arg-type]
            if len(self.table.log) != before:
                self._retry()

    def _on_pod_change(self, change: Change) -> None:
        key, old, new = change.key, cast("Pod | None", change.old), cast("Pod | None", change.new)
        if key is self._binding:
            return  # bound here
        if new is None:
            self.waiting.pop(key, None)
            self.stuck.drop(key)
            if old is not None and old.spec.node_name and key in self.table.pods:
                self.table.release(key)
                self._retry()
            return
        if new.spec.node_name:
            if old is None or not old.spec.node_name:
                self.waiting.pop(key, None)
                if key in self.table.pods:
                    return
                self.stuck.drop(key)
                row = self.table.rows.get(new.spec.node_name)
                if row is not None and not is_terminal(new):
                    self.table.bind(key, self.shapes.of(key, new), row)
                return
            if is_terminal(new):
                if key in self.table.pods:
                    self.table.release(key)
                    self._retry()
            elif new.metadata.deletion_timestamp is not None:
                self.table.terminating(key)
        elif new.metadata.deletion_timestamp is not None:
            self.waiting.pop(key, None)
            self.stuck.drop(key)
        elif old is None and new.metadata.deletion_timestamp is None and not new.spec.scheduling_gates:
            self.waiting[key] = None
            self._has_priorities = self._has_priorities or bool(new.spec.priority)
            self._ask_cycle()

    def _ask_cycle(self) -> None:
        if not self._cycle_asked:
            self._cycle_asked = True
            self.clock.after(_CYCLE, self._cycle)

    def _retry(self) -> None:
        if self.stuck and not self._retry_asked:
            self._retry_asked = True
            self.clock.after(_CYCLE, self._retry_stuck)

    def _retry_stuck(self) -> None:
        self._retry_asked = False
        if self.pace:
            self.waiting = dict.fromkeys(self.stuck) | self.waiting
            self.stuck.clear()
            self._ask_cycle()
            return
        if not self.waiting and not self._has_priorities:
            self._retry_shapes()
            return
        self._tried = set(self.stuck)
        self.waiting.update(dict.fromkeys(self.stuck))
        self.stuck.clear()
        self._cycle()

    def _retry_shapes(self) -> None:
        """Try what is stuck again, as a cycle would, but only the first of each queue that finds no place."""
        if self._may_find_place():
            self._try_stuck()
            self._settled_at = self.table.mark()
        if self.stuck:
            self.on_still_stuck(self.stuck)

    def _may_find_place(self) -> bool:
        """Return False if no node that changed since the last try takes any pod that is stuck.

        Most nodes that change are such: they joined but are not ready, or lose their pods because they leave.
        """
        return (
            self._settled_at is None
            or bool(self.shapes.with_apart)
            or self.stuck.looks_at_pods
            or self.table.may_have_opened(self._settled_at, self.stuck.kinds())
        )

    def _try_stuck(self) -> None:
        hopeless: set[bytes] = set()
        for key, shape in self.stuck.tries(by_shape=bool(self.shapes.with_apart)):
            if shape.kind in hopeless:
                continue
            pod = self.store.pods.get(key)
            if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                self.stuck.drop(key)
                continue
            row = self.choice.pick(shape)
            if row < 0:
                self._note_failure(key, pod)
                if self.choice.is_plain(shape):
                    hopeless.add(shape.kind)  # rooms only shrink until the next try
            else:
                self._bind(key, pod, shape, row)

    # ------------------------------------------------------------ one cycle

    def _cycle(self) -> None:
        self._cycle_asked = False
        pods = self.store.pods
        keys = [key for key in self.waiting if key in pods]
        if self._has_priorities:
            keys.sort(key=lambda key: -(pods[key].spec.priority or 0))
        if self.pace:
            self._one(keys)
            return
        tried, self._tried = self._tried, set()
        self.waiting.clear()
        hopeless: set[int] = set()
        failed: list[str] = []
        by_pod = self.shapes.by_pod
        for key in keys:
            if id(by_pod.get(key)) in hopeless and key in tried:  # thousands may wait: those that failed before, fast
                self.stuck.add(key, by_pod[key])
                failed.append(key)
                continue
            pod = pods.get(key)
            if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                continue
            shape = self.shapes.of(key, pod)
            row = -1 if id(shape) in hopeless else self.choice.pick(shape)
            if row < 0:
                hopeless.add(id(shape))
                self._fail(key, pod)
                failed.append(key)
            else:
                self._bind(key, pod, shape, row)
        if failed:
            self.on_unschedulable(failed)

    def _one(self, keys: list[str]) -> None:
        """Take the first pod only; the others have to wait for their turn."""
        key = next(iter(keys), None)
        if key is None:
            return
        del self.waiting[key]
        pod = self.store.pods[key]
        if not pod.spec.node_name and pod.metadata.deletion_timestamp is None:
            shape = self.shapes.of(key, pod)
            row = self.choice.pick(shape)
            if row < 0:
                self._fail(key, pod)
                self.on_unschedulable((key,))
            else:
                self._bind(key, pod, shape, row)
        if self.waiting and not self._cycle_asked:
            self._cycle_asked = True
            self.clock.after(self.pace, self._cycle)

    def _bind(self, key: str, pod: Pod, shape: PodShape, row: int) -> None:
        """Put a pod that is not waiting any more on the node in a row."""
        self.stuck.drop(key)
        self.table.bind(key, shape, row)
        status = replace(pod.status, conditions=self._scheduled("True"), nominated_node_name="")
        self._binding = key
        bound = self.store.put_pod(pod, key, spec=replace(pod.spec, node_name=self.table.name_of(row)), status=status)
        self._binding = ""
        self.on_bound(key, bound, shape)

    def _fail(self, key: str, pod: Pod) -> None:
        self.stuck.add(key, self.shapes.of(key, pod))
        self._note_failure(key, pod)

    def _note_failure(self, key: str, pod: Pod) -> None:
        for entry in pod.status.conditions:
            if entry.type == "PodScheduled" and entry.status == "False":
                return
        self.store.put_pod(pod, key, status=replace(pod.status, conditions=self._scheduled("False")))

    def _scheduled(self, status: str) -> tuple[Condition, ...]:
        """Return the condition of a pod that is or isn't scheduled now; thousands may share one."""
        now, last = self.clock.instant(), self._verdict
        if last[0] is not now or last[1] != status:
            reason = None if status == "True" else "Unschedulable"
            entry = Condition(type="PodScheduled", status=status, reason=reason, last_transition_time=now)
            last = self._verdict = (now, status, (entry,))
        return last[2]
