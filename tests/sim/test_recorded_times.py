"""The times that a replay draws from: what was recorded, without the scatter that whole-second stamps add."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.model import names
from dovetail.recordings.read import ClusterRecording, PodLife, load_cluster_recording
from dovetail.sim.recorded import policy_of_today, recorded_scenario
from dovetail.sim.scenarios.recorded_times import recorded_pod_times, recorded_times
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND, Span
from dovetail.sim.world.kubelet import EVERY_OWNER
from dovetail.sim.world.world import World

DATA = Path(__file__).parents[1] / "recordings" / "data"


@pytest.fixture(scope="module")
def roll() -> ClusterRecording:
    """Return the recording of a roll beside the real Karpenter."""
    return load_cluster_recording(DATA / "roll")


def with_machines(recording: ClusterRecording, low: float, high: float) -> ClusterRecording:
    """Return a recording whose machines take so long to register, with stamps in whole seconds."""
    dice, claims = Random(1), []
    for claim in recording.claims * 8:
        launched = recording.begins + timedelta(seconds=dice.uniform(1, 500))
        registered = launched + timedelta(seconds=dice.uniform(low, high))
        whole = [at.replace(microsecond=0) for at in (launched, launched, registered, registered)]
        claims.append(
            replace(claim, created=whole[0], launched=whole[1], registered=whole[2], ready=whole[3], deleting=None)
        )
    return replace(recording, claims=tuple(claims))


def within(span: Span, low: float, high: float, by: float = 0.25) -> bool:
    """Return whether a span is about that one."""
    return abs(span.low / SECOND - low) <= by and abs(span.high / SECOND - high) <= by


def test_equal_times_stay_equal(roll: ClusterRecording) -> None:
    """Machines that all take 1.5 seconds differ by a second in the stamps, and hardly in what a replay draws."""
    assert within(recorded_times(with_machines(roll, 1.5, 1.5)).register, 1.5, 1.5)


def test_times_that_differ_keep_their_scatter(roll: ClusterRecording) -> None:
    """Of machines that take 20 to 60 seconds the middle four fifths are drawn."""
    assert within(recorded_times(with_machines(roll, 20, 60)).register, 24, 56, by=3)


def test_the_end_of_a_machine_counts_from_its_drain(roll: ClusterRecording) -> None:
    """These machines were gone half a second after the drain, which takes five seconds at least."""
    shutdown = recorded_times(roll).shutdown
    assert shutdown.high <= 2 * SECOND


def test_pods_take_as_long_as_those_of_their_owner(roll: ClusterRecording) -> None:
    """An owner with enough pods has times of its own; the others share what all pods took."""
    slow = roll.pods[0].pod_class.owner[1]

    def slowed(life: PodLife) -> PodLife:
        if life.pod_class.owner[1] != slow or life.bound is None:
            return life
        return replace(life, ready=life.bound + timedelta(seconds=90))

    times = recorded_pod_times(replace(roll, pods=tuple(map(slowed, roll.pods))))
    assert times[f"default/ReplicaSet/{slow}"].start == Span(90 * SECOND, 90 * SECOND)
    assert times[EVERY_OWNER].start.high < 90 * SECOND
    few = replace(roll, pods=roll.pods[:3])
    assert recorded_pod_times(few) == {}


def staged(recording: ClusterRecording) -> World:
    """Return the world of a replay of what ran."""
    policy = policy_of_today(recording)
    catalogue = load_catalogue(DATA / "kwok-types.json.gz")
    return Stage(recorded_scenario(recording, catalogue, (policy,)), policy, 0).build()


def drifted(world: World) -> int:
    """Return how many NodeClaims have drifted."""
    claims = world.store.claims.values()
    return sum(any(entry.type == names.CONDITION_DRIFTED for entry in claim.status.conditions) for claim in claims)


def test_nodes_drift_as_soon_as_their_template_changes(roll: ClusterRecording) -> None:
    """Karpenter watches NodePools: all nodes of the pool have drifted a second after its template changed."""
    changed = [entry.at for entry in roll.changes if entry.kind == "NodePool" and entry.object is not None]
    at = next(each for each in changed if each - roll.begins > timedelta(seconds=60))
    world = staged(roll)
    world.run(world.clock.since_start(at) - SECOND)
    assert drifted(world) == 0
    world.run(world.clock.since_start(at) + 2 * SECOND)
    assert drifted(world) == len(world.store.claims) > 0


def test_pods_of_a_replay_start_as_fast_as_the_recorded(roll: ClusterRecording) -> None:
    """Recorded pods were ready in the second in which they were bound, so no replayed one takes longer than one."""
    world = staged(roll)
    world.run(60 * SECOND)
    pods = [pod for pod in world.store.pods.values() if pod.spec.node_name]
    waits = []
    for pod in pods:
        stamps = {entry.type: entry.last_transition_time for entry in pod.status.conditions}
        waits.append(stamps["Ready"] - stamps["PodScheduled"])  # type: ignore[operator]
    assert len(waits) > 60
    assert max(waits) <= timedelta(seconds=1)
