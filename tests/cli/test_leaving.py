"""How the process ends: what a large cluster was read into is left to the system, everything else ends as usual."""

import subprocess
import sys

import pytest

from dovetail.cli.main import main
from tests.paths import SHARED, needs_shared

LEAVE = """
import gc
from dovetail.cli.main import _leave_as_it_is
class Loud:
    def __del__(self):
        print("freed")
held = [Loud() for _ in range({count})]
_leave_as_it_is(held)
print("frozen" if gc.get_freeze_count() else "as usual")
del held
def pass_by():
    other = Loud()
pass_by()
"""


@pytest.mark.parametrize(("count", "printed"), [(0, ["as usual", "freed"]), (2, ["frozen", "freed"])])
def test_what_is_held_is_never_taken_apart(count: int, printed: list[str]) -> None:
    """Only what a command asked for is left as it is."""
    done = subprocess.run([sys.executable, "-c", LEAVE.format(count=count)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [*printed, ""]


@needs_shared
def test_a_plan_holds_its_cluster_and_others_hold_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """The cluster is by far the largest thing that a command makes."""
    folder, held = SHARED / "golden" / "001", []
    files = ["-f", str(folder / "cluster.json.gz"), "--catalog", str(folder / "catalog.json.gz")]
    assert main(["plan", *files, "-o", "json"], held) == 0
    assert len(held) == 1
    assert main(["budgets", *files], held) == 0
    assert len(held) == 1
    assert capsys.readouterr().out
