"""Make the pictures of the README and the docs from the shipped scenarios.

Run from the project root: .venv/bin/python tools/screenshot.py [NAME...]
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.chromium import find, stop, tab  # noqa: E402
from tests.browser.test_live import serving  # noqa: E402

from dovetail.cli.main import main  # noqa: E402
from dovetail.live.capture import dump  # noqa: E402
from dovetail.sim.run import add_controllers  # noqa: E402
from dovetail.sim.scenarios.scenario import load_scenario  # noqa: E402
from dovetail.sim.scenarios.stage import Stage  # noqa: E402

OUT = ROOT / "docs" / "images"


def made(folder: Path, *arguments: str) -> Path:
    """Write the page of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(list(arguments))
    path = folder / "page.html"
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


def shoot(page: Path, name: str, *, top: str = "h1", height: int = 900, scheme: str = "light", click: str = "") -> None:
    """Save what a reader sees when the element `top` is at the top of the window."""
    with tab(1280, height, scheme) as browser:
        browser.open(page)
        if click:
            browser.page.locator(click).first.click()
        browser.page.evaluate(f"document.querySelector({top!r}).scrollIntoView()")
        browser.page.wait_for_timeout(400)
        browser.page.screenshot(path=str(OUT / name))


def runs(folder: Path) -> None:
    """A run: the story and the lanes; the cluster at a moment."""
    run = made(folder, "simulate", "issue-7146", "-o", "html")
    shoot(run, "demo.png", height=1400)
    shoot(run, "moment.png", top="#moment-title", scheme="dark", height=760)


def roll(folder: Path) -> None:
    """Draw the lanes of a roll."""
    shoot(made(folder, "simulate", "image-roll", "-o", "html"), "roll.png", top="#lanes-title", height=1250)


def churn(folder: Path) -> None:
    """The lanes of a day of batch jobs: takes minutes."""
    page = made(folder, "simulate", "batch-churn", "-o", "html")
    shoot(page, "churn.png", top="#lanes-title", scheme="dark", height=900)


def plan(folder: Path) -> None:
    """The plan of the day-night cluster in the middle of its day, with a node opened."""
    scenario = load_scenario("day-night")
    world = Stage(scenario, scenario.policies[-1], 0).build()
    add_controllers(world, scenario.policies[-1])
    world.run(scenario.warm_up + scenario.until * 6 // 10)
    capture = folder / "cluster.json"
    capture.write_bytes(dump(world.store.cluster()))
    catalogue = folder / "catalog.json"
    catalogue.write_text(_catalogue(world.cloud.catalogue), encoding="utf-8")
    now = world.clock.instant().isoformat()
    page = made(folder, "plan", "-f", str(capture), "--catalog", str(catalogue), "--now", now, "-o", "html")
    shoot(page, "plan.png", top="#map-title", height=1250, click=".rows .link")


def _catalogue(found: object) -> str:
    import json

    from dovetail.model.catalogue import Catalogue

    assert isinstance(found, Catalogue)
    return json.dumps(
        {
            "instanceTypes": [
                {
                    "name": kind.name,
                    "requirements": [
                        {"key": r.key, "operator": r.operator, "values": list(r.values)} for r in kind.requirements
                    ],
                    "capacity": {n: f"{a}m" if n == "cpu" else str(a) for n, a in kind.capacity.items()},
                    "overhead": {n: f"{a}m" if n == "cpu" else str(a) for n, a in kind.overhead.items()},
                    "offerings": [
                        {"capacityType": o.capacity_type, "zone": o.zone, "price": o.price_float, "available": True}
                        for o in kind.offerings
                    ],
                }
                for kind in found.instance_types
            ]
        }
    )


def live(folder: Path) -> None:
    """Draw the live view some minutes into a simulation."""
    with serving("--scenario", "issue-7146", "--policy", "karpenter-1.15", "--speed", "10") as served, tab() as browser:
        browser.open(served.address)
        browser.page.wait_for_selector(".live-status.live", timeout=60_000)
        browser.wait("document.querySelectorAll('.events .ended').length > 0")
        browser.wait("document.querySelectorAll('.command-now').length > 0")
        browser.page.screenshot(path=str(OUT / "live.png"))


def rolling(folder: Path) -> None:
    """Draw the live view in the middle of a roll, zone by zone."""
    with serving("--scenario", "image-roll", "--policy", "zone-by-zone", "--speed", "10") as served, tab() as browser:
        browser.open(served.address)
        browser.page.wait_for_selector(".live-status.live", timeout=60_000)
        browser.wait("/[4-9] of [0-9]+, done/.test(document.querySelector('main, body').innerText)", 240)
        browser.wait("document.querySelectorAll('.command-now').length > 1")
        browser.page.screenshot(path=str(OUT / "rolling.png"))


PICTURES: dict[str, Callable[[Path], None]] = {
    "runs": runs,
    "roll": roll,
    "churn": churn,
    "plan": plan,
    "live": live,
    "rolling": rolling,
}

if __name__ == "__main__":
    if find() is None:
        sys.exit("no Chromium or no Playwright here: install the package chromium, and the dev group")
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory() as text:
            PICTURES[name](Path(text))
        print(name)
    stop()
