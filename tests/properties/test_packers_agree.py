"""The reference packer and the fast kernel give the same answers on thousands of generated clusters.

`make test` asks about 300 clusters, CI 1,000, `make test-long` 10,000; `DOVETAIL_AGREEMENT_SAMPLES` sets any other
number. A thousand take about 40 seconds on one core.
"""

import os
from pathlib import Path

import pytest

from tests.properties.agreement import Difference, differences, dump, load, smallest
from tests.reference.generator import FEATURES, sample
from tests.support.sizes import size

SAMPLES = int(os.environ.get("DOVETAIL_AGREEMENT_SAMPLES", size(test=300, ci=1000, long=10_000)))
BLOCK = 100
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


def _told(seed: int, found: Difference) -> str:
    return f"seed {seed}, {found.what}:\n  reference {found.reference}\n  kernel    {found.kernel}"


@pytest.mark.parametrize("first", range(0, SAMPLES, BLOCK))
def test_packers_agree_on_generated_clusters(first: int) -> None:
    """On each cluster both place the pending pods, and the pods of nodes that would go, in the same way."""
    failed = [seed for seed in range(first, min(first + BLOCK, SAMPLES)) if next(differences(sample(seed)), None)]
    if failed:
        small = smallest(sample(failed[0]))
        found = next(differences(small))
        pytest.fail(
            f"seeds {failed} differ; the first, made small: {_told(failed[0], found)}\n{dump(small, '').decode()}"
        )


@pytest.mark.parametrize("feature", FEATURES)
def test_packers_agree_on_each_rule_alone(feature: str) -> None:
    """With a single feature in the cluster, nothing else can hide a difference."""
    for seed in range(20):
        found = next(differences(sample(seed, (feature,))), None)
        assert found is None, _told(seed, found)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in REGRESSIONS])
def test_packers_agree_where_they_once_did_not(path: Path) -> None:
    """Clusters on which the packers once differed, made small, with the rule in question as their name."""
    found = next(differences(load(path.read_bytes())), None)
    assert found is None, _told(0, found)


def test_samples_survive_being_written_down() -> None:
    """A sample read back from its file is the same sample: regressions mean what they say."""
    original = sample(7)
    again = load(dump(original, "why"))
    assert again.cluster == original.cluster
    assert {kind.name: kind for kind in again.catalogue.instance_types} == {
        kind.name: kind for kind in original.catalogue.instance_types
    }
    assert again.settings == original.settings
    assert again.questions == original.questions
