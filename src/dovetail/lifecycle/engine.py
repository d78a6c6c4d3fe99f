"""The engine: events in, instructions out, over time. One mutator; no clock, no randomness, no I/O.

Decides when to decide (rounds), holds managed nodes, steers, and asks to be woken. `command_runner` executes commands,
`decide` chooses nodes, `engine_state` holds what is known at one moment. See docs/rules.md#methods, #carrying-out and
#karpenter. It acts only while it leads and has seen everything once; in observe mode it never acts. Sits at the top of
lifecycle; the shells `live` and `sim` drive it.
"""

from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import assert_never

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight
from dovetail.decide.outcome import NOTHING
from dovetail.decide.question import Question
from dovetail.lifecycle.announce import VERDICTS_EVERY, Announcer
from dovetail.lifecycle.command_runner import CommandRunner
from dovetail.lifecycle.commands import draining
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.conditions import Conditions
from dovetail.lifecycle.decisions import Decision, RoundDecider
from dovetail.lifecycle.engine_state import DEFAULT_ROLE, EngineRole, EngineState
from dovetail.lifecycle.holds import COME_FIRST, Holds
from dovetail.lifecycle.messages import (
    AlertChanged,
    CatalogueChanged,
    ClockAdvanced,
    ClockSet,
    Event,
    EvictionSeen,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    RoundTook,
    SettingsChanged,
    Synced,
    ViewGrewOld,
    WakeAt,
)
from dovetail.lifecycle.reports import InstructionNotDone, LeadershipChanged, RoundEnded, ViewIsOld
from dovetail.lifecycle.steering import Steering
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import KINDS, AnyObject, Node, NodeClaim, NodePool, Pod
from dovetail.model.policies.daemon_like import as_daemon_like
from dovetail.model.settings import Settings, SteeringMode


class _Stir(Enum):
    """How much the engine must check after an event."""

    NOTHING = 0
    STORE = 1
    ALL = 2


class Engine:
    """Feed it events with `handle`; execute the instructions it returns, in order; answer with events.

    `identity` names this process, `controller` the kind of controller whose records it takes over. `holds`: keep
    Karpenter's own disruption off managed nodes; `holds_first`: decide nothing on a new pool before that. `observe`:
    decide and report only. `verdicts_every`: the shortest time between two reports of every node's verdict.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        role: EngineRole = DEFAULT_ROLE,
        *,
        decider: RoundDecider | None = None,
        verdicts_every: int = VERDICTS_EVERY,
    ) -> None:
        self._state = EngineState(settings, catalogue, role)
        self._decider: RoundDecider = decider if decider is not None else Decider()
        self._commands = CommandRunner(self._state, self._decider)
        self._announcer = Announcer(
            verdicts_every, manages=self.manages, exists=self.store.has_machine, is_busy=self._state.is_busy
        )
        self.role = role
        self.rounds = 0
        self.rounds_skipped = 0
        self.last_round: Decision | None = None
        self._woken_for: datetime | None = None
        self._quiet_until = 0
        self._idle_at: tuple[datetime, int] | None = None
        self._holds_until: int | None = None
        self._steering = Steering()
        self._reset()

    def _reset(self) -> None:
        """Forget everything that belongs to acting: another process may have changed it."""
        self._holds = Holds()
        self._conditions = Conditions()
        self._commands.forget()
        self._state.forget_commands()
        self._asked: Question | None = None

    # ------------------------------------------------------------ for shells and checkers

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self._state.settings

    @property
    def catalogue(self) -> Catalogue:
        """Return the catalogue in force."""
        return self._state.catalogue

    @property
    def identity(self) -> str:
        """Return the name of this process."""
        return self._state.identity

    @property
    def controller(self) -> str:
        """Return the kind of controller whose records this engine takes over."""
        return self._state.controller

    @property
    def observe(self) -> bool:
        """Return whether the engine only decides and reports."""
        return self._state.observe

    @property
    def store(self) -> Store:
        """Return the objects seen so far."""
        return self._state.store

    @property
    def is_leader(self) -> bool:
        """Return whether this process leads."""
        return self._state.is_leader

    @property
    def is_synced(self) -> bool:
        """Return whether every kind has been seen once and its view is fresh."""
        return self._state.is_synced

    @property
    def alert(self) -> str:
        """Return why an alert holds voluntary disruption; empty if none does."""
        return self._state.alert

    @property
    def runs(self) -> tuple[Run, ...]:
        """Return the commands in progress, oldest first."""
        return tuple(self._state.runs.values())

    def phase_age(self, phase: Phase) -> float:
        """Return for how many seconds the oldest command of a phase has been in it; 0: there is none."""
        since = [draining.since(run) for run in self._state.runs.values() if run.phase is phase]
        return (self._state.elapsed - min(since)) / SECOND if since else 0.0

    def command_ages(self) -> dict[tuple[str, str], tuple[int, float]]:
        """Return, by action and phase, how many commands there are and how old the oldest is, in seconds."""
        found: dict[tuple[str, str], list[int]] = {}
        for run in self._state.runs.values():
            found.setdefault((run.action.value, run.phase.value), []).append(run.began_at)
        return {key: (len(began), (self._state.elapsed - min(began)) / SECOND) for key, began in sorted(found.items())}

    @property
    def told_round(self) -> Decision | None:
        """Return the last round whose verdicts were computed; None: there was none."""
        return self._announcer.told_round

    @property
    def acts(self) -> bool:
        """Return whether the engine may touch the cluster."""
        return self._state.acts

    @property
    def elapsed(self) -> int:
        """Return the nanoseconds on the engine's own clock."""
        return self._state.elapsed

    @property
    def lingering(self) -> tuple[str, ...]:
        """Return the replacements of recently ended commands, which are still nominated."""
        return self._state.lingering

    def manages(self, pool: str) -> bool:
        """Return whether Dovetail manages a pool (`EngineState.manages`)."""
        return self._state.manages(pool)

    def managed_pools(self) -> tuple[str, ...]:
        """Return all managed pools, by name."""
        return self._state.managed_pools()

    def in_flight(self) -> InFlight:
        """Return what commands in progress reserve."""
        return self._state.in_flight()

    def nominated(self) -> tuple[str, ...]:
        """Return the nodes and NodeClaims that pods will move to (docs/rules.md#gates, gate 4)."""
        return self._state.nominated()

    def question(self) -> Question:
        """Return the question that a round would answer at the last event's time."""
        return self._state.question()

    def published_waits(self) -> tuple[dict[str, datetime], dict[str, datetime]]:
        """Return the pools whose writes are refused and the replacements still nominated, until when each."""
        state = self._state
        refused, lingering = state.pacing.refusals.until, state.pacing.lingering
        return (
            {name: state.wall(until) for name, until in refused.items()},
            {name: state.wall(until) for name, until in lingering.items()},
        )

    def validated_at(self, run: Run) -> datetime:
        """Return when a command's validation is due, in wall-clock time."""
        return self._state.wall(run.validate_at)

    # ------------------------------------------------------------ one event

    def handle(self, event: Event, now: datetime) -> list[Instruction]:
        """Handle one event; return what to do about it, in order."""
        state = self._state
        if isinstance(event, ClockSet):
            state.set_clock(event.by)
        state.tick(now)
        state.out = []
        stir = self._take(event)
        if stir is _Stir.NOTHING and state.elapsed < self._quiet_until:
            return state.out  # most events of a big cluster: pods that come and go between two rounds
        self._quiet_until = 0  # until `_wake` knows better, every event is looked at
        moment = state.moment
        if state.is_synced and (state.is_leader or state.observe):
            state.expire()
            if state.acts:
                self._commands.take_over()
                self._commands.advance(changed=stir is _Stir.ALL)
                self._hold()
            self._round()
            if state.acts:
                self._commands.advance_again()
            self._wake()
        self._idle_at = moment if stir is _Stir.ALL and not state.out else None
        return state.out

    def _take(self, event: Event) -> "_Stir":
        """Record what happened; return how much must be checked because of it."""
        state = self._state
        match event:
            case ObjectObserved(object=item):
                if self._announcer.minds(event):
                    state.out.extend(self._announcer.distrusted(event, publishes=state.acts))
                return self._observe_pod(item) if isinstance(item, Pod) else self._observe(item)
            case ObjectVanished():
                self._announcer.forget(event.kind, event.name)
                return self._vanish(event)
            case Synced():
                state.is_synced = True
                self._look_at_all()
            case ViewGrewOld(kinds=kinds):
                state.is_synced = False
                state.out.append(ViewIsOld(kinds=tuple(kinds)))
            case LeadershipGained() | LeadershipLost():
                self._lead(leads=isinstance(event, LeadershipGained))
            case ClockAdvanced() | ClockSet():
                pass
            case RoundTook(nanoseconds=took):
                state.rests_until = state.elapsed + took
            case CatalogueChanged(catalogue=catalogue):
                state.catalogue = catalogue
            case AlertChanged(why=why):
                state.alert = why
            case EvictionSeen():
                state.notice_eviction(event)
            case SettingsChanged(settings=settings):
                return self._change_settings(settings)
            case InstructionSucceeded() | InstructionFailed():
                return self._answer(event)
            case _:
                assert_never(event)
        return _Stir.STORE

    def _change_settings(self, settings: Settings) -> "_Stir":
        state = self._state
        known, state.settings = state.settings, settings
        if settings == replace(known, nominated_nodes=settings.nominated_nodes):
            return _Stir.STORE  # only rounds see nominations
        state.settings_version += 1
        self._look_at_all()
        return _Stir.ALL

    def _observe(self, item: AnyObject) -> "_Stir":
        state = self._state
        if isinstance(item, NodeClaim):
            state.note_claim(item)
        if isinstance(item, NodePool) and state.is_synced and _is_other_policy(state.store, item):
            # A pause, for example: what is shown must not lag behind it.
            self._announcer.hurry()
            state.round_at = min(state.round_at, state.elapsed)
        if isinstance(item, Node | NodeClaim) and state.acts and self.role.holds:
            state.notice(item)
        if not state.store.observe(item):
            return _Stir.NOTHING
        if isinstance(item, Node | NodeClaim):
            self._commands.lookout.object_changed(item.metadata.name)
        self._changed(item)
        return self._stir(type(item))

    def _observe_pod(self, pod: Pod) -> "_Stir":
        state, meta = self._state, pod.metadata
        if state.settings.daemon_like:
            pod = as_daemon_like(pod, state.settings.daemon_like)
        known = state.store.get(Pod, meta.name, meta.namespace) if state.is_synced else None
        if not state.store.observe(pod):
            return _Stir.NOTHING
        state.growth.note(pod)
        if state.is_synced:
            state.pod_events.note(known, pod, state.elapsed)
            if self._commands.lookout.pod_changed(pod):
                return _Stir.ALL
        return self._stir(Pod)

    def _vanish(self, event: ObjectVanished) -> "_Stir":
        state = self._state
        if event.kind == "NodeClaim":
            state.lose_claim(event.name, event.uid)
        gone = state.store.vanish(event.kind, event.namespace, event.name, event.uid)
        if event.kind in ("Node", "NodeClaim"):
            self._commands.lookout.object_changed(event.name)
        if isinstance(gone, Pod):
            state.pod_events.note(gone, None, state.elapsed)
        elif isinstance(gone, Node):
            state.pod_events.forget(event.name)
            state.pacing.forget_node(event.name)
        return self._stir(KINDS[event.kind] if gone is None else type(gone))

    def _stir(self, kind: type) -> "_Stir":
        """Return whether a change of that kind can wait for the next round. Pods matter to fresh replacements only."""
        state = self._state
        urgent = kind in (Node, NodeClaim, NodePool) or (kind is Pod and state.pacing.lingering)
        return _Stir.STORE if urgent else _Stir.NOTHING

    def _changed(self, item: object) -> None:
        state = self._state
        if isinstance(item, Node):
            self._holds.look_at(item.metadata.name)
        elif isinstance(item, NodePool):
            if state.has_come_to_hold(item.metadata.name):
                self._holds_until = state.elapsed + COME_FIRST
            self._conditions.look_at(item.metadata.name)
            for name in state.store.nodes_of(item.metadata.name):
                self._holds.look_at(name)
        elif isinstance(item, NodeClaim):
            state.rolls.look_at(item)

    def _look_at_all(self) -> None:
        state = self._state
        self._holds_until = state.elapsed + COME_FIRST
        self._commands.lookout.all_changed()
        for node in state.store.nodes():
            self._holds.look_at(node.metadata.name)
        for pool in state.store.node_pools():
            self._conditions.look_at(pool.metadata.name)
        state.marks_seen = None

    def _lead(self, *, leads: bool) -> None:
        state = self._state
        if leads == state.is_leader:
            return
        state.is_leader = leads
        self._reset()
        state.round_at = state.elapsed
        state.out.append(LeadershipChanged(leads=leads))
        if leads:
            self._look_at_all()

    def _answer(self, event: InstructionSucceeded | InstructionFailed) -> "_Stir":
        state = self._state
        run = next((run for run in state.runs.values() if run.attempts.answer(event, state.elapsed)), None)
        if run is not None:
            self._commands.lookout.is_new_for(run.id)
        elif self._holds.answer(event, state.elapsed):
            if isinstance(event, InstructionSucceeded) and self._idle_at == state.moment:
                return _Stir.NOTHING  # one of thousands at this moment: the last look found nothing to do
        else:
            ours = self._conditions, self._commands.sweeps, self._steering
            for asker in (*ours, state.aftercare, state.neighbours, state.rolls, state.roll_conditions):
                asker.answer(event, state.elapsed)
        what = run.attempts.what(event.id) if run is not None else self._steering.what(event.id)
        if not state.note_right(event, what) and isinstance(event, InstructionFailed):
            ident, failure = run.id if run else "", event.failure.value
            state.out.append(InstructionNotDone(command_id=ident, id=event.id, failure=failure, detail=event.detail))
        return _Stir.ALL

    def _hold(self) -> None:
        state = self._state
        if self.role.holds:
            state.out.extend(self._holds.wanted(state.store, state.holds, state.elapsed))
        state.out.extend(self._conditions.wanted(state.store, state.settings, state.manages, state.elapsed))
        state.keep_rolls()
        state.out.extend(state.neighbours.wanted(state.store, state.manages, state.elapsed))
        orders, settled = state.aftercare.look(state.store, state.elapsed, state.manages)
        state.out.extend(orders)
        if orders or settled:
            state.round_at = min(state.round_at, state.elapsed)

    # ------------------------------------------------------------ rounds

    def _round(self) -> None:
        """Decide, if it is time and the question is another one than last time."""
        state = self._state
        if self._waits_for_holds():
            state.round_at = max(state.round_at, state.elapsed + SECOND)
        if state.elapsed < state.round_due:
            return
        if state.settings.rules.waits_for_launches and state.store.has_unlaunched():
            state.round_at = state.elapsed + SECOND  # Karpenter waits until it knows the machines of its launches
            return
        state.round_at = state.elapsed + state.poll_interval
        question, last = state.question(), self.last_round
        if last is not None and question.asks_the_same(self._asked, until=last.next_change):
            self.rounds_skipped += 1
            self._steer(last)
            state.out.extend(self._announcer.verdicts_due(last, state.elapsed, publishes=state.acts))
            return
        self.rounds += 1
        result = self._decider.round(question)
        self.last_round = result
        state.waste.update(result.could_save, state.store, state.now)
        state.durations.update(result.loads, state.store, state.elapsed)
        state.take_rolls(result)
        self._steer(result)
        self._asked = None if result.commands and not state.observe else state.without_news(question)
        started = [command for command in result.commands if self._commands.start(command)]
        state.out.append(RoundEnded(commands=len(started), rounds=self.rounds, skipped=self.rounds_skipped))
        if started:
            # Karpenter's loop sleeps during the validation of its command; Dovetail's continues.
            wait = state.settings.validation_delay if state.settings.rules.waits_for_validation else 0
            state.round_at = state.elapsed + wait
        state.out.extend(self._announcer.announce(result, state.elapsed, publishes=state.acts))

    def _steer(self, result: Decision) -> None:
        """Mark next victims and closing nodes, or remove these marks (docs/rules.md#steering)."""
        state = self._state
        if not state.acts:
            return
        plan = NOTHING if state.settings.steering is SteeringMode.OFF else result.steering
        if plan is not NOTHING or state.store.steered_pods or state.store.closing_nodes:
            rate = state.settings.steering_writes_per_minute
            state.out.extend(self._steering.wanted(plan, state.store, state.elapsed, rate, state.manages))

    def _waits_for_holds(self) -> bool:
        """Return whether newly managed nodes are not held yet: Karpenter may be about to disrupt one of them.

        Once they are held, anything that Karpenter started before shows as its own taint by the time that a command is
        validated. A hold that fails does not delay decisions for long.
        """
        state = self._state
        if self._holds_until is None:
            return False
        if state.acts and self.role.holds_first and self._holds.is_open:
            return state.elapsed < self._holds_until
        self._holds_until = None
        if state.acts and self.role.holds_first:
            state.round_at = min(state.round_at, state.elapsed)
        return False

    # ------------------------------------------------------------ waking

    def _wake(self) -> None:
        """Ask to be woken at the earliest due time."""
        state = self._state
        elapsed, due = state.elapsed, state.round_due
        ours = self._commands.lookout.next_at(elapsed), self._commands.next_at()
        asked = *ours, self._holds.next_at(), self._conditions.next_at(), *state.times()
        for at in asked:  # everything due has just been done; only a round can be due at once
            if at is not None and elapsed < at < due:
                due = at
        self._quiet_until = due
        when = state.wall(max(elapsed, due))
        if when != self._woken_for or when <= state.now:
            self._woken_for = when
            state.out.append(WakeAt(at=when))


def _is_other_policy(store: Store, pool: NodePool) -> bool:
    """Return whether a pool's policy, pause or manager is another than the one known: people changed it."""
    known = store.get(NodePool, pool.metadata.name)
    if known is None:
        return True
    marks = (names.PAUSED, names.POLICY_ANNOTATION)
    before, after = known.metadata, pool.metadata
    return (
        known.spec.disruption != pool.spec.disruption
        or before.labels.get(names.MANAGE) != after.labels.get(names.MANAGE)
        or any(before.annotations.get(mark) != after.annotations.get(mark) for mark in marks)
    )
