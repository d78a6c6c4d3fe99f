"""Which nodes pass gates 1 to 7 of each method in one round.

Kept from round to round by the roster as if PDBs refused nothing, because these change too often; what they refuse now
is taken off when a method asks. Sits in decide, above candidates, below the context.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dovetail.decide.facts.drainability import PdbVeto
from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.roster import ClosedGates, FirstClosed, Roster, openings_once
from dovetail.decide.facts.vetoes import Vetoes
from dovetail.decide.gates.candidates import Chains, first_closed
from dovetail.decide.gates.gate_results import GateContext
from dovetail.model.cached import cached
from dovetail.model.command import Method
from dovetail.model.objects import Pod
from dovetail.model.verdicts import Gate

_EMPTY_IS_OPEN: Final = (Method.EMPTY, None)
_FEW: Final = 16
"""Up to how many nodes are asked for their vetoes one by one, which leaves those of all others alone."""


class Passing:
    """The nodes that pass, by method.

    `gates` knows nothing of PDBs. `awaited`: returns the nodes that waiting pods would go to. `roster`: None if nothing
    may be kept; then every node runs through its chain of gates.
    """

    def __init__(
        self,
        nodes: Lineup,
        gates: GateContext,
        vetoes: Vetoes,
        chains: Chains,
        awaited: Callable[[], Mapping[str, Sequence[Pod]]],
        roster: Roster | None,
    ) -> None:
        self._nodes, self._gates, self._vetoes, self._chains = nodes, gates, vetoes, chains
        self._awaited = awaited
        self._roster = None if nodes.namesakes else roster  # vetoes are kept by name
        self._found: dict[Method, Sequence[NodeFacts]] = {}

    def of(self, method: Method) -> Sequence[NodeFacts]:
        """Return the nodes that pass, by name, ignoring budgets."""
        if method is Method.SINGLE_NODE:
            method = Method.MULTI_NODE  # they have the same gates
        found = self._found.get(method)
        if found is None:
            found = self._found[method] = self._find(method)
        return found

    def _find(self, method: Method) -> Sequence[NodeFacts]:
        opened = self._openings[0][method]
        found: Sequence[NodeFacts] = opened
        if self._roster is not None and method is Method.MULTI_NODE:
            found = self._roster.unrefused.of(opened, self._vetoed)
        elif self._roster is not None and opened:
            vetoed = self._vetoed if len(opened) > _FEW else {f.name: None for f in opened if self._vetoes.of(f)}
            found = [facts for facts in opened if facts.name not in vetoed or (method, None) in self._ask(facts)]
        if found and method is Method.EMPTY:
            awaited = self._awaited()
            found = [facts for facts in found if facts.name not in awaited]
        return found

    def _end_of(self, facts: NodeFacts) -> FirstClosed:
        found = self._openings[1][id(facts)]
        if self._roster is not None and facts.name in self._vetoed:
            found = self._ask(facts)
        if _EMPTY_IS_OPEN in found and facts.name in self._awaited():
            return tuple((method, Gate.NOMINATED if method is Method.EMPTY else gate) for method, gate in found)
        return found

    def ends(self) -> list[FirstClosed]:
        """Return where the gates of all nodes end for each method, without their sentences, by name."""
        opened, closed = self._openings
        special = {facts.name for facts in opened[Method.EMPTY]}
        if self._roster is not None:
            special.update(self._vetoed)
        ends = closed.of(self._nodes)
        if not special:
            return ends
        pairs = zip(self._nodes, ends, strict=True)
        return [self._end_of(facts) if facts.name in special else end for facts, end in pairs]

    @cached
    def _vetoed(self) -> Mapping[str, PdbVeto]:
        return self._vetoes.among(self._nodes)

    @cached
    def _openings(self) -> tuple[Mapping[Method, Lineup], ClosedGates]:
        gates = self._gates
        if self._roster is None:
            return openings_once(self._nodes, self._ask)
        return self._roster.openings.look_at(
            self._nodes, gates.managed_pools, gates.now, lambda facts: first_closed(facts, gates)
        )

    def _ask(self, facts: NodeFacts) -> FirstClosed:
        chains = self._chains.before_waiting(facts.name)
        ends = [(method, chain.results[-1]) for method, chain in chains.items()]
        return tuple([(method, None if end.passed else end.gate) for method, end in ends])
