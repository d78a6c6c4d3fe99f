"""Worker processes: results in order, reported failures, and one Ctrl-C that ends everything."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dovetail.api.findings import InputError
from dovetail.sim.workers import Progress, run_in_workers

ROOT = Path(__file__).parents[2]


def _double(task: int, progress: Progress) -> int:
    progress(0.5)
    return 2 * task


def _fail(task: int, progress: Progress) -> int:
    raise InputError(f"task {task} can't be done")


def _die(task: int, progress: Progress) -> int:
    os._exit(9)


def test_results_come_in_the_order_of_the_tasks() -> None:
    """Results have the order of the tasks, whichever finishes first."""
    shares: list[float] = []
    assert run_in_workers(_double, list(range(7)), 2, shares.append) == [0, 2, 4, 6, 8, 10, 12]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_failure_is_the_callers() -> None:
    """An exception of a task is raised in the caller."""
    with pytest.raises(InputError, match="can't be done"):
        run_in_workers(_fail, [1, 2], 2)


def test_a_worker_that_dies_is_said() -> None:
    """A killed worker ends the wait with one sentence."""
    with pytest.raises(InputError, match="ended in the middle"):
        run_in_workers(_die, [1, 2], 2)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("workers", ["simulate", "sweep"])
def test_one_signal_ends_everything(number: signal.Signals, status: int, workers: str, tmp_path: Path) -> None:
    """The whole process group ends with the right status, says nothing, and leaves no process behind.

    A terminal sends Ctrl-C to every process of the group, workers included.
    """
    grid = tmp_path / "grid.yaml"
    grid.write_text("vary: {consolidateAfter: [15s, 30s, 45s]}\nseeds: 5\n")
    asked = ["simulate", "issue-7146"] if workers == "simulate" else ["sweep", "issue-7146", "--grid", str(grid)]
    program = [sys.executable, "-m", "dovetail.cli.main", *asked, "--until", "7d"]
    process = subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, cwd=ROOT
    )
    try:
        _wait_for_workers(process)
        os.killpg(process.pid, number)
        if number is signal.SIGINT:
            time.sleep(0.05)
            os.killpg(process.pid, number)  # a second, impatient Ctrl-C
        out, err = process.communicate(timeout=60)
        noise = [line for line in err.splitlines() if b"% " not in line and b"%," not in line]  # except progress
        assert (process.returncode, out, noise) == (status, b"", [])
        _wait_for_nobody(process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_nobody(group: int) -> None:
    """Wait until the last process of the group is gone: Python's resource tracker leaves a moment after the others."""
    deadline = time.monotonic() + 60
    while (left := _members(group)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _wait_for_workers(process: "subprocess.Popen[bytes]") -> None:
    """Wait until the workers run, or, on one core, the run itself."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if len(_members(process.pid)) >= 3 or (os.cpu_count() == 1 and time.monotonic() > deadline - 55):
            return
        time.sleep(0.05)
    raise AssertionError(f"no workers came: {process.stderr.read() if process.stderr else ''!r}")


def _members(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found
