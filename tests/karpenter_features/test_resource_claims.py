"""Pods with resource claims (dynamic resource allocation) keep their node, as with Karpenter's defaults."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.model.karpenter import KarpenterSettings
from dovetail.model.objects import DaemonSet
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from tests.support.design_world import Town, kind, moved

BOTH = pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter"])
CONSOLIDATABLE = {"type": "Consolidatable", "status": "True"}
FREE = {"consolidationSavingsThreshold": 0}

SHAPES: dict[str, dict[str, Any]] = {
    "a claim of the pod": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    "a container that uses one": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}, "claims": [{"name": "gpu"}]}}]
    },
    "an init container that uses one": {"initContainers": [{"name": "i", "resources": {"claims": [{"name": "gpu"}]}}]},
}


def _town(settings: Settings) -> Town:
    town = Town(kind("m", "1"), settings=settings)
    town.pool(disruption=FREE)
    town.node("big", "m", conditions=[CONSOLIDATABLE])
    town.node("held", "m", conditions=[CONSOLIDATABLE])
    town.pod("plain", "big")
    return town


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
def test_a_node_with_such_a_pod_is_not_consolidated(settings: Settings, shape: str) -> None:
    """The verdict names the gate and the pod; the other node can still be deleted."""
    town = _town(settings)
    town.pod("dra", "held", spec=SHAPES[shape])
    entry = {verdict.node: verdict for verdict in town.round(every_method=True).verdicts}["held"]
    assert (entry.verdict, entry.gates[-1].figures["pod"]) == ("dynamic-resources", "default/dra")
    assert "default/dra" in entry.why
    assert moved(town.act()) == ("deleteCost", ("big",))


@BOTH
def test_a_plain_pod_moves(settings: Settings) -> None:
    """Without claims both nodes can be deleted."""
    town = _town(settings)
    town.pod("dra", "held")
    assert town.verdicts()["held"] == "eligible"


@BOTH
def test_it_does_not_drift(settings: Settings) -> None:
    """Drift also needs a place for every pod."""
    town = _town(settings)
    town.node("held", "m", drifted=timedelta(hours=1))
    town.pod("dra", "held", spec=SHAPES["a claim of the pod"])
    result = town.round(every_method=True)
    assert {verdict.node: verdict.verdict for verdict in result.verdicts}["held"] == "dynamic-resources"
    assert all("held" not in command.nodes for command in result.commands)


@BOTH
def test_a_pending_one_stops_nothing(settings: Settings) -> None:
    """A pending pod with claims opens no node and blocks no command."""
    town = _town(settings)
    town.pod("dra", spec=SHAPES["a claim of the pod"])
    town.pod("other", "held")
    command = town.act()
    assert command is not None
    assert command.action.value == "deleteCost"
    assert not command.replacements


def test_a_batch_goes_on_without_it() -> None:
    """In the profile dovetail, a node with claims does not block the batch of the other nodes."""
    town = Town(kind("m", "1"))
    town.pool(disruption=FREE)
    for name in ("a", "b", "c", "d"):
        town.node(name, "m")
        town.pod(f"on-{name}", name)
    town.pod("dra", "a", spec=SHAPES["a claim of the pod"])
    assert moved(town.act()) == ("deleteCost", ("b", "c", "d"))


@BOTH
def test_the_setting_changes_the_words(settings: Settings) -> None:
    """If Karpenter allocates devices itself, Dovetail does not simulate it and reports that."""
    town = _town(replace(settings, karpenter=KarpenterSettings(ignore_dra_requests=False)))
    town.pod("dra", "held", spec=SHAPES["a claim of the pod"])
    entry = {verdict.node: verdict for verdict in town.round(every_method=True).verdicts}["held"]
    assert entry.verdict == "dynamic-resources"
    assert "Dovetail does not simulate" in entry.why


def test_a_pod_that_a_drain_would_not_move_does_not_count() -> None:
    """A grace period of the claim overrides do-not-disrupt for drift, and the pod is not simulated."""
    town = _town(DOVETAIL)
    town.node("held", "m", drifted=timedelta(hours=1))
    claim = town.claims["held"]
    town.claims["held"] = msgspec.structs.replace(
        claim, spec=msgspec.structs.replace(claim.spec, termination_grace_period="1h")
    )
    annotations = {"karpenter.sh/do-not-disrupt": "true"}
    town.pod("dra", "held", spec=SHAPES["a claim of the pod"], annotations=annotations)
    assert moved(town.act()) == ("deleteDrifted", ("held",))


@pytest.mark.parametrize(("ignoring", "types"), [(True, ["small", "large"]), (False, ["large"])])
def test_daemon_sets_with_claims(ignoring: bool, types: list[str]) -> None:
    """DaemonSets with claims are no overhead of new nodes while Karpenter ignores claims."""
    settings = replace(DOVETAIL, karpenter=KarpenterSettings(ignore_dra_requests=ignoring))
    town = Town(kind("small", "1", cpu=2), kind("large", "2", cpu=8), settings=settings)
    town.pool()
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}]}
    town.others.append(
        msgspec.convert(
            {"metadata": {"name": "d", "namespace": "default", "uid": "d"}, "spec": {"template": {"spec": spec}}},
            DaemonSet,
        )
    )
    town.pod("waits", cpu="1500m")
    from dovetail.scheduling.simulate import place

    assert [entry.name for entry in place(town.snapshot()).new[0].instance_types] == types
