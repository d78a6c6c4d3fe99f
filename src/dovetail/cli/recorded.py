"""Recordings of clusters on the command line: the recording, and the catalogue that goes with it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.api.catalogue import CatalogueError, load_catalogue
from dovetail.api.findings import InputError

if TYPE_CHECKING:
    from dovetail.model.catalogue import Catalogue
    from dovetail.recordings.read import ClusterRecording
    from dovetail.sim.calibration import Calibration
    from dovetail.sim.ledger import Result
    from dovetail.sim.scenarios.scenario import Policy, Scenario


def load_recorded(path: Path, where: str | None) -> "tuple[ClusterRecording, Catalogue]":
    """Read a recording and its catalogue: the one that is named, else the one that it was recorded with."""
    recording = load_only_recorded(path)
    return recording, catalogue_of_recorded(path, recording, where)


def catalogue_of_recorded(path: Path, recording: "ClusterRecording", where: str | None) -> "Catalogue":
    """Return the catalogue that is named, else the one that the recording was made with."""
    if where is None and not recording.catalogue:
        raise InputError(
            f"{path}: it does not say which prices it was recorded with; give --catalog aws:REGION or a file"
        )
    try:
        return load_catalogue(where or recording.catalogue)
    except CatalogueError as error:
        if where is None:
            said = f"{path} was recorded with the catalogue {recording.catalogue}, which can't be used here"
            raise InputError(f"{said}; give --catalog with that file, or aws:REGION") from None
        raise InputError(str(error)) from None


def load_only_recorded(path: Path) -> "ClusterRecording":
    """Read a recording: the folder, a .tar.gz of it, or one file."""
    from dovetail.recordings.read import is_recording, load_cluster_recording

    if path.exists() and not is_recording(path):
        raise InputError(
            f"{path} is not a recording of a cluster: give the folder that `dovetail record` wrote or a .tar.gz of it; "
            "captures go with -f"
        )
    recording = load_cluster_recording(path)
    for gap in recording.gaps:
        print(f"note: nothing is known from {gap.begins:%F %R} to {gap.ends:%F %R} ({gap.why})", file=sys.stderr)
    if recording.missing:
        print(f"note: not recorded: {', '.join(recording.missing)}", file=sys.stderr)
    return recording


def load_course(name: str, where: str | None) -> "Scenario":
    """Read a scenario, or a recording as one: its policies are the one that ran, Dovetail's default and recommended."""
    from dovetail.recordings.read import is_recording
    from dovetail.sim.recorded import name_of, policy_of_today, recorded_scenario
    from dovetail.sim.replay import default_policies
    from dovetail.sim.scenarios.scenario import load_scenario

    if not is_recording(Path(name)):
        if where is not None:
            raise InputError("--catalog goes with a recording; a scenario names its own")
        return load_scenario(name)
    recording, catalogue = load_recorded(Path(name), where)
    today = policy_of_today(recording)
    others = (policy for policy in default_policies() if policy.name != name_of(today))
    return recorded_scenario(recording, catalogue, (today, *others))


def with_today(scenario: "Scenario", policies: "tuple[Policy, ...]") -> "tuple[Policy, ...]":
    """Return the policies to run: of a recording, the one that ran comes first, since all else is measured by it."""
    from dovetail.sim.recorded import TODAY

    if scenario.recorded is None or any(policy.name == TODAY for policy in policies):
        return policies
    return (scenario.policy(TODAY), *policies)


def calibration_of_course(scenario: "Scenario", results: "Sequence[Result]") -> "Calibration | None":
    """Return how well the policy that ran is replayed; None for a scenario, or if it was not run."""
    from dovetail.sim.recorded import TODAY, calibrate_recorded, name_of
    from dovetail.sim.recorded_bill import recorded_cost

    found = [result for result in results if result.policy == TODAY]
    if scenario.recorded is None or not found:
        return None
    cost = None
    if scenario.tariff is not None and scenario.catalogue is not None:
        cost = recorded_cost(scenario.recorded, scenario.catalogue, scenario.tariff)
    return calibrate_recorded(scenario.recorded, found, name_of(scenario.policy(TODAY)), cost)
