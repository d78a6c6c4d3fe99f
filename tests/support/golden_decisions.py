"""Compares our decisions with Karpenter's, method by method, and says what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.decide.outcome import CandidateFigures, MethodResult
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult, plan_round
from dovetail.model.command import Command, Method
from dovetail.model.money import as_float
from dovetail.model.settings import Settings
from tests.support.golden_cases import GoldenCase

TERMINATE_FIRST = ("P57",)
"""Cases with Karpenter's gate TerminateFirstDrift on, which contract.md leaves out of scope."""

METHODS = {
    Method.EMPTY: ("empty",),
    Method.DRIFTED: ("staticDrift", "drifted"),
    Method.MULTI_NODE: ("multiNode",),
    Method.SINGLE_NODE: ("singleNode",),
}
_ACTIONS = {
    "empty": ("deleteEmpty", "deleteEmpty"),
    "staticDrift": ("deleteDrifted", "replaceDrifted"),
    "drifted": ("deleteDrifted", "replaceDrifted"),
    "multiNode": ("deleteCost", "replaceCost"),
    "singleNode": ("deleteCost", "replaceCost"),
}
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"


@dataclass(frozen=True)
class Difference:
    """One thing that is not as Karpenter has it."""

    method: Method
    part: str
    ours: object
    karpenter: object

    def __str__(self) -> str:
        return f"{self.method.value} {self.part}:\n  ours      {self.ours}\n  karpenter {self.karpenter}"


def decide(case: GoldenCase) -> RoundResult:
    """Ask every method of ours about a case, under Karpenter's profile."""
    return plan_round(question_of(case), every_method=True, every_candidate=True)


def question_of(case: GoldenCase, settings: Settings | None = None) -> Question:
    """Return the question that a case puts, under its own settings or others."""
    return Question(cluster=case.cluster, catalogue=case.catalogue, settings=settings or case.settings, now=case.now)


def differences(case: GoldenCase, method: Method, result: RoundResult) -> Iterator[Difference]:
    """Return everything in which a method's answer is not Karpenter's."""
    ours = next(entry for entry in result.methods if entry.method is method)
    theirs = [case.method(name) for name in METHODS[method]]
    yield from _compare(method, "candidates", [_candidate(c) for c in ours.candidates], _their_candidates(theirs))
    yield from _compare(method, "budgets", dict(ours.budget), theirs[-1]["budgets"])
    acting = next((entry for entry in theirs if entry["commands"]), theirs[-1])
    expected = [_their_command(command, acting["method"]) for command in acting["commands"]]
    yield from _compare(method, "commands", [_command(command) for command in ours.commands], expected)
    yield from _alone(method, ours, theirs[-1])


def _compare(method: Method, part: str, ours: object, theirs: object) -> Iterator[Difference]:
    if ours != theirs:
        yield Difference(method, part, ours, theirs)


def _alone(method: Method, ours: MethodResult, theirs: Mapping[str, Any]) -> Iterator[Difference]:
    found = {entry.node: entry for entry in ours.alone or ()}
    for entry in theirs.get("perCandidate", ()):
        mine = found.get(entry["node"])
        command = None if mine is None or mine.command is None else _command(mine.command)
        expected = _their_command(entry["command"], theirs["method"]) if entry.get("command") else None
        if command != expected:
            why = f"{command} ({mine.why if mine else 'no such candidate'})"
            yield Difference(method, f"alone {entry['node']}", why, f"{expected} {entry.get('messages', '')}")


def _round(number: float) -> float:
    """Sums over Go's maps differ in the last digit from run to run."""
    return float(f"{number:.12g}")


def _candidate(entry: CandidateFigures) -> tuple[str, str, float, float]:
    return entry.node, entry.node_pool, _round(entry.price_float), _round(entry.disruption_cost)


def _their_candidates(theirs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, float, float]]:
    return [
        (entry["name"], entry["nodePool"], _round(entry["price"]), _round(entry["disruptionCost"]))
        for method in theirs
        for entry in method["candidates"]
    ]


def _command(command: Command) -> dict[str, Any]:
    replacements = [
        {
            "nodePool": entry.node_pool,
            "instanceTypes": list(entry.instance_types),
            "requirements": sorted(
                (r.key or RESERVATION, r.operator, tuple(r.values), r.min_values) for r in entry.requirements
            )
            if entry.instance_types
            else [],
            "pods": list(entry.pods),
        }
        for entry in command.replacements
    ]
    shown: dict[str, Any] = {
        "action": command.action.value,
        "nodes": list(command.nodes),
        "replacements": replacements,
        "placements": {entry.node: list(entry.pods) for entry in command.placements},
    }
    if command.method in (Method.MULTI_NODE, Method.SINGLE_NODE):
        shown["savings"] = _round(round(as_float(command.savings), 9))
    return shown


def _their_command(command: Mapping[str, Any], method: str) -> dict[str, Any]:
    replacements = [
        {
            "nodePool": entry["nodePool"],
            "instanceTypes": entry.get("instanceTypes") or [],
            "requirements": sorted(
                (r["key"] or RESERVATION, r["operator"], tuple(r.get("values", ())), r.get("minValues"))
                for r in entry["requirements"]
            )
            if entry.get("instanceTypes")
            else [],
            "pods": entry.get("pods") or [],
        }
        for entry in command.get("replacements") or ()
    ]
    shown: dict[str, Any] = {
        "action": _ACTIONS[method][1 if replacements else 0],
        "nodes": command["candidates"],
        "replacements": replacements,
        "placements": {entry["node"]: entry["pods"] for entry in command.get("existingPlacements") or ()},
    }
    if method in ("multiNode", "singleNode"):
        shown["savings"] = _round(round(command["estimatedSavings"], 9))
    return shown
