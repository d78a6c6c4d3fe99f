"""The host of an engine in the simulated cluster: its watches, its clock, its calls, its crashes.

The engine gets events only, delayed as on a real network, and acts only by instructions, which are executed here one by
one and answered. Changes that are not urgent (pods) wait for the next event, only the newest state of each object, as
an informer's cache would show them. `Line` decides what happens to each event and call; the plain one is reliable,
`sim.checks.faults` has others. A restart builds a new engine that knows objects only.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from dovetail.lifecycle.commands.seal import admit
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.messages import (
    CatalogueChanged,
    ClockAdvanced,
    Event,
    Instruction,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    PublishEvent,
    SettingsChanged,
    Synced,
    WakeAt,
)
from dovetail.lifecycle.reports import Report
from dovetail.model.objects import AnyObject
from dovetail.model.settings import Settings
from dovetail.sim.world.actuate import SEAL, Actuator, Answer, ClusterInstruction
from dovetail.sim.world.calls import Calls
from dovetail.sim.world.clock import SECOND, Alarm, Clock
from dovetail.sim.world.cloud import Cloud
from dovetail.sim.world.store import Change, WorldStore

_URGENT: Final = frozenset({"Node", "NodeClaim", "NodePool"})


class Line:
    """The connection between an engine and the world. This one loses nothing."""

    watch_delay: int = SECOND // 10
    call_delay: int = SECOND // 20
    batches: bool = True
    spreads_calls: bool = False
    """Whether each call takes its own time to arrive; else they are executed at once, one after the other."""

    def reach(self, asked: ClusterInstruction) -> int:
        """Return how long a call takes to arrive (nanoseconds)."""
        return 0

    def events(self, event: Event) -> list[tuple[int, Event]]:
        """Return what arrives of an event, and after which delay (nanoseconds)."""
        return [(self.watch_delay, event)]

    def call(self, asked: ClusterInstruction, act: Callable[[], Answer]) -> list[tuple[int, Answer]]:
        """Execute a call, or not; return the answer and its delay."""
        return [(self.call_delay, act())]


class Host:
    """One engine and its connection to the world."""

    def __init__(
        self,
        name: str,
        store: WorldStore,
        clock: Clock,
        cloud: Cloud,
        actuator: Actuator,
        build: Callable[[], Engine],
        line: Line | None = None,
    ) -> None:
        self.name = name
        self.store = store
        self.clock = clock
        self.cloud = cloud
        self.actuator = actuator
        self.build = build
        self.line = line or Line()
        self._skew = timedelta(0)
        self.clock_sets: list[tuple[int, timedelta]] = []
        """When its wall clock was set, and by how much."""
        self.engine = build()
        self.is_up = False
        self.up_since = 0
        self.starts = 0
        self.events_sent = 0
        self.on_instruction: list[Callable[[Host, Instruction], None]] = []
        self.on_report: list[Callable[[Report], None]] = []
        self.before_act: Callable[[Host, ClusterInstruction], bool] = lambda host, asked: True
        self.after_act: Callable[[Host, ClusterInstruction], bool] = lambda host, asked: True
        self._owed: dict[tuple[str, str], AnyObject | None] = {}
        """What was not delivered to the engine yet: by kind and key, the object as the engine knows it."""
        self._calls = Calls(clock, self.line.reach, self._execute)
        self._life = 0
        self._wake: Alarm | None = None
        self._flush: Alarm | None = None
        store.listen(self._on_change)

    # ------------------------------------------------------------ life

    def start(self, *, leads: bool = True) -> None:
        """Start with a new engine: everything is listed, then it may act."""
        self._life += 1
        self.starts += 1
        self.engine = self.build()
        self.is_up = True
        self.up_since = self.clock.now
        self._owed.clear()
        for item in tuple(self.store.all()):
            self.send(admit(ObjectObserved(object=item), SEAL))
        self.send(CatalogueChanged(catalogue=self.cloud.seen_catalogue()))
        self.send(Synced())
        if leads:
            self.send(LeadershipGained())

    def crash(self) -> None:
        """Stop immediately; everything it knew is lost."""
        self._life += 1
        self.is_up = False
        self._owed.clear()
        self._calls.drop_all()
        for timer in (self._wake, self._flush):
            if timer is not None:
                timer.cancel()
        self._wake = self._flush = None

    def restart(self, wait: int, *, leads: bool = True) -> None:
        """Crash, and start again after a while."""
        self.crash()
        life = self._life

        def begin() -> None:
            if self._life == life:
                self.start(leads=leads)

        self.clock.after(wait, begin)

    def lead(self, *, leads: bool) -> None:
        """Set whether this engine leads."""
        if self.is_up:
            if not leads:
                self._calls.drop_all()
            self.send(LeadershipGained() if leads else LeadershipLost())

    def settings(self, settings: Settings) -> None:
        """Change the settings of the running engine."""
        if self.is_up:
            self.send(SettingsChanged(settings=settings))

    @property
    def skew(self) -> timedelta:
        """Return by how much this engine's wall clock is fast."""
        return self._skew

    @skew.setter
    def skew(self, skew: timedelta) -> None:
        """Set the wall clock, and note it."""
        if skew != self._skew:
            self.clock_sets.append((self.clock.now, skew - self._skew))
        self._skew = skew

    def now(self) -> datetime:
        """Return the time on this engine's wall."""
        return self.clock.instant() + self._skew if self._skew else self.clock.instant()

    # ------------------------------------------------------------ what the engine hears

    def _on_change(self, change: Change) -> None:
        if not self.is_up:
            return
        if not self.line.batches:
            for delay, event in self.line.events(_event(change.kind, change.key, change.old, change.new)):
                self.clock.after(delay, self._arrive, self._life, event)
            return
        owed, mark = self._owed, (change.kind, change.key)
        if mark not in owed:
            owed[mark] = change.old
        elif change.new is None and owed[mark] is None:
            del owed[mark]  # came and went between two looks
        if change.kind in _URGENT and (self._flush is None or self._flush.action is None):
            self._flush = self.clock.after(self.line.watch_delay, self._flush_now, self._life)

    def catalogue_changed(self) -> None:
        """Send the engine the new prices and stock."""
        if self.is_up:
            event = CatalogueChanged(catalogue=self.cloud.seen_catalogue())
            self.clock.after(self.line.watch_delay, self._arrive, self._life, event)

    def _arrive(self, life: int, event: Event) -> None:
        if life == self._life and self.is_up:
            self.send(event)

    def _flush_now(self, life: int) -> None:
        if life != self._life or not self.is_up:
            return
        self._flush = None
        self._pay()

    def _pay(self) -> None:
        """Deliver all pending changes to the engine, the newest of each object."""
        life = self._life
        owed, self._owed = self._owed, {}
        for (kind, key), old in owed.items():
            item = self.store.by_kind[kind].get(key)
            if item is None and old is None:
                continue
            self.send(_event(kind, key, old, item))
            if self._life != life:
                return  # it crashed on the way

    def _tick(self, life: int) -> None:
        if life == self._life and self.is_up:
            self._wake = None
            self._pay()
            if self._life == life:
                self.send(ClockAdvanced())

    # ------------------------------------------------------------ what the engine does

    def send(self, event: Event) -> None:
        """Deliver an event to the engine and execute its instructions."""
        life = self._life
        self.events_sent += 1
        for asked in self.engine.handle(event, self.now()):
            if self._life != life:
                return
            if isinstance(asked, WakeAt):
                self._wake_at(asked.at)
            elif isinstance(asked, Report):
                for hear in self.on_report:
                    hear(asked)
            else:
                self._act(asked)

    def _wake_at(self, at: datetime) -> None:
        due = self.clock.since_start(at - self.skew)
        if self._wake is not None and self._wake.action is not None:
            self._wake.cancel()
        self._wake = self.clock.at(max(due, self.clock.now + 1), self._tick, self._life)

    def _act(self, asked: ClusterInstruction) -> None:
        if self.line.spreads_calls:
            self._calls.take(asked, self._life)
        else:
            self._execute(asked, self._life)

    def _execute(self, asked: ClusterInstruction, life: int) -> int:
        """Execute a call at the API server, also of a process that has died; return how long its answer takes."""
        if life == self._life and not self.before_act(self, asked):
            return 0
        for hear in self.on_instruction:
            hear(self, asked)
        took = 0
        if not isinstance(asked, PublishEvent):  # nobody waits for the answer to one of those
            for delay, answer in self.line.call(asked, lambda: self.actuator.carry_out(asked)):
                took = max(took, delay)
                self.clock.after(delay, self._arrive, life, answer)
        if life == self._life:
            self.after_act(self, asked)
        return took


def _event(kind: str, key: str, old: AnyObject | None, new: AnyObject | None) -> Event:
    if new is not None:
        return admit(ObjectObserved(object=new), SEAL)
    assert old is not None
    namespace, _, name = key.rpartition("/")
    return ObjectVanished(kind=kind, namespace=namespace, name=name, uid=old.metadata.uid)
