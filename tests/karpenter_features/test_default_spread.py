"""Default topology spread from Karpenter's scheduler configuration, with selectors from Services and owners."""

from typing import Any

import msgspec
import pytest

from dovetail.model.objects import AnyObject, Pod
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.scheduling.pods.default_spread import DefaultSpread
from tests.karpenter_features.world import BOTH, thing, told
from tests.support.scheduling_build import homes, kind, node, pod, pool, snapshot, spread, without

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
PROFILES = pytest.mark.parametrize("settings", BOTH, ids=["dovetail", "karpenter"])


def _config(*constraints: dict[str, Any]) -> dict[str, Any]:
    return {"podTopologySpread": {"defaultConstraints": list(constraints)}}


def _hard(key: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **more}


def _soft(key: str = ZONE) -> dict[str, Any]:
    return _hard(key, whenUnsatisfiable="ScheduleAnyway")


def _owned(name: str, kind_name: str = "ReplicaSet", version: str = "apps/v1", **more: Any) -> Pod:
    made = pod(name, **more)
    tree = msgspec.to_builtins(made)
    tree["metadata"]["ownerReferences"] = [
        {"apiVersion": version, "kind": kind_name, "name": "owner", "uid": "owner", "controller": True}
    ]
    return msgspec.convert(tree, Pod)


def _service(name: str, selector: dict[str, str] | None, namespace: str = "default") -> AnyObject:
    return thing("Service", name, namespace=namespace, spec={} if selector is None else {"selector": selector})


def _set(kind_name: str = "ReplicaSet", **selector: Any) -> AnyObject:
    return thing(kind_name, "owner", spec={"selector": selector})


LABELS = {"app": "a", "tier": "web"}
SELECTORS: dict[str, tuple[list[AnyObject], Pod, dict[str, Any] | None]] = {
    "a Service": ([_service("s", {"app": "a"})], pod("p", labels=LABELS), {"matchLabels": {"app": "a"}}),
    "a Service that selects others": ([_service("s", {"app": "b"})], pod("p", labels=LABELS), None),
    "a Service without a selector": ([_service("s", None)], pod("p", labels=LABELS), None),
    "a Service of another namespace": ([_service("s", {"app": "a"}, "other")], pod("p", labels=LABELS), None),
    "two Services together": (
        [_service("s", {"app": "a"}), _service("t", {"tier": "web"})],
        pod("p", labels=LABELS),
        {"matchLabels": {"app": "a", "tier": "web"}},
    ),
    "a ReplicaSet": (
        [_set(matchLabels={"app": "a"})],
        _owned("p", labels=LABELS),
        {"matchLabels": {"app": "a"}},
    ),
    "a StatefulSet": (
        [_set("StatefulSet", matchLabels={"app": "a"})],
        _owned("p", "StatefulSet", labels=LABELS),
        {"matchLabels": {"app": "a"}},
    ),
    "a ReplicaSet's expressions": (
        [_set(matchExpressions=[{"key": "app", "operator": "Exists"}])],
        _owned("p", labels=LABELS),
        {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    ),
    "Service and ReplicaSet both": (
        [_service("s", {"tier": "web"}), _set(matchLabels={"app": "a"})],
        _owned("p", labels=LABELS),
        {"matchLabels": {"app": "a", "tier": "web"}},
    ),
    "a ReplicaSet that is not there": ([], _owned("p", labels=LABELS), None),
    "a Job adds nothing": ([_set(matchLabels={"app": "a"})], _owned("p", "Job", "batch/v1", labels=LABELS), None),
    "a bare pod": ([_set(matchLabels={"app": "a"})], pod("p", labels=LABELS), None),
    "a DaemonSet's pod": (
        [_service("s", {"app": "a"})],
        _owned("p", "DaemonSet", labels=LABELS),
        None,
    ),
}


@pytest.mark.parametrize("case", SELECTORS)
def test_the_selector(case: str) -> None:
    """The selector is kube-scheduler's default selector; without one the pod gets no default constraints."""
    objects, given, wanted = SELECTORS[case]
    seen = snapshot(*objects, given, settings=told(schedulerConfig=_config(_hard())))
    spec = seen.surroundings.spread.counted_spec(given)
    found = [msgspec.json.decode(msgspec.json.encode(c.label_selector)) for c in spec.topology_spread_constraints]
    assert found == ([] if wanted is None else [wanted])


def test_all_or_none() -> None:
    """A pod with its own constraint keeps only that one."""
    own = pod("p", labels=LABELS, topologySpreadConstraints=[spread(HOST)])
    spread_of = DefaultSpread(
        told(schedulerConfig=_config(_hard(), _soft(HOST))).karpenter.spread, snapshot(own).cluster
    )
    assert [entry.topology_key for entry in spread_of.counted_spec(own).topology_spread_constraints] == [HOST]


def test_other_fields_are_passed_on() -> None:
    """The fields minDomains and both policies are copied with the constraint."""
    config = _config(_hard(minDomains=3, nodeAffinityPolicy="Ignore", nodeTaintsPolicy="Honor"))
    (entry,) = told(schedulerConfig=config).karpenter.spread
    assert (entry.min_domains, entry.node_affinity_policy, entry.node_taints_policy) == (3, "Ignore", "Honor")


def _two_zones(settings: Settings, *extra: AnyObject) -> dict[str, str]:
    """Return where the pod of a leaving node goes: its own zone has room and all its siblings."""
    objects: list[AnyObject] = [pool(), _service("s", {"app": "a"}), *extra]
    objects += [*node("a1"), *node("a2", zone="a"), *node("b1", 0.5, zone="b")]
    objects += [pod("a-0", on="a1"), pod("a-1", on="a2")]
    seen = snapshot(*objects, kinds=(kind("c.8", 8, "0.4"),), settings=settings)
    return homes(without(seen, "a1"))


@PROFILES
def test_a_hard_default_binds(settings: Settings) -> None:
    """Without the configuration the pod stays in its zone; with it, it needs the other zone."""
    assert _two_zones(settings) == {"a-0": "a2"}
    assert _two_zones(told(settings, schedulerConfig=_config(_hard()))) == {"a-0": "new p #1"}


@PROFILES
def test_a_soft_default_is_required_first(settings: Settings) -> None:
    """ScheduleAnyway opens a node before it is relaxed, as a pod's own soft spread does."""
    assert _two_zones(told(settings, schedulerConfig=_config(_soft()))) == {"a-0": "new p #1"}


@PROFILES
def test_preferences_can_be_ignored(settings: Settings) -> None:
    """The setting preferencePolicy Ignore drops soft defaults."""
    from dataclasses import replace

    from dovetail.model.settings import PreferencePolicy

    told_so = told(settings, schedulerConfig=_config(_soft()))
    assert _two_zones(replace(told_so, preference_policy=PreferencePolicy.IGNORE)) == {"a-0": "a2"}


def test_no_built_in_defaults() -> None:
    """kube-scheduler's own soft spread over hosts and zones is not modelled unless it is configured."""
    assert DOVETAIL.karpenter.spread == KARPENTER_1_15.karpenter.spread == ()


def test_a_service_that_comes_is_seen() -> None:
    """The next snapshot reads pods again if a Service changes their selectors."""
    settings = told(schedulerConfig=_config(_hard()))
    objects: list[AnyObject] = [pool(), *node("a1"), *node("a2"), *node("b1", 0.5, zone="b")]
    objects += [pod("a-0", on="a1"), pod("a-1", on="a2")]
    first = snapshot(*objects, settings=settings)
    assert homes(without(first, "a1")) == {"a-0": "a2"}
    then = snapshot(*objects, _service("s", {"app": "a"}), settings=settings, previous=first)
    assert homes(without(then, "a1")) == {"a-0": "new p #1"}


def test_virtual_pods_have_them_too() -> None:
    """Virtual pods of a buffer are spread like the pods they represent."""
    from tests.karpenter_features.world import buffer

    settings = told(schedulerConfig=_config(_hard(HOST)))
    objects: list[AnyObject] = [pool(), *node("a1"), *node("a2"), _service("s", {"app": "buffered"})]
    seen = snapshot(*objects, *buffer("b", replicas=2), settings=settings)
    assert homes(without(seen)) == {"capacity-buffer-b-1": "a1", "capacity-buffer-b-2": "a2"}
