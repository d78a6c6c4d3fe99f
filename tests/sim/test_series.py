"""The samples of the plots agree with the figures."""

import pytest

from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario

HOUR = 3600 * 10**9


@pytest.mark.parametrize("policy", ["karpenter-1.15", "both"])
def test_pods_that_waited_between_two_samples_are_in_the_plot(policy: str) -> None:
    """The plot of pending pods is not zero everywhere, although pods wait for seconds and samples are minutes apart."""
    scenario = load_scenario("issue-7146")
    chosen = next(entry for entry in scenario.policies if entry.name == policy)
    result = run_scenario(scenario, chosen, until=4 * HOUR)
    series = result.series
    assert result.pending_pod_seconds > 0
    assert max(series.pending) > 0
    longest = sum(series.pending) * series.step_seconds
    assert longest >= result.pending_pod_seconds, "no more pods can have waited at any time than the plot shows"
