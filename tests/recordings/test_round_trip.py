"""What is written is what is read: a simulated hour, recorded and read again."""

from datetime import datetime, timedelta
from pathlib import Path

from dovetail.model.cluster import Cluster
from dovetail.model.settings import KARPENTER_1_15
from dovetail.recordings.read import ClusterRecording, load_cluster_recording
from dovetail.sim.scenarios.scenario import Policy, load_scenario
from dovetail.sim.world.clock import SECOND
from tests.support.recorded_world import record_run

KARPENTER = Policy(name="karpenter-1.15", settings=KARPENTER_1_15)
LOOKS = (1, 600, 1800, 2500, 3300)


def _recorded(folder: Path) -> tuple[ClusterRecording, dict[datetime, Cluster]]:
    seen: dict[datetime, Cluster] = {}
    record_run(
        load_scenario("issue-7146"),
        KARPENTER,
        folder,
        length=3300 * SECOND,
        file_length=timedelta(minutes=25),
        looks=LOOKS,
        look=lambda at, cluster: seen.update({at: cluster}),
    )
    return load_cluster_recording(folder), seen


def _wanted(cluster: Cluster) -> dict[str, object]:
    return {
        pod.metadata.name: ([each.resources for each in pod.spec.containers], pod.metadata.labels, pod.spec.affinity)
        for pod in cluster.pods
    }


def test_the_cluster_is_read_back_at_any_time(tmp_path: Path) -> None:
    """Nodes, claims, pools and bound pods are the same at every look, also after a new file has begun."""
    recording, seen = _recorded(tmp_path)
    assert len(list(tmp_path.glob("*.ndjson.gz"))) == 3
    assert len(seen) == len(LOOKS)
    for at, there in seen.items():
        read = recording.cluster_at(at)
        assert {node.metadata.name for node in read.nodes} == {node.metadata.name for node in there.nodes}
        assert {each.metadata.name for each in read.node_claims} == {each.metadata.name for each in there.node_claims}
        assert [pool.spec for pool in read.node_pools] == [pool.spec for pool in there.node_pools]
        where = {(pod.metadata.name, pod.spec.node_name) for pod in there.pods}
        assert {(pod.metadata.name, pod.spec.node_name) for pod in read.pods} == where
        assert _wanted(read) == _wanted(there)


def test_lives_are_whole(tmp_path: Path) -> None:
    """Each claim has its type, price and stamps; evicted pods say that they were evicted; nothing is a gap."""
    recording, _ = _recorded(tmp_path)
    assert recording.gaps == ()
    assert recording.ends - recording.begins >= timedelta(seconds=3300)
    assert all(claim.price is not None and claim.instance_type and claim.created for claim in recording.claims)
    ended = [claim for claim in recording.claims if claim.gone is not None]
    assert ended
    assert all(claim.deleting is not None for claim in ended)
    evicted = [pod for pod in recording.pods if pod.why == "evicted"]
    assert evicted
    assert all(pod.gone is not None and pod.gone >= pod.created for pod in evicted)
