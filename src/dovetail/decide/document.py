"""The JSON document of `dovetail plan`, as contract.md defines it. Only formats values.

Sits in decide, beside `outcome`; `RoundResult.to_dict` returns it and `cli.planning.plan` prints it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from dovetail.decide.billing_words import bill_document
from dovetail.decide.optimal import Optimal, optimal_of
from dovetail.decide.outcome import CandidateAlone, MethodResult
from dovetail.decide.round import RoundResult
from dovetail.decide.words import clock
from dovetail.model.command import Command, Replacement
from dovetail.model.commitments import HOURS_A_MONTH
from dovetail.model.money import format_money
from dovetail.model.objects import SelectorRequirement
from dovetail.model.verdicts import GateResult, NodeVerdict

Json = dict[str, Any]


def plan_document(result: RoundResult) -> Json:
    """Return the whole document."""
    return {
        "now": clock(result.now),
        "profile": result.profile.value,
        **({"policy": result.policy} if result.policy else {}),
        "actions": [action(command) for command in result.commands],
        "methods": [_method(entry) for entry in result.methods],
        "nodes": _nodes(result.verdicts),
        "budgets": budget_rows(result),
        "warnings": list(result.warnings),
        "karpenter": {
            "featureGates": dict(result.feature_gates),
            "assumed": list(result.assumed),
            "buffers": [
                {
                    "buffer": row.name,
                    "replicas": row.replicas,
                    "carried": row.carried,
                    "nodes": [{"node": node, "virtualPods": count} for node, count in row.nodes],
                }
                for row in result.buffers
            ],
        },
        "optimal": optimal_document(optimal_of(result.commands, result.value_at_most)),
        "unpricedNodes": unpriced_nodes(result),
        "nextChange": None if result.next_change is None else clock(result.next_change),
        "prices": prices(result.catalogue.source, result.catalogue.as_of, result.now),
        "bill": bill_document(result.bill),
        "costPerHour": format_money(result.cost_per_hour),
        "costPerMonth": format_money(result.cost_per_hour * HOURS_A_MONTH, 2),
    }


def optimal_document(found: Optimal | None) -> Json | None:
    """Return how good commands are compared with a bound; None if no node may go."""
    if found is None:
        return None
    return {
        "valuePerHour": format_money(found.value),
        "valuePerHourAtMost": format_money(found.at_most),
        "reached": None if found.reached is None else round(found.reached, 4),
    }


def unpriced_nodes(result: RoundResult) -> list[str]:
    """Return the nodes for which the catalogue has no price, by name."""
    return sorted(entry.node for entry in result.verdicts if entry.node not in result.prices)


def prices(source: str, date: str, now: datetime) -> Json:
    """Return the source of the prices and their age; `asOf` and `ageDays` are null if the catalogue has no date."""
    return {"source": source, "asOf": date or None, "ageDays": price_age_days(date, now)}


def price_age_days(date: str, now: datetime) -> int | None:
    """Return how many days old prices are; None if they have no date, or one after `now`."""
    try:
        found = datetime.fromisoformat(date)
    except ValueError:
        return None
    age = now - (found if found.tzinfo is not None else found.replace(tzinfo=UTC))
    return age.days if age.days >= 0 else None


def action(command: Command) -> Json:
    """Return a command as ACTION."""
    return {
        "action": command.action.value,
        "nodes": list(command.nodes),
        "replacements": [_replacement(entry) for entry in command.replacements],
        "placements": [{"node": entry.node, "pods": sorted(entry.pods)} for entry in command.placements],
        "savingsPerHour": format_money(command.savings),
        "savingsPerMonth": format_money(command.savings * HOURS_A_MONTH, 2),
        "requiredSavingsPerHour": format_money(command.required_savings),
        "disruptionCost": command.disruption_cost,
        "pods": command.pods,
    }


def _replacement(entry: Replacement) -> Json:
    return {
        "nodePool": entry.node_pool,
        "instanceTypes": list(entry.instance_types),
        "capacityTypes": list(entry.capacity_types),
        "zones": list(entry.zones),
        "requirements": [requirement(item) for item in entry.requirements],
        "pods": sorted(entry.pods),
    }


def requirement(item: SelectorRequirement) -> Json:
    """Return a requirement as it is written in a NodeClaim."""
    shown: Json = {"key": item.key, "operator": item.operator, "values": list(item.values)}
    if item.min_values is not None:
        shown["minValues"] = item.min_values
    return shown


def budget_rows(result: RoundResult) -> list[Json]:
    """Return what each pool's budget allows for each reason, as the contract writes it.

    What is left is within the topology budgets; what is allowed is by the others.
    """
    return [
        {
            "nodePool": row.node_pool,
            "reason": row.reason.value,
            "allowed": row.allowed,
            "used": row.used,
            "left": row.left_with_domains,
        }
        for row in result.budgets
    ]


def _method(entry: MethodResult) -> Json:
    shown: Json = {
        "method": entry.method.value,
        "reason": entry.reason.value,
        "candidates": [
            {
                "node": candidate.node,
                "nodePool": candidate.node_pool,
                "price": candidate.price_float,
                "disruptionCost": candidate.disruption_cost,
            }
            for candidate in entry.candidates
        ],
        "budget": dict(entry.budget),
        "actions": [action(command) for command in entry.commands],
    }
    if entry.alone is not None:
        shown["perCandidate"] = [_alone(candidate) for candidate in entry.alone]
    return shown


def _alone(entry: CandidateAlone) -> Json:
    return {
        "node": entry.node,
        "action": None if entry.command is None else action(entry.command),
        "why": entry.why,
    }


def _nodes(verdicts: Iterable[NodeVerdict]) -> list[Json]:
    """Return all nodes; a gate result that many nodes share is formatted once."""
    known: dict[int, Json] = {}
    return [
        {
            "name": entry.node,
            "nodePool": entry.node_pool,
            "verdict": entry.verdict,
            "why": entry.why,
            "gates": [known.get(id(result)) or _first_seen(result, known) for result in entry.gates],
        }
        for entry in verdicts
    ]


def _first_seen(result: GateResult, known: dict[int, Json]) -> Json:
    shown = known[id(result)] = gate(result)
    return shown


def gate(result: GateResult) -> Json:
    """Return the result of a gate."""
    return {
        "gate": result.gate.value,
        "passed": result.passed,
        "why": result.why,
        "figures": dict(result.figures),
    }
