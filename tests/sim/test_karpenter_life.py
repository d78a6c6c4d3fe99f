"""The life of a NodeClaim in the simulated cluster, as in Karpenter v1.15."""

import dataclasses
from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.model import names
from dovetail.model.command import Replacement
from dovetail.model.objects import condition, is_true
from dovetail.sim.world.actuate import claim_from
from dovetail.sim.world.clock import HOUR, MINUTE, SECOND, seconds
from dovetail.sim.world.cloud import CloudTimes
from dovetail.sim.world.karpenter.lifetimes import REGISTRATION_TIMEOUT
from dovetail.sim.world.world import World
from tests.support.rogue import START, settle, small_world, work


def launch(
    world: World, name: str = "fresh", *, kinds: tuple[str, ...] = ("small",), expire: str | None = None
) -> None:
    """Create a NodeClaim as Karpenter would."""
    claim = claim_from(world.store.pools["blue"], name, Replacement(node_pool="blue", instance_types=kinds))
    claim = replace(
        claim,
        metadata=replace(claim.metadata, creation_timestamp=world.clock.instant()),
        spec=replace(claim.spec, expire_after=expire),
    )
    world.put(claim)
    world.karpenter.created(name)


def conditions(world: World, name: str) -> set[str]:
    """Return the conditions with status True."""
    return {entry.type for entry in world.store.claims[name].status.conditions if entry.status == "True"}


def test_claim_is_launched_registered_and_initialized_in_turn() -> None:
    """Each step sets its condition; pods arrive only when the node is ready."""
    world = small_world(nodes=0)
    launch(world)
    world.run(1500 * 10**6)
    assert conditions(world, "fresh") == {"Launched"}
    assert world.store.claims["fresh"].metadata.labels[names.INSTANCE_TYPE] == "small"
    world.run(3500 * 10**6)
    assert conditions(world, "fresh") == {"Launched", "Registered"}
    node = world.store.nodes["fresh"]
    assert names.INITIALIZED_LABEL not in node.metadata.labels
    assert not is_true(node.status.conditions, "Ready")
    world.run(4500 * 10**6)
    assert "Initialized" in conditions(world, "fresh")
    assert world.store.nodes["fresh"].metadata.labels[names.INITIALIZED_LABEL] == "true"
    assert world.store.nodes["fresh"].spec.taints == ()


def test_consolidatable_comes_after_quiet_time_and_goes_with_a_pod() -> None:
    """The condition is set consolidateAfter after the last pod event, and cleared by the next one."""
    world = small_world(nodes=1)
    settle(world, 1)
    assert names.CONDITION_CONSOLIDATABLE in conditions(world, "n0")
    world.workloads.add(work(replicas=1))
    settle(world, 2)
    assert names.CONDITION_CONSOLIDATABLE not in conditions(world, "n0")
    settle(world, 31)
    assert names.CONDITION_CONSOLIDATABLE in conditions(world, "n0")


def test_pod_events_are_noted_at_most_every_ten_seconds() -> None:
    """An event within ten seconds of the last recorded one does not change the time, as in Karpenter."""
    world = small_world(nodes=1)
    world.workloads.add(work("one", replicas=1, cpu="100m"))
    settle(world, 5)
    first = world.store.claims["n0"].status.last_pod_event_time
    world.workloads.add(work("two", replicas=1, cpu="100m"))
    settle(world, 5)
    assert world.store.claims["n0"].status.last_pod_event_time == first
    settle(world, 10)
    world.workloads.add(work("three", replicas=1, cpu="100m"))
    settle(world, 1)
    assert world.store.claims["n0"].status.last_pod_event_time > first


def test_daemon_pods_are_no_pod_events() -> None:
    """A DaemonSet's pod does not restart the timers."""
    world = small_world(nodes=1)
    world.workloads.add(work("agent", kind="DaemonSet", cpu="10m"))
    settle(world, 20)
    assert "default/agent-n0" in world.store.pods
    assert world.store.claims["n0"].status.last_pod_event_time is None


def test_forceful_expiry_asks_no_hold() -> None:
    """A NodeClaim's expireAfter ends it on time, even with do-not-disrupt."""
    world = small_world(nodes=0)
    launch(world, expire="1h")
    settle(world, 60)
    node = world.store.nodes["fresh"]
    world.store.touch_meta(node, annotations={names.DO_NOT_DISRUPT: "true"})
    world.run(HOUR - SECOND)
    assert world.store.claims["fresh"].metadata.deletion_timestamp is None
    world.run(HOUR + 20 * SECOND)
    assert "fresh" not in world.store.claims
    assert "fresh" not in world.cloud.instances


def test_image_change_drifts_nodes_within_five_minutes_each_in_its_time() -> None:
    """Nodes of the old image become Drifted at Karpenter's next check; new ones don't; a rollback clears it."""
    world = small_world(nodes=4)
    world.set_image("default", "image-2")
    launch(world)
    world.run(6 * MINUTE)
    times = {
        condition(world.store.claims[f"n{i}"].status.conditions, names.CONDITION_DRIFTED).last_transition_time
        for i in range(4)
    }
    assert len(times) == 4
    assert max(times) <= START + timedelta(minutes=5)
    assert names.CONDITION_DRIFTED not in conditions(world, "fresh")
    world.set_image("default", "image-1")
    world.run(12 * MINUTE)
    assert all(names.CONDITION_DRIFTED not in conditions(world, f"n{i}") for i in range(4))


def test_machine_with_a_bad_image_is_given_up_after_fifteen_minutes() -> None:
    """A machine with a bad image is given up after fifteen minutes, and costs money until then."""
    world = small_world(nodes=0)
    world.set_image("default", "image-bad", bad=True)
    launch(world)
    world.run(REGISTRATION_TIMEOUT)
    assert "fresh" in world.cloud.instances
    assert "fresh" not in world.store.nodes
    world.run(REGISTRATION_TIMEOUT + 10 * SECOND)
    assert "fresh" not in world.store.claims
    assert "fresh" not in world.cloud.instances


def test_claim_for_what_is_out_of_stock_is_given_up_and_the_offering_closed() -> None:
    """Another allowed type is launched instead; if there is none, the claim ends with the reason in the catalogue."""
    world = small_world(nodes=0)
    for zone in ("zone-a", "zone-b", "zone-c"):
        world.cloud.run_dry(("small", zone, names.ON_DEMAND), HOUR)
    launch(world, "two", kinds=("small", "medium"))
    launch(world, "one", kinds=("small",))
    world.run(10 * SECOND)
    assert world.cloud.instances["two"].kind.name == "medium"
    assert "one" not in world.store.claims
    seen = {kind.name: kind for kind in world.cloud.seen_catalogue().instance_types}
    assert not any(offering.available for offering in seen["small"].offerings)
    world.run(10 * MINUTE)
    seen = {kind.name: kind for kind in world.cloud.seen_catalogue().instance_types}
    assert all(offering.available for offering in seen["small"].offerings)


def test_deleting_a_claim_drains_through_the_budget_and_moves_every_pod() -> None:
    """Pods are recreated elsewhere; the node is deleted after its last pod."""
    world = small_world(nodes=2)
    world.workloads.add(work(replicas=4))
    settle(world)
    world.karpenter.delete("n0")
    settle(world, 2)
    assert any(taint.key == names.DISRUPTED_TAINT for taint in world.store.nodes["n0"].spec.taints)
    settle(world, 30)
    assert "n0" not in world.store.nodes
    assert [pod.spec.node_name for pod in world.store.pods.values()] == ["n1"] * 4


def test_termination_grace_period_ends_the_patience_of_a_drain() -> None:
    """A pod with do-not-disrupt delays the drain until the claim's deadline."""
    world = small_world(nodes=1)
    world.workloads.add(dataclasses.replace(work(replicas=1), annotations={names.DO_NOT_DISRUPT: "true"}))
    settle(world)
    claim = world.store.claims["n0"]
    world.put(replace(claim, spec=replace(claim.spec, termination_grace_period="5m")))
    world.karpenter.delete("n0")
    settle(world, 4 * 60)
    assert "n0" in world.store.nodes
    settle(world, 90)
    assert "n0" not in world.store.nodes


def test_dead_machine_turns_not_ready_and_is_collected() -> None:
    """The node becomes not ready, then Karpenter finds the machine gone; its pods are recreated."""
    world = small_world(nodes=2)
    world.workloads.add(work(replicas=4))
    settle(world)
    world.kill("n0")
    settle(world, 45)
    assert not is_true(world.store.nodes["n0"].status.conditions, "Ready")
    settle(world, 180)
    assert "n0" not in world.store.nodes
    assert sum(pod.status.phase == "Running" for pod in world.store.pods.values()) == 4


def test_spot_machine_is_taken_back_with_two_minutes_notice() -> None:
    """The notice drains the node at once; after two minutes it is gone, even with pods."""
    times = CloudTimes(
        create=seconds(1), register=seconds(1), ready=seconds(1), shutdown=seconds(1), interruptions_per_hour=60.0
    )
    world = small_world(nodes=1, times=times)
    heard = []
    world.on_outside(heard.append)
    world._interrupted("n0")
    settle(world, 30)
    assert "n0" not in world.store.nodes
    assert heard[0] == "spot interruption of n0"


@pytest.mark.parametrize("hours", [1, 3])
def test_bill_is_exact(hours: int) -> None:
    """Two medium nodes at 0.10 an hour cost exactly that."""
    world = small_world(nodes=2)
    world.run(hours * HOUR)
    assert world.cloud.bill() == 2 * hours * 10**17
