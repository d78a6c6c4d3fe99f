"""Details of one node besides its gates: age, utilisation, where each pod would go, all blockers.

Evaluates all gates one by one, where a round stops at the first closed one. Simulations are the core's. Decides
nothing. Sits in plan; `plan.explanation` and `plan.node_table` show it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from dovetail.decide.document import Json
from dovetail.decide.facts.drainability import Guards, protection
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import node_rules
from dovetail.decide.gates.candidates import NODE_RULES, OWN_RULES, pod_rules
from dovetail.decide.methods.method import budget_result
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.command import REASON_OF, Method
from dovetail.model.verdicts import Gate, GateResult
from dovetail.plan.blocking.owners import Owners
from dovetail.scheduling.pods.pod import is_terminal

_WRONG_METHOD = (Gate.NOT_EMPTY, Gate.NOT_EXPIRED, Gate.NOT_DRIFTED)
_RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLanding:
    """Where a pod of the node would go: an existing node, a new one, or nowhere."""

    pod: str
    owner: str
    node: str | None
    new: str | None
    why: str

    def to_dict(self) -> Json:
        """Return it as JSON."""
        return {"pod": self.pod, "owner": self.owner, "node": self.node, "newNode": self.new, "why": self.why}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetail:
    """One node: figures, landings and all blockers."""

    age: timedelta | None
    utilisation: dict[str, float]
    pods: int
    daemons: int
    landings: tuple[PodLanding, ...]
    new_nodes: tuple[str, ...]
    blockers: tuple[GateResult, ...]

    def to_dict(self) -> Json:
        """Return it as JSON."""
        return {
            "ageSeconds": None if self.age is None else round(self.age.total_seconds()),
            "utilisation": {key: round(share, 4) for key, share in self.utilisation.items()},
            "daemonPods": self.daemons,
            "landings": [entry.to_dict() for entry in self.landings],
            "newNodes": list(self.new_nodes),
            "blockers": [
                {"gate": entry.gate.value, "why": entry.why, "figures": dict(entry.figures)} for entry in self.blockers
            ],
        }


def utilisation_of(scene: Scene, facts: NodeFacts) -> dict[str, float]:
    """Return the share of the node's room that its pods ask for, by resource."""
    place = scene.index_of(facts)
    if place < 0 or facts.node is None:
        return {}
    room = scene.snapshot.states[place].allocatable
    asked: dict[str, int] = {}
    bindings = scene.snapshot.bindings
    for pod, cls in zip(scene.snapshot.pods_on[place], bindings.classes_at(bindings.on_node(place)), strict=True):
        for name in () if is_terminal(pod) else _RESOURCES:
            asked[name] = asked.get(name, 0) + cls.info.requests.get(name, 0)
    return {name: asked.get(name, 0) / room[name] for name in _RESOURCES if room.get(name)}


def detail_of(work: Work, facts: NodeFacts) -> NodeDetail:
    """Look at one node."""
    scene = work.scene
    place = scene.index_of(facts)
    pods = scene.snapshot.pods_on[place] if place >= 0 else ()
    landings, new = _landings(work, facts)
    return NodeDetail(
        age=None if facts.created is None else scene.now - facts.created,
        utilisation=utilisation_of(scene, facts),
        pods=len(facts.reschedulable),
        daemons=len(pods) - len(facts.reschedulable),
        landings=landings,
        new_nodes=new,
        blockers=tuple(_blockers(scene, facts)),
    )


def _landings(work: Work, facts: NodeFacts) -> tuple[tuple[PodLanding, ...], tuple[str, ...]]:
    scene = work.scene
    if scene.index_of(facts) < 0 or not facts.reschedulable:
        return (), ()
    found = work.simulate((facts,), for_cost=True)
    owners = Owners(scene.snapshot.cluster)
    own = {pod.metadata.key: pod for pod in facts.reschedulable}
    sizes = scene.snapshot.surroundings.coming
    landings: dict[str, PodLanding] = {}

    def add(name: str, node: str | None = None, new: str | None = None, why: str = "") -> None:
        if name in own:
            owner = owners.of(own[name])
            size = sizes.words(own[name]) if sizes else ""
            why = "; ".join(filter(None, (why, f"it {size}" if size else "")))
            landings[name] = PodLanding(pod=name, owner=f"{owner.kind} {owner.name}", node=node, new=new, why=why)

    for placement in found.placements:
        for pod in placement.pods:
            add(pod.metadata.key, node=placement.node)
    new_nodes = []
    for entry in found.new_nodes:
        kinds = [kind.name for kind in entry.instance_types]
        label = f"{kinds[0] if kinds else 'a node'} of {entry.pool}"
        if any(pod.metadata.key in own for pod in entry.pods):
            new_nodes.append(label)
        for pod in entry.pods:
            add(pod.metadata.key, new=label)
    for stuck in found.unplaced:
        add(stuck.pod.metadata.key, why=stuck.why)
    for name in own:
        if name not in landings:
            add(name, why="it does not take part: it can't be evicted now")
    return tuple(landings[name] for name in sorted(landings)), tuple(new_nodes)


def _blockers(scene: Scene, facts: NodeFacts) -> Iterator[GateResult]:
    """Yield every gate of a cost action (or of emptiness) that is closed now, and every blocking pod."""
    gate_context = scene.gate_context
    if facts.claim is None or facts.node is None or facts.pool is None or facts.policy is None:
        yield NODE_RULES[0](facts, gate_context)
        return
    method = Method.EMPTY if facts.empty else Method.SINGLE_NODE
    for rule in NODE_RULES:
        result = rule(facts, gate_context)
        if not result.passed:
            yield result
    rules = pod_rules(method, empty_asks_pdbs=scene.settings.rules.empty_asks_pdbs)
    for veto in _pod_vetoes(scene, facts):
        if veto.gate is not Gate.PDB or node_rules.pdbs_allow in rules:
            yield veto
    seen = (Gate.POD_DO_NOT_DISRUPT, Gate.PDB)
    for rule in (*rules, *OWN_RULES[method]):
        result = rule(facts, gate_context)
        if not result.passed and result.gate not in (*seen, *_WRONG_METHOD):
            yield result
    if scene.ledger.allowance(facts.pool_name, REASON_OF[method]).left <= 0:
        yield budget_result(scene, method, facts.pool_name)


def _pod_vetoes(scene: Scene, facts: NodeFacts) -> Iterator[GateResult]:
    guards = Guards(scene.snapshot.cluster.pdbs, durations=scene.settings.rules.protection_durations)
    place = scene.index_of(facts)
    said = set()
    for pod in scene.snapshot.pods_on[place] if place >= 0 else ():
        name = pod.metadata.key
        guarded = protection(pod, scene.now, durations=guards.durations)
        if guarded is not None:
            why = f"Pod {name} says {names.DO_NOT_DISRUPT}={guarded.value}."
            yield GateResult(gate=Gate.POD_DO_NOT_DISRUPT, passed=False, why=why, figures={"pod": name})
        veto = guards.veto(pod, scene.now)
        if veto is not None and (veto.pdbs not in said or len(veto.pdbs) > 1):
            said.add(veto.pdbs)
            few = f"PodDisruptionBudget {veto.pdbs[0]} allows no disruption of pod {name} now."
            many = f"Pod {name} has {len(veto.pdbs)} PodDisruptionBudgets ({', '.join(veto.pdbs)})."
            why = few if len(veto.pdbs) == 1 else many
            yield GateResult(gate=Gate.PDB, passed=False, why=why, figures={"pod": name, "pdb": ", ".join(veto.pdbs)})
