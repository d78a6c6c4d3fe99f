"""Steering (docs/rules.md#steering): closing nodes, the next victim pod, and what stays unchanged."""

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from dovetail.decide.facts.cost import deletion_cost
from dovetail.model import names
from dovetail.model.karpenter import FeatureGate, KarpenterSettings
from dovetail.model.objects import Taint
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings, SteeringMode
from tests.support.design_world import Town, kind

PREFER = replace(DOVETAIL, steering=SteeringMode.PREFER)


def _town(settings: Settings = PREFER) -> Town:
    """Build three nodes in two zones: `thin` has one pod, `half` three, `full` eight."""
    town = Town(kind("m", "0.10", cpu=4), settings=settings)
    town.pool(disruption={"consolidationSavingsThreshold": 10})
    for name, zone, count in (("thin", "a", 1), ("half", "a", 3), ("full", "b", 8)):
        town.node(name, "m", zone=zone)
        town.fill(name, count, cpu="400m")
    return town


def _close(town: Town, name: str) -> None:
    node = town.nodes[name]
    taint = Taint(key=names.CLOSING_TAINT, effect="PreferNoSchedule")
    town.nodes[name] = msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=(taint,)))


def test_the_nodes_that_are_worth_most_per_pod_are_closing_as_long_as_the_others_have_room() -> None:
    """`thin` and then `half` fit into the remaining room; `full` does not."""
    assert _town().round().steering.closing == ("thin",)
    town = _town()
    town.pods = {name: pod for name, pod in town.pods.items() if not name.startswith("full") or name < "full-04"}
    assert town.round().steering.closing == ("thin", "half")


def test_one_victim_per_replica_set_in_its_fullest_zone_on_the_node_that_ought_to_go_first() -> None:
    """With eight pods in zone b and four in zone a, the victim is in b although b's node should stay."""
    plan = _town().round().steering
    assert [(victim.owner, victim.name) for victim in plan.victims] == [("rs", "full-00")]
    town = _town()
    town.pods = {name: pod for name, pod in town.pods.items() if not name.startswith("full")}
    assert [victim.name for victim in town.round().steering.victims] == ["thin-00"]


@pytest.mark.parametrize(
    ("restless", "price", "spread", "fewer", "victim"),
    [
        (False, 0.01, "", 1, "full-00"),
        (True, 0.01, "", 1, "thin-00"),
        (True, 0.01, "ScheduleAnyway", 1, "thin-00"),
        (True, 0.01, "DoNotSchedule", 1, "full-00"),
        (True, 0.01, "", 2, "full-00"),
        (True, None, "", 1, "full-00"),
    ],
    ids=["quiet", "restless", "soft spread", "hard spread", "two fewer", "no price for waste"],
)
def test_in_a_restless_pool_a_closing_nodes_zone_may_have_one_pod_less(
    restless: bool, price: float | None, spread: str, fewer: int, victim: str
) -> None:
    """In a restless pool the victim may be on the closing node although its zone has fewer pods."""
    town = Town(kind("m", "0.10", cpu=4), settings=PREFER)
    priced = {} if price is None else {"disruptionPrice": price}
    town.pool(disruption={"consolidationSavingsThreshold": 10, **priced})
    spreads = [{"topologyKey": names.ZONE, "maxSkew": 1, "whenUnsatisfiable": spread}] if spread else []
    for name, zone, count in (("thin", "a", 2), ("full", "b", 2 + fewer)):
        town.node(name, "m", zone=zone)
        town.fill(name, count, cpu="400m", spec={"topologySpreadConstraints": spreads})
    until = {"default": town.now + timedelta(minutes=10)} if restless else {}
    plan = town.round(restless=until).steering
    assert plan.closing[:1] == ("thin",)
    assert [entry.name for entry in plan.victims] == [victim]


@pytest.mark.parametrize(
    "case",
    ["off", "karpenter-1.15", "young nodes", "nominated nodes", "another's pool", "Never"],
)
def test_who_is_not_steered(case: str) -> None:
    """Steering needs the setting, and skips Karpenter's profile and young, nominated or unmanaged nodes."""
    settings = {"off": DOVETAIL, "karpenter-1.15": replace(KARPENTER_1_15, steering=SteeringMode.PREFER)}.get(
        case, PREFER
    )
    town = _town(settings)
    if case == "young nodes":
        for name in tuple(town.nodes):
            town.node(name, "m", age=timedelta(minutes=4))
    if case == "nominated nodes":
        town.nominated = ("thin", "half", "full")
    if case == "Never":
        town.pool(disruption={"consolidateAfter": "Never"})
    pools = ("other",) if case == "another's pool" else None
    plan = town.round(managed_pools=pools).steering
    assert (plan.closing, plan.victims) == ((), ())


def test_never_a_victim_where_somebody_else_gives_deletion_costs() -> None:
    """A ReplicaSet with a deletion cost that Dovetail did not write has no victim."""
    town = _town()
    town.pod("half-00", "half", cpu="400m", annotations={names.POD_DELETION_COST: "5"})
    assert town.round().steering.victims == ()
    town.pod("half-00", "half", cpu="400m", annotations={names.POD_DELETION_COST: "-100", names.STEERING_MARK: "-100"})
    assert len(town.round().steering.victims) == 1


def test_no_fight_with_karpenters_own_deletion_costs() -> None:
    """With Karpenter's gate PodDeletionCostManagement, nodes are closing but no pod is marked."""
    gates = KarpenterSettings(feature_gates=((FeatureGate.POD_DELETION_COST, True),))
    plan = _town(replace(PREFER, karpenter=gates)).round().steering
    assert plan.closing == ("thin",)
    assert plan.victims == ()


def test_what_stands_stays_unless_something_is_clearly_better() -> None:
    """A closing node or marked pod is not replaced by one that is only a little better."""
    town = _town()
    town.pod("half-03", "half", cpu="400m")
    town.pod("thin-01", "thin", cpu="400m")
    town.pod("thin-02", "thin", cpu="400m")
    assert town.round().steering.closing[:1] == ("thin",)
    _close(town, "half")
    assert town.round().steering.closing[0] == "half"


def test_our_own_simulation_ignores_the_soft_taint() -> None:
    """Dovetail may move pods to a closing node; Karpenter's simulation respects the taint."""
    for settings, lands in ((PREFER, True), (KARPENTER_1_15, False)):
        town = Town(kind("m", "0.10", cpu=4), settings=settings)
        town.pool(disruption={"consolidationSavingsThreshold": 0}, limits={"nodes": "0"})
        for name in ("one", "two"):
            town.node(name, "m", conditions=[{"type": "Consolidatable", "status": "True"}])
        town.pod("a", "one")
        town.fill("two", 2)
        _close(town, "two")
        assert (
            bool([c for m in town.round(every_method=True).methods[3:] for c in m.commands if "one" in c.nodes])
            == lands
        )


@pytest.mark.parametrize(
    ("notes", "cost"),
    [
        ({names.POD_DELETION_COST: "-100", names.STEERING_MARK: "-100"}, 0),
        ({names.POD_DELETION_COST: "7", names.STEERING_MARK: "-100"}, 7),
        ({names.POD_DELETION_COST: "7"}, 7),
        ({names.DISRUPTION_COST: "9", names.POD_DELETION_COST: "-100", names.STEERING_MARK: "-100"}, 9),
    ],
    ids=["ours", "changed by somebody since", "theirs", "Karpenter's own wins"],
)
def test_own_deletion_costs_are_no_disruption_costs(notes: dict[str, str], cost: int) -> None:
    """Deletion costs that Dovetail wrote do not count as disruption costs."""
    assert deletion_cost(notes)[0] == cost
