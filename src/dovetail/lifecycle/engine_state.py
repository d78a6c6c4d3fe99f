"""What the engine knows at one moment: the store, its clock, its commands, and its memory of ended commands.

The engine and its command runner share one instance, and nothing else changes it. It answers what both need (is this
pool managed, what is in flight, what is the question for a round) and drops what has expired. It decides nothing. Sits
in lifecycle, below `command_runner` and `engine`.

The engine's own clock (`elapsed`, nanoseconds) advances with `now`, but never goes back and never jumps, so that
changing the wall clock neither extends nor ends a wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dovetail.api.policy import effective_policy
from dovetail.decide.in_flight import InFlight
from dovetail.decide.question import Question
from dovetail.lifecycle.commands import flight
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run, View
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import DOVETAIL
from dovetail.lifecycle.memory.aftercare import Aftercare
from dovetail.lifecycle.memory.landing import Landing
from dovetail.lifecycle.memory.outcomes import SAVING, Mover, Outcomes
from dovetail.lifecycle.memory.owners import owners_of
from dovetail.lifecycle.memory.pacing import COST_METHODS, Pacing
from dovetail.lifecycle.memory.pod_events import PodEvents
from dovetail.lifecycle.memory.regrowth import Regrowth, is_ours
from dovetail.lifecycle.memory.restlessness import Restlessness
from dovetail.lifecycle.memory.waste import WasteBook
from dovetail.lifecycle.messages import Failure, Instruction, InstructionFailed
from dovetail.lifecycle.reports import CostActionUndone
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.money import Money, as_float
from dovetail.model.objects import Deployment, Node, NodeClaim, NodePool, ReplicaSet, condition
from dovetail.model.policies.managed import managed_pools
from dovetail.model.settings import Settings, StabilizationEnds
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.scheduling.pods.surge import surging_sets

_MICROSECOND: Final = timedelta(microseconds=1)
_TURN_MAX: Final = 60 * SECOND
"""How long after a poll is due its turn may come, on a busy machine; more than that was never waited."""
RIGHT_MISSING: Final = 600 * SECOND
"""How long no eviction is asked for after one was forbidden: the drain does it."""


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

    `facts_version` counts what can change a decision apart from the store; `round_at` is when the next round is wanted,
    `rests_until` when the rest after a long one ends; `marks_seen` is the store's version of the marks that were last
    searched for left-over commands; None: search again; `out` collects the instructions and reports of the event that
    is being handled.
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
        self.facts_version = 0
        self.settings_version = 0
        self.round_at = 0
        self.rests_until = 0
        self.marks_seen: int | None = None
        self.evictions_from = 0
        self.surges_from = 0
        self.runs: dict[str, Run] = {}
        self.pacing = Pacing()
        self.regrowth = Regrowth()
        self.landing = Landing()
        self.aftercare = Aftercare()
        self.waste = WasteBook()
        self.outcomes = Outcomes()
        self.restlessness = Restlessness()
        self.pod_events = PodEvents()
        self._plans = flight.Plans()
        self._targets = flight.Targets()
        self._surging_sets: tuple[tuple[int, int], tuple[tuple[str, str], ...]] | None = None
        self._now: datetime | None = None
        self._managed: dict[str, None] = {}
        self._managed_key: tuple[int, int] | None = None

    def forget_commands(self) -> None:
        """Forget everything that belongs to acting: another process may have changed it."""
        self.runs = {}
        self.marks_seen = None
        self.regrowth.forget()
        self.landing.forget()
        self.aftercare.forget()
        self.waste.forget()
        self.outcomes.forget()
        self.facts_version += 1

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
    def moment(self) -> tuple[datetime, int, int]:
        """Return the time and what is known at it: a second look at the same moment finds nothing that is new."""
        return self.now, self.store.version, self.facts_version

    def times(self) -> tuple[int | None, ...]:
        """Return when something that is remembered about past commands ends, or is to be looked at again."""
        looks = self.regrowth.next_at(), self.landing.next_at(), self.aftercare.next_at()
        return *looks, *self.pacing.times(), *self.regrowth.waits.until.values()

    def expire(self) -> None:
        """Drop what has expired; decisions may differ from then on."""
        self.out.extend(self.outcomes.due(self.elapsed))
        landed = self.settings.stabilization_ends is StabilizationEnds.LANDED
        price_of = self._price_of if landed else None
        for pool, pause in self.regrowth.judge(self.store, self.elapsed, price_of):
            self.facts_version += 1
            failures = self.regrowth.waits.failures(pool)
            self.out.append(CostActionUndone(pool=pool, failures=failures, seconds=pause // SECOND))
        if self.landing.look(self.store, self.elapsed):
            for method in COST_METHODS:
                self.pacing.settling.pop(method.value, None)
            self.facts_version += 1
        if self.pacing.expire(self.elapsed) | self.regrowth.waits.expire(self.elapsed):
            self.facts_version += 1
            self.marks_seen = None
        for name in [name for name in self.pacing.lingering if flight.has_pods(name, self.store)]:
            del self.pacing.lingering[name]
            self.facts_version += 1

    # ------------------------------------------------------------ what came of commands

    def promise(self, run: Run) -> None:
        """Record what a command promises, before its pods leave."""
        if run.action in SAVING:
            self.restlessness.took(run.source_pools, self.elapsed)
        if run.command is not None:
            pods = [pod for node in run.nodes for pod in self.store.pods_on(node) if is_reschedulable(pod)]
            movers = [
                Mover(owner=owner, created=pod.metadata.creation_timestamp)
                for pod in pods
                for owner in owners_of(pod)[:1] or [""]
            ]
            promised = as_float(run.command.savings)
            self.outcomes.begin(run.id, run.action, run.source_pools, promised, movers, self.now)

    def note_claim(self, claim: NodeClaim) -> None:
        """Record a NodeClaim created by a provisioner, before the store has it; and its price, once it is launched."""
        name, labels = claim.metadata.name, claim.metadata.labels
        if self.is_synced and not is_ours(claim) and self.store.get(NodeClaim, name) is None:
            self.outcomes.came(name)
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
        for run in self.runs.values():
            if name in run.replacements:
                run.seen.setdefault(name, uid)

    def note_failure(self, event: InstructionFailed) -> None:
        """Record that a right is missing, if that is why something was not done."""
        if event.failure is Failure.FORBIDDEN and "/evict/" in event.id:
            self.evictions_from = self.elapsed + RIGHT_MISSING
        if event.failure is Failure.FORBIDDEN and "/surge/" in event.id:
            self.surges_from = self.elapsed + RIGHT_MISSING

    def cost_held_until(self) -> datetime | None:
        """Return until when cost actions wait for the last action to settle; None if they don't wait."""
        at = self.pacing.settles_at(self.elapsed)
        return None if at is None else self.wall(at)

    # ------------------------------------------------------------ pools

    def manages(self, pool: str) -> bool:
        """Return whether Dovetail manages a pool: labelled, or named in the settings (spec section 10).

        Observing covers all pools unless some are labelled or named: pools are labelled after the observe week.
        """
        key = (self.store.version_of(NodePool), self.settings_version)
        if key != self._managed_key:
            self._managed_key = key
            pools = self.store.node_pools()
            self._managed = dict.fromkeys(managed_pools(pools, self.settings))
            if self.observe and not self._managed:
                self._managed = dict.fromkeys(item.metadata.name for item in pools)
        return pool in self._managed

    def has_become_managed(self, pool: str) -> bool:
        """Return whether a pool is managed now but was not when `manages` was last called."""
        was_ours = pool in self._managed
        return self.manages(pool) and not was_ours

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
        """Return the nodes and NodeClaims that pods will move to (spec section 4, gate 4)."""
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
        )

    def view(self) -> View:
        """Return what the command machine may look at."""
        return View(
            store=self.store,
            elapsed=self.elapsed,
            now=self.now,
            replacement_timeout=self.settings.replacement_timeout,
            launch_timeout=self.settings.launch_timeout,
            manages=self.manages,
            evicts=self.settings.evictions_in_order and self.elapsed >= self.evictions_from,
            surges=self.settings.rules.surges,
            rate_span=self._rate_span,
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
            managed_pools=tuple(pool for pool in self.managed_pools() if pool not in self.pacing.refusals.until),
            cost_held_until=self.cost_held_until(),
            cost_held_by=self.pacing.settles_by(self.elapsed),
            pod_events=events,
            waste=self.waste.known(),
            restless=self._restless(),
            may_surge=self.elapsed >= self.surges_from,
            unsettled=self.aftercare.unsettled(self.store),
            alert=self.alert,
        )
