"""Everything the methods of one round need, computed once each: facts, gates, budgets, simulations.

Methods don't know each other; they share this. Simulations are cached by their inputs, so a node that drift has
simulated is not simulated again for its price if the inputs are the same. Chooses no action itself. Sits in decide,
between the rules and the methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dovetail.api.policy import effective_policy
from dovetail.api.pool_marks import read_history
from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.facts.cost_order import CostOrder
from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.reading import Reader
from dovetail.decide.facts.roster import FirstClosed, Roster
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.decide.gates import timers
from dovetail.decide.gates.balanced import PoolTotals, pool_totals
from dovetail.decide.gates.budgets import BudgetLedger
from dovetail.decide.gates.candidates import Chains
from dovetail.decide.gates.gate_results import GateContext
from dovetail.decide.gates.haste import Haste
from dovetail.decide.gates.passing import Passing
from dovetail.decide.gates.pool_holds import PoolHolds, Waiting, health_holds
from dovetail.decide.gates.price import UNPAYABLE, Source, required_of
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.in_flight import InFlight
from dovetail.decide.outcome import CandidateFigures
from dovetail.decide.question import Question
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.foresight import Foresight
from dovetail.decide.refusals.launches import Launches
from dovetail.decide.refusals.planned_room import PlannedRoom
from dovetail.decide.refusals.standing import StandingRefusals, StandingView
from dovetail.decide.refusals.unready import Unready
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Method
from dovetail.model.money import Money
from dovetail.model.objects import Pod
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import GateResult
from dovetail.scheduling.entries import ALL_TYPES, SimulationOptions
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.launch.machines import TypeBits
from dovetail.scheduling.result import SimulationResult
from dovetail.scheduling.simulate import carried_by_nodes, planned_places, simulate
from dovetail.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from dovetail.decide.methods.moves import Move
    from dovetail.decide.search.found import Found


_Simulated = tuple[tuple[int, ...], bool, TypeBits]
"""What a simulation is kept by: the places of the nodes that go, whether it is for cost, and the types of new nodes."""


class _Awaiting:
    """The nodes that waiting pods would go to.

    Apart from the context, so that the chains of gates don't refer to it: such a cycle would keep a whole round in
    memory until the garbage collector runs.
    """

    def __init__(self, snapshot: Snapshot, settings: Settings, in_flight: InFlight) -> None:
        self.snapshot, self.settings, self.in_flight = snapshot, settings, in_flight

    def by_node(self) -> Mapping[str, tuple[Pod, ...]]:
        """Return the pods (pending, or of leaving nodes) that would go to each node.

        Karpenter nominates such nodes, but no object shows it. Computed only if a node could be deleted as empty.
        """
        return self._found

    @cached
    def _found(self) -> Mapping[str, tuple[Pod, ...]]:
        snapshot = self.snapshot
        if not self.settings.rules.waiting_pods_nominate:
            return {}
        if not snapshot.pending and not any(pods for _, pods in snapshot.leaving):
            return {}
        found = simulate(snapshot, (), SimulationOptions(strict_reserved=True), self.in_flight.under_way)
        virtual = frozenset(map(id, snapshot.surroundings.virtual))
        landed = {p.node: tuple(pod for pod in p.pods if id(pod) not in virtual) for p in found.placements}
        return {node: pods for node, pods in landed.items() if pods}


class RoundContext:
    """One round's view of the cluster. Immutable from outside; answers are cached.

    `snapshot`: that of the question, if it is already built. `facts_cache`, `launches_of`, `standing`: what a `Decider`
    remembers.
    """

    def __init__(
        self,
        question: Question,
        snapshot: Snapshot | None = None,
        *,
        facts_cache: FactsCache | None = None,
        launches_of: Callable[[Frame], Launches] = Launches,
        standing: StandingRefusals | None = None,
    ) -> None:
        settings, pools = question.settings, question.managed_pools
        self.question, self.settings, self.now = question, settings, question.now
        self.snapshot = question.snapshot() if snapshot is None else snapshot
        self.in_flight, self.stabilized_until = question.in_flight, question.cost_held_until
        self._memory, self._launches_of, self._standing = facts_cache, launches_of, standing
        # How many new nodes a cost action may open (spec sections 5 and 21).
        self.new_nodes_max = settings.replacements_max if settings.searches_by_value else 1
        managed = None if pools is None or settings.rules.manages_all_pools else frozenset(pools)
        carried = carried_by_nodes(self.snapshot) if self.snapshot.virtual else {}
        self.buffered = {self.snapshot.states[index].name: count for index, count in carried.items()}
        self._gates_but_pdbs = GateContext(
            settings=settings,
            now=question.now,
            managed_pools=managed,
            may_surge=question.may_surge,
            buffered=self.buffered,
        )
        self.haste = Haste(question)
        self.unscored: dict[str, Move | Refusal] = {}
        self.judged: dict[str, Move | Refusal] = {}
        self.scores: dict[tuple[str, ...], Mapping[str, float]] = {}
        self.searched: Found | None = None
        self.could_save: Mapping[str, Money | None] | None = None
        self.pods_simulated = 0
        self._sources: dict[str, Source] = {}
        self._simulations: dict[_Simulated, SimulationResult | None] = {}
        self._results: dict[_Simulated, SimulationResult] = {}

    def fork(self) -> RoundContext:
        """Return a view that shares the cached answers but counts its own simulations separately.

        An answer computed in one is reused in the other but does not count there, so the parts of a result are the same
        in whatever order they are read.
        """
        other = copy(self)
        other.unscored, other.judged, other.scores = dict(self.unscored), dict(self.judged), dict(self.scores)
        other._simulations = dict(self._simulations)
        return other

    @cached
    def _read(self) -> tuple[Lineup, Vetoes]:
        reader = Reader(self.snapshot, self.policies, self.question, self._memory)
        return reader.read(), reader.vetoes

    @property
    def nodes(self) -> Lineup:
        """Return all nodes, by name."""
        return self._read[0]

    @property
    def vetoes(self) -> Vetoes:
        """Return what PodDisruptionBudgets refuse now."""
        return self._read[1]

    @cached
    def gate_context(self) -> GateContext:
        """Return what the rules of the gates know besides the node."""
        return replace(self._gates_but_pdbs, vetoes=self.vetoes)

    @property
    def by_name(self) -> Mapping[str, NodeFacts]:
        """Return nodes by name."""
        return self.nodes.by_name

    @cached
    def policies(self) -> dict[str, DisruptionPolicy]:
        """Return the effective policy of every pool, by name."""
        pools = self.snapshot.cluster.node_pools
        return {pool.metadata.name: effective_policy(pool, self.settings) for pool in pools}

    @cached
    def ledger(self) -> BudgetLedger:
        """Return the budgets."""
        pools = self.snapshot.cluster.node_pools if self.settings.rules.rate_budgets else ()
        return BudgetLedger(
            self.roster.members.by_pool(self.nodes),
            self.policies,
            self.settings,
            self.now,
            self.in_flight,
            histories={pool.metadata.name: read_history(pool) for pool in pools},
            hold=self.holds.of,
        )

    @cached
    def waiting(self) -> Waiting:
        """Return the pods without a node, for the health limits."""
        if not any(policy.health is not None and policy.health.pending_pods for policy in self.policies.values()):
            return Waiting(pods=(), known_labels=frozenset())
        return Waiting(pods=self.snapshot.bindings.unbound, known_labels=self.snapshot.frame.machines.known)

    @cached
    def _health(self) -> dict[str, GateResult]:
        """Return the pools that are not healthy, and why."""
        if not self.settings.rules.health_limits:
            return {}
        return health_holds(self.snapshot.cluster.node_pools, self.policies, self.nodes, self.waiting, self.now)

    @cached
    def holds(self) -> PoolHolds:
        """Return what blocks whole pools."""
        question = self.question
        return PoolHolds(
            alert=question.alert,
            health=self._health,
            unsettled=question.unsettled,
            policies=self.policies,
            now=self.now,
        )

    @cached
    def chains(self) -> Chains:
        """Return gates 1 to 7 of every node, for every method."""
        return Chains(self.nodes, self.gate_context, self._awaiting.by_node)

    @cached
    def _awaiting(self) -> _Awaiting:
        return _Awaiting(self.snapshot, self.settings, self.in_flight)

    @property
    def awaited(self) -> Mapping[str, tuple[Pod, ...]]:
        """Return the nodes that waiting pods (pending, or of leaving nodes) would go to, and these pods."""
        return self._awaiting.by_node()

    @cached
    def totals(self) -> dict[str, PoolTotals]:
        """Return the pool totals that the Balanced policy compares with."""
        return pool_totals(self.nodes, self.chains, self.settings)

    @cached
    def closed(self) -> tuple[int, ...]:
        """Return nodes that a cost action may not move pods to."""
        settings = self.settings
        hidden = self.roster.hidden.of(self.nodes, self.now, lambda facts: timers.closed_until(facts, settings))
        return tuple(map(self.index_of, hidden))

    @cached
    def _closed_nodes(self) -> frozenset[int]:
        return frozenset(self.closed)

    @cached
    def bounds(self) -> Bounds:
        """Return the bounds that refuse moves without a simulation."""
        return Bounds(self.snapshot, self.closed, self._launches_of(self.snapshot.frame), self._planned)

    @cached
    def _planned(self) -> PlannedRoom:
        """Return the free room without what commands under way have planned; Karpenter places all pods alike."""
        if not self.snapshot.leaving or self.settings.rules.others_pods_count or self.settings.ties:
            return PlannedRoom(self.snapshot)
        return PlannedRoom(self.snapshot, planned_places(self.snapshot, self.in_flight.under_way))

    @cached
    def standing(self) -> StandingView | None:
        """Return the refusals of earlier rounds that are still valid; None: nothing is cached."""
        if self._standing is None:
            return None
        launches = self._launches_of(self.snapshot.frame)
        return self._standing.look_at(self.snapshot, self.bounds, self.unready, launches, self.settings)

    @cached
    def unready(self) -> Unready:
        """Return what is certain to go to nodes that are still starting."""
        return Unready(self.snapshot, self.closed, self._planned)

    @cached
    def _foresight(self) -> Foresight:
        return Foresight(self.snapshot, self.closed, self._planned)

    def foresees_unready(self, facts: NodeFacts) -> bool:
        """Return whether the cost simulation of a node, if not made yet, surely ends at a node that is not initialized.

        Its pods are counted as simulated; `simulate` still makes it on request.
        """
        place = self.index_of(facts)
        key = ((place,), True, ALL_TYPES)
        made = key in self._simulations or (not self.closed and self.has_simulated(facts))
        pods = 0 if made else self._foresight.pods_ending_unready(place)
        if pods:
            self._simulations[key] = None
            self.pods_simulated += pods
        return pods > 0

    @property
    def stabilizing(self) -> bool:
        """Return whether cost actions wait until an earlier action has settled.

        Design: lifecycle-controller, LifecycleAction Tunables.
        """
        return self.stabilized_until is not None and self.now < self.stabilized_until

    def regrown_until(self, facts: NodeFacts) -> datetime | None:
        """Return until when the node's pool tries no cost action because the last one was undone by its pods."""
        until = self.in_flight.regrown.get(facts.pool_name)
        return until if until is not None and self.now < until else None

    def passing(self, method: Method) -> Sequence[NodeFacts]:
        """Return the nodes that pass gates 1 to 7 of a method, by name, ignoring budgets."""
        return self._passing.of(method)

    def first_closed(self) -> list[FirstClosed]:
        """Return where the gates 1 to 7 of all nodes end for each method, without their sentences, by name."""
        return self._passing.ends()

    @cached
    def _passing(self) -> Passing:
        # Which nodes hold a buffer's virtual pods is not among a node's facts.
        roster = None if self._memory is None or self.snapshot.virtual else self.roster
        return Passing(self.nodes, self._gates_but_pdbs, self.vetoes, self.chains, self._awaiting.by_node, roster)

    @cached
    def roster(self) -> Roster:
        """Return the views of all nodes: those of earlier rounds, if nothing but nodes has changed since."""
        assert self.nodes is not None  # reading them looks at what has changed
        return Roster() if self._memory is None else self._memory.roster

    @cached
    def cost_order(self) -> tuple[NodeFacts, ...]:
        """Return cost candidates in order: lowest disruption cost, or highest savings ratio; ties by name."""
        waiting = self.passing(Method.MULTI_NODE)
        if self.in_flight.regrown:
            waiting = [facts for facts in waiting if self.regrown_until(facts) is None]
        return self.roster.order.of(waiting, self.settings.candidate_order, self.now)

    def left(self, method: Method) -> dict[str, int]:
        """Return what every pool has left for the method's reason; the caller may modify it."""
        return self.ledger.left(REASON_OF[method])

    def figures(self, facts: NodeFacts) -> CandidateFigures:
        """Return a candidate's figures as the plan shows them."""
        return CandidateFigures(
            node=facts.name,
            node_pool=facts.pool_name,
            price=facts.price,
            price_float=facts.price_float,
            disruption_cost=self.disruption_cost((facts,)),
        )

    def disruption_cost(self, nodes: Sequence[NodeFacts]) -> float:
        """Return the total disruption cost of nodes: exact and then rounded, or Karpenter's own figure."""
        if self.settings.rules.float_prices:
            return sum(facts.karpenter_disruption_cost(self.now) for facts in nodes)
        return float(sum(facts.disruption_cost(self.now) for facts in nodes))

    def sources(self, nodes: Sequence[NodeFacts]) -> list[Source]:
        """Return the nodes as the price gates need them."""
        known = self._sources
        found = []
        for facts in nodes:
            source = known.get(facts.name)
            if source is None:
                source = known[facts.name] = self._source(facts)
            found.append(source)
        return found

    def _source(self, facts: NodeFacts) -> Source:
        wasted = self.question.waste.get(facts.name)
        return Source(
            name=facts.name,
            instance_type=facts.instance_type,
            capacity_type=facts.capacity_type,
            price=facts.price,
            price_float=facts.price_float,
            offering_price=facts.offering_price,
            required=UNPAYABLE if self.haste.waits_for_jobs(facts) else Fraction(*self.haste.asked_savings(facts)),
            wasted=0 if wasted is None else wasted.by(self.now),
            least=self.settings.waste_floor * facts.disruption_cost(self.now)
            if self.settings.waste_floor
            else Fraction(0),
            asked_waste=self.haste.asked_waste(facts),
        )

    def required_savings(self, facts: NodeFacts) -> tuple[int, int]:
        """Return what removing a node has to save now, as a ratio; 0 once it has wasted enough."""
        if facts.policy is None or facts.policy.disruption_price is None:
            return facts.required_savings(self.now)
        required = required_of(self.sources((facts,)), self.settings)
        return required.numerator, required.denominator

    def index_of(self, facts: NodeFacts) -> int:
        """Return the index of a node in the snapshot; -1 if the scheduler does not see it yet."""
        return self.snapshot.index.get(facts.name, -1)

    def simulate(
        self, nodes: Sequence[NodeFacts], *, for_cost: bool, launchable: TypeBits = ALL_TYPES
    ) -> SimulationResult:
        """Simulate the removal of nodes; computed once per set of nodes and rules.

        A cost action may open few new nodes and not move pods to closed nodes; if no nodes are closed, the unbounded
        answer to the same question is reused. `launchable`: instance types that new nodes may be of.
        """
        chosen = tuple(map(self.index_of, nodes))
        key = (tuple(sorted(chosen)), for_cost, launchable)
        known = self._simulations.get(key)
        if known is None and for_cost and not self.closed:
            known = self._simulations.get((key[0], False, launchable))
        if known is not None:
            return known
        result = self._results.get(key)
        if result is None:
            closed, most = (self._closed_nodes, self.new_nodes_max) if for_cost else ((), None)
            options = SimulationOptions(closed=closed, new_nodes_max=most, launchable=launchable)
            result = self._results[key] = simulate(self.snapshot, chosen, options, self.in_flight.under_way)
        if key not in self._simulations:
            self.pods_simulated += result.pods_simulated
        self._simulations[key] = result
        return result

    def has_simulated(self, facts: NodeFacts) -> bool:
        """Return whether it is already known where the pods of a node that has to go would move to."""
        return ((self.index_of(facts),), False, ALL_TYPES) in self._simulations


def in_cost_order(nodes: Sequence[NodeFacts], settings: Settings, now: datetime) -> tuple[NodeFacts, ...]:
    """Order a few nodes as cost candidates are ordered."""
    return CostOrder().of(nodes, settings.candidate_order, now)
