"""Build the scene of a round around facts that are given: all of it is real but for where the facts come from."""

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import GateContext
from dovetail.decide.gates.table import GateTable
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import DOVETAIL
from tests.support.nodes import NOW


def scene_of(
    nodes: Sequence[NodeFacts] = (), policies: Mapping[str, DisruptionPolicy] | None = None, **question: Any
) -> Scene:
    """Return a scene of these facts; `policies`: by pool, in place of those that the NodePools write."""
    parts = {"cluster": Cluster(), "catalogue": Catalogue(instance_types=()), "settings": DOVETAIL, "now": NOW}
    scene = Scene.of(Question(**{**parts, **question}))
    vars(scene)["table"] = GateTable().renewed(nodes, GateContext(settings=scene.settings, now=scene.now))
    if policies is not None:
        vars(scene)["policies"] = dict(policies)
    return scene
