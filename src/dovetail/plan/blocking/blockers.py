"""`dovetail blockers`: which PDBs, workloads, nodes and pools block how much savings, and how to remove each.

Each blocker is removed from a copy of the input, one at a time, and the round is asked again: what that saves more
(`decide.held_back`, which `explain` uses too) is its figure; these don't add up. Beside it stands what the nodes that
only this blocker blocks would save in one command if no other node went. PDBs that can never allow an eviction, and
drains that can never end, are marked `impossible`. Sits in plan; `cli.planning.blockers` prints it.
"""

from dataclasses import dataclass, field, replace

from dovetail.decide.decider import Decider
from dovetail.decide.document import Json
from dovetail.decide.facts.drainability import Guards, PdbVeto, Protection, protection
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.pdb_sums import PdbSum, pdb_sum
from dovetail.decide.held_back import Baseline, GateSavings, held_back_by_gate
from dovetail.decide.lifts import (
    with_pdbs,
    with_pods,
    without_claims,
    without_node_vetoes,
    without_protection,
    without_vetoes,
)
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.money import Money, format_money
from dovetail.model.objects import Pod, PodDisruptionBudget
from dovetail.model.verdicts import ELIGIBLE, Gate, NodeVerdict
from dovetail.plan.blocking.feature_blockers import OFF_CLAIMS, buffer_lifts, holds_claims
from dovetail.plan.blocking.lifted_savings import savings_of
from dovetail.plan.blocking.owners import Owners, controller_of
from dovetail.plan.blocking.pool_blockers import pool_lifts
from dovetail.report.words import count
from dovetail.scheduling.pods.pod import is_terminal

Key = tuple[str, str, str]
"""Kind, name and gate of a blocker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing that blocks nodes. `nodes`: how many it blocks, alone or with others; `example`: one of them.

    `savings`: what the methods would save more without it. `by_themselves`: what the nodes that it alone blocks would
    save if no other node went. `question`: the input without it.
    """

    kind: str
    name: str
    gate: str
    nodes: int
    savings: Money
    impossible: bool
    why: str
    remedy: str
    example: str = ""
    alone: int = 0
    by_themselves: Money = 0
    question: Question | None = None

    def to_dict(self) -> Json:
        """Return it in the contract's form."""
        return {
            "kind": self.kind,
            "name": self.name,
            "gate": self.gate,
            "nodes": self.nodes,
            "savingsPerHour": format_money(self.savings),
            "impossible": self.impossible,
            "why": self.why,
            "remedy": self.remedy,
            "nodesHeldAlone": self.alone,
            "byThemselvesPerHour": format_money(self.by_themselves),
            "example": self.example,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Every blocker, by savings, then name; and what each gate and pool holds back (the controller's metric)."""

    blockers: tuple[Blocker, ...]
    held: tuple[GateSavings, ...]


def find_blockers(question: Question) -> tuple[Blocker, ...]:
    """Return every blocker, by savings, then name."""
    return blocked(question).blockers


def blocked(question: Question) -> Blocked:
    """Return every blocker, and what each gate and pool holds back."""
    decider = Decider()
    scene = decider.scene(question)
    verdicts = {entry.node: entry for entry in decider.round(question, every_method=True).verdicts}
    baseline = Baseline(question)
    found = _Vetoes(question, scene).collect(verdicts)
    lifted = Work(Decider().scene(replace(question, cluster=_without_vetoes(question.cluster))))
    blockers = [
        entry.blocker(lifted, found.alone, baseline, entry.without(question, scene)) for entry in found.entries.values()
    ]
    held = tuple(held_back_by_gate(question))
    for lift in (*pool_lifts(question, scene, held), *buffer_lifts(question, verdicts.values())):
        changed = Work(Decider().scene(lift.question))
        by_themselves = savings_of(changed, lift.nodes)
        blockers.append(
            Blocker(
                kind=lift.kind,
                name=lift.name,
                gate=lift.gate,
                nodes=len(lift.nodes),
                savings=baseline.held_back(lift.question) if lift.savings is None else lift.savings,
                by_themselves=by_themselves,
                question=lift.question,
                impossible=False,
                why=lift.why,
                remedy=lift.remedy,
                example=lift.nodes[0],
                alone=len(lift.nodes),
            )
        )
    ranked = sorted(blockers, key=lambda entry: (-entry.savings, entry.name, entry.kind, entry.gate))
    return Blocked(blockers=tuple(ranked), held=held)


def blockers_document(question: Question, found: Blocked) -> Json:
    """Return the JSON document."""
    return {
        "now": clock(question.now),
        "profile": question.settings.profile.value,
        **({"policy": question.settings.policy} if question.settings.policy else {}),
        "blockers": [entry.to_dict() for entry in found.blockers],
        "heldBack": [
            {
                "nodePool": entry.lift.node_pool or None,
                "gate": entry.lift.gate.value,
                "nodes": len(entry.lift.nodes),
                "savingsPerHour": format_money(entry.savings),
            }
            for entry in found.held
        ],
        "warnings": list(question.cluster.notes),
    }


# ---------------------------------------------------------------- vetoes of nodes and pods


@dataclass(slots=True, kw_only=True)
class _Entry:
    """A blocker while it is collected: the nodes that it blocks, and its texts."""

    key: Key
    why: str
    remedy: str
    impossible: bool
    nodes: dict[str, None]
    pods: dict[str, None] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    ends_never: str = ""

    def without(self, question: Question, scene: Scene) -> Question:
        """Return the input without this blocker."""
        kind, name, gate = self.key
        if kind == "PodDisruptionBudget":
            return with_pdbs(question, self.beside, (name,)) if self.beside else with_pdbs(question, (name,), ())
        if kind == "Node":
            return without_node_vetoes(question, (scene.by_name[name],))
        if gate == Gate.DYNAMIC_RESOURCES.value:
            return with_pods(question, self.pods, without_claims)
        return without_protection(question, self.pods)

    def blocker(
        self, lifted: Work, holders: dict[str, tuple[Key, ...]], baseline: Baseline, changed: Question
    ) -> Blocker:
        kind, name, gate = self.key
        alone = [node for node in self.nodes if holders.get(node) == (self.key,)]
        by_themselves = savings_of(lifted, alone)
        return Blocker(
            kind=kind,
            name=name,
            gate=gate,
            nodes=len(self.nodes),
            savings=baseline.held_back(changed) if alone else 0,
            by_themselves=by_themselves,
            question=changed,
            impossible=self.impossible,
            why=f"{self.why} {self.ends_never}".strip(),
            remedy=self.remedy,
            example=next(iter([*alone, *self.nodes]), ""),
            alone=len(alone),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    entries: dict[Key, _Entry]
    alone: dict[str, tuple[Key, ...]]


class _Vetoes:
    """Collects every veto of every node, not only the first of each."""

    def __init__(self, question: Question, scene: Scene) -> None:
        self._question, self._scene = question, scene
        self._guards = Guards(question.cluster.pdbs, durations=question.settings.rules.protection_durations)
        self._owners = Owners(question.cluster)
        self._pdbs = {pdb.metadata.key: pdb for pdb in question.cluster.pdbs}
        self._counts = self._count_pods()
        self._entries: dict[Key, _Entry] = {}

    def _count_pods(self) -> dict[str, int]:
        """Count the pods that each PDB selects: existing ones, or those that their owners want if that is more."""
        counts: dict[str, int] = {}
        wanted: dict[str, dict[str, int]] = {}
        cluster = self._question.cluster
        sets = {(item.metadata.namespace, item.metadata.name): item.spec.replicas for item in cluster.replica_sets}
        sets |= {(item.metadata.namespace, item.metadata.name): item.spec.replicas for item in cluster.stateful_sets}
        for pod in cluster.pods:
            if is_terminal(pod):
                continue
            owner = controller_of(pod.metadata.owner_references)
            replicas = sets.get((pod.metadata.namespace, owner.name)) if owner is not None else None
            for guard in self._guards.matching(pod):
                counts[guard.key] = counts.get(guard.key, 0) + 1
                if owner is not None and replicas is not None:
                    wanted.setdefault(guard.key, {})[owner.name] = replicas
        return {key: max(number, sum(wanted.get(key, {}).values())) for key, number in counts.items()}

    def collect(self, verdicts: dict[str, NodeVerdict]) -> _Found:
        """Collect blockers of all nodes that Karpenter manages; nodes that some method would remove have none."""
        alone: dict[str, tuple[Key, ...]] = {}
        for facts in self._scene.nodes:
            verdict = verdicts.get(facts.name)
            if facts.claim is None or facts.node is None or facts.pool is None or verdict is None:
                continue
            if verdict.verdict == ELIGIBLE:
                continue
            keys = self._of_node(facts)
            if keys:
                alone[facts.name] = tuple(keys)
        self._add_impossible()
        return _Found(entries=self._entries, alone=alone)

    def _of_node(self, facts: NodeFacts) -> list[Key]:
        keys: list[Key] = []
        draining = bool(facts.marked)
        annotation = self._node_veto(facts)
        if annotation and not draining:
            keys.append(self._hold(("Node", facts.name, Gate.NODE_DO_NOT_DISRUPT.value), facts, annotation, _OFF_NODE))
        place = self._scene.index_of(facts)
        for pod in self._scene.snapshot.pods_on[place] if place >= 0 else ():
            for key in self._of_pod(facts, pod, draining=draining):
                if key not in keys:
                    keys.append(key)
        return keys

    def _node_veto(self, facts: NodeFacts) -> str:
        claim = facts.claim.metadata.annotations if facts.claim else {}
        own = self._question.settings.rules.own_annotations
        for where, annotations in (("node", facts.annotations), ("NodeClaim", claim)):
            if own and annotations.get(names.ALWAYS_DO_NOT_DISRUPT) == "true":
                return f"The {where} says {names.ALWAYS_DO_NOT_DISRUPT}=true."
        held = own and names.HOLD in facts.annotations
        if not held and facts.annotations.get(names.DO_NOT_DISRUPT) == "true":
            return f"The node says {names.DO_NOT_DISRUPT}=true."
        return ""

    def _of_pod(self, facts: NodeFacts, pod: Pod, *, draining: bool) -> list[Key]:
        veto = self._guards.veto(pod, self._question.now)
        guarded = (
            protection(pod, self._question.now, durations=self._guards.durations) if pod.metadata.annotations else None
        )
        found = []
        if guarded is not None:
            found.append(self._protected(facts, pod, guarded, draining=draining))
        if veto is not None:
            found.append(self._vetoed(facts, pod, veto, draining=draining))
        if not draining and holds_claims(pod):
            found.append(self._claims(facts, pod))
        return found

    def _claims(self, facts: NodeFacts, pod: Pod) -> Key:
        owner = self._owners.of(pod)
        kind = "Pod" if owner.kind == "Pod" else "Workload"
        of = "" if kind == "Pod" else f" of {owner.kind} {owner.name}"
        why = (
            f"Pod {pod.metadata.key}{of} has resource claims, and nobody can say where its devices would be allocated."
        )
        key = self._hold((kind, owner.name, Gate.DYNAMIC_RESOURCES.value), facts, why, OFF_CLAIMS)
        self._entries[key].pods[pod.metadata.key] = None
        return key

    def _protected(self, facts: NodeFacts, pod: Pod, found: Protection, *, draining: bool) -> Key:
        owner = self._owners.of(pod)
        kind = "Pod" if owner.kind == "Pod" else "Workload"
        of = "" if kind == "Pod" else f" of {owner.kind} {owner.name}"
        why = f"Pod {pod.metadata.key}{of} says {names.DO_NOT_DISRUPT}={found.value}."
        key = self._hold((kind, owner.name, Gate.POD_DO_NOT_DISRUPT.value), facts, why, _OFF_POD)
        self._entries[key].pods[pod.metadata.key] = None
        if draining and found.until is None:
            self._never_ends(self._entries[key], facts, pod)
        return key

    def _vetoed(self, facts: NodeFacts, pod: Pod, veto: PdbVeto, *, draining: bool) -> Key:
        if len(veto.pdbs) > 1:
            why = (
                f"Pod {pod.metadata.key} is selected by {len(veto.pdbs)} PodDisruptionBudgets "
                f"({', '.join(veto.pdbs)}): the eviction API refuses such a pod always."
            )
            remedy = f"let one PodDisruptionBudget select its pods: narrow or delete {veto.pdbs[-1]}"
            key = self._hold(("PodDisruptionBudget", veto.pdbs[-1], Gate.PDB.value), facts, why, remedy)
            self._entries[key].impossible = True
            self._entries[key].beside = veto.pdbs[:-1]
        else:
            pdb = self._pdbs[veto.pdbs[0]]
            total = self._sum(pdb)
            why, remedy = _pdb_words(pdb, total)
            key = self._hold(("PodDisruptionBudget", veto.pdbs[0], Gate.PDB.value), facts, why, remedy)
            self._entries[key].impossible = self._entries[key].impossible or total.impossible
        if draining and self._entries[key].impossible:
            self._never_ends(self._entries[key], facts, pod)
        return key

    def _sum(self, pdb: PodDisruptionBudget) -> PdbSum:
        return pdb_sum(pdb, self._counts.get(pdb.metadata.key, 0))

    def _hold(self, key: Key, facts: NodeFacts, why: str, remedy: str) -> Key:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key=key, why=why, remedy=remedy, impossible=False, nodes={})
        entry.nodes[facts.name] = None
        return key

    def _never_ends(self, entry: _Entry, facts: NodeFacts, pod: Pod) -> None:
        """Add the blocker: a leaving node waits without a deadline for a pod that can't be evicted."""
        claim = facts.claim
        if claim is None or claim.spec.termination_grace_period or entry.ends_never:
            return
        entry.impossible = True
        entry.ends_never = (
            f"Node {facts.name} is draining ({facts.marked}) and waits for pod {pod.metadata.key} without a deadline: "
            "its NodeClaim has no terminationGracePeriod."
        )
        entry.remedy += "; or set terminationGracePeriod in the NodePool's template, for nodes to come"

    def _add_impossible(self) -> None:
        """Add PDBs that can never allow an eviction, even if they block no node now."""
        for name, pods in sorted(self._counts.items()):
            pdb = self._pdbs[name]
            key = ("PodDisruptionBudget", name, Gate.PDB.value)
            total = pdb_sum(pdb, pods)
            if key in self._entries or not total.impossible or pdb.status.disruptions_allowed > 0:
                continue
            why, remedy = _pdb_words(pdb, total)
            self._entries[key] = _Entry(key=key, why=why, remedy=remedy, impossible=True, nodes={})


_OFF_NODE = "take the annotation off the node, if nobody needs it there any more"
_OFF_POD = (
    f"take {names.DO_NOT_DISRUPT} off the pod template, or give it a duration such as 4h so that it ends by itself"
)


def _pdb_words(pdb: PodDisruptionBudget, total: PdbSum) -> tuple[str, str]:
    if total.impossible:
        return f"It can never allow an eviction: {total.why}.", total.remedy
    status = pdb.status
    if status.current_healthy >= status.expected_pods > 0 and status.desired_healthy >= status.expected_pods:
        needed = f"{status.desired_healthy} of {status.expected_pods} needed"
        why = f"Its status allows no eviction ({needed}), though {total.why}."
        return why, "wait until its status is up to date: it should allow one"
    healthy = f"{status.current_healthy} healthy, {status.desired_healthy} needed"
    why = f"It allows no eviction now ({healthy}); with every pod healthy, {total.why}."
    if status.current_healthy < status.expected_pods:
        missing = status.expected_pods - status.current_healthy
        return why, f"make its {count(missing, 'unhealthy pod')} ready, or run more replicas"
    return why, total.remedy


def _without_vetoes(cluster: Cluster) -> Cluster:
    """Return the cluster without any veto of a pod, a PDB or a node, and without resource claims.

    A simulation moves only the pods of the nodes that it removes, so the result for each blocker's nodes is the same as
    if only that blocker were removed.
    """
    return replace(
        cluster,
        pdbs=(),
        pods=tuple(without_claims(without_vetoes(pod)) for pod in cluster.pods),
        nodes=tuple(map(without_vetoes, cluster.nodes)),
        node_claims=tuple(map(without_vetoes, cluster.node_claims)),
    )
