"""The controller: watches feed the engine, the engine's instructions reach the cluster, the answers go back.

The only loop of the live shell. The engine's own work happens in a thread, one batch of events at a time, so that the
Lease is renewed and probes are answered while it thinks. Instructions of one command are carried out in order;
different commands and holds don't wait for each other. On losing the Lease what has not begun is dropped: the successor
finds everything on the objects.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import (
    ClockAdvanced,
    Event,
    Instruction,
    InstructionFailed,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    Report,
    Synced,
    WakeAt,
)
from dovetail.live.actuate import Actuator
from dovetail.live.client import ApiClient
from dovetail.live.lease import LeaderElection
from dovetail.live.logs import Log
from dovetail.live.metrics import Metrics
from dovetail.live.resources import RESOURCES, Resource
from dovetail.live.telemetry import Telemetry
from dovetail.live.watch import Informer
from dovetail.model import names
from dovetail.model.objects import Node

_BATCH_MAX: Final = 2000
_QUEUE_MAX: Final = 20_000
_WRITES_AT_ONCE: Final = 16
_ANSWER_WITHIN: Final = 120.0


@dataclass(slots=True, kw_only=True)
class Controller:
    """One controller process. `run` returns when it is told to stop, `stop` tells it."""

    client: ApiClient
    engine: Engine
    log: Log
    metrics: Metrics
    identity: str
    lease_namespace: str
    lease_name: str = "dovetail"
    resources: Sequence[Resource] = RESOURCES
    telemetry: Telemetry | None = None
    journal: Callable[[datetime, Event, Sequence[Instruction]], None] | None = None
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    beside: Sequence[Callable[["Controller"], Awaitable[None]]] = ()
    _queue: "asyncio.Queue[Event]" = field(init=False)
    _lanes: dict[str, "asyncio.Queue[Any]"] = field(default_factory=dict)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _wake: datetime | None = None
    _informers: list[Informer] = field(default_factory=list)
    _leading: bool = False
    _beat: float = 0.0
    _round_seen: int = 0
    _round_ended: float = 0.0
    _held: dict[str, None] = field(default_factory=dict)
    _actuator: Actuator = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._queue = asyncio.Queue(maxsize=_QUEUE_MAX)
        self._actuator = Actuator(client=self.client, identity=self.identity)
        self._slots = asyncio.Semaphore(_WRITES_AT_ONCE)
        self._beat = self._round_ended = time.monotonic()
        if self.telemetry is None:
            self.telemetry = Telemetry(log=self.log, metrics=self.metrics)

    # ------------------------------------------------------------ life

    def stop(self) -> None:
        """Asks for an orderly end."""
        self._stopping.set()

    async def put(self, event: Event) -> None:
        """Hands an event to the engine, after those that came before."""
        await self._queue.put(event)

    async def run(self) -> None:
        """Watches, leads and acts until stopped; leaves the Lease to the next one."""
        self.metrics.observe.set(1 if self.engine.observe else 0)
        self._informers = [
            Informer(client=self.client, resource=resource, deliver=self._observed, note=self._note)
            for resource in self.resources
        ]
        for work in self.beside:
            self._spawn(work(self), getattr(work, "__name__", "beside"))
        await asyncio.sleep(0)  # they listen before the first event comes
        for informer in self._informers:
            self._spawn(informer.run(), f"watch {informer.resource.kind}")
        self._spawn(self._announce_sync(), "sync")
        election = None
        if not self.engine.observe:
            election = asyncio.create_task(self._election().run())
        pump = asyncio.create_task(self._pump())
        stopping = asyncio.create_task(self._stopping.wait())
        watched = {pump, stopping} | ({election} if election is not None else set())
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {stopping}:
                task.result()  # a fault of ours: let it be seen, a supervisor starts us anew
        finally:
            self.log.info("stopping")
            for task in (*watched, *self._tasks):
                task.cancel()
            await asyncio.gather(*watched, *self._tasks, return_exceptions=True)

    def _election(self) -> LeaderElection:
        return LeaderElection(
            client=self.client,
            namespace=self.lease_namespace,
            name=self.lease_name,
            identity=self.identity,
            gained=self._gained,
            lost=self._lost,
        )

    async def _gained(self) -> None:
        self._leading = True
        self.metrics.leader.set(1)
        self.log.info("leading", identity=self.identity)
        await self.put(LeadershipGained())

    async def _lost(self) -> None:
        self._leading = False
        self.metrics.leader.set(0)
        self.log.warning("no longer leading; another process may act", identity=self.identity)
        await self.put(LeadershipLost())

    async def _announce_sync(self) -> None:
        for informer in self._informers:
            await informer.synced.wait()
        self.log.info("in sync", objects=sum(len(informer.known) for informer in self._informers))
        self.metrics.synced.set(1)
        await self.put(Synced())

    # ------------------------------------------------------------ probes

    @property
    def is_ready(self) -> bool:
        """Whether everything has been seen once."""
        return bool(self._informers) and all(informer.synced.is_set() for informer in self._informers)

    @property
    def is_alive(self) -> bool:
        """Whether the engine has been given a turn lately."""
        return time.monotonic() - self._beat < _ANSWER_WITHIN

    # ------------------------------------------------------------ events in

    async def _observed(self, event: Event) -> None:
        if isinstance(event, ObjectObserved):
            self.metrics.events.labels(type(event.object).__name__).inc()
            if isinstance(event.object, Node):
                self._count_hold(event.object)
        elif isinstance(event, ObjectVanished):
            self.metrics.events.labels(event.kind).inc()
            if event.kind == "Node" and self._held.pop(event.name, ...) is None:
                self.metrics.held.set(len(self._held))
        for listener in self.listeners:
            listener(event)
        await self._queue.put(event)

    def _count_hold(self, node: Node) -> None:
        if names.HOLD in node.metadata.annotations:
            self._held[node.metadata.name] = None
        else:
            self._held.pop(node.metadata.name, None)
        self.metrics.held.set(len(self._held))

    def _note(self, kind: str, message: str) -> None:
        self.log.warning(message, kind=kind)

    async def _pump(self) -> None:
        """Feeds the engine for ever: whatever has come, else the time."""
        while True:
            batch = await self._next_batch()
            now = datetime.now(UTC)
            began = time.monotonic()
            steps = await asyncio.to_thread(self._digest, batch, now)
            self._after(began)
            for event, instructions in steps:
                if self.journal is not None:
                    self.journal(now, event, instructions)
                for instruction in instructions:
                    self._dispatch(instruction)

    async def _next_batch(self) -> list[Event]:
        poll = timedelta(microseconds=self.engine.settings.poll_interval // 1000)
        due = datetime.now(UTC) + poll
        if self._wake is not None:
            due = min(due, self._wake)
        wait = max(0.0, (due - datetime.now(UTC)).total_seconds())
        try:
            batch = [await asyncio.wait_for(self._queue.get(), wait)]
        except TimeoutError:
            self._wake = None
            return [ClockAdvanced()]
        while len(batch) < _BATCH_MAX and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _digest(self, batch: list[Event], now: datetime) -> list[tuple[Event, list[Instruction]]]:
        return [(event, self.engine.handle(event, now)) for event in batch]

    def _after(self, began: float) -> None:
        now = time.monotonic()
        self._beat = now
        if self.engine.rounds != self._round_seen:
            self._round_seen = self.engine.rounds
            self._round_ended = now
            self.metrics.evaluation.observe(now - began)
            if self.engine.last_round is not None:
                for method in self.engine.last_round.methods:
                    self.metrics.eligible.labels(method.reason.value).set(len(method.candidates))
        self.metrics.evaluation_age.set(now - self._round_ended)

    # ------------------------------------------------------------ instructions out

    def _dispatch(self, instruction: Instruction) -> None:
        if isinstance(instruction, WakeAt):
            self._wake = instruction.at if self._wake is None else min(self._wake, instruction.at)
        elif isinstance(instruction, Report):
            assert self.telemetry is not None
            self.telemetry.take(instruction)
        elif self._actuator.acts_on(instruction):
            lane = getattr(instruction, "command_id", "") or instruction.id
            if lane not in self._lanes:
                self._lanes[lane] = asyncio.Queue()
                self._spawn(self._work(lane), f"act {lane}")
            self._lanes[lane].put_nowait(instruction)

    async def _work(self, lane: str) -> None:
        """Carries out one command's instructions in order; ends when there are no more."""
        queue = self._lanes[lane]
        try:
            while not queue.empty():
                instruction = queue.get_nowait()
                if not self._leading:
                    continue  # not ours any more; the next leader sees what was done and what was not
                async with self._slots:
                    answer = await self._actuator.carry_out(instruction)
                outcome = answer.failure.value if isinstance(answer, InstructionFailed) else "done"
                self.metrics.actions.labels(type(instruction).__name__, outcome).inc()
                await self._queue.put(answer)
        finally:
            self._lanes.pop(lane, None)

    def _spawn(self, work: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self.log.error("a part of the controller failed", part=task.get_name(), fault=repr(fault))
            self._stopping.set()
