"""The fast kernel's answers in the shape that the golden checks compare."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.settings import Settings
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.result import NewNode, NodePlacement, SimulationResult
from dovetail.scheduling.simulate import place, simulate
from dovetail.scheduling.snapshot import Snapshot
from tests.reference.claims import RESERVATION_ID
from tests.reference.packer import ReferencePacker
from tests.reference.pods import name_of
from tests.support.golden_answers import Answer, NewAnswer, closed_nodes, ordered_requests
from tests.support.golden_cases import GoldenCase


class Kernel:
    """The fast kernel on a cluster."""

    def __init__(self, cluster: Cluster, catalogue: Catalogue, settings: Settings, now: datetime) -> None:
        self._snapshot = Snapshot(cluster, catalogue, settings, now)
        self._ignored = {name_of(pod) for pod, _ in self._snapshot.ignored}

    def place(self) -> Answer:
        """Return where the pending pods go; those that are not even looked at are left out."""
        found = place(self._snapshot)
        homeless = [name_of(item.pod) for item in found.unplaced if name_of(item.pod) not in self._ignored]
        return Answer(_existing(found.existing), _new(found.new), tuple(sorted(homeless)))

    def simulate(self, candidates: Sequence[str], closed: Collection[str] = ()) -> Answer:
        """Return where all pods go if the candidates are removed."""
        result = simulate(
            self._snapshot,
            [self._index(name) for name in candidates],
            SimulationOptions(closed=[self._index(name) for name in closed]),
        )
        return simulation_answer(result)

    def _index(self, name: str) -> int:
        index = self._snapshot.index.get(name)
        assert index is not None, name
        return index


def simulation_answer(result: SimulationResult) -> Answer:
    """Return the answer of one simulation."""
    homeless = sorted(name_of(item.pod) for item in (*result.unplaced, *result.uninitialized))
    return Answer(_existing(result.placements), _new(result.new_nodes), tuple(homeless), result.pods_simulated)


def _existing(placements: Sequence[NodePlacement]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(sorted((item.node, tuple(name_of(pod) for pod in item.pods)) for item in placements))


def _new(nodes: Sequence[NewNode]) -> tuple[NewAnswer, ...]:
    answers = [
        NewAnswer(
            pool=node.pool,
            types=tuple(kind.name for kind in node.instance_types),
            requirements=tuple(
                sorted(
                    (item.key or RESERVATION_ID, item.operator, item.values, item.min_values)
                    for item in node.requirements
                )
            ),
            requests=ordered_requests(node.requests),
            pods=tuple(name_of(pod) for pod in node.pods),
        )
        for node in nodes
    ]
    return tuple(sorted(answers, key=lambda item: (item.pool, item.pods)))


class KernelSide:
    """The fast kernel on a golden case."""

    def __init__(self, case: GoldenCase) -> None:
        self._kernel = Kernel(case.cluster, case.catalogue, case.settings, case.now)
        packer = ReferencePacker(case.cluster, case.catalogue, case.settings, case.now)
        self._closed = closed_nodes(case, packer)

    def place(self) -> Answer:
        """Return where the pending pods go."""
        return self._kernel.place()

    def simulate(self, candidates: list[str], *, consolidation: bool) -> Answer:
        """Return where all pods go if the candidates are removed."""
        closed = [name for name in self._closed if name not in candidates] if consolidation else []
        return self._kernel.simulate(candidates, closed)
