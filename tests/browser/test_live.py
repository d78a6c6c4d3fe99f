"""`dovetail ui` in a real browser: it updates, reconnects, opens nodes, changes its speed and fits the screen."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.chromium import AXE, Tab, barriers, find, tab
from tests.support.golden_cases import DATA

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(find() is None, reason="no Chromium or no Playwright here: install chromium, and the dev group"),
]
SIMULATION = ("--scenario", "issue-7146", "--policy", "karpenter-1.15", "--speed", "10")


class Served:
    """A running `dovetail ui`."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address

    @property
    def port(self) -> int:
        """Return the port that the server listens on."""
        return int(re.findall(r":(\d+)/", self.address)[0])

    def end(self) -> None:
        """Stop the server as Ctrl-C would."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(timeout=30) == 130


@contextmanager
def serving(*arguments: str, port: int = 0) -> Iterator[Served]:
    """Run the command and wait until it prints its address."""
    command = [sys.executable, "-m", "dovetail.cli.main", "ui", "--listen", f"localhost:{port}", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stderr is not None
    try:
        for line in process.stderr:
            found = re.search(r"open (http://\S+)", line)
            if found:
                yield Served(process, found[1])
                break
        else:
            raise AssertionError("it ended before it listened")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def simulation() -> Iterator[Served]:
    """Yield a simulation that runs ten times faster than real time."""
    with serving(*SIMULATION) as served:
        yield served


def _open(browser: Tab, served: Served) -> None:
    browser.open(served.address)
    browser.page.wait_for_selector(".live-status.live", timeout=60_000)


def _version(browser: Tab) -> int:
    return int(browser.page.evaluate("document.documentElement.dataset.version"))


def test_it_updates_by_itself(simulation: Served) -> None:
    """The time advances without any input, and every part of the view is shown."""
    with tab() as browser:
        _open(browser, simulation)
        page = browser.page
        before, said = _version(browser), page.locator(".live-status").inner_text()
        browser.wait(f"Number(document.documentElement.dataset.version) > {before + 1}")
        assert page.locator(".live-status").inner_text() != said
        for heading in ("Happening now", "What comes next, and when", "Held back", "Since the start", "Over time"):
            assert page.get_by_role("heading", name=heading).is_visible()
        assert page.locator(".cal-row").count() >= 1
        assert page.locator(".rows .link").count() > 3
        assert {url.split("/")[2] for url in browser.outside} == {simulation.address.split("/")[2]}
        assert browser.problems == []


def test_the_speed_can_be_set(simulation: Served) -> None:
    """Pausing stops the simulated time but not real time."""
    with tab() as browser:
        _open(browser, simulation)
        page = browser.page
        speeds = page.get_by_role("group", name="Speed of the simulation")
        speeds.get_by_role("button", name="pause").click()
        page.wait_for_selector(".speed [aria-pressed=true]:has-text('pause')", timeout=30_000)
        page.wait_for_timeout(1500)
        stopped = page.locator(".live-status").inner_text()
        page.wait_for_timeout(2500)
        assert page.locator(".live-status").inner_text() == stopped
        speeds.get_by_role("button", name="1m/s").click()
        page.wait_for_selector(".speed [aria-pressed=true]:has-text('1m/s')", timeout=30_000)
        browser.wait(f"document.querySelector('.live-status').innerText !== {stopped!r}")


def test_a_node_is_explained_on_demand(simulation: Served) -> None:
    """Opening a node asks the server where its pods would go and what would change the verdict."""
    with tab() as browser:
        _open(browser, simulation)
        page = browser.page
        page.locator(".rows .link").first.click()
        panel = page.locator("aside.details")
        panel.get_by_text("Every check").wait_for(timeout=30_000)
        browser.wait("!document.querySelector('aside.details').innerText.includes('asking')")
        assert any("/api/node?name=" in url for url in browser.fetched)
        assert browser.problems == []


def test_it_reconnects(tmp_path: Path) -> None:
    """The page reports a lost server; when a server is back, it continues with the history of the file."""
    history = str(tmp_path / "history.sqlite")
    with tab() as browser:
        with serving(*SIMULATION, "--history", history) as served:
            port = served.port
            _open(browser, served)
            browser.page.wait_for_timeout(2500)
            served.end()
        browser.page.wait_for_selector(".live-status.lost", timeout=30_000)
        assert "reconnecting" in browser.page.locator(".live-status").inner_text()
        with serving(*SIMULATION, "--history", history, port=port) as served:
            browser.page.wait_for_selector(".live-status.live", timeout=60_000)
            served.end()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_keeps_nobody_out(simulation: Served, width: int, scheme: str) -> None:
    """The page does not overflow at 390 pixels, and axe-core finds nothing moderate or worse, in light and dark."""
    with tab(width, scheme=scheme) as browser:
        _open(browser, simulation)
        assert browser.wide() <= width
        if AXE.is_file():
            assert barriers(browser.page) == []
        assert browser.problems == []


def test_a_capture_can_be_looked_at() -> None:
    """A captured cluster has the same view, with a fixed time and no speed control."""
    case = DATA / "045"
    inputs = ("-f", str(case / "cluster.json.gz"), "--catalog", str(case / "catalog.json.gz"))
    with serving(*inputs, "--now", "2026-05-13T15:30:00Z") as served, tab() as browser:
        _open(browser, served)
        assert browser.page.locator(".rows .link").count() > 3
        assert browser.page.locator(".speed button").count() == 0
        assert browser.problems == []
