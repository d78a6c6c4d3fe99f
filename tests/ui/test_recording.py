"""The live view of a recording: any moment, the cluster of that moment, and what had happened by then."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.cli.simulation.replay import recorded_page
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Condition, Node, NodeClaim, NodeClaimStatus, ObjectMeta
from dovetail.model.settings import DOVETAIL
from dovetail.recordings.read import ClusterRecording, load_cluster_recording
from dovetail.sim.pages.run_document import why
from dovetail.sim.recorded_timeline import real_result
from dovetail.ui.commands import commands_of, drains_of
from dovetail.ui.lives import LivesSeen, lives_document
from dovetail.ui.recorded import RecordingSource, recorded_past
from dovetail.ui.watcher import Watcher
from tests.paths import ROOT

_DATA = ROOT / "tests/recordings/data"
_SCHEMA = ROOT / "src/dovetail/report/schemas/live.schema.json"
_NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def recording() -> ClusterRecording:
    """Return 26 minutes of a real Karpenter."""
    return load_cluster_recording(_DATA / "off-peak")


@pytest.fixture(scope="module")
def watcher(recording: ClusterRecording) -> Watcher:
    """Return what watches the recording, standing still."""
    catalogue = load_catalogue(_DATA / "kwok-types.json.gz")
    source = RecordingSource("off-peak", recording, catalogue, DOVETAIL, speed=0)
    return Watcher(source, *recorded_past(recording, catalogue))


def _at(watcher: Watcher, seconds: float) -> dict[str, Any]:
    assert watcher.go_to(seconds)
    watcher.look()
    assert watcher.document is not None
    return watcher.document


def test_every_moment_is_the_recordings_own(recording: ClusterRecording, watcher: Watcher) -> None:
    """Nodes and time are those of the moment, forward and back; the document keeps its schema."""
    for seconds in (600, 1500, 300, 0):
        document = _at(watcher, seconds)
        jsonschema.validate(json.loads(json.dumps(document)), json.loads(_SCHEMA.read_text()))
        now = recording.begins + timedelta(seconds=seconds)
        there = {node.metadata.name for node in recording.cluster_at(now).nodes}
        assert set(document["plan"]["nodes"]["name"]) == there
        assert datetime.fromisoformat(document["now"]) == now
        assert document["source"]["position"] == seconds
        assert all(datetime.fromisoformat(entry["at"]) <= now for entry in document["history"]["events"])


def test_what_can_not_be_gone_to_is_refused(watcher: Watcher) -> None:
    """A moment before the start or after the end is refused, and nothing moves."""
    _at(watcher, 60)
    for seconds in (-1, 10**6, float("nan")):
        assert not watcher.go_to(seconds)
    assert watcher.source.status().position == 60


def test_what_karpenter_drains_is_shown(recording: ClusterRecording, watcher: Watcher) -> None:
    """While a node that Karpenter took is on its way out, a drain with its reason is under way, without savings."""
    claim = next(one for one in recording.claims if one.reason and one.deleting is not None and one.gone is not None)
    assert claim.deleting is not None
    document = _at(watcher, (claim.deleting - recording.begins).total_seconds() + 1)
    (command,) = [entry for entry in document["commands"] if claim.node in entry["nodes"]]
    assert (command["action"], command["reason"], command["by"]) == ("drain", "Underutilized", "Karpenter")
    assert document["money"]["savedSoFar"] is None


def test_a_recording_shows_the_lives_of_all_its_nodes(recording: ClusterRecording, watcher: Watcher) -> None:
    """Each claim is a bar from its launch to its end, before the reader has come there."""
    lives = _at(watcher, 0)["lives"]
    assert len(lives["name"]) == len(recording.claims)
    assert sum(end >= 0 for end in lives["ended"]) == sum(claim.gone is not None for claim in recording.claims)
    assert lives["fate"].count("cost") == sum(claim.reason == "Underutilized" for claim in recording.claims)
    assert sum(map(len, lives["moved"])) == 112


def test_a_page_claims_no_savings_of_what_was_recorded(recording: ClusterRecording) -> None:
    """A recording does not say what a command saved or promised, and neither does its page."""
    result = real_result(recording, load_catalogue(_DATA / "kwok-types.json.gz"))
    page = recorded_page(recording, (result,), "off-peak")
    assert "nodes were taken for cost 16 times" in page
    assert "Nothing was simulated, so no promise was watched." in page
    assert "saved nothing" not in page
    told = {why(taken, result.timeline) for taken in result.timeline.commands}
    assert all("to save money" in text for text in told)


def _node(name: str, minutes: int) -> Node:
    created = _NOON - timedelta(minutes=minutes)
    return Node(metadata=ObjectMeta(name=name, creation_timestamp=created, labels={"karpenter.sh/nodepool": "p"}))


def _claim(name: str, node: str, reason: str) -> NodeClaim:
    why = (Condition(type="DisruptionReason", status="True", reason=reason),) if reason else ()
    return NodeClaim(
        metadata=ObjectMeta(name=name, deletion_timestamp=_NOON),
        status=NodeClaimStatus(node_name=node, conditions=why),
    )


def test_lives_end_with_the_reason_of_what_took_them() -> None:
    """A node that is no longer found has ended: for the reason of its command or drain, else as removed."""
    nodes = (_node("a", 10), _node("b", 20), _node("c", 5))
    cluster = Cluster(nodes=nodes, node_claims=(_claim("x", "a", "Drifted"), _claim("y", "b", "")))
    lives = LivesSeen()
    lives.take(_NOON, cluster, {"a": 0.1}, drains_of(cluster, commands_of(cluster)))
    lives.take(_NOON, cluster, {"a": 0.1}, drains_of(cluster, commands_of(cluster)))
    lives.take(_NOON + timedelta(minutes=1), Cluster(nodes=nodes[2:]), {}, ())
    found = lives_document(lives.lives(), _NOON.timestamp())
    assert found["name"] == ["a", "b", "c"]
    assert found["fate"] == ["drifted", "removed", "kept"]
    assert found["started"] == [-600, -1200, -300]
    assert found["leaving"] == [0, 0, -1]
    assert found["ended"] == [60, 60, -1]
    assert found["price"][0] == 0.1


def test_drains_group_by_moment_and_reason() -> None:
    """Claims that leave at one moment for one reason are one drain; those of a command with a record are none."""
    cluster = Cluster(node_claims=(_claim("x", "a", "Empty"), _claim("y", "b", "Empty"), _claim("z", "c", "")))
    assert [(entry.nodes, entry.reason, entry.by) for entry in drains_of(cluster, commands_of(cluster))] == [
        (("c",), "", "hand or its pool"),
        (("a", "b"), "Empty", "Karpenter"),
    ]
