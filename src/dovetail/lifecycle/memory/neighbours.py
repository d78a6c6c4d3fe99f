"""Notices another controller that disrupts a managed pool, by the marks that it leaves on the pool's objects.

Two controllers that take nodes out of one pool undo each other's work and overdraw its budgets together. So Dovetail
stands back: it writes a halt on the NodePool, which survives a restart and ends with `dovetail resume`. Only marks
count that Dovetail itself never writes, so that a predecessor's commands can't be taken for somebody else's
(docs/decisions/0020-neighbours-are-known-by-their-marks.md). Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable
from typing import Final

from dovetail.api.pool_marks import Halt, read_halt, write_halt
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.messages import EvictionSeen, HaltPool, InstructionFailed, InstructionSucceeded
from dovetail.lifecycle.reports import NeighbourNoticed
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim, NodePool, condition
from dovetail.model.policies.reasons import Reason

HELD_BEFORE: Final = 60 * SECOND
"""How long a pool must have been managed before signs on claims count: Karpenter may have begun before the hold."""
_AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
_CAST_LABEL: Final = "autoscaling.cast.ai/draining"
_CAST_REBALANCING: Final = "rebalancing"
"""The other values of that label are interruptions of spot machines, and people."""
_BALANCING: Final = ("HighNodeUtilization", "LowNodeUtilization")
"""The descheduler's strategies that empty or fill nodes, which is Dovetail's own work. Others move single pods."""
_VOLUNTARY: Final = (Reason.EMPTY.value, Reason.UNDERUTILIZED.value, Reason.DRIFTED.value)


def notice_node(known: Node | None, node: Node) -> NeighbourNoticed | None:
    """Return what a change of a node shows of another controller, if anything."""
    pool, name = node.metadata.labels.get(names.NODEPOOL, ""), node.metadata.name
    if _is_autoscalers(node) and not (known is not None and _is_autoscalers(known)):
        return NeighbourNoticed(
            pool=pool,
            neighbour="cluster-autoscaler",
            node=name,
            what=f"put the taint {_AUTOSCALER_TAINT} on node {name}",
        )
    if _is_rebalanced(node) and not (known is not None and _is_rebalanced(known)):
        what = f"drains node {name} for rebalancing"
        return NeighbourNoticed(pool=pool, neighbour="CAST AI", node=name, what=what)
    return None


def notice_claim(known: NodeClaim | None, claim: NodeClaim, node: Node | None) -> NeighbourNoticed | None:
    """Return what a change of a NodeClaim shows of another controller, if anything; `node`: its own."""
    if known is None or known.metadata.uid != claim.metadata.uid or claim.metadata.deletion_timestamp is not None:
        return None
    pool, name = claim.metadata.labels.get(names.NODEPOOL, ""), claim.metadata.name
    before, after = known.metadata.annotations, claim.metadata.annotations
    hashes = before.get(names.NODEPOOL_HASH), after.get(names.NODEPOOL_HASH)
    versions = before.get(names.NODEPOOL_HASH_VERSION), after.get(names.NODEPOOL_HASH_VERSION)
    if None not in hashes and hashes[0] != hashes[1] and versions[0] == versions[1]:
        what = f"rewrote {names.NODEPOOL_HASH} on NodeClaim {name}, by which Karpenter knows drift (k-belt does that)"
        return NeighbourNoticed(pool=pool, neighbour="hash-rewriter", node=claim.status.node_name, what=what)
    # Dovetail writes this condition only on claims that are being deleted already.
    why = condition(claim.status.conditions, names.CONDITION_DISRUPTION_REASON)
    was = condition(known.status.conditions, names.CONDITION_DISRUPTION_REASON)
    began = why is not None and why.status == "True" and why.reason in _VOLUNTARY
    if began and (was is None or was.status != "True") and node is not None and names.HOLD in node.metadata.annotations:
        assert why is not None
        what = f"began to disrupt node {node.metadata.name} ({why.reason}) although it is held"
        return NeighbourNoticed(pool=pool, neighbour="Karpenter", node=node.metadata.name, what=what)
    return None


def notice_eviction(seen: EvictionSeen, pool: str) -> NeighbourNoticed | None:
    """Return what an eviction by another controller shows, if it was meant for the node and not for the pod."""
    if seen.strategy not in _BALANCING:
        return None
    what = f"evicts pods from node {seen.node} ({seen.strategy})"
    return NeighbourNoticed(pool=pool, neighbour=seen.by, node=seen.node, what=what)


class Neighbours:
    """The pools from which Dovetail has to stand back, until the halt is on them."""

    def __init__(self) -> None:
        self._owed: dict[str, HaltPool] = {}
        self._attempts = Attempts()

    def stand_back(self, notice: NeighbourNoticed) -> None:
        """Ask for a halt of the pool."""
        why = f"{notice.neighbour} {notice.what}, so Dovetail stands back from this pool"
        value = write_halt(Halt(why=why, command=""))
        self._owed[notice.pool] = HaltPool(id=f"halt/{notice.pool}/neighbour", node_pool=notice.pool, value=value)

    def forget(self) -> None:
        """Forget everything: another process leads. Halts are recorded on the pools."""
        self._owed, self._attempts = {}, Attempts()

    def answer(self, event: InstructionSucceeded | InstructionFailed, elapsed: int) -> bool:
        """Record an answer; False if it was not about a halt."""
        return self._attempts.answer(event, elapsed)

    def is_near(self, pool: str) -> bool:
        """Return whether a pool's halt is not written yet: no command may start there."""
        return pool in self._owed

    def next_at(self) -> int | None:
        """Return when something is due again."""
        return self._attempts.next_at() if self._owed else None

    def wanted(self, store: Store, manages: Callable[[str], bool], elapsed: int) -> list[HaltPool]:
        """Build the halts that are due. A pool that is gone, or no longer managed, needs none."""
        due = []
        for name, order in tuple(self._owed.items()):
            pool = store.get(NodePool, name)
            is_done = pool is None or not manages(name) or read_halt(pool) is not None
            if is_done or self._attempts.succeeded(order.id):
                del self._owed[name]
                self._attempts.forget(order.id)
            elif self._attempts.due(order.id, elapsed):
                self._attempts.ask(order.id, elapsed)
                due.append(order)
        return due


def _is_autoscalers(node: Node) -> bool:
    return any(taint.key == _AUTOSCALER_TAINT for taint in node.spec.taints)


def _is_rebalanced(node: Node) -> bool:
    return node.metadata.labels.get(_CAST_LABEL) == _CAST_REBALANCING
