"""What NodePools should say about their rolls after a round: domains, totals, and requests that are over.

Puts together what `methods.turns` says about the domains and `progress` about the figures. The engine writes it, and
`plan --to-end` keeps it from round to round. Sits in decide, above `turns` and `progress`, below `drifted`.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from dovetail.api.roll_request import read_request
from dovetail.api.rolling import NOT_ROLLING, Rollout, read_rolling, read_rollout, written_on
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.methods.turns import PoolTurn, TurnOutcome
from dovetail.decide.outcome import RollChange
from dovetail.decide.rollouts.progress import is_asked, progress_of, totals_to_keep
from dovetail.decide.scene import Scene
from dovetail.model.objects import NodePool


def roll_changes(scene: Scene, turns: Mapping[str, PoolTurn], *, tried: bool) -> Iterator[RollChange]:
    """Yield the pools whose annotations should say something else about their roll."""
    there, rolling = scene.table.claimed_pools(), scene.table.rolling_pools()
    for pool in scene.snapshot.cluster.node_pools if scene.settings.rules.roll_requests else ():
        name, seen = pool.metadata.name, written_on(pool)
        if name not in there and not any(seen):
            continue
        own = nodes_by_pool(scene).get(name, []) if name in rolling or read_request(pool) is not None else []
        turn = turns.get(name)
        found = _without_turn(scene, pool) if turn is None else turn.outcome(tried=tried)
        rollout = _with_totals(scene, pool, own, found.rollout)
        if rollout == NOT_ROLLING and found.domain is not None:
            rollout = found.rollout
        over = is_asked(scene, pool, own) is False
        if (found.domain, rollout) == (read_rolling(pool), read_rollout(pool)) and not over:
            continue
        yield RollChange(
            node_pool=name,
            seen=seen,
            domain=found.domain,
            rollout=rollout,
            left_behind=found.left_behind,
            finished=found.finished,
            request_over=over,
        )


def nodes_by_pool(scene: Scene) -> dict[str, list[NodeFacts]]:
    """Return the nodes that have a NodeClaim, by pool."""
    found: dict[str, list[NodeFacts]] = {}
    for facts in scene.nodes:
        if facts.claim is not None:
            found.setdefault(facts.pool_name, []).append(facts)
    return found


def _without_turn(scene: Scene, pool: NodePool) -> TurnOutcome:
    """Return what a pool keeps whose sequential budget does not apply now: nothing, if it has none at all."""
    budgets = scene.policies[pool.metadata.name].budgets
    mark, rollout = read_rolling(pool), read_rollout(pool)
    if any(budget.sequential for budget in budgets):
        return TurnOutcome(domain=mark, rollout=rollout)
    return TurnOutcome(domain=None, rollout=replace(rollout, turns=(), left_behind=()))


def _with_totals(scene: Scene, pool: NodePool, nodes: list[NodeFacts], rollout: Rollout) -> Rollout:
    """Return what is kept of the roll with its totals; nothing once no node is to be replaced any more."""
    progress = progress_of(scene, pool, nodes)
    if progress is None:
        return NOT_ROLLING
    parts = totals_to_keep(read_rollout(pool), progress)
    return replace(rollout, began=progress.began, key=progress.key, parts=parts)
