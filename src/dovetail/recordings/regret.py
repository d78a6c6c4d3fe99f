"""`dovetail regret`: what was undone, by pool, from what a recording says really happened.

A removal is undone if a node had to be opened for pending pods within the hour: each such opening undoes the latest
removal in its pool that still stands. A node that came as the replacement of a command opens nothing. Pure; the
controller's metrics `dovetail_regret_*` are the same figures of its last two hours (`live.regrets`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Self

from dovetail.recordings.lines import BY_POLICY
from dovetail.recordings.read import ClaimLife, ClusterRecording, PodLife, is_load

SHORT_LIFE: Final = timedelta(minutes=15)
WITHIN: Final = timedelta(hours=1)
_COST: Final = ("Underutilized", "Empty")


@dataclass(slots=True, kw_only=True)
class Removal:
    """A node that a policy removed for its cost, the pods that had to move, and when it had to be opened again."""

    node: str
    node_pool: str
    at: datetime
    reason: str
    pods: int
    undone: datetime | None = None


@dataclass(slots=True, kw_only=True)
class PoolRegret:
    """What was undone in one pool."""

    node_pool: str
    moves: int = 0
    undone_moves: int = 0
    undone_nodes: int = 0
    short_lived_nodes: int = 0
    moved_more_than_once: int = 0
    advice: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of `pools` of the contract."""
        return {
            "nodePool": self.node_pool,
            "moves": self.moves,
            "undoneWithinTheHour": self.undone_moves,
            "removalsUndone": self.undone_nodes,
            "shortLivedNodes": self.short_lived_nodes,
            "movedMoreThanOnce": self.moved_more_than_once,
            "advice": self.advice,
        }


def regrets(recording: ClusterRecording) -> list[PoolRegret]:
    """Return what was undone in each pool that had a node, by name."""
    pool_of = {claim.node: claim.node_pool for claim in recording.claims if claim.node}
    found = {claim.node_pool: PoolRegret(node_pool=claim.node_pool) for claim in recording.claims}
    moved = moved_pods(recording)
    for life in moved:
        if life.node in pool_of:
            found[pool_of[life.node]].moves += 1
    for removal in removals(recording, moved):
        if removal.undone is not None:
            entry = found[removal.node_pool]
            entry.undone_nodes += 1
            entry.undone_moves += removal.pods
    for claim in recording.claims:
        lived = None if claim.gone is None or claim.created is None else claim.gone - claim.created
        if lived is not None and lived < SHORT_LIFE and claim.created is not None:
            found[claim.node_pool].short_lived_nodes += claim.created >= recording.begins
    for life in moved_again(recording, moved):
        if life.node in pool_of:
            found[pool_of[life.node]].moved_more_than_once += 1
    return [found[name] for name in sorted(found)]


def moved_pods(recording: ClusterRecording) -> list[PodLife]:
    """Return the pods that had to restart because their node went, oldest end first."""
    found = [life for life in recording.pods if is_load(life) and life.why in BY_POLICY]
    ended = [(life.deleting or life.gone, life) for life in found]
    return [
        life
        for at, life in sorted(
            ((at, life) for at, life in ended if at is not None and at > recording.begins),
            key=lambda pair: (pair[0], pair[1].namespace, pair[1].name),
        )
    ]


def removals(recording: ClusterRecording, moved: Sequence[PodLife]) -> list[Removal]:
    """Return the cost removals in the order in which they began, each with the opening that undid it, if one did."""
    pods: dict[str, int] = {}
    for life in moved:
        pods[life.node] = pods.get(life.node, 0) + 1
    found = [
        Removal(
            node=claim.node,
            node_pool=claim.node_pool,
            at=claim.deleting,
            reason=claim.reason,
            pods=pods.get(claim.node, 0),
        )
        for claim in recording.claims
        if claim.reason in _COST and claim.deleting is not None and claim.deleting >= recording.begins
    ]
    found.sort(key=lambda removal: (removal.at, removal.node))
    for opening in openings(recording):
        assert opening.created is not None
        standing = [
            removal
            for removal in found
            if removal.node_pool == opening.node_pool
            and removal.undone is None
            and removal.at <= opening.created <= removal.at + WITHIN
        ]
        if standing:
            standing[-1].undone = opening.created
    return found


def openings(recording: ClusterRecording) -> list[ClaimLife]:
    """Return the nodes that were opened for pending pods, not as replacements, in order."""
    replaced = sorted(
        claim.deleting
        for claim in recording.claims
        if claim.deleting is not None and claim.reason and claim.reason != "Empty"
    )
    found = []
    for claim in recording.claims:
        if claim.created is None or claim.created <= recording.begins:
            continue
        ready = claim.ready or claim.created
        # A command deletes its candidates as soon as its replacement is ready; a node that was opened for pending pods
        # is ready without that.
        is_replacement = any(claim.created <= at and abs(at - ready) <= timedelta(seconds=20) for at in replaced)
        if not is_replacement:
            found.append(claim)
    return sorted(found, key=lambda claim: (claim.created or recording.begins, claim.name))


def moved_again(recording: ClusterRecording, moved: Sequence[PodLife]) -> list[PodLife]:
    """Return the moved pods that were themselves created because another pod of their owner was moved."""
    ends: dict[tuple[str, str, str], list[datetime]] = {}
    for life in recording.pods:
        ended = life.deleting or life.gone
        if is_load(life) and life.why in BY_POLICY and ended is not None:
            ends.setdefault(_owner(life), []).append(ended)
    found = []
    for life in moved:
        before = ends.get(_owner(life), [])
        if any(at - timedelta(seconds=2) <= life.created <= at + timedelta(minutes=1) for at in before):
            found.append(life)
    return found


def _owner(life: PodLife) -> tuple[str, str, str]:
    kind, name = life.pod_class.owner
    return (life.namespace, kind, name or life.owner or life.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretFigures:
    """What was undone in one cluster, over all its pools, for a table of several."""

    TITLE: ClassVar[str] = "What was undone, cluster by cluster"
    HEAD: ClassVar[tuple[str, ...]] = ("restarts", "undone in 1h", "<15m", "moved again")
    KEYS: ClassVar[tuple[str, ...]] = ("moves", "undoneWithinTheHour", "shortLivedNodes", "movedMoreThanOnce")

    counts: tuple[int, ...] = (0, 0, 0, 0)

    @classmethod
    def of(cls, pools: Iterable[dict[str, Any]]) -> Self:
        """Return the sums over the pools of a cluster."""
        pools = list(pools)
        return cls(counts=tuple(sum(pool[key] for pool in pools) for key in cls.KEYS))

    def plus(self, other: Self) -> Self:
        """Return the sum."""
        return type(self)(counts=tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """Return the total of the JSON document."""
        return dict(zip(self.KEYS, self.counts, strict=True))

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        return tuple(f"{count:,}" for count in self.counts)
