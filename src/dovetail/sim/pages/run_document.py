"""The one JSON document of a run's page: `report/schemas/run.schema.json` says what it holds.

Shapes a `Comparison` into columns; decides nothing but how much detail fits a file that can be mailed.
"""

from collections.abc import Sequence
from typing import Any, Final

from dovetail.decide.words import dollars
from dovetail.report.words import count, listing
from dovetail.sim.ledger import Result
from dovetail.sim.pages.comparison import PolicyPage
from dovetail.sim.pages.story import featured, story
from dovetail.sim.recorded_timeline import RECORDED
from dovetail.sim.timeline import MachineLife, Stays, Taken, Timeline

Json = dict[str, Any]
_DOLLAR: Final = 10**18
STAYS_MAX: Final = 120_000
"""How many pods' stays one page holds; beyond, only the two policies that the page opens with have them, or none."""


def run_document(comparison: PolicyPage, title: str) -> Json:
    """Return the whole document."""
    results = comparison.results
    pair = featured(comparison)
    detailed = _detailed(results, pair)
    return {
        "kind": "run",
        "title": title,
        "scenario": comparison.scenario,
        "about": comparison.about,
        "seed": comparison.seed,
        "seconds": comparison.seconds,
        "start": comparison.start.isoformat(),
        "story": list(story(comparison)),
        "compare": [results.index(entry) for entry in pair],
        "podsShown": bool(detailed),
        "policies": [_policy(entry, pods=entry in detailed) for entry in results],
    }


def _detailed(results: Sequence[Result], pair: Sequence[Result]) -> list[Result]:
    for wanted in (list(results), list(pair)):
        if sum(len(entry.timeline.stays) for entry in wanted) <= STAYS_MAX:
            return wanted
    return []


def _policy(result: Result, *, pods: bool) -> Json:
    series, timeline = result.series, result.timeline
    return {
        "name": result.policy,
        "figures": {
            "podsDisrupted": result.pods_disrupted,
            "podsDisruptedMoreThanOnce": result.pods_disrupted_more_than_once,
            "nodesStarted": result.nodes_started,
            "shortLivedNodes": result.short_lived_nodes,
            "nodeHours": round(result.node_hours, 3),
            "cost": round(result.cost / _DOLLAR, 4),
            "pendingPodSeconds": round(result.pending_pod_seconds, 1),
            "violations": len(result.violations),
        },
        "series": {
            "seconds": series.seconds,
            "nodes": series.nodes,
            "costPerHour": [round(value, 4) for value in series.cost_per_hour],
            "pods": series.pods,
            "pending": series.pending,
            "podsDisrupted": series.pods_disrupted,
            "gates": series.gates,
        },
        "machines": _machines(timeline.machines),
        "workloads": {
            "name": [entry.name for entry in timeline.workloads],
            "cpu": [entry.cpu for entry in timeline.workloads],
            "memory": [entry.memory for entry in timeline.workloads],
            "daemon": [int(entry.daemon) for entry in timeline.workloads],
        },
        "stays": _stays(timeline.stays if pods else Stays()),
        "commands": [_command(entry, timeline) for entry in timeline.commands],
        "outside": [{"at": at, "what": what} for at, what in timeline.outside],
    }


def _machines(machines: Sequence[MachineLife]) -> Json:
    return {
        "name": [entry.name for entry in machines],
        "pool": [entry.pool for entry in machines],
        "zone": [entry.zone for entry in machines],
        "type": [entry.type for entry in machines],
        "capacityType": [entry.capacity_type for entry in machines],
        "price": [round(entry.price / _DOLLAR, 6) for entry in machines],
        "cpu": [entry.cpu for entry in machines],
        "memory": [entry.memory for entry in machines],
        "started": [entry.started for entry in machines],
        "leaving": [entry.leaving for entry in machines],
        "ended": [entry.ended for entry in machines],
        "fate": [entry.fate for entry in machines],
        "command": [entry.command for entry in machines],
    }


def _stays(stays: Stays) -> Json:
    return {
        "workload": list(stays.workload),
        "machine": list(stays.machine),
        "created": list(stays.created),
        "began": list(stays.began),
        "ended": list(stays.ended),
        "moved": list(stays.moved),
    }


def _command(taken: Taken, timeline: Timeline) -> Json:
    return {
        "at": taken.at,
        "ended": taken.ended,
        "outcome": taken.outcome,
        "action": taken.action,
        "reason": taken.reason,
        "nodes": list(taken.nodes),
        "replacements": list(taken.replacements),
        "pods": taken.pods,
        "savings": round(taken.savings / _DOLLAR, 6),
        "required": round(taken.required / _DOLLAR, 6),
        "why": why(taken, timeline),
    }


def why(taken: Taken, timeline: Timeline) -> str:
    """Return one sentence: what a command did and why."""
    leaving = f"{listing(taken.nodes, 2)} {'leaves' if len(taken.nodes) == 1 else 'leave'}"
    came = [entry.type for entry in timeline.machines if entry.name in taken.replacements]
    coming = f" once {count(len(taken.replacements), 'replacement')}" if taken.replacements else ""
    if came:
        coming += f" ({listing(sorted(set(came)), 2)})"
    if coming:
        coming += " is ready" if len(taken.replacements) == 1 else " are ready"
    match taken.reason:
        case "Underutilized":
            asked = f", {dollars(taken.required)} asked for" if taken.required else ""
            because = "to save money" if taken.by == RECORDED else f"saves {dollars(taken.savings)} per hour{asked}"
        case "Drifted":
            because = "drifted from what its pool or image says now"
        case "Expired":
            because = "past its expireAfter"
        case "Empty":
            saves = "" if taken.by == RECORDED else f", saves {dollars(taken.savings)} per hour"
            because = f"no pod left on it{saves}"
        case other:
            because = other
    moved = f"; {count(taken.pods, 'pod')} {'restarts' if taken.pods == 1 else 'restart'}" if taken.pods else ""
    undone = " It was undone." if taken.outcome == "undone" else ""
    return f"{leaving}{coming}: {because}{moved}.{undone}"
