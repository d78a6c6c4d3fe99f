"""The parts of the Python interface whose signatures are made for people (contract.md, "Python").

Everything else that `import dovetail` gives is the core's own function or class. Sits beside `cli`, above the shells;
`dovetail/__init__.py` says which name comes from where.
"""

from dataclasses import replace
from pathlib import Path

from dovetail.api import settings
from dovetail.api.findings import InputError
from dovetail.api.reading import decode
from dovetail.api.reading.completeness import accepted, lacks_of
from dovetail.model.cluster import Cluster
from dovetail.model.settings import Profile, Settings
from dovetail.model.timing.duration import parse_go_duration
from dovetail.sim import run
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.scenario import Policy, Scenario


def load_cluster(*paths: str | Path) -> Cluster:
    """Read what `kubectl get ... -o json|yaml` printed, from one file or several; `-` is standard input.

    If an object appears twice, the last one wins. Raise InputError if a file can't be used. Files that lack something
    are accepted, as with `--partial`: the `warnings` of every answer begin with what is missing.
    """
    decoded = decode.decode_files(paths)
    cluster = decoded.cluster()
    lacks = lacks_of(decoded, cluster)
    return replace(cluster, notes=(*accepted(lacks.refusals), *lacks.warnings))


def load_settings(path: str | Path | None = None, profile: Profile | str = Profile.DOVETAIL) -> Settings:
    """Return the settings of a profile, overridden by those of a YAML or JSON file."""
    return settings.load_settings(path, profile)


def run_scenario(scenario: Scenario, policy: Policy | str, seed: int = 0, *, until: str | None = None) -> Result:
    """Simulate a scenario under one policy: a name of the scenario's own, or a `Policy`.

    `until`: how long to simulate, such as "2h"; by default as long as the scenario says. The same arguments give the
    same result.
    """
    length = None if until is None else _length(until)
    return run.run_scenario(scenario, scenario.policy(policy) if isinstance(policy, str) else policy, seed, length)


def _length(until: str) -> int:
    try:
        length = parse_go_duration(until)
    except ValueError:
        length = 0
    if length <= 0:
        raise InputError(f'until is "{until}"; write a duration such as 30m or 24h')
    return length
