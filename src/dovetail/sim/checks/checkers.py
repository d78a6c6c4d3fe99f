"""The promises of a run, checked from outside while it runs.

Each checker knows one promise and uses only objects and calls, never the engine's state; it counts independently. A
broken promise is a `Violation` with its time and one sentence. If the world changes after a decision was made (a node
dies, a budget shrinks), the decision has `lag` nanoseconds to notice: before that it is not a violation.
`tests/sim/test_checkers.py` breaks each rule on purpose.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

from dovetail.lifecycle.commands.records import decode_record
from dovetail.lifecycle.messages import CreateNodeClaim, DeleteNodeClaim, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim, Pod, PodDisruptionBudget
from dovetail.sim.checks.promises import COST, Checker, is_tainted, record_on
from dovetail.sim.world.clock import HOUR, MINUTE, SECOND
from dovetail.sim.world.eviction import is_healthy
from dovetail.sim.world.host import Host
from dovetail.sim.world.placement.matching import BudgetIndex
from dovetail.sim.world.placement.shapes import PodShape
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

STUCK_AFTER: Final = 9 * MINUTE + 30 * SECOND + 2 * MINUTE
SETTLING: Final = 60 * SECOND
CYCLE: Final = 3


class PdbChecker(Checker):
    """No eviction violates a PodDisruptionBudget; healthy pods are counted here, independently of the API's status."""

    rule = "pdb"
    follows = ("PodDisruptionBudget", "Pod")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._healthy: dict[str, int] = {}
        self._counted: dict[str, tuple[str, ...]] = {}
        self._guards: dict[PodShape, tuple[str, ...]] = {}
        self._index: BudgetIndex | None = None

    def changed(self, change: Change) -> None:
        """Follow which pods are healthy; start over when a budget is new or different."""
        if change.kind == "PodDisruptionBudget":
            old, new = cast("PodDisruptionBudget | None", change.old), cast("PodDisruptionBudget | None", change.new)
            if old is None or new is None or (old.spec is not new.spec and old.spec != new.spec):
                self._index = None
        elif self._index is not None:
            self._count(self._index, change.key, cast("Pod | None", change.new))

    def _budgets(self) -> BudgetIndex:
        """Return the budgets, with their healthy pods counted; anew where they have changed since the last eviction."""
        if self._index is None:
            self._guards.clear()
            self._healthy.clear()
            self._counted.clear()
            self._index = BudgetIndex(self.store.pdbs)
            for key, pod in self.store.pods.items():
                self._count(self._index, key, pod)
        return self._index

    def _count(self, index: BudgetIndex, key: str, pod: Pod | None) -> None:
        for name in self._counted.pop(key, ()):
            self._healthy[name] -= 1
        if pod is not None and is_healthy(pod):
            guards = self._counted[key] = self._guards_of(index, key, pod)
            for name in guards:
                self._healthy[name] = self._healthy.get(name, 0) + 1

    def _guards_of(self, index: BudgetIndex, key: str, pod: Pod) -> tuple[str, ...]:
        shape = self.world.shapes.of(key, pod)
        found = self._guards.get(shape)
        if found is None:
            found = self._guards[shape] = index.over(shape.namespace, shape.labels)
        return found

    def evicted(self, key: str, pod: Pod) -> None:
        """Count what is left once this pod is gone."""
        if not is_healthy(pod):
            return
        for name in self._guards_of(self._budgets(), key, pod):
            budget, healthy = self.store.pdbs[name], self._healthy.get(name, 0)
            if healthy - 1 < budget.status.desired_healthy:
                self.broken(
                    f"{key}: evicted although {name} wants {budget.status.desired_healthy} of {healthy} healthy"
                )


class LostPodChecker(Checker):
    """No pod is lost: every pod that had a place before a disruption has one again in the end."""

    rule = "lost-pod"

    def ended(self) -> None:
        """Check that every workload has its pods, and that every pod that can be placed is."""
        for kind in ("ReplicaSet", "StatefulSet"):
            for key, item in sorted(self.store.by_kind[kind].items()):
                wanted = item.spec.replicas or 0  # type: ignore[union-attr]
                there = [
                    pod
                    for pod in self.store.pods.values()
                    if pod.metadata.deletion_timestamp is None
                    and any(owner.uid == item.metadata.uid for owner in pod.metadata.owner_references)
                ]
                running = sum(pod.status.phase == "Running" for pod in there)
                if running < wanted:
                    self.broken(f"{kind} {key} has {running} of {wanted} pods running when all is quiet")


class DoubleLaunchChecker(Checker):
    """A node is never replaced twice: one command's replacements for it at a time, each created once."""

    rule = "double-launch"
    follows = ("NodeClaim",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._made: dict[str, str] = {}
        self._of_commands: dict[str, None] = {}

    def changed(self, change: Change) -> None:
        """Check that a deleted name is never created again; follow the claims that carry a command's record."""
        if change.new is not None and names.COMMAND in change.new.metadata.annotations:
            self._of_commands[change.key] = None
        else:
            self._of_commands.pop(change.key, None)
        if change.old is None:
            claim = cast("NodeClaim", change.new)
            if self._made.setdefault(change.key, claim.metadata.uid) != claim.metadata.uid:
                self.broken(f"{change.key} is created again after it had been there and gone")

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Look for another live replacement of the same nodes."""
        if not isinstance(instruction, CreateNodeClaim) or instruction.name in self.store.claims:
            return
        record = decode_record(instruction.record)
        mine = {entry.uid for entry in record.nodes} if record is not None else set()
        for name in sorted(self._of_commands):
            claim = self.store.claims[name]
            other = record_on(claim)
            if other is None or other.id == instruction.command_id or claim.metadata.deletion_timestamp is not None:
                continue
            if name in other.replacements and mine & {entry.uid for entry in other.nodes}:
                self.broken(f"{instruction.name} is launched while {name} of command {other.id} replaces the same node")


class StuckTaintChecker(Checker):
    """No taint, record or nomination is left behind; no command lasts for ever."""

    rule = "stuck-taint"
    follows = ("Node",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._since: dict[str, int] = {}

    def changed(self, change: Change) -> None:
        """Record when a node was tainted, and check again when the command must have ended."""
        node = cast("Node | None", change.new)
        if not is_tainted(node):
            self._since.pop(change.key, None)
        elif change.key not in self._since:
            self._since[change.key] = self.world.now
            wait = STUCK_AFTER + self.watch.patience
            self.world.clock.after(wait, self._look, change.key, self.world.now)

    def _look(self, name: str, since: int) -> None:
        claim = self.store.claims.get(name)
        if self._since.get(name) == since and claim is not None and claim.metadata.deletion_timestamp is None:
            self.broken(f"{name} is still closed {(self.world.now - since) // SECOND} s after its command began")

    def ended(self) -> None:
        """Check that nothing of a command is left when all is quiet."""
        for name, node in sorted(self.store.nodes.items()):
            claim = self.store.claims.get(name)
            leaving = claim is None or claim.metadata.deletion_timestamp is not None
            if is_tainted(node) and not leaving:
                self.broken(f"{name} is still closed when all is quiet")
            elif record_on(node) is not None and not leaving:
                self.broken(f"{name} still carries a command's record when all is quiet")
        for host in self.world.hosts:
            if host.is_up and host.engine.acts:
                for run in host.engine.runs:
                    if not self._still_drains(run.nodes):
                        self.broken(f"command {run.id} ({run.action}) is still {run.phase} when all is quiet")
                if not host.engine.runs and host.engine.lingering:
                    self.broken(f"{', '.join(host.engine.lingering)} still nominated when all is quiet")

    def _still_drains(self, nodes: tuple[str, ...]) -> bool:
        """Return whether a node still drains because its pods can't be evicted: that is not the command's fault."""
        return any(self.world.draining.is_draining(name) for name in nodes)


class TwiceChecker(Checker):
    """No node is disrupted twice: never by two commands at once, never deleted by a second one."""

    rule = "disrupted-twice"
    follows = ("NodeClaim",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._asked: dict[str, str] = {}
        self._deleted: dict[str, str] = {}

    def changed(self, change: Change) -> None:
        """Record which command deleted a NodeClaim; a call that failed has deleted nothing."""
        if change.new is None:
            return
        uid = change.new.metadata.uid
        if change.new.metadata.deletion_timestamp is not None and uid in self._asked:
            self._deleted.setdefault(uid, self._asked[uid])

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Check whether another command holds the node."""
        if isinstance(instruction, TaintNode):
            node = self.store.nodes.get(instruction.node)
            record = record_on(node)
            claim = self.store.claims.get(instruction.node)
            if node is None or claim is None:
                return
            if is_tainted(node) and record is not None and record.id != instruction.command_id:
                self.broken(f"{instruction.node} is taken by {instruction.command_id} while {record.id} holds it")
            elif claim.metadata.uid in self._deleted and self._deleted[claim.metadata.uid] != instruction.command_id:
                self.broken(f"{instruction.node} is taken by {instruction.command_id} though it is deleted already")
        elif isinstance(instruction, DeleteNodeClaim):
            self._asked[instruction.uid] = instruction.command_id
            known = self._deleted.get(instruction.uid, instruction.command_id)
            if known != instruction.command_id:
                self.broken(f"{instruction.name} is deleted by {instruction.command_id} after {known}")


class EmptyReplacementChecker(Checker):
    """No replacement is removed before its pods arrive: while its command lasts, and a minute more."""

    rule = "replacement-deleted"
    follows = ("NodeClaim", "Pod")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._waits: dict[str, str] = {}
        self._candidates: dict[str, tuple[str, ...]] = {}
        self._free_at: dict[str, int] = {}

    def changed(self, change: Change) -> None:
        """Follow replacements from their birth to their first pod."""
        if change.kind == "NodeClaim":
            if change.new is None:
                self._waits.pop(change.key, None)
                self._free(change.key)
            elif change.old is None:
                record = record_on(cast("NodeClaim", change.new))
                if record is not None:
                    self._waits[change.key] = record.id
                    self._candidates[record.id] = tuple(entry.claim for entry in record.nodes)
        elif change.new is not None:
            pod = cast("Pod", change.new)
            if pod.spec.node_name in self._waits and not self.world.shapes.of(change.key, pod).daemon:
                del self._waits[pod.spec.node_name]

    def _free(self, gone: str) -> None:
        for ident, claims in self._candidates.items():
            if gone in claims and not any(name in self.store.claims for name in claims):
                self._free_at[ident] = self.world.now + SETTLING

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Check commands that remove a replacement that still waits for its pods."""
        if not isinstance(instruction, TaintNode):
            return
        ident = self._waits.get(instruction.node)
        if (
            ident is None
            or ident == instruction.command_id
            or record_on(self.store.claims.get(instruction.node)) is None
        ):
            return
        if self.world.now < self._free_at.get(ident, 1 << 62) - self.watch.lag:
            self.broken(f"{instruction.node}, a replacement of {ident}, is taken before any pod came to it")


class CycleChecker(Checker):
    """No cycle: the cluster does not return to an earlier state without an outside event.

    The scheduler decides where pods go, so a cost action may lead back to its start once; no plan can foresee that. The
    same state for the third time within an hour is a cycle.
    """

    rule = "cycle"
    follows = ("Node", "Pod")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._seen: dict[int, list[tuple[int, int]]] = {}
        self._commands = 0
        self._settled_at = 0
        self._asked_look = False
        self._last = ""
        self._busy: dict[str, None] = {}
        self._unbound: dict[str, None] = {}
        self._stale: dict[str, None] = {}
        self._sorts: dict[str, tuple[Any, frozenset[tuple[str, int]]]] = {}

    def outside(self) -> None:
        """Forget the past states: after an outside event they may legitimately return."""
        self._seen.clear()

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Count cost actions: only they can cause a cycle. Expiry and drift change more than this state shows."""
        ident = getattr(instruction, "command_id", "")
        if self.watch.is_karpenters(ident):
            return
        if isinstance(instruction, TaintNode):
            record = decode_record(instruction.record)
            if record is not None and record.method not in COST:
                self._seen.clear()
        elif isinstance(instruction, DeleteNodeClaim) and ident != self._last:
            record = record_on(self.store.claims.get(instruction.name))
            if record is None or record.id != ident or instruction.name not in record.replacements:  # no rollback
                self._last = ident
                self._commands += 1

    def changed(self, change: Change) -> None:
        """Compare the whole state once nothing is in progress."""
        if change.kind == "Pod":
            self._follow_pod(change.key, cast("Pod | None", change.old), cast("Pod | None", change.new))
            return
        self._stale[change.key] = None
        node = cast("Node | None", change.new)
        if node is None or not (is_tainted(node) or node.metadata.deletion_timestamp is not None):
            self._busy.pop(change.key, None)
        else:
            self._busy[change.key] = None
        if not self._busy and (change.new is None or is_tainted(cast("Node | None", change.old))):
            self._settled_at = self.world.now + SETTLING
            if not self._asked_look:
                self._asked_look = True
                self.world.clock.at(self._settled_at, self._look)

    def _follow_pod(self, key: str, old: Pod | None, new: Pod | None) -> None:
        before = "" if old is None else old.spec.node_name
        after = "" if new is None else new.spec.node_name
        if new is not None and not after:
            self._unbound[key] = None
        else:
            self._unbound.pop(key, None)
        if before != after:
            if before:
                self._stale[before] = None
            if after:
                self._stale[after] = None

    def _look(self) -> None:
        if self.world.now < self._settled_at:
            self.world.clock.at(self._settled_at, self._look)
            return
        self._asked_look = False
        if self._busy or self._unbound:
            return
        state = hash(self._state())
        visits = [visit for visit in self._seen.get(state, []) if self.world.now - visit[0] < HOUR]
        if not visits or visits[-1][1] < self._commands:
            visits.append((self.world.now, self._commands))
        self._seen[state] = visits
        if len(visits) >= CYCLE:
            actions = self._commands - visits[0][1]
            self.broken(f"the cluster is in one state for the third time in an hour; {actions} cost actions led away")

    def _state(self) -> frozenset[tuple[Any, int]]:
        """Return the state of the cluster: how many nodes there are of each kind with the same pods."""
        for name in self._stale:
            if name in self.store.nodes:
                self._sorts[name] = self._sort_of(name, self.store.nodes[name])
            else:
                self._sorts.pop(name, None)
        self._stale.clear()
        counts: Counter[tuple[Any, ...]] = Counter()
        for name, (kind, pods) in self._sorts.items():
            image = self.store.claims[name].status.image_id if name in self.store.claims else ""
            counts[kind, image, pods] += 1
        return frozenset(counts.items())

    def _sort_of(self, name: str, node: Node) -> tuple[Any, frozenset[tuple[str, int]]]:
        """Return the kind of a node, and how many pods of each owner it has."""
        pods: dict[str, int] = {}
        for key, pod in self.store.pods_on.get(name, {}).items():
            if not self.world.shapes.of(key, pod).daemon:
                owners = pod.metadata.owner_references
                owner = owners[0].name if owners else key
                pods[owner] = pods.get(owner, 0) + 1
        labels = node.metadata.labels
        kind = (labels.get(names.INSTANCE_TYPE), labels.get(names.ZONE), labels.get(names.CAPACITY_TYPE))
        return kind, frozenset(pods.items())
