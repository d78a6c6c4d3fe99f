"""Settings written as a file give the same settings again."""

import dataclasses
from typing import Any

import pytest

from dovetail.api.reading.yaml_tree import parse_yaml
from dovetail.api.settings import SETTINGS, settings_of
from dovetail.api.settings_file import settings_file
from dovetail.cli.output import yaml_bytes
from dovetail.model.settings import DOVETAIL, RECOMMENDED, Settings

GIVEN: dict[str, Any] = {
    "candidateOrder": "savings-ratio",
    "consolidateAfterHidesDestinations": True,
    "spotToSpotConsolidation": False,
    "spotMinimumTypes": 3,
    "batchMaximum": 7,
    "search": "value",
    "replacementsMax": 2,
    "stabilization": {"empty": "30s", "cost": "1h30m"},
    "stabilizationScope": "cluster",
    "neighbours": "Warn",
    "stabilizationEnds": "landed",
    "steering": "Prefer",
    "steeringWritesPerMinute": 5,
    "wasteFloor": 0.0123,
    "launchPrice": "15m",
    "preferencesOpenNodes": False,
    "asksTheScheduler": True,
    "jobsWait": True,
    "quietBeforeHaste": "90s",
    "evictionsInOrder": True,
    "evictionsSideBySide": True,
    "domainPatience": "1m",
    "expiryLead": "48h",
    "replacementTimeout": "2m",
    "launchTimeout": "1500ms",
    "drainPatience": "0s",
    "validationDelay": "1s",
    "pollInterval": "2s",
    "preferencePolicy": "Ignore",
    "minValuesPolicy": "BestEffort",
    "nominatedNodes": ["a", "b"],
    "markedForDeletionNodes": ["c"],
    "pools": ["web"],
    "poolDefaults": {"consolidationSavingsThreshold": 0.02, "consolidationGracePeriod": "30m"},
    "karpenter": {
        "featureGates": "NodeOverlay=true,SpotToSpotConsolidation=false",
        "schedulerConfig": {
            "podTopologySpread": {
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
                ]
            }
        },
        "ignoreDraRequests": False,
        "version": "1.14",
    },
    "commitments": [
        {"name": "plan", "kind": "SavingsPlan", "hourly": 12.4, "rates": "28.5%", "families": ["m5"]},
        {"name": "rated", "kind": "SavingsPlan", "hourly": 0.1, "rates": {"m5.large": 0.07, "c5.large": "0.061"}},
        {"name": "ri", "kind": "ReservedInstances", "region": "eu-west-1", "instanceTypes": ["m5.large"], "count": 3},
        {"name": "units", "kind": "ReservedInstances", "families": ["m5"], "count": 2.5, "hourly": 0.25},
    ],
    "discount": {"aws": "20%", "gcp": "0.5%"},
    "surcharge": [{"nodeClassKind": "NodeClass", "percent": 12.5}],
    "daemonLikePods": [
        {"namespaces": ["gpu"], "matchLabels": {"app": "agent"}},
        {
            "matchExpressions": [
                {"key": "a", "operator": "In", "values": ["1", "2"]},
                {"key": "b", "operator": "NotIn", "values": ["3"]},
                {"key": "c", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ]
        },
    ],
    "paused": True,
    "alertGate": {"url": "http://prometheus:9090", "query": "ALERTS", "every": "1m", "whenUnreachable": "Proceed"},
    "recordings": {"path": "/var/lib/dovetail", "keep": "36h"},
    "leaseDuration": "40s",
    "renewDeadline": "25s",
    "retryPeriod": "3s",
    "viewAgeMaximum": "3m",
}


def again(settings: Settings) -> Settings:
    """Return the settings of the file that is written for these, as YAML."""
    (document,) = parse_yaml(yaml_bytes(settings_file(settings)))
    return settings_of(document.tree, DOVETAIL)


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_can_be_written(key: str) -> None:
    """Each key alone, over the profile and over the recommended policy, gives the same settings again."""
    for base in ({}, {"base": "recommended"}):
        settings = settings_of({**base, key: GIVEN[key]}, DOVETAIL)
        assert again(settings) == settings
        assert set(settings_file(settings)) <= {"base", key, "spotToSpotConsolidation"}
    assert settings_of({key: GIVEN[key]}, DOVETAIL) != DOVETAIL


def test_all_of_them_together() -> None:
    """The file with every key is read as it was."""
    settings = settings_of(GIVEN, DOVETAIL)
    assert again(settings) == settings


def test_what_is_as_the_base_is_not_written() -> None:
    """A built-in set of values needs no key but its name."""
    assert settings_file(DOVETAIL) == {}
    assert settings_file(RECOMMENDED) == {"base": "recommended"}
    assert settings_file(dataclasses.replace(RECOMMENDED, jobs_wait=False)) == {
        "base": "recommended",
        "jobsWait": False,
    }
