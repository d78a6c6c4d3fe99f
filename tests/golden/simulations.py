"""The questions that the golden cases answer, and a packer's answers to them in one shape.

A `Packer` is anything that can place and simulate; the same checks run over the reference packer and the fast kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tests.reference.packer import ReferencePacker
from tests.reference.pods import name_of
from tests.support.golden_answers import (
    Answer,
    Outcome,
    Pricing,
    closed_nodes,
    karpenter_answer,
    karpenter_homeless,
    karpenter_outcome,
    reference_answer,
)
from tests.support.golden_cases import GoldenCase


class Packer(Protocol):
    """Define the interface that the checks use."""

    def place(self) -> Answer:
        """Return where the pending pods go."""

    def simulate(self, candidates: list[str], *, consolidation: bool) -> Answer:
        """Return where all pods go if the candidates are removed."""


class ReferenceSide:
    """Run the reference packer on a case."""

    def __init__(self, case: GoldenCase, *, volumes_unfound: bool = False) -> None:
        self._packer = ReferencePacker(
            case.cluster, case.catalogue, case.settings, case.now, volumes_unfound=volumes_unfound
        )
        self._closed = closed_nodes(case, self._packer)

    def place(self) -> Answer:
        """Return where the pending pods go."""
        return reference_answer(self._packer.place())

    def simulate(self, candidates: list[str], *, consolidation: bool) -> Answer:
        """Return where all pods go if the candidates are removed."""
        return reference_answer(self._packer.simulate(candidates, self._closed if consolidation else ()))


@dataclass(frozen=True)
class Question:
    """Identify one query of the golden files: `what` is placement, singleNode, drifted or multiNode."""

    what: str
    candidates: tuple[str, ...] = ()

    def __str__(self) -> str:
        nodes = ",".join(self.candidates[:3]) + (",..." if len(self.candidates) > 3 else "")
        return f"{self.what} {nodes}".strip()


@dataclass(frozen=True)
class Check:
    """Hold a query, Karpenter's answer and a packer's answer, in comparable words."""

    question: Question
    theirs: Any
    ours: Any

    @property
    def agrees(self) -> bool:
        """Return whether both answers are the same."""
        return bool(self.theirs == self.ours)


def checks(case: GoldenCase, packer: Packer) -> Iterator[Check]:
    """Yield every question of a case with both answers."""
    yield _placement(case, packer)
    yield from _candidates(case, packer)
    yield from _batches(case, packer)


def _bare(answer: Answer) -> Answer:
    return replace(answer, homeless=(), pods=0)


def _placement(case: GoldenCase, packer: Packer) -> Check:
    given = case.provision
    theirs = karpenter_answer(given["existingNodes"], given["newNodeClaims"])
    failed = sorted(item["pod"] for item in given["errors"])
    ours = packer.place()
    return Check(Question("placement"), (theirs, failed), (_bare(ours), list(ours.homeless)))


def _candidates(case: GoldenCase, packer: Packer) -> Iterator[Check]:
    pricing = Pricing(case)
    pending = {name_of(pod) for pod in case.cluster.pods if not pod.spec.node_name}
    for method in ("singleNode", "drifted"):
        for entry in case.method(method).get("perCandidate") or ():
            node = entry["node"]
            answer = packer.simulate([node], consolidation=method == "singleNode")
            homeless = [pod for pod in answer.homeless if pod not in pending]
            theirs = karpenter_outcome(entry)
            named = karpenter_homeless(entry)
            if homeless:
                ours = Outcome("pods left over")
            elif method == "drifted":
                ours = Outcome("replace" if answer.new else "delete", _bare(answer))
            else:
                ours = pricing.cost_outcome(_bare(answer), node)
            # Karpenter names five of the pods that are left over at most.
            left = tuple(pod for pod in homeless if pod in named)
            yield Check(Question(method, (node,)), (theirs, named), (ours, left))


def _batches(case: GoldenCase, packer: Packer) -> Iterator[Check]:
    """Yield the simulations of several nodes: of these only the counts are recorded."""
    method = case.method("multiNode")
    left = dict(method["budgets"])
    allowed = []
    for candidate in method["candidates"]:
        if left.get(candidate["nodePool"], 0) > 0:
            left[candidate["nodePool"]] -= 1
            allowed.append(candidate["name"])
    for step in method.get("steps") or ():
        nodes = allowed[: step["candidates"]]
        answer = packer.simulate(nodes, consolidation=True)
        theirs = (step["pods"], step["newNodeClaims"], step["podErrors"])
        ours = (answer.pods, len(answer.new), len(answer.homeless))
        yield Check(Question("multiNode", tuple(nodes)), theirs, ours)
