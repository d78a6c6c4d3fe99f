"""Replays of recordings of the real Karpenter agree with what really happened."""

from pathlib import Path
from statistics import mean

import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.recordings.read import load_cluster_recording
from dovetail.sim.recorded import Reality, play_recorded, policy_of_today

DATA = Path(__file__).parent / "data"
COURSES = {"off-peak": 8, "off-peak-2": 3, "day-night": 3, "bursts": 6, "roll": 6}
"""The recordings, and on how many seeds each is replayed: more where chance decides more."""


@pytest.mark.parametrize("course", COURSES)
def test_the_replay_of_karpenter_agrees(course: str) -> None:
    """The bill is within 5 %; restarts are within 15 % and node hours within 10 %, or as some seeds have them.

    A recording is one outcome of a Karpenter that breaks ties at random, and so is each seed.
    """
    recording = load_cluster_recording(DATA / course)
    played = play_recorded(
        recording, load_catalogue(DATA / "kwok-types.json.gz"), (policy_of_today(recording),), seeds=COURSES[course]
    )
    found, results = played.calibration, played.results[0]
    assert found.reliable
    assert found.error["cost"] is not None
    assert found.error["cost"] <= 0.05
    _agrees(found.real["podsDisrupted"], [float(each.pods_disrupted) for each in results], 0.15)
    _agrees(found.real["nodeHours"], [each.node_hours for each in results], 0.10)
    assert all(not result.violations for result in results)


def _agrees(real: float, simulated: list[float], share: float) -> None:
    """Check that the mean is close to what was recorded, or that chance explains the difference."""
    assert abs(mean(simulated) - real) <= share * real or min(simulated) <= real <= max(simulated)


@pytest.mark.parametrize("course", ["bursts", "off-peak-2"])
def test_an_import_of_the_same_course_agrees(course: str) -> None:
    """What a real Prometheus saw of a course beside the real Karpenter has its bill, and so has its replay."""
    catalogue = load_catalogue(DATA / "kwok-types.json.gz")
    recordings = [load_cluster_recording(DATA / name) for name in (course, f"{course}-imported")]
    real = [Reality(recording=each).figures() for each in recordings]
    assert real[1]["cost"] == pytest.approx(real[0]["cost"], rel=0.05)
    assert real[1]["podsDisrupted"] == real[0]["podsDisrupted"]
    costs = [
        play_recorded(each, catalogue, (policy_of_today(each),), seeds=3).calibration.simulated["cost"]
        for each in recordings
    ]
    assert costs[1] == pytest.approx(costs[0], rel=0.05)


def test_the_recording_counts_what_karpenter_did() -> None:
    """112 pods were moved by 17 claims that Karpenter's own log names, in 26 minutes."""
    recording = load_cluster_recording(DATA / "off-peak")
    assert len(Reality(recording=recording).moved()) == 112
    assert sum(claim.reason == "Underutilized" for claim in recording.claims) == 17
    assert recording.gaps == ()
