"""Nodes that must leave: drift, expiry, repair and static pools (docs/rules.md#methods, #budgets and #repair)."""

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.waits import Waits
from dovetail.decide.methods import drifted, leaving, single_node, static, unhealthy
from dovetail.decide.methods.moves import Move
from dovetail.decide.methods.static import NO_RESERVED_CAPACITY, STATIC_AT_LIMIT
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model.command import Action, Command, Method
from dovetail.model.karpenter import FeatureGate
from dovetail.model.objects import NodePool
from dovetail.model.policies.controls import RepairRule
from dovetail.model.policies.policy import DisruptionPolicy
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED, Settings
from dovetail.model.verdicts import Gate
from tests.support.design_world import Town, kind, moved
from tests.support.nodes import NOW, facts_of, minutes

HOUR = timedelta(hours=1)
STATIC = DisruptionPolicy(static=True)


def _pool(name: str = "fixed", *, replicas: int = 2, limit: Any = None, ready: str = "True", **meta: Any) -> NodePool:
    tree = {
        "metadata": {"name": name, **meta},
        "spec": {"replicas": replicas, "limits": {} if limit is None else {"nodes": limit}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(tree, NodePool, strict=False)


def _node(name: str, pool: str = "fixed", **facts: Any) -> NodeFacts:
    return facts_of(name=name, pool_name=pool, policy=STATIC, **facts)


def _context(*nodes: NodeFacts, left: int = 1, features: Sequence[FeatureGate] = (), **parts: Any) -> Any:
    return SimpleNamespace(
        nodes=nodes,
        now=NOW,
        settings=parts.pop("settings", DOVETAIL),
        left=lambda method: {"fixed": left, "other": left},
        snapshot=SimpleNamespace(
            surroundings=SimpleNamespace(features=SimpleNamespace(has=lambda gate: gate in features))
        ),
        **parts,
    )


NODES = (
    _node("a"),
    _node("b", marked="x"),
    _node("c", claim=None),
    _node("d", pool="other"),
    _node("e", initialized=False),
)


@pytest.mark.parametrize(("replicas", "shrinks"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_static_pool_that_shrinks(replicas: int, shrinks: bool) -> None:
    """A static pool keeps two nodes: those with a claim that are not leaving."""
    assert static.scaling_down(_context(*NODES), _pool(replicas=replicas)) is shrinks


@pytest.mark.parametrize(("limit", "room"), [(None, None), ("5", 2), ("3", 0), ("2", 0), ("4", 1)])
def test_room_of_a_static_pool(limit: str | None, room: int | None) -> None:
    """The room of a static pool counts its three nodes with a claim."""
    assert static.static_room(_context(*NODES), _pool(limit=limit)) == room


def test_a_limit_that_cannot_be_read_leaves_no_room() -> None:
    """A pool with an unreadable limit launches nothing."""
    assert static.static_room(_context(*NODES), _pool(limit="many")) == 0


@pytest.mark.parametrize(
    ("replicas", "left", "waits"),
    [(3, 1, False), (4, 1, True), (4, 2, False), (5, 2, True), (2, 1, False), (3, 0, False)],
)
def test_a_static_pool_that_is_half_full(replicas: int, left: int, waits: bool) -> None:
    """Missing nodes of a static pool use up its budget."""
    refusal = static._refuse_half_full(_context(*NODES, left=left), Method.DRIFTED, _pool(replicas=replicas))
    assert (refusal is not None) is waits
    if refusal is not None:
        assert refusal.figures == {"nodePool": "fixed", "nodes": 3, "replicas": replicas}


def _static(
    settings: Settings, count: int = 3, *, drifting: int = 3, replicas: int = 3, budget: str = "2", **pool: Any
) -> Town:
    town = Town(kind("m", "1"), settings=settings)
    town.pool("fixed", replicas=replicas, disruption={"budgets": [{"nodes": budget}]}, **pool)
    for number in range(count):
        town.node(f"n{number}", "m", pool="fixed", drifted=HOUR if number < drifting else None)
        town.fill(f"n{number}", 1)
    return town


@pytest.mark.parametrize(
    ("town", "told"),
    [
        (_static(KARPENTER_1_15), [("replaceDrifted", "n0", 1), ("replaceDrifted", "n1", 1)]),
        (_static(KARPENTER_1_15, budget="1"), [("replaceDrifted", "n0", 1)]),
        (_static(KARPENTER_1_15, budget="0"), []),
        (_static(KARPENTER_1_15, replicas=2), []),
        (_static(KARPENTER_1_15, limits={"nodes": "4"}), [("replaceDrifted", "n0", 1)]),
        (_static(KARPENTER_1_15, limits={"nodes": "3"}), []),
        (_static(KARPENTER_1_15, drifting=1), [("replaceDrifted", "n0", 1)]),
    ],
    ids=["two", "budget of one", "no budget", "shrinking", "room for one", "no room", "one drifts"],
)
def test_static_drift_as_karpenter(town: Town, told: list[tuple[str, str, int]]) -> None:
    """Karpenter replaces as many static nodes as budget and limit allow, with one command each."""
    commands = town.round().commands
    assert [(entry.action.value, entry.nodes[0], len(entry.replacements)) for entry in commands] == told
    assert all(entry.savings == 0 for entry in commands)


@pytest.mark.parametrize(
    ("limit", "features", "ready", "told"),
    [
        ("3", (FeatureGate.TERMINATE_FIRST_DRIFT,), "True", STATIC_AT_LIMIT),
        ("3", (), "True", "new-nodes"),
        ("4", (FeatureGate.TERMINATE_FIRST_DRIFT,), "True", ""),
        (None, (FeatureGate.TERMINATE_FIRST_DRIFT,), "True", ""),
        ("3", (FeatureGate.TERMINATE_FIRST_DRIFT,), "False", "new-nodes"),
    ],
)
def test_one_static_node_as_karpenter(
    monkeypatch: pytest.MonkeyPatch, limit: str | None, features: Any, ready: str, told: str
) -> None:
    """Karpenter deletes a static node first if it is at its limit and the gate is on, else replaces it."""
    monkeypatch.setattr(static, "_only_full_reservations", lambda *_: None)
    context = _context(
        *(_node(name) for name in "abc"),
        settings=KARPENTER_1_15,
        features=features,
        disruption_cost=lambda nodes: 0.0,
    )
    pool = _pool(replicas=3, limit=limit, ready=ready)
    outcome = static.static_alone(context, Method.DRIFTED, replace(_node("a"), pool=pool))
    if isinstance(outcome, Command):
        assert outcome.terminate_first == told
        assert bool(outcome.replacements) is (told == "")
    else:
        assert outcome.gate.value == told
    shrinking = static.static_alone(
        context, Method.DRIFTED, replace(_node("a"), pool=_pool(replicas=2, limit=limit, ready=ready))
    )
    assert isinstance(shrinking, Refusal)


@pytest.mark.parametrize(
    ("offered", "label", "first"),
    [
        (None, "r-1", False),
        (frozenset({"r-1"}), "r-1", True),
        (frozenset({"r-1"}), "r-2", False),
        (frozenset(), "", False),
    ],
)
def test_full_reservations_go_first(
    monkeypatch: pytest.MonkeyPatch, offered: frozenset[str] | None, label: str, first: bool
) -> None:
    """A static node may be deleted first if its reservation is full and the only one of its pool."""
    monkeypatch.setattr(static, "_only_full_reservations", lambda *_: offered)
    labels = {static.RESERVATION: label} if label else {}
    facts = replace(_node("a", labels=labels), pool=_pool())
    context = _context(facts, features=(FeatureGate.TERMINATE_FIRST_DRIFT,))
    assert static.may_terminate_first(context, facts) is first


# ---------------------------------------------------------------- drift


def test_the_order_of_drift() -> None:
    """Drift order: oldest, lowest cost, name. Karpenter: static, empty, oldest."""
    plain = DisruptionPolicy()
    nodes = [
        facts_of(name="young", drifted_since=NOW, policy=plain, pods=1),
        facts_of(name="old-dear", drifted_since=NOW - HOUR, policy=plain, pods=3),
        facts_of(name="old-b", drifted_since=NOW - HOUR, policy=plain, pods=1),
        facts_of(name="old-a", drifted_since=NOW - HOUR, policy=plain, pods=1),
        facts_of(name="empty", drifted_since=NOW, policy=plain),
        facts_of(name="z-static", drifted_since=NOW, policy=STATIC, pods=1),
        facts_of(name="b-static", drifted_since=NOW, policy=STATIC),
    ]
    for settings, order in (
        (DOVETAIL, "old-a old-b old-dear b-static empty young z-static"),
        (KARPENTER_1_15, "b-static z-static empty old-a old-b old-dear young"),
    ):
        context: Any = SimpleNamespace(passing=lambda method: nodes, settings=settings, now=NOW)
        assert " ".join(facts.name for facts in drifted.candidates(context)) == order


def test_karpenters_drift_within_budgets() -> None:
    """Nodes of pools without budget are held; the first other node that can go is taken."""
    town = Town(kind("m", "1"), settings=KARPENTER_1_15)
    town.pool("blue", disruption={"budgets": [{"nodes": "0"}]})
    town.pool("green", disruption={"budgets": [{"nodes": "1"}]})
    town.node("b", "m", pool="blue", drifted=2 * HOUR)
    town.fill("b", 1)
    town.node("g", "m", pool="green", drifted=HOUR)
    town.fill("g", 1)
    context = Scene.of(town.question())
    run = drifted.run(Work(context))
    assert [entry.nodes for entry in run.commands] == [("g",)]
    assert sorted(run.held) == ["b"]
    town.pool("green", disruption={"budgets": [{"nodes": "0"}]})
    run = drifted.run(Work(Scene.of(town.question())))
    assert (run.commands, sorted(run.held)) == ((), ["b", "g"])


def test_a_static_pool_that_waits_leaves_the_others_their_turn() -> None:
    """Karpenter continues with other drift if no static node can go."""
    town = _static(KARPENTER_1_15, replicas=2)
    town.pool("plain")
    town.node("p", "m", pool="plain", drifted=HOUR)
    town.fill("p", 1)
    assert [entry.nodes for entry in town.round().commands] == [("p",)]
    town = _static(KARPENTER_1_15)
    town.pool("plain")
    town.node("p", "m", pool="plain", drifted=HOUR)
    assert [entry.nodes for entry in town.round().commands] == [("n0",), ("n1",)]


def test_drift_that_is_held_is_told() -> None:
    """A held drifted node names its budget or its domain; it goes if no earlier node of the domain can."""
    zonal = {"nodes": "1", "topologyKey": "topology.kubernetes.io/zone", "reasons": ["Drifted"]}
    town = Town(kind("m", "1"))
    town.pool(disruption={"consolidateAfter": "Never", "budgets": [zonal, {"nodes": "5"}]})
    town.node("first", "m", drifted=2 * HOUR)
    town.fill("first", 1, spec={"nodeSelector": {"no": "where"}})
    for name in ("second", "third"):
        town.node(name, "m", drifted=HOUR)
        town.fill(name, 1)
    run = drifted.run(Work(Scene.of(town.question())))
    assert [entry.nodes for entry in run.commands] == [("second",)]
    assert sorted(run.held) == ["third"]
    town.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]})
    assert sorted(drifted.run(Work(Scene.of(town.question()))).held) == ["first", "second", "third"]
    town.pool(disruption={"consolidateAfter": "Never", "budgets": [zonal, {"nodes": "0"}]})
    held = drifted.run(Work(Scene.of(town.question()))).held
    assert {name: result.gate.value for name, result in held.items()}["first"] == "budget"
    assert len(held) == 3


# ---------------------------------------------------------------- what they share


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("", "Every pod finds a place."),
        (STATIC_AT_LIMIT, "It goes first: Karpenter refills its static pool."),
        (NO_RESERVED_CAPACITY, "It goes first: its own slot of the reservation is what its pods wait for."),
    ],
)
def test_why_a_node_goes(first: str, said: str) -> None:
    """The reason for a node's removal is one sentence."""
    command = Command(action=Action.DELETE_DRIFTED, method=Method.DRIFTED, nodes=("n",), terminate_first=first)
    assert leaving.why_it_goes(command) == said


def test_empty_nodes_go_together_within_the_budget() -> None:
    """Empty nodes go together; nodes with pods wait for another round; nodes without budget are held."""
    town = Town(kind("m", "1"))
    town.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "2"}]})
    for name in "abc":
        town.node(name, "m", drifted=HOUR)
    town.node("full", "m", drifted=2 * HOUR)
    town.fill("full", 1)
    run = drifted.run(Work(Scene.of(town.question())))
    assert [entry.nodes for entry in run.commands] == [("a", "b")]
    assert sorted(run.held) == ["c", "full"]
    town.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "3"}]})
    assert sorted(drifted.run(Work(Scene.of(town.question()))).held) == ["full"]
    town.pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "4"}]})
    assert sorted(drifted.run(Work(Scene.of(town.question()))).held) == []


# ---------------------------------------------------------------- repair


RULE = RepairRule(index=0, condition="Ready", status="False", lasting=10 * 60 * 10**9)


@pytest.mark.parametrize(
    ("sick", "nodes", "tripped"),
    [
        (1, 1, False),
        (1, 5, False),
        (2, 5, True),
        (2, 6, False),
        (2, 10, False),
        (3, 10, True),
        (0, 0, False),
        (21, 101, False),
        (22, 105, True),
    ],
)
def test_the_breaker(sick: int, nodes: int, tripped: bool) -> None:
    """The breaker trips if more than a fifth (rounded up) of the nodes that have joined with a claim are unhealthy."""
    policy = DisruptionPolicy(repair=(RULE,))

    def made(at: int, **facts: Any) -> Any:
        ill = object() if at < sick else None
        return SimpleNamespace(pool_name="blue", claim=True, node=True, sickness=ill, **facts)

    others = [
        SimpleNamespace(pool_name="blue", claim=None, node=1, sickness=object()),
        SimpleNamespace(pool_name="blue", claim=1, node=None, sickness=None),
        SimpleNamespace(pool_name="red", claim=1, node=1, sickness=object()),
    ]
    town = Town(kind("m", "1"))
    waits = Waits(
        town.question(), {"red": DisruptionPolicy(), "blue": policy}, [*(made(at) for at in range(nodes)), *others]
    )
    assert waits.ill == ((("blue", sick, nodes),) if tripped else ())


def test_repair_takes_the_longest_first() -> None:
    """The node that is unhealthy longest is repaired first, then by name; a tripped pool is held."""
    town = Town(kind("m", "1"))
    rule = {"condition": "Ready", "status": "False", "for": "10m"}
    town.pool(disruption={"repair": [rule], "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
    for number in range(10):
        town.node(f"ok{number}", "m")
        town.fill(f"ok{number}", 1)
    for name, ago in (("b", 30), ("a", 30), ("c", 60)):
        town.node(name, "m", ready=False)
        node = town.nodes[name]
        said = tuple(replace(entry, last_transition_time=NOW - minutes(ago)) for entry in node.status.conditions)
        town.nodes[name] = replace(node, status=replace(node.status, conditions=said))
        town.fill(name, 1)
    context = Scene.of(town.question())
    assert [facts.name for facts in unhealthy.candidates(context)] == ["c", "a", "b"]
    run = unhealthy.run(Work(context))
    assert [entry.nodes for entry in run.commands] == [("c",)]
    assert run.held == {}
    town.pool(disruption={"repair": [rule], "consolidateAfter": "Never", "budgets": [{"nodes": "0"}]})
    run = unhealthy.run(Work(Scene.of(town.question())))
    assert (run.commands, sorted(run.held)) == ((), ["a", "b", "c"])
    assert list(unhealthy.warnings(Scene.of(town.question()))) == []
    town.pool("plain")
    for number in range(5):
        town.remove(f"ok{number}")
    context = Scene.of(town.question())
    assert unhealthy.run(Work(context)).commands == ()
    held = context.waits.of(Method.UNHEALTHY, context.by_name["a"])
    assert held is not None
    assert held.figures == {"nodePool": "default", "unhealthy": 3, "nodes": 8}
    assert context.waits.of(Method.DRIFTED, context.by_name["a"]) is None
    (warning,) = unhealthy.warnings(Scene.of(town.question()))
    assert warning == "NodePool default: 3 of 8 nodes are unhealthy, more than 20 %: nothing is repaired"


# ---------------------------------------------------------------- one node for cost


def test_pools_take_turns() -> None:
    """Karpenter takes one node of each pool in turn; Dovetail goes by cost."""
    nodes = [facts_of(name=name, pool_name=name[0]) for name in ("a1", "a2", "b1", "a3", "c1", "b2")]
    for settings, order in ((DOVETAIL, "a1 a2 b1 a3 c1 b2"), (KARPENTER_1_15, "a1 b1 c1 a2 b2 a3")):
        context: Any = SimpleNamespace(cost_order=tuple(nodes), settings=settings)
        assert " ".join(facts.name for facts in single_node.candidates(context)) == order
        context = SimpleNamespace(cost_order=(), settings=settings)
        assert single_node.candidates(context) == ()


def test_the_first_that_is_worth_it_goes() -> None:
    """Earlier nodes are refused or held by budgets; nothing is judged during stabilization."""
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={"consolidationSavingsThreshold": 0.15, "budgets": [{"nodes": "1"}]})
    town.pool("shut", disruption={"consolidationSavingsThreshold": 0, "budgets": [{"nodes": "0"}]})
    town.node("other", "xl", annotations={"karpenter.sh/do-not-disrupt": "true"})
    for name, pool, pods in (("a-shut", "shut", 1), ("b-dear", "default", 1), ("c", "default", 1)):
        town.node(name, "m", pool=pool)
        town.fill(name, pods)
    town.pod("b-dear-00", "b-dear", spec={"nodeSelector": {"no": "where"}})
    run = single_node.run(Work(Scene.of(town.question())))
    assert [entry.nodes for entry in run.commands] == [("c",)]
    assert [nodes[0].name for nodes, _ in run.refused] == ["b-dear"]
    assert sorted(run.held) == ["a-shut"]
    town.stabilized_until = NOW + minutes(1)
    run = single_node.run(Work(Scene.of(town.question())))
    assert (run.commands, run.refused, run.held) == ((), (), {})
    assert moved(town.act()) is None


def test_a_node_is_judged_once() -> None:
    """Each node is judged once, and gate by gate on request."""
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={"consolidationSavingsThreshold": 9})
    town.node("n", "m")
    town.fill("n", 1)
    town.node("other", "xl", annotations={"karpenter.sh/do-not-disrupt": "true"})
    work = Work(Scene.of(town.question()))
    facts = work.scene.by_name["n"]
    first = single_node.judge(work, facts)
    assert isinstance(first, Refusal)
    assert not first.simulated
    assert single_node.judge(work, facts) is first
    assert single_node.unscored(work, facts) is single_node.unscored(work, facts)
    full = single_node.judge_in_full(work, facts)
    assert isinstance(full, Refusal)
    assert (full.gate, full.simulated) == (first.gate, True)
    assert work.pods_simulated == 1


def _judged(**disruption: Any) -> tuple[Any, Any]:
    """Return the verdict on a node of ten pods that fits elsewhere, and the gates one by one."""
    town = Town(kind("m", "0.20"), kind("xl", "2.00", cpu=16, memory=64))
    town.pool(disruption={"consolidationSavingsThreshold": 0, **disruption})
    town.node("n", "m")
    town.fill("n", 10)
    town.node("other", "xl", annotations={"karpenter.sh/do-not-disrupt": "true"})
    town.pod("q", "other")
    work = Work(Scene.of(town.question()))
    facts = work.scene.by_name["n"]
    return single_node.judge(work, facts), single_node.judge_in_full(work, facts)


def test_judged_in_full() -> None:
    """A full judgement keeps the decision; a node refused at a later gate passed the earlier ones."""
    quick, full = _judged()
    assert isinstance(quick, Move)
    assert full is quick
    quick, full = _judged(consolidationPolicy="Balanced")
    assert (quick.gate, quick.simulated) == (Gate.BALANCED, False)
    assert (full.gate, full.simulated) == (Gate.BALANCED, True)
    quick, full = _judged(consolidationSavingsThreshold=1)
    assert (quick.gate, full.gate, quick.simulated, full.simulated) == (*[Gate.SAVINGS_THRESHOLD] * 2, False, True)
    quick, full = _judged(consolidationSavingsThreshold=1, disruptionPrice=0.01)
    assert (quick.gate, full.gate) == (Gate.WASTE, Gate.WASTE)


@pytest.mark.parametrize("why", ["drifted", "expired"])
@pytest.mark.parametrize("settings", [DOVETAIL, RECOMMENDED], ids=["default", "recommended"])
def test_a_node_that_has_to_go_makes_way_for_the_cheapest_that_does(why: str, settings: Settings) -> None:
    """Its pods restart anyway, so the replacement is what they need now, not what the node was."""
    town = Town(
        kind("old-big", "0.40", cpu=8), kind("new-big", "0.36", cpu=8), kind("small", "0.09", cpu=2), settings=settings
    )
    town.pool(disruption={"consolidationPolicy": "WhenEmpty"})
    drifted = timedelta(hours=1) if why == "drifted" else None
    town.node("n", "old-big", age=timedelta(days=3), drifted=drifted, life="Never" if drifted else "48h")
    town.pod("p", "n", cpu="1500m")
    [command] = town.round().commands
    assert command.action is (Action.REPLACE_DRIFTED if drifted else Action.REPLACE_EXPIRED)
    [replacement] = command.replacements
    assert replacement.instance_types[0] == "small"
