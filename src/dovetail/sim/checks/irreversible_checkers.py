"""What is read before the irreversible step, and what an undo leaves alone (docs/rules.md#carrying-out).

A command may delete the first NodeClaim or evict the first pod only if gate 6 let all its nodes go when it last read
them; later deletions only if no pod on that node is protected. An undo never deletes a ready replacement that holds
pods, or whose command has begun to delete. Judged here independently, when a call reaches the API server. Sits in sim,
beside the other checkers.
"""

from typing import TYPE_CHECKING, Final

from dovetail.lifecycle.commands.records import Candidate, Record
from dovetail.lifecycle.messages import DeleteNodeClaim, EvictPod, Instruction, LookAtPods
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import NodeClaim, Pod, is_true
from dovetail.sim.checks.promises import Checker, record_on
from dovetail.sim.world.clock import MINUTE
from dovetail.sim.world.host import Host
from dovetail.sim.world.karpenter.node_objects import span_of

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_FRESH: Final = MINUTE
"""How long a look counts: some seconds by the rules, and what a slow connection adds to that."""
_WAITING: Final = (Method.EXPIRED, Method.DRIFTED, Method.UNHEALTHY)


def _asks_pdbs(record: Record) -> bool:
    return record.method is not Method.EMPTY


def _is_mover(pod: Pod) -> bool:
    """Return whether a pod would have to move, or to start again, if its node went."""
    owners = pod.metadata.owner_references
    if pod.status.phase in ("Succeeded", "Failed") or any(owner.kind in ("DaemonSet", "Node") for owner in owners):
        return False
    return pod.metadata.deletion_timestamp is None or any(owner.kind == "StatefulSet" for owner in owners)


class UndoChecker(Checker):
    """An undo deletes no ready replacement that has pods, or whose command has begun to delete."""

    rule = "replacement-undone"

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._deleted: dict[str, str] = {}

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Judge the deletion of a replacement by its own command; remember those of candidates."""
        if not isinstance(instruction, DeleteNodeClaim) or host.engine.settings.rules.plays_karpenter:
            return
        claim = self.store.claims.get(instruction.name)
        if claim is None or claim.metadata.uid != instruction.uid or claim.metadata.deletion_timestamp is not None:
            return
        ident, uid = instruction.command_id, instruction.uid
        # Whether the call succeeds is known once it was executed.
        self.world.clock.after(0, self._judge, ident, instruction.name, uid, self._problem(ident, claim))

    def _problem(self, ident: str, claim: NodeClaim) -> str:
        record = record_on(claim)
        if record is None or record.id != ident or claim.metadata.name not in record.replacements:
            return ""
        if not is_true(claim.status.conditions, names.CONDITION_INITIALIZED):
            return ""
        movers = [key for key, pod in self.store.pods_on.get(claim.status.node_name, {}).items() if _is_mover(pod)]
        if movers:
            return f"pod {min(movers)} runs on it"
        gone = [entry.node for entry in record.nodes if self._deleted.get(entry.uid) == ident]
        return f"its command has deleted {min(gone)}" if gone else ""

    def _judge(self, ident: str, name: str, uid: str, problem: str) -> None:
        claim = self.store.claims.get(name)
        if claim is not None and claim.metadata.uid == uid and claim.metadata.deletion_timestamp is None:
            return  # the call failed
        self._deleted[uid] = ident
        if problem:
            self.broken(f"{name}, a ready replacement of {ident}, is undone although {problem}")


class LastLookChecker(Checker):
    """Nothing irreversible happens while gate 6 would have refused at the last read before it."""

    rule = "last-look"

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._begun: dict[str, None] = {}
        self._looks: dict[str, tuple[int, str]] = {}

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Judge a deletion of a candidate, or an eviction from one; note what a look of their command could see."""
        if host.engine.settings.rules.plays_karpenter:
            return
        if isinstance(instruction, LookAtPods):
            records = (record_on(self.store.nodes.get(node)) for node in instruction.nodes)
            record = next(
                (found for found in records if found is not None and found.id == instruction.command_id), None
            )
            if record is not None:
                self._looks[record.id] = self.world.now, self._problem(record, record.nodes, pdbs=_asks_pdbs(record))
        elif isinstance(instruction, DeleteNodeClaim):
            claim = self.store.claims.get(instruction.name)
            if claim is not None and claim.metadata.uid == instruction.uid:
                self._deletes(instruction, claim)
        elif isinstance(instruction, EvictPod):
            pod = self.store.pods.get(f"{instruction.namespace}/{instruction.name}")
            record = None if pod is None else record_on(self.store.nodes.get(pod.spec.node_name))
            if record is not None and record.id == instruction.command_id and record.id not in self._begun:
                self._begun[record.id] = None
                problem = self._at_last_look(record, record.nodes)
                if problem:
                    self.broken(f"{record.id} evicts {instruction.name} although {problem}")

    def _deletes(self, instruction: DeleteNodeClaim, claim: NodeClaim) -> None:
        record = record_on(self.store.nodes.get(claim.status.node_name))
        if record is None or record.id != instruction.command_id or instruction.name in record.replacements:
            return
        own = tuple(entry for entry in record.nodes if entry.uid == instruction.uid)
        self._judge_if_done(instruction, record, own)

    def _judge_if_done(self, instruction: DeleteNodeClaim, record: Record, own: tuple[Candidate, ...]) -> None:
        if instruction.drain_for is not None:
            problem = ""
        elif record.id in self._begun:
            problem = self._problem(record, own, pdbs=False)
        else:
            problem = self._at_last_look(record, record.nodes) or self._problem(record, own, pdbs=False)

        def judge() -> None:
            claim = self.store.claims.get(instruction.name)
            if claim is None or claim.metadata.deletion_timestamp is not None:
                self._begun[record.id] = None
                if problem:
                    self.broken(f"{record.id} deletes {instruction.name} although {problem}")

        self.world.clock.after(0, judge)

    def _at_last_look(self, record: Record, entries: tuple[Candidate, ...]) -> str:
        """Return what gate 6 had against these nodes at the last look; without a fresh one, what it has now."""
        at, problem = self._looks.get(record.id, (-_FRESH, ""))
        if self.world.now - at < _FRESH:
            return problem
        return self._problem(record, entries, pdbs=_asks_pdbs(record))

    def _problem(self, record: Record, entries: tuple[Candidate, ...], *, pdbs: bool) -> str:
        """Return what gate 6 has against these nodes now; empty: nothing."""
        for entry in entries:
            claim = self.store.claims.get(entry.claim)
            if claim is None or claim.metadata.uid != entry.uid or claim.metadata.deletion_timestamp is not None:
                continue
            if record.method in _WAITING and span_of(claim.spec.termination_grace_period) is not None:
                continue
            for key, pod in sorted(self.store.pods_on.get(entry.node, {}).items()):
                problem = self._objects(key, pod, pdbs=pdbs)
                if problem:
                    return problem
        return ""

    def _objects(self, key: str, pod: Pod, *, pdbs: bool) -> str:
        if pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed"):
            return ""
        if pod.metadata.annotations.get(names.DO_NOT_DISRUPT) == "true":
            return f"pod {key} on {pod.spec.node_name} is protected"
        if not pdbs or self.world.shapes.of(key, pod).survives_drain:
            return ""
        guards = self.world.evictions.guards_of(key, pod)
        if len(guards) > 1:
            return f"pod {key} has {len(guards)} budgets"
        if guards and self.store.pdbs[guards[0]].status.disruptions_allowed == 0:
            return f"{guards[0]} allows no disruption of {key} on {pod.spec.node_name}"
        return ""
