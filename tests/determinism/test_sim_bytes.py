"""The same seed gives the same bytes, whatever the hash seed of the process."""

import subprocess
import sys

from tests.support.sizes import size

SCRIPT = """
MINUTES = %d
import msgspec
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.checks.swarm import run_seed

scenario = load_scenario("issue-7146")
for policy in (scenario.policies[0], scenario.policies[-1]):
    print(msgspec.json.encode(run_scenario(scenario, policy, 3, until=MINUTES * 60 * 10**9), enc_hook=list).decode())
for seed in (4, 5):
    print(run_seed(seed))
"""


def output(hash_seed: str) -> bytes:
    """Return what the script prints in a process of its own."""
    environment = {"PYTHONHASHSEED": hash_seed}
    script = SCRIPT % size(test=20, ci=40, long=240)
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    return done.stdout


def test_runs_are_the_same_under_any_hash_seed() -> None:
    """Results with all their series, and outcomes of runs with faults, repeat to the byte."""
    first = output("0")
    assert len(first) > 10_000
    assert output("4242") == first
