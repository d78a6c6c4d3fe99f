"""How Karpenter was started: from the settings, its Deployment or conditions; and how Dovetail reports it."""

from pathlib import Path
from typing import Any

import pytest

from dovetail.api.findings import InputError
from dovetail.api.karpenter import read_deployment, read_karpenter
from dovetail.api.settings import load_settings
from dovetail.model.cluster import Cluster
from dovetail.model.karpenter import FeatureGate, KarpenterSettings, assumptions, features_of
from tests.karpenter_features.world import told

ZONE = {"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def _spread(*constraints: Any) -> dict[str, Any]:
    return {"schedulerConfig": {"podTopologySpread": {"defaultConstraints": list(constraints)}}}


GOOD: dict[str, tuple[dict[str, Any], KarpenterSettings]] = {
    "nothing": ({}, KarpenterSettings()),
    "gates": (
        {"featureGates": "NodeOverlay=true,ReservedCapacity=false"},
        KarpenterSettings(feature_gates=((FeatureGate.NODE_OVERLAY, True), (FeatureGate.RESERVED_CAPACITY, False))),
    ),
    "spaces and an empty pair": (
        {"featureGates": " NodeOverlay = true ,, "},
        KarpenterSettings(feature_gates=((FeatureGate.NODE_OVERLAY, True),)),
    ),
    "the last value wins": (
        {"featureGates": "NodeOverlay=true,NodeOverlay=f"},
        KarpenterSettings(feature_gates=((FeatureGate.NODE_OVERLAY, False),)),
    ),
    "an unknown gate is passed over": ({"featureGates": "Warp=true"}, KarpenterSettings()),
    "claims": ({"ignoreDraRequests": False}, KarpenterSettings(ignore_dra_requests=False)),
    "an empty configuration": ({"schedulerConfig": {}}, KarpenterSettings(default_spread=())),
    "an empty text": ({"schedulerConfig": ""}, KarpenterSettings(default_spread=())),
    "no constraints": (_spread(), KarpenterSettings(default_spread=())),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_can_be_read(case: str) -> None:
    """Each form of the setting can be read."""
    tree, wanted = GOOD[case]
    assert read_karpenter(tree, "karpenter") == wanted


def test_the_configuration_as_text() -> None:
    """The configuration can be YAML or JSON, as in Karpenter's own variable."""
    text = (
        "podTopologySpread: {defaultConstraints: [{topologyKey: a/b, maxSkew: 2, whenUnsatisfiable: ScheduleAnyway}]}"
    )
    (entry,) = read_karpenter({"schedulerConfig": text}, "karpenter").spread
    assert (entry.topology_key, entry.max_skew, entry.when_unsatisfiable) == ("a/b", 2, "ScheduleAnyway")


BAD: dict[str, tuple[Any, str]] = {
    "no map": ("NodeOverlay=true", "write a map"),
    "an unknown key": ({"gates": ""}, "karpenter.gates"),
    "gates as a map": ({"featureGates": {"NodeOverlay": True}}, "featureGates"),
    "a gate without a value": ({"featureGates": "NodeOverlay"}, "GATE=true"),
    "a gate that is neither": ({"featureGates": "NodeOverlay=yes"}, "GATE=true"),
    "claims as text": ({"ignoreDraRequests": "no"}, "ignoreDraRequests"),
    "static drift": ({"staticDrift": "later"}, "TerminateFirst or Leave"),
    "a field of kube-scheduler": (
        {"schedulerConfig": {"podTopologySpread": {"defaultingType": "System"}}},
        "defaultingType",
    ),
    "an unknown field": ({"schedulerConfig": {"profiles": []}}, "profiles"),
    "a selector": (_spread({**ZONE, "labelSelector": {}}), "labelSelector"),
    "label keys": (_spread({**ZONE, "matchLabelKeys": ["a"]}), "matchLabelKeys"),
    "no skew": (_spread({**ZONE, "maxSkew": 0}), "maxSkew"),
    "skew as text": (_spread({**ZONE, "maxSkew": "1"}), "maxSkew"),
    "skew true": (_spread({**ZONE, "maxSkew": True}), "maxSkew"),
    "no key": (_spread({**ZONE, "topologyKey": ""}), "topologyKey"),
    "no label": (_spread({**ZONE, "topologyKey": "a b"}), "topologyKey"),
    "another word": (_spread({**ZONE, "whenUnsatisfiable": "Maybe"}), "whenUnsatisfiable"),
    "no word": (_spread({"topologyKey": "a", "maxSkew": 1}), "whenUnsatisfiable"),
    "min domains": (_spread({**ZONE, "minDomains": 0}), "minDomains"),
    "a policy": (_spread({**ZONE, "nodeTaintsPolicy": "Sometimes"}), "nodeTaintsPolicy"),
    "a pair twice": (_spread(ZONE, {**ZONE, "maxSkew": 3}), "each pair once"),
    "not a list": ({"schedulerConfig": {"podTopologySpread": {"defaultConstraints": {}}}}, "defaultConstraints"),
    "two documents": ({"schedulerConfig": "{}\n---\n{a: 1}"}, "schedulerConfig"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case: str) -> None:
    """A value that would stop Karpenter at its start is an error that names the field."""
    tree, words = BAD[case]
    with pytest.raises(InputError) as caught:
        read_karpenter(tree, "karpenter")
    assert words in str(caught.value)


def test_the_key_of_a_settings_file(tmp_path: Path) -> None:
    """A settings file can have the key `karpenter`."""
    file = tmp_path / "settings.yaml"
    file.write_text("karpenter:\n  featureGates: NodeOverlay=true\n  ignoreDraRequests: true\n")
    assert load_settings(file).karpenter.feature_gates == ((FeatureGate.NODE_OVERLAY, True),)


@pytest.mark.parametrize(
    ("text", "on"),
    [("", False), ("karpenter: {featureGates: SpotToSpotConsolidation=true}", True),
     ("karpenter: {featureGates: SpotToSpotConsolidation=true}\nspotToSpotConsolidation: false", False)],
)  # fmt: skip
def test_spot_to_spot_is_karpenters_gate_in_its_profile(tmp_path: Path, text: str, on: bool) -> None:
    """In the profile karpenter-1.15 the feature gate turns it on; a separate setting wins."""
    file = tmp_path / "settings.yaml"
    file.write_text(text or "{}")
    assert load_settings(file, "karpenter-1.15").spot_to_spot_consolidation is on
    assert load_settings(file).spot_to_spot_consolidation is (not text.endswith("false"))


def _deployment(env: dict[str, str] | None = None, args: list[str] | None = None) -> dict[str, Any]:
    entries = [{"name": name, "value": value} for name, value in (env or {}).items()]
    entries.append({"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}})
    container = {"name": "controller", "env": entries, "args": args or []}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


DEPLOYMENTS: dict[str, tuple[dict[str, Any], dict[FeatureGate, bool], bool | None]] = {
    "nothing said": (_deployment(), {}, None),
    "environment": (_deployment({"FEATURE_GATES": "NodeRepair=true"}), {FeatureGate.NODE_REPAIR: True}, None),
    "a flag": (_deployment(args=["--feature-gates=NodeRepair=true,Warp=1"]), {FeatureGate.NODE_REPAIR: True}, None),
    "a flag in two words": (
        _deployment(args=["--feature-gates", "NodeRepair=true"]),
        {FeatureGate.NODE_REPAIR: True},
        None,
    ),
    "the flag wins": (
        _deployment({"FEATURE_GATES": "NodeRepair=true"}, ["--feature-gates=NodeRepair=false"]),
        {FeatureGate.NODE_REPAIR: False},
        None,
    ),
    "claims": (_deployment({"IGNORE_DRA_REQUESTS": "false"}), {}, False),
    "a bare flag": (_deployment(args=["--ignore-dra-requests"]), {}, True),
    "no containers": ({"spec": {}}, {}, None),
}


@pytest.mark.parametrize("case", DEPLOYMENTS)
def test_karpenters_deployment(case: str) -> None:
    """Karpenter's Deployment shows by its environment and flags how it runs."""
    tree, gates, ignoring = DEPLOYMENTS[case]
    found = read_deployment(tree, "Deployment karpenter")
    assert (dict(found.feature_gates), found.ignore_dra_requests) == (gates, ignoring)


def test_the_settings_win_over_the_deployment() -> None:
    """Settings win gate by gate; the Deployment provides what they leave out."""
    own = told(featureGates="NodeOverlay=false", ignoreDraRequests=True).karpenter
    found = read_deployment(
        _deployment({"FEATURE_GATES": "NodeOverlay=true,NodeRepair=true", "IGNORE_DRA_REQUESTS": "false"}), "it"
    )
    both = own.over(found)
    assert dict(both.feature_gates) == {FeatureGate.NODE_OVERLAY: False, FeatureGate.NODE_REPAIR: True}
    assert both.ignores_dra


def test_what_is_assumed_is_said() -> None:
    """The report has every gate that is on or was named, with its source; the others have their defaults."""
    settings = told(featureGates="NodeOverlay=true,NodeRepair=false").karpenter
    said = assumptions(settings, features_of(settings, Cluster()))
    assert "NodeOverlay is on (the settings say so)" in said
    assert "NodeRepair is off (the settings say so)" in said
    assert any(text.startswith("ReservedCapacity is on (its default") for text in said)
    assert any("CapacityBuffer" in text and "off" in text for text in said)
    assert "resource claims are ignored (its default)" in said
