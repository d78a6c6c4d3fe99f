"""What lifting a gate would save: one figure, for `blockers`, `explain`, the first remedy of `plan` and the metric.

It is the difference between two rounds, method by method, so that an empty node that goes first in both hides nothing:
what the empty nodes bring more, and what the best of the other methods (repair, expiry, drift, cost) brings more once
these are gone. Where only one method has something to do, that is the difference of what the two rounds do at once.
Sits in decide, above the decider.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dovetail.decide.decider import Decider
from dovetail.decide.lifts import GateLift, gate_lifts
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult, decide
from dovetail.decide.work import Work
from dovetail.model.command import COST_METHODS, Method
from dovetail.model.money import Money

_TURNS: Final = (
    (Method.EMPTY,),
    (Method.UNHEALTHY,),
    (Method.EXPIRED,),
    (Method.DRIFTED,),
    COST_METHODS,
)
"""Methods that do the same job are one: of the two cost methods only the first that has a command acts."""


class Baseline:
    """What each method saves on the input as it is, to compare changed inputs with. Not thread-safe."""

    def __init__(self, question: Question, decider: Decider | None = None) -> None:
        self._decider = decider or Decider()
        self._question = question
        self._before: Mapping[tuple[Method, ...], Money] | None = None

    def held_back(self, changed: Question) -> Money:
        """Return what the methods would save more per hour on a changed input; negative: less."""
        if self._before is None:
            self._before = _by_method(self._decider, self._question)
        before, after = self._before, _by_method(self._decider, changed)
        more = [after[turn] - before[turn] for turn in _TURNS]
        return more[0] + max(more[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSavings:
    """What the methods would save more per hour if a gate were lifted; figures of several gates don't add up."""

    lift: GateLift
    savings: Money


def held_back_by_gate(question: Question) -> Iterator[GateSavings]:
    """Yield what every gate and pool holds back, by pool and gate, those that hold back nothing too.

    Each step asks one round, so a caller with little time can take them one at a time.
    """
    decider = Decider()
    scene = decider.scene(question)
    verdicts = decider.round(question, every_method=True).verdicts
    baseline = Baseline(question)
    for lift in gate_lifts(question, scene, verdicts):
        yield GateSavings(lift=lift, savings=baseline.held_back(lift.question))


def _by_method(decider: Decider, question: Question) -> dict[tuple[Method, ...], Money]:
    """Return what the commands of each method save per hour: the others once the empty nodes are gone.

    Pods of an empty node's neighbour could move to the empty node, so each asked on the untouched input would count the
    price of one node twice.
    """
    scene = decider.scene(question)
    begun = Work(scene)  # they share what they simulate
    empty = _asked(begun, _TURNS[0])
    taken = {node for command in empty.commands for node in command.nodes}
    rest = Work(decider.scene(_without_nodes(question, taken))) if taken else begun
    return {_TURNS[0]: empty.saves, **{turn: _asked(rest, turn).saves for turn in _TURNS[1:]}}


def _asked(begun: Work, turn: tuple[Method, ...]) -> RoundResult:
    return decide(Work(begun.scene, begun), without=[method for method in Method if method not in turn])


def _without_nodes(question: Question, gone: Container[str]) -> Question:
    """Return the question once some nodes without pods that move are gone, and what runs on them with them."""
    cluster = question.cluster
    nodes = tuple(node for node in cluster.nodes if node.metadata.name not in gone)
    claims = tuple(claim for claim in cluster.node_claims if claim.status.node_name not in gone)
    pods = tuple(pod for pod in cluster.pods if pod.spec.node_name not in gone)
    return replace(question, cluster=replace(cluster, nodes=nodes, node_claims=claims, pods=pods))
