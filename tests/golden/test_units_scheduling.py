"""Karpenter's answers to small questions about single pods, resources, pools and prices."""

from datetime import datetime
from typing import Any

import msgspec
import pytest

from dovetail.api.catalogue import decode_catalogue
from dovetail.model.labels.requirements import Requirements, pod_requirements
from dovetail.model.objects import NodePool, Pod, SelectorRequirement, Taint
from dovetail.model.quantity import resource_amount
from dovetail.scheduling.launch.machines import Machines, Resources
from dovetail.scheduling.launch.templates import order_by_weight
from dovetail.scheduling.pods import evictions
from dovetail.scheduling.pods import pod as pods
from dovetail.scheduling.pods.requests import pod_requests
from dovetail.scheduling.result import LaunchPrice, launchable, worst_of
from tests.support.golden_units import units


def _pod(tree: Any) -> Pod:
    return msgspec.convert(tree, Pod)


def _amounts(tree: dict[str, Any]) -> dict[str, int]:
    return {name: resource_amount(name, text) for name, text in tree.items()}


@pytest.mark.parametrize(("question", "answer"), units("podFilters"))
def test_pod_filters(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Each filter of a pod answers as Karpenter's own."""
    pod = _pod(question["pod"])
    now = datetime.fromisoformat(question["now"])
    protected = evictions.holds(evictions.protected_until(pod), now)
    given = {
        "active": pods.is_active(pod),
        "terminal": pods.is_terminal(pod),
        "terminating": pods.is_terminating(pod),
        "reschedulable": pods.is_reschedulable(pod),
        "provisionable": pods.is_provisionable(pod),
        "toleratesDisrupted": pods.tolerates_disruption(pod),
        "doNotDisruptActive": protected,
        "disruptable": not pods.is_active(pod) or not protected,
    }
    assert given == {name: answer[name] for name in given}


@pytest.mark.parametrize(("question", "answer"), units("podRequests"))
def test_pod_requests(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Requests count containers, sidecars, init containers, pod-level resources and overhead as Karpenter does."""
    assert pod_requests(_pod(question["pod"])) == _amounts(answer["requests"])


@pytest.mark.parametrize(("question", "answer"), units("tolerates"))
def test_tolerations(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """A pod tolerates a list of taints exactly where Karpenter says so."""
    taints = msgspec.convert(question["taints"], tuple[Taint, ...])
    assert pods.tolerates(_pod(question["pod"]).spec.tolerations, taints) is answer["tolerates"]


@pytest.mark.parametrize(("question", "answer"), units("hostPorts"))
def test_host_ports(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Two pods clash over host ports exactly where Karpenter says so."""
    pod = _pod(question["pod"])
    wanted = pods.host_ports(pod.spec)
    others = [other for other in map(_pod, question["pods"]) if other.metadata.name != pod.metadata.name]
    used = [port for other in others for port in pods.host_ports(other.spec)]
    assert pods.ports_clash(wanted, used) is answer["conflict"]


@pytest.mark.parametrize(("question", "answer"), units("fits"))
def test_fits(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Nothing fits if any free resource is negative, requested or not."""
    assert pods.fits(_amounts(question["candidate"]), _amounts(question["total"])) is answer["fits"]


@pytest.mark.parametrize(("question", "answer"), units("limits"))
def test_limits(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """What a pool has left is its limits less what is used; a resource without a limit has none."""
    limits, used = _amounts(question["total"]), _amounts(question["candidate"])
    left = {name: amount - used.get(name, 0) for name, amount in limits.items()}
    assert any(amount < 0 for amount in left.values()) is answer["exceeded"]


@pytest.mark.parametrize(("question", "answer"), units("orderByWeight"))
def test_pools_by_weight(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Pools go by weight, then by name, both descending."""
    pools = msgspec.convert(question["nodePools"], list[NodePool], strict=False)
    assert [pool.metadata.name for pool in order_by_weight(pools)] == answer["order"]


@pytest.mark.parametrize(("question", "answer"), units("podRequirements"))
def test_pod_requirements(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """The first required term and the heaviest preferred one count."""
    spec = _pod(question["pod"]).spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    for key, preferences in (("all", True), ("strict", False)):
        wanted = Requirements.from_spec(msgspec.convert(answer[key], list[SelectorRequirement]))
        assert pod_requirements(spec.node_selector, affinity, preferences=preferences) == wanted


@pytest.mark.parametrize(("question", "answer"), units("worstLaunchPrice"))
def test_worst_launch_price(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """The most expensive compatible zone of the capacity type that would launch, and what a type has left for pods."""
    catalogue = decode_catalogue(msgspec.json.encode({"instanceTypes": [question["instanceType"]]}))
    machines = Machines(catalogue, Resources())
    wanted = msgspec.convert(question["a"], list[SelectorRequirement])
    reqs = machines.intern(Requirements.from_spec(wanted))
    kind = catalogue.instance_types[0]
    worst = worst_of([o for o in kind.offerings if launchable(o) and reqs.goes_with(o)])
    assert (worst is None) is answer["none"]
    if isinstance(worst, LaunchPrice):
        assert worst.as_float == answer["price"]
    assert kind.allocatable() == _amounts(answer["allocatable"])
    assert reqs.prices(kind)[0] == worst
