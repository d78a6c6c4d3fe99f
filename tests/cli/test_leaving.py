"""How the process ends: the operating system frees a large cluster's memory; everything else is freed as usual."""

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
    """Only objects that a command names are not freed, and only if the process ends with the command."""
    done = subprocess.run([sys.executable, "-c", LEAVE.format(last=last)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [*printed, ""]


@needs_shared
@pytest.mark.parametrize("last", [False, True])
def test_a_plan_leaves_its_cluster(*, last: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is a command's largest object by far; a process that continues frees it."""
    frozen = []
    monkeypatch.setattr("dovetail.cli.inputs.gc.freeze", lambda: frozen.append(True))
    folder = SHARED / "golden" / "001"
    files = ["-f", str(folder / "cluster.json.gz"), "--catalog", str(folder / "catalog.json.gz")]
    assert main(["plan", *files, "-o", "json"], last=last) == 0
    assert len(frozen) == 1 + last  # always once, after reading
