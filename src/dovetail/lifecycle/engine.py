"""The engine: events in, instructions out, over time. One mutator, no clock, no chance, no I/O.

Decides when to decide (rounds, validation), carries commands out beside each other, takes over what a predecessor left,
holds managed nodes, and says what happened. Which nodes go is `decide`'s business, what follows what is `machine`'s.
Spec sections 5, 9, 10; S4. It acts only while it leads and has seen everything once; in observe mode it never acts.

Its own clock (`_elapsed`, nanoseconds) moves with `now`, but never back and never by more than a turn can take, so
that a wall clock that is set stretches no wait and ends none. Sits at the top of lifecycle; the shells `live` and `sim`
drive it.
"""

from datetime import datetime, timedelta
from enum import Enum
from typing import Final, assert_never

from dovetail.api.policy import effective_policy
from dovetail.decide.decider import Decider
from dovetail.decide.gates.price import Refusal
from dovetail.decide.in_flight import InFlight
from dovetail.decide.question import Question
from dovetail.decide.steering_plan import NOTHING
from dovetail.lifecycle.aftercare import Aftercare
from dovetail.lifecycle.announce import VERDICTS_EVERY, Announcer, command_event, command_report
from dovetail.lifecycle.commands import flight, resume
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.commands.command_run import Run, View, is_initialized
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.commands.records import DOVETAIL, Candidate, Record
from dovetail.lifecycle.commands.signals import advance
from dovetail.lifecycle.commands.steps import instructions
from dovetail.lifecycle.conditions import Conditions
from dovetail.lifecycle.decisions import Decision, RoundDecider
from dovetail.lifecycle.holds import COME_FIRST, Holds
from dovetail.lifecycle.landing import Landing
from dovetail.lifecycle.messages import (
    AlertChanged,
    CatalogueChanged,
    ClockAdvanced,
    Event,
    Failure,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    LeadershipGained,
    LeadershipLost,
    ObjectObserved,
    ObjectVanished,
    SettingsChanged,
    Synced,
    ViewGrewOld,
    WakeAt,
)
from dovetail.lifecycle.pacing import COST_METHODS, NOMINATED_AFTER, BackOff, Pacing, loop_pause
from dovetail.lifecycle.pod_events import PodEvents
from dovetail.lifecycle.regrowth import Regrowth
from dovetail.lifecycle.reports import (
    CommandDropped,
    CommandFound,
    CommandProposed,
    CostActionUndone,
    InstructionNotDone,
    LeadershipChanged,
    PoolBacksOff,
    RoundEnded,
    ViewIsOld,
)
from dovetail.lifecycle.steering import Steering
from dovetail.lifecycle.store import Store
from dovetail.lifecycle.waste import WasteBook
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command
from dovetail.model.managed import managed_pools
from dovetail.model.money import as_float
from dovetail.model.objects import KINDS, AnyObject, Node, NodeClaim, NodePool, Pod, condition
from dovetail.model.settings import Settings, StabilizationEnds
from dovetail.model.settings import Steering as SteeringMode

_MICROSECOND: Final = timedelta(microseconds=1)
_TURN_MAX: Final = 60 * SECOND
"""How long after a poll is due its turn may come, on a busy machine; more than that was never waited."""
ENDED_MEMORY: Final = 30 * SECOND
"""How long the marks of a command that has ended may still be seen before they count as left over."""
RIGHT_MISSING: Final = 600 * SECOND
"""How long no eviction is asked for after one was forbidden: the drain does it."""
_BLAMES_POOL: Final = (Signal.TIMED_OUT, Signal.REPLACEMENT_VANISHED, Signal.INSTRUCTION_REFUSED)


def _proposal(command: Command) -> CommandProposed:
    return CommandProposed(
        action=command.action,
        nodes=command.nodes,
        replacements=len(command.replacements),
        savings=as_float(command.savings),
        pods=command.pods,
    )


class _Stir(Enum):
    """How much an event makes the engine look at."""

    NOTHING = 0
    STORE = 1
    ALL = 2


class Engine:
    """Feed it with `handle`; carry out what it gives, in order; answer with events.

    `identity` names this process, `controller` the kind of controller whose records it takes over; `holds`: whether it
    keeps Karpenter's own disruption off its nodes, `holds_first`: and decides nothing on a new pool before; `observe`:
    decide and report only; `verdicts_every`: how often, at most, every node's verdict is worked out and told.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        *,
        identity: str = "dovetail",
        observe: bool = False,
        holds: bool = True,
        holds_first: bool = False,
        controller: str = DOVETAIL,
        decider: RoundDecider | None = None,
        verdicts_every: int = VERDICTS_EVERY,
    ) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self.identity = identity
        self.observe = observe
        self.holds = holds
        self.holds_first = holds_first
        self.controller = controller
        self.store = Store()
        self.is_leader = False
        self.is_synced = False
        self.rounds = 0
        self.rounds_skipped = 0
        self.alert = ""
        self.last_round: Decision | None = None
        self._decider: RoundDecider = decider if decider is not None else Decider()
        self._announcer = Announcer(verdicts_every, manages=self.manages, exists=self._is_there)
        self._now: datetime | None = None
        self._elapsed = 0
        self._started = 0
        self._out: list[Instruction] = []
        self._woken_for: datetime | None = None
        self._facts_version = 0
        self._round_at = 0
        self._quiet_until = 0
        self._holds_until = 0
        self._round_key: tuple[int, int] | None = None
        self._managed: dict[str, None] = {}
        self._managed_key: tuple[int, int] = (-1, -1)
        self._settings_version = 0
        self._pacing = Pacing()
        self._regrowth = Regrowth()
        self._landing = Landing()
        self._aftercare = Aftercare()
        self._waste = WasteBook()
        self._steering = Steering()
        self._evictions_from = 0
        self._surges_from = 0
        self._pod_events = PodEvents()
        self._proposed: CommandProposed | CommandDropped | None = None
        self._reset()

    def _reset(self) -> None:
        """Forget all that belongs to acting: another process may have changed it."""
        self._runs: dict[str, Run] = {}
        self._refused_last: tuple[str, ...] = ()
        self._gives_way: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._marks_seen = -1
        self._advanced_at: tuple[int, int, int] = (-1, -1, -1)
        self._holds = Holds()
        self._conditions = Conditions()
        self._sweeps = Attempts()
        self._regrowth.forget()
        self._landing.forget()
        self._aftercare.forget()
        self._waste.forget()
        self._facts_version += 1

    # ------------------------------------------------------------ for shells and checkers

    @property
    def runs(self) -> tuple[Run, ...]:
        """The commands under way, oldest first."""
        return tuple(self._runs.values())

    @property
    def acts(self) -> bool:
        """Return whether it may touch the cluster."""
        return self.is_leader and self.is_synced and not self.observe

    @property
    def elapsed(self) -> int:
        """Nanoseconds on the engine's own clock."""
        return self._elapsed

    @property
    def lingering(self) -> tuple[str, ...]:
        """Replacements of commands that ended a moment ago, still nominated."""
        return tuple(sorted(self._pacing.lingering))

    def manages(self, pool: str) -> bool:
        """Return whether a pool is ours to act on: labelled, or named in the settings (spec section 10).

        Observing covers all pools unless some are labelled or named: pools are labelled after the observe week.
        """
        key = (self.store.version_of(NodePool), self._settings_version)
        if key != self._managed_key:
            self._managed_key = key
            pools = self.store.node_pools()
            self._managed = dict.fromkeys(managed_pools(pools, self.settings))
            if self.observe and not self._managed:
                self._managed = dict.fromkeys(item.metadata.name for item in pools)
        return pool in self._managed

    def managed_pools(self) -> tuple[str, ...]:
        """All pools that are ours to act on, by name."""
        self.manages("")
        return tuple(self._managed)

    def in_flight(self, without: str = "") -> InFlight:
        """What commands under way hold on to; `without` leaves one of them out."""
        assert self._now is not None
        runs = list(self._runs.values())
        if without:
            # What was found after it and only waits for its own validation must not change its verdict: two commands
            # that were found one after the other would refuse each other again and again.
            at = next((index for index, run in enumerate(runs) if run.id == without), len(runs))
            runs = [run for index, run in enumerate(runs) if index < at or run.phase is not Phase.VALIDATING]
            runs = [run for run in runs if run.id != without]
        launches = self._pacing.launches.active(self._elapsed)
        regrown = self._regrowth.held(self.store, self._elapsed)
        return InFlight(
            leaving=flight.leaving(runs),
            nominated=flight.nominated(runs, self.lingering, self.store),
            under_way=flight.under_way(runs, self.store),
            back_off={pool: self._wall(until) for pool, until in launches.items()},
            regrown={pool: self._wall(until) for pool, until in regrown.items()},
        )

    def nominated(self) -> tuple[str, ...]:
        """Nodes and NodeClaims that pods are on their way to (spec section 4, gate 4)."""
        return flight.nominated(self.runs, self.lingering, self.store)

    # ------------------------------------------------------------ one event

    def handle(self, event: Event, now: datetime) -> list[Instruction]:
        """Take in one event; give what to do about it, in order."""
        self._tick(now)
        self._out = []
        stir = self._take(event)
        if stir is _Stir.NOTHING and self._elapsed < self._quiet_until:
            return self._out  # most events of a big cluster: pods that come and go between two rounds
        self._quiet_until = 0
        if self.is_synced and (self.is_leader or self.observe):
            self._expire()
            if self.acts:
                self._take_over()
                self._advance(changed=stir is _Stir.ALL)
                self._hold()
            self._round()
            if self.acts:
                self._advance(changed=True)
            self._wake()
        return self._out

    def _tick(self, now: datetime) -> None:
        """Move our own clock on: not back, and not by more than can have passed between two turns.

        A wall clock that is set by hours must end no wait: what has not come by then has not been waited for.
        """
        if self._now is not None:
            passed = (now - self._now) // _MICROSECOND * 1000
            self._elapsed += min(max(0, passed), self._poll_interval + _TURN_MAX)
        self._now = now

    def _wall(self, at: int) -> datetime:
        """Turn a time of the engine's clock into one of the wall, rounded up to what a datetime can hold."""
        assert self._now is not None
        return self._now + timedelta(microseconds=-(-(at - self._elapsed) // 1000))

    def _take(self, event: Event) -> "_Stir":
        """Note what happened; says how much must be looked at because of it."""
        match event:
            case ObjectObserved(object=item):
                self._out.extend(self._announcer.distrusted(event, publishes=self.acts))
                return self._observe(item)
            case ObjectVanished():
                self._announcer.forget(event.kind, event.name)
                return self._vanish(event)
            case Synced():
                self.is_synced = True
                self._look_at_all()
            case ViewGrewOld(kinds=kinds):
                self.is_synced = False
                self._out.append(ViewIsOld(kinds=tuple(kinds)))
            case LeadershipGained():
                self._lead(leads=True)
            case LeadershipLost():
                self._lead(leads=False)
            case ClockAdvanced():
                pass
            case CatalogueChanged(catalogue=catalogue):
                self.catalogue = catalogue
                self._facts_version += 1
            case AlertChanged(why=why):
                self.alert = why
                self._facts_version += 1
            case SettingsChanged(settings=settings):
                self.settings = settings
                self._settings_version += 1
                self._facts_version += 1
                self._look_at_all()
                return _Stir.ALL
            case InstructionSucceeded() | InstructionFailed():
                self._answer(event)
                return _Stir.ALL
            case _:
                assert_never(event)
        return _Stir.STORE

    def _is_there(self, name: str) -> bool:
        return self.store.get(Node, name) is not None or self.store.get(NodeClaim, name) is not None

    def _observe(self, item: AnyObject) -> "_Stir":
        meta = item.metadata
        known = self.store.get(Pod, meta.name, meta.namespace) if isinstance(item, Pod) else None
        if not self.store.observe(item):
            return _Stir.NOTHING
        self._changed(item)
        if self.is_synced and isinstance(item, Pod):
            self._pod_events.note(known, item, self._elapsed)
        return self._stir(type(item))

    def _vanish(self, event: ObjectVanished) -> "_Stir":
        if event.kind == "NodeClaim":
            self._lost_claim(event)
        gone = self.store.vanish(event.kind, event.namespace, event.name, event.uid)
        if isinstance(gone, Pod):
            self._pod_events.note(gone, None, self._elapsed)
        elif isinstance(gone, Node):
            self._pod_events.forget(event.name)
        return self._stir(KINDS[event.kind] if gone is None else type(gone))

    def _lost_claim(self, event: ObjectVanished) -> None:
        """Note the end of a replacement even where its beginning was never seen: it must not be launched again."""
        for run in self._runs.values():
            if event.name in run.replacements:
                run.seen.setdefault(event.name, event.uid)

    def _stir(self, kind: type) -> "_Stir":
        """Say whether a change of that kind can wait for the next round. Pods matter to fresh replacements only."""
        urgent = kind in (Node, NodeClaim, NodePool) or (kind is Pod and self._pacing.lingering)
        return _Stir.STORE if urgent else _Stir.NOTHING

    def _changed(self, item: object) -> None:
        if isinstance(item, Node):
            self._holds.look_at(item.metadata.name)
        elif isinstance(item, NodePool):
            was_ours = item.metadata.name in self._managed
            if self.manages(item.metadata.name) and not was_ours:
                self._holds_until = self._elapsed + COME_FIRST
            self._conditions.look_at(item.metadata.name)
            for name in self.store.nodes_of(item.metadata.name):
                self._holds.look_at(name)

    def _look_at_all(self) -> None:
        self._holds_until = self._elapsed + COME_FIRST
        for node in self.store.nodes():
            self._holds.look_at(node.metadata.name)
        for pool in self.store.node_pools():
            self._conditions.look_at(pool.metadata.name)
        self._marks_seen = -1

    def _lead(self, *, leads: bool) -> None:
        if leads == self.is_leader:
            return
        self.is_leader = leads
        self._reset()
        self._round_at = self._elapsed
        self._out.append(LeadershipChanged(leads=leads))
        if leads:
            self._look_at_all()

    def _answer(self, event: InstructionSucceeded | InstructionFailed) -> None:
        run = self._runs.get(event.id.split("/", 1)[0])
        if run is not None:
            run.attempts.answer(event, self._elapsed)
        else:
            for asker in (self._holds, self._conditions, self._sweeps, self._steering, self._aftercare):
                asker.answer(event, self._elapsed)
        if isinstance(event, InstructionFailed):
            if event.failure is Failure.FORBIDDEN and "/evict/" in event.id:
                self._evictions_from = self._elapsed + RIGHT_MISSING
            if event.failure is Failure.FORBIDDEN and "/surge/" in event.id:
                self._surges_from = self._elapsed + RIGHT_MISSING
            ident, failure = run.id if run else "", event.failure.value
            self._out.append(InstructionNotDone(command_id=ident, id=event.id, failure=failure, detail=event.detail))

    # ------------------------------------------------------------ memory

    def _expire(self) -> None:
        """Drop what time has ended; decisions may differ from then on."""
        for pool, pause in self._regrowth.judge(self.store, self._elapsed):
            self._facts_version += 1
            failures = self._regrowth.waits.failures(pool)
            self._out.append(CostActionUndone(pool=pool, failures=failures, seconds=pause // SECOND))
        if self._landing.look(self.store, self._elapsed):
            for method in COST_METHODS:
                self._pacing.settling.pop(method.value, None)
            self._facts_version += 1
        if self._pacing.expire(self._elapsed) | self._regrowth.waits.expire(self._elapsed):
            self._facts_version += 1
            self._marks_seen = -1
        for name in [name for name in self._pacing.lingering if flight.has_pods(name, self.store)]:
            del self._pacing.lingering[name]
            self._facts_version += 1

    def _cost_held_until(self) -> datetime | None:
        at = self._pacing.settles_at(self._elapsed)
        return None if at is None else self._wall(at)

    # ------------------------------------------------------------ commands

    def _view(self) -> View:
        assert self._now is not None
        return View(
            store=self.store,
            elapsed=self._elapsed,
            now=self._now,
            replacement_timeout=self.settings.replacement_timeout,
            launch_timeout=self.settings.launch_timeout,
            manages=self.manages,
            evicts=self.settings.evictions_in_order and self._elapsed >= self._evictions_from,
            surges=self.settings.rules.surges,
            rate_span=self._rate_span,
            drain_for=self._drain_for,
        )

    def _rate_span(self, pool: str) -> int:
        """Return the longest span of a pool's rate budgets; 0: it has none."""
        item = self.store.get(NodePool, pool)
        budgets = () if item is None else effective_policy(item, self.settings).budgets
        return max((budget.per for budget in budgets if budget.per is not None and budget.problem is None), default=0)

    def _drain_for(self, pool: NodePool, node: Node) -> int | None:
        """Return the shortest drain of the repair rules that a node's conditions meet."""
        bounds = [
            rule.drain_for
            for rule in effective_policy(pool, self.settings).repair
            if rule.drain_for is not None
            and (entry := condition(node.status.conditions, rule.condition)) is not None
            and entry.status == rule.status
        ]
        return min(bounds, default=None)

    def _is_known(self, record: Record) -> bool:
        """Whether a record needs no successor: its command goes on, ended a moment ago, or is another controller's."""
        return record.id in self._runs or record.id in self._pacing.ended or record.by != self.controller

    def _take_over(self) -> None:
        """Carry on what a predecessor began, and sweep away marks that belong to no command."""
        due = self._sweeps.next_at()
        if self._marks_seen == self.store.marks_version and (due is None or due > self._elapsed):
            return
        self._marks_seen = self.store.marks_version
        assert self._now is not None
        left = resume.find(self.store, self._is_known, self.manages)
        taken = {node: None for run in self._runs.values() for node in run.nodes}
        for record in left.records:
            run = resume.take_over(
                record,
                taken=taken.__contains__,
                now=self._now,
                elapsed=self._elapsed,
                timeout=self.settings.replacement_timeout,
            )
            taken |= dict.fromkeys(run.nodes)
            self._runs[run.id] = run
            self._facts_version += 1
            for name in run.replacements:
                self._pacing.lingering.pop(name, None)
            self._out.append(CommandFound(command_id=run.id, action=run.action))
        for ident in self._sweeps.ids():
            if ident not in {sweep.id for sweep in left.sweeps}:
                self._sweeps.forget(ident)
        for sweep in left.sweeps:
            if self._sweeps.due(sweep.id, self._elapsed):
                self._sweeps.ask(sweep.id, self._elapsed)
                self._out.append(sweep)

    def _advance(self, changed: bool) -> None:
        """Move every command on as far as it goes."""
        key = (self.store.version_of(Node), self.store.version_of(NodeClaim), self.store.version_of(NodePool))
        changed = changed or key != self._advanced_at
        self._advanced_at = key
        view = self._view()
        for run in self.runs:
            due = run.next_at()
            if not changed and run.phase is not Phase.FOUND and (due is None or due > self._elapsed):
                continue
            self._advance_one(run, view)

    def _advance_one(self, run: Run, view: View) -> None:
        if run.phase is Phase.VALIDATING and run.verdict is None and run.validate_at <= self._elapsed:
            self._validate(run)
            if self.settings.rules.waits_for_validation:
                self._round_at = self._elapsed + loop_pause(run, self._poll_interval)
        for source, found, target in advance(run, view):
            self._facts_version += 1
            self._out.append(command_report(run, source, found, target, self._elapsed, view))
            self._out.extend(command_event(run, target))
            if target in (Phase.SURGING, Phase.EVICTING, Phase.DELETING):
                self._aftercare.begin(run, self.store, self._ready_within)
            if target in (Phase.EVICTING, Phase.DELETING) and source is not Phase.EVICTING:
                self._pods_leave(run)
        self._out.extend(instructions(run, view))
        if run.is_over:
            self._end(run, view)

    def _pods_leave(self, run: Run) -> None:
        """Remember what a cost action is about to move."""
        if run.method in COST_METHODS and self.settings.rules.remembers_regrowth:
            self._regrowth.begin(run, self.store)
            if self.settings.stabilization_ends is StabilizationEnds.LANDED:
                self._landing.begin(run, self.store)

    def _validate(self, run: Run) -> None:
        """Look at a command again on fresh state (spec section 9)."""
        assert run.command is not None
        held = self._cost_held_until() if run.method in COST_METHODS else None
        if held is not None:
            after = self._pacing.settles_by(self._elapsed)
            why = f"cost actions in all pools wait until {held.isoformat()}{', after ' + after if after else ''}"
            run.verdict, run.why = Signal.VALIDATION_REFUSED, why
            return
        question = self._question(without=run.id)
        if run.method in COST_METHODS and any(entry.pool in question.in_flight.regrown for entry in run.candidates):
            run.verdict, run.why = Signal.VALIDATION_REFUSED, "the last cost action in its pool did not hold"
            return
        answer = self._decider.revalidate(run.command, question)
        if isinstance(answer, Refusal):
            run.verdict, run.why = Signal.VALIDATION_REFUSED, answer.why
            return
        candidates = self._bind_to_claims(answer, run.id)
        if candidates is None:
            run.verdict, run.why = Signal.VALIDATION_REFUSED, "a node of it has lost its NodeClaim"
            return
        assert self._now is not None
        run.verdict = Signal.VALIDATED
        flight.adopt(run, answer, candidates, self._now)

    def _end(self, run: Run, view: View) -> None:
        """Draw the consequences of a command's end, and look for the next one at once."""
        del self._runs[run.id]
        self._pacing.ended[run.id] = self._elapsed + ENDED_MEMORY
        self._facts_version += 1
        self._marks_seen = -1
        self._regrowth.end(run, self._elapsed, well=run.phase is Phase.DONE)
        self._aftercare.end(run, self._elapsed, well=run.phase is Phase.DONE)
        if run.phase is not Phase.DONE:
            self._landing.drop(run.id)
        if run.phase is Phase.REFUSED:
            again = run.nodes == self._refused_last
            self._refused_last = run.nodes
            others = tuple(other.id for other in self._runs.values() if other.phase is Phase.VALIDATING)
            open_ones = [(key, ids) for key, ids in self._gives_way.items() if any(i in self._runs for i in ids)]
            self._gives_way = dict(open_ones)
            if others:
                self._gives_way[run.nodes] = others
            # The same refusal twice running waits for the next poll: asking at once would spin where nothing delays.
            self._look_again(self._elapsed + self._poll_interval if again else self._elapsed)
            return
        self._refused_last = ()
        self._look_again(self._elapsed)
        if run.phase is Phase.DONE:
            pools = dict.fromkeys(entry.pool for entry in run.candidates)
            self._pacing.finished(run.method, self.settings.stabilization, self._elapsed, tuple(pools))
            self._landing.end(run.id, self._elapsed, self.settings.stabilization.cost)
            for pool in run.pools:
                self._pacing.launches.succeeded(pool)
            for entry in run.candidates:
                self._pacing.refusals.succeeded(entry.pool)
            self._pacing.lingering |= dict.fromkeys(run.replacements, self._elapsed + NOMINATED_AFTER)
        else:
            self._blame(run, view)

    def _blame(self, run: Run, view: View) -> None:
        """Let pools wait, the longer the more often: those whose replacements did not come, those that refuse us."""
        source, cause = next(((source, found) for source, found in run.history if found in _BLAMES_POOL), (None, None))
        if cause is None or run.attempts.any_failed(Failure.TAKEN) or run.attempts.any_failed(Failure.OCCUPIED):
            return  # nobody's fault: another controller was quicker, or a pod was
        if cause is Signal.INSTRUCTION_REFUSED and source in (Phase.TAINTING, Phase.DELETING):
            self._wait(run, self._pacing.refusals, tuple(entry.pool for entry in run.candidates), "is left alone")
            return
        late = zip(run.replacements, run.pools, strict=False)
        pools = tuple(pool for name, pool in late if not is_initialized(run, name, view))
        self._wait(run, self._pacing.launches, pools, "launches nothing")

    def _wait(self, run: Run, memory: BackOff, pools: tuple[str, ...], what: str) -> None:
        for pool in dict.fromkeys(pools):
            pause = memory.failed(pool, self._elapsed)
            if pause is not None:
                self._out.append(
                    PoolBacksOff(
                        command_id=run.id,
                        pool=pool,
                        what=what,
                        failures=memory.failures(pool),
                        seconds=pause // SECOND,
                        why=run.why,
                    )
                )

    def _hold(self) -> None:
        if self.holds:
            self._out.extend(self._holds.wanted(self.store, self.manages, self._elapsed))
        self._out.extend(self._conditions.wanted(self.store, self.settings, self.manages, self._elapsed))
        orders, settled = self._aftercare.look(self.store, self._elapsed, self.manages)
        self._out.extend(orders)
        if orders or settled:
            self._facts_version += 1
            self._round_at = min(self._round_at, self._elapsed)

    def _ready_within(self, pool: str) -> int | None:
        """Return how long moved pods of a pool may take to become ready; None: there is no limit."""
        item = self.store.get(NodePool, pool)
        health = None if item is None else effective_policy(item, self.settings).health
        return None if health is None else health.moved_pods_ready_within

    # ------------------------------------------------------------ rounds

    def _question(self, without: str = "") -> Question:
        assert self._now is not None
        reads_condition = self.settings.rules.consolidatable_condition
        events = {} if reads_condition else self._pod_events.times(self._now, self._elapsed)
        return Question(
            cluster=self.store.cluster(),
            catalogue=self.catalogue,
            settings=self.settings,
            now=self._now,
            in_flight=self.in_flight(without),
            managed_pools=tuple(pool for pool in self.managed_pools() if pool not in self._pacing.refusals.until),
            cost_held_until=self._cost_held_until(),
            cost_held_by=self._pacing.settles_by(self._elapsed),
            pod_events=events,
            waste=self._waste.known(),
            may_surge=self._elapsed >= self._surges_from,
            unsettled=self._aftercare.unsettled(self.store),
            alert=self.alert,
        )

    @property
    def _poll_interval(self) -> int:
        return max(self.settings.poll_interval, SECOND)

    def _look_again(self, at: int) -> None:
        """Ask for a round because a command ended. Karpenter's loop goes by its validations alone (`loop_pause`)."""
        if not self.settings.rules.waits_for_validation:
            self._round_at = at

    def _round(self) -> None:
        """Decide, if it is time and if anything can have changed since the last time."""
        if self._waits_for_holds():
            self._round_at = max(self._round_at, self._elapsed + SECOND)
        if self._elapsed < self._round_at:
            return
        assert self._now is not None
        if self.settings.rules.waits_for_launches and flight.has_unlaunched(self.store):
            self._round_at = self._elapsed + SECOND  # Karpenter waits until it knows what its launches became
            return
        self._round_at = self._elapsed + self._poll_interval
        key = (self.store.version, self._facts_version)
        last = self.last_round
        if key == self._round_key and last is not None and (last.next_change is None or self._now < last.next_change):
            self.rounds_skipped += 1
            self._steer(last)
            self._out.extend(self._announcer.verdicts_due(last, self._elapsed, publishes=self.acts))
            return
        self.rounds += 1
        result = self._decider.round(self._question())
        self.last_round, self._round_key = result, key
        self._waste.update(result.could_save, self.store, self._now)
        self._steer(result)
        started = [command for command in result.commands if self._start(command)]
        self._out.append(RoundEnded(commands=len(started), rounds=self.rounds, skipped=self.rounds_skipped))
        if started:
            # Karpenter's loop sleeps through the validation of what it found; ours goes on beside it.
            wait = self.settings.validation_delay if self.settings.rules.waits_for_validation else 0
            self._round_at = self._elapsed + wait
        self._out.extend(self._announcer.announce(result, self._elapsed, publishes=self.acts))

    def _steer(self, result: Decision) -> None:
        """Mark next victims and closing nodes, or take back what is marked (spec section 23)."""
        plan = NOTHING if self.settings.steering is SteeringMode.OFF else result.steering
        if self.acts and (plan is not NOTHING or self.store.steered_pods or self.store.closing_nodes):
            rate = self.settings.steering_writes_per_minute
            self._out.extend(self._steering.wanted(plan, self.store, self._elapsed, rate))

    def _waits_for_holds(self) -> bool:
        """Return whether nodes that have just become ours are not held yet: Karpenter may be about to take one of them.

        Once they are, what it began before shows as its own taint by the time that a command of ours is validated. A
        hold that can't be had keeps nobody waiting for long.
        """
        if not self._holds_until:
            return False
        if self.acts and self.holds_first and self._holds.is_open:
            return self._elapsed < self._holds_until
        self._holds_until = 0
        if self.acts and self.holds_first:
            self._round_at = min(self._round_at, self._elapsed)
        return False

    def _start(self, command: Command) -> bool:
        """Begin a command: it waits for its validation, and its nodes count as leaving from now on."""
        if self._must_give_way(command):
            return False
        candidates = self._bind_to_claims(command)
        if self.observe or candidates is None:
            proposed = (
                _proposal(command) if self.observe else CommandDropped(action=command.action, nodes=command.nodes)
            )
            if self._proposed != proposed:
                self._proposed = proposed
                self._out.append(proposed)
            return False
        assert self._now is not None
        self._started += 1
        run = flight.propose(
            command,
            candidates,
            identity=self.identity,
            number=self._started,
            now=self._now,
            elapsed=self._elapsed,
        )
        run.by, run.validate_at = self.controller, self._elapsed + self.settings.validation_delay
        self._runs[run.id] = run
        self._facts_version += 1
        self._out.append(command_report(run, None, None, Phase.VALIDATING, self._elapsed))
        return True

    def _must_give_way(self, command: Command) -> bool:
        """Return whether a command that was refused waits for those that were in validation then.

        Two commands that were each found with the other in flight are both wrong once the other is refused: begun again
        at once, one after the other, they would refuse each other for ever.
        """
        runs = (self._runs.get(ident) for ident in self._gives_way.get(command.nodes, ()))
        if any(run is not None and run.phase is Phase.VALIDATING for run in runs):
            return True
        self._gives_way.pop(command.nodes, None)
        return False

    def _bind_to_claims(self, command: Command, ident: str = "") -> tuple[Candidate, ...] | None:
        taken = {node: None for run in self._runs.values() if run.id != ident for node in run.nodes}
        return flight.bind_to_claims(command, self.store, taken.__contains__, self.manages)

    # ------------------------------------------------------------ waking

    def _wake(self) -> None:
        """Ask to be woken for whatever comes first."""
        assert self._now is not None
        times = [at for at in (run.next_at() for run in self._runs.values()) if at is not None]
        askers = (self._holds, self._conditions, self._sweeps, self._regrowth, self._landing, self._aftercare)
        times += [at for at in (asker.next_at() for asker in askers) if at is not None]
        times += [*self._pacing.times(), *self._regrowth.waits.until.values()]
        # What is due was done a moment ago; only a round can be wanted at once.
        coming = min((at for at in times if at > self._elapsed), default=self._round_at)
        self._quiet_until = min(coming, self._round_at)
        at = self._wall(max(self._elapsed, self._quiet_until))
        if at != self._woken_for or at <= self._now:
            self._woken_for = at
            self._out.append(WakeAt(at=at))
