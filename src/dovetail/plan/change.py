"""`dovetail diff`: what applying manifests does to a cluster, before anybody applies them.

Which nodes drift is Karpenter's own rule: the hash of the template (`api.pool_hash`, with the CRD's defaults) differs
from the one on the NodeClaim, or the claim's labels no longer meet the pool's requirements. What a NodeClass changes is
up to its provider and is not predicted. Plans before and after are the core's own. Pure; `cli.planning.diff` prints it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as change

from dovetail.api.drift import unmet_requirement
from dovetail.api.pool_hash import POOL_HASH_VERSION, pool_hash
from dovetail.decide.document import Json
from dovetail.decide.gates.budgets import domain_of
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.model import names
from dovetail.model.cluster import FIELD_OF, Cluster
from dovetail.model.command import Method
from dovetail.model.money import Money, format_money
from dovetail.model.objects import AnyObject, Condition, NodeClaim, NodePool, is_true
from dovetail.plan.pace import Departing, Pace, pace_of
from dovetail.plan.to_end import ToEnd, plan_to_end
from dovetail.plan.whole import rounds_within

_TEMPLATE: Final = "spec.template"
_HASHED: Final = ("taints", "startup_taints", "node_class_ref", "termination_grace_period", "expire_after")
_WRITTEN: Final = {
    "taints": "taints",
    "startup_taints": "startupTaints",
    "node_class_ref": "nodeClassRef",
    "termination_grace_period": "terminationGracePeriod",
    "expire_after": "expireAfter",
}
_EXPIRE_AFTER: Final = "720h"
END_SIZE_MAX: Final = 2000
"""Up to how many nodes the rounds to the end are planned for both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolDrift:
    """The nodes of a pool that drift by a change, the fields that cause it, and nodes that no longer drift."""

    node_pool: str
    nodes: tuple[str, ...]
    fields: tuple[str, ...]
    settled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The cluster before or after a change: its bill, its next round, and where all rounds lead, if that was asked."""

    first: RoundResult
    end: ToEnd | None

    @property
    def cost(self) -> Money:
        """Return the bill of an hour."""
        return self.first.cost_per_hour

    @property
    def commands(self) -> int:
        """Return how many commands the next round has."""
        return len(self.first.commands)

    def to_dict(self) -> Json:
        """Return PLAN-SUMMARY of the contract."""
        return {
            "costPerHour": format_money(self.cost),
            "actions": self.commands,
            "endCostPerHour": None if self.end is None else format_money(self.end.cost),
            "endPodsMoved": None if self.end is None else self.end.pods_moved,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestChange:
    """What manifests do to a cluster. `new_pools`: pools that are not there yet, and how many nodes they would get.

    `roll`: how long the drifting nodes take that can go. `blocked`: those that can't; `never`: what keeps the roll from
    ending, in words.
    """

    drifts: tuple[PoolDrift, ...]
    roll: Pace | None
    before: Side
    after: Side
    blocked: tuple[str, ...] = ()
    never: str = ""
    new_pools: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def drifting(self) -> int:
        """Return how many nodes drift."""
        return sum(len(entry.nodes) for entry in self.drifts)

    @property
    def costs_more(self) -> Money:
        """Return by how much the bill per hour rises where all rounds lead; negative if it falls."""
        if self.before.end is None or self.after.end is None:
            return self.after.cost - self.before.cost
        return self.after.end.cost - self.before.end.cost

    def to_dict(self) -> Json:
        """Return the JSON of `dovetail diff`, without the findings."""
        roll = None
        if self.roll is not None:
            end = None if self.roll.end is None or self.never else clock(self.roll.end)
            roll = {"nodes": self.drifting, "expectedEnd": end, "pacedBy": self.roll.paced_by}
            roll |= {"blocked": len(self.blocked), "never": self.never} if self.never else {}
        return {
            "drifts": [
                {"nodePool": entry.node_pool, "nodes": len(entry.nodes), "fields": list(entry.fields)}
                | ({"settled": len(entry.settled)} if entry.settled else {})
                for entry in self.drifts
            ],
            "roll": roll,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "newPools": [{"nodePool": pool, "nodes": nodes} for pool, nodes in self.new_pools],
            "warnings": list(self.warnings),
        }


def change_of(question: Question, applied: Sequence[AnyObject], classes: Sequence[str] = ()) -> ManifestChange:
    """Return what applying objects does; `classes`: NodeClasses among them, `Kind name`, which are not predicted."""
    cluster = question.cluster
    known = {pool.metadata.name: pool for pool in cluster.node_pools}
    changed = _applied(cluster, applied)
    drifts = tuple(_drifts(cluster, changed))
    changed = replace(changed, node_claims=tuple(_judged(changed.node_claims, drifts, question)))
    later = replace(question, cluster=changed)
    before, after = _side(question), _side(later)
    stuck = _stuck(later, drifts, after.first)
    fresh = [pool.metadata.name for pool in changed.node_pools if pool.metadata.name not in known]
    opened = [] if after.end is None else [each for step in after.end.steps for some in step.launched for each in some]
    return ManifestChange(
        drifts=drifts,
        roll=_roll(later, drifts, stuck.keys()),
        blocked=tuple(sorted(stuck)),
        never=next(iter(stuck.values()), ""),
        before=before,
        after=after,
        new_pools=tuple((pool, sum(each.node_pool == pool for each in opened)) for pool in fresh),
        warnings=tuple(_warnings(question, applied, classes, fresh)),
    )


def _applied(cluster: Cluster, objects: Iterable[AnyObject]) -> Cluster:
    """Return the cluster with objects applied; a NodePool keeps what the API server and controllers wrote on it."""
    columns: dict[str, dict[tuple[str, str], AnyObject]] = {}
    for item in objects:
        name = FIELD_OF[type(item)]
        column = columns.get(name)
        if column is None:
            column = {_key(entry): entry for entry in getattr(cluster, name)}
            columns[name] = column
        old = column.get(_key(item))
        column[_key(item)] = _merged(old, item) if isinstance(old, NodePool) and isinstance(item, NodePool) else item
    ordered = {name: tuple(column[key] for key in sorted(column)) for name, column in columns.items()}
    return replace(cluster, **ordered)  # type: ignore[arg-type] # each column under its own name


def _key(item: AnyObject) -> tuple[str, str]:
    return item.metadata.namespace, item.metadata.name


def _merged(old: NodePool, new: NodePool) -> NodePool:
    meta = change(
        old.metadata,
        labels={**old.metadata.labels, **new.metadata.labels},
        annotations={**old.metadata.annotations, **new.metadata.annotations, names.NODEPOOL_HASH: pool_hash(new)},
    )
    return change(new, metadata=meta, status=old.status)


# ---------------------------------------------------------------- drift


def _drifts(before: Cluster, after: Cluster) -> Iterator[PoolDrift]:
    old = {pool.metadata.name: pool for pool in before.node_pools}
    claims: dict[str, list[NodeClaim]] = {}
    for claim in before.node_claims:
        claims.setdefault(claim.metadata.labels.get(names.NODEPOOL, ""), []).append(claim)
    for pool in after.node_pools:
        was = old.get(pool.metadata.name)
        if was is None or was.spec.template == pool.spec.template:
            continue
        own = claims.get(pool.metadata.name, [])
        nodes = [_node(claim) for claim in own if _drifts_by(pool, was, claim) and not _drifts_by(was, was, claim)]
        settled = [_node(claim) for claim in own if not _drifts_by(pool, was, claim) and _drifts_by(was, was, claim)]
        if nodes or settled:
            fields = tuple(changed_fields(was, pool, own))
            yield PoolDrift(
                node_pool=pool.metadata.name, nodes=tuple(sorted(nodes)), fields=fields, settled=tuple(sorted(settled))
            )


def _node(claim: NodeClaim) -> str:
    return claim.status.node_name or claim.metadata.name


def _drifts_by(pool: NodePool, was: NodePool, claim: NodeClaim) -> bool:
    """Return whether Karpenter would call a claim drifted from this template.

    A claim without the annotation counts as launched from the template that the cluster has now.
    """
    annotations = claim.metadata.annotations
    version = annotations.get(names.NODEPOOL_HASH_VERSION, POOL_HASH_VERSION)
    own = annotations.get(names.NODEPOOL_HASH) or pool_hash(was)
    if version == POOL_HASH_VERSION and own != pool_hash(pool):
        return True
    return unmet_requirement(pool, claim) is not None


def changed_fields(was: NodePool, pool: NodePool, claims: Iterable[NodeClaim] = ()) -> Iterator[str]:
    """Yield the fields of the template that make nodes drift, as they are written."""
    old, new = was.spec.template, pool.spec.template
    for name in ("labels", "annotations"):
        if getattr(old.metadata, name) != getattr(new.metadata, name):
            yield f"{_TEMPLATE}.metadata.{name}"
    for name in _HASHED:
        pair = [getattr(side.spec, name) for side in (old, new)]
        if name == "expire_after":
            pair = [value or _EXPIRE_AFTER for value in pair]
        probe = change(was, spec=change(was.spec, template=change(old, spec=change(old.spec, **{name: pair[1]}))))
        if pair[0] != pair[1] and pool_hash(probe) != pool_hash(was):
            yield f"{_TEMPLATE}.spec.{_WRITTEN[name]}"
    if old.spec.requirements != new.spec.requirements:
        keys = {key for claim in claims if (key := unmet_requirement(pool, claim)) is not None}
        yield from (f"{_TEMPLATE}.spec.requirements[{key}]" for key in sorted(keys))


def _judged(claims: Iterable[NodeClaim], drifts: Sequence[PoolDrift], question: Question) -> Iterator[NodeClaim]:
    """Yield the claims with the condition that Karpenter would give them."""
    nodes = {node for entry in drifts for node in entry.nodes}
    settled = {node for entry in drifts for node in entry.settled}
    for claim in claims:
        node = _node(claim)
        kept = tuple(entry for entry in claim.status.conditions if entry.type != names.CONDITION_DRIFTED)
        if node in nodes and not is_true(claim.status.conditions, names.CONDITION_DRIFTED):
            drifted = Condition(type=names.CONDITION_DRIFTED, status="True", last_transition_time=question.now)
            yield change(claim, status=change(claim.status, conditions=(*kept, drifted)))
        elif node in settled:
            yield change(claim, status=change(claim.status, conditions=kept))
        else:
            yield claim


# ---------------------------------------------------------------- plans and the roll


def _side(question: Question) -> Side:
    size = len(question.cluster.nodes)
    rounds = rounds_within(size + len(question.cluster.pods)) if size > END_SIZE_MAX else None
    if rounds is not None:
        return Side(first=plan_to_end(question, 1).first, end=None)
    end = plan_to_end(question)
    return Side(first=end.first, end=end)


def _stuck(question: Question, drifts: Sequence[PoolDrift], after: RoundResult) -> dict[str, str]:
    """Return the drifting nodes that something keeps from ever going, and what, as `rollout status` says it."""
    managed = question.managed_pools
    own = {entry.node_pool: frozenset(entry.nodes) for entry in drifts if entry.nodes}
    return {
        blocker.node: status.why.removeprefix("never, while ")
        for status in (after.rollouts if own else ())
        if status.expected_end is None and (managed is None or status.node_pool in managed)
        for blocker in status.blockers
        if blocker.node in own.get(status.node_pool, ())
    }


def _roll(question: Question, drifts: Sequence[PoolDrift], stuck: Collection[str]) -> Pace | None:
    """Return how long it takes to replace the drifting nodes one by one, as the budgets of their pools allow."""
    if not any(entry.nodes for entry in drifts):
        return None
    nodes = [(entry.node_pool, node) for entry in drifts for node in entry.nodes if node not in stuck]
    scene = Scene.of(question)
    facts = {each.name: each for each in scene.nodes}
    keys = {
        pool: tuple(dict.fromkeys(budget.topology_key for budget in policy.budgets if budget.topology_key))
        for pool, policy in scene.policies.items()
    }

    def domains(pool: str, node: str) -> dict[tuple[str, str], str]:
        return {(pool, key): domain_of(facts[node], key) for key in keys.get(pool, ()) if node in facts}

    ordered = sorted(nodes, key=lambda pair: (pair[0], tuple(domains(*pair).values()), pair[1]))
    return pace_of(
        scene,
        (
            Departing(
                method=Method.DRIFTED,
                nodes={pool: 1},
                names=(node,),
                opened=((f"{node}-new", pool),),
                domains=domains(pool, node),
            )
            for pool, node in ordered
        ),
    )


def _warnings(
    question: Question, applied: Sequence[AnyObject], classes: Sequence[str], fresh: Sequence[str]
) -> Iterator[str]:
    for name in classes:
        yield f"NOT PREDICTED: {name}. Its provider decides what a change of a NodeClass replaces; its nodes may drift"
    cluster = question.cluster
    changed = {item.metadata.name for item in applied if isinstance(item, NodePool)}
    bare = versions = 0
    for claim in cluster.node_claims:
        if claim.metadata.labels.get(names.NODEPOOL, "") in changed:
            bare += names.NODEPOOL_HASH not in claim.metadata.annotations
            version = claim.metadata.annotations.get(names.NODEPOOL_HASH_VERSION, POOL_HASH_VERSION)
            versions += version != POOL_HASH_VERSION
    if bare:
        yield f"{bare:,} NodeClaims carry no hash of their template: they are taken to be of the current one"
    if versions:
        yield f"{versions:,} NodeClaims carry a hash of another version: their drift by the template is not predicted"
    for name in fresh:
        yield f"NodePool {name} is new: no node drifts by it; pending pods and replacements may go there"
    if len(cluster.nodes) > END_SIZE_MAX:
        yield f"{len(cluster.nodes):,} nodes: where all rounds lead is not computed; see dovetail plan --to-end"
    yield from cluster.notes
