"""Rules on new nodes: order of pools, requirements, limits, minValues, offerings, daemons, reservations, prices."""

from dataclasses import replace

import msgspec
import pytest

from dovetail.model.catalogue import Offering
from dovetail.model.money import parse_money
from dovetail.model.objects import DaemonSet
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, MinValuesPolicy
from dovetail.scheduling.simulate import place
from tests.support.scheduling_build import (
    KINDS,
    homes,
    kind,
    node,
    placed,
    pod,
    pool,
    selector,
    snapshot,
    unplaced,
    wants,
    without,
)

CAPACITY = "karpenter.sh/capacity-type"
TYPE = "node.kubernetes.io/instance-type"


def _types(*objects: object, **more: object) -> list[str]:
    found = place(snapshot(*objects, **more))  # type: ignore[arg-type]
    return [k.name for k in found.new[0].instance_types]


def test_pools_by_weight_then_name_descending() -> None:
    """The heaviest usable pool takes the pod; of equal pools, the one with the later name."""
    assert placed(pool("a"), pool("b"), pod("x")) == {"x": "new b #1"}
    assert placed(pool("a", weight=1), pool("b"), pod("x")) == {"x": "new a #1"}


@pytest.mark.parametrize(
    "unusable",
    [
        pool("b", conditions=[{"type": "Ready", "status": "False"}]),
        pool("b", replicas=3),
        pool("b", meta={"deletionTimestamp": "2026-05-01T00:00:00Z"}),
        pool("b", requirements=[wants("kubernetes.io/arch", "In", "s390x"), wants(TYPE, "In", "none")]),
        pool("b", taints=[{"key": "x", "effect": "NoSchedule"}]),
        pool("b", limits={"cpu": "0"}),
        pool("b", limits={"nodes": "0"}),
    ],
)
def test_pools_that_can_not_be_used(unusable: object) -> None:
    """A pool that is unready, static, leaving, without types, tainted or full is skipped."""
    assert placed(pool("a"), unusable, pod("x")) == {"x": "new a #1"}  # type: ignore[arg-type]


def test_a_pool_without_status_counts_as_ready() -> None:
    """A manifest without a status is used."""
    assert placed(pool("a", conditions=[]), pod("x")) == {"x": "new a #1"}


def test_types_that_fit_cheapest_first() -> None:
    """Types that are too small are excluded; the rest are sorted by price, then name."""
    assert _types(pool(), pod("x", "3")) == ["c.4", "c.8", "c.16"]
    assert _types(pool(), pod("x"), kinds=(kind("b", 4, "0.2"), kind("a", 4, "0.2"), kind("c", 4, "0.1"))) == [
        "c",
        "a",
        "b",
    ]


def test_pods_share_a_new_node_as_long_as_a_type_fits() -> None:
    """Pods join the new node with the fewest pods; another opens if no type is large enough."""
    batch = [pod(f"x-{i}", "6") for i in range(3)]
    found = place(snapshot(pool(), *batch))
    assert [len(new.pods) for new in found.new] == [2, 1]
    assert found.new[0].requests["cpu"] == 12000


def test_requirements_of_pool_and_pod_meet() -> None:
    """Types must meet the pool's requirements, Gt and Lt included, and the pod's."""
    sized = tuple(replace(k, requirements=(selector("size", "In", k.name[2:]),)) for k in KINDS)
    between = pool(requirements=[wants("size", "Gt", "2"), wants("size", "Lt", "16")])
    assert _types(between, pod("x"), kinds=sized) == ["c.4", "c.8"]
    assert _types(between, pod("x", nodeSelector={"size": "8"}), kinds=sized) == ["c.8"]
    assert place(snapshot(between, pod("x", nodeSelector={"size": "16"}), kinds=sized)).new == ()


def test_labels_that_nobody_defines() -> None:
    """A pod may use a label that the pool does not define only if all nodes of the provider have it."""
    assert place(snapshot(pool(), pod("x", nodeSelector={"team": "one"}))).new == ()
    assert placed(pool(labels={"team": "one"}), pod("x", nodeSelector={"team": "one"})) == {"x": "new p #1"}
    assert _types(pool(), pod("x", nodeSelector={TYPE: "c.8"})) == ["c.8"]
    why = unplaced(place(snapshot(pool(), pod("x", nodeSelector={"zone": "a"}))))["x"]
    assert "topology.kubernetes.io/zone" in why


def test_the_final_requirements_carry_the_template() -> None:
    """A new node has its pool, node class and started labels, but no host name."""
    (new,) = place(snapshot(pool(labels={"team": "one"}), pod("x"))).new
    assert [(r.key, r.values) for r in new.requirements] == [
        ("g/nodeclass", ("default",)),
        ("karpenter.sh/initialized", ("true",)),
        ("karpenter.sh/nodepool", ("p",)),
        ("karpenter.sh/registered", ("true",)),
        ("team", ("one",)),
    ]


def test_limits_count_the_largest_machine_that_may_come() -> None:
    """What is left of a limit goes down by the largest type of each new node; candidates give theirs back."""
    two = [pod(f"x-{i}", "9") for i in range(2)]
    assert sorted(placed(pool(limits={"cpu": "30"}), *two).values()) == ["new p #1"]
    seen = snapshot(pool(limits={"cpu": "8"}), node("n1"), pod("a", "7", on="n1"), pod("w", "1"))
    assert homes(place(seen)) == {"w": "n1"}
    assert homes(without(seen, "n1")) == {"a": "new p #1", "w": "new p #1"}


def test_min_values() -> None:
    """With too few values Strict opens no node; BestEffort opens it and says so."""
    flexible = pool(requirements=[wants(TYPE, "Exists", minValues=3)])
    assert len(_types(flexible, pod("x", "3"))) == 3
    assert place(snapshot(flexible, pod("x", "5"))).new == ()
    best_effort = replace(DOVETAIL, min_values_policy=MinValuesPolicy.BEST_EFFORT)
    (new,) = place(snapshot(flexible, pod("x", "5"), settings=best_effort)).new
    assert new.min_values_relaxed
    assert new.requirement(TYPE).min_values == 2  # type: ignore[union-attr]


def test_min_values_are_checked_again_for_fewer_types() -> None:
    """After a price filter the rest must still have enough values; the number needed counts from the front."""
    (new,) = place(snapshot(pool(requirements=[wants(TYPE, "Exists", minValues=2)]), pod("x"))).new
    assert new.check_min_values().needed == 2
    assert new.check_min_values(new.instance_types[:1]).unmet == {TYPE: 1}


def _offer(capacity_type: str, zone: str, price: str, **more: object) -> Offering:
    return Offering(
        capacity_type=capacity_type,
        zone=zone,
        price=parse_money(price),
        price_float=float(price),
        **more,  # type: ignore[arg-type]
    )


def test_offerings_that_are_not_available_don_t_count() -> None:
    """A type without an available matching offering is excluded."""
    gone = kind("c.4", 4, offerings=(_offer("on-demand", "a", "0.2", available=False), _offer("spot", "b", "0.1")))
    assert place(snapshot(pool(requirements=[wants(CAPACITY, "In", "on-demand")]), pod("x"), kinds=(gone,))).new == ()
    (new,) = place(snapshot(pool(), pod("x"), kinds=(gone,))).new
    assert (new.capacity_types, new.zones) == (("spot",), ("b",))


def test_launch_prices() -> None:
    """Worst: the most expensive zone of the capacity type that would launch; cheapest: whatever costs least."""
    offers = (_offer("spot", "a", "0.1"), _offer("spot", "b", "0.3"), _offer("on-demand", "a", "0.2"))
    (new,) = place(snapshot(pool(), pod("x"), kinds=(kind("c.4", 4, offerings=offers),))).new
    (mixed,) = new.instance_types
    worst, cheapest = new.worst_launch_price(mixed), new.cheapest_launch_price(mixed)
    assert worst is not None
    assert cheapest is not None
    assert (worst.amount, worst.as_float, worst.zone) == (parse_money("0.3"), 0.3, "b")
    assert (cheapest.amount, cheapest.capacity_type) == (parse_money("0.1"), "spot")
    dear = new.narrowed("on-demand").worst_launch_price(mixed)
    assert dear is not None
    assert dear.as_float == 0.2
    assert new.narrowed("reserved").offered_types() == ()


def test_daemons_take_room_of_new_nodes() -> None:
    """Types whose daemons leave too little are out; the node's requests carry what daemons take."""
    tree = {
        "metadata": {"name": "d", "namespace": "default", "uid": "o"},
        "spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}}},
    }
    daemon = msgspec.convert(tree, DaemonSet)
    (new,) = place(snapshot(pool(), daemon, pod("x", "3.5"))).new
    assert [k.name for k in new.instance_types] == ["c.8", "c.16"]
    assert new.requests["cpu"] == 4500
    assert new.requests["pods"] == 2


def test_daemons_that_ask_for_more_than_can_be_counted() -> None:
    """Two daemons that each ask for the largest amount there is leave no type over, and nothing overflows."""
    asked = {"containers": [{"resources": {"requests": {"cpu": "1e300"}}}]}
    daemons = [
        msgspec.convert(
            {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"template": {"spec": asked}}},
            DaemonSet,
        )
        for name in ("d", "e")
    ]
    assert place(snapshot(pool(), *daemons, pod("x"))).new == ()


def test_taints_that_should_be_avoided_are_tolerated_last() -> None:
    """A PreferNoSchedule taint of the only pool is relaxed after everything else."""
    soft = pool(taints=[{"key": "rather-not", "effect": "PreferNoSchedule"}])
    assert placed(soft, pod("x")) == {"x": "new p #1"}
    assert placed(soft, pool("a"), pod("x")) == {"x": "new a #1"}


def test_reserved_offerings() -> None:
    """A reservation is requested by name; without free slots simulations fall back and placing waits."""
    offers = (
        _offer("reserved", "a", "0.001", reservation_id="r1", reservation_capacity=1),
        _offer("on-demand", "a", "0.4"),
    )
    machines = (kind("c.8", 8, offerings=offers),)
    seen = snapshot(pool(), pod("x-1", "7"), pod("x-2", "7"), kinds=machines)
    found = place(seen)
    assert [new.capacity_types for new in found.new] == [("reserved",)]
    assert len(found.unplaced) == 1
    running = [pod("x-1", "7", on="n1"), pod("x-2", "7", on="n1")]
    moved = without(snapshot(pool(), node("n1", 16), *running, kinds=machines), "n1")
    assert [new.capacity_types == ("reserved",) for new in moved.new_nodes] == [True, False]
    assert all("on-demand" in new.capacity_types for new in moved.new_nodes[1:])


def test_early_end_when_too_many_new_nodes_are_needed() -> None:
    """The verdict is the same; new nodes that serve only pending pods count in Karpenter's profile alone."""
    objects = (pool(), node("n1", 16), pod("a", "15", on="n1"), pod("w", "16"))
    ours = without(snapshot(*objects), "n1", new_nodes_max=1)
    assert not ours.stopped_early
    assert len(ours.own_new_nodes(count_all=False)) == 1
    theirs = without(snapshot(*objects, settings=KARPENTER_1_15), "n1", new_nodes_max=1)
    assert theirs.stopped_early
    assert len(theirs.new_nodes) == 2


def test_pending_pods_that_can_not_be_helped_are_named() -> None:
    """A pending pod that no pool can serve is not simulated and is reported."""
    aloof = pod(
        "x",
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [wants("karpenter.sh/nodepool", "DoesNotExist")]}]
                }
            }
        },
    )
    seen = snapshot(pool(), aloof)
    assert seen.pending == ()
    assert "not to run on a node of any pool" in unplaced(place(seen))["x"]
