"""Writes the marks of steering, slowly: next victims and closing nodes (docs/rules.md#steering).

A round says what should be marked; the objects show what is marked. The difference is written within a rate limit, at
most one change per ReplicaSet a minute, old marks before new ones. If steering is off, or proposes nothing, all marks
are removed; a node of a pool that is no longer managed loses its taint at once. A missing permission stops all but one
attempt a minute. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable
from typing import Final

from dovetail.decide.outcome import SteeringPlan, Victim
from dovetail.lifecycle.column import Place
from dovetail.lifecycle.commands.attempts import RIGHT_MISSING, SECOND, Attempts
from dovetail.lifecycle.messages import (
    CloseNode,
    Failure,
    InstructionFailed,
    InstructionSucceeded,
    MarkPod,
    OpenNode,
    UnmarkPod,
)
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import Node, Pod

MINUTE: Final = 60 * SECOND
_FORGOTTEN_AFTER: Final = 10 * MINUTE
OPENS_AFTER: Final = 3 * MINUTE
"""How long a node stays closing at least, unless it leaves."""

Write = MarkPod | UnmarkPod | CloseNode | OpenNode
_WRITES_TO: Final[dict[type, type]] = {MarkPod: Pod, UnmarkPod: Pod, CloseNode: Node, OpenNode: Node}


class Steering:
    """The recent changes, and how many writes are left."""

    def __init__(self) -> None:
        self._attempts = Attempts()
        self._changed_at: dict[str, int] = {}
        self._closed_at: dict[str, int] = {}
        self._writes: list[int] = []
        self._barred: dict[type, int] = {}

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about steering."""
        known = self._attempts.answer(event, elapsed)
        if not known:
            return False
        if isinstance(event, InstructionSucceeded):
            self._barred.pop(self._writes_to(event.id), None)
        elif event.failure is Failure.FORBIDDEN:
            self._barred[self._writes_to(event.id)] = elapsed + RIGHT_MISSING
        return True

    def what(self, ident: str) -> type | None:
        """Return the class of a write that was asked for."""
        return self._attempts.what(ident)

    def _writes_to(self, ident: str) -> type:
        asked = self._attempts.what(ident)
        assert asked is not None
        return _WRITES_TO[asked]

    def wanted(
        self,
        plan: SteeringPlan,
        store: Store,
        elapsed: int,
        writes_per_minute: int,
        manages: Callable[[str], bool] = lambda pool: True,
    ) -> list[Write]:
        """Build the writes that are due, as many as the rate allows."""
        self._writes = [at for at in self._writes if at > elapsed - MINUTE]
        asked: list[Write] = []
        for write in (*self._nodes(plan, store, elapsed, manages), *self._pods(plan, store, elapsed)):
            kind = _WRITES_TO[type(write)]
            if len(self._writes) >= writes_per_minute or self._barred.get(kind, 0) > elapsed:
                continue
            if not self._attempts.due(write.id, elapsed):
                continue
            if kind in self._barred:  # one attempt shows whether the right was given
                self._barred[kind] = elapsed + RIGHT_MISSING
            self._attempts.forget(write.id)
            self._attempts.ask(write.id, elapsed, what=type(write))
            self._note(write, plan, elapsed)
            self._writes.append(elapsed)
            asked.append(write)
        return asked

    def _nodes(self, plan: SteeringPlan, store: Store, elapsed: int, manages: Callable[[str], bool]) -> list[Write]:
        wanted = dict.fromkeys(plan.closing)

        def stays(name: str) -> bool:
            node = store.get(Node, name)
            ours = node is not None and manages(node.metadata.labels.get(names.NODEPOOL, ""))
            return ours and bool(plan.closing) and self._closed_at.get(name, 0) + OPENS_AFTER > elapsed

        opened: list[Write] = [
            OpenNode(id=f"steer/node/open/{name}", node=name)
            for name in sorted(store.closing_nodes)
            if name not in wanted and not stays(name)
        ]
        closed = [
            CloseNode(id=f"steer/node/close/{name}", node=name) for name in wanted if name not in store.closing_nodes
        ]
        return [*opened, *closed]

    def _pods(self, plan: SteeringPlan, store: Store, elapsed: int) -> list[Write]:
        wanted: dict[Place, Victim] = {(victim.namespace, victim.name): victim for victim in plan.victims}
        by_owner = {victim.owner: victim for victim in plan.victims}
        taken_off: list[Write] = []
        for namespace, name in sorted(store.steered_pods):
            pod = store.get(Pod, name, namespace)
            if pod is None or (namespace, name) in wanted or pod.metadata.deletion_timestamp is not None:
                continue
            owners = [owner.uid for owner in pod.metadata.owner_references if owner.uid in by_owner]
            if all(self._may_change(owner, elapsed) for owner in owners):
                taken_off.append(UnmarkPod(id=f"steer/pod/unmark/{namespace}/{name}", namespace=namespace, name=name))
        put_on: list[Write] = [
            MarkPod(
                id=f"steer/pod/mark/{victim.namespace}/{victim.name}",
                namespace=victim.namespace,
                name=victim.name,
                uid=victim.uid,
            )
            for place, victim in wanted.items()
            if place not in store.steered_pods and self._may_change(victim.owner, elapsed)
        ]
        return [*taken_off, *put_on]

    def _may_change(self, owner: str, elapsed: int) -> bool:
        return self._changed_at.get(owner, -MINUTE) + MINUTE <= elapsed

    def _note(self, write: Write, plan: SteeringPlan, elapsed: int) -> None:
        """Record when a ReplicaSet's mark and a node were last changed."""
        if isinstance(write, CloseNode):
            self._closed_at[write.node] = elapsed
        elif isinstance(write, MarkPod):
            for victim in plan.victims:
                if (victim.namespace, victim.name) == (write.namespace, write.name):
                    self._changed_at[victim.owner] = elapsed
        for memory in (self._changed_at, self._closed_at):
            for key in [key for key, at in memory.items() if at <= elapsed - _FORGOTTEN_AFTER]:
                del memory[key]
