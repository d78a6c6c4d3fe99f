"""Commands side by side: together they launch what the pods of their nodes need, and no more.

The cases are those that a real cluster showed: all nodes drift in the same second, and each command counted the new
nodes of the others as its own.
"""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as change

from dovetail.lifecycle.messages import CreateNodeClaim, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.command import Method, Replacement
from dovetail.model.objects import (
    Affinity,
    LabelSelectorSpec,
    ObjectMeta,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    TopologySpreadConstraint,
)
from dovetail.model.settings import DOVETAIL, Search, Settings, Stabilization
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.clock import MINUTE, SECOND, Span
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World
from tests.support.rogue import QUICK, Rogue, pool_named, rules, settle, small_world, work

CALM = replace(DOVETAIL, stabilization=Stabilization(empty=0, expired=0, drifted=0, cost=0))


def apart(name: str) -> Affinity:
    """Put no two pods of the workload on one node."""
    term = PodAffinityTerm(topology_key=names.HOSTNAME, label_selector=LabelSelectorSpec(match_labels={"app": name}))
    return Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,)))


class Seen:
    """What an engine requested: replacements by command, and the largest number of nodes at any time."""

    def __init__(self, world: World, host: Host) -> None:
        self.created: dict[str, list[CreateNodeClaim]] = {}
        self.begun: dict[str, int] = {}
        self.most = len(world.store.claims)
        self._world = world
        host.on_instruction.append(self._hear)

    def _hear(self, host: Host, asked: Instruction) -> None:
        if isinstance(asked, TaintNode):
            self.begun.setdefault(asked.command_id, host.engine.elapsed)
        elif isinstance(asked, CreateNodeClaim) and asked.name not in self._world.store.claims:
            self.created.setdefault(asked.command_id, []).append(asked)
            self.most = max(self.most, len(self._world.store.claims) + 1)

    @property
    def launched(self) -> int:
        """Return how many NodeClaims the commands created in total."""
        return sum(map(len, self.created.values()))


def started(world: World, settings: Settings = CALM) -> tuple[Watch, Seen]:
    """Return a controller on the world, and its checkers."""
    watch = Watch(world)
    host = world.add_engine(settings)
    watch.follow(host)
    seen = Seen(world, host)
    host.start()
    return watch, seen


def one_pod_each(count: int, **disruption: Any) -> World:
    """Return a pool of nodes with one pod each, kept apart by anti-affinity; only drift moves them."""
    given = {"budgets": [{"nodes": "100%"}], "consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    world = small_world(count, **{**given, **disruption})
    world.workloads.add(work("alone", replicas=count, cpu="900m", affinity=apart("alone")))
    settle(world)
    assert all(len(world.store.pods_on[f"n{index}"]) == 1 for index in range(count))
    return world


def drift_by_image(world: World) -> None:
    """Make all nodes drift at once with a new image."""
    world.set_image("default", "image-2", within=0)


def drift_by_template(world: World) -> None:
    """Make all nodes drift at once with a new label in the pools' templates."""
    for pool in sorted(world.store.pools):
        world.set_template_labels(pool, {"team": "b"}, within=0)


@pytest.mark.parametrize("drift", [drift_by_image, drift_by_template])
def test_all_nodes_of_a_pool_drift_at_once(drift: Any) -> None:
    """Eight nodes with one pod each and a budget of 100 %: eight parallel commands launch eight nodes, not 36."""
    world = one_pod_each(8)
    watch, seen = started(world)
    drift(world)
    settle(world, 40)
    assert len(seen.begun) == 8, "a budget of all is soon all side by side"
    settle(world, 600)
    assert [len(claims) for claims in seen.created.values()] == [1] * 8
    assert seen.launched == 8
    assert seen.most == 16
    assert len(world.store.nodes) == 8
    assert not set(world.store.nodes) & {f"n{index}" for index in range(8)}
    watch.ended()
    assert rules(watch) == []


def test_replacement_is_sized_for_the_pods_of_its_own_command() -> None:
    """Also without anti-affinity, no command sizes its node for the pods of another command."""
    world = small_world(6, budgets=[{"nodes": "100%"}], consolidationPolicy="WhenEmpty", consolidateAfter="Never")
    world.workloads.add(work("fill", replicas=12, cpu="1700m"))
    settle(world)
    watch, seen = started(world)
    drift_by_image(world)
    settle(world, 600)
    asked = [claim.replacement.requests["cpu"] for claims in seen.created.values() for claim in claims]
    assert asked == [3400] * 6
    assert len(world.store.nodes) == 6
    assert rules(watch) == []


def test_mixed_pool_with_pdbs() -> None:
    """With mixed pods under PDBs and a 20 % budget, the cluster never grows by more than the budget."""
    world = small_world(20, budgets=[{"nodes": "20%"}], consolidationPolicy="WhenEmpty", consolidateAfter="Never")
    for index, cpu in enumerate(("150m", "400m", "700m", "900m", "1200m")):
        name = f"app-{index}"
        world.put(
            PodDisruptionBudget(
                metadata=ObjectMeta(name=name, namespace="default"),
                spec=PodDisruptionBudgetSpec(
                    selector=LabelSelectorSpec(match_labels={"app": name}), max_unavailable="20%"
                ),
            )
        )
        affinity = apart(name) if index % 2 else None
        world.workloads.add(work(name, replicas=16, cpu=cpu, affinity=affinity))
    settle(world, 120)
    before = len(world.store.nodes)
    watch, seen = started(world)
    drift_by_image(world)
    settle(world, 3600)
    assert seen.most <= before + 4 + 4
    assert len(world.store.nodes) <= before
    assert all(claim.status.image_id == "image-2" for claim in world.store.claims.values())
    watch.ended()
    assert rules(watch) == []


def test_no_command_launches_for_the_nodes_of_another_pool() -> None:
    """If two pools drift at once, each command launches in its own pool, for its own pods."""
    world = small_world(0, budgets=[{"nodes": "100%"}], consolidationPolicy="WhenEmpty", consolidateAfter="Never")
    world.add_pool(pool_named("green", budgets=[{"nodes": "100%"}], consolidationPolicy="WhenEmpty"))
    for pool in ("blue", "green"):
        for index in range(4):
            world.add_node(pool, "medium", "zone-a", names.ON_DEMAND, age=120 * MINUTE, name=f"{pool}-{index}")
        chosen = {names.NODEPOOL: pool}
        world.workloads.add(work(pool, replicas=4, cpu="900m", affinity=apart(pool), node_selector=chosen))
    settle(world)
    watch, seen = started(world)
    drift_by_template(world)
    settle(world, 600)
    assert seen.launched == 8
    for claims in seen.created.values():
        assert len(claims) == 1
        pool = claims[0].replacement.node_pool
        assert all(pod.startswith(f"default/{pool}-") for pod in claims[0].replacement.pods)
    assert rules(watch) == []


def test_room_that_is_planned_for_others_is_not_taken() -> None:
    """A free node takes the pods of the first command; the second command, found right after it, launches."""
    world = small_world(3, budgets=[{"nodes": "100%"}], consolidationPolicy="WhenEmpty", consolidateAfter="Never")
    world.workloads.add(work("pair", replicas=2, cpu="2500m"))
    settle(world)
    free = [name for name in sorted(world.store.nodes) if not world.store.pods_on.get(name)]
    assert len(free) == 1
    watch, seen = started(world)
    for name in sorted(world.store.nodes):
        if name not in free:
            world.karpenter.images["default"] = "image-2"
            world.karpenter._judge_drift(name, world.store.claims[name].metadata.uid)
    world.karpenter.images["default"] = "image-1"
    settle(world, 300)
    assert len(seen.begun) == 2
    assert seen.launched == 1
    assert rules(watch) == []


def test_cost_action_is_not_held_up_by_what_others_launch() -> None:
    """A cost action of another pool neither opens nor prices nodes for a leaving node's pods."""
    slow = replace(QUICK, register=Span(600 * SECOND, 600 * SECOND))
    world = small_world(0, times=slow, consolidationSavingsThreshold=0)
    world.add_pool(pool_named("green", consolidationPolicy="WhenEmpty"))
    world.add_node("green", "large", "zone-a", names.ON_DEMAND, age=120 * MINUTE, name="old")
    world.add_node("blue", "large", "zone-b", names.ON_DEMAND, age=120 * MINUTE, name="half")
    world.workloads.add(work("big", cpu="7000m", replicas=1, node_selector={names.NODEPOOL: "green"}))
    world.workloads.add(work("little", cpu="300m", replicas=1, node_selector={names.NODEPOOL: "blue"}))
    settle(world, 20)
    watch, seen = started(world)
    world.set_template_labels("green", {"team": "b"}, within=0)
    settle(world, 300)
    asked = {claim.replacement.node_pool: claim.replacement for c in seen.created.values() for claim in c}
    assert {pool: wanted.requests["cpu"] for pool, wanted in asked.items()} == {"green": 7000, "blue": 300}
    assert seen.launched == 2
    assert rules(watch) == []


@pytest.mark.parametrize(("cpu", "replicas"), [(900, 2), (900, 9), (5000, 1)])
def test_checker_sees_more_replacements_than_the_pods_need(cpu: int, replicas: int) -> None:
    """Two or nine nodes for one pod, and a node large enough for others' pods, are reported."""
    world = one_pod_each(3)
    watch = Watch(world)
    rogue = Rogue(world, watch)
    names_of = tuple(f"new-{index}" for index in range(replicas))
    record = rogue.record("one", ("n0",), Method.DRIFTED, names_of)
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    for name in names_of:
        wanted = Replacement(node_pool="blue", instance_types=("large",), requests={"cpu": cpu, "pods": 1})
        rogue.do(
            CreateNodeClaim(id=f"one/create/{name}", command_id="one", name=name, replacement=wanted, record=record)
        )
    assert rules(watch)[:1] == ["too-many-replacements"]


@pytest.mark.parametrize(
    ("protected", "blocked", "broken"),
    [(False, False, False), (True, False, True), (False, True, True)],
    ids=["moves", "do-not-disrupt", "its PDB allows nothing"],
)
def test_checker_accepts_one_node_for_pods_that_move_only(protected: bool, blocked: bool, broken: bool) -> None:
    """One node for a pod that stays where it is, is reported; one for a pod that moves is not."""
    world = one_pod_each(3)
    key, pod = next(iter(world.store.pods_on["n0"].items()))
    if protected:
        world.put(change(pod, metadata=change(pod.metadata, annotations={names.DO_NOT_DISRUPT: "true"})))
    if blocked:
        selector = LabelSelectorSpec(match_labels=pod.metadata.labels)
        spec = PodDisruptionBudgetSpec(selector=selector, max_unavailable=0)
        world.put(PodDisruptionBudget(metadata=ObjectMeta(name="pdb", namespace=pod.metadata.namespace), spec=spec))
    watch = Watch(world)
    rogue = Rogue(world, watch)
    record = rogue.record("one", ("n0",), Method.DRIFTED, ("new",))
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    assert rules(watch) == ["too-many-replacements"] * broken
    assert world.store.pods[key].spec.node_name == "n0"


def test_checker_accepts_what_the_pods_need() -> None:
    """One node for one pod is accepted."""
    world = one_pod_each(3)
    watch = Watch(world)
    rogue = Rogue(world, watch)
    record = rogue.record("one", ("n0",), Method.DRIFTED, ("new",))
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    wanted = Replacement(node_pool="blue", instance_types=("large",), requests={"cpu": 900, "pods": 1})
    rogue.do(CreateNodeClaim(id="one/create/new", command_id="one", name="new", replacement=wanted, record=record))
    assert rules(watch) == []


@pytest.mark.parametrize(
    ("settings", "launched"),
    [(CALM, 0), (replace(CALM, search=Search.VALUE, replacements_max=4), 2)],
    ids=["prefix", "value, four new nodes"],
)
def test_several_small_nodes_may_cost_less_than_one(settings: Settings, launched: int) -> None:
    """Two small nodes for one are not excess in a cost action, though one node of the same size would do."""
    world = small_world(0, consolidationSavingsThreshold=0)
    world.add_node("blue", "large", "zone-a", names.ON_DEMAND, age=120 * MINUTE, name="big")
    world.workloads.add(work("web", cpu="1500m", replicas=3))
    settle(world, 20)
    watch, seen = started(world, settings)
    settle(world, 300)
    assert seen.launched == launched
    assert rules(watch) == []


def spread_world() -> World:
    """Return one node per zone: `first` and `third` have a pod each of `web` and `big`, `second` has one of `web`.

    Both workloads are spread over the zones. Once `second` is about to leave, the pod of `web` on `third` must stay in
    its zone, because zone-b is for that of `second`; the pod of `big` goes to the first zone without one, zone-b.
    """
    world = small_world(0, budgets=[{"nodes": "100%"}], consolidationPolicy="WhenEmpty", consolidateAfter="Never")
    for name, size, zone in (("first", "medium", "a"), ("second", "small", "b"), ("third", "medium", "c")):
        world.add_node("blue", size, f"zone-{zone}", names.ON_DEMAND, age=120 * MINUTE, name=name)
    for name, replicas, cpu in (("web", 3, "1500m"), ("big", 2, "1800m")):
        alike = LabelSelectorSpec(match_labels={"app": name})
        spread = TopologySpreadConstraint(topology_key=names.ZONE, max_skew=1, label_selector=alike)
        world.workloads.add(work(name, replicas=replicas, cpu=cpu, topology_spread_constraints=(spread,)))
        settle(world)
    assert [len(world.store.pods_on[name]) for name in ("first", "second", "third")] == [2, 1, 2]
    return world


def test_spread_that_depends_on_the_pods_of_another_command() -> None:
    """Two pods that could share a node need one each if another command's pod has taken a zone."""
    world = spread_world()
    watch, seen = started(world)
    world.karpenter.images["default"] = "image-2"
    for name in ("second", "third"):
        world.karpenter._judge_drift(name, world.store.claims[name].metadata.uid)
        settle(world, 5)
    world.karpenter.images["default"] = "image-1"
    settle(world, 40)
    zones = [[claim.replacement.zones for claim in claims] for claims in seen.created.values()]
    assert zones == [[("zone-b",)], [("zone-b",), ("zone-c",)]]
    assert rules(watch) == []


@pytest.mark.parametrize(
    ("other", "replacements", "broken"),
    [
        ("first", 2, False),
        ("first", 3, True),
        ("second", 2, False),
        ("second", 3, True),
    ],
)
def test_checker_counts_zones_that_others_take(other: str, replacements: int, broken: bool) -> None:
    """A second node is accepted if another leaving node's pods take the zone of one of the two pods; a third is not."""
    world = spread_world()
    watch = Watch(world)
    rogue = Rogue(world, watch)
    rogue.taint("other", other, method=Method.DRIFTED)
    record = rogue.record("one", ("third",), Method.DRIFTED, tuple(f"new-{index}" for index in range(replacements)))
    rogue.do(TaintNode(id="one/taint/third", command_id="one", node="third", record=record))
    assert rules(watch) == ["too-many-replacements"] * broken


def test_checker_counts_no_node_that_others_need() -> None:
    """A new node for another leaving node's pod is not a second one for this command."""
    world = one_pod_each(3)
    watch = Watch(world)
    rogue = Rogue(world, watch)
    rogue.taint("other", "n1", method=Method.DRIFTED)
    record = rogue.record("one", ("n0",), Method.DRIFTED, ("new-0", "new-1"))
    rogue.do(TaintNode(id="one/taint/n0", command_id="one", node="n0", record=record))
    assert rules(watch) == ["too-many-replacements"]


def zones_apart_world() -> World:
    """Return `mine` with two pods that must not share a zone while the pods of all other nodes stay where they are.

    `web` keeps away from the zones of `west` and `east`, so zone-b is left to it; `big` from that of `north`.
    """
    world = small_world(0, budgets=[{"nodes": "100%"}], consolidationPolicy="WhenEmpty", consolidateAfter="Never")
    for name, zone in (("west", "a"), ("north", "b"), ("east", "c"), ("mine", "b")):
        world.add_node("blue", "medium", f"zone-{zone}", names.ON_DEMAND, age=120 * MINUTE, name=name)
        for pod in ("web", "big") if name == "mine" else (f"of-{name}",):
            world.workloads.add(work(pod, replicas=1, node_selector={names.HOSTNAME: name}))
    settle(world)
    for app, avoided in (("web", ("of-west", "of-east")), ("big", ("of-north",))):
        pod = next(pod for pod in world.store.pods_on["mine"].values() if pod.metadata.labels["app"] == app)
        terms = tuple(
            PodAffinityTerm(topology_key=names.ZONE, label_selector=LabelSelectorSpec(match_labels={"app": other}))
            for other in avoided
        )
        affinity = Affinity(pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=terms))
        world.put(change(pod, spec=change(pod.spec, node_selector={}, affinity=affinity)))
    return world


@pytest.mark.parametrize(
    ("seconds", "replacements", "broken"),
    [(None, 2, False), (1, 2, False), (1, 4, True), (120, 2, True)],
    ids=["it stays", "it began to leave a moment ago", "that explains no more", "it began long ago"],
)
def test_checker_knows_what_a_decision_could_not_know(seconds: int | None, replacements: int, broken: bool) -> None:
    """Two nodes are accepted if the node that keeps the pods apart began to leave after the decision."""
    world = zones_apart_world()
    watch = Watch(world, lag=30 * SECOND)
    rogue = Rogue(world, watch)
    if seconds is not None:
        rogue.taint("other", "north", method=Method.DRIFTED)
        world.run(world.now + seconds * SECOND)
    record = rogue.record("one", ("mine",), Method.DRIFTED, tuple(f"new-{index}" for index in range(replacements)))
    rogue.do(TaintNode(id="one/taint/mine", command_id="one", node="mine", record=record))
    assert [rule for rule in rules(watch) if rule == "too-many-replacements"] == ["too-many-replacements"] * broken
