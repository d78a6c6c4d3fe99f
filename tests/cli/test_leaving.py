"""How the process ends: what a large cluster was read into is left to the system, everything else ends as usual."""

import subprocess
import sys

import pytest

from dovetail.cli.main import main
from tests.paths import SHARED, needs_shared

LEAVE = """
import argparse, gc
from dovetail.cli.inputs import leave_as_it_is
class Loud:
    def __del__(self):
        print("freed")
def run():
    leave_as_it_is(argparse.Namespace(last={last}), Loud(), Loud())
    print("frozen" if gc.get_freeze_count() else "as usual")
    other = Loud()
run()
"""


@pytest.mark.parametrize(
    ("last", "printed"), [(False, ["freed", "freed", "as usual", "freed"]), (True, ["frozen", "freed"])]
)
def test_what_is_left_is_never_taken_apart(*, last: bool, printed: list[str]) -> None:
    """Only what a command names is left as it is, and only if the process ends with it."""
    done = subprocess.run([sys.executable, "-c", LEAVE.format(last=last)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [*printed, ""]


@needs_shared
@pytest.mark.parametrize("last", [False, True])
def test_a_plan_leaves_its_cluster(*, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is by far the largest thing that a command makes; a process that goes on frees it."""
    frozen = []
    monkeypatch.setattr("dovetail.cli.inputs.gc.freeze", lambda: frozen.append(True))
    folder = SHARED / "golden" / "001"
    files = ["-f", str(folder / "cluster.json.gz"), "--catalog", str(folder / "catalog.json.gz")]
    assert main(["plan", *files, "-o", "json"], last=last) == 0
    assert len(frozen) == 1 + last  # once after reading, in any case
