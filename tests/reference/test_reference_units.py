"""The reference packer's own rules against Karpenter's answers to small questions."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dovetail.api.catalogue import decode_catalogue
from dovetail.model.objects import NodePool, Pod, PodDisruptionBudget, SelectorRequirement, Taint
from tests.reference import pods as rules
from tests.reference.claims import allocatable
from tests.reference.packer import usable_pools
from tests.reference.quantities import amounts, fits
from tests.reference.requirements import WELL_KNOWN, Requirements, from_expressions
from tests.support.golden_units import units

KWOK = frozenset(f"karpenter.kwok.sh/instance-{part}" for part in ("cpu", "family", "memory", "size"))


def _requirements(entries: list[dict[str, Any]] | None) -> Requirements:
    return from_expressions(msgspec.convert(entries or [], tuple[SelectorRequirement, ...]))


def _printed(requirements: Requirements) -> list[dict[str, Any]]:
    entries = sorted(entry for item in requirements for entry in item.printed())
    return [
        {"key": key, "operator": operator}
        | ({"values": list(values)} if values else {})
        | ({"minValues": least} if least is not None else {})
        for key, operator, values, least in entries
    ]


def _bare(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [{key: value for key, value in entry.items() if value not in (None, [])} for entry in entries]
    return sorted(kept, key=lambda entry: (entry["key"], entry["operator"]))


@pytest.mark.parametrize(("question", "answer"), units("requirementIntersection"))
def test_two_requirements_leave_what_both_allow(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Intersection and overlap of two requirements on a label are Karpenter's."""
    one, other = (next(iter(_requirements(question[side]))) for side in "ab")
    assert one.overlaps(other) == answer["hasIntersection"]
    assert _printed(Requirements([one.intersection(other)])) == _bare(answer["result"])
    assert one.intersection(other).operator == answer["operator"]


@pytest.mark.parametrize(("question", "answer"), units("requirementsCompatible"))
def test_requirements_are_compatible_as_in_karpenter(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Return whether one set of requirements can be met by another is Karpenter's answer."""
    ours, wanted = _requirements(question["a"]), _requirements(question["b"])
    lack = WELL_KNOWN | KWOK if question.get("allowUndefinedWellKnown") else frozenset()
    assert ours.intersects(wanted) == answer["intersects"]
    assert ours.compatible(wanted, may_lack=lack) == answer["compatible"]


@pytest.mark.parametrize(("question", "answer"), units("requirementHas"))
def test_requirement_allows_a_value(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Return whether a requirement allows a value is Karpenter's answer."""
    assert next(iter(_requirements(question["a"]))).has(question["value"]) == answer["has"]


@pytest.mark.parametrize(("question", "answer"), units("requirementsAdd"))
def test_adding_requirements_narrows(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Adding requirements leaves Karpenter's, old label names included."""
    ours = _requirements(question["a"])
    ours.add(_requirements(question["b"]))
    assert _printed(ours) == _bare(answer["requirements"])


@pytest.mark.parametrize(("question", "answer"), units("podRequirements"))
def test_requirements_of_a_pod(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """The first required term counts, and with preferences the heaviest of them."""
    pod = msgspec.convert(question["pod"], Pod)
    assert _printed(rules.strict_requirements(pod)) == _bare(answer["strict"])
    assert _printed(rules.all_requirements(pod)) == _bare(answer["all"])


@pytest.mark.parametrize(("question", "answer"), units("tolerates"))
def test_taints_are_tolerated(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Which taints a pod tolerates is Karpenter's answer."""
    pod = msgspec.convert(question["pod"], Pod)
    taints = msgspec.convert(question["taints"] or [], tuple[Taint, ...])
    assert rules.tolerates(pod.spec.tolerations, taints) == answer["tolerates"]


@pytest.mark.parametrize(("question", "answer"), units("hostPorts"))
def test_host_ports_conflict(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Which host ports can't share a node is Karpenter's answer."""
    use = rules.PortUse()
    for entry in question["pods"]:
        use.add(msgspec.convert(entry, Pod))
    assert use.conflicts(msgspec.convert(question["pod"], Pod)) == answer["conflict"]


@pytest.mark.parametrize(("question", "answer"), units("podFilters"))
def test_kinds_of_pods(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Which pods are active, reschedulable, pending or protected is Karpenter's answer."""
    pod = msgspec.convert(question["pod"], Pod)
    now = datetime.fromisoformat(question["now"])
    assert rules.is_active(pod) == answer["active"]
    assert rules.is_terminal(pod) == answer["terminal"]
    assert rules.is_terminating(pod) == answer["terminating"]
    assert rules.is_reschedulable(pod) == answer["reschedulable"]
    assert rules.is_provisionable(pod) == answer["provisionable"]
    assert rules.may_not_be_disrupted(pod, now) == answer["doNotDisruptActive"]


@pytest.mark.parametrize(("question", "answer"), units("podRequests"))
def test_requests_of_a_pod(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Init containers, sidecars, overhead and pod-level resources add up as in Kubernetes."""
    assert rules.requests_of(msgspec.convert(question["pod"], Pod)) == amounts(answer["requests"])


@pytest.mark.parametrize(("question", "answer"), units("fits"))
def test_resources_fit(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """What fits is Karpenter's answer: nothing does where something is overdrawn."""
    assert fits(amounts(question["candidate"]), amounts(question["total"])) == answer["fits"]


@pytest.mark.parametrize(("question", "answer"), units("pdb"))
def test_pods_that_pdbs_never_let_go(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Pods that can be moved at all, PDBs considered, are Karpenter's."""
    pdbs = msgspec.convert(question["pdbs"] or [], tuple[PodDisruptionBudget, ...])
    pods = msgspec.convert(question["pods"], tuple[Pod, ...])
    now = datetime.fromisoformat(question.get("now") or "2026-05-13T15:30:00Z").astimezone(UTC)
    movable = [
        rules.is_reschedulable(pod)
        and not (rules.is_active(pod) and rules.may_not_be_disrupted(pod, now))
        and not rules.is_fully_blocked(pod, pdbs, now)
        for pod in pods
    ]
    assert movable == answer["currentlyReschedulable"]


@pytest.mark.parametrize(("question", "answer"), units("worstLaunchPrice"))
def test_allocatable_of_a_type(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """What pods can have of a type: overhead and huge pages are taken off."""
    catalogue = decode_catalogue(msgspec.json.encode({"instanceTypes": [question["instanceType"]]}))
    assert allocatable(catalogue.instance_types[0]) == amounts(answer["allocatable"])


@pytest.mark.parametrize(("question", "answer"), units("orderByWeight"))
def test_order_of_pools(question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Heavier pools come first, of one weight the last name."""
    pools = msgspec.convert([entry | {"kind": "NodePool"} for entry in question["nodePools"]], tuple[NodePool, ...])
    assert [pool.metadata.name for pool in usable_pools(pools)] == answer["order"]
