"""What the methods of one round look at: the snapshot, the facts of all nodes, their gates, prices and budgets.

Each is a pure function of the question, computed on first access. Methods don't know each other; they share this. What
they try out on it (simulations, judgements) is `work.Work`. Sits in decide, between the rules and the methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cache, partial

import numpy as np
from msgspec.structs import replace

from dovetail.api.policy import effective_policy
from dovetail.api.pool_marks import read_history
from dovetail.decide.billing import Billing
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.reading import Reader
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.decide.facts.victims import Victims
from dovetail.decide.gates.balanced import PoolTotals, pool_totals
from dovetail.decide.gates.budgets import BudgetLedger
from dovetail.decide.gates.candidates import Chains
from dovetail.decide.gates.gate_results import GateContext
from dovetail.decide.gates.haste import Haste
from dovetail.decide.gates.open_gates import FirstClosed, OpenGates
from dovetail.decide.gates.pool_holds import PoolHolds, Waiting, health_holds
from dovetail.decide.gates.price import Source, required_of
from dovetail.decide.gates.table import GateTable
from dovetail.decide.gates.waits import Waits
from dovetail.decide.in_flight import InFlight
from dovetail.decide.memory import Memory
from dovetail.decide.outcome import CandidateFigures
from dovetail.decide.question import Question
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.launches import Launches
from dovetail.decide.refusals.needs import NeedRows
from dovetail.decide.refusals.room import PlannedRoom
from dovetail.decide.refusals.starting import Starting
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Method
from dovetail.model.commitments import Bill
from dovetail.model.money import UNIT, Money
from dovetail.model.objects import Pod
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import Settings
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.launch.machines import Amounts
from dovetail.scheduling.result import NewNode
from dovetail.scheduling.simulate import carried_by_nodes, planned_places, simulate
from dovetail.scheduling.snapshot import Snapshot


def _awaited_nodes(snapshot: Snapshot, settings: Settings, in_flight: InFlight) -> Mapping[str, tuple[Pod, ...]]:
    """Return the nodes that waiting pods (pending, or of leaving nodes) would go to, and these pods.

    Karpenter nominates such nodes, but no object shows it. Computed only if a node could be deleted as empty.
    """
    if not settings.rules.waiting_pods_nominate:
        return {}
    if not snapshot.pending and not any(pods for _, pods in snapshot.leaving):
        return {}
    found = simulate(snapshot, (), SimulationOptions(strict_reserved=True), in_flight.under_way)
    virtual = frozenset(map(id, snapshot.surroundings.virtual))
    landed = {p.node: tuple(pod for pod in p.pods if id(pod) not in virtual) for p in found.placements}
    return {node: pods for node, pods in landed.items() if pods}


@dataclass(frozen=True, eq=False)
class Scene:
    """One round's view of the cluster. `memory`: what earlier rounds found; it saves time and changes no answer."""

    question: Question
    snapshot: Snapshot
    memory: Memory

    @classmethod
    def of(cls, question: Question, memory: Memory | None = None) -> Scene:
        """Return the view of a question."""
        memory = Memory(keeps=False) if memory is None else memory
        return cls(question, memory.snapshot_of(question), memory)

    @property
    def settings(self) -> Settings:
        """Return the settings."""
        return self.question.settings

    @property
    def now(self) -> datetime:
        """Return when the question is asked."""
        return self.question.now

    @property
    def in_flight(self) -> InFlight:
        """Return what commands are doing."""
        return self.question.in_flight

    @property
    def new_nodes_max(self) -> int:
        """Return how many new nodes a cost action may open (docs/rules.md#methods and #value)."""
        return self.settings.replacements_max if self.settings.searches_by_value else 1

    @cached
    def buffered(self) -> Mapping[str, int]:
        """Return how many virtual pods of CapacityBuffers each node holds."""
        carried = carried_by_nodes(self.snapshot) if self.snapshot.virtual else {}
        return {self.snapshot.states[index].name: count for index, count in carried.items()}

    @cached
    def _terms(self) -> GateContext:
        question, pools = self.question, self.question.managed_pools
        managed = None if pools is None or self.settings.rules.manages_all_pools else frozenset(pools)
        return GateContext(settings=self.settings, now=self.now, managed_pools=managed, may_surge=question.may_surge)

    @cached
    def haste(self) -> Haste:
        """Return what nodes have to save now."""
        return Haste(self.question)

    @cached
    def _read(self) -> tuple[GateTable, Vetoes]:
        memory = self.memory.facts
        reader = Reader(self.snapshot, self.policies, self.question, memory)
        read = reader.read()
        if read.changes is None:
            memory.table = memory.table.renewed(read.nodes, self._terms)
        else:
            memory.table = memory.table.edited(*read.changes, self._terms)
        return memory.table, reader.vetoes

    @cached
    def billing(self) -> Billing:
        """Return what the nodes really cost."""
        bills = self.memory.facts.marginal.bills(self.settings.commitments)
        launching = self.in_flight.under_way.launches
        return Billing(self._read[0].nodes, self.snapshot.surroundings.paid, bills, launching)

    @cached
    def table(self) -> GateTable:
        """Return the table of all nodes; under commitments at the prices that their going would save."""
        listed = self._read[0]
        if not self.settings.commitments or self.settings.rules.list_prices:
            return listed
        return listed.repriced(self.memory.facts.marginal.of(listed.nodes, self.billing))

    @property
    def nodes(self) -> tuple[NodeFacts, ...]:
        """Return all nodes, by name."""
        return self.table.nodes

    @property
    def vetoes(self) -> Vetoes:
        """Return what PodDisruptionBudgets refuse now."""
        return self._read[1]

    @cached
    def gate_context(self) -> GateContext:
        """Return what the rules of the gates know besides the node."""
        return replace(self._terms, buffered=self.buffered, vetoes=self.vetoes)

    @cached
    def by_name(self) -> Mapping[str, NodeFacts]:
        """Return nodes by name."""
        return self.table.by_name

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
            self.table.members(),
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
        return Chains(self.by_name, self.gate_context, self._awaited, self._open_gates.closed_for)

    @cached
    def _awaited(self) -> Callable[[], Mapping[str, tuple[Pod, ...]]]:
        """Return a function without a reference to the scene: a cycle would keep a round until garbage is collected."""
        return cache(partial(_awaited_nodes, self.snapshot, self.settings, self.in_flight))

    @property
    def awaited(self) -> Mapping[str, tuple[Pod, ...]]:
        """Return the nodes that waiting pods (pending, or of leaving nodes) would go to, and these pods."""
        return self._awaited()

    @cached
    def totals(self) -> dict[str, PoolTotals]:
        """Return the pool totals that the Balanced policy compares with."""
        return pool_totals(
            self.nodes, lambda facts: self.chains.of(facts.name, Method.EMPTY).passed_pods, self.settings
        )

    @cached
    def closed(self) -> frozenset[int]:
        """Return the places of nodes that a cost action may not move pods to."""
        return frozenset(map(self.index_of, self.table.closed_to_moved_pods(self.now)))

    @cached
    def room_for_moved(self) -> Amounts:
        """Return the free resources of the nodes that a cost action may move pods to; of the others, nothing."""
        frame = self.snapshot.frame
        takes = frame.open.copy()
        takes[list(self.closed)] = False
        return np.where(takes[:, None], frame.room, 0)

    @cached
    def needs(self) -> NeedRows:
        """Return what the pods of each node need."""
        return self.memory.needs_of(self.snapshot)

    @cached
    def launches(self) -> Launches:
        """Return what launches cost."""
        return self.memory.launches_of(self.snapshot.frame)

    @cached
    def bounds(self) -> Bounds:
        """Return the bounds that refuse moves without a simulation."""
        several = self.new_nodes_max > 1
        return Bounds(self.snapshot, self.closed, self.launches, self._planned, self.needs, several=several)

    @cached
    def _planned(self) -> PlannedRoom:
        """Return the free room less what commands under way have planned; Karpenter's rules reserve none of it."""
        if not self.snapshot.leaving or self.settings.rules.others_pods_count or self.settings.ties:
            return PlannedRoom(self.snapshot)
        return PlannedRoom(self.snapshot, planned_places(self.snapshot, self.in_flight.under_way))

    @cached
    def starting(self) -> Starting:
        """Return what is certain to go to nodes that are still starting."""
        return Starting(self.snapshot, self.closed, self._planned)

    @cached
    def waits(self) -> Waits:
        """Return what methods wait for: pools that settle, cost actions that did not hold, the repair breaker."""
        return Waits(self.question, self.policies, self.nodes)

    def passing(self, method: Method) -> Sequence[NodeFacts]:
        """Return the nodes that pass gates 1 to 7 of a method, by name, ignoring budgets."""
        return self._open_gates.of(method)

    def first_closed(self) -> list[FirstClosed]:
        """Return where the gates 1 to 7 of all nodes end for each method, without their sentences, by name."""
        return self._open_gates.ends()

    @cached
    def _open_gates(self) -> OpenGates:
        return OpenGates(self.table, self.gate_context, self._awaited)

    @cached
    def victims(self) -> Victims:
        """Return the pods that scale-downs should remove next, as earlier rounds chose them."""
        return self.memory.facts.victims

    @cached
    def cost_order(self) -> tuple[NodeFacts, ...]:
        """Return cost candidates in order: lowest disruption cost, or highest savings ratio; ties by name."""
        return self.table.in_cost_order(self._open_gates.rows(Method.MULTI_NODE), self.settings, self.now)

    @cached
    def cost_sources(self) -> tuple[NodeFacts, ...]:
        """Return the cost candidates that nothing makes wait, in order."""
        return self.waits.open_to_cost(self.cost_order)

    def left(self, method: Method) -> dict[str, int]:
        """Return what every pool has left for the method's reason; the caller may modify it."""
        return self.ledger.left(REASON_OF[method])

    def figures(self, facts: NodeFacts) -> CandidateFigures:
        """Return a candidate's figures as the plan shows them."""
        return CandidateFigures(
            node=facts.name,
            node_pool=facts.pool_name,
            price=self.shown_price(facts),
            price_float=facts.price_float if not self.shows_other_prices else self.shown_price(facts) / UNIT,
            disruption_cost=self.disruption_cost((facts,)),
        )

    @property
    def shows_other_prices(self) -> bool:
        """Return whether reports show other prices than decisions use: Karpenter's rules know only list prices."""
        settings = self.settings
        return settings.rules.list_prices and bool(settings.commitments or settings.discount or settings.surcharge)

    def shown_price(self, facts: NodeFacts) -> Money:
        """Return what a node's going really saves by itself."""
        found = self.billing.price(facts.name) if self.shows_other_prices else None
        return facts.price if found is None else found

    @property
    def bill(self) -> Bill | None:
        """Return the bill of all nodes; None if it is the sum of their prices."""
        settings = self.settings
        return self.billing.bill if settings.commitments or self.shows_other_prices else None

    def disruption_cost(self, nodes: Sequence[NodeFacts]) -> float:
        """Return the total disruption cost of nodes: exact and then rounded, or Karpenter's own figure."""
        if self.settings.rules.float_prices:
            return sum(facts.karpenter_disruption_cost(self.now) for facts in nodes)
        return float(sum(facts.disruption_cost(self.now) for facts in nodes if facts.pod_costs))

    @cached
    def _sources(self) -> dict[str, Source]:
        return {}

    def sources(self, nodes: Sequence[NodeFacts]) -> list[Source]:
        """Return the nodes as the price gates need them."""
        known = self._sources
        found = []
        for facts in nodes:
            source = known.get(facts.name)
            if source is None:
                source = known[facts.name] = self._source(facts)
            found.append(source)
        if len(found) > 1 and self.prices_depend:
            gone = [facts.name for facts in nodes]
            paid, kept = self.billing.together(gone), self.billing.kept_price
            return [replace(s, together=paid, kept_price=kept(s.name, gone)) for s in found]
        return found

    def paid_for(self, nodes: Sequence[NodeFacts]) -> Money:
        """Return what nodes cost together."""
        if len(nodes) > 1 and self.prices_depend:
            return self.billing.together([facts.name for facts in nodes])
        return sum(facts.price for facts in nodes)

    @cached
    def price_scale(self) -> Money:
        """Return the highest price of a node; rounded numbers are shares of it, so the price level doesn't matter."""
        return max((facts.price for facts in self.nodes), default=0) or UNIT

    @property
    def prices_depend(self) -> bool:
        """Return whether what a node costs depends on the other nodes, and decisions use that."""
        return bool(self.settings.commitments) and not self.settings.rules.list_prices

    def priced(self, nodes: Sequence[NodeFacts], new_nodes: Sequence[NewNode]) -> tuple[NewNode, ...]:
        """Return new nodes at the prices that they would add once some nodes have gone."""
        if not self.prices_depend:
            return tuple(new_nodes)
        return self.billing.repriced([facts.name for facts in nodes], new_nodes)

    def really_saved(self, nodes: Sequence[NodeFacts], new_nodes: Sequence[NewNode], savings: Money) -> Money:
        """Return what a command really saves; `savings`: by the prices that it was decided with."""
        if not (self.shows_other_prices or self.prices_depend):
            return savings
        hopeful = self.settings.rules.hopeful_savings
        return self.billing.saved_by([facts.name for facts in nodes], new_nodes, hopeful=hopeful)

    def _source(self, facts: NodeFacts) -> Source:
        wasted, asked = self.haste.asked_waste(facts), self.haste.restarts.asked(facts)
        source = Source(
            name=facts.name,
            instance_type=facts.instance_type,
            capacity_type=facts.capacity_type,
            price=facts.price,
            price_float=facts.price_float,
            offering_price=facts.offering_price,
            required=Fraction(*self.haste.bar(facts)),
            wasted=self.wasted(facts),
            least=Fraction(*self.haste.floor(facts)),
            asked_waste=None if wasted is None else Fraction(*wasted),
        )
        if asked is None:
            return source
        at_once, later = self.haste.restarts.launch_shares(asked)
        return replace(
            source,
            gate=Gate.RESTART_PRICE,
            restarts=Fraction(*asked.restarts),
            launch=Fraction(*at_once),
            launch_later=Fraction(*later),
        )

    def wasted(self, facts: NodeFacts) -> Money:
        """Return what a node has wasted so far."""
        known = self.question.waste.get(facts.name)
        return 0 if known is None else known.by(self.now)

    def required_savings(self, facts: NodeFacts) -> tuple[int, int]:
        """Return what removing a node has to save now, as a ratio; less once it has wasted enough."""
        if facts.name in self.question.waste:
            required = required_of(self.sources((facts,)), self.settings)
            return required.numerator, required.denominator
        return self.haste.bar(facts)

    def index_of(self, facts: NodeFacts) -> int:
        """Return the index of a node in the snapshot; -1 if the scheduler does not see it yet."""
        return self.snapshot.index.get(facts.name, -1)
