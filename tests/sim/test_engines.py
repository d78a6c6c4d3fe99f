"""Where the runs of a sweep execute: real Dask workers, killed workers, stopped and resumed sweeps."""

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.findings import InputError
from dovetail.cli.main import main
from dovetail.sim import engines, kept_runs
from dovetail.sim.compare import Task
from dovetail.sim.engines import run_tasks
from dovetail.sim.kept_runs import KeptRuns, run_kept, task_digest
from dovetail.sim.ledger import Result
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.sweep import document, figures_of, load_grid, tasks_of
from tests.paths import ROOT

SCENARIO = load_scenario("issue-7146")
MINUTES = 60 * 10**9
GRID = (
    "{base: both, vary: {consolidationGracePeriod: [Never, 10m], consolidationSavingsThreshold: [0, 0.01]}, seeds: 2}"
)


def _tasks(tmp_path: Path, minutes: int = 4) -> list[Task]:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID)
    return tasks_of(SCENARIO, load_grid(path, SCENARIO), minutes * MINUTES)


def _document(results: list[Result]) -> bytes:
    return msgspec.json.encode(document(SCENARIO, figures_of(results)))


@contextmanager
def _workers(count: int) -> Iterator[tuple[str, list[int], Any]]:
    """Start a scheduler and worker processes; return their address, the workers' process ids and the cluster."""
    distributed: Any = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=count,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
        host="127.0.0.1",
    ) as cluster:
        pids = [worker.pid for worker in cluster.workers.values()]
        yield f"dask://{cluster.scheduler_address.removeprefix('tcp://')}", pids, cluster


@pytest.mark.slow
@pytest.mark.xdist_group("dask")
def test_several_workers_work_and_a_killed_one_loses_nothing(tmp_path: Path) -> None:
    """Three Dask workers return the same bytes as the local engine, although one of them is killed."""
    tasks = _tasks(tmp_path)
    local = _document(run_tasks(tasks, "local"))
    killed: list[int] = []
    shares: list[float] = []
    came: list[int] = []
    with _workers(3) as (engine, pids, cluster):

        def kill_one(share: float) -> None:
            shares.append(share)
            if not killed and share > 0.3:
                killed.append(pids[0])
                os.kill(pids[0], signal.SIGKILL)

        with cluster.get_client() as watching:
            watching.get_task_stream()
            results = run_tasks(tasks, engine, kill_one, done=lambda place, _: came.append(place))
            ran = [entry["worker"] for entry in watching.get_task_stream() if "run_there" in str(entry["key"])]
    assert len(set(ran)) >= 2
    assert len(ran) >= len(tasks)
    assert killed
    assert _document(results) == local
    assert sorted(came) == list(range(len(tasks))), "each result comes once"
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.slow
@pytest.mark.xdist_group("dask")
def test_a_sweep_on_dask_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that ended before the stop are not repeated, even on another engine."""
    tasks = _tasks(tmp_path)
    folder = tmp_path / "kept"
    with _workers(2) as (engine, _, _):

        def stop(share: float) -> None:
            if share > 0.4:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_kept(tasks, engine, folder, stop)
    kept = len(list(folder.glob("*.run.gz")))
    assert 3 <= kept < len(tasks)
    asked: list[int] = []

    def counted(some: list[Task], *rest: Any, **options: Any) -> list[Result]:
        asked.append(len(some))
        return run_tasks(some, *rest, **options)

    monkeypatch.setattr(kept_runs, "run_tasks", counted)
    said: list[str] = []
    results = run_kept(tasks, "local", folder, note=said.append)
    assert asked == [len(tasks) - kept]
    assert f"{kept} of {len(tasks)} runs are in" in said[0]
    assert _document(results) == _document(run_tasks(tasks, "local"))


@pytest.mark.slow
@pytest.mark.xdist_group("dask")
def test_a_worker_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of two versions are never mixed: one sentence says what to install."""
    with _workers(1) as (engine, _, _):
        monkeypatch.setattr(engines, "code_digest", lambda: "another")
        with pytest.raises(InputError, match="install the same dovetail-k8s on every Dask worker"):
            run_tasks(_tasks(tmp_path, 1)[:1], engine)


@pytest.mark.slow
@pytest.mark.xdist_group("dask")
def test_a_scheduler_without_workers_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without workers it waits for a while, reports that, and then says how to start one."""
    monkeypatch.setattr(engines, "_WORKER_SECONDS", 1)
    said: list[str] = []
    with _workers(0) as (engine, _, _), pytest.raises(InputError, match=r"dask worker 127\.0\.0\.1:"):
        run_tasks(_tasks(tmp_path, 1)[:1], engine, note=said.append)
    assert "has no worker yet" in said[0]


# ---------------------------------------------------------------- stored runs


def test_kept_runs_come_back_whole(tmp_path: Path) -> None:
    """Stored figures, plots and timelines equal those of the run; other tasks are not found."""
    first, second, *_ = _tasks(tmp_path, 3)
    (result,) = run_tasks([first], "local")
    kept = KeptRuns(tmp_path / "kept")
    kept.save(first, result)
    assert kept.load(first) == result
    assert kept.load(second) is None
    scenario, policy, seed, until = first
    assert until is not None
    for other in ((scenario, policy, seed + 1, until), (scenario, policy, seed, until + 1), second):
        assert task_digest(other) != task_digest(first)


def test_runs_of_other_code_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade everything runs again."""
    (task, *_) = _tasks(tmp_path, 1)
    before = task_digest(task)
    monkeypatch.setattr(kept_runs, "code_digest", lambda: "another")
    assert task_digest(task) != before


@pytest.mark.parametrize("damage", ["cut", "empty", "no gzip", "no result", "hostile array"])
def test_a_damaged_file_is_run_again(damage: str, tmp_path: Path) -> None:
    """An unreadable file counts as missing and is rewritten."""
    task = _tasks(tmp_path, 1)[0]
    (result,) = run_kept([task], "local", tmp_path / "kept")
    (path,) = (tmp_path / "kept").glob("*.run.gz")
    whole = path.read_bytes()
    text = gzip.decompress(whole)
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "no gzip": b"x" * 100,
            "no result": gzip.compress(b"{}"),
            "hostile array": gzip.compress(text.replace(b'["d",', b'["u",', 1)),
        }[damage]
    )
    assert run_kept([task], "local", tmp_path / "kept") == [result]
    assert path.read_bytes() == whole


def test_the_command_goes_on_after_sigterm(tmp_path: Path) -> None:
    """A sweep that is stopped keeps its finished runs; resumed, it returns the same result as without a stop."""
    grid = tmp_path / "grid.yaml"
    grid.write_text("{base: both, vary: {consolidateAfter: [15s, 5m]}, seeds: 2}")
    words = [sys.executable, "-m", "dovetail.cli.main", "sweep", "issue-7146", "--grid", str(grid), "--until", "4m"]
    words += ["-o", "json"]
    kept = tmp_path / "kept"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        [*words, "--keep", str(kept)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    until = time.monotonic() + 600
    while len(list(kept.glob("*.run.gz"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode in (143, 0)
    done = len(list(kept.glob("*.run.gz")))
    assert done >= 2
    again = subprocess.run([*words, "--keep", str(kept)], capture_output=True, check=True, env=environment)
    assert f"{done} of 6 runs are in".encode() in again.stderr
    if process.returncode == 143:
        assert b"the same command goes on from there" in said
    whole = subprocess.run(words, capture_output=True, check=True, env=environment)
    assert again.stdout == whole.stdout


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that can't be created fails with one sentence and exit status 2."""
    grid = tmp_path / "grid.yaml"
    grid.write_text("{base: both, vary: {consolidateAfter: [15s]}, seeds: 1}")
    assert main(["sweep", "issue-7146", "--grid", str(grid), "--until", "1m", "--keep", str(grid)]) == 2
    assert "--keep" in capsys.readouterr().err
