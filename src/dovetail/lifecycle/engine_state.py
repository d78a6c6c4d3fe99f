"""What the engine knows at one moment: the store, its clock, its commands, and its memory of ended commands.

The engine and its command runner share one instance, and nothing else changes it. It answers what both need (is this
pool managed, what is in flight, what is the question for a round) and drops what has expired. It decides nothing. Sits
in lifecycle, below `command_runner` and `engine`.

The engine's own clock (`elapsed`, nanoseconds) advances with `now`, but never goes back and never jumps, so that
changing the wall clock neither extends nor ends a wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from dovetail.api.policy import effective_policy
from dovetail.decide.gates.budgets import domain_at_turn
from dovetail.decide.in_flight import InFlight, Resting
from dovetail.decide.question import CostHold, Question
from dovetail.lifecycle.commands import flight
from dovetail.lifecycle.commands.attempts import RIGHT_MISSING, SECOND
from dovetail.lifecycle.commands.command_run import Run, View
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import DOVETAIL, Candidate
from dovetail.lifecycle.decisions import Decision
from dovetail.lifecycle.memory.aftercare import Aftercare
from dovetail.lifecycle.memory.durations import Durations
from dovetail.lifecycle.memory.landing import Landing
from dovetail.lifecycle.memory.neighbours import HELD_BEFORE, Neighbours, notice_claim, notice_eviction, notice_node
from dovetail.lifecycle.memory.outcomes import SAVING, Mover, Outcomes
from dovetail.lifecycle.memory.owners import owners_of
from dovetail.lifecycle.memory.pacing import Pacing
from dovetail.lifecycle.memory.pod_events import PodEvents
from dovetail.lifecycle.memory.pod_growth import PodGrowth
from dovetail.lifecycle.memory.regrowth import Regrowth, is_ours
from dovetail.lifecycle.memory.restlessness import Restlessness
from dovetail.lifecycle.memory.roll_condition import RollConditions
from dovetail.lifecycle.memory.rolls import Rolls
from dovetail.lifecycle.memory.stabilization import CostWait, StabilizationMemory
from dovetail.lifecycle.memory.waste import WasteBook
from dovetail.lifecycle.messages import (
    EvictionSeen,
    EvictPod,
    Failure,
    Instruction,
    InstructionFailed,
    InstructionSucceeded,
    MarkPod,
    SurgeDeployment,
    UnmarkPod,
)
from dovetail.lifecycle.reports import CostActionUndone, NeighbourNoticed, Right, RightChanged
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command
from dovetail.model.money import Money, as_float
from dovetail.model.objects import Deployment, Node, NodeClaim, NodePool, ReplicaSet, condition
from dovetail.model.policies.managed import managed_pools
from dovetail.model.policies.quiet import is_quiet
from dovetail.model.settings import Settings, StabilizationEnds, WithNeighbours
from dovetail.model.timing.duration import later
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.scheduling.pods.surge import surging_sets

_MICROSECOND: Final = timedelta(microseconds=1)
_TURN_MAX: Final = 60 * SECOND
"""How long after a poll is due its turn may come, on a busy machine; more than that was never waited."""
_RIGHTS: Final[dict[type, Right]] = {
    EvictPod: Right.EVICTIONS,
    SurgeDeployment: Right.SURGE,
    MarkPod: Right.STEERING,
    UnmarkPod: Right.STEERING,
}
"""Which instructions need a right that the chart gives only if it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRole:
    """The role in which an engine acts.

    `identity`: the name of this process in records. `controller`: whose engine it is; the simulated Karpenter's runs
    beside Dovetail's. `observe`: decide and report, write nothing. `holds`: keep Karpenter's own voluntary disruption
    off the nodes; `holds_first`: before the first command.
    """

    identity: str = "dovetail"
    controller: str = DOVETAIL
    observe: bool = False
    holds: bool = True
    holds_first: bool = False


DEFAULT_ROLE: Final = EngineRole()


class EngineState:
    """Mutable; owned by one `Engine`.

    `round_at` is when the next round is wanted, `rests_until` when the rest after a long one ends; `marks_seen` is the
    store's version of the marks that were last searched for left-over commands; None: search again; `out` collects the
    instructions and reports of the event that is being handled.
    """

    def __init__(self, settings: Settings, catalogue: Catalogue, role: EngineRole) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self.identity = role.identity
        self.controller = role.controller
        self.observe = role.observe
        self.store = Store()
        self.is_leader = False
        self.is_synced = False
        self.alert = ""
        self.elapsed = 0
        self.out: list[Instruction] = []
        self.settings_version = 0
        self.round_at = 0
        self.rests_until = 0
        self.marks_seen: int | None = None
        self.evictions_from = 0
        self.surges_from = 0
        self.rights_missing: dict[Right, None] = {}
        self.runs: dict[str, Run] = {}
        self.pacing = Pacing()
        self.stabilization = StabilizationMemory()
        self.regrowth = Regrowth()
        self.landing = Landing()
        self.aftercare = Aftercare()
        self.rolls = Rolls()
        self.roll_conditions = RollConditions()
        self.waste = WasteBook()
        self.outcomes = Outcomes()
        self.restlessness = Restlessness()
        self.durations = Durations()
        self.earning: dict[str, datetime] = {}
        self.pod_events = PodEvents()
        self.growth = PodGrowth()
        self._plans = flight.Plans()
        self._targets = flight.Targets()
        self._surging_sets: tuple[tuple[int, int], tuple[tuple[str, str], ...]] | None = None
        self._now: datetime | None = None
        self._managed: dict[str, None] = {}
        self._managed_key: tuple[int, int] | None = None
        self._held: dict[str, None] = {}
        self._managed_since: dict[str, int] = {}
        self.neighbours = Neighbours()

    def forget_commands(self) -> None:
        """Forget everything that belongs to acting: another process may have changed it."""
        self.runs = {}
        self.marks_seen = None
        self.regrowth.forget()
        self.landing.forget()
        self.aftercare.forget()
        self.neighbours.forget()
        self.rolls.forget()
        self.roll_conditions.forget()
        self.waste.forget()
        self.durations.forget()
        self.earning = {}
        self.outcomes.forget()
        self.growth.forget()

    @property
    def acts(self) -> bool:
        """Return whether the engine may touch the cluster."""
        return self.is_leader and self.is_synced and not self.observe

    # ------------------------------------------------------------ time

    @property
    def now(self) -> datetime:
        """Return the wall clock's time of the event that is being handled."""
        assert self._now is not None
        return self._now

    def tick(self, now: datetime) -> None:
        """Advance the engine's clock: never back, and never by more than can have passed between two turns.

        A shell that has a clock which can't be set says by how much the wall clock was set (`set_clock`), so that no
        wait ends early. Without that, setting it forward by hours ends waits a poll interval and a minute early.
        """
        if now is self._now:
            return
        if self._now is not None:
            passed = (now - self._now) // _MICROSECOND * 1000
            self.elapsed += min(max(0, passed), self.poll_interval + _TURN_MAX)
        self._now = now

    def set_clock(self, by: int) -> None:
        """Follow a wall clock that was set by so many microseconds: no time has passed by that."""
        if self._now is not None:
            self._now += timedelta(microseconds=by)

    def wall(self, at: int) -> datetime:
        """Convert a time of the engine's clock to the wall clock, rounded up to what a datetime can hold."""
        return self.now + timedelta(microseconds=-(-(at - self.elapsed) // 1000))

    @property
    def poll_interval(self) -> int:
        """Return the time between two rounds: the setting, but at least a second."""
        return max(self.settings.poll_interval, SECOND)

    @property
    def round_due(self) -> int:
        """Return when the next round is due."""
        return max(self.round_at, self.rests_until)

    @property
    def moment(self) -> tuple[datetime, int]:
        """Return the time and what is known at it: a second look at the same moment finds nothing that is new."""
        return self.now, self.store.version

    def times(self) -> tuple[int | None, ...]:
        """Return when something that is remembered about past commands ends, or is to be looked at again."""
        looks = self.regrowth.next_at(), self.landing.next_at(), self.aftercare.next_at()
        memories = self.rolls.next_at(), self.roll_conditions.next_at(), self.neighbours.next_at()
        waits = *self.pacing.times(), *self.stabilization.times(), *self.regrowth.waits.until.values()
        return *looks, *memories, *waits, *self.growth.times()

    def expire(self) -> None:
        """Drop what has expired."""
        self.out.extend(self.outcomes.due(self.elapsed))
        by_landing = self.settings.stabilization_ends is StabilizationEnds.LANDED
        price_of = self._price_of if by_landing else None
        for pool, pause in self.regrowth.judge(self.store, self.elapsed, price_of):
            failures = self.regrowth.waits.failures(pool)
            self.out.append(CostActionUndone(pool=pool, failures=failures, seconds=pause // SECOND))
        landed = self.landing.look(self.store, self.elapsed)
        if landed:
            self.stabilization.landed(landed, everywhere=self.landing.is_over)
        ended = self.stabilization.expire(self.elapsed), self.regrowth.waits.expire(self.elapsed)
        if self.pacing.expire(self.elapsed) or any(ended):
            self.marks_seen = None
        self.growth.look(self.store, self.elapsed)
        for name in [name for name in self.pacing.lingering if flight.has_pods(name, self.store)]:
            del self.pacing.lingering[name]

    # ------------------------------------------------------------ what came of commands

    def promise(self, run: Run) -> None:
        """Record what a command promises, before its pods leave."""
        if run.action in SAVING:
            self.restlessness.took(run.source_pools, self.elapsed)
            gone = len(run.candidates) - len(run.replacements)
            self.durations.took([entry.pool for entry in run.candidates][: max(0, gone)], self.elapsed)
        if run.command is not None:
            self._expect(run, run.command)
            pods = [pod for node in run.nodes for pod in self.store.pods_on(node) if is_reschedulable(pod)]
            if self.settings.rules.resizes_moved:
                self.growth.leave(pods, self.now, self.elapsed)
            movers = [
                Mover(owner=owner, created=pod.metadata.creation_timestamp)
                for pod in pods
                for owner in owners_of(pod)[:1] or [""]
            ]
            promised = as_float(run.command.savings)
            self.outcomes.begin(run.id, run.action, run.source_pools, promised, movers, self.now)

    def _expect(self, run: Run, command: Command) -> None:
        """Record where the pods of a command ran, and by when the nodes that it launched have earned their cost."""
        for entry in run.candidates:
            self.durations.leaves(self.store.pods_on(entry.node), entry.pool)
        pays_after = command.pays_after or self._earns_after(run.source_pools, command)
        for name in run.replacements if pays_after and run.action in SAVING else ():
            claim = self.store.get(NodeClaim, name)
            created = None if claim is None else claim.metadata.creation_timestamp
            self.earning[name] = later(created or self.now, pays_after)

    def _earns_after(self, pools: Iterable[str], command: Command) -> int:
        """Return after how many nanoseconds a command has saved what its restarts cost by `disruptionPrice`."""
        found = (self.store.get(NodePool, name) for name in pools)
        policies = [effective_policy(item, self.settings) for item in found if item is not None]
        price = max((policy.disruption_price or 0 for policy in policies), default=0)
        if command.savings <= 0 or not self.settings.rules.waste:
            return 0
        return int(price * Fraction(command.disruption_cost) * 3600 * SECOND / command.savings)

    def note_claim(self, claim: NodeClaim) -> None:
        """Record a NodeClaim created by a provisioner, before the store has it; and its price, once it is launched."""
        name, labels = claim.metadata.name, claim.metadata.labels
        if self.is_synced and not is_ours(claim) and self.store.get(NodeClaim, name) is None:
            self.outcomes.came(name)
            self.durations.opened(labels.get(names.NODEPOOL, ""), self.elapsed)
            self.restlessness.opened(labels.get(names.NODEPOOL, ""), self.elapsed, self.settings.quiet_before_haste)
        if names.INSTANCE_TYPE in labels and self.outcomes.is_coming(name):
            price = self._price_of(claim)
            self.outcomes.opened(name, labels.get(names.NODEPOOL, ""), as_float(price or 0), self.elapsed)

    def _price_of(self, claim: NodeClaim) -> Money | None:
        """Return what a NodeClaim costs per hour; None before its launch or if unknown."""
        labels = claim.metadata.labels
        bought = (labels.get(key, "") for key in (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE))
        return self.catalogue.price(*bought)

    def lose_claim(self, name: str, uid: str) -> None:
        """Record the end of a replacement even if its start was never seen: it must not be launched again."""
        self.outcomes.gone(name)
        self.earning.pop(name, None)
        for run in self.runs.values():
            if name in run.replacements:
                run.seen.setdefault(name, uid)

    def note_right(self, event: InstructionSucceeded | InstructionFailed, what: type | None) -> bool:
        """Record whether an optional right is there, if the answer to such an instruction shows it; True if not."""
        right = None if what is None else _RIGHTS.get(what)
        if right is None:
            return False
        if isinstance(event, InstructionSucceeded):
            if self.rights_missing.pop(right, ...) is None:
                self.out.append(RightChanged(right=right, given=True))
            return False
        if event.failure is not Failure.FORBIDDEN:
            return False
        if right not in self.rights_missing:
            self.rights_missing[right] = None
            self.out.append(RightChanged(right=right, given=False))
        if right is Right.EVICTIONS:
            self.evictions_from = self.elapsed + RIGHT_MISSING
        elif right is Right.SURGE:
            self.surges_from = self.elapsed + RIGHT_MISSING
        return True

    def _settling(self) -> dict[str, CostHold]:
        """Return the pools in which cost actions wait for the last action to settle."""
        pools = (pool.metadata.name for pool in self.store.node_pools())
        return self._holds(self.stabilization.pools(pools, self.elapsed))

    def _holds(self, waits: Mapping[str, CostWait]) -> dict[str, CostHold]:
        return {name: CostHold(until=self.wall(wait.until), after=wait.after) for name, wait in waits.items()}

    # ------------------------------------------------------------ pools

    def manages(self, pool: str) -> bool:
        """Return whether Dovetail manages a pool: labelled, or named in the settings (docs/rules.md#karpenter).

        Observing covers all pools unless some are labelled or named: pools are labelled after the observe week.
        """
        key = (self.store.version_of(NodePool), self.settings_version)
        if key != self._managed_key:
            self._managed_key = key
            pools = self.store.node_pools()
            self._managed = dict.fromkeys(managed_pools(pools, self.settings))
            if self.observe and not self._managed:
                self._managed = dict.fromkeys(item.metadata.name for item in pools)
            loud = (
                item.metadata.name for item in pools if not is_quiet(item.spec.disruption, item.metadata.annotations)
            )
            self._held = {name: None for name in loud if name in self._managed}
            self._managed_since = {name: self._managed_since.get(name, self.elapsed) for name in self._managed}
        return pool in self._managed

    def holds(self, pool: str) -> bool:
        """Return whether the nodes of a pool are to be held: it is managed, and not in the quiet way."""
        self.manages(pool)
        return pool in self._held

    def notice(self, item: Node | NodeClaim) -> None:
        """Record what a change of an object, before the store has it, shows of another controller."""
        pool = item.metadata.labels.get(names.NODEPOOL, "")
        if not self.manages(pool):
            return
        if isinstance(item, Node):
            found = notice_node(self.store.get(Node, item.metadata.name), item)
        else:
            if self.elapsed < self._managed_since[pool] + HELD_BEFORE:
                return
            node = self.store.get(Node, item.status.node_name) if item.status.node_name else None
            found = notice_claim(self.store.get(NodeClaim, item.metadata.name), item, node)
        if found is not None:
            self._stand_back(found)

    def notice_eviction(self, seen: EvictionSeen) -> None:
        """Record what an eviction by another controller shows of it."""
        node = self.store.get(Node, seen.node)
        pool = "" if node is None else node.metadata.labels.get(names.NODEPOOL, "")
        found = notice_eviction(seen, pool) if self.acts and self.manages(pool) else None
        if found is not None:
            self._stand_back(found)

    def _stand_back(self, found: NeighbourNoticed) -> None:
        self.out.append(found)
        if self.settings.neighbours is WithNeighbours.STAND_BACK:
            self.neighbours.stand_back(found)

    def is_busy(self, pool: str) -> bool:
        """Return whether nodes of a pool leave by commands in progress."""
        return any(entry.pool == pool for run in self.runs.values() for entry in run.candidates)

    def has_come_to_hold(self, pool: str) -> bool:
        """Return whether the nodes of a pool are to be held now but were not when `manages` was last called."""
        was_held = pool in self._held
        return self.holds(pool) and not was_held

    def managed_pools(self) -> tuple[str, ...]:
        """Return all managed pools, by name."""
        self.manages("")
        return tuple(self._managed)

    def ready_within(self, pool: str) -> int | None:
        """Return how long moved pods of a pool may take to become ready; None: there is no limit."""
        item = self.store.get(NodePool, pool)
        health = None if item is None else effective_policy(item, self.settings).health
        return None if health is None else health.moved_pods_ready_within

    def _rate_span(self, pool: str) -> int:
        """Return the longest span of a pool's rate budgets; 0: it has none."""
        item = self.store.get(NodePool, pool)
        budgets = () if item is None else effective_policy(item, self.settings).budgets
        return max((budget.per for budget in budgets if budget.per is not None and budget.problem is None), default=0)

    def _begins(self, candidate: Candidate) -> tuple[str, str] | None:
        """Return the topology key and the domain of a node whose pool lets drift work in one domain at a time."""
        pool, node = self.store.get(NodePool, candidate.pool), self.store.get(Node, candidate.node)
        if pool is None or node is None:
            return None
        return domain_at_turn(effective_policy(pool, self.settings), node.metadata.labels, self.settings, self.now)

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

    # ------------------------------------------------------------ commands

    @property
    def lingering(self) -> tuple[str, ...]:
        """Return the replacements of recently ended commands, which are still nominated."""
        return tuple(sorted(self.pacing.lingering))

    def nominated(self) -> tuple[str, ...]:
        """Return the nodes and NodeClaims that pods will move to (docs/rules.md#gates, gate 4)."""
        return flight.nominated(self._targets.of(self.runs.values()), self.lingering, self.store)

    def in_flight(self, without: str = "", beside: Sequence[Run] = ()) -> InFlight:
        """Return what commands in progress reserve; `without` excludes one of them.

        `beside`: commands that were refused a moment ago, and are to come again in a better form.
        """
        runs = list(self.runs.values())
        if without:
            # Commands that were decided later and still wait for validation must not change its verdict: otherwise two
            # commands would refuse each other again and again.
            at = next((index for index, run in enumerate(runs) if run.id == without), len(runs))
            runs = [run for index, run in enumerate(runs) if index < at or run.phase is not Phase.VALIDATING]
            runs = [*(run for run in runs if run.id != without), *beside]
        launches = self.pacing.launches.active(self.elapsed)
        regrown = self.regrowth.held(self.store, self.elapsed)
        return InFlight(
            leaving=flight.leaving(runs),
            nominated=flight.nominated(self._targets.of(runs), self.lingering, self.store),
            under_way=self._plans.under_way(runs, self.store),
            back_off={pool: self.wall(until) for pool, until in launches.items()},
            regrown={pool: self.wall(until) for pool, until in regrown.items()},
            resting=self._resting(),
        )

    def _resting(self) -> dict[str, Resting]:
        """Return the nodes that back off, until when and why."""
        nodes = self.pacing.nodes.active(self.elapsed)
        why = self.pacing.nodes_why
        return {name: Resting(until=self.wall(until), why=why.get(name, "")) for name, until in nodes.items()}

    def take_rolls(self, result: Decision) -> None:
        """Record what a round found about rolls, and ask for what has to be written."""
        self.rolls.take(result.rolling)
        if self.acts and self.settings.rules.roll_requests:
            self.roll_conditions.take(result.rollouts, self.store)
            self.keep_rolls()

    def keep_rolls(self) -> None:
        """Ask for what has to be written on NodePools about their rolls; Karpenter's engine writes nothing there."""
        if not self.settings.rules.roll_requests:
            return
        self.out.extend(self.rolls.wanted(self.store, self.manages, self.elapsed, self.now))
        self.out.extend(self.roll_conditions.wanted(self.store, self.manages, self.elapsed))

    def view(self) -> View:
        """Return what the command machine may look at."""
        return View(
            store=self.store,
            elapsed=self.elapsed,
            now=self.now,
            replacement_timeout=self.settings.replacement_timeout,
            launch_timeout=self.settings.launch_timeout,
            drain_patience=self.settings.drain_patience,
            manages=self.manages,
            evicts=self.settings.evictions_in_order and self.elapsed >= self.evictions_from,
            evicts_side_by_side=self.settings.evictions_side_by_side,
            surges=self.settings.rules.surges,
            looks_last=self.settings.rules.last_look,
            daemon_like=self.settings.daemon_like,
            rate_span=self._rate_span,
            begins=self._begins,
            drain_for=self._drain_for,
            surging_sets=self._find_surging_sets,
        )

    def _find_surging_sets(self) -> tuple[tuple[str, str], ...]:
        """Return the ReplicaSets whose pods leave by a rolling update; found once for the same objects."""
        store = self.store
        key = (store.version_of(Deployment), store.version_of(ReplicaSet))
        if self._surging_sets is None or self._surging_sets[0] != key:
            self._surging_sets = (key, surging_sets(store.deployments(), store.replica_sets()))
        return self._surging_sets[1]

    def _restless(self) -> dict[str, datetime]:
        """Return the pools whose load comes and goes, and until when they count as such."""
        quiet = self.settings.quiet_before_haste
        return {pool: self.wall(until) for pool, until in self.restlessness.until(quiet, self.elapsed).items()}

    def _free_pools(self) -> tuple[str, ...]:
        """Return the managed pools, without those that wait after refusals or for the halt because of a neighbour."""
        refused, near = self.pacing.refusals.until, self.neighbours.is_near
        return tuple(pool for pool in self.managed_pools() if pool not in refused and not near(pool))

    def question(self, without: str = "", beside: Sequence[Run] = ()) -> Question:
        """Build the question for a round, or for validating the command `without`; `beside` as in `in_flight`."""
        reads_condition = self.settings.rules.consolidatable_condition
        events = {} if reads_condition else self.pod_events.times(self.now, self.elapsed)
        return Question(
            cluster=self.store.cluster(),
            catalogue=self.catalogue,
            settings=self.settings,
            now=self.now,
            in_flight=self.in_flight(without, beside),
            managed_pools=self._free_pools(),
            settling=self._settling(),
            settling_nodes=self._holds(self.stabilization.nodes(self.elapsed)),
            pod_events=events,
            waste=self.waste.known(),
            restless=self._restless(),
            persistence=self.durations.known(self.elapsed, self.wall),
            earning={name: until for name, until in self.earning.items() if self.now < until},
            may_surge=self.elapsed >= self.surges_from,
            unsettled=self.aftercare.unsettled(self.store),
            alert=self.alert,
            grown=self.growth.sizes(),
        )

    def without_news(self, question: Question) -> Question:
        """Return a question as it would be asked again at once: what its own round found is no news."""
        return replace(question, waste=self.waste.known(), persistence=self.durations.known(self.elapsed, self.wall))
