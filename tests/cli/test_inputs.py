import argparse
import gc
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.api.findings import InputError
from dovetail.cli.inputs import (
    add_input_options,
    check_now,
    load_cluster_option,
    load_question,
    moment_of,
    quiet_collector,
)
from dovetail.model.cluster import Cluster
from dovetail.model.settings import CandidateOrder, Profile

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"topology.kubernetes.io/region": "us-east-1"}},
}


def parsed(*arguments: str) -> argparse.Namespace:
    """Parse the shared options."""
    parser = argparse.ArgumentParser()
    add_input_options(parser)
    return parser.parse_args(arguments)


def captured(folder: Path, *objects: object) -> str:
    """Write a captured cluster."""
    file = folder / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return str(file)


def test_everything_together(tmp_path: Path) -> None:
    """The options read files, settings over a profile, a moment, and the catalogue of the nodes' region."""
    settings = tmp_path / "settings.yaml"
    settings.write_text("candidateOrder: disruption-cost\n")
    inputs = load_question(
        parsed(
            *("-f", captured(tmp_path, NODE), "--partial", "--profile", "karpenter-1.15"),
            *("--settings", str(settings), "--now", "2026-03-14T16:30:00+01:00"),
        )
    )
    assert inputs.now == datetime(2026, 3, 14, 15, 30, tzinfo=UTC)
    assert inputs.settings.profile is Profile.KARPENTER_1_15
    assert inputs.settings.candidate_order is CandidateOrder.DISRUPTION_COST
    assert [node.metadata.name for node in inputs.cluster.nodes] == ["n"]
    assert len(inputs.catalogue.instance_types) > 100


def test_several_files_and_several_times(tmp_path: Path) -> None:
    """`-f a b -f c` reads all three files."""
    assert parsed("-f", "a", "b", "-f", "c").files == ["a", "b", "c"]


def test_what_was_passed_over_is_counted_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown kinds are counted on standard error, and standard output has only the result."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    load_cluster_option(parsed("-f", captured(tmp_path, NODE, secret, secret)))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == "note: passed over 2 Secret (not needed)\n"


def test_without_files_a_live_cluster_is_captured_where_that_is_possible() -> None:
    """A command can provide a way to capture a live cluster; otherwise -f is required."""
    live = Cluster()
    assert load_cluster_option(parsed(), capture=lambda: live) is live
    with pytest.raises(InputError, match="-f"):
        load_cluster_option(parsed())


def test_no_region_and_no_catalogue(tmp_path: Path) -> None:
    """--catalog is required if no node has a region."""
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}}
    with pytest.raises(InputError, match="--catalog"):
        load_question(parsed("-f", captured(tmp_path, pool)))


@pytest.mark.parametrize("text", ["yesterday", "2026-03-14", "2026-03-14T15:30:00", "", "12"])
def test_a_moment_needs_its_zone(text: str) -> None:
    """An invalid moment is rejected with an example."""
    with pytest.raises(InputError, match="2026-03-14T15:30:00Z"):
        check_now(text)


def test_now_is_now_by_default() -> None:
    """The default moment is now, in UTC."""
    assert moment_of(None, Cluster()).tzinfo is UTC
    assert moment_of("2026-03-14T15:30:00Z", Cluster()) == datetime(2026, 3, 14, 15, 30, tzinfo=UTC)


def test_the_collector_is_on_again_after_loading() -> None:
    """Loading pauses the garbage collector and turns it on again, even after a failure."""

    def fail() -> None:
        with quiet_collector():
            assert not gc.isenabled()
            raise InputError("x")

    assert gc.isenabled(), "no other test has left it off"
    with pytest.raises(InputError):
        fail()
    assert gc.isenabled()
