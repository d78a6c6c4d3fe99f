"""`dovetail ui` in a real browser: it updates, reconnects, opens nodes, changes its speed and fits the screen."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import AXE, TRIED_FONTS, Tab, barriers, find, tab
from tests.paths import ROOT
from tests.support.golden_cases import DATA

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(find() is None, reason="no Chromium or no Playwright here: install chromium, and the dev group"),
]
SIMULATION = ("--scenario", "issue-7146", "--policy", "karpenter-1.15", "--speed", "10")


RECORDED = ROOT / "tests" / "recordings" / "data"
RECORDING = (str(RECORDED / "off-peak"), "--catalog", str(RECORDED / "kwok-types.json.gz"), "--speed", "0")
PARTS = [
    "Happening now",
    "What comes next, and when",
    "Rolls",
    "The cluster at a glance",
    "Every node's life",
    "Over time",
    "Held back",
    "Since the start",
    "Promised and kept, an hour later",
    "How many nodes may leave, the coming week",
    "What is paid",
    "Every node, and why",
]
"""The parts of the live view, in order, whatever it looks at; warnings come last, if there are any."""


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
def recording() -> Iterator[Served]:
    """Yield a recording of a real Karpenter that stands still until a reader moves it."""
    with serving(*RECORDING) as served:
        yield served


@pytest.fixture(scope="module")
def simulation() -> Iterator[Served]:
    """Yield a simulation that runs ten times faster than real time."""
    with serving(*SIMULATION) as served:
        yield served


def _open(browser: Tab, served: Served) -> None:
    browser.open(served.address)
    browser.page.wait_for_selector(".live-status.live, .live-status.still", timeout=60_000)


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
        assert page.locator(".cal-row").count() >= 1
        assert page.locator(".rows .link").count() > 3
        assert {url.split("/")[2] for url in browser.outside} == {simulation.address.split("/")[2]}
        assert browser.problems == []


def test_the_speed_can_be_set(simulation: Served) -> None:
    """Pausing stops the simulated time but not real time."""
    with tab() as browser:
        _open(browser, simulation)
        page = browser.page
        speeds = page.get_by_role("group", name="Speed")
        speeds.get_by_role("button", name="pause").click()
        page.wait_for_selector(".live-time [aria-pressed=true]:has-text('pause')", timeout=30_000)
        page.wait_for_timeout(1500)
        stopped = page.locator(".live-status").inner_text()
        page.wait_for_timeout(2500)
        assert page.locator(".live-status").inner_text() == stopped
        speeds.get_by_role("button", name="1m/s").click()
        page.wait_for_selector(".live-time [aria-pressed=true]:has-text('1m/s')", timeout=30_000)
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


def _parts(browser: Tab) -> list[str]:
    found = browser.page.locator("h2").all_inner_texts()
    return found[:-1] if found[-1] == "Warnings" else found


def test_all_sources_have_one_layout(simulation: Served, recording: Served) -> None:
    """A simulation, a recording and a capture have the same parts, in the same order, each with something in it."""
    case = DATA / "045"
    inputs = ("-f", str(case / "cluster.json.gz"), "--catalog", str(case / "catalog.json.gz"))
    with serving(*inputs, "--now", "2026-05-13T15:30:00Z") as capture:
        for served in (simulation, recording, capture):
            with tab() as browser:
                _open(browser, served)
                assert _parts(browser) == PARTS
                for section in browser.page.locator("section.view").all():
                    lines = section.inner_text().strip().splitlines()
                    assert len(lines) > 1, lines
                assert browser.page.get_by_role("group", name="Time control").is_visible()
                assert browser.page.locator(".plots").is_visible() == (served is not capture)
                assert browser.problems == []


def test_a_recording_can_be_wound(recording: Served) -> None:
    """The slider, a bar of the lanes and the keyboard go to a moment; the cluster shown is that moment's."""
    with tab() as browser:
        _open(browser, recording)
        page = browser.page
        slider = page.get_by_role("slider", name="Time")
        slider.fill("600")
        browser.wait("/10m of 26m/.test(document.querySelector('.live-time').innerText)")
        browser.wait("/01:27:05 UTC/.test(document.querySelector('.live-status').innerText)")
        browser.wait("/^11 nodes/.test(document.querySelector('.totals').innerText)")
        assert "delete for cost of" in page.locator(".events").inner_text()
        slider.press("ArrowLeft")
        browser.wait("/01:27:00 UTC/.test(document.querySelector('.live-status').innerText)")
        page.locator(".lanes-stage").press("ArrowDown")
        page.locator(".lanes-stage").press("Enter")
        browser.wait("!/01:27:00 UTC/.test(document.querySelector('.live-status').innerText)")
        slider.fill("0")
        browser.wait("/^0 nodes/.test(document.querySelector('.totals').innerText)")
        assert page.locator(".events").inner_text().strip() == "Nothing yet."
        assert browser.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("kind", ["simulation", "recording"])
def test_it_fits_and_keeps_nobody_out(request: pytest.FixtureRequest, kind: str, width: int, scheme: str) -> None:
    """The page does not overflow at 390 pixels, and axe-core finds nothing moderate or worse, in light and dark."""
    served: Served = request.getfixturevalue(kind)
    with tab(width, scheme=scheme) as browser:
        _open(browser, served)
        assert browser.wide() <= width
        if AXE.is_file():
            assert barriers(browser.page) == []
        assert browser.problems == []


NAME = "ip-10-0-123-234.eu-central-1.compute.internal" + 5 * ".averyveryverylongname"


def _crowded(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with every part filled, and long names in it."""
    command = {
        "id": "c-1",
        "action": "replaceCost",
        "reason": "Cost",
        "by": "dovetail",
        "since": document["now"],
        "seconds": 5000,
        "nodes": [NAME] * 6,
        "replacements": [NAME] * 3,
        "podsLeft": 1234,
        "steps": ["done", "done", "done", "now", "todo"],
    }
    ended = {"action": "replaceCost", "pools": [NAME, NAME], "promised": 1234.5678, "saved": 1234.5678}
    ended |= {"reopened": 100, "pods": 1000, "movedAgain": 1000}
    outcomes = {"commands": 1000, "promised": 1e5, "saved": 1e5, "held": 1000, "reopened": 1000, "pods": 1000}
    coming = {"at": document["now"], "until": "2027-01-01T00:00:00Z", "seconds": 9e6, "what": NAME, "pool": NAME}
    event = {"at": document["now"], "kind": "ended", "text": f"replaceCost of {NAME} is done"}
    held = {"gate": "uninitialized-destination", "nodes": 10000, "costPerHour": 12345.67}
    return {
        **document,
        "commands": [command] * 3,
        "outcomes": {**outcomes, "movedAgain": 1000, "last": [ended] * 3},
        "next": [coming] * 3,
        "history": {**document["history"], "events": [event] * 3},
        "money": {**document["money"], "held": [held] * 3, "savedSoFar": 1e9, "costPerHour": 1e6},
        "calendar": [{**pool, "pool": NAME} for pool in document["calendar"]],
        "warnings": [f"pool {NAME}: a warning"],
    }


def _crowded_state(served: Served) -> str:
    """Return the server's next answer with a crowded document."""
    while True:
        with urllib.request.urlopen(f"{served.address}api/state", timeout=60) as answer:
            state = json.load(answer)
        if state["document"] is not None:
            return json.dumps({**state, "document": _crowded(state["document"])})
        time.sleep(0.5)


@pytest.mark.parametrize("font", TRIED_FONTS)
def test_it_fits_with_any_font(simulation: Served, font: str) -> None:
    """The view does not overflow on a phone, with long names in every part, blockers shown and a node open."""
    state = _crowded_state(simulation)
    with tab(390, font=font) as browser:
        page = browser.page
        page.route("**/api/state", lambda route: route.fulfill(body=state, content_type="application/json"))
        _open(browser, simulation)
        page.get_by_role("button", name="what would lifting").click()
        page.locator(".rows .link").first.click()
        page.locator("aside.details").get_by_text("Every check").wait_for(timeout=30_000)
        browser.wait("!document.body.innerText.includes('asking')")
        assert page.locator(".command-now").count() == 3
        assert browser.wide() <= 390
        page.set_viewport_size({"width": 320, "height": 900})
        browser.wait("document.documentElement.scrollWidth <= 320", 5)  # plots are drawn again after a resize
        if AXE.is_file():
            assert barriers(page) == []


def test_a_capture_can_be_looked_at() -> None:
    """A captured cluster has the same view, with a fixed time, no speed control, and is not called live."""
    case = DATA / "045"
    inputs = ("-f", str(case / "cluster.json.gz"), "--catalog", str(case / "catalog.json.gz"))
    with serving(*inputs, "--now", "2026-05-13T15:30:00Z") as served, tab() as browser:
        _open(browser, served)
        assert browser.page.locator(".rows .link").count() > 3
        assert browser.page.locator(".live-time button, .live-time input").filter(visible=True).count() == 0
        assert "stands still" in browser.page.locator(".live-time").inner_text()
        assert browser.page.locator(".lanes").count() == 0
        assert "one moment" in browser.page.locator("section:has(#lanes-title)").inner_text()
        assert browser.page.locator(".live-status.live").count() == 0
        assert browser.page.locator(".live-status").inner_text().startswith("capture, as of its time")
        assert browser.problems == []
