import dataclasses
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.findings import InputError
from dovetail.api.settings import SETTINGS, load_settings, settings_of
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, CandidateOrder, MinValuesPolicy, PreferencePolicy
from dovetail.model.timing.duration import MINUTE, SECOND
from tests.paths import SHARED, needs_shared


def written(tmp_path: Path, text: str) -> Path:
    """Write a settings file."""
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return file


def test_without_a_file_the_profile_stands() -> None:
    """Both profiles, by name."""
    assert load_settings(None) == DOVETAIL
    assert load_settings(None, "karpenter-1.15") == KARPENTER_1_15


EVERYTHING: dict[str, Any] = {
    "candidateOrder": "savings-ratio",
    "consolidateAfterHidesDestinations": True,
    "spotToSpotConsolidation": False,
    "spotMinimumTypes": 5,
    "batchMaximum": 20,
    "stabilization": {"empty": "1m", "expired": "2m", "drifted": "3m", "cost": "0s"},
    "replacementTimeout": "5m30s",
    "validationDelay": "0s",
    "pollInterval": "500ms",
    "preferencePolicy": "Ignore",
    "minValuesPolicy": "BestEffort",
    "nominatedNodes": ["b", "a", "b"],
    "markedForDeletionNodes": ["c"],
    "pools": ["p"],
}


@pytest.mark.parametrize("profile", ["dovetail", "karpenter-1.15"])
def test_every_key_wins_over_the_profile(profile: str, tmp_path: Path) -> None:
    """All keys of the contract, in YAML and in JSON."""
    read = load_settings(written(tmp_path, json.dumps(EVERYTHING)), profile)
    assert read.profile.value == profile
    assert read.candidate_order is CandidateOrder.SAVINGS_RATIO
    assert read.preference_policy is PreferencePolicy.IGNORE
    assert read.min_values_policy is MinValuesPolicy.BEST_EFFORT
    assert dataclasses.astuple(read.stabilization) == (MINUTE, 2 * MINUTE, 3 * MINUTE, 0)
    assert (read.replacement_timeout, read.validation_delay, read.poll_interval) == (330 * SECOND, 0, SECOND // 2)
    assert (read.nominated_nodes, read.marked_for_deletion_nodes, read.pools) == (("a", "b"), ("c",), ("p",))
    assert (read.spot_minimum_types, read.batch_maximum) == (5, 20)
    assert read.consolidate_after_hides_destinations
    assert not read.spot_to_spot_consolidation


def test_every_setting_has_a_key() -> None:
    """A file can set everything but a profile's rules and a simulation's chance."""
    assert set(EVERYTHING) <= set(SETTINGS)
    names = {field.name for field in dataclasses.fields(DOVETAIL)} - {"profile", "policy", "rules", "ties"}
    assert names == {"".join(f"_{c.lower()}" if c.isupper() else c for c in key) for key in SETTINGS}


def test_a_part_of_stabilization_keeps_the_rest() -> None:
    """Kinds that are left out keep the profile's window."""
    read = settings_of({"stabilization": {"cost": "1m"}}, DOVETAIL)
    assert read.stabilization == dataclasses.replace(DOVETAIL.stabilization, cost=MINUTE)


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_an_empty_file_changes_nothing(text: str, tmp_path: Path) -> None:
    """Every key is optional."""
    assert load_settings(written(tmp_path, text)) == DOVETAIL


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("batchMaximun: 5", "did you mean batchMaximum?"),
        ("xyz: 5", "valid names: alertGate, asksTheScheduler"),
        ("batchMaximum: 0", "from 1 to"),
        ("batchMaximum: '5'", "whole number"),
        ("batchMaximum: true", "whole number"),
        ("spotToSpotConsolidation: 1", "true or false"),
        ("candidateOrder: cheapest", "disruption-cost or savings-ratio"),
        ("preferencePolicy: ignore", "Respect or Ignore"),
        ("replacementTimeout: 9", "write a duration"),
        ("replacementTimeout: 0s", "longer"),
        ("replacementTimeout: 9 minutes", "write a duration"),
        ("validationDelay: -5s", "0s or more"),
        ("pollInterval: 1000h", "at most"),
        ("stabilization: 5m", "write a map"),
        ("stabilization: {emty: 5m}", "did you mean empty?"),
        ("stabilization: {cost: x}", "stabilization.cost"),
        ("nominatedNodes: n1", "list of names"),
        ("nominatedNodes: [5]", "list of names"),
        ("[1, 2]", "must be a map"),
        ("a: 1\n---\nb: 2", "several documents"),
        ("pools: [a]\npools: [b]", "twice"),
        ("pools: [a", "not YAML"),
    ],
)
def test_bad_settings_are_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    """The file, the key, its value, what to write."""
    file = written(tmp_path, text)
    with pytest.raises(InputError) as refusal:
        load_settings(file)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith(f"{file}: ")
    assert "\n" not in str(refusal.value)


def test_an_unknown_profile_is_refused() -> None:
    """With the names that exist."""
    with pytest.raises(InputError, match=r"dovetail or karpenter-1\.15"):
        load_settings(None, "karpenter")


@needs_shared
def test_settings_of_the_golden_cases_are_read() -> None:
    """What those cases ask for are settings that exist."""
    cases = sorted((SHARED / "golden").glob("*/about.json"))
    assert cases
    for case in cases:
        asked = json.loads(case.read_text()).get("settings", {})
        asked.pop("karpenterFeatureGates", None)  # Karpenter's alone
        settings_of(asked, KARPENTER_1_15)


GOOD_PLAN = {"name": "p", "kind": "SavingsPlan", "hourly": 1, "rates": "28%"}
GOOD_RESERVED = {"name": "r", "kind": "ReservedInstances", "instanceTypes": ["m5.large"], "count": 2}


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"commitments": {}}, "commitments is"),
        ({"commitments": ["x"]}, "commitments[0] is"),
        ({"commitments": [GOOD_PLAN, GOOD_PLAN]}, "commitments[1].name"),
        ({"commitments": [{**GOOD_RESERVED, "count": -1}]}, "commitments[0].count is -1"),
        ({"commitments": [{**GOOD_RESERVED, "count": 1.5}]}, "commitments[0].count is 1.5"),
        ({"commitments": [{**GOOD_RESERVED, "count": True}]}, "commitments[0].count"),
        ({"commitments": [{**GOOD_RESERVED, "hourly": -1}]}, "commitments[0].hourly is -1; write dollars an hour"),
        (
            {"commitments": [{**GOOD_RESERVED, "hourly": 1, "rates": {"m5.large": 0.06}}]},
            "commitments[0] has both hourly and rates",
        ),
        ({"commitments": [{**GOOD_RESERVED, "families": ["m5"]}]}, "both instanceTypes and families"),
        ({"commitments": [{**GOOD_RESERVED, "instanceTypes": []}]}, "commitments[0].instanceTypes"),
        (
            {"commitments": [{"name": "r", "kind": "ReservedInstances", "count": 2}]},
            "neither instanceTypes nor families",
        ),
        ({"commitments": [{**GOOD_PLAN, "count": 1}]}, "commitments[0].count does not go with"),
        ({"commitments": [{**GOOD_PLAN, "hourly": -1}]}, "commitments[0].hourly is -1"),
        ({"commitments": [{**GOOD_PLAN, "hourly": "1 EUR"}]}, "without a currency"),
        ({"commitments": [{**GOOD_PLAN, "rates": "128%"}]}, "commitments[0].rates is"),
        ({"commitments": [{**GOOD_PLAN, "rates": {"m5.large": -1}}]}, "commitments[0].rates.m5.large"),
        ({"commitments": [{"name": "p", "kind": "SavingsPlan", "hourly": 1}]}, "commitments[0].rates is missing"),
        ({"commitments": [{**GOOD_PLAN, "kind": "Spot"}]}, "commitments[0].kind"),
        ({"commitments": [{**GOOD_PLAN, "colour": 1}]}, "colour"),
        ({"discount": {"aws": 20}}, "discount.aws"),
        ({"discount": {"moon": "20%"}}, "moon"),
        ({"surcharge": [{"nodeClassKind": "NodeClass"}]}, "surcharge[0]"),
        ({"surcharge": [{"nodeClassKind": "NodeClass", "percent": -2}]}, "surcharge[0].percent"),
    ],
)
def test_what_can_not_be_paid_is_refused_with_its_key(tree: dict[str, Any], words: str, tmp_path: Path) -> None:
    """A commitment, discount or surcharge that can't be is refused in a sentence that names its key."""
    with pytest.raises(InputError) as caught:
        load_settings(written(tmp_path, json.dumps(tree)))
    assert words in str(caught.value)


def test_commitments_are_read_exactly(tmp_path: Path) -> None:
    """Dollars and percentages are read as decimals."""
    tree = {"commitments": [GOOD_PLAN, GOOD_RESERVED], "discount": {"aws": "12.5%"}}
    read = load_settings(written(tmp_path, json.dumps(tree)))
    assert read.commitments[0].percent_off == Fraction(28, 100)
    assert read.commitments[1].count == 2
    assert read.discount == (("aws", Fraction(1, 8)),)
