"""CapacityBuffers as virtual pods: how many there are, where they land, and what they block."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.scheduling.buffers import virtual_pods
from dovetail.scheduling.simulate import place
from tests.karpenter_features.world import BOTH, CONSOLIDATABLE, FREE, buffer, template, thing, told
from tests.support.design_world import Town, kind, moved
from tests.support.scheduling_build import homes

PROFILES = pytest.mark.parametrize("settings", BOTH, ids=["dovetail", "karpenter"])


def _town(settings: Settings = DOVETAIL, **kinds: str) -> Town:
    prices = kinds or {"m": "1"}
    town = Town(*(kind(name, price, cpu=4) for name, price in prices.items()), settings=settings)
    town.pool(disruption=FREE)
    return town


def _scaled(group: str | None = "apps", kind_name: str = "Deployment", **spec: Any) -> dict[str, Any]:
    reference = {"kind": kind_name, "name": "d", **({} if group is None else {"apiGroup": group})}
    return {"podTemplateRef": None, "scalableRef": reference, **spec}


REPLICAS: dict[str, tuple[dict[str, Any], int]] = {
    "replicas": ({"replicas": 3}, 3),
    "nothing at all": ({}, 0),
    "limits alone": ({"limits": {"cpu": "7"}}, 7),
    "limits cap": ({"replicas": 5, "limits": {"cpu": "2500m"}}, 2),
    "limits of what nobody asks for": ({"replicas": 5, "limits": {"example.com/gpu": "1"}}, 5),
    "limits below one": ({"replicas": 5, "limits": {"cpu": "500m"}}, 0),
    "percentage rounds up": (_scaled(percentage=15), 2),
    "percentage is at least one": (_scaled(percentage=1), 1),
    "percentage of nothing": (_scaled(percentage=0), 0),
    "the larger of replicas and percentage": (_scaled(percentage=50, replicas=2), 5),
    "and the other way round": (_scaled(percentage=10, replicas=4), 4),
    "no api group is apps": (_scaled(None, replicas=2), 2),
    "another api group is refused": (_scaled("batch", replicas=2), 0),
    "another kind is refused": (_scaled(kind_name="DaemonSet", replicas=2), 0),
    "both references are refused": ({"replicas": 2, "scalableRef": {"kind": "Deployment", "name": "d"}}, 0),
    "any strategy is active": ({"replicas": 2, "provisioningStrategy": "example.com/other"}, 2),
}


@pytest.mark.parametrize("case", REPLICAS)
def test_how_many(case: str) -> None:
    """The number of replicas is what Karpenter's controller resolves; the workload is a Deployment of ten replicas."""
    spec, count = REPLICAS[case]
    made = {key: value for key, value in {"podTemplateRef": {"name": "b"}, **spec}.items() if value is not None}
    town = _town(told(featureGates="CapacityBuffer=true"))
    town.others += [
        thing("CapacityBuffer", "b", spec=made),
        thing("PodTemplate", "b", template=template("1")),
        thing("Deployment", "d", spec={"replicas": 10, "template": template("1")}),
    ]
    assert len(virtual_pods(town.cluster)) == count


def test_karpenters_own_answer_counts() -> None:
    """If Karpenter has resolved the buffer, its status has the number; a refused buffer has no pods."""
    town = _town()
    ready = {"conditions": [{"type": "ReadyForProvisioning", "status": "True"}], "replicas": 2}
    refused = {"conditions": [{"type": "ReadyForProvisioning", "status": "False", "reason": "PodTemplateNotFound"}]}
    for name, status in (("a", ready), ("b", {**refused, "replicas": 2})):
        spec = {"podTemplateRef": {"name": name}, "replicas": 9}
        town.others += [
            thing("CapacityBuffer", name, spec=spec, status=status),
            thing("PodTemplate", name, template=template()),
        ]
    assert [pod.metadata.name for pod in virtual_pods(town.cluster)] == ["capacity-buffer-a-1", "capacity-buffer-a-2"]


def test_what_a_virtual_pod_looks_like() -> None:
    """A virtual pod is named after its buffer and has the template's labels, without its node and volume claims."""
    town = _town()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "tmp"}]
    town.others += [
        thing("CapacityBuffer", "b", spec={"podTemplateRef": {"name": "b"}, "replicas": 1}, metadata={"uid": "u"}),
        thing("PodTemplate", "b", template=template("1", volumes=volumes, nodeName="x")),
    ]
    (pod,) = virtual_pods(town.cluster)
    assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid) == ("capacity-buffer-b-1", "default", "u-1")
    assert pod.metadata.labels == {"app": "buffered"}
    assert pod.metadata.annotations["karpenter.sh/capacity-buffer-fake-pod"] == "true"
    assert (pod.spec.node_name, [volume.name for volume in pod.spec.volumes]) == ("", ["tmp"])
    assert (pod.status.phase, pod.spec.priority) == ("", -(2**31))


GATES = {
    "named on": ("CapacityBuffer=true", False, True),
    "named off wins over the condition": ("CapacityBuffer=false", True, False),
    "seen by the condition": ("", True, True),
    "neither": ("", False, False),
}


@PROFILES
@pytest.mark.parametrize("case", GATES)
def test_the_gate(settings: Settings, case: str) -> None:
    """A node with only buffer capacity is not empty if the feature gate is on."""
    gates, ready, on = GATES[case]
    town = _town(told(settings, featureGates=gates))
    town.node("spare", "m", conditions=[CONSOLIDATABLE])
    town.others += buffer("b", replicas=2, ready=ready)
    entry = town.round(every_method=True).verdicts[0]
    assert entry.verdict == ("capacity-buffer" if on else "eligible")
    if on:
        assert entry.gates[-1].figures == {"virtualPods": 2}
        assert town.act() is None


@PROFILES
def test_an_empty_node_that_carries_none_goes(settings: Settings) -> None:
    """Virtual pods go to the first node with room; another empty node can be deleted."""
    town = _town(settings)
    for name in ("a", "b"):
        town.node(name, "m", conditions=[CONSOLIDATABLE])
    town.others += buffer("b", replicas=2)
    assert moved(town.act()) == ("deleteEmpty", ("b",))


@PROFILES
def test_drift_may_take_it(settings: Settings) -> None:
    """A buffer blocks consolidation, but not drift."""
    town = _town(settings)
    town.node("spare", "m", drifted=timedelta(hours=1), conditions=[CONSOLIDATABLE])
    town.others += buffer("b", replicas=2)
    command = town.act()
    assert command is not None
    assert command.nodes == ("spare",)


@PROFILES
def test_a_deletion_becomes_a_replacement(settings: Settings) -> None:
    """If a node's pods fit elsewhere but the buffer does not, a cheaper node for both is a replacement."""
    town = _town(settings, m="1", small="0.4")
    town.node("goes", "m", conditions=[CONSOLIDATABLE])
    town.pod("real", "goes", cpu="500m")
    town.node("full", "m", idle=timedelta(0))
    town.pod("filler", "full", cpu="3")
    town.others += buffer("b", replicas=1, cpu="2")
    command = town.act()
    assert command is not None
    assert command.action.value == "replaceCost"
    assert [entry.requests["cpu"] for entry in command.replacements] in ([2000], [2500])


def test_a_buffer_that_needs_a_node_anyway_stops_nothing() -> None:
    """In the profile dovetail, a buffer that no node carries now blocks nothing."""
    town = _town()
    town.node("goes", "m")
    town.pod("real", "goes", cpu="500m")
    town.node("stays", "m", idle=timedelta(0))
    town.pod("filler", "stays", cpu="3")
    town.others += buffer("b", replicas=1, cpu="3900m")
    assert moved(town.act()) == ("deleteCost", ("goes",))


@PROFILES
def test_one_that_fits_nowhere_is_forgiven(settings: Settings) -> None:
    """A buffer that fits no node and no instance type blocks nothing."""
    town = _town(settings)
    town.node("goes", "m", conditions=[CONSOLIDATABLE])
    town.pod("real", "goes", cpu="500m")
    town.node("stays", "m", idle=timedelta(0))
    town.pod("filler", "stays", cpu="1")
    town.others += buffer("b", replicas=1, cpu="64")
    assert moved(town.act()) == ("deleteCost", ("goes",))


@PROFILES
def test_they_cost_nothing(settings: Settings) -> None:
    """Virtual pods don't count in the disruption cost or a command's pods, and no node is nominated for them."""
    town = _town(settings)
    for name in ("a", "b"):
        town.node(name, "m", conditions=[CONSOLIDATABLE])
        town.pod(f"on-{name}", name, cpu="500m")
    town.others += buffer("b", replicas=1, cpu="1")
    command = town.act()
    assert command is not None
    assert (command.pods, command.disruption_cost) == (1, 1.0)
    assert [pod for entry in command.placements for pod in entry.pods] == ["default/on-a"]


def test_place_shows_them() -> None:
    """`place` shows where a provisioning run puts virtual pods."""
    town = _town()
    town.node("a", "m")
    town.others += buffer("b", replicas=5, cpu="1")
    found = homes(place(town.snapshot()))
    assert [found[f"capacity-buffer-b-{number}"] for number in range(1, 6)] == ["a"] * 4 + ["new default #1"]


def test_nodes_within_consolidate_after_refuse_them_for_karpenter() -> None:
    """Virtual pods are not Pending: nodes that refuse running pods refuse them too."""
    town = _town(KARPENTER_1_15, m="1")
    town.pool(disruption={**FREE, "consolidateAfter": "10m"})
    town.node("goes", "m", conditions=[CONSOLIDATABLE])
    town.pod("real", "goes", cpu="500m")
    town.node("young", "m", idle=timedelta(minutes=1))
    town.node("old", "m")
    town.pod("filler", "old", cpu="3")
    town.others += buffer("b", replicas=1, cpu="2")
    assert town.act() is None


def test_other_pods_keep_away_from_virtual_ones() -> None:
    """A real pod's anti-affinity matches the labels of the buffer's template."""
    town = _town()
    for name in ("a", "b"):
        town.node(name, "m")
    town.others += buffer("b", replicas=1, cpu="2")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "buffered"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    town.pod(
        "real",
        cpu="1",
        spec={"affinity": apart, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    )
    assert homes(place(town.snapshot())) == {"capacity-buffer-b-1": "a", "real": "b"}
