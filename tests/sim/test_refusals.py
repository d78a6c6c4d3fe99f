"""Pods that keep others away: only those that they refuse look at them."""

from random import Random

import numpy as np
import pytest

from dovetail.model import names
from dovetail.model.objects import (
    Affinity,
    Container,
    LabelSelectorSpec,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
)
from dovetail.sim.world.placement.node_choice import NodeChoice
from dovetail.sim.world.placement.shapes import PodShape, Shapes, shape_of
from dovetail.sim.world.store import WorldStore


def shape(app: str, *away: str, key: str = names.HOSTNAME) -> PodShape:
    """Return a shape that refuses pods of these apps."""
    term = PodAffinityTerm(
        topology_key=key,
        label_selector=LabelSelectorSpec(
            match_expressions=(SelectorRequirement(key="app", operator="In", values=away),)
        ),
    )
    affinity = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))
    requests = ResourceRequirements(requests={"cpu": "100m"})
    return shape_of(
        Pod(
            metadata=ObjectMeta(name=app, namespace="default", labels={"app": app}),
            spec=PodSpec(containers=(Container(name="c", resources=requests),), affinity=affinity if away else None),
        )
    )


WEB, JOBS, DB = shape("web"), shape("jobs"), shape("db", "db")
LONERS = (DB, shape("cache", "web"), shape("quiet", "web", "jobs", key=names.ZONE))


def refused(choice: NodeChoice, pod: PodShape, row: int) -> bool:
    """Return whether a pod of a node, or of its zone, refuses this one: looked up pod by pod."""
    for entry in choice.table.pods.values():
        for term in entry.shape.required_apart:
            domain = choice.table.topology(term.topology_key).domain
            [rule] = term.label_selector.match_expressions if term.label_selector else ()
            if domain[entry.row] == domain[row] and pod.labels["app"] in rule.values:
                return True
    return False


@pytest.mark.parametrize("seed", range(4))
def test_only_those_refuse_whose_terms_pick_a_pod(seed: int) -> None:
    """Whenever loners come and go, a pod may go where none of them refuses it; one that none refuses is plain."""
    dice, shapes = Random(seed), Shapes()
    choice = NodeChoice(WorldStore(), shapes, dice)
    table = choice.table
    for at in range(12):
        labels = {names.HOSTNAME: f"n{at}", names.ZONE: f"zone-{at % 4}"}
        room = NodeStatus(allocatable={"cpu": "64", "memory": "64Gi", "pods": "100"})
        table.set_node(Node(metadata=ObjectMeta(name=f"n{at}", labels=labels), status=room))
    assert choice.is_plain(WEB)
    for step in range(120):
        pod = dice.choice((WEB, JOBS, *LONERS[: 1 + step // 40]))
        shapes.set(f"p{step}", pod)
        if dice.random() < 0.6:
            table.bind(f"p{step}", pod, table.rows[f"n{dice.randrange(12)}"])
        elif table.pods:
            table.release(dice.choice(sorted(table.pods)))
        for other in (WEB, JOBS):
            found = choice._filtered(other, table.columns(other))
            free = [row for row in table.rows.values() if not refused(choice, other, row)]
            assert np.flatnonzero(found).tolist() == sorted(free), step
            assert not choice.is_plain(other) or len(free) == 12
    assert [choice.is_plain(pod) for pod in (WEB, JOBS, DB)] == [False, False, False]


def test_a_loner_that_refuses_others_leaves_a_pod_plain() -> None:
    """A database that keeps away from itself has no say in where a web server goes."""
    shapes = Shapes()
    choice = NodeChoice(WorldStore(), shapes, Random(0))
    shapes.set("db", DB)
    assert choice.is_plain(WEB)
    shapes.set("cache", LONERS[1])
    assert not choice.is_plain(WEB)
    assert choice.is_plain(JOBS)
