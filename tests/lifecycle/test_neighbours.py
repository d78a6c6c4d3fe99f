"""Another controller that disrupts a managed pool is noticed by its marks; Dovetail stands back from that pool."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail.api.pool_marks import read_halt
from dovetail.lifecycle.memory.neighbours import HELD_BEFORE, notice_claim, notice_node
from dovetail.lifecycle.messages import EvictionSeen, Failure, HaltPool, TaintNode
from dovetail.model import names
from dovetail.model.objects import Node, NodeClaim, NodePool
from dovetail.model.settings import WithNeighbours
from tests.support.lifecycle_world import CALM, Driver, World, engine_for

HASH, VERSION = names.NODEPOOL_HASH, names.NODEPOOL_HASH_VERSION
HELD = {names.HOLD: "true", names.DO_NOT_DISRUPT: "true"}


def _node(taints: tuple[str, ...] = (), annotations: dict[str, str] | None = None, **labels: str) -> Node:
    tree = {
        "metadata": {"name": "n", "labels": {names.NODEPOOL: "web", **labels}, "annotations": annotations or {}},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in taints]},
    }
    return msgspec.convert(tree, Node, strict=False)


def _claim(reason: str = "", *, leaving: bool = False, uid: str = "u", **annotations: str) -> NodeClaim:
    stamp = "2026-01-01T00:00:00Z"
    kind = names.CONDITION_DISRUPTION_REASON
    conditions = [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": stamp}] if reason else []
    tree: dict[str, Any] = {
        "metadata": {
            "name": "c",
            "uid": uid,
            "labels": {names.NODEPOOL: "web"},
            "annotations": {HASH: "1", VERSION: "v3", **{key.replace("__", "/"): v for key, v in annotations.items()}},
            **({"deletionTimestamp": stamp} if leaving else {}),
        },
        "status": {"nodeName": "n", "conditions": conditions},
    }
    return msgspec.convert(tree, NodeClaim, strict=False)


@pytest.mark.parametrize(
    ("known", "node", "neighbour"),
    [
        (_node(), _node(("ToBeDeletedByClusterAutoscaler",)), "cluster-autoscaler"),
        (None, _node(("ToBeDeletedByClusterAutoscaler",)), "cluster-autoscaler"),
        (_node(), _node(**{"autoscaling.cast.ai/draining": "rebalancing"}), "CAST AI"),
        (_node(), _node(**{"autoscaling.cast.ai/draining": "spot-interruption"}), ""),
        (_node(("ToBeDeletedByClusterAutoscaler",)), _node(("ToBeDeletedByClusterAutoscaler", "x")), ""),
        (_node(), _node(("node.kubernetes.io/unschedulable", "karpenter.sh/disrupted", "karpenter.sh/disruption")), ""),
    ],
)
def test_marks_on_nodes(known: Node | None, node: Node, neighbour: str) -> None:
    """A taint or label of another controller that takes nodes out counts once, when it comes; others don't."""
    found = notice_node(known, node)
    assert ("" if found is None else found.neighbour) == neighbour


@pytest.mark.parametrize(
    ("known", "claim", "node", "neighbour"),
    [
        (_claim(), _claim("Underutilized"), _node(annotations=HELD), "Karpenter"),
        (_claim(), _claim("Drifted"), _node(annotations=HELD), "Karpenter"),
        (_claim(), _claim("Underutilized"), _node(), ""),
        (_claim(), _claim("Underutilized"), None, ""),
        (_claim(), _claim("Unhealthy"), _node(annotations=HELD), ""),
        (_claim(), _claim("Underutilized", leaving=True), _node(annotations=HELD), ""),
        (_claim("Empty"), _claim("Empty"), _node(annotations=HELD), ""),
        (None, _claim("Empty"), _node(annotations=HELD), ""),
        (_claim(), _claim(**{HASH: "2"}), None, "hash-rewriter"),
        (_claim(), _claim(**{HASH: "2", VERSION: "v4"}), None, ""),
        (_claim(uid="v"), _claim(**{HASH: "2"}), None, ""),
        (None, _claim(**{HASH: "2"}), None, ""),
    ],
)
def test_marks_on_claims(known: NodeClaim | None, claim: NodeClaim, node: Node | None, neighbour: str) -> None:
    """Karpenter's own command on a held node, and a hash that changes under one version of the hash."""
    found = notice_claim(known, claim, node)
    assert ("" if found is None else found.neighbour) == neighbour


def _halt(world: World, pool: str = "web") -> str:
    item = world.get(NodePool, pool)
    assert item is not None
    halt = read_halt(item)
    return "" if halt is None else halt.why


def _scale_down(world: World, name: str) -> None:
    """Taint a node as cluster-autoscaler does."""
    node = world.get(Node, name)
    assert node is not None
    world.put(replace_taints(node, "ToBeDeletedByClusterAutoscaler"))


def replace_taints(node: Node, key: str) -> Node:
    """Return a node with one more taint."""
    taint = msgspec.convert({"key": key, "effect": "NoSchedule"}, type(_node((key,)).spec.taints[0]))
    spec = msgspec.structs.replace(node.spec, taints=(*node.spec.taints, taint))
    return msgspec.structs.replace(node, spec=spec)


def _start(**changes: Any) -> tuple[World, Driver]:
    world = World()
    for pool in ("web", "other"):
        world.add_pool(pool)
        world.add_node(f"{pool}-1", pool=pool)
    driver = Driver(world, engine_for(replace(CALM, **changes))).begin().run(30)
    return world, driver


def test_it_stands_back_from_that_pool_until_it_is_resumed() -> None:
    """The pool halts before a command starts there; the other pool goes on; `resume` ends it, a new sign renews it."""
    world, driver = _start()
    _scale_down(world, "web-1")
    world.add_node("web-2", want="delete")
    world.add_node("other-2", pool="other", want="delete")
    driver.run(120)
    assert "cluster-autoscaler put the taint ToBeDeletedByClusterAutoscaler on node web-1" in _halt(world)
    assert _halt(world, "other") == ""
    [said] = driver.reports("neighbour")
    assert said.message.startswith("another controller disrupts NodePool web: cluster-autoscaler")
    assert len(driver.told(HaltPool)) == 1
    pool = world.get(NodePool, "web")
    assert pool is not None
    resumed = {key: value for key, value in pool.metadata.annotations.items() if key != names.HALTED}
    world.put(msgspec.structs.replace(pool, metadata=msgspec.structs.replace(pool.metadata, annotations=resumed)))
    driver.run(120)
    assert _halt(world) == "", "the old sign is forgotten"
    world.add_node("web-3")
    driver.run(20)
    _scale_down(world, "web-3")
    driver.run(20)
    assert "web-3" in _halt(world)


def test_no_command_starts_while_the_halt_is_not_written() -> None:
    """A server that refuses the halt for a while does not let a command of that pool slip through."""
    world, driver = _start()
    world.fail = lambda instruction: Failure.THROTTLED if isinstance(instruction, HaltPool) else None
    _scale_down(world, "web-1")
    world.add_node("web-2", want="delete")
    driver.run(60)
    assert [item.node for item in driver.told(TaintNode) if isinstance(item, TaintNode)] == []
    world.fail = lambda instruction: None
    driver.run(60)
    assert _halt(world)


def test_only_warned_where_that_is_wished() -> None:
    """With `neighbours: Warn` nothing halts, and commands go on."""
    world, driver = _start(neighbours=WithNeighbours.WARN)
    _scale_down(world, "web-1")
    world.add_node("web-2", want="delete")
    driver.run(120)
    assert _halt(world) == ""
    assert len(driver.reports("neighbour")) == 1
    assert driver.ends() == ["done"]


def test_what_karpenter_began_before_the_hold_does_not_count() -> None:
    """In the first minute of a managed pool Karpenter's condition is its own affair."""
    for seconds, noticed in ((30, False), (HELD_BEFORE // 10**9 + 30, True)):
        world = World()
        world.add_pool()
        world.add_node("a")
        driver = Driver(world, engine_for()).begin().run(seconds)
        claim = next(iter(world.all(NodeClaim)))
        began = _claim("Underutilized").status.conditions[0]
        status = msgspec.structs.replace(claim.status, conditions=(*claim.status.conditions, began))
        world.put(msgspec.structs.replace(claim, status=status))
        driver.run(20)
        assert bool(_halt(world)) is noticed


@pytest.mark.parametrize(
    ("strategy", "node", "noticed"),
    [
        ("HighNodeUtilization", "web-1", True),
        ("LowNodeUtilization", "web-1", True),
        ("RemoveDuplicates", "web-1", False),
        ("HighNodeUtilization", "elsewhere", False),
    ],
)
def test_a_descheduler_that_balances_nodes(strategy: str, node: str, noticed: bool) -> None:
    """Evictions that empty or fill a node of a managed pool halt the pool; those for a pod's own sake don't."""
    world, driver = _start()
    driver.send(EvictionSeen(node=node, by="descheduler", strategy=strategy))
    driver.run(20)
    assert [report.message for report in driver.reports("neighbour")] == (
        [f"another controller disrupts NodePool web: descheduler evicts pods from node web-1 ({strategy})"]
        if noticed
        else []
    )
    assert ("descheduler evicts pods from node web-1" in _halt(world)) is noticed
