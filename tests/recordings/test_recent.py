"""What the controller remembers of its last two hours gives the figures that a recording of them gives."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.model.objects import NodeClaim, ObjectMeta, OwnerReference, Pod, PodSpec
from dovetail.model.settings import KARPENTER_1_15
from dovetail.recordings.read import load_cluster_recording
from dovetail.recordings.recent import KEEP, RecentLives
from dovetail.recordings.regret import regrets
from dovetail.sim.scenarios.scenario import Policy, load_scenario
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.store import Change
from tests.support.recorded_world import record_run

KARPENTER = Policy(name="karpenter-1.15", settings=KARPENTER_1_15)
NOW = datetime(2026, 3, 1, 10, tzinfo=UTC)


def take(lives: RecentLives, change: Change, at: datetime) -> None:
    """Hand a change of the simulated cluster on, as the controller does with what its watches deliver."""
    namespace, _, name = change.key.rpartition("/")
    if isinstance(change.new, Pod):
        lives.observe_pod(change.new, at)
    elif isinstance(change.new, NodeClaim):
        lives.observe_claim(change.new)
    elif isinstance(change.old, Pod):
        old = change.old
        lives.vanish_pod(namespace, name, lambda: old, at)
    elif isinstance(change.old, NodeClaim):
        lives.vanish_claim(name, at)


@pytest.mark.parametrize("scenario", ["issue-7146", "batch-churn"])
def test_the_figures_are_those_of_a_recording(scenario: str, tmp_path: Path) -> None:
    """An hour under Karpenter has the same regrets in memory and on disk, and not just zeros."""
    lives = RecentLives(begins=NOW)

    def heard(change: Change, at: datetime) -> None:
        take(lives, change, at)

    record_run(load_scenario(scenario), KARPENTER, tmp_path, length=3600 * SECOND, heard=heard)
    recording = load_cluster_recording(tmp_path)
    lives.begins = recording.begins
    on_disk = [pool.to_dict() for pool in regrets(recording)]
    assert [pool.to_dict() for pool in regrets(lives.recording(recording.ends))] == on_disk
    assert sum(pool["moves"] for pool in on_disk) > 0
    assert sum(pool["undoneWithinTheHour"] + pool["shortLivedNodes"] for pool in on_disk) > 0


def pod(name: str, *, created: datetime = NOW, deleted: datetime | None = None) -> Pod:
    """Return a pod of a ReplicaSet."""
    owner = OwnerReference(kind="ReplicaSet", name="web", controller=True)
    meta = ObjectMeta(
        name=name, namespace="shop", creation_timestamp=created, deletion_timestamp=deleted, owner_references=(owner,)
    )
    return Pod(metadata=meta, spec=PodSpec(node_name="n1"))


def test_what_just_runs_is_not_kept_and_the_old_is_forgotten() -> None:
    """Pods that run cost no memory; those that left are forgotten after two hours."""
    lives = RecentLives(begins=NOW)
    for number in range(50):
        lives.observe_pod(pod(f"web-{number}"), NOW)
    assert lives.recording(NOW).pods == ()
    late = NOW + timedelta(minutes=1)
    lives.observe_pod(pod("web-1", deleted=late), late)
    lives.vanish_pod("shop", "web-1", lambda: None, late)
    assert [life.name for life in lives.recording(late).pods] == ["web-1"]
    assert lives.recording(late + KEEP + timedelta(seconds=1)).pods == ()
    assert lives._gone == []


def test_a_pod_that_is_gone_at_once_counts() -> None:
    """A pod that nobody saw leave, or whose name another one has now, ends when that is seen."""
    lives = RecentLives(begins=NOW)
    late = NOW + timedelta(minutes=1)
    lives.vanish_pod("shop", "web-1", lambda: pod("web-1"), late)
    lives.observe_pod(pod("web-2", deleted=NOW), NOW)
    lives.observe_pod(pod("web-2", created=late), late)
    lives.vanish_pod("shop", "never-seen", lambda: None, late)
    assert [(life.name, life.gone) for life in lives.recording(late).pods] == [("web-1", late), ("web-2", late)]
