"""The shape of every method: what it would do, and what blocked each of the others.

Values and two small steps that several methods take; no method is known here. Sits in decide, below the methods.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence

import msgspec

from dovetail.api.rolling import named_domain
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import Allowance, DomainAllowance
from dovetail.decide.gates.gate_results import stopped
from dovetail.decide.outcome import BlockedMove, RollChange
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock, dollars, nanoseconds, seconds
from dovetail.model.cached import cached
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.policies.policy import Reason
from dovetail.model.verdicts import Gate, GateResult


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """A node that goes by waste; `wait`: the nanoseconds in which age alone lets it go at once; 0: never."""

    facts: NodeFacts
    wait: int


class MethodRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a method found on the untouched snapshot.

    `held`: candidates that a budget blocked, by node name. `refused`: sets of nodes that were judged and refused.
    `aside`: nodes that were refused for certain, each alone, and go by waste later (`decide.waste`); their refusals are
    written when they are read. `rolling`: what NodePools should say about their rolls.
    """

    method: Method
    commands: tuple[Command, ...] = ()
    held: Mapping[str, GateResult] = msgspec.field(default_factory=dict)
    refused: tuple[tuple[tuple[NodeFacts, ...], Refusal], ...] = ()
    aside: tuple[SetAside, ...] = ()
    rolling: tuple[RollChange, ...] = ()


def budget_result(scene: Scene, method: Method, pool: str) -> GateResult:
    """Build the result that a pool's flat budget has nothing left for the method's reason."""
    reason = REASON_OF[method]
    allowance: Allowance = scene.ledger.allowance(pool, reason)
    budget = allowance.budget
    if allowance.held is not None:
        return allowance.held
    if budget is not None and budget.per is not None and budget.problem is None:
        return _rate_result(scene, pool, reason, allowance)
    if budget is not None and budget.problem is not None:
        why = f"Budget {budget.index + 1} of NodePool {pool} can't be read ({budget.problem}): it allows nothing."
    else:
        which = "" if budget is None else f"budget {budget.index + 1} (nodes: {budget.nodes}) "
        why = (
            f"NodePool {pool} has no budget left for {reason.value}: {which}allows {allowance.allowed}, "
            f"{allowance.used} used."
        )
    return stopped(
        Gate.BUDGET,
        why,
        nodePool=pool,
        reason=reason.value,
        allowed=allowance.allowed,
        used=allowance.used,
        left=allowance.left,
    )


def _rate_result(scene: Scene, pool: str, reason: Reason, allowance: Allowance) -> GateResult:
    """Build the result that a rate budget is used up, and when the next node may leave."""
    budget = allowance.budget
    assert budget is not None
    assert budget.per is not None
    free_at, span = allowance.free_at, nanoseconds(budget.per)
    when = "" if free_at is None else f" The next may go at {clock(free_at)}, in {seconds(free_at - scene.now)}."
    return stopped(
        Gate.BUDGET,
        f"NodePool {pool} has no budget left for {reason.value}: budget {budget.index + 1} allows {allowance.allowed} "
        f"per {span}, {allowance.used} began to leave.{when}",
        nodePool=pool,
        reason=reason.value,
        allowed=allowance.allowed,
        used=allowance.used,
        left=allowance.left,
        per=span,
        nextAt=None if free_at is None else clock(free_at),
    )


def domain_result(pool: str, entry: DomainAllowance) -> GateResult:
    """Build the result that a topology budget blocks a drifted node: not its domain's turn, or it is used up."""
    key, domain = entry.budget.topology_key, entry.domain
    if not entry.active:
        why = (
            f"Drift of NodePool {pool} goes one {key} at a time and is in {entry.active_domain} now; this node is in "
            f"{domain}."
        )
    elif entry.in_line:
        why = (
            f"Others in {key} {domain} of NodePool {pool} drifted earlier and go first: nodes {entry.budget.nodes} of "
            f"{entry.nodes}, {entry.in_flight} in flight."
        )
    else:
        why = (
            f"{key} {domain} of NodePool {pool} has no drift budget left: nodes {entry.budget.nodes} of "
            f"{entry.nodes}, {entry.in_flight} in flight."
        )
    return stopped(
        Gate.TOPOLOGY_BUDGET,
        why,
        nodePool=pool,
        topologyKey=key,
        domain=named_domain(entry.domain),
        activeDomain=None if entry.active_domain is None else named_domain(entry.active_domain),
        nodes=entry.nodes,
        inFlight=entry.in_flight,
        left=entry.left,
    )


def take_within(
    candidates: Sequence[NodeFacts], left: MutableMapping[str, int]
) -> tuple[list[NodeFacts], list[NodeFacts]]:
    """Take candidates in order while their pool has budget; return them and the others."""
    taken: list[NodeFacts] = []
    waiting: list[NodeFacts] = []
    pools = sum(amount > 0 for amount in left.values())
    for place, facts in enumerate(candidates):
        if not pools:
            waiting.extend(candidates[place:])
            break
        if left[facts.pool_name] > 0:
            left[facts.pool_name] -= 1
            pools -= not left[facts.pool_name]
            taken.append(facts)
        else:
            waiting.append(facts)
    return taken, waiting


class OutOfBudget(Mapping[str, GateResult]):
    """The results of nodes whose pool had no budget left for them, by name; built when first asked for.

    Thousands may wait, and only their verdicts say why.
    """

    def __init__(self, scene: Scene, method: Method, nodes: Sequence[NodeFacts], pools: Iterable[str]) -> None:
        """Keep the result of each of their pools, but not the scene: it may refer to this."""
        self._said = {pool: budget_result(scene, method, pool) for pool in pools}
        self._nodes = nodes

    @cached
    def _found(self) -> dict[str, GateResult]:
        return {facts.name: self._said[facts.pool_name] for facts in self._nodes}

    def __getitem__(self, node: str) -> GateResult:
        """Return the result of a node."""
        return self._found[node]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the nodes."""
        return iter(self._found)

    def __len__(self) -> int:
        """Count the nodes."""
        return len(self._nodes)


def out_of_budget(scene: Scene, method: Method, nodes: Sequence[NodeFacts]) -> dict[str, GateResult]:
    """Build the results of nodes whose pool had no budget left for them."""
    return dict(OutOfBudget(scene, method, nodes, dict.fromkeys(facts.pool_name for facts in nodes)))


def with_budget(
    scene: Scene, method: Method, candidates: Sequence[NodeFacts]
) -> tuple[Sequence[NodeFacts], Mapping[str, GateResult]]:
    """Return the candidates whose pool has budget left, and the results of the others."""
    shut = {pool for pool, left in scene.left(method).items() if left <= 0}
    if not shut:
        return candidates, {}
    waiting = [facts for facts in candidates if facts.pool_name in shut]
    return [facts for facts in candidates if facts.pool_name not in shut], OutOfBudget(scene, method, waiting, shut)


def blocked_move(nodes: Sequence[NodeFacts], refusal: Refusal) -> BlockedMove:
    """Build the record of a cost action that the savings threshold refused; a batch's figures are marked as such."""
    pools = tuple(sorted({facts.pool_name for facts in nodes}))
    if len(nodes) > 1:
        which = f"NodePool {pools[0]}" if len(pools) == 1 else f"NodePools {', '.join(pools)}"
        why = (
            f"As one batch, {len(nodes)} nodes of {which} would save {dollars(refusal.savings)}/h; restarting "
            f"their pods must save at least {dollars(refusal.required)}/h."
        )
        refusal = Refusal(gate=refusal.gate, why=why, savings=refusal.savings, required=refusal.required)
    return BlockedMove(nodes=tuple([facts.name for facts in nodes]), node_pools=pools, refusal=refusal)
