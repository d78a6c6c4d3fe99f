"""How far the roll of a NodePool is: how many nodes were to be replaced, and how many of them have been.

The total is fixed when the roll begins and kept on the NodePool (`api.rolling`), so that nodes of a scale-up don't
count as replaced; it grows only if more nodes drift. Without it, on a capture, the nodes that came after the roll began
count as replaced. Design: topology-budgets for the domains. Sits in decide, below the methods.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from dovetail.api.roll_request import read_request
from dovetail.api.rolling import NO_DOMAIN, Rollout, RollPart, read_rollout
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import domain_of
from dovetail.decide.scene import Scene
from dovetail.model.objects import NodePool

_STEPS: Final = 20
"""In how many steps the progress of a large pool is written down."""


class RollCause(StrEnum):
    """Why nodes are replaced."""

    DRIFT = "drift"
    REQUEST = "request"


class RollProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A roll in figures. `to_go`: the nodes that are still to be replaced, those in flight included.

    `key`: the label whose domains the parts are; empty: the pool has no topology budget, and there is one part.
    """

    node_pool: str
    cause: RollCause
    began: datetime
    key: str
    parts: tuple[RollPart, ...]
    to_go: tuple[NodeFacts, ...]

    @property
    def total(self) -> int:
        """Return how many nodes were to be replaced."""
        return sum(part.total for part in self.parts)

    @property
    def replaced(self) -> int:
        """Return how many of them have been."""
        return sum(part.replaced for part in self.parts)

    @property
    def unjudged(self) -> tuple[NodeFacts, ...]:
        """Return the nodes that Karpenter has not found drifted yet, but will."""
        return tuple(facts for facts in self.to_go if not facts.drifted)


def progress_of(scene: Scene, pool: NodePool, nodes: Sequence[NodeFacts]) -> RollProgress | None:
    """Return how far a pool's roll is; None: nothing is to be replaced. `nodes`: its nodes that have a NodeClaim."""
    to_go = tuple(facts for facts in nodes if facts.drifted or facts.will_drift)
    kept = read_rollout(pool)
    if not to_go:
        return None
    began = kept.began or min((facts.drifted_since for facts in to_go if facts.drifted_since), default=scene.now)
    key = topology_key(scene, pool)
    known = kept if kept.parts and kept.key == key else None
    parts = _counted(known, to_go, key) if known else _guessed(nodes, to_go, began, key)
    cause = RollCause.REQUEST if any(facts.roll for facts in to_go) else RollCause.DRIFT
    return RollProgress(
        node_pool=pool.metadata.name, cause=cause, began=min(began, scene.now), key=key, parts=parts, to_go=to_go
    )


def topology_key(scene: Scene, pool: NodePool) -> str:
    """Return the label of the pool's topology budget for drift, the sequential one first; empty: it has none."""
    parallel, sequential = scene.ledger.topology_budgets(pool.metadata.name)
    return next((budget.topology_key for budget in (sequential, *parallel) if budget is not None), "")


def by_domain(nodes: Iterable[NodeFacts], key: str) -> dict[str, int]:
    """Count nodes by their domain of a label; without a label there is one domain."""
    counts: dict[str, int] = {}
    for facts in nodes:
        domain = domain_of(facts, key) if key else NO_DOMAIN
        counts[domain] = counts.get(domain, 0) + 1
    return counts


def _counted(kept: Rollout, to_go: Sequence[NodeFacts], key: str) -> tuple[RollPart, ...]:
    """Return the parts by the totals on the NodePool: what is not there any more was replaced."""
    left, parts = by_domain(to_go, key), []
    for part in kept.parts:
        here = left.pop(part.domain, 0)
        replaced = max(part.replaced, part.total - here)
        parts.append(RollPart(domain=part.domain, total=replaced + here, replaced=replaced))
    parts += [RollPart(domain=domain, total=count) for domain, count in left.items()]
    return tuple(sorted(parts, key=lambda part: part.domain))


def _guessed(nodes: Sequence[NodeFacts], to_go: Sequence[NodeFacts], began: datetime, key: str) -> tuple[RollPart, ...]:
    """Return the parts by the nodes alone: those that came after the roll began count as replaced."""
    left = by_domain(to_go, key)
    going = {facts.name for facts in to_go}
    came = [facts for facts in nodes if facts.name not in going and facts.created and facts.created > began]
    new = by_domain(came, key)
    return tuple(
        RollPart(domain=domain, total=left.get(domain, 0) + new.get(domain, 0), replaced=new.get(domain, 0))
        for domain in sorted({**left, **new})
    )


def totals_to_keep(kept: Rollout, progress: RollProgress) -> tuple[RollPart, ...]:
    """Return the parts to write on the NodePool: those that are there, unless they have become too old.

    At the start nothing counts as replaced. The progress of a large pool is written in steps, not node by node.
    """
    if kept.began is None or not kept.parts or kept.key != progress.key:
        left = ((part.domain, part.total - part.replaced) for part in progress.parts)
        return tuple(RollPart(domain=domain, total=count) for domain, count in left if count)
    before = {part.domain: part for part in kept.parts}
    for part in progress.parts:
        known = before.get(part.domain)
        if known is None or known.total != part.total:
            return progress.parts
        ahead = part.replaced - known.replaced
        if ahead and (ahead * _STEPS >= part.total or part.replaced == part.total):
            return progress.parts
    return kept.parts


def is_asked(scene: Scene, pool: NodePool, nodes: Sequence[NodeFacts]) -> bool | None:
    """Return whether a request on the NodePool still asks for nodes; None: there is none."""
    request = read_request(pool) if scene.settings.rules.roll_requests else None
    return None if request is None else any(request.covers(facts.created) for facts in nodes)
