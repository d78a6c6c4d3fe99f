"""The columns of the simulated kube-scheduler, kept up to date change by change, equal a count of everything."""

from random import Random

import numpy as np
import pytest
from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.objects import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
    SelectorRequirement,
    Taint,
    Toleration,
)
from dovetail.sim.world.placement.columns import RowCounts
from dovetail.sim.world.placement.nodetable import NodeTable
from dovetail.sim.world.placement.shapes import PodShape, shape_of
from tests.support.node_tables import change

CLOSED = Taint(key="closed", effect="NoSchedule")
LOCKED = Taint(key="locked", effect="NoSchedule")


def shape(cpu: str, *, zone: str = "", tolerates: bool = False, gpu: str = "") -> PodShape:
    """Return the shape of a pod."""
    requests = {"cpu": cpu, "memory": "1Gi", **({"example.com/gpu": gpu} if gpu else {})}
    return shape_of(
        Pod(
            metadata=ObjectMeta(name="p", namespace="default", labels={"app": cpu}),
            spec=PodSpec(
                containers=(Container(name="c", resources=ResourceRequirements(requests=requests)),),
                node_selector={names.ZONE: zone} if zone else {},
                tolerations=(Toleration(key="closed", operator="Exists"),) if tolerates else (),
            ),
        )
    )


SHAPES = (
    shape("500m"),
    shape("2"),
    shape("500m", zone="zone-b"),
    shape("1", tolerates=True),
    shape("100m", gpu="1"),
    shape("100m", gpu="0"),
    shape("0"),
)


def node(name: str, dice: Random) -> Node:
    """Return a node with labels, taints and room by chance."""
    room = {"cpu": str(dice.choice([2, 4])), "memory": "8Gi", "pods": str(dice.choice([3, 20]))}
    if dice.random() < 0.2:
        room["example.com/gpu"] = "1"
    return Node(
        metadata=ObjectMeta(name=name, labels={names.ZONE: dice.choice(["zone-a", "zone-b"])}),
        spec=NodeSpec(taints=(CLOSED,) if dice.random() < 0.3 else (), unschedulable=dice.random() < 0.1),
        status=NodeStatus(allocatable=room),
    )


@pytest.mark.parametrize("seed", range(6))
def test_open_rows_equal_a_count_of_everything(seed: int) -> None:
    """Whatever pods and nodes do, and however seldom a shape is looked at, its open rows are those that fit now."""
    dice, table = Random(seed), NodeTable()
    for step in range(600):
        change(table, step, dice, node, SHAPES)
        for at, pod in enumerate(SHAPES):
            if step % (1 + 30 * at) == 0:
                kept = table.columns(pod)
                known = table._columns, table._terms
                table._columns, table._terms = {}, {}
                counted = table.columns(pod)
                table._columns, table._terms = known
                assert np.array_equal(kept.open, counted.open), (step, at)
                assert np.array_equal(kept.terms.fits, counted.terms.fits), (step, at)
                assert np.array_equal(kept.terms.admitted, counted.terms.admitted), (step, at)
    assert any(table.columns(pod).open.any() for pod in SHAPES)
    assert len(table.rows) > 16


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_may_have_opened_is_not_missed(seed: int) -> None:
    """If a row opened to a shape since a mark, the table says so; if only closed nodes changed, it says that too."""
    dice, table, answers = Random(seed), NodeTable(), set[bool]()
    for step in range(300):
        before = [set(table.columns(pod).open_rows().tolist()) for pod in SHAPES]
        mark = table.mark()
        for part in range(dice.randint(1, 3)):
            change(table, 10 * step + part, dice, node, SHAPES)
        for pod, known in zip(SHAPES, before, strict=True):
            answer = table.may_have_opened(mark, (pod,))
            answers.add(answer)
            assert answer or known.issuperset(table.columns(pod).open_rows().tolist()), step
        mark = table.mark()
        table.set_node(replace(node(f"joining-{step}", dice), spec=NodeSpec(taints=(CLOSED, LOCKED))))
        assert not table.may_have_opened(mark, SHAPES)
    assert answers == {True, False}


@pytest.mark.parametrize("seed", range(4))
def test_counts_by_row_and_as_a_column_are_the_same(seed: int) -> None:
    """Pods counted in rows, before and after the table grew, are in the column, and rows without any are not kept."""
    dice, counts, plain = Random(seed), RowCounts(), dict[int, int]()
    size = 8
    for step in range(300):
        row = dice.randrange(size)
        by = -1 if plain.get(row) and dice.random() < 0.5 else 1
        counts.add(row, by)
        plain[row] = plain.get(row, 0) + by
        if step % 7 == 0:
            assert counts.column(size).tolist() == [plain.get(row, 0) for row in range(size)]
            assert counts == {row: count for row, count in plain.items() if count}
        if step % 100 == 99:
            size *= 2


def test_open_means_fits_admits_and_has_room() -> None:
    """A shape with another zone, a taint it does not tolerate, or no room has no open row."""
    table = NodeTable()
    table.set_node(
        Node(
            metadata=ObjectMeta(name="n", labels={names.ZONE: "zone-a"}),
            spec=NodeSpec(taints=(CLOSED,)),
            status=NodeStatus(allocatable={"cpu": "1", "memory": "1Gi", "pods": "5"}),
        )
    )
    found = {at: bool(table.columns(pod).open[table.rows["n"]]) for at, pod in enumerate(SHAPES)}
    assert found == {0: False, 1: False, 2: False, 3: True, 4: False, 5: False, 6: False}
    table.bind("taken", SHAPES[3], table.rows["n"])
    assert not table.columns(SHAPES[3]).open.any()
    table.release("taken")
    assert table.columns(SHAPES[3]).open.sum() == 1


def test_bound_pod_may_ask_for_what_no_node_has() -> None:
    """A pod that is bound already may request a resource that no node has named yet, as in a captured cluster."""
    table = NodeTable()
    table.set_node(Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable={"cpu": "4", "memory": "8Gi"})))
    table.bind("pod", SHAPES[4], table.rows["n"])
    assert table.room[table.rows["n"], table.resources["example.com/gpu"]] == -1


def test_shapes_that_differ_in_node_affinity_alone_have_their_own_columns() -> None:
    """A node that one of them may go to is closed to the other, whichever is asked about first."""
    zones = ("zone-a", "zone-b")
    terms = [
        NodeSelectorTerm(match_expressions=(SelectorRequirement(key=names.ZONE, operator="In", values=(zone,)),))
        for zone in zones
    ]
    affinities = [
        Affinity(
            node_affinity=NodeAffinity(
                required_during_scheduling_ignored_during_execution=NodeSelector(node_selector_terms=(term,))
            )
        )
        for term in terms
    ]
    shapes = [shape_of(Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(affinity=entry))) for entry in affinities]
    table = NodeTable()
    for zone in zones:
        table.set_node(Node(metadata=ObjectMeta(name=zone, labels={names.ZONE: zone}), spec=NodeSpec()))
    found = [table.columns(shape).terms.fits for shape in shapes]
    assert [[bool(fits[table.rows[zone]]) for zone in zones] for fits in found] == [[True, False], [False, True]]
