"""The controller: watches feed the engine, the engine's instructions reach the cluster, the answers go back.

The only loop of the live shell. The engine runs in a thread, one batch of events at a time, so that the Lease is
renewed and probes are answered meanwhile. `live.dispatch` executes its instructions.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from heapq import heappop, heappush
from math import inf
from secrets import token_bytes
from typing import Final

from dovetail.api.reading.admitted import Shared
from dovetail.decide.round import RoundResult
from dovetail.lifecycle.commands.seal import Seal, admit
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import (
    ClockAdvanced,
    Event,
    Instruction,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    RoundTook,
    Synced,
    ViewGrewOld,
    WakeAt,
)
from dovetail.lifecycle.reports import Report
from dovetail.live.actuate import Actuator
from dovetail.live.clocks import WallSteps
from dovetail.live.dispatch import Dispatcher
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.lease import LeaderElection
from dovetail.live.kubernetes.resources import ALL_RESOURCES, LEASE, Resource, as_asked, plural_in
from dovetail.live.kubernetes.watch import Informer
from dovetail.live.observability.held_back_meter import HeldBackMeter
from dovetail.live.observability.lag import watch_lag
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.observability.outages import Outages
from dovetail.live.observability.repeats import Repeats
from dovetail.live.observability.telemetry import CONSOLIDATION_TYPE, PHASES_SHOWN, Telemetry
from dovetail.live.publish import StatePublisher
from dovetail.live.tasks import Tasks
from dovetail.model import names
from dovetail.model.command import REASON_OF, Method
from dovetail.model.objects import Node, NodeClaim, NodePool

_BATCH_MAX: Final = 2000
_QUEUE_MAX: Final = 20_000
_ANSWER_WITHIN: Final = 120.0
_TURN_SECONDS: Final = 30.0
_SECOND: Final = 1_000_000_000
_QUIET_SHARE: Final = 4.0  # how often a quiet watch is opened again before its view would count as old
_NOTHING_MANAGED: Final = (
    f"no NodePool is managed, so nothing will be done: label one {names.MANAGE}=true, name it under `pools` in the "
    "settings, or start with --observe to look at all"
)


@dataclass(slots=True, kw_only=True)
class Controller:
    """One controller process until `stop`; `seal` verifies records of commands: one that acts must have it."""

    client: ApiClient
    engine: Engine
    log: Log
    metrics: Metrics
    identity: str
    lease_namespace: str
    seal: Seal | None = None
    lease_name: str = "dovetail"
    resources: Sequence[Resource] = ALL_RESOURCES
    telemetry: Telemetry | None = None
    journal: Callable[[datetime, Event, Sequence[Instruction]], None] | None = None
    listeners: list[Callable[[Event], None]] = field(default_factory=list)
    background_tasks: Sequence[Callable[["Controller"], Awaitable[None]]] = ()
    _queue: "asyncio.Queue[Event]" = field(init=False)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    crd_seconds: float = 60.0
    fault: BaseException | None = None
    _uids: dict[tuple[str, str], str] = field(default_factory=dict)
    _election: LeaderElection | None = None
    _tasks: Tasks = field(init=False)
    _in_view: bool = False
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _wakes: list[datetime] = field(default_factory=list)
    _informers: list[Informer] = field(default_factory=list)
    _leading: bool = False
    _beat: float = 0.0
    _assumed: tuple[str, ...] = ()
    _rounds_seen: tuple[int, int] = (0, 0)
    _round_ended: float = 0.0
    _held: dict[str, None] = field(default_factory=dict)
    _left: list[Event] = field(default_factory=list)
    _dispatcher: Dispatcher = field(init=False)
    _wall_steps: WallSteps = field(default_factory=WallSteps)
    _publisher: StatePublisher = field(init=False)
    _outages: Outages = field(init=False)
    _held_back: HeldBackMeter = field(init=False)
    _malformed: Repeats = field(default_factory=Repeats)

    def __post_init__(self) -> None:
        self._queue = asyncio.Queue(maxsize=_QUEUE_MAX)
        self._outages = Outages(self.log)
        self._held_back = HeldBackMeter(gauge=self.metrics.held_back)
        actuator = Actuator(
            client=self.client,
            identity=self.identity,
            # Only an observer has no seal, and it writes nothing.
            seal=self.seal or Seal((token_bytes(32),)),
            uid_of=lambda kind, name: self._uids.get((kind, name), ""),
            may_act=lambda: self.may_act,
            clock=lambda: self.clock(),
        )
        self._tasks = Tasks(failed=self._failed)
        self._dispatcher = Dispatcher(
            actuator=actuator,
            log=self.log,
            metrics=self.metrics,
            spawn=lambda work, name: self._tasks.spawn(work, name),
            answer=self.put,
        )
        self._publisher = StatePublisher(
            client=self.client,
            namespace=self.lease_namespace,
            fence=lambda: self.may_act,
            warn=lambda message: self.log.warning(message),
        )
        self._beat = self._round_ended = time.monotonic()
        if self.telemetry is None:
            self.telemetry = Telemetry(log=self.log, metrics=self.metrics)

    # ------------------------------------------------------------ life

    def stop(self) -> None:
        """Request an orderly stop."""
        self._stopping.set()

    async def put(self, event: Event) -> None:
        """Queue an event for the engine."""
        await self._queue.put(event)

    async def run(self) -> None:
        """Watch, lead and act until stopped; then release the Lease."""
        self._show()
        for work in self.background_tasks:
            self._tasks.spawn(_awaited(work(self)), getattr(work, "__name__", "background task"))
        await asyncio.sleep(0)  # they listen before the first event comes
        shared = Shared()
        self._informers = [
            Informer(
                client=self.client,
                resource=resource,
                deliver=self._observed,
                note=self._note,
                failed=self._outages.failed,
                works=self._outages.works,
                listed=lambda kind: self.metrics.relists.labels(kind).inc(),
                unread=lambda kind: self.metrics.unread.labels(kind).inc(),
                shared=shared,
                quiet_seconds=lambda: self.engine.settings.view_age_maximum / _SECOND / _QUIET_SHARE,
            )
            for resource in as_asked(self.resources, self.engine.settings.karpenter)
        ]
        for informer in self._informers:
            self.metrics.view_age.labels(informer.resource.kind).set_function(partial(_age, informer))
            self._tasks.spawn(informer.run(), f"watch {informer.resource.kind}", forever=True)
        self._tasks.spawn(self._first_sync(), "sync")
        self._tasks.spawn(self._pump(), "engine", forever=True)
        self._tasks.spawn(watch_lag(self.metrics), "lag", forever=True)
        elections = Tasks(failed=self._failed)
        if not self.engine.observe:
            self._election = self._candidacy()
            elections.spawn(self._election.run(), "election", forever=True)
        try:
            await self._stopping.wait()
        finally:
            self.log.info("stopping")
            self._leading = False
            # First stop all writes, then release the Lease.
            await self._tasks.cancel()
            await elections.cancel()
        if self.fault is not None:
            raise self.fault

    def _show(self) -> None:
        """Connect the metrics that are read from the controller on demand."""
        self.metrics.rounds.engine = self.engine
        self.metrics.observe.set(1 if self.engine.observe else 0)
        self.metrics.evaluation_age.set_function(lambda: time.monotonic() - self._round_ended)
        self.metrics.lease_age.set_function(lambda: inf if self._election is None else self._election.age)
        self.metrics.leader.set_function(lambda: 1.0 if self.may_act else 0.0)
        for phase in PHASES_SHOWN:
            self.metrics.phase_age.labels(phase.value).set_function(partial(self.engine.phase_age, phase))
        self.metrics.synced.set_function(lambda: 0.0 if self.why_unready() else 1.0)

        def malformed(path: str, why: str) -> None:
            kind = plural_in(path)
            self.metrics.malformed.labels(kind).inc()
            left_out = self._malformed.let_through(kind)
            if left_out is not None:
                self.log.warning("an answer can't be read", path=path, why=why, left_out=left_out)

        self.client.on_malformed = malformed

    def _candidacy(self) -> LeaderElection:
        settings = self.engine.settings
        return LeaderElection(
            client=self.client,
            namespace=self.lease_namespace,
            name=self.lease_name,
            identity=self.identity,
            gained=self._gained,
            lost=self._lost,
            note=lambda message: self._outages.failed(LEASE.kind, message),
            works=lambda: self._outages.works(LEASE.kind),
            waits=lambda message: self.log.info(message, lease=f"{self.lease_namespace}/{self.lease_name}"),
            lease_duration=settings.lease_duration / _SECOND,
            renew_deadline=settings.renew_deadline / _SECOND,
            retry_period=settings.retry_period / _SECOND,
        )

    @property
    def may_act(self) -> bool:
        """Return whether this process leads now, by its own clocks."""
        return self._leading and self._election is not None and self._election.may_act

    async def _gained(self) -> None:
        self._leading = True
        self.log.info("leading", identity=self.identity)
        await self.put(LeadershipGained())

    async def _lost(self) -> None:
        self._leading = False
        self.log.warning("no longer leading; another process may act", identity=self.identity)
        self._dispatcher.drop_all()
        await self.put(LeadershipLost())

    async def _first_sync(self) -> None:
        """Send the engine a clock tick once everything has been seen, however quiet the cluster is."""
        for informer in self._informers:
            await informer.synced.wait()
        await self.put(ClockAdvanced())

    # ------------------------------------------------------------ probes

    def blind_kinds(self) -> tuple[str, ...]:
        """Return the kinds whose view is too old for decisions."""
        limit = self.engine.settings.view_age_maximum / _SECOND
        return tuple(each.resource.kind for each in self._informers if not each.is_missing and each.age > limit)

    def missing_kinds(self) -> tuple[str, ...]:
        """Return the kinds that this process may not read."""
        return tuple(each.resource.kind for each in self._informers if each.is_missing)

    def why_unready(self) -> str:
        """Return why no decision can be made now; empty if it can."""
        unseen = [each.resource.kind for each in self._informers if not each.synced.is_set()]
        if unseen or not self._informers:
            return f"not in sync yet: {', '.join(unseen)}" if unseen else "not started yet"
        blind, limit = self.blind_kinds(), self.engine.settings.view_age_maximum / _SECOND
        return f"no update for {', '.join(blind)} for over {limit:.0f} s" if blind else ""

    def why_dead(self) -> str:
        """Return why this process should be restarted; empty if it is healthy."""
        if time.monotonic() - self._beat >= _ANSWER_WITHIN:
            return "the engine has had no turn for too long"
        if self._election is not None and not self._election.is_alive:
            return "nobody has tried to renew the Lease for too long"
        return ""

    @property
    def is_ready(self) -> bool:
        """Return whether everything has been seen, and recently."""
        return not self.why_unready()

    @property
    def is_alive(self) -> bool:
        """Return whether the engine has run recently, and the Lease was tried."""
        return not self.why_dead()

    def _say_what_is_managed(self) -> None:
        """Log which pools are managed or observed; warn where there is nothing to do."""
        pools = self.engine.managed_pools()
        every = sum(1 for _ in self.engine.store.node_pools())
        if pools:
            message = "observing NodePools" if self.engine.observe else "managing NodePools"
            self.log.info(message, pools=",".join(pools), of=every)
        elif not every:
            self.log.warning("there is no NodePool: nothing will be done")
        else:
            self.log.warning(_NOTHING_MANAGED, pools_there=every)

    def _with_view_change(self, batch: list[Event]) -> list[Event]:
        """Add the event about the view, if it has changed: an old one first, a fresh one after all that was seen.

        An engine that began earlier would take a NodeClaim that still waits in the queue for one that is gone.
        """
        unready = self.why_unready()
        if not unready and not self._in_view and self._queue.empty():
            self._in_view = True
            self.log.info("in sync", objects=sum(len(informer.known) for informer in self._informers))
            return [*batch, Synced()]
        if unready and self._in_view:
            self._in_view = False
            self.log.warning("blind: nothing is decided", why=unready)
            return [ViewGrewOld(kinds=self.blind_kinds()), *batch]
        return batch

    # ------------------------------------------------------------ events in

    async def _observed(self, event: Event) -> None:
        if isinstance(event, ObjectObserved):
            if self.seal is not None:
                event = admit(event, self.seal)
            item = event.object
            self.metrics.events.labels(type(item).__name__).inc()
            if isinstance(item, Node | NodeClaim | NodePool):
                self._uids[type(item).__name__, item.metadata.name] = item.metadata.uid
            if isinstance(item, Node):
                self._count_hold(item)
        elif isinstance(event, ObjectVanished):
            self.metrics.events.labels(event.kind).inc()
            self._uids.pop((event.kind, event.name), None)
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
        """Loop: deliver queued events, or a clock tick when idle."""
        while True:
            batch = self._with_view_change(await self._next_batch())
            now, began = self.clock(), time.monotonic()
            batch[:0] = self._wall_steps.until(now)
            steps = await asyncio.to_thread(self._digest, batch, now)
            self._left = batch[len(steps) :]
            if self._after(began):
                self._publish()
            if any(isinstance(event, Synced) for event, _ in steps):
                self._say_what_is_managed()
                gc.freeze()  # the current objects live long: exclude them from full collections
            for event, instructions in steps:
                if self.journal is not None:
                    self.journal(now, event, instructions)
                for instruction in instructions:
                    self._dispatch(instruction)
            if self._held_back.is_due(self.engine):
                await asyncio.to_thread(self._held_back.step, self.engine)

    async def _next_batch(self) -> list[Event]:
        """Return all queued events; a clock tick if none comes until the engine's next wake-up or poll."""
        if self._queue.empty() and not self._left:
            wait = min(self.engine.settings.poll_interval / _SECOND, _TURN_SECONDS)
            if self._wakes:
                wait = max(0.0, min(wait, (self._wakes[0] - self.clock()).total_seconds()))
            with contextlib.suppress(TimeoutError):
                # Not wait_for: before Python 3.12 that can swallow a cancellation.
                async with asyncio.timeout(wait):
                    first = await self._queue.get()
                return [first, *self._waiting()]
        batch = self._waiting()
        if self._take_wakes() or not batch:
            batch.append(ClockAdvanced())
        return batch

    def _take_wakes(self) -> bool:
        """Return whether a requested wake-up is due; each is kept until then, as it is requested only once."""
        now, due = self.clock(), False
        while self._wakes and self._wakes[0] <= now:
            heappop(self._wakes)
            due = True
        return due

    def _waiting(self) -> list[Event]:
        found, self._left = self._left, []
        while len(found) < _BATCH_MAX and not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found

    def _digest(self, batch: list[Event], now: datetime) -> list[tuple[Event, list[Instruction]]]:
        """Deliver events up to the first at which the engine decides: dozens of rounds at once would take minutes."""
        steps: list[tuple[Event, list[Instruction]]] = []
        rounds = self.engine.rounds
        for event in batch:
            steps.append((event, self.engine.handle(event, now)))
            if self.engine.rounds != rounds:
                break
        return steps

    def _publish(self) -> None:
        """Write what the engine knows and no object says, if that is due; between two batches, as the engine rests."""
        text = self._publisher.due(self.engine)
        if text is not None:
            self._tasks.spawn(self._publisher.write(text), "publish")

    def _after(self, began: float) -> bool:
        """Count what a batch took; return whether a round was due in it."""
        now = time.monotonic()
        self._beat = now
        rounds = (self.engine.rounds, self.engine.rounds_skipped)
        if rounds == self._rounds_seen:
            return False
        worked_out = rounds[0] != self._rounds_seen[0]
        self._rounds_seen, self._round_ended = rounds, now
        if worked_out:
            self._count_round(now - began)
            if now - began >= 1:
                self._left.insert(0, RoundTook(nanoseconds=round((now - began) * _SECOND)))
        return True

    def _count_round(self, seconds: float) -> None:
        """Count what a round took and found, under Karpenter's labels."""
        last, metrics = self.engine.last_round, self.metrics
        ended_by = last.commands[0].method if last is not None and last.commands else Method.SINGLE_NODE
        reason = REASON_OF[ended_by].value.lower()
        metrics.evaluation.labels(reason, CONSOLIDATION_TYPE.get(ended_by, "")).observe(seconds)
        if isinstance(last, RoundResult):
            if last.assumed != self._assumed:
                self._assumed = last.assumed
                self.log.info("assumed of Karpenter", assumed="; ".join(last.assumed))
            for method in last.methods:
                metrics.eligible.labels(method.reason.value.lower()).set(len(method.candidates))
            for move in last.judged_moves:
                decision = "approved" if move.approved else "rejected"
                metrics.moves.labels(decision, move.node_pool, move.policy).inc()
                if move.score is not None:
                    metrics.scores.labels(decision, move.node_pool).observe(move.score)

    # ------------------------------------------------------------ instructions out

    def _dispatch(self, instruction: Instruction) -> None:
        if isinstance(instruction, WakeAt):
            heappush(self._wakes, instruction.at)
        elif isinstance(instruction, Report):
            assert self.telemetry is not None
            self.telemetry.take(instruction)
        else:
            self._dispatcher.take(instruction)

    def _failed(self, name: str, fault: BaseException) -> None:
        """Log a fault and stop, so that the supervisor restarts the process."""
        self.log.error("a part of the controller failed", part=name, fault=repr(fault))
        self.fault = self.fault or fault
        self._stopping.set()


def _age(informer: Informer) -> float:
    return 0.0 if informer.is_missing else informer.age


async def _awaited(work: Awaitable[None]) -> None:
    await work
