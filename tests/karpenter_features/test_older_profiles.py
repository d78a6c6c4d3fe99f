"""The profiles of older Karpenters: each rule changes between two neighbouring versions, and nowhere else."""

from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from dovetail.api.karpenter import read_karpenter
from dovetail.decide.facts import cost
from dovetail.decide.facts.drainability import protection
from dovetail.model.karpenter import FeatureGate, features_of
from dovetail.model.objects import KINDS, Pod
from dovetail.model.rules import NEWEST, OLDEST, Rules, karpenter_rules
from dovetail.model.settings import KARPENTER_1_15, PROFILES, CandidateOrder, Profile, Settings
from dovetail.scheduling.simulate import place
from tests.karpenter_features.world import CONSOLIDATABLE, buffer, thing
from tests.support.design_world import Town
from tests.support.design_world import kind as priced
from tests.support.scheduling_build import NOW, homes, kind, node, node_affinity, pod, pool, snapshot, wants

VERSIONS = tuple(range(OLDEST, NEWEST + 1))


def of(minor: int) -> Settings:
    """Return the profile of Karpenter v1.`minor`."""
    return PROFILES[Profile(f"karpenter-1.{minor}")]


def test_every_version_has_a_profile_and_the_newest_is_unchanged() -> None:
    """There is a profile for v1.9 to v1.15, and that of v1.15 is the one that golden cases agree with."""
    assert [of(minor).profile.value for minor in VERSIONS] == [f"karpenter-1.{minor}" for minor in VERSIONS]
    assert of(15) is KARPENTER_1_15
    assert karpenter_rules(15) == KARPENTER_1_15.rules
    assert replace(of(14), profile=of(15).profile, rules=of(15).rules, karpenter=of(15).karpenter) == of(15)


def _first(name: str, value: object) -> int:
    """Return the oldest version from which on a rule has its value of v1.15."""
    return min(minor for minor in VERSIONS if all(getattr(of(n).rules, name) == value for n in VERSIONS if n >= minor))


CAME: dict[str, int] = {
    "cost_annotation": 15,
    "fractional_costs": 15,
    "empty_by_pod_cost": 14,
    "all_pods_order": 14,
    "balanced_policy": 14,
    "resizes_count": 14,
    "daemons_by_type": 14,
    "unpriced_node_frees_batch": 14,
    "readiness_taints_pass": 13,
    "protection_durations": 12,
    "volume_alternatives": 12,
    "node_limits": 11,
    "leaving_volumes_bar": 10,
}


def test_in_which_version_each_rule_came() -> None:
    """A rule that is not listed here has the same value in all versions."""
    newest = of(15).rules
    found = {entry.name: _first(entry.name, getattr(newest, entry.name)) for entry in fields(Rules)}
    assert {name: minor for name, minor in found.items() if minor > OLDEST} == CAME


@pytest.mark.parametrize("minor", VERSIONS)
def test_order_and_destinations(minor: int) -> None:
    """From v1.14 on the order is by savings ratio, and nodes within consolidateAfter are closed."""
    settings = of(minor)
    assert settings.candidate_order is (CandidateOrder.SAVINGS_RATIO if minor >= 14 else CandidateOrder.DISRUPTION_COST)
    assert settings.consolidate_after_hides_destinations is (minor >= 14)


@pytest.mark.parametrize(
    ("minor", "annotations", "extra"),
    [
        (15, {"karpenter.sh/disruption-cost": "7"}, 7),
        (14, {"karpenter.sh/disruption-cost": "7"}, 0),
        (14, {"karpenter.sh/disruption-cost": "7", "controller.kubernetes.io/pod-deletion-cost": "5"}, 5),
        (15, {"controller.kubernetes.io/pod-deletion-cost": "1e3"}, 0),
        (14, {"controller.kubernetes.io/pod-deletion-cost": "1e3"}, 1000),
        (14, {"controller.kubernetes.io/pod-deletion-cost": "-4.0"}, -4),
        (14, {"controller.kubernetes.io/pod-deletion-cost": " 5"}, 0),
        (14, {"controller.kubernetes.io/pod-deletion-cost": "x"}, 0),
        (14, {"controller.kubernetes.io/pod-deletion-cost": "inf"}, 9 * cost.UNIT),
        (9, {"controller.kubernetes.io/pod-deletion-cost": "9"}, 9),
    ],
)
def test_what_a_pod_says_it_costs(minor: int, annotations: dict[str, str], extra: int) -> None:
    """Up to v1.14 only the pod deletion cost is read, and any number counts."""
    reading = cost.cost_reading(of(minor).rules, ranked=False)
    assert cost.eviction_cost(pod("a", annotations=annotations), reading) == cost.UNIT + extra


@pytest.mark.parametrize(("minor", "held"), [(15, True), (12, True), (11, False), (9, False)])
def test_do_not_disrupt_as_a_duration(minor: int, held: bool) -> None:
    """Up to v1.11 only the word true protects a pod."""
    durations = of(minor).rules.protection_durations
    guarded = pod("a", on="n", annotations={"karpenter.sh/do-not-disrupt": "8h"})
    assert (protection(guarded, NOW, durations=durations) is not None) is held
    always = pod("a", on="n", annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert protection(always, NOW, durations=durations) is not None


def _resized() -> Any:
    status = [{"name": "c", "resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "6"}}]
    tree = msgspec.to_builtins(pod("big", "1", on="n"))
    tree["status"]["containerStatuses"] = status
    return msgspec.convert({"kind": "Pod", **tree}, Pod)


@pytest.mark.parametrize(("minor", "home"), [(15, "new p #1"), (14, "new p #1"), (13, "n"), (9, "n")])
def test_a_resize_in_place(minor: int, home: str) -> None:
    """Up to v1.13 a pod takes what its spec says, although it was resized."""
    seen = snapshot(pool(), node("n", 8), _resized(), pod("a", "4"), settings=of(minor))
    assert homes(place(seen)) == {"a": home}


@pytest.mark.parametrize(("minor", "home"), [(15, "new p #1"), (12, "new p #1"), (11, None)])
def test_terms_of_a_volume(minor: int, home: str | None) -> None:
    """Up to v1.11 only the first term of a volume's node affinity counts."""
    term = [{"matchExpressions": [wants("topology.kubernetes.io/zone", "In", zone)]} for zone in "xa"]
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "v"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": term}}},
    }
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "c",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "v"},
    }
    objects = [msgspec.convert(tree, KINDS[tree["kind"]]) for tree in (volume, claim)]
    waiting = pod("a", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}])
    seen = snapshot(pool(), waiting, *objects, settings=of(minor))
    assert homes(place(seen)).get("a") == home


@pytest.mark.parametrize(("minor", "home"), [(15, None), (11, None), (10, "new p #1"), (9, "new p #1")])
def test_the_limit_of_nodes(minor: int, home: str | None) -> None:
    """Up to v1.10 a pool's limit of nodes holds no dynamic pool."""
    seen = snapshot(pool(limits={"nodes": "1"}), node("n", 1), pod("a", "4"), settings=of(minor))
    assert homes(place(seen)).get("a") == home


@pytest.mark.parametrize(("minor", "types"), [(15, ["small", "large"]), (14, ["small", "large"]), (13, ["large"])])
def test_daemons_that_run_on_some_types(minor: int, types: list[str]) -> None:
    """Up to v1.13 a daemon that some types of a pool would run counts on all of them."""
    only_large = node_affinity([wants("node.kubernetes.io/instance-type", "In", "large")])
    container = {"name": "c", "resources": {"requests": {"cpu": "3"}}}
    spec = {"template": {"spec": {"affinity": only_large, "containers": [container]}}}
    daemon = thing("DaemonSet", "d", spec=spec)
    kinds = (kind("small", 4, "0.1"), kind("large", 8, "0.2"))
    (new,) = place(snapshot(pool(), daemon, pod("a", "2"), kinds=kinds, settings=of(minor))).new
    assert [entry.name for entry in new.instance_types] == types


def _town(minor: int) -> Town:
    town = Town(priced("m", "1"), priced("s", "0.1", cpu=1), settings=of(minor))
    town.pool(disruption={"consolidationPolicy": "Balanced"})
    return town


@pytest.mark.parametrize(("minor", "verdict"), [(15, False), (14, False), (13, True), (9, True)])
def test_the_policy_balanced(minor: int, verdict: bool) -> None:
    """Up to v1.13 nothing but empty nodes is consolidated in a pool with the policy Balanced."""
    town = _town(minor)
    town.node("n", "m", conditions=[CONSOLIDATABLE])
    town.pod("p", "n")
    assert (town.verdicts()["n"] == "pool-policy") is verdict


@pytest.mark.parametrize(("minor", "gates"), [(15, 4), (14, 1), (13, 0)])
def test_gates_that_came_later_are_ignored(minor: int, gates: int) -> None:
    """A version of Karpenter that doesn't know a gate ignores it, whatever settings and objects say."""
    named = "CapacityBuffer=true,TerminateFirstDrift=true,TerminateFirstRepair=true,PodDeletionCostManagement=true"
    stated = replace(read_karpenter({"featureGates": named}, "karpenter"), minor=minor)
    on = features_of(stated, snapshot(*buffer("b")).cluster).on - {FeatureGate.RESERVED_CAPACITY}
    assert len(on) == gates


def test_default_spread_came_with_the_newest() -> None:
    """A scheduler configuration counts only for v1.15."""
    constraint = {"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    config = {"podTopologySpread": {"defaultConstraints": [constraint]}}
    stated = read_karpenter({"schedulerConfig": config, "version": "v1.14.3"}, "karpenter")
    assert stated.minor == 14
    assert stated.spread == ()
    assert len(replace(stated, minor=15).spread) == 1
