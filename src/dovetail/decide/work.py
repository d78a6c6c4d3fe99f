"""What a round has tried out on its scene: simulations and judgements, each once, and how many pods that placed.

A simulation is cached by its inputs, so a node that drift has simulated is not simulated again for its price if the
inputs are the same. Sits in decide, above the scene, below the methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.scene import Scene
from dovetail.model.money import Money
from dovetail.scheduling.entries import ALL_TYPES, SimulationOptions
from dovetail.scheduling.launch.machines import TypeBits
from dovetail.scheduling.result import SimulationResult
from dovetail.scheduling.simulate import simulate

if TYPE_CHECKING:
    from dovetail.decide.methods.moves import Found, Move, Possible
    from dovetail.decide.refusal import Refusal

_Key = tuple[tuple[int, ...], bool, TypeBits, bool]
"""A simulation: the places of the nodes that go, whether for cost, the types of new nodes, whether it may stop."""


class Work:
    """What was tried out so far.

    `begun`: go on from there. It is not changed, so the parts of a result, which all go on from the end of the round,
    are the same in whatever order they are read. Simulations that one of them made serve the others, but count in each.
    `judged`: nodes alone; None: refused for certain, by whom is found when it is read. `hasty`: a simulation for cost
    stops once a pod goes to a node that is not initialized. That refuses the move; by which gate first is found when it
    is read.
    """

    def __init__(self, scene: Scene, begun: Work | None = None, *, hasty: bool = False) -> None:
        self.scene, self.hasty = scene, hasty
        self._results: dict[_Key, SimulationResult] = {} if begun is None else begun._results
        self.certain: dict[str, Possible | Refusal] = {} if begun is None else begun.certain
        self._asked: set[_Key] = set() if begun is None else set(begun._asked)
        self.unscored: dict[str, Move | Refusal] = {} if begun is None else dict(begun.unscored)
        self.judged: dict[str, Move | Refusal | None] = {} if begun is None else dict(begun.judged)
        self.scores: dict[tuple[str, ...], Mapping[str, float]] = {} if begun is None else dict(begun.scores)
        self.searched: Found | None = None if begun is None else begun.searched
        self.could_save: Mapping[str, Money | None] | None = None if begun is None else begun.could_save
        self.pods_simulated: int = 0 if begun is None else begun.pods_simulated

    def simulate(
        self, nodes: Sequence[NodeFacts], *, for_cost: bool, launchable: TypeBits = ALL_TYPES, in_full: bool = False
    ) -> SimulationResult:
        """Simulate the removal of nodes; computed once per set of nodes and rules.

        A cost action may open few new nodes and not move pods to closed nodes; if no nodes are closed, the unbounded
        answer to the same question is reused. `launchable`: instance types that new nodes may be of. `in_full`: don't
        stop early, even if hasty.
        """
        scene = self.scene
        chosen = tuple(map(scene.index_of, nodes))
        stops = self.hasty and for_cost and not in_full
        key = (tuple(sorted(chosen)), for_cost, launchable, stops)
        unbounded = (key[0], False, launchable, False)
        if key not in self._asked and for_cost and not scene.closed and scene.settings.preferences_open_nodes:
            key = unbounded if unbounded in self._asked else key
        result = self._results.get(key)
        if result is None:
            closed, most = (scene.closed, scene.new_nodes_max) if for_cost else ((), None)
            prefers = scene.settings.preferences_open_nodes or not for_cost
            options = SimulationOptions(
                closed=closed,
                new_nodes_max=most,
                launchable=launchable,
                preferences_open=prefers,
                stops_at=scene.snapshot.initialized if stops else None,
            )
            result = self._results[key] = simulate(scene.snapshot, chosen, options, scene.in_flight.under_way)
        if key not in self._asked:
            self._asked.add(key)
            self.pods_simulated += result.pods_simulated
        return result

    def has_simulated(self, facts: NodeFacts) -> bool:
        """Return whether it is already known where the pods of a node that has to go would move to."""
        return ((self.scene.index_of(facts),), False, ALL_TYPES, False) in self._asked
