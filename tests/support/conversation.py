"""What an engine says in a scripted world, word for word: what it asks for, reports, asks its planner, and waits for.

A line is a time in seconds and what was said then. Fields that have their default are left out, and of a command's
report those that the one before had; a question that is the one before is "as before".
"""

import dataclasses
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from dovetail.decide.outcome import NOTHING, BlockedMove, BudgetRow, SteeringPlan
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import DEFAULT_ROLE, EngineRole
from dovetail.lifecycle.messages import Instruction, WakeAt
from dovetail.lifecycle.reports import CommandAdvanced
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import COST_METHODS, Action, Command, Method
from dovetail.model.objects import (
    AnyObject,
    ApiStruct,
    Deployment,
    Node,
    NodeClaim,
    NodePool,
    Pod,
    ReplicaSet,
    StatefulSet,
)
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Gate
from tests.support.lifecycle_world import CALM, EMPTY_CATALOGUE, T0, Driver, Found, ScriptedPlanner, World

ACTION, METHOD, SAVES, PODS, WITH = "test/action", "test/method", "test/saves", "test/pods", "test/with"


def worded(value: object) -> str:
    """Return a value in a few words; times as seconds since the beginning."""
    if isinstance(value, datetime):
        return f"@{(value - T0).total_seconds():g}"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{worded(key)}: {worded(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(worded, value)) + "]"
    if _has_fields(value):
        return f"{type(value).__name__}({' '.join(_fields(value))})"
    text = str(value)
    return f"record of {msgspec.json.decode(text)['phase']}" if text.startswith('{"v":1,"id"') else text


def _has_fields(value: object) -> bool:
    """Return whether a value is one of Dovetail's own, not an object of the API."""
    if isinstance(value, msgspec.Struct):
        return not isinstance(value, ApiStruct)
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(value: Any) -> list[str]:
    found = []
    for field in msgspec.structs.fields(value) if isinstance(value, msgspec.Struct) else dataclasses.fields(value):
        entry = getattr(value, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if entry != default:
            found.append(f"{field.name}={worded(entry)}")
    return found


class Scribe(ScriptedPlanner):
    """A scripted planner whose questions are written down; annotations of a node say what else its command is."""

    def __init__(self, lines: "Talk", limit: int = 5) -> None:
        super().__init__(limit)
        self.talk = lines
        self.plan: SteeringPlan = NOTHING
        self.blocked: tuple[BlockedMove, ...] = ()
        self.budgets: tuple[BudgetRow, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.could_save: dict[str, int | None] = {}
        self.all_at_once = False
        self._last = ""

    def _wish(self, node: Node, question: Question) -> Command | None:
        command = super()._wish(node, question)
        if command is None:
            return None
        notes = node.metadata.annotations
        return dataclasses.replace(
            command,
            action=Action(notes.get(ACTION, command.action)),
            method=Method(notes.get(METHOD, command.method)),
            nodes=(*command.nodes, *notes.get(WITH, "").split()),
            savings=int(notes.get(SAVES, "0")),
            pods=int(notes.get(PODS, "0")),
        )

    def round(self, question: Question) -> Found:
        """Record the question and return the scripted answer."""
        self.talk.write(f"round: {self._asked(question)}")
        found = super().round(question)
        if self.all_at_once:
            wishes = [wish for node in question.cluster.nodes if (wish := self._wish(node, question)) is not None]
            found.commands = tuple(wishes)
        found.steering, found.blocked, found.budgets = self.plan, self.blocked, self.budgets
        found.warnings, found.could_save = self.warnings, dict(self.could_save)
        return found

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Record the question and return the scripted answer."""
        self.talk.write(f"validation of {', '.join(command.nodes)}: {self._asked(question)}")
        self.validations += 1
        by_name = {node.metadata.name: node for node in question.cluster.nodes}
        first = by_name.get(command.nodes[0])
        why = self.refuse(command)
        if first is None or self._wish(first, question) is None:
            why = why or f"{command.nodes[0]} no longer wants it"
        pools = {node.metadata.labels[names.NODEPOOL] for name in command.nodes if (node := by_name.get(name))}
        if command.method in COST_METHODS and not pools.isdisjoint(question.in_flight.regrown):
            why = why or "the last cost action in its pool did not hold"
        return Refusal(gate=Gate.SIMULATION, why=why) if why else command

    def _asked(self, question: Question) -> str:
        asked = _asked(question)
        known, self._last = asked == self._last, asked
        return "as before" if known else asked


def _asked(question: Question) -> str:
    shown = {
        "managed": question.managed_pools,
        "inFlight": question.in_flight,
        "settling": dict(question.settling),
        "settlingNodes": dict(question.settling_nodes),
        "events": dict(sorted(question.pod_events.items())),
        "waste": dict(question.waste),
        "maySurge": question.may_surge,
        "unsettled": dict(question.unsettled),
        "alert": question.alert,
    }
    return " ".join(f"{key}={worded(value)}" for key, value in shown.items() if value or key == "maySurge")


class Talk(Driver):
    """Drives an engine and records all its output."""

    def __init__(
        self,
        settings: Settings = CALM,
        role: EngineRole = DEFAULT_ROLE,
        *,
        world: World | None = None,
        catalogue: Catalogue = EMPTY_CATALOGUE,
        limit: int = 5,
    ) -> None:
        self.lines: list[str] = []
        self._reported: dict[str, list[str]] = {}
        self.planner = Scribe(self, limit)
        engine = Engine(settings, catalogue, role, decider=self.planner)
        super().__init__(World() if world is None else world, engine, steps_max=2_000)

    def write(self, line: str) -> None:
        """Write a line."""
        self.lines.append(f"{(self.world.now - T0).total_seconds():g} {line}")

    def _do(self, instruction: Instruction) -> None:
        if isinstance(instruction, WakeAt):
            self.write(f"wake {worded(instruction.at)}")
        else:
            fields = _fields(instruction)
            if isinstance(instruction, CommandAdvanced):
                known, self._reported[instruction.command_id] = self._reported.get(instruction.command_id, []), fields
                fields = [fields[0], *(field for field in fields[1:] if field not in known)]
            self.write(f"{type(instruction).__name__} {' '.join(fields)}")
        super()._do(instruction)

    def brief(self) -> list[str]:
        """Return what it does and what becomes of commands: no rounds, wakes, events and counts."""
        left_out = ("wake", "round:", "validation", "RoundEnded", "VerdictsChanged", "HoldNode", "PublishEvent")
        return [line for line in self.lines if not line.partition(" ")[2].startswith(left_out)]

    def without_wakes(self) -> list[str]:
        """Return what it says but for when it wants to be woken."""
        return [line for line in self.lines if not line.partition(" ")[2].startswith("wake")]

    def see(self, *items: AnyObject) -> None:
        """Change objects and deliver the change to the engine at once."""
        for item in items:
            self.world.put(item)
        self.flush()

    def lose_sight(self, kind: str, name: str, namespace: str = "") -> None:
        """Remove an object and deliver the change to the engine at once."""
        self.world.drop(kind, name, namespace)
        self.flush()

    def flush(self) -> None:
        """Deliver pending changes to the engine."""
        changes, self.world.changes = self.world.changes, []
        for event in changes:
            self.send(event)

    def note(self, kind: type[Node | NodeClaim | NodePool], name: str, **values: str | None) -> None:
        """Set annotations of an object and deliver the change to the engine at once."""
        item = self.world.get(kind, name)  # type: ignore[type-var]
        assert item is not None
        self.world.annotate(item, **values)
        self.flush()


def pool(
    name: str = "web", *, managed: bool = True, annotations: dict[str, str] | None = None, **spec: Any
) -> NodePool:
    """Build a NodePool."""
    meta = {"name": name, "labels": {names.MANAGE: "true"} if managed else {}, "annotations": annotations or {}}
    return msgspec.convert({"metadata": meta, "spec": spec}, NodePool, strict=False)


def pod(
    name: str, node: str = "", owner: str = "rs", *, kind: str = "ReplicaSet", ready: bool = True, **more: Any
) -> Pod:
    """Build a pod of an owner, in the namespace d."""
    meta: dict[str, Any] = {"name": name, "namespace": "d", "uid": more.pop("uid", name)}
    meta["annotations"] = more.pop("annotations", {})
    meta["creationTimestamp"] = more.pop("created", None)
    if more.pop("leaving", False):
        meta["deletionTimestamp"] = "2026-05-11T11:00:00Z"
    if owner:
        reference = {"kind": kind, "name": owner, "uid": owner, "apiVersion": "apps/v1", "controller": True}
        meta["ownerReferences"] = [reference]
    status = {
        "phase": more.pop("phase", "Running" if node else "Pending"),
        "conditions": [{"type": "Ready", "status": "True" if ready and node else "False"}],
    }
    requests = {"cpu": more.pop("cpu", "1"), "memory": more.pop("memory", "1Mi")}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}], **more}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, Pod, strict=False)


def replica_set(name: str = "rs", replicas: int = 2, of: str = "") -> ReplicaSet:
    """Build a ReplicaSet in the namespace d; `of`: its Deployment."""
    meta: dict[str, Any] = {"name": name, "namespace": "d", "uid": name}
    if of:
        owner = {"kind": "Deployment", "name": of, "uid": of, "apiVersion": "apps/v1", "controller": True}
        meta["ownerReferences"] = [owner]
    return msgspec.convert({"metadata": meta, "spec": {"replicas": replicas}}, ReplicaSet, strict=False)


def stateful_set(name: str, replicas: int | None) -> StatefulSet:
    """Build a StatefulSet in the namespace d."""
    meta = {"name": name, "namespace": "d", "uid": name}
    return msgspec.convert({"metadata": meta, "spec": {"replicas": replicas}}, StatefulSet, strict=False)


def deployment(name: str = "app", **annotations: str) -> Deployment:
    """Build a Deployment in the namespace d that adds a pod before it takes one away."""
    meta = {"name": name, "namespace": "d", "uid": name, "annotations": annotations}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return msgspec.convert({"metadata": meta, "spec": {"replicas": 2, "strategy": rolling}}, Deployment, strict=False)
