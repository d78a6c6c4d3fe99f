"""One node's part of a round: its verdict, its gates by method, and the command of that round that takes it.

Asks the round that `plan` shows, whatever the search and the policy; decides nothing itself. Sits in plan, below
`counterfactual` and `explanation`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.decide.decider import Decider
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.question import Question
from dovetail.decide.refusal import PRICE_GATES
from dovetail.decide.round import RoundResult, decide
from dovetail.decide.work import Work
from dovetail.model.command import Command, Method
from dovetail.model.verdicts import Gate, GateResult, NodeVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """A node's part of one round: its verdict, every method's gates, and the command of that round that takes it."""

    facts: NodeFacts
    verdict: NodeVerdict
    chains: Mapping[Method, Chain]
    deciding: Chain
    command: Command | None
    result: RoundResult
    work: Work

    @property
    def eligible(self) -> bool:
        """Return whether some method would remove it, in this round or a later one."""
        return self.deciding.open

    @property
    def last(self) -> GateResult:
        """Return the gate that it reached."""
        return self.deciding.results[-1]

    @property
    def preferences(self) -> tuple[str, ...]:
        """Return preferences that open a new node and so may block it; `preferencePolicy: Ignore` drops them.

        As in Karpenter, a preference is first treated as required, so it can open a node although there is room
        elsewhere.
        """
        asked = self.last.gate in PRICE_GATES or self.last.gate is Gate.NEW_NODES
        if self.eligible or not asked or self.work.scene.index_of(self.facts) < 0:
            return ()
        found = self.work.simulate((self.facts,), for_cost=True).new_nodes
        return tuple(
            sorted({text for node in found if not node.serves_only_others for text in node.kept_preferences()})
        )


def ask(question: Question, node: str, decider: Decider | None = None) -> NodeAnswer | None:
    """Ask the round and return one node's part of the answer; None if there is no such node."""
    work = Work((decider or Decider(memory=False)).scene(question))
    facts = work.scene.by_name.get(node)
    if facts is None:
        return None
    result = decide(work)
    chains, chain = result.chains(node)
    return NodeAnswer(
        facts=facts,
        verdict=result.verdict(node),
        chains=chains,
        deciding=chain,
        command=next((command for command in result.commands if node in command.nodes), None),
        result=result,
        work=work,
    )
