"""Steering with exact figures (docs/rules.md#steering)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.victims import STAYS
from dovetail.decide.gates.gate_results import GateContext
from dovetail.decide.gates.table import GateTable
from dovetail.decide.scene import Scene
from dovetail.decide.steering import YOUNG, steer
from dovetail.model import names
from dovetail.model.karpenter import FeatureGate, KarpenterSettings
from dovetail.model.money import UNIT
from dovetail.model.objects import Node, NodeClaim, ObjectMeta, OwnerReference, Pod, Taint, TopologySpreadConstraint
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings, SteeringMode
from tests.support.design_world import GIB, Town, kind
from tests.support.nodes import NOW, facts_of

PREFER = replace(DOVETAIL, steering=SteeringMode.PREFER)
OLD = NodeClaim(metadata=ObjectMeta(creation_timestamp=NOW - YOUNG))


def _pod(name: str, owner: str = "rs", kind: str = "ReplicaSet", **annotations: str) -> Pod:
    reference = OwnerReference(kind=kind, name=owner, uid=owner)
    meta = ObjectMeta(name=name, namespace="d", uid=name, owner_references=(reference,), annotations=annotations)
    return Pod(metadata=meta)


def _node(name: str, *pods: Pod, worth: float = 1.0, closing: bool = False, **facts: Any) -> NodeFacts:
    """Return a node with this value, old enough, with pods."""
    node = Node()
    if closing:
        taint = Taint(key=names.CLOSING_TAINT, effect="PreferNoSchedule")
        node = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(taint,)))
    priced = {"price": round(worth * UNIT), "price_float": worth}
    parts = {"node": node, "claim": OLD, **priced, "reschedulable": pods or (_pod(name, name),), **facts}
    return facts_of(name=name, **parts)


def _scene(
    *nodes: NodeFacts,
    room: dict[str, tuple[float, float]] | None = None,
    asks: dict[str, tuple[float, float]] | None = None,
    shut: Sequence[str] = (),
    managed: tuple[str, ...] | None = None,
    restless: bool = False,
    settings: Settings = PREFER,
) -> Scene:
    """Return a scene of these nodes: 10 CPUs and 10 GiB of each are free, and its pods need 4 of each.

    `room`, `asks`: of some nodes, something else. `shut`: nodes that take no pods, because they leave.
    """
    town = Town(kind("m", "1"), now=NOW, settings=replace(settings, marked_for_deletion_nodes=tuple(shut)))
    town.pool()
    for facts in nodes:
        town.node(facts.name, "m")
        free, wanted = (room or {}).get(facts.name, (10, 10)), (asks or {}).get(facts.name, (4, 4))
        if facts.empty:
            wanted = (0, 0)
        else:
            town.pod(facts.name, facts.name, cpu=f"{wanted[0]}", memory=f"{wanted[1] * GIB:.0f}")
        total = {"cpu": f"{free[0] + wanted[0]}", "memory": f"{(free[1] + wanted[1]) * GIB:.0f}", "pods": "110"}
        node = town.nodes[facts.name]
        status = msgspec.structs.replace(node.status, allocatable=total)
        town.nodes[facts.name] = msgspec.structs.replace(node, status=status)
    until = {"default": NOW + timedelta(hours=1)} if restless else {}
    scene = Scene.of(town.question(managed_pools=managed, restless=until))
    vars(scene)["table"] = GateTable().renewed(nodes, GateContext(settings=settings, now=NOW))
    return scene


def _closing(*nodes: NodeFacts, **parts: Any) -> str:
    return " ".join(steer(_scene(*nodes, **parts)).closing)


@pytest.mark.parametrize(
    ("facts", "parts", "steered"),
    [
        ({}, {}, True),
        ({"claim": None}, {}, False),
        ({"claim": NodeClaim()}, {}, False),
        ({"claim": NodeClaim(metadata=ObjectMeta(creation_timestamp=NOW - YOUNG + timedelta(seconds=1)))}, {}, False),
        ({"initialized": False}, {}, False),
        ({"marked": "x"}, {}, False),
        ({"nominated": True}, {}, False),
        ({"policy": None}, {}, False),
        ({"policy": DisruptionPolicy(consolidate_after=None)}, {}, False),
        ({"policy": DisruptionPolicy(consolidate_after=0)}, {}, True),
        ({"policy": DisruptionPolicy(static=True)}, {}, False),
        ({}, {"managed": ("default",)}, True),
        ({}, {"managed": ("other",)}, False),
        ({"reschedulable": ()}, {}, False),
        ({}, {"settings": DOVETAIL}, False),
        ({}, {"settings": replace(KARPENTER_1_15, steering=SteeringMode.PREFER)}, False),
    ],
)
def test_who_is_steered(facts: dict[str, Any], parts: dict[str, Any], steered: bool) -> None:
    """Steered nodes are managed, in use, old enough, not leaving and not nominated."""
    other = _node("other", reschedulable=())
    assert _closing(_node("n", **facts), other, **parts) == ("n" if steered else "")


def test_the_worth_decides() -> None:
    """Nodes are ordered by dollars per pod, then by name; a closing node has a bonus."""
    nodes = [_node("b"), _node("c", worth=3.0), _node("a"), _node("empty", reschedulable=())]
    plenty = {"empty": (1000, 1000)}
    assert _closing(*nodes, room=plenty) == "c a b"
    assert steer(_scene(*nodes, room=plenty)).worth == (
        ("c", 3.0),
        ("a", 1.0),
        ("b", 1.0),
    )
    kept = [_node("a", worth=STAYS - 0.1), _node("b", worth=1.0, closing=True), _node("empty", reschedulable=())]
    assert _closing(*kept, room=plenty) == "b a"
    beaten = [_node("a", worth=STAYS + 0.1), _node("b", worth=1.0, closing=True), _node("empty", reschedulable=())]
    assert _closing(*beaten, room=plenty) == "a b"


@pytest.mark.parametrize(
    ("free", "closing", "chosen"),
    [
        ((5, 5), False, "n"),
        ((4.9, 9), False, ""),
        ((9, 4.9), False, ""),
        ((4, 4), True, "n"),
        ((3.9, 4), True, ""),
    ],
)
def test_room_of_the_others(free: tuple[float, float], closing: bool, chosen: str) -> None:
    """A node's pods must fit into four fifths of the others' free room; into all of it once it is closing."""
    nodes = [_node("n", closing=closing), _node("other", reschedulable=())]
    assert _closing(*nodes, room={"other": free}) == chosen
    assert _closing(*nodes, room={"other": (99, 99)}, shut=("other",)) == ""
    little = {"n": (0.5, 0.5)}
    assert _closing(*nodes, room={"other": (99, 99)}, asks=little, shut=("other",)) == ""
    assert _closing(*nodes, room={"other": (0, 99)}, asks=little) == ""
    assert _closing(*nodes, room={"other": (1, 99)}, asks=little) == "n"


def test_room_is_used_up() -> None:
    """Each closing node uses up room; the first node that does not fit ends the list unless it is closing."""
    nodes = [_node("a", worth=3.0), _node("b", worth=2.0), _node("c"), _node("rest", reschedulable=())]
    assert _closing(*nodes, room={"a": (0, 0), "b": (0, 0), "c": (0, 0), "rest": (10, 10)}) == "a b"
    assert _closing(*nodes, room={"a": (0, 0), "b": (0, 0), "c": (0, 0), "rest": (9, 9)}) == "a"
    assert _closing(*nodes, asks={"a": (50, 50)}) == ""
    shut = [_node("a", worth=3.0, closing=True), *nodes[1:]]
    assert _closing(*shut, asks={"a": (50, 50)}).startswith("b")
    lost = [_node("a", worth=3.0), _node("b", worth=2.0)]
    assert _closing(*lost, room={"a": (100, 100), "b": (6, 6)}) == "a"
    assert _closing(*lost, room={"a": (100, 100), "b": (10, 10)}) == "a"


def _victims(*nodes: NodeFacts, **parts: Any) -> list[tuple[str, str]]:
    return [(victim.owner, victim.name) for victim in steer(_scene(*nodes, **parts)).victims]


def test_victims() -> None:
    """Each ReplicaSet with at least two pods has one victim, by name; other pods have none."""
    first = _node("a", _pod("z1", "one"), _pod("y1", "two"), _pod("x1", "lonely"), _pod("w1", "set", "StatefulSet"))
    second = _node("b", _pod("z2", "one"), _pod("y2", "two"), _pod("w2", "set", "StatefulSet"))
    assert _victims(first, second) == [("two", "y1"), ("one", "z1")]
    ranked = KarpenterSettings(feature_gates=((FeatureGate.POD_DELETION_COST, True),))
    assert _victims(first, second, settings=replace(PREFER, karpenter=ranked)) == []


@pytest.mark.parametrize(
    ("annotations", "left_alone"),
    [
        ({}, False),
        ({names.POD_DELETION_COST: "5"}, True),
        ({names.POD_DELETION_COST: "5", names.STEERING_MARK: "5"}, False),
        ({names.POD_DELETION_COST: "5", names.STEERING_MARK: "6"}, True),
    ],
)
def test_costs_of_others(annotations: dict[str, str], left_alone: bool) -> None:
    """A ReplicaSet with one deletion cost that Dovetail did not write has no victim."""
    node = _node("a", _pod("p"), _pod("q", **annotations), _pod("r"))
    assert (_victims(node) == []) is left_alone


@pytest.mark.parametrize(
    ("zones", "worth", "marked", "full", "victim"),
    [
        (("a", "b", "b"), (9, 1, 2), None, False, "p2"),
        (("b", "a", "a"), (9, 2, 1), None, False, "p1"),
        (("a", "a", "a"), (1, 3, 2), None, False, "p1"),
        (("a", "a", "a"), (1, 1, 1), None, False, "p0"),
        (("a", "a", "a"), (2, 2.9, 1), "p0", False, "p0"),
        (("a", "a", "a"), (2, 3.1, 1), "p0", False, "p1"),
        (("a", "a", "a"), (9, 3, 2), None, True, "p1"),
    ],
    ids=["fullest zone", "of it the most worth", "most worth", "by name", "marked stays", "unless beaten", "closing"],
)
def test_who_is_the_victim(
    zones: tuple[str, ...], worth: tuple[float, ...], marked: str | None, full: bool, victim: str
) -> None:
    """The victim is in the fullest zone, on a closing node, on the most valuable node; a marked pod has a bonus."""
    nodes = []
    for at, (zone, amount) in enumerate(zip(zones, worth, strict=True)):
        name = f"p{at}"
        own = {names.POD_DELETION_COST: "-1", names.STEERING_MARK: "-1"} if marked == name else {}
        nodes.append(_node(f"n{at}", _pod(name, **own), worth=amount, zone=zone))
    rest = _node("rest", reschedulable=())
    rooms = {"rest": (1000, 1000) if not full else (9, 9)}
    asks = {"n0": (500, 500)} if full else {}
    if full:
        nodes[0] = msgspec.structs.replace(nodes[0], node=_node("x", closing=True).node)
    assert _victims(*nodes, rest, room=rooms, asks=asks) == [("rs", victim)]


def test_nothing_is_closing_without_nodes() -> None:
    """An empty cluster has no closing nodes."""
    assert steer(_scene()).closing == ()


@pytest.mark.parametrize(("restless", "spread", "victim"), [(False, False, "q"), (True, False, "p"), (True, True, "q")])
def test_a_restless_pool_spares_a_pod(restless: bool, spread: bool, victim: str) -> None:
    """The zone of a closing node may have one pod less than the fullest, unless the pods must spread."""
    pods = [_pod("p"), _pod("q"), _pod("r")]
    if spread:
        rule = TopologySpreadConstraint(max_skew=1, topology_key=names.ZONE, when_unsatisfiable="DoNotSchedule")
        pods = [
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, topology_spread_constraints=(rule,)))
            for pod in pods
        ]
    nodes = [
        _node("closing", pods[0], worth=9.0, zone="a", policy=DisruptionPolicy(disruption_price=1)),
        _node("big", pods[1], worth=2.0, zone="b"),
        _node("rest", pods[2], worth=1.0, zone="b"),
    ]
    assert _closing(*nodes, asks={"big": (99, 99)}) == "closing"
    assert _victims(*nodes, asks={"big": (99, 99)}, restless=restless) == [("rs", victim)]
