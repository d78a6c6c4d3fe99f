"""Fixtures with a real API server; `tests/conftest.py` hands them to every test.

- `api_server`: one etcd and kube-apiserver for the whole run, with our CRDs installed. Tests share it: use names of
  your own, or `dryRun`.
- `cluster`: another, with kube-scheduler and kube-controller-manager, for end-to-end tests.
- `new_api_server`: a function that starts one more, for tests that break it.
Where the programs are missing these skip and say so; with DOVETAIL_REQUIRE_ASSETS set they fail instead.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dovetail.api.crds.definitions import crds
from tests.support import control_plane as planes

MISSING = "no real API server to test against: run `make assets`"
FAILED_FILE = "DOVETAIL_FAILED_FILE"
"""Environment variable: where `tools/run_tests.py` wants to read which tests failed."""
REAL = {"e2e", "apiserver", "browser"}  # marks of tests that wait on real programs
GROUPS = {"api_server": "apiserver", "new_api_server": "apiserver", "cluster": "cluster"}  # fixture: xdist group


def require(programs: Sequence[str]) -> None:
    """Skip the test, or fail it where skipping was ruled out, unless the programs are there."""
    absent = planes.missing(programs)
    if not absent:
        return
    reason = f"{MISSING} (missing in {planes.assets_folder()}: {', '.join(absent)})"
    if os.environ.get("DOVETAIL_REQUIRE_ASSETS"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[planes.ControlPlane]:
    """Run one API server for all tests that share it, with our CRDs."""
    require(planes.PROGRAMS)
    with planes.control_plane(tmp_path_factory.mktemp("apiserver")) as plane:
        _install(plane)
        yield plane


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[planes.ControlPlane]:
    """Run a whole control plane for the end-to-end tests, with our CRDs."""
    require(planes.PROGRAMS_OF_A_CLUSTER)
    with planes.control_plane(tmp_path_factory.mktemp("cluster"), whole=True) as plane:
        _install(plane)
        yield plane


@pytest.fixture
def new_api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., planes.ControlPlane]]:
    """Return a function that starts an API server; `whole=True` adds the rest, `install=False` leaves out CRDs."""
    with contextlib.ExitStack() as stack:

        def begin(*, whole: bool = False, install: bool = True) -> planes.ControlPlane:
            require(planes.PROGRAMS_OF_A_CLUSTER if whole else planes.PROGRAMS)
            plane = stack.enter_context(planes.control_plane(tmp_path_factory.mktemp("own"), whole=whole))
            if install:
                _install(plane)
            return plane

        yield begin


def _install(plane: planes.ControlPlane) -> None:
    with plane.client() as client:
        client.install_crds(crds())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test that uses a plane, and keep those that share one on one worker (xdist reads that right after)."""
    used = sorted({GROUPS[name] for name in getattr(item, "fixturenames", ()) if name in GROUPS})
    if used:
        item.add_marker("e2e" if "cluster" in used else "apiserver")
        item.add_marker(pytest.mark.xdist_group(used[-1]))


def _note_failed(path: Path, reporter: pytest.TerminalReporter) -> None:
    """Write a line for every failed test: whether it waits on real programs, and its name."""
    reports = [report for kind in ("failed", "error") for report in reporter.stats.get(kind, ())]
    kinds = ["real" if REAL & set(getattr(report, "keywords", ())) else "other" for report in reports]
    names = [re.sub(r"@[a-z]+$", "", report.nodeid) for report in reports]  # xdist adds the group behind an @
    lines = [f"{kind}\t{name}\n" for kind, name in zip(kinds, names, strict=True)]
    path.write_text("".join(lines))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, where it can't be missed, that tests did not run for want of an API server."""
    if FAILED_FILE in os.environ:
        _note_failed(Path(os.environ.pop(FAILED_FILE)), terminalreporter)
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if MISSING in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests did not run: {MISSING}", red=True, bold=True)
