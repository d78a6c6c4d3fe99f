"""The one JSON document of a plan's page and of the live view: `report/schemas/plan.schema.json` says what it holds.

Turns a round's scene and result into columns, so that 5,000 nodes with their pods fit a page; decides nothing. Where
a node's pods would go comes from the same simulation as the round's, for at most `MOVES_MAX` nodes.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from dovetail.decide.document import budget_rows
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult
from dovetail.decide.scene import Scene
from dovetail.decide.words import clock
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.command import Command
from dovetail.model.verdicts import ELIGIBLE, NodeVerdict
from dovetail.plan.apply import apply_commands
from dovetail.plan.blocking.owners import Owners
from dovetail.plan.explaining.counterfactual import counterfactuals
from dovetail.plan.summary import FIRST_STEP, first_step
from dovetail.scheduling.pods.pod import is_active, is_reschedulable
from dovetail.scheduling.pods.requests import amounts, pod_requests

Json = dict[str, Any]
_DOLLAR: Final = 10**18
MOVES_MAX: Final = 250
"""For how many nodes a page says where their pods would go; the live view asks for one node at a time."""
EXAMPLES_MAX: Final = 6
EXAMPLES_NODES_MAX: Final = 200
"""Up to how many nodes a page tries what would change a verdict: each try is a round of its own."""


def plan_view(question: Question, work: Work, result: RoundResult, *, live: bool = False) -> Json:
    """Return the whole document; `live`: details of nodes are fetched one by one, so they are omitted."""
    verdicts = result.verdicts
    place = {entry.node: index for index, entry in enumerate(verdicts)}
    taken = {node: index for index, command in enumerate(result.commands) for node in command.nodes}
    pods, workloads, used = _pods(question.cluster, place)
    chains, checks = _chains(verdicts)
    return {
        "kind": "plan",
        "title": "What would be done next, and why",
        "now": clock(result.now),
        "profile": result.called,
        "live": live,
        "nodes": _nodes(verdicts, work.scene, result, taken, used),
        "chains": chains,
        "checks": checks,
        "pods": pods,
        "workloads": workloads,
        "actions": [_action(command) for command in result.commands],
        "after": after_view(question, result),
        "moves": [] if live else _all_moves(work, verdicts, result.commands),
        "remedies": _remedies(verdicts),
        "examples": [] if live else _examples(question, verdicts),
        "budgets": budget_rows(result),
    }


def _remedies(verdicts: Sequence[NodeVerdict]) -> dict[str, str]:
    """Return the first thing to change by gate; where a pool needs another one, by gate and pool too."""
    found = {gate.value: text for gate, text in FIRST_STEP.items()}
    for entry in verdicts:
        step = "" if entry.verdict == ELIGIBLE else first_step(entry)
        if step and step != found.get(entry.verdict):
            found[f"{entry.verdict} {entry.node_pool}"] = step
    return found


def _pods(cluster: Cluster, place: dict[str, int]) -> tuple[Json, list[str], dict[str, tuple[int, int]]]:
    """Return the pods on nodes in columns, the workloads' names, and the requests of each node's pods."""
    owners = Owners(cluster)
    columns: Json = {"name": [], "node": [], "workload": [], "cpu": [], "memory": [], "moves": []}
    workloads: dict[str, int] = {}
    used: dict[str, tuple[int, int]] = {}
    for pod in cluster.pods:
        node = pod.spec.node_name
        if node not in place or not is_active(pod):
            continue
        asks = pod_requests(pod)
        cpu, memory = asks.get("cpu", 0), asks.get("memory", 0)
        before = used.get(node, (0, 0))
        used[node] = (before[0] + cpu, before[1] + memory)
        columns["name"].append(pod.metadata.key)
        columns["node"].append(place[node])
        columns["workload"].append(workloads.setdefault(owners.of(pod).name, len(workloads)))
        columns["cpu"].append(cpu)
        columns["memory"].append(memory)
        columns["moves"].append(int(is_reschedulable(pod)))
    return columns, list(workloads), used


def _nodes(
    verdicts: Sequence[NodeVerdict],
    scene: Scene,
    result: RoundResult,
    taken: dict[str, int],
    used: dict[str, tuple[int, int]],
) -> Json:
    facts = [scene.by_name[entry.node] for entry in verdicts]
    room = [_room(entry) for entry in facts]
    filled = [used.get(entry.node, (0, 0)) for entry in verdicts]
    return {
        "name": [entry.node for entry in verdicts],
        "pool": [entry.node_pool for entry in verdicts],
        "zone": [entry.zone for entry in facts],
        "type": [entry.instance_type for entry in facts],
        "capacityType": [entry.capacity_type for entry in facts],
        "price": [
            round(result.prices[entry.name] / _DOLLAR, 6) if entry.name in result.prices else -1 for entry in facts
        ],
        "age": [_age(entry, result.now) for entry in facts],
        "cpu": [entry[0] for entry in room],
        "memory": [entry[1] for entry in room],
        "cpuUsed": [entry[0] for entry in filled],
        "memoryUsed": [entry[1] for entry in filled],
        "verdict": [entry.verdict for entry in verdicts],
        "why": [entry.why for entry in verdicts],
        "action": [taken.get(entry.node, -1) for entry in verdicts],
        "cost": [round(entry.disruption_cost_float(result.now), 3) for entry in facts],
        "closing": [int(entry.closing) for entry in facts],
    }


def _room(facts: NodeFacts) -> tuple[int, int]:
    if facts.node is None:
        return (0, 0)
    found = amounts(facts.node.status.allocatable)
    return (found.get("cpu", 0), found.get("memory", 0))


def _age(facts: NodeFacts, now: datetime) -> int:
    born = facts.created or (facts.node.metadata.creation_timestamp if facts.node is not None else None)
    return -1 if born is None else max(0, int((now - born).total_seconds()))


def _chains(verdicts: Sequence[NodeVerdict]) -> tuple[list[list[int]], list[Json]]:
    """Return each node's checks as indexes into one list of distinct checks."""
    known: dict[tuple[str, bool, str, str], int] = {}
    chains = []
    for entry in verdicts:
        chain = []
        for check in entry.gates:
            figures = ", ".join(f"{key} {value}" for key, value in check.figures.items())
            chain.append(known.setdefault((check.gate.value, check.passed, check.why, figures), len(known)))
        chains.append(chain)
    checks = [{"gate": gate, "passed": passed, "why": why, "figures": text} for gate, passed, why, text in known]
    return chains, checks


def _action(command: Command) -> Json:
    return {
        "action": command.action.value,
        "reason": command.reason.value,
        "nodes": list(command.nodes),
        "savings": round(command.savings / _DOLLAR, 6),
        "required": round(command.required_savings / _DOLLAR, 6),
        "pods": command.pods,
        "replacements": [
            f"{entry.instance_types[0] if entry.instance_types else 'a node'} of pool {entry.node_pool}"
            + (f" or one of {len(entry.instance_types) - 1} more types" if len(entry.instance_types) > 1 else "")
            for entry in command.replacements
        ],
    }


def after_view(question: Question, result: RoundResult) -> Json:
    """Return the nodes as they would be once this round's commands have ended."""
    hopeful = question.settings.rules.hopeful_savings
    applied = apply_commands(question.cluster, result.commands, question.catalogue, result.now, hopeful=hopeful)
    prices = {entry.node: entry.price for opened in applied.launched for entry in opened}
    opened = frozenset(prices)
    prices |= result.prices
    used: dict[str, tuple[int, int]] = {}
    for pod in applied.cluster.pods:
        if pod.spec.node_name and is_active(pod):
            asks = pod_requests(pod)
            before = used.get(pod.spec.node_name, (0, 0))
            used[pod.spec.node_name] = (before[0] + asks.get("cpu", 0), before[1] + asks.get("memory", 0))
    nodes = applied.cluster.nodes
    room = [amounts(node.status.allocatable) for node in nodes]
    filled = [used.get(node.metadata.name, (0, 0)) for node in nodes]
    labels = [node.metadata.labels for node in nodes]
    return {
        "name": [node.metadata.name for node in nodes],
        "pool": [entry.get(names.NODEPOOL, "") for entry in labels],
        "zone": [entry.get(names.ZONE, "") for entry in labels],
        "type": [entry.get(names.INSTANCE_TYPE, "") for entry in labels],
        "price": [round(prices[n.metadata.name] / _DOLLAR, 6) if n.metadata.name in prices else -1 for n in nodes],
        "cpu": [entry.get("cpu", 0) for entry in room],
        "memory": [entry.get("memory", 0) for entry in room],
        "cpuUsed": [entry[0] for entry in filled],
        "memoryUsed": [entry[1] for entry in filled],
        "isNew": [int(node.metadata.name in opened) for node in nodes],
    }


# ---------------------------------------------------------------- where pods would go


def _all_moves(work: Work, verdicts: Sequence[NodeVerdict], commands: Sequence[Command]) -> list[Json]:
    taken = {node for command in commands for node in command.nodes}
    wanted = [entry.node for entry in verdicts if entry.node in taken]
    wanted += [entry.node for entry in verdicts if entry.node not in taken and entry.verdict == ELIGIBLE]
    wanted += [entry.node for entry in verdicts if entry.node not in taken and entry.verdict != ELIGIBLE]
    found = (moves_of(work, node, commands) for node in wanted[:MOVES_MAX])
    return [entry for entry in found if entry is not None]


def moves_of(work: Work, node: str, commands: Sequence[Command]) -> Json | None:
    """Return where a node's pods would go: by the command that removes it, else if only this node were removed."""
    scene = work.scene
    facts = scene.by_name.get(node)
    if facts is None or facts.empty or scene.index_of(facts) < 0:
        return None
    own = frozenset(pod.metadata.key for pod in facts.reschedulable)
    command = next((entry for entry in commands if node in entry.nodes), None)
    if command is not None:
        to = [(entry.node, entry.pods) for entry in command.placements]
        to += [
            (f"new {entry.instance_types[0] if entry.instance_types else 'node'} of {entry.node_pool}", entry.pods)
            for entry in command.replacements
        ]
        return _moves(node, ((where, [pod for pod in pods if pod in own]) for where, pods in to), ())
    found = work.simulate((facts,), for_cost=True)
    to = [(entry.node, tuple(pod.metadata.key for pod in entry.pods)) for entry in found.placements]
    to += [
        (
            f"new {entry.instance_types[0].name if entry.instance_types else 'node'} of {entry.pool}",
            tuple(pod.metadata.key for pod in entry.pods),
        )
        for entry in found.new_nodes
    ]
    stuck = [f"{entry.pod.metadata.key}: {entry.why}" for entry in found.blocking[:5] if entry.pod.metadata.key in own]
    return _moves(node, ((where, [pod for pod in pods if pod in own]) for where, pods in to), stuck)


def _moves(node: str, to: Iterable[tuple[str, list[str]]], stuck: Sequence[str]) -> Json:
    return {"node": node, "to": [{"node": where, "pods": pods} for where, pods in to if pods], "stuck": list(stuck)}


# ---------------------------------------------------------------- what would change a verdict


def _examples(question: Question, verdicts: Sequence[NodeVerdict]) -> list[Json]:
    """Return what would change the verdict of the first node of each pool and check, for the most frequent ones."""
    if len(verdicts) > EXAMPLES_NODES_MAX:
        return []
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in verdicts:
        if entry.verdict != ELIGIBLE:
            groups.setdefault((entry.verdict, entry.node_pool), []).append(entry.node)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return [
        {"node": members[0], "verdict": verdict, "pool": pool, "changes": changes_of(question, members[0])}
        for (verdict, pool), members in ordered[:EXAMPLES_MAX]
    ]


def changes_of(question: Question, node: str) -> list[Json]:
    """Return the result of each obvious change for a node."""
    _, opened = counterfactuals(question, node)
    return [{"if": entry.if_, "then": entry.then, "opens": entry.opens} for entry in opened]
