"""The pages in a real browser: what they show, how they react to input, and whether they are accessible."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.browser.chromium import AXE, TRIED_FONTS, barriers, find, tab
from tests.support.golden_cases import DATA
from tests.support.hostile import as_file
from tests.support.sizes import size

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(find() is None, reason="no Chromium or no Playwright here: install chromium, and the dev group"),
]
KINDS = ("simulate", "roll", "sweep", "plan", "whatif", "blockers", "to-end", "compare", "every", "explain")
SCREENS = [(1280, "light"), (800, "dark"), (390, "light"), (1280, "dark"), (800, "light"), (390, "dark")][
    : size(test=3, ci=6, long=6)
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one page of each kind, written by the commands themselves."""
    folder = tmp_path_factory.mktemp("pages")
    grid = folder / "grid.yaml"
    grid.write_text("{base: both, vary: {consolidationGracePeriod: [Never, 10m]}, seeds: 1}")
    chosen = ["--policy", "karpenter-1.15", "--policy", "grace-period", "--policy", "both"]
    case = DATA / "045"
    plan = ["plan", "-f", str(case / "cluster.json.gz"), "--catalog", str(case / "catalog.json.gz")]
    inputs = [*plan[1:], "--now", "2026-05-13T15:30:00Z"]
    made = {
        "whatif": ["whatif", *inputs, "--set", "consolidateAfter=30m", "--for", "10m", "-o", "html"],
        "blockers": ["blockers", *inputs, "-o", "html"],
        "simulate": ["simulate", "issue-7146", *chosen, "--until", "40m", "-o", "html"],
        "roll": ["simulate", "image-roll", "--until", "1h", "-o", "html"],
        "sweep": ["sweep", "issue-7146", "--grid", str(grid), "--until", "10m", "-o", "html"],
        "plan": [*plan, "--now", "2026-05-13T15:30:00Z", "-o", "html"],
        "to-end": ["plan", *inputs, "--to-end", "-o", "html"],
        "compare": ["plan", *inputs, "--compare", "karpenter-1.15", "-o", "html"],
        "every": ["plan", *inputs, "--every-method", "--every-candidate", "-o", "html"],
        "explain": ["explain", "--all", *inputs, "-o", "html"],
    }
    return {name: _written(folder / f"{name}.html", arguments) for name, arguments in made.items()}


def _written(path: Path, arguments: list[str]) -> Path:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(arguments) == 0
    path.write_text(out.getvalue(), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_it_opens_clean_and_fits(pages: dict[str, Path], kind: str, scheme: str, width: int) -> None:
    """A page logs no error, fetches nothing, is under 2 MB and not wider than the screen, in light and dark."""
    assert pages[kind].stat().st_size < 2_000_000
    with tab(width, scheme=scheme) as browser:
        browser.open(pages[kind])
        browser.page.wait_for_timeout(100)
        assert browser.problems == []
        assert browser.outside == []
        assert browser.wide() <= width


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("font", TRIED_FONTS)
def test_it_fits_with_any_font(pages: dict[str, Path], kind: str, font: str) -> None:
    """A page is not wider than a phone, closed or with everything open, whatever font its reader has."""
    with tab(390, font=font) as browser:
        browser.open(pages[kind])
        page = browser.page
        assert browser.wide() <= 390
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        if page.locator(".rows .link").count():
            page.locator(".rows .link").first.click()
        assert browser.wide() <= 390
        page.set_viewport_size({"width": 320, "height": 900})
        browser.wait("document.documentElement.scrollWidth <= 320", 5)  # plots are drawn again after a resize


@pytest.mark.parametrize("kind", KINDS)
def test_no_heading_is_a_json_key(pages: dict[str, Path], kind: str) -> None:
    """Tables, panels and fields have accessible names, including those that open on a click."""
    with tab() as browser:
        browser.open(pages[kind])
        browser.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        headings = browser.page.evaluate(
            "[...document.querySelectorAll('th, dt, h2, h3, h4, legend, label')].map((each) => each.textContent.trim())"
        )
        assert headings
        assert [heading for heading in headings if re.search("[a-z][A-Z]|[a-z]_[a-z]", heading)] == []


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core here: run `npm ci` in web/")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out(pages: dict[str, Path], kind: str, scheme: str) -> None:
    """axe-core finds nothing moderate, serious or critical."""
    with tab(scheme=scheme) as browser:
        browser.open(pages[kind])
        assert barriers(browser.page) == []


def test_lanes_are_drawn_and_answer(pages: dict[str, Path]) -> None:
    """Two policies share one time axis; a bar shows its description on hover and on keyboard focus."""
    with tab() as browser:
        browser.open(pages["simulate"])
        page = browser.page
        stages = page.locator(".lanes-stage")
        assert stages.count() == 2
        assert page.locator(".lane-head h3").all_inner_texts()[0] == "karpenter-1.15"
        drawn = page.evaluate(
            "() => { const c = document.querySelector('.lanes-stage canvas');"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "const seen = new Set();"
            "for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);"
            "return seen.size; }"
        )
        assert drawn > 10
        stages.first.evaluate("stage => stage.scrollIntoView({block: 'start'})")
        box = stages.first.bounding_box()
        page.mouse.move(box["x"] + 20, box["y"] + 22 + 20 + 7)
        assert "per hour" in page.locator(".tip").inner_text()
        stages.first.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        spoken = page.locator(".lanes .visually-hidden").first.inner_text()
        assert "us-east-1a" in spoken
        page.keyboard.press("Enter")
        panel = page.locator(".node-panel")
        assert panel.is_visible()
        assert spoken.split(",")[0] in panel.inner_text()
        assert browser.problems == []


def test_the_scrubber_moves_the_cluster(pages: dict[str, Path]) -> None:
    """The slider, the steps and the player change the moment that the boxes, numbers and commands show."""
    with tab() as browser:
        browser.open(pages["simulate"])
        page = browser.page
        slider = page.get_by_role("slider", name="Time")
        slider.fill("0")
        before = page.locator(".moment").all_inner_texts()
        slider.fill("2000")
        browser.wait("document.querySelector('.clock').innerText.includes('18:48:20')")  # drawn with the next frame
        # The clock may be drawn a frame before the clusters.
        browser.wait(f"[...document.querySelectorAll('.moment')].some((one) => !{before}.includes(one.innerText))")
        slider.fill("0")
        page.get_by_role("button", name="Next command").click()
        browser.wait("document.querySelectorAll('.commands li.under-way').length >= 1")
        assert "per hour" in page.locator(".commands li.under-way p").first.inner_text()
        page.get_by_role("button", name="play").click()
        page.wait_for_timeout(400)
        page.get_by_role("button", name="pause").click()
        assert int(slider.input_value()) > 15
        assert browser.problems == []


def test_plots_are_linked(pages: dict[str, Path]) -> None:
    """Hovering over one plot shows values in all; dragging zooms lanes and plots; a series can be switched off."""
    with tab() as browser:
        browser.open(pages["simulate"])
        page = browser.page
        plots = page.locator(".plot-stage")
        assert plots.count() == 4
        policies = page.get_by_role("group", name="Policies").get_by_role("button").count()
        assert page.locator(".plot-stage svg path.line").count() == 4 * policies
        page.locator("#plots-title").scroll_into_view_if_needed()
        box = plots.first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
        times = {text.split()[0] for text in page.locator(".values").all_inner_texts()}
        assert len(times) == 1
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 50, steps=4)
        page.mouse.up()
        assert "of 40m shown" in page.locator(".zoom").inner_text()
        page.get_by_role("button", name="all", exact=True).click()
        assert "all 40m shown" in page.locator(".zoom").inner_text()
        page.get_by_role("group", name="Policies").get_by_role("button", name="grace-period").click()
        lines = page.locator(".plot-stage svg path.line")
        lines.nth(4 * (policies - 1)).wait_for(state="detached", timeout=30_000)
        assert lines.count() == 4 * (policies - 1)
        assert browser.problems == []


def test_other_policies_can_be_put_side_by_side(pages: dict[str, Path]) -> None:
    """The pickers change the policies in the lanes and at the selected moment."""
    with tab() as browser:
        browser.open(pages["simulate"])
        page = browser.page
        page.get_by_label("Second policy").select_option(label="both")
        assert page.locator(".lane-head h3").all_inner_texts() == ["karpenter-1.15", "both"]
        assert page.locator(".cluster h3").all_inner_texts() == ["karpenter-1.15", "both"]


def test_the_story_of_a_roll_speaks_of_zones(pages: dict[str, Path]) -> None:
    """Three sentences at the top summarise the run."""
    with tab() as browser:
        browser.open(pages["roll"])
        sentences = browser.page.locator(".story li").all_inner_texts()
        assert len(sentences) == 3
        assert all("zone" in sentence for sentence in sentences)


@pytest.mark.parametrize("kind", ["simulate", "whatif", "plan"])
def test_paper_is_light_open_and_whole(pages: dict[str, Path], kind: str) -> None:
    """Printed from a dark screen, a page has light pictures that fit a sheet, every node's row, and nothing folded."""
    with tab(scheme="dark") as browser:
        browser.open(pages[kind])
        page = browser.page
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print", color_scheme="dark")
        darkest = page.evaluate(
            "() => Math.min(...[...document.querySelectorAll('canvas')].map((c) => {"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const seen = {};"
            "for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 250) {"
            "const k = d[i] + d[i + 1] + d[i + 2]; seen[k] = (seen[k] || 0) + 1; }"
            "return Number(Object.entries(seen).sort((a, b) => b[1] - a[1])[0][0]); }))"
        )
        assert darkest > 200  # of 765: the most frequent colour of each canvas is not that of a dark theme's node
        assert page.evaluate("Math.max(...[...document.querySelectorAll('canvas')].map((c) => c.clientHeight))") < 900
        assert page.evaluate("[...document.querySelectorAll('details')].every((each) => each.open)")
        if page.locator(".node-table").count():
            assert (
                page.locator(".rows .row").count()
                == int(page.locator(".node-table").get_attribute("aria-rowcount")) - 1
            )
        page.emulate_media(media="screen", color_scheme="dark")
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert not page.evaluate("'theme' in document.documentElement.dataset")


def test_the_theme_can_be_chosen(pages: dict[str, Path]) -> None:
    """The button switches from the system's theme to light and then to dark."""
    with tab(scheme="light") as browser:
        browser.open(pages["simulate"])
        page = browser.page
        ground = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(ground)
        button = page.locator("button.theme")
        button.click()
        button.click()
        assert button.inner_text() == "theme: dark"
        assert page.evaluate(ground) != light


def test_a_page_runs_no_foreign_script(pages: dict[str, Path]) -> None:
    """The content policy blocks injected inline scripts, event handlers, foreign styles and requests."""
    with tab() as browser:
        browser.open(pages["simulate"])
        page = browser.page
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'window.hit = 1';"
            "document.body.append(s); const b = document.createElement('button');"
            "b.setAttribute('onclick', 'window.hit = 2'); document.body.append(b); b.click(); }"
        )
        assert page.evaluate("window.hit") is None
        refused = page.evaluate("fetch('http://localhost:9/').then(() => 'went out', () => 'refused')")
        assert refused == "refused"
        assert len(browser.problems) >= 2


def test_the_front_of_a_sweep(pages: dict[str, Path]) -> None:
    """Every policy is a dot with a description; two policies are shown moment by moment."""
    with tab() as browser:
        browser.open(pages["sweep"])
        page = browser.page
        policies = page.locator(".panel tbody tr").count()
        assert policies >= 2
        assert page.locator("svg circle.front, svg circle.hollow").count() == policies
        page.locator("svg circle.front").first.hover()
        assert "pod restarts" in page.locator(".tip").inner_text()
        assert page.locator(".lanes-stage").count() in (1, 2)


def test_nodes_are_searched_sorted_and_filtered(pages: dict[str, Path]) -> None:
    """Text, check, pool, workload and kind of verdict each filter the table and dim the map."""
    with tab() as browser:
        browser.open(pages["plan"])
        page = browser.page
        total = int(page.locator(".node-table").get_attribute("aria-rowcount")) - 1
        names = page.locator(".rows .link").all_inner_texts()
        assert total >= len(names) > 3
        page.get_by_label("Search").fill(names[2])
        assert page.locator(".rows .link").all_inner_texts() == [names[2]]
        assert f"1 node of {total}" in page.locator("[role=status]").inner_text()
        page.get_by_role("button", name="clear").click()
        gate = page.get_by_label("Check").locator("option").nth(1)
        page.get_by_label("Check", exact=True).select_option(gate.get_attribute("value"))
        narrowed = int(page.locator(".node-table").get_attribute("aria-rowcount")) - 1
        assert gate.inner_text().endswith(f"({narrowed})")
        page.get_by_role("button", name="clear").click()
        page.get_by_label("Sort").select_option("price")
        prices = [
            float(text.lstrip("$")) for text in page.locator(".rows .c-price").all_inner_texts() if text[0] == "$"
        ]
        assert prices == sorted(prices, reverse=True)
        page.get_by_role("group", name="Verdicts").get_by_role("button").first.click()
        assert int(page.locator(".node-table").get_attribute("aria-rowcount")) - 1 < total
        assert browser.problems == []


def test_a_node_opens_into_everything(pages: dict[str, Path]) -> None:
    """A node opens by mouse or keyboard, shows its checks, pods and their targets, and closes on Escape."""
    with tab() as browser:
        browser.open(pages["plan"])
        page = browser.page
        page.get_by_label("Sort").select_option("pods")
        button = page.locator(".rows .link").last
        node = button.inner_text()
        button.focus()
        page.keyboard.press("Enter")
        panel = page.locator("aside.details")
        assert panel.locator("h3").inner_text() == node
        assert panel.locator(".checks li").count() > 5
        assert "Where its pods would go" in panel.inner_text()
        assert panel.locator(".pod-list li").count() >= 1
        page.keyboard.press("Escape")
        assert not panel.is_visible()
        assert browser.problems == []


def test_before_and_after(pages: dict[str, Path]) -> None:
    """The map can show the cluster as it will be after this round's commands."""
    with tab() as browser:
        browser.open(pages["plan"])
        page = browser.page
        picture = page.locator(".map-stage canvas")
        before = picture.get_attribute("aria-label")
        page.get_by_role("button", name="after this round").click()
        page.wait_for_timeout(100)
        assert picture.get_attribute("aria-label") != before


def test_a_hostile_name_is_text(tmp_path: Path) -> None:
    """Markup in the names of nodes, pods and workloads is shown as text in table, details and tip; nothing runs."""
    evil = '<img src=x onerror="window.hit=1"></script><script>window.hit=1</script>'
    cluster = tmp_path / "cluster.json"
    cluster.write_bytes(as_file(evil))
    arguments = [
        "plan",
        "-f",
        str(cluster),
        "--catalog",
        "aws:us-east-1",
        "--now",
        "2026-03-14T15:30:00Z",
        "-o",
        "html",
    ]
    made = _written(tmp_path / "plan.html", arguments)
    with tab() as browser:
        browser.open(made)
        page = browser.page
        shown = page.locator(".rows .link", has_text="<img src=x").first
        assert evil in shown.inner_text()
        shown.click()
        assert evil in page.locator("aside.details h3").inner_text()
        assert page.locator("main img, main iframe, main script").count() == 0
        assert page.evaluate("window.hit") is None
        assert browser.problems == []
