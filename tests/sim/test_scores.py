"""The simulated kube-scheduler's scores: one by one as in columns, and domains counted change by change."""

from random import Random

import numpy as np
import pytest

from dovetail.model import names
from dovetail.model.objects import (
    Container,
    LabelSelectorSpec,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    Taint,
    TopologySpreadConstraint,
)
from dovetail.sim.world.placement.columns import FEW
from dovetail.sim.world.placement.nodetable import NodeTable
from dovetail.sim.world.placement.scores import NodeScores
from dovetail.sim.world.placement.shapes import PodShape, shape_of
from tests.support.node_tables import change

ZONES = ("zone-a", "zone-b", "zone-c")


def shape(app: str, cpu: str, *soft: str, zone: str = "", counted: bool = True) -> PodShape:
    """Return a shape with soft constraints over these label keys; without any, the default ones, if it is counted."""
    alike = LabelSelectorSpec(match_labels={"app": app})
    spread = tuple(
        TopologySpreadConstraint(
            topology_key=key, max_skew=2, when_unsatisfiable="ScheduleAnyway", label_selector=alike
        )
        for key in soft
    )
    requests = ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"} if cpu else {})
    pod = Pod(
        metadata=ObjectMeta(name=app, namespace="default", labels={"app": app}),
        spec=PodSpec(
            containers=(Container(name="c", resources=requests),),
            topology_spread_constraints=spread,
            node_selector={names.ZONE: zone} if zone else {},
        ),
    )
    return shape_of(pod, default_selector=alike if counted else None)


SHAPES = (
    shape("web", "500m"),
    shape("web", "500m", zone="zone-b"),
    shape("lone", "250m", counted=False),
    shape("none", ""),
    shape("spread", "100m", names.ZONE),
    shape("both", "100m", names.ZONE, names.HOSTNAME, "rack"),
)


def node(name: str, dice: Random) -> Node:
    """Return a node, sometimes without a label, sometimes shunned."""
    labels = {names.HOSTNAME: name, names.ZONE: dice.choice(ZONES), "rack": dice.choice("12")}
    labels.pop(dice.choice([names.ZONE, "rack", "other", "other"]), None)
    shunned = (Taint(key="old", effect="PreferNoSchedule"),) if dice.random() < 0.2 else ()
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(taints=shunned),
        status=NodeStatus(allocatable={"cpu": str(dice.choice([2, 8])), "memory": "16Gi", "pods": "50"}),
    )


@pytest.mark.parametrize("seed", range(4))
def test_few_nodes_are_scored_as_many_are(seed: int) -> None:
    """Whatever happened to the nodes, one by one and in columns they get the same scores."""
    dice, table = Random(seed), NodeTable()
    scores, seen = NodeScores(table), set()
    for step in range(400):
        change(table, step, dice, node, SHAPES)
        pod = dice.choice(SHAPES)
        columns = table.columns(pod)
        rows = np.array(sorted(dice.sample(sorted(table.rows.values()), min(len(table.rows), dice.randint(2, FEW)))))
        many = scores.of_many(pod, rows, columns)
        assert scores.of_few(pod, rows.tolist(), columns) == many.tolist(), step
        assert scores.best_of_few(pod, rows.tolist(), columns) == [
            row for row in rows.tolist() if many[list(rows).index(row)] == max(many)
        ]
        seen.update(many.tolist())
    assert len(seen) > 50


@pytest.mark.parametrize("seed", range(4))
def test_the_list_of_few_open_nodes_follows_what_changes(seed: int) -> None:
    """The list holds the rows that are open now, and their scores, with what is kept for that list, are right."""
    dice, table, seen = Random(seed), NodeTable(), 0
    scores = NodeScores(table)
    for step in range(500):
        change(table, step, dice, node, SHAPES)
        for pod in SHAPES:
            columns = table.columns(pod)
            rows = columns.open.nonzero()[0]
            assert columns.open_rows().tolist() == rows.tolist(), step
            assert columns.few == (rows.tolist() if len(rows) <= FEW else None), step
            if columns.few:
                seen += 1
                assert scores.of_few(pod, columns.few, columns) == scores.of_many(pod, rows, columns).tolist(), step
    assert seen > 200


@pytest.mark.parametrize("seed", range(4))
def test_scores_hold_however_much_changed_since_the_last_look(seed: int) -> None:
    """Few changes or many, what was scored and shunned before is not taken for what is true now."""
    dice, table = Random(seed), NodeTable()
    scores = NodeScores(table)
    for step in range(60):
        table.set_node(node(f"n{step}", dice))
    for look in range(40):
        for step in range(dice.choice((1, 150))):
            change(table, 1000 * look + step, dice, node, SHAPES)
        for pod in SHAPES:
            columns = table.columns(pod)
            rows = np.array(sorted(dice.sample(sorted(table.rows.values()), FEW)))
            assert scores.of_few(pod, rows.tolist(), columns) == scores.of_many(pod, rows, columns).tolist(), look
            there = [(item, columns.terms.shunned[row]) for row, item in enumerate(table.nodes)]
            assert all(shunned == len(item.spec.taints) for item, shunned in there if item is not None), look


@pytest.mark.parametrize("seed", range(4))
def test_domains_are_counted_change_by_change(seed: int) -> None:
    """Pods per domain, kept while pods come and go and nodes are relabelled, equal a count over all nodes that fit."""
    dice, table = Random(seed), NodeTable()
    for step in range(500):
        change(table, step, dice, node, SHAPES)
        pod = SHAPES[step % len(SHAPES)]
        group = table.picked_by(("default",), LabelSelectorSpec(match_labels=pod.labels))
        columns = table.columns(pod)
        for key in (names.ZONE, "rack"):
            counted: dict[int, int] = {}
            for entry in table.pods.values():
                number = int(table.topology(key).domain[entry.row])
                if entry.active and entry.shape.labels == pod.labels and columns.terms.fits[entry.row] and number >= 0:
                    counted[number] = counted.get(number, 0) + 1
            found = table.active_in_domains(group, key, columns)
            assert {number: count for number, count in found.items() if count} == counted, (step, key)
        assert columns.terms.fitting == int(columns.terms.fits.sum())
