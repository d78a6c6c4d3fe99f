"""The verdict of every node: that of the first method, in order, that would remove it; else of the first that wants it.

A method wants a node if its own condition holds: it is unhealthy, empty, expired or drifted. A node that none of them
wants is judged by cost, at the furthest gate it reached. See docs/rules.md#gates. Continues after gate 7, where
`candidates` ends: budget, simulation, prices. Asks the same questions as the methods, so most answers are cached; nodes
that a round did not need to simulate are simulated here, which is why verdicts are computed only on access. Sits in
decide, above the methods, below the round.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import accumulate

import msgspec

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import Chain, methods_of
from dovetail.decide.gates.gate_results import passed
from dovetail.decide.gates.method_rules import wants
from dovetail.decide.gates.open_gates import FirstClosed
from dovetail.decide.methods import leaving, moves, single_node
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.methods.moves import Move
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.words import dollars
from dovetail.decide.work import Work
from dovetail.model.command import COST_METHODS, REASON_OF, Command, Method
from dovetail.model.money import Money
from dovetail.model.verdicts import ELIGIBLE, BriefVerdict, Gate, GateResult, NodeVerdict

PODS_MAX = 30_000
"""How many pods a round and its verdicts place; nodes that are not simulated by then are listed as eligible."""
FIRST_GATE_PODS_MAX = 5_000
"""Up to this many pods on candidates, hopeless nodes are simulated too, to name their first closed gate."""
_WRONG_METHOD = (Gate.NOT_UNHEALTHY, Gate.NOT_EMPTY, Gate.NOT_EXPIRED, Gate.NOT_DRIFTED)
_REACHED = {gate: (gate not in _WRONG_METHOD, place) for place, gate in enumerate(Gate)}
"""How far a node got that stopped at a gate; conditions of other methods come before all else."""
_WANTING = (Method.UNHEALTHY, Method.EMPTY, Method.EXPIRED, Method.DRIFTED)
_TAKEN = {
    Method.UNHEALTHY: "It is broken and would be repaired",
    Method.EMPTY: "It is empty and would be deleted",
    Method.EXPIRED: "It has expired and would be retired",
    Method.DRIFTED: "It has drifted and would be retired",
    Method.MULTI_NODE: "It would go together with others, to save money",
    Method.SINGLE_NODE: "It would go, to save money",
}


class Verdicts:
    """The verdicts of a round, in full or in brief; both ask the same questions in the same order."""

    def __init__(self, work: Work, runs: Mapping[Method, MethodRun]) -> None:
        self._work, self._scene, self._runs = work, work.scene, runs
        self._batch = frozenset(name for command in runs[Method.MULTI_NODE].commands for name in command.nodes)
        simulated = (Method.UNHEALTHY, Method.EXPIRED, Method.DRIFTED, Method.SINGLE_NODE)
        pods = accumulate(len(facts.reschedulable) for method in simulated for facts in work.scene.passing(method))
        count = 0
        for count in pods:
            if count > PODS_MAX:
                break
        self._thorough = count <= FIRST_GATE_PODS_MAX
        # Beyond that some nodes wait for their turn to be simulated, and which ones follows from the order of all.
        self._settled = self._thorough or count + work.pods_simulated <= PODS_MAX

    def all(self) -> tuple[NodeVerdict, ...]:
        """Return every node's verdict, by name."""
        return tuple([_verdict(facts, self._chain(facts, decided)) for facts, decided in self._decisions()])

    def of(self, node: str) -> NodeVerdict:
        """Return a node's verdict: that of `all`."""
        return _verdict(self._scene.by_name[node], self.chains(node)[1])

    def chains(self, node: str) -> tuple[Mapping[Method, Chain], Chain]:
        """Return a node's gates by method, and those of the method that its verdict goes by."""
        self._settle()
        facts = self._scene.by_name[node]
        chains = chains_of(self._work, self._runs, facts, self._batch, thorough=self._thorough)
        return chains, deciding(self._scene, facts, chains)

    def _settle(self) -> None:
        """Judge all nodes in brief, once: which ones are simulated follows from the order of all."""
        if not self._settled:
            self._settled = True
            self.brief()

    def brief(self) -> tuple[BriefVerdict, ...]:
        """Return every node's verdict without its reasons, by name."""
        return tuple(
            [
                BriefVerdict(facts.name, facts.pool_name, ELIGIBLE if gate is None else gate.value)
                for facts, (_, gate, _) in self._decisions()
            ]
        )

    def _decisions(self) -> "Iterator[tuple[NodeFacts, _Decided]]":
        """Yield what decides for every node, by name; many nodes share where their gates end."""
        self._rule_out()
        scene, batch = self._scene, self._batch
        outlooks: tuple[_Outlooks, _Outlooks] = ({}, {})
        for facts, closed in zip(scene.nodes, scene.first_closed(), strict=True):
            wanted = _wanted_by(scene, facts)
            known = outlooks[facts.name in batch]
            entry = known.get((id(closed), wanted))
            if entry is None:
                entry = known[id(closed), wanted] = self._entry(facts, closed, wanted)
            _, decided, outlook = entry
            yield facts, decided or self._decided(facts, outlook, wanted)

    def _entry(self, facts: NodeFacts, closed: FirstClosed, wanted: Method | None) -> "_Entry":
        outlook = tuple([entry for entry in closed if _is_asked(entry[0], self._runs, facts, self._batch)])
        settled = all(gate is not None for _, gate in outlook)
        return closed, self._decided(facts, outlook, wanted) if settled else None, outlook

    def _rule_out(self) -> None:
        """Find what is certain about all cost candidates at once: faster than one by one."""
        run, known = self._runs.get(Method.SINGLE_NODE), self._work.certain
        if run is None:
            return
        asked = [
            facts
            for facts in self._scene.cost_sources
            if facts.name not in known and facts.name not in run.held and facts.name not in self._batch
        ]
        if asked:
            moves.rule_out(self._work, asked)

    def _chain(self, facts: NodeFacts, decided: "_Decided") -> Chain:
        """Return the gates of the method that decides; no others are written out."""
        method, _, answer = decided
        chain = self._scene.chains.of(facts.name, method)
        return chain.then(*_in_words(self._scene, self._runs[method], facts, answer)) if chain.open else chain

    def _decided(self, facts: NodeFacts, outlook: FirstClosed, wanted: Method | None) -> "_Decided":
        """Return what `deciding` comes to."""
        gates: dict[Method, Gate | None] = {}
        answers: dict[Method, _Answer] = {}
        for method, closed in outlook:
            gate = closed
            if gate is None:
                answers[method] = _answer(self._work, self._runs[method], facts, thorough=self._thorough)
                gate = _stops(answers[method])
            gates[method] = gate
            if gate is None:
                return method, None, answers[method]
        method = _deciding_method(gates, wanted)
        return method, gates[method], answers.get(method)


_Answer = GateResult | Move | Command | Refusal | None
"""What a method says after gate 7: what holds a node back, or what comes of removing it; None: nothing refuses it."""
_Decided = tuple[Method, Gate | None, _Answer]
"""The method that decides, the gate at which it stops the node (None: it takes it), and what it says after gate 7."""
_Entry = tuple[FirstClosed, _Decided | None, FirstClosed]
"""Where the gates of nodes end, what decides for all of them (None: that may differ), and where the asked ones end."""
_Outlooks = dict[tuple[int, Method | None], _Entry]
"""By identity, and by the method that wants them."""


def _wanted_by(scene: Scene, facts: NodeFacts) -> Method | None:
    """Return the first method, in order, that wants the node; None: it is judged by cost."""
    settings, now = scene.settings, scene.now
    for method in _WANTING:
        if wants(method, facts, settings, now):
            return method
    return None


def _deciding_method(gates: Mapping[Method, Gate | None], wanted: Method | None) -> Method:
    """Return the method that decides for a node that none would take, by where each stops it: see `deciding`."""
    if wanted is not None and wanted in gates:
        return wanted
    stops = {method: _REACHED[gate] for method, gate in gates.items() if gate is not None}
    by_cost = [method for method in stops if method in COST_METHODS]
    return max(by_cost or stops, key=stops.__getitem__)


def chains_of(
    work: Work,
    runs: Mapping[Method, MethodRun],
    facts: NodeFacts,
    batch: frozenset[str],
    *,
    thorough: bool = False,
) -> dict[Method, Chain]:
    """Run one node through all gates of every method; the two cost methods share one chain.

    `thorough`: simulate every node, and apply every gate in order.
    """
    scene = work.scene
    chains = {}
    for method in methods_of(facts):
        if _is_asked(method, runs, facts, batch):
            chain = scene.chains.of(facts.name, method)
            if chain.open:
                answer = _answer(work, runs[method], facts, thorough=thorough)
                chain = chain.then(*_in_words(scene, runs[method], facts, answer))
            chains[method] = chain
    return chains


def _is_asked(method: Method, runs: Mapping[Method, MethodRun], facts: NodeFacts, batch: frozenset[str]) -> bool:
    """Return whether a method's chain counts for a node: of the two cost methods, one does."""
    if method in COST_METHODS and (facts.name in batch) != (method is Method.MULTI_NODE):
        return False
    return method in runs


def _answer(work: Work, run: MethodRun, facts: NodeFacts, *, thorough: bool) -> _Answer:
    """Return what a method says of a node that passed gates 1 to 7."""
    held = _held(work.scene, run, facts)
    if held is not None or run.method in (Method.EMPTY, Method.MULTI_NODE):
        return held
    outcome = _outcome(work, run.method, facts, thorough=thorough)
    if isinstance(outcome, Refusal):  # but it may go for a machine that only the search by value tried
        return next((command for command in run.commands if facts.name in command.nodes), outcome)
    return outcome


def _stops(answer: _Answer) -> Gate | None:
    """Return the gate at which an answer stops a node; None: it passes all."""
    return answer.gate if isinstance(answer, GateResult | Refusal) else None


def _in_words(scene: Scene, run: MethodRun, facts: NodeFacts, answer: _Answer) -> tuple[GateResult, ...]:
    """Return an answer as the results of gates 8 to 10."""
    if isinstance(answer, GateResult):
        return (answer,)
    within = _budget_passed(scene, run.method, facts)
    if run.method is Method.EMPTY:
        return (within,)
    if run.method is Method.MULTI_NODE:
        together = passed(Gate.SIMULATION, "Its pods find room, together with those of the whole batch.")
        return within, together, _saves(run.commands[0].savings, run.commands[0].required_savings, "The batch")
    if answer is None:
        return within, passed(Gate.SIMULATION, "It is simulated when its turn comes.")
    if isinstance(answer, Command):
        placed = passed(Gate.SIMULATION, leaving.why_it_goes(answer))
        if run.method is Method.SINGLE_NODE:
            return within, placed, _saves(answer.savings, answer.required_savings, "It")
        return within, placed
    if run.method is not Method.SINGLE_NODE and isinstance(answer, Refusal):
        return within, _with_sizes(scene, facts, answer.as_result())
    results = _priced(single_node.in_words(scene, facts, answer))
    return (within, *results[:-1], _with_sizes(scene, facts, results[-1]))


def _with_sizes(scene: Scene, facts: NodeFacts, result: GateResult) -> GateResult:
    """Return a refusal that also names a pod of the node that comes back with another size, if there is one."""
    snapshot = scene.snapshot
    sizes, index = snapshot.surroundings.coming, snapshot.index.get(facts.name)
    if result.passed or not sizes or index is None:
        return result
    changed = [(pod, words) for pod in snapshot.movers(index).pods if (words := sizes.words(pod))]
    if not changed:
        return result
    pod, words = changed[0]
    more = f", and {len(changed) - 1} more of its pods do with theirs" if len(changed) > 1 else ""
    return msgspec.structs.replace(result, why=f"{result.why} Its pod {pod.metadata.key} {words}{more}.")


def _held(scene: Scene, run: MethodRun, facts: NodeFacts) -> GateResult | None:
    """Return what holds a node back, whatever a simulation would say: gate 8."""
    return scene.waits.of(run.method, facts) or run.held.get(facts.name)


def _outcome(work: Work, method: Method, facts: NodeFacts, *, thorough: bool) -> Move | Command | Refusal | None:
    """Return what comes of removing a node alone; None: its turn to be simulated has not come."""
    if not thorough and _waits_for_its_turn(work, method, facts):
        return None
    if method is Method.SINGLE_NODE:
        return (single_node.judge_in_full if thorough else single_node.judge)(work, facts)
    return leaving.alone(work, method, facts)


def _waits_for_its_turn(work: Work, method: Method, facts: NodeFacts) -> bool:
    """Return whether the node's simulation is postponed: in a large cluster in which others go first anyway."""
    if work.pods_simulated < PODS_MAX or facts.empty:
        return False
    asked = facts.name in work.judged if method is Method.SINGLE_NODE else work.has_simulated(facts)
    return not asked


def _budget_passed(scene: Scene, method: Method, facts: NodeFacts) -> GateResult:
    entry = scene.ledger.allowance(facts.pool_name, REASON_OF[method])
    if method is Method.DRIFTED and any(scene.ledger.topology_budgets(facts.pool_name)):
        return passed(Gate.BUDGET, f"NodePool {facts.pool_name} has budget left for Drifted, in its domain too.")
    return passed(
        Gate.BUDGET, f"NodePool {facts.pool_name} has budget left for {REASON_OF[method].value}: {entry.left}."
    )


def _priced(outcome: Move | Refusal) -> tuple[GateResult, ...]:
    if isinstance(outcome, Refusal):
        if outcome.is_price and outcome.simulated:
            return (passed(Gate.SIMULATION, "Every pod finds a place."), outcome.as_result())
        return (outcome.as_result(),)
    approved = outcome.approved
    return (
        passed(Gate.SIMULATION, "Every pod finds a place."),
        _saves(approved.savings, approved.required, "It"),
    )


def _saves(savings: Money, required: Money | Fraction, what: str) -> GateResult:
    return GateResult(
        gate=Gate.SAVINGS_THRESHOLD,
        passed=True,
        why=f"{what} saves {dollars(savings)}/h and has to save {dollars(required)}/h.",
        figures={
            "savingsPerHour": dollars(savings, bare=True),
            "requiredSavingsPerHour": dollars(required, bare=True),
        },
    )


def deciding(scene: Scene, facts: NodeFacts, chains: Mapping[Method, Chain]) -> Chain:
    """Return the chain that decides: the first that passed all gates, else the first whose method wants the node.

    Else that of cost which got furthest.
    """
    for chain in chains.values():
        if chain.open:
            return chain
    stops = {method: chain.results[-1].gate for method, chain in chains.items()}
    return chains[_deciding_method(stops, _wanted_by(scene, facts))]


def _verdict(facts: NodeFacts, chain: Chain) -> NodeVerdict:
    last = chain.results[-1]
    return NodeVerdict(
        node=facts.name,
        node_pool=facts.pool_name,
        verdict=ELIGIBLE if last.passed else last.gate.value,
        why=f"{_TAKEN[chain.method]}." if last.passed else last.why,
        gates=chain.results,
    )
