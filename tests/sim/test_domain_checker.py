"""Zones are rolled in turn: the checker sees it when they are not, and the engine keeps it through what may happen."""

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from dovetail.lifecycle.messages import BeginDomain, Instruction, PublishEvent, TaintNode
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import (
    LabelSelectorSpec,
    ObjectMeta,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    is_true,
)
from dovetail.sim.checks.watch import Watch
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World
from tests.support.rogue import Rogue, rules, settle, small_world, work

ZONES = ("zone-a", "zone-b", "zone-c")
BUDGETS = [
    {"nodes": "100%"},
    {"nodes": "1", "topologyKey": names.ZONE, "sequential": True, "reasons": ["Drifted"]},
]


def _drifted(nodes: int = 6) -> tuple[World, Watch, Rogue]:
    """Return a world of three zones in which every node has drifted, its checkers, and a controller without rules."""
    world = small_world(nodes=nodes, budgets=BUDGETS, consolidateAfter="Never")
    watch = Watch(world)
    rogue = Rogue(world, watch)
    world.set_image("default", "image-2", within=0)
    settle(world, 60)
    return world, watch, rogue


def _begin(rogue: Rogue, ident: str, domain: str) -> None:
    at = rogue.world.clock.instant()
    rogue.do(BeginDomain(id=f"{ident}/begin", command_id=ident, node_pool="blue", key=names.ZONE, domain=domain, at=at))


def _roll(rogue: Rogue, ident: str, node: str) -> None:
    """Take a node for drift, zone and all, until it is gone."""
    _begin(rogue, ident, rogue.world.store.nodes[node].metadata.labels[names.ZONE])
    rogue.taint(ident, node, method=Method.DRIFTED)
    rogue.delete(ident, node)
    settle(rogue.world, 60)


def _order_broken(watch: Watch) -> bool:
    return "domain-order" in rules(watch)


def test_a_zone_that_is_left_with_drifted_nodes_is_seen() -> None:
    """Drift that begins in the next zone breaks the promise while the last one has drifted nodes; not after it."""
    for nodes, broken in ((("n0", "n3", "n1"), False), (("n0", "n1"), True)):
        _, watch, rogue = _drifted()
        for number, node in enumerate(nodes):
            assert not _order_broken(watch)
            _roll(rogue, f"c{number}", node)
        assert _order_broken(watch) is broken


def test_a_node_that_drifts_within_the_lag_is_not_held_against_it() -> None:
    """What drifts while the next zone begins could not be known."""
    world = small_world(nodes=6, budgets=BUDGETS, consolidateAfter="Never")
    watch = Watch(world)
    rogue = Rogue(world, watch)
    _roll(rogue, "one", "n0")
    world.set_image("default", "image-2", within=0)
    _roll(rogue, "two", "n1")
    assert not _order_broken(watch)


@pytest.mark.parametrize(("dies", "broken"), [("n3", False), ("n4", True)])
def test_a_machine_that_dies_may_finish_a_zone(dies: str, broken: bool) -> None:
    """The last drifted node of a zone died by itself: what drifts there later has to wait for the other zones."""
    world, watch, rogue = _drifted()
    _roll(rogue, "one", "n0")
    world.kill(dies)
    settle(world, 300)
    world.karpenter.images["default"] = "image-1"
    late = world.add_node("blue", "medium", "zone-a", names.ON_DEMAND)
    world.set_image("default", "image-2", within=0)
    settle(world, 60)
    assert is_true(world.store.claims[late].status.conditions, names.CONDITION_DRIFTED)
    _roll(rogue, "two", "n1")
    assert _order_broken(watch) is broken


@pytest.mark.parametrize(("minutes", "broken"), [(11, False), (3, True)])
def test_leaving_a_zone_behind_takes_patience(minutes: int, broken: bool) -> None:
    """A zone may be left behind only after `domainPatience` without a departure."""
    world, watch, rogue = _drifted()
    _roll(rogue, "one", "n0")
    settle(world, minutes * 60)
    _roll(rogue, "two", "n1")
    kept = json.loads(world.store.pools["blue"].metadata.annotations[names.ROLLOUT])
    assert kept == {"turns": ["zone-a"], "leftBehind": ["zone-a"]}
    assert _order_broken(watch) is broken


def test_the_node_pool_names_the_zone_before_the_taint() -> None:
    """A taint in a zone that the NodePool does not name breaks the promise."""
    world, watch, rogue = _drifted()
    _begin(rogue, "one", "zone-b")
    settle(world)
    rogue.taint("one", "n0", method=Method.DRIFTED)
    assert _order_broken(watch)


def test_nothing_of_a_roll_is_left_at_its_end() -> None:
    """An annotation that stays on a pool without drifted nodes is a violation."""
    world = small_world(budgets=BUDGETS)
    watch = Watch(world)
    watch.ended()
    assert not _order_broken(watch)
    pool = world.store.pools["blue"]
    world.put(replace(pool, metadata=replace(pool.metadata, annotations={names.ROLLING_DOMAIN: "x"})))
    watch.ended()
    assert _order_broken(watch)


# ---------------------------------------------------------------- the engine


class _Roll:
    """Nine nodes of three zones that roll under the engine; records which zone each drifted node left."""

    def __init__(self, **disruption: object) -> None:
        self.world = small_world(nodes=9, budgets=BUDGETS, **{"consolidateAfter": "Never", **disruption})
        for zone in ZONES:
            self.world.workloads.add(work(zone, replicas=3, cpu="2500m", node_selector={names.ZONE: zone}))
        settle(self.world)
        self.watch = Watch(self.world)
        self.hosts: list[Host] = []
        self.order: list[str] = []

    def engine(self, name: str, *, leads: bool = True) -> Host:
        host = self.world.add_engine(name=name)
        self.watch.follow(host)
        host.on_instruction.append(self._note)
        host.start(leads=leads)
        self.hosts.append(host)
        return host

    def _note(self, _: Host, asked: Instruction) -> None:
        if isinstance(asked, TaintNode) and '"method":"drifted"' in asked.record:
            self.order.append(self.world.store.nodes[asked.node].metadata.labels[names.ZONE][-1])

    def changes(self) -> int:
        return sum(one != other for one, other in pairwise(self.order))

    def finish(self, minutes: int = 90) -> None:
        """Let the roll end: nothing has drifted, no promise is broken, the NodePool says nothing about it any more."""
        self.world.run(self.world.now + minutes * MINUTE)
        self.watch.ended()
        assert rules(self.watch) == []
        claims = self.world.store.claims.values()
        assert not [c for c in claims if any(e.type == "Drifted" and e.status == "True" for e in c.status.conditions)]
        left = self.world.store.pools["blue"].metadata.annotations
        assert not {names.ROLLING_DOMAIN, names.ROLLOUT} & set(left)


def _crash(roll: _Roll) -> None:
    roll.hosts[0].crash()
    roll.world.clock.after(20 * SECOND, roll.hosts[0].start)


def _hand_over(roll: _Roll) -> None:
    other = roll.engine("other", leads=False)
    roll.hosts[0].crash()
    roll.world.clock.after(15 * SECOND, lambda: other.lead(leads=True))


def _nothing(_: _Roll) -> None:
    pass


@pytest.mark.parametrize("happens", [_nothing, _crash, _hand_over])
@pytest.mark.parametrize("minute", [2, 5, 8])
@pytest.mark.parametrize("within", [0, 5 * MINUTE])
def test_a_roll_changes_zone_twice(happens: Callable[[_Roll], None], minute: int, within: int) -> None:
    """Whatever happens to the leader, and however late drift is found, three zones are rolled one after the other."""
    roll = _Roll()
    roll.engine("first")
    roll.world.clock.after(minute * MINUTE, happens, roll)
    roll.world.set_image("default", "image-2", within=within)
    roll.finish()
    assert roll.changes() == 2


def test_a_full_pdb_in_the_active_zone() -> None:
    """A zone that a full PDB holds is left behind after a while, with one event, and has its turn again at the end."""
    roll = _Roll()
    labels = {"app": "zone-a"}
    spec = PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels=labels), max_unavailable=0)
    pdb = PodDisruptionBudget(metadata=ObjectMeta(name="full", namespace="default"), spec=spec)
    roll.engine("first")
    roll.world.set_image("default", "image-2", within=0)
    roll.world.clock.after(60 * SECOND, lambda: roll.world.put(pdb))  # the first node of the zone is leaving by then
    told: list[str] = []

    def note(_: Host, asked: Instruction) -> None:
        if isinstance(asked, PublishEvent) and asked.reason == "DriftDomainLeftBehind":
            told.append(asked.message)

    roll.hosts[0].on_instruction.append(note)
    roll.world.run(roll.world.now + 70 * MINUTE)
    assert rules(roll.watch) == []
    assert "".join(roll.order).lstrip("a") in ("bbbccc", "cccbbb")
    assert len(told) == 1
    assert "zone-a" in told[0]
    roll.world.put(replace(pdb, spec=replace(spec, max_unavailable=1)))
    roll.finish()
    assert "".join(roll.order).strip("a") in ("bbbccc", "cccbbb")
    assert len(roll.order) == 9


def test_a_cost_command_in_another_zone() -> None:
    """Nodes that leave another zone for another reason take no turn away."""
    roll = _Roll(consolidateAfter="30s")
    host = roll.engine("first")
    roll.world.set_image("default", "image-2", within=0)
    elsewhere: list[str] = []

    def note(_: Host, asked: Instruction) -> None:
        if isinstance(asked, TaintNode) and '"method":"drifted"' not in asked.record:
            elsewhere.append(asked.node)

    host.on_instruction.append(note)
    for minute in range(2, 12, 2):
        roll.world.clock.after(minute * MINUTE, roll.world.scale, "ReplicaSet", "default/zone-c", minute % 4)
    roll.finish()
    assert elsewhere
    assert roll.changes() == 2


def test_an_unmanaged_pool_keeps_nothing() -> None:
    """A pool that is taken back in the middle of a roll says nothing about it any more."""
    roll = _Roll()
    roll.engine("first")
    roll.world.set_image("default", "image-2", within=0)
    roll.world.run(roll.world.now + 3 * MINUTE)
    pool = roll.world.store.pools["blue"]
    assert names.ROLLING_DOMAIN in pool.metadata.annotations
    labels = {key: value for key, value in pool.metadata.labels.items() if key != names.MANAGE}
    roll.world.set_pool(replace(pool, metadata=replace(pool.metadata, labels=labels)))
    roll.world.run(roll.world.now + MINUTE)
    assert not {names.ROLLING_DOMAIN, names.ROLLOUT} & set(roll.world.store.pools["blue"].metadata.annotations)
