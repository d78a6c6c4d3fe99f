"""Fixtures of the end-to-end tests: a clean world, and a controller with the built-in provider for a whole module."""

import contextlib
from collections.abc import Generator, Iterator

import pytest

from tests.support.control_plane import ControlPlane
from tests.support.controller import Process, controller
from tests.support.e2e_world import World, write_catalogue, write_settings
from tests.support.history import History, history_of

_failed: list[str] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test on the cluster went wrong."""
    report = yield
    if report.failed:
        _failed.append(item.nodeid)
        found = getattr(item, "funcargs", {}).get("world")
        if isinstance(found, World):
            with contextlib.suppress(Exception):  # a cluster that is gone has nothing to say
                report.sections.append(("the cluster", found.inventory()))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, where it can't be missed, that Karpenter itself was not there."""
    skipped = [each for each in terminalreporter.stats.get("skipped", ()) if "KARPENTER_BIN" in str(each.longrepr)]
    if skipped:
        line = f"{len(skipped)} tests beside the real Karpenter did not run: set KARPENTER_BIN"
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture
def world(cluster: ControlPlane) -> Iterator[World]:
    """Yield the cluster, empty before and after."""
    with cluster.client() as client:
        found = World(client, cluster.wait_for_controllers)
        if _failed:  # one that went wrong must not take the next one down
            _failed.clear()
            cluster.mend()
        found.wipe()
        yield found
        found.wipe()


@pytest.fixture
def history(cluster: ControlPlane) -> Iterator[History]:
    """Record all changes of nodes and claims during the test."""
    with history_of(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def running(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Yield one controller for the module, with the built-in provider; each test creates its own pools."""
    folder = tmp_path_factory.mktemp("controller")
    flags = ("--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(folder)))
    with controller(
        folder, "dovetail", *flags, "--settings", str(write_settings(folder)), "--provider", "simulated"
    ) as process:
        yield process
