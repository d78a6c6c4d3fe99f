"""`dovetail rollout status` and bad input: one sentence with the option, the status 2, and no traceback."""

from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.golden_cases import DATA

CASE = DATA / "003"
INPUTS = ("-f", str(CASE / "cluster.json.gz"), "--catalog", str(CASE / "catalog.json.gz"))

BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "a pool that is not there": (("wbe", *INPUTS), 'there is no NodePool "wbe"; there are: '),
    "waiting for a file": ((*INPUTS, "--wait"), "--wait needs a live cluster; a file does not change"),
    "a share without --wait": ((*INPUTS, "--at-least", "90%"), "--at-least and --timeout go with --wait"),
    "a limit without --wait": ((*INPUTS, "--timeout", "5m"), "--at-least and --timeout go with --wait"),
    "a share that is none": (("--wait", "--at-least", "most"), "--at-least is"),
    "a share above all": (("--wait", "--at-least", "190%"), "--at-least is"),
    "a limit that is none": (("--wait", "--timeout", "soon"), "--timeout is"),
    "a limit below 0": (("--wait", "--timeout=-5m"), "--timeout is"),
    "a file that is not there": (("-f", "/nowhere/cluster.json"), "/nowhere/cluster.json"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_sentence(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names what is wrong before anything is asked of a cluster."""
    words, wanted = BAD[case]
    assert main(["rollout", "status", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert wanted in " ".join(said.err.split())
    assert "Traceback" not in said.err


def test_a_cluster_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kubeconfig that is missing is one sentence, too."""
    assert main(["rollout", "status", "--kubeconfig", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert "none" in said
    assert "Traceback" not in said
