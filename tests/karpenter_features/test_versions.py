"""Supported versions, and what the controller learns about Karpenter and Kubernetes at its start."""

import asyncio
from typing import Any

import msgspec
import pytest

from dovetail.api.findings import InputError
from dovetail.api.versions import version_note
from dovetail.live.kubernetes.client import ApiError
from dovetail.live.kubernetes.neighbour import Neighbour, server_note
from dovetail.live.kubernetes.resources import FEATURE_RESOURCES, as_asked
from dovetail.model.karpenter import FeatureGate
from tests.karpenter_features.world import told

CASES = {
    ("Kubernetes", "v1.31.0"): "",
    ("Kubernetes", "v1.36.3"): "",
    ("Kubernetes", "v1.33.4-eks-99bf2fd"): "",
    ("Kubernetes", "v1.34.1+k3s1"): "",
    ("Kubernetes", "v1.30.9"): "older",
    ("Kubernetes", "v1.37.0"): "newer",
    ("Kubernetes", "main"): "can't be read",
    ("Karpenter", "1.6.0"): "",
    ("Karpenter", "v1.15.2"): "",
    ("Karpenter", "1.5.3"): "older",
    ("Karpenter", "v0.37.1"): "older",
    ("Karpenter", "1.16.0"): "newer",
    ("Karpenter", "v2.0.0"): "newer",
    ("Karpenter", ""): "can't be read",
}


@pytest.mark.parametrize(("product", "version"), CASES)
def test_what_is_said_of_a_version(product: str, version: str) -> None:
    """Supported versions print nothing; other versions print the version and the supported ones."""
    wanted, note = CASES[product, version], version_note(product, version)
    assert wanted in note
    assert bool(wanted) is bool(note)


class _Server:
    """Returns the given answers."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def request(self, _: str, __: str) -> bytes:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return msgspec.json.encode(self.answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"gitVersion": "v1.36.3"}, ""),
        ({"gitVersion": "v1.28.0"}, "older"),
        ({}, ""),
        ([], ""),
        (ApiError(403, "GET /version", "no"), ""),
    ],
)
def test_the_server_at_the_start(answer: Any, words: str) -> None:
    """An unsupported server is a warning; an unknown version prints nothing."""
    note = asyncio.run(server_note(_Server(answer)))  # type: ignore[arg-type]
    assert words in note
    assert bool(words) is bool(note)


def _deployment(gates: str, version: str = "1.15.0") -> dict[str, Any]:
    container = {"name": "controller", "env": [{"name": "FEATURE_GATES", "value": gates}]}
    labels = {"app.kubernetes.io/version": version}
    return {"metadata": {"labels": labels}, "spec": {"template": {"spec": {"containers": [container]}}}}


def test_the_deployment_says_gates_and_version() -> None:
    """Values in the settings are not overwritten by the Deployment's."""
    found = Neighbour("kube-system/karpenter")
    asyncio.run(found.look(_Server(_deployment("NodeRepair=true,NodeOverlay=true", "1.4.0"))))  # type: ignore[arg-type]
    settings = found.merged(told(featureGates="NodeOverlay=false"))
    assert dict(settings.karpenter.feature_gates) == {FeatureGate.NODE_REPAIR: True, FeatureGate.NODE_OVERLAY: False}
    assert "older" in found.note


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ApiError(403, "GET", "no"), 'resources: ["deployments"]'),
        (ApiError(404, "GET", "no"), "there is no Deployment kube-system/karpenter"),
        ([], "can't be read"),
        (_deployment("NodeRepair=maybe"), "FEATURE_GATES"),
    ],
)
def test_one_sentence_where_it_can_not_be_read(answer: Any, words: str) -> None:
    """An unreadable Deployment prints one sentence with the rule to add or the name to set."""
    with pytest.raises(InputError) as caught:
        asyncio.run(Neighbour("kube-system/karpenter").look(_Server(answer)))  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.parametrize("where", ["karpenter", "/karpenter", "kube-system/", ""])
def test_a_name_that_is_none(where: str) -> None:
    """A name needs both parts: NAMESPACE/NAME."""
    with pytest.raises(InputError):
        Neighbour(where)


ASKED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "overlays": ({"featureGates": "NodeOverlay=true"}, {"NodeOverlay"}),
    "overlays off": ({"featureGates": "NodeOverlay=false"}, set()),
    "buffers": ({"featureGates": "CapacityBuffer=true"}, {"CapacityBuffer", "PodTemplate", "Deployment"}),
    "default spread": (
        {
            "schedulerConfig": {
                "podTopologySpread": {
                    "defaultConstraints": [{"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]
                }
            }
        },
        {"Service"},
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_kind_that_the_settings_ask_for_is_missed_aloud(case: str) -> None:
    """If the role can't read a kind that a gate needs, that is a warning; other kinds are not."""
    karpenter, loud = ASKED[case]
    found = as_asked(FEATURE_RESOURCES, told(**karpenter).karpenter)
    assert {resource.kind for resource in found if not resource.quiet} == loud
