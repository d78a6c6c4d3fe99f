"""A small world that applies instructions to objects, and launches and drains nodes on a virtual clock."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar, assert_never

import msgspec

from dovetail.decide.outcome import NOTHING, BlockedMove, BudgetRow, ExpiringNode, RollChange, SteeringPlan
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.rollouts.status import RollStatus
from dovetail.lifecycle.commands.records import is_our_taint
from dovetail.lifecycle.commands.seal import Seal, admit
from dovetail.lifecycle.effects.effect_context import EffectContext
from dovetail.lifecycle.effects.objects import Answer, ConflictError, object_of, patched, perform, tree_of
from dovetail.lifecycle.effects.writes import PDBS, PODS_ON, Create, Delete, Patch, Ref, Tree, Write
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.invariants import violations
from dovetail.lifecycle.messages import (
    ClearRecord,
    ClockAdvanced,
    ClusterInstruction,
    CreateNodeClaim,
    DeleteNodeClaim,
    Event,
    Failure,
    HoldNode,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    LeadershipGained,
    ObjectObserved,
    ObjectVanished,
    PublishEvent,
    ReleaseNode,
    Synced,
    TaintNode,
    UntaintNode,
    WakeAt,
)
from dovetail.lifecycle.reports import Report
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Action, Command, Method, Placement, Replacement
from dovetail.model.objects import (
    AnyObject,
    Condition,
    Node,
    NodeClaim,
    NodeClaimStatus,
    NodePool,
    NodeSpec,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodStatus,
)
from dovetail.model.persistence import PoolLoad
from dovetail.model.settings import Settings, Stabilization
from dovetail.model.verdicts import BriefVerdict, Gate, NodeVerdict

T0 = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
EMPTY_CATALOGUE = Catalogue(instance_types=())
CALM = Settings(stabilization=Stabilization(empty=0, expired=0, drifted=0, cost=0))
SEAL = Seal((b"the key of the tests' world",))
WANT = "test.dovetail.dev/want"
ACTING = (TaintNode, UntaintNode, CreateNodeClaim, DeleteNodeClaim, ClearRecord, HoldNode, ReleaseNode)
_T = TypeVar("_T", Node, NodeClaim, NodePool, Pod, PodDisruptionBudget)


@dataclass
class Found:
    """The result of a scripted round."""

    commands: tuple[Command, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    warnings: tuple[str, ...] = ()
    blocked: tuple[BlockedMove, ...] = ()
    next_change: datetime | None = None
    verdicts: tuple[NodeVerdict, ...] = ()
    could_save: dict[str, int | None] = field(default_factory=dict)
    loads: dict[str, PoolLoad] = field(default_factory=dict)
    steering: SteeringPlan = NOTHING
    rolling: tuple[RollChange, ...] = ()
    expiring: tuple[ExpiringNode, ...] = ()
    rollouts: tuple[RollStatus, ...] = ()

    @property
    def brief_verdicts(self) -> tuple[BriefVerdict, ...]:
        """Return the verdicts without their reasons."""
        return tuple(BriefVerdict(entry.node, entry.node_pool, entry.verdict) for entry in self.verdicts)

    def why(self, node: str) -> str:
        """Return the reason of a node's verdict."""
        return next(entry.why for entry in self.verdicts if entry.node == node)


class ScriptedPlanner:
    """Proposes what the nodes' annotation says: `delete`, `replace`, `replace2`, for drift or as `cost-...`, singly."""

    def __init__(self, limit: int = 5) -> None:
        self.limit = limit
        self.plans = 0
        self.validations = 0
        self.refuse: Callable[[Command], str] = lambda command: ""
        self.asks: list[Question] = []
        self.next_change: datetime | None = None

    def _wish(self, node: Node, question: Question) -> Command | None:
        want = node.metadata.annotations.get(WANT, "")
        pool = node.metadata.labels[names.NODEPOOL]
        cost = want.startswith("cost-")
        kind = want.removeprefix("cost-")
        if not want or pool not in question.managed_pools or node.metadata.deletion_timestamp:
            return None
        if node.metadata.name in {*question.in_flight.leaving_names, *question.in_flight.nominated}:
            return None
        if node.metadata.name in question.in_flight.resting:
            return None
        if any(is_our_taint(taint) for taint in node.spec.taints):
            return None
        if cost and pool in question.settling:
            return None
        count = {"delete": 0, "replace": 1, "replace2": 2}[kind]
        if count and pool in question.in_flight.back_off:
            return None
        actions = (Action.DELETE_COST, Action.REPLACE_COST) if cost else (Action.DELETE_DRIFTED, Action.REPLACE_DRIFTED)
        to = node.metadata.annotations.get("to", "")
        placements = (Placement(node=to, pods=()),) if to else ()
        return Command(
            action=actions[1 if count else 0],
            method=Method.SINGLE_NODE if cost else Method.DRIFTED,
            nodes=(node.metadata.name,),
            replacements=(Replacement(node_pool=pool, instance_types=("m",)),) * count,
            placements=placements,
        )

    def round(self, question: Question) -> Found:
        """Propose the command of the first node's annotation."""
        self.plans += 1
        self.asks.append(question)
        wishes = [wish for node in question.cluster.nodes if (wish := self._wish(node, question)) is not None]
        room = self.limit - len(question.in_flight.leaving_names)
        commands = tuple(wishes[:1]) if room > 0 else ()
        verdicts = tuple(
            NodeVerdict(
                node=node.metadata.name,
                node_pool=node.metadata.labels[names.NODEPOOL],
                verdict=Gate.NOT_DRIFTED.value,
                why="It has not drifted.",
            )
            for node in question.cluster.nodes
        )
        return Found(commands=commands, next_change=self.next_change, verdicts=verdicts)

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Refuse if scripted, or if a node's annotation has changed."""
        self.validations += 1
        why = self.refuse(command)
        by_name = {node.metadata.name: node for node in question.cluster.nodes}
        for name in command.nodes:
            if name not in by_name or self._wish(by_name[name], question) is None:
                why = why or f"{name} no longer wants it"
        return Refusal(gate=Gate.SIMULATION, why=why) if why else command


class Crash(Exception):  # noqa: N818 - it is one, on purpose
    """The process dies."""


@dataclass
class World:
    """Objects, a clock, and how things go wrong."""

    now: datetime = T0
    launch_seconds: float = 40
    drain_seconds: float = 20
    launches: bool = True
    seal: Seal = SEAL
    objects: dict[tuple[str, str, str], AnyObject] = field(default_factory=dict)
    agenda: list[tuple[datetime, int, Callable[[], None]]] = field(default_factory=list)
    changes: list[Event] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    bind_seconds: float | None = 1.0
    bind_to: str = "rest"
    comes_again: bool = True
    serial: int = 0
    fail: Callable[[Instruction], Failure | None] = lambda instruction: None

    # ------------------------------------------------------------ objects

    def put(self, item: AnyObject) -> AnyObject:
        """Store an object again, as the API server would."""
        self.serial += 1
        meta = msgspec.structs.replace(
            item.metadata,
            resource_version=str(self.serial),
            uid=item.metadata.uid or f"uid-{self.serial}",
            creation_timestamp=item.metadata.creation_timestamp or self.now,
        )
        stored = msgspec.structs.replace(item, metadata=meta)
        self.objects[type(item).__name__, meta.namespace, meta.name] = stored
        self.changes.append(admit(ObjectObserved(object=stored), self.seal))
        return stored

    def drop(self, kind: str, name: str, namespace: str = "") -> None:
        """Remove an object."""
        gone = self.objects.pop((kind, namespace, name), None)
        if gone is not None:
            self.changes.append(ObjectVanished(kind=kind, namespace=namespace, name=name, uid=gone.metadata.uid))

    def get(self, kind: type[_T], name: str) -> _T | None:
        """Return an object."""
        return self.objects.get((kind.__name__, "", name))  # type: ignore[return-value]

    def all(self, kind: type[_T]) -> list[_T]:
        """Return all objects of a kind, by name."""
        return [item for _, item in sorted(self.objects.items()) if isinstance(item, kind)]

    def annotate(self, item: AnyObject, **values: str | None) -> AnyObject:
        """Set or remove annotations (keys with the slash as given in `names`)."""
        annotations = {**item.metadata.annotations}
        for key, value in values.items():
            annotations.pop(key, None)
            if value is not None:
                annotations[key] = value
        meta = msgspec.structs.replace(item.metadata, annotations=annotations)
        return self.put(msgspec.structs.replace(item, metadata=meta))

    def add_pool(self, name: str = "web", *, managed: bool = True) -> None:
        """Add a NodePool."""
        self.put(NodePool(metadata=ObjectMeta(name=name, labels={names.MANAGE: "true"} if managed else {})))

    def add_node(self, name: str, pool: str = "web", want: str = "", **annotations: str) -> None:
        """Add a node that runs, with its NodeClaim."""
        notes = {**({WANT: want} if want else {}), **annotations}
        labels = {names.NODEPOOL: pool}
        done = Condition(type=names.CONDITION_INITIALIZED, status="True", last_transition_time=self.now)
        self.put(
            NodeClaim(
                metadata=ObjectMeta(name=f"{name}-claim", labels=labels),
                status=NodeClaimStatus(node_name=name, provider_id=f"m-{name}", conditions=(done,)),
            )
        )
        meta = ObjectMeta(name=name, labels=labels, annotations=notes)
        self.put(Node(metadata=meta, spec=NodeSpec(provider_id=f"m-{name}")))

    # ------------------------------------------------------------ instructions

    def carry_out(self, instruction: ClusterInstruction) -> Answer:
        """Execute an instruction by the rules that every shell follows."""
        failure = self.fail(instruction)
        if failure is not None:
            return InstructionFailed(id=instruction.id, failure=failure)
        if isinstance(instruction, PublishEvent):
            return InstructionSucceeded(id=instruction.id)
        return perform(instruction, self, EffectContext(now=self.now, seal=self.seal))

    def read(self, ref: Ref) -> Tree | None:
        """Return an object as JSON, or None."""
        if ref.kind == PODS_ON:
            return {"pods": tuple(pod for pod in self.all(Pod) if pod.spec.node_name == ref.name)}
        if ref.kind == PDBS:
            return {"pdbs": tuple(self.all(PodDisruptionBudget))}
        item = self.objects.get((ref.kind, ref.namespace, ref.name))
        return None if item is None else tree_of(item)

    def write(self, write: Write) -> str:
        """Apply a write and Karpenter's reaction to it."""
        ref = write.ref
        item = self.objects.get((ref.kind, ref.namespace, ref.name))
        match write:
            case Create(subresource="eviction"):
                self.evict(ref.namespace, ref.name)
            case Create():
                if item is not None:
                    raise ConflictError(f"{ref.name} is there already")
                self.created.append(ref.name)
                made = self.put(object_of(write.tree))
                if self.launches:
                    self.later(self.launch_seconds, lambda: self.initialize(ref.name))
                return made.metadata.uid
            case Patch():
                if item is None:
                    raise ConflictError(f"{ref.name} is gone")
                self.put(patched(item, write))
            case Delete():
                if not isinstance(item, NodeClaim) or item.metadata.uid != write.uid:
                    raise ConflictError(f"{ref.name} is gone")
                self.delete_claim(item)
                return write.uid
            case _:
                assert_never(write)
        return ""

    def evict(self, namespace: str, name: str) -> None:
        """Remove a pod from its node; its owner creates another, if any, which is bound after a while, or never."""
        pod = self.objects["Pod", namespace, name]
        assert isinstance(pod, Pod)
        self.evicted.append(name)
        self.drop("Pod", name, namespace)
        if not self.comes_again:
            return
        fresh = msgspec.structs.replace(pod.metadata, name=f"{name}-again", uid="", creation_timestamp=None)
        waiting = msgspec.structs.replace(pod, metadata=fresh, spec=msgspec.structs.replace(pod.spec, node_name=""))
        stored = self.put(msgspec.structs.replace(waiting, status=PodStatus(phase="Pending")))
        if self.bind_seconds is not None:
            spec = msgspec.structs.replace(pod.spec, node_name=self.bind_to)
            bound = msgspec.structs.replace(pod, metadata=stored.metadata, spec=spec)
            self.later(self.bind_seconds, lambda: self.put(bound))

    def delete_claim(self, claim: NodeClaim) -> None:
        """Begin a graceful deletion."""
        if claim.metadata.deletion_timestamp is not None:
            return
        self.deleted.append(claim.metadata.name)
        meta = msgspec.structs.replace(claim.metadata, deletion_timestamp=self.now)
        self.put(msgspec.structs.replace(claim, metadata=meta))
        self.later(self.drain_seconds, lambda: self.finish(claim.metadata.name))

    def initialize(self, name: str) -> None:
        """Let a launched machine join with its NodeClaim's annotations, as Karpenter does."""
        claim = self.get(NodeClaim, name)
        if claim is None or claim.metadata.deletion_timestamp is not None:
            return
        done = Condition(type=names.CONDITION_INITIALIZED, status="True", last_transition_time=self.now)
        status = NodeClaimStatus(node_name=f"{name}-node", provider_id=f"m-{name}", conditions=(done,))
        self.put(msgspec.structs.replace(claim, status=status))
        meta = ObjectMeta(name=f"{name}-node", labels=claim.metadata.labels, annotations=claim.metadata.annotations)
        self.put(Node(metadata=meta, spec=NodeSpec(provider_id=f"m-{name}")))

    def finish(self, name: str) -> None:
        """Delete a drained machine."""
        claim = self.get(NodeClaim, name)
        if claim is not None:
            self.drop("Node", claim.status.node_name)
            self.drop("NodeClaim", name)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Schedule a callback."""
        self.serial += 1
        self.agenda.append((self.now + timedelta(seconds=seconds), self.serial, do))

    # ------------------------------------------------------------ what must hold at the end

    def tainted(self) -> list[str]:
        """Return the nodes that carry Dovetail's taint."""
        return [node.metadata.name for node in self.all(Node) if any(map(is_our_taint, node.spec.taints))]

    def recorded(self) -> list[str]:
        """Return objects that carry a record."""
        items: Iterable[Node | NodeClaim] = [*self.all(Node), *self.all(NodeClaim)]
        return [item.metadata.name for item in items if names.COMMAND in item.metadata.annotations]


@dataclass
class Driver:
    """Drives an engine in a world: events in, instructions out, in virtual time."""

    world: World
    engine: Engine
    wakes: list[datetime] = field(default_factory=list)
    inbox: list[Event] = field(default_factory=list)
    log: list[tuple[datetime, Instruction]] = field(default_factory=list)
    journal: list[tuple[datetime, Event, list[Instruction]]] = field(default_factory=list)
    acted: int = 0
    crash_at: tuple[int, bool] | None = None
    lose: Callable[[Event], bool] = lambda event: False
    steps: int = 0
    steps_max: int = 20_000

    def begin(self) -> "Driver":
        """List everything, then lead."""
        self.world.changes.clear()
        for _, item in sorted(self.world.objects.items()):
            self.send(admit(ObjectObserved(object=item), self.world.seal))
        self.send(Synced())
        self.send(LeadershipGained())
        return self

    def send(self, event: Event) -> None:
        """Deliver one event and execute the resulting instructions; answers and changes follow."""
        self.inbox.append(event)
        while self.inbox:
            given = self.inbox.pop(0)
            if self.lose(given):
                continue
            answer = self.engine.handle(given, self.world.now)
            self.journal.append((self.world.now, given, answer))
            assert violations(self.engine) == []
            for instruction in answer:
                self._do(instruction)

    def _do(self, instruction: Instruction) -> None:
        self.log.append((self.world.now, instruction))
        if isinstance(instruction, WakeAt):
            self.wakes.append(instruction.at)
        elif not isinstance(instruction, Report):
            counts = isinstance(instruction, ACTING)
            if counts and self.crash_at == (self.acted, False):
                raise Crash
            answer = self.world.carry_out(instruction)
            if counts and self.crash_at == (self.acted, True):
                raise Crash
            self.acted += counts
            self.inbox.append(answer)
            self.inbox.extend(self.world.changes)
            self.world.changes.clear()

    def run(self, seconds: float) -> "Driver":
        """Advance time."""
        self.send(ClockAdvanced())
        end = self.world.now + timedelta(seconds=seconds)
        while True:
            self.steps += 1
            assert self.steps < self.steps_max, "it spins"
            times = [at for at in self.wakes if at <= end] + [at for at, _, _ in self.world.agenda if at <= end]
            if not times:
                break
            self.world.now = max(self.world.now, min(times))
            self._happen()
        self.world.now = max(self.world.now, end)
        return self

    def _happen(self) -> None:
        due = sorted((entry for entry in self.world.agenda if entry[0] <= self.world.now), key=lambda entry: entry[:2])
        self.world.agenda = [entry for entry in self.world.agenda if entry[0] > self.world.now]
        for _, _, do in due:
            do()
        changes, self.world.changes = self.world.changes, []
        for event in changes:
            self.send(event)
        woken = [at for at in self.wakes if at <= self.world.now]
        self.wakes = [at for at in self.wakes if at > self.world.now]
        if woken:
            self.send(ClockAdvanced())

    def told(self, kind: type[Instruction]) -> list[Instruction]:
        """Return all instructions of a kind so far."""
        return [instruction for _, instruction in self.log if isinstance(instruction, kind)]

    def reports(self, topic: str) -> list[Report]:
        """Return all reports of a topic so far."""
        return [item for _, item in self.log if isinstance(item, Report) and item.topic == topic]

    def ends(self) -> list[str]:
        """Return how commands ended, in order."""
        phases = [dict(report.figures).get("phase", "") for report in self.reports("command")]
        return [str(phase) for phase in phases if phase in ("done", "failed", "refused")]


def engine_for(settings: Settings = CALM, planner: ScriptedPlanner | None = None, identity: str = "one") -> Engine:
    """Make an engine that wants what the nodes' annotations say."""
    return Engine(settings, EMPTY_CATALOGUE, EngineRole(identity=identity), decider=planner or ScriptedPlanner())
