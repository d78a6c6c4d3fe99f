"""Requirement algebra: Karpenter's answers, reproduced. Its sentences are its own; ours must name the same labels."""

from typing import Any

import msgspec
import pytest

from dovetail.model.labels.requirements import Requirement, Requirements, pod_requirements
from dovetail.model.labels.syntax import WELL_KNOWN
from dovetail.model.objects import Pod, SelectorRequirement
from tests.paths import ROOT, SHARED, needs_shared
from tests.support.golden_units import units


def read(entries: list[dict[str, Any]]) -> tuple[SelectorRequirement, ...]:
    """Decode written requirements."""
    return msgspec.convert(entries, tuple[SelectorRequirement, ...])


def one(entries: list[dict[str, Any]]) -> Requirement:
    """Compile requirements on one key into one."""
    (requirement,) = Requirements.from_spec(read(entries))
    return requirement


def written(requirements: Requirements) -> list[dict[str, Any]]:
    """Write requirements as the answers do: no empty lists, no absent minValues."""
    return [
        {"key": spec.key, "operator": spec.operator}
        | ({"values": list(spec.values)} if spec.values else {})
        | ({"minValues": spec.min_values} if spec.min_values is not None else {})
        for spec in requirements.to_spec()
    ]


@pytest.mark.parametrize(("question", "answer"), units("requirementIntersection"))
def test_intersections_are_karpenters(question: Any, answer: Any) -> None:
    """An intersection has Karpenter's values, count, operator and text."""
    first, second = one(question["a"]), one(question["b"])
    both = first.intersection(second)
    assert written(Requirements([both])) == answer["result"]
    assert (both.operator(), both.size(), str(both)) == (answer["operator"], answer["len"], answer["string"])
    assert first.has_intersection(second) is second.has_intersection(first) is answer["hasIntersection"]


@pytest.mark.parametrize(("question", "answer"), units("requirementsCompatible"))
def test_compatibility_is_karpenters(question: Any, answer: Any) -> None:
    """Compatible and intersecting, with and without well-known labels; a refusal names the label, and the same hint."""
    first, second = Requirements.from_spec(read(question["a"])), Requirements.from_spec(read(question["b"]))
    allowed = WELL_KNOWN if question["allowUndefinedWellKnown"] else frozenset[str]()
    why = first.compatible(second, allowed)
    assert (why is None) is first.is_compatible(second, allowed) is answer["compatible"]
    assert (first.intersects(second) is None) is first.is_intersecting(second) is answer["intersects"]
    if why is not None:
        assert any(entry.key in why for entry in read(question["b"]))
        hint = answer["error"].partition("typo of ")[2].removesuffix("?)")
        assert hint == why.partition("did you mean ")[2].removesuffix("?)")


@pytest.mark.parametrize(("question", "answer"), units("requirementHas"))
def test_single_values_are_admitted_as_by_karpenter(question: Any, answer: Any) -> None:
    """A requirement admits a single value exactly if Karpenter's does."""
    assert one(question["a"]).has(question["value"]) is answer["has"]


@pytest.mark.parametrize(("question", "answer"), units("requirementsAdd"))
def test_added_requirements_are_karpenters(question: Any, answer: Any) -> None:
    """Adding intersects, after old names of labels became new ones."""
    added = Requirements.from_spec(read(question["a"])).add(*Requirements.from_spec(read(question["b"])))
    assert written(added) == answer["requirements"]
    assert str(added) == answer["string"]


@pytest.mark.parametrize(("question", "answer"), units("podRequirements"))
def test_pod_requirements_are_karpenters(question: Any, answer: Any) -> None:
    """Selector, first required term and heaviest preference; strictly, without the preference."""
    spec = msgspec.convert(question["pod"], Pod).spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    assert written(pod_requirements(spec.node_selector, affinity)) == answer["all"]
    assert written(pod_requirements(spec.node_selector, affinity, preferences=False)) == answer["strict"]


@needs_shared
def test_our_copy_of_the_answers_is_the_shared_one() -> None:
    """The copy that the tests read is byte for byte the shared file."""
    ours = ROOT / "tests/golden/data/units.json.gz"
    assert ours.read_bytes() == (SHARED / "golden/units.json.gz").read_bytes()
