"""`dovetail top`: its keys, its layout, and the whole program on a real terminal."""

from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from dovetail.cli.main import main
from dovetail.report.words import check_named
from dovetail.ui.history import History
from dovetail.ui.terminal import SORTS, TABS, Screen, chosen, plain, press, render
from dovetail.ui.watcher import Watcher
from tests.support.golden_cases import DATA
from tests.support.hostile import as_file
from tests.ui.terminal import DOWN, ENTER, ESCAPE, TAB, terminal
from tests.ui.test_live import simulated

CASE = DATA / "045"
CAPTURE = (
    "-f", str(CASE / "cluster.json.gz"), "--catalog", str(CASE / "catalog.json.gz"), "--now", "2026-05-13T15:30:00Z",
)  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Half a minute into issue 7146 under Karpenter's rules: commands are under way."""
    source = simulated()
    watcher = Watcher(source, History())
    for _ in range(4):
        source._pass(10)
        watcher.look()
    watcher._history.close()
    assert watcher.document is not None
    assert watcher.document["commands"]
    return watcher.document


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 10), (200, 60), (30, 5), (1, 1)])
def test_every_view_fits_every_screen(document: dict[str, Any], tab: str, width: int, height: int) -> None:
    """The output has exactly as many lines as the screen, and none is wider."""
    for screen in (Screen(tab=tab), Screen(tab=tab, help=True), Screen(tab=tab, filter="x", editing=True)):
        lines = render(document, "", screen, width, height)
        assert len(lines) == height
        assert max(sum(cell_len(text) for text, _ in line) for line in lines) <= width


@pytest.mark.parametrize("width", [40, 60, 70, 80, 90, 200])
@pytest.mark.parametrize(("saved", "pending"), [(0.0, 0), (1234567.0, 250), (0.0, 12345)])
def test_no_figure_of_the_head_is_cut(document: dict[str, Any], width: int, saved: float, pending: int) -> None:
    """A big cluster on a narrow screen: what does not fit as a whole is left out, how many pods wait never is."""
    money = {**document["money"], "costPerHour": 1566.89, "savedSoFar": saved, "savedPerHour": saved / 1000}
    big = {**document, "money": money, "history": {**document["history"], "pending": [pending]}}
    line = plain(render(big, "", Screen(), width, 24)).splitlines()[1].rstrip()
    words = [word for word in line.split("  ") if word]
    assert words[0].endswith(("node", "nodes"))
    assert words[1] == "$1,566.89/h"
    assert words[-1] in (f"{pending:,} pods waiting", f"{pending:,} waiting")
    for word in words[2:-1]:
        assert word.endswith((")", "way", "commands", "command")) or word == f"saved ${saved:,.2f}"


def test_before_the_first_look_it_says_so() -> None:
    """The problem is shown where there is one."""
    assert "looking" in plain(render(None, "", Screen(), 80, 24))
    assert "no answer" in plain(render(None, "no answer", Screen(), 80, 24))


def test_keys_move_within_what_is_there(document: dict[str, Any]) -> None:
    """Up stops at the top, down and end at the last row."""
    last = len(document["plan"]["nodes"]["name"]) - 1
    screen = Screen()
    assert press(screen, "up", document).row == 0
    assert press(screen, "end", document).row == last
    assert press(press(screen, "G", document), "j", document).row == last
    assert press(press(screen, "end", document), "home", document).row == 0
    assert press(screen, "pagedown", document, 12).row == 4


def test_views_sorts_and_search(document: dict[str, Any]) -> None:
    """Tab goes round, digits go straight, s goes through the orders, a search narrows and can be cleared."""
    screen = Screen()
    for tab in (*TABS[1:], TABS[0]):
        screen = press(screen, "tab", document)
        assert screen.tab == tab
    assert press(screen, "3", document).tab == TABS[2]
    for sort in (*SORTS[1:], SORTS[0]):
        screen = press(screen, "s", document)
        assert screen.sort == sort
        assert len(chosen(document, screen)) == len(document["plan"]["nodes"]["name"])
    name = document["plan"]["nodes"]["name"][5]
    for key in ("/", *name, "q", "backspace"):
        screen = press(screen, key, document)
    assert (screen.editing, screen.leaving, screen.filter) == (True, False, name)
    screen = press(screen, "enter", document)
    assert chosen(document, screen) == [5]
    assert len(chosen(document, press(screen, "escape", document))) > 1


def test_a_node_opens_and_closes(document: dict[str, Any]) -> None:
    """A node shows its checks and pods; Escape goes back."""
    screen = press(Screen(), "enter", document)
    assert screen.node
    text = plain(render(document, "", screen, 120, 60))
    assert "STOP" in text or "pass" in text
    assert "pods" in text
    assert press(screen, "escape", document).node == ""
    gone = plain(render(document, "", Screen(node="nobody"), 80, 24))
    assert "nobody is gone" in gone


def test_a_simulation_can_be_paused_and_sped_up(document: dict[str, Any]) -> None:
    """Space pauses and goes on; plus and minus stay within the speeds; a capture has none."""
    assert press(Screen(), " ", document).speed == 0
    assert press(Screen(), "+", document).speed == 10
    assert press(Screen(), "-", document).speed == 0
    still = {**document, "source": {**document["source"], "speeds": [], "speed": -1}}
    assert press(Screen(), "+", still).speed is None


def test_commands_are_shown_with_their_steps(document: dict[str, Any]) -> None:
    """Finished steps are marked, and so are steps in progress."""
    text = plain(render(document, "", Screen(tab="commands"), 120, 40))
    assert document["commands"][0]["action"] in text
    assert "+taint" in text
    assert ">" in text


def test_hostile_names_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing that moves a cursor or turns text reaches the terminal."""
    evil = "\x1b[2J\x1b]0;owned\x07\u202eevil"
    cluster = tmp_path / "cluster.json"
    cluster.write_bytes(as_file(evil))
    assert (
        main(["top", "-f", str(cluster), "--catalog", "aws:us-east-1", "--now", "2026-03-14T15:30:00Z", "--once"]) == 0
    )
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\u{1b}" in shown


def test_without_a_terminal_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage fails with one sentence and exit status 2."""
    assert main(["top", "--scenario", "issue-7146"]) == 2
    assert "--once" in capsys.readouterr().err


# ---------------------------------------------------------------- on a real terminal


def test_on_a_real_terminal() -> None:
    """It shows the capture, opens a node, searches, fits a smaller window, and leaves the terminal as it was."""
    with terminal("top", *CAPTURE) as screen:
        text = screen.see("NODE")
        assert "dovetail top" in text
        assert "q quit" in text
        screen.type(DOWN + ENTER)
        assert "pass" in screen.see("managed")
        screen.type(ESCAPE)
        screen.see("NODE")
        screen.type(TAB)
        assert "node-00004, node-00044" in screen.see("drain")  # on their way out already
        screen.type("/zzz" + ENTER)
        screen.see("No node matches")
        screen.resize(60, 16)
        assert "dovetail top" in screen.see("No node matches")
        screen.resize(30, 8)
        screen.see("at least 40x10")
        screen.type("q")
        assert screen.process.wait(timeout=30) == 0


def test_a_simulation_goes_on_by_itself() -> None:
    """The time on the screen moves without a key; space stops it; Ctrl-C ends it."""
    with terminal("top", "--scenario", "issue-7146", "--policy", "karpenter-1.15", "--speed", "60") as screen:
        first = screen.see("1m/s").splitlines()[0]
        for _ in range(100):
            screen.read(0.2)
            if screen.text.splitlines()[0] != first:
                break
        assert screen.text.splitlines()[0] != first
        screen.type(" ")
        screen.see("paused")
        screen.type("\x03")
        assert screen.process.wait(timeout=30) in (0, 130)


def test_the_window_counts_not_what_a_shell_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS and LINES of the environment don't cut the screen."""
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "12")
    with terminal("top", *CAPTURE) as screen:
        screen.see("q quit")
        assert screen.screen.display[-1].startswith("tab view")
        screen.type("q")
        assert screen.process.wait(timeout=30) == 0


@pytest.mark.parametrize("term", ["vt100", "dumb", "no-such-terminal"])
def test_poor_terminals_work_or_are_refused_in_one_sentence(term: str) -> None:
    """No colours is fine; one that can't be driven is refused with what to do."""
    with terminal("top", *CAPTURE, term=term) as screen:
        if term == "vt100":
            screen.see("NODE")
            screen.type("q")
            assert screen.process.wait(timeout=30) == 0
        else:
            screen.read(3)
            screen.type("q")
            status = screen.process.wait(timeout=60)
            screen.read(1)
            assert "Traceback" not in screen.text
            if term == "no-such-terminal":
                assert status == 2
                assert "can't be used" in screen.text


@pytest.mark.parametrize(
    ("gate", "passed", "why", "shown"),
    [
        ("not-empty", True, "It is empty.", ("yes", "empty")),
        ("not-empty", False, "It is not empty: 3 pods would have to move.", ("no", "empty")),
        ("not-empty", True, "It is not empty.", ("no", "empty")),
        ("not-empty", False, "It is empty: that is for the method `empty`.", ("yes", "empty")),
        ("not-expired", True, "It expired 1d2h ago.", ("yes", "expired")),
        ("not-drifted", False, "It has not drifted.", ("no", "drifted")),
        ("pdb", False, "PodDisruptionBudget shop/api allows nothing.", ("STOP", "pdb")),
        ("pdb", True, "No PodDisruptionBudget is in the way.", ("pass", "pdb")),
    ],
)
def test_checks_read_as_people_say_them(gate: str, passed: bool, why: str, shown: tuple[str, str]) -> None:
    """A check about the node's state is a question with yes or no, never `pass not-empty: It is empty`."""
    assert check_named(gate, why, passed=passed) == shown


def test_money_is_shown_once_there_is_some(document: dict[str, Any]) -> None:
    """In a roll nothing is saved, so the head says nothing of it; after a cost command it does."""
    for commands, shown in ((0, False), (1, True)):
        money = {**document["money"], "commands": commands, "savedSoFar": 1.0, "savedPerHour": 2.0}
        line = plain(render({**document, "money": money}, "", Screen(), 200, 24)).splitlines()[1]
        assert ("saved $1.00 ($2.00/h)" in line) is shown
        assert "under way" in line


def test_a_drain_shows_its_age_and_what_holds_it(document: dict[str, Any]) -> None:
    """A command that drains says for how long, and which pod and PDB hold it once that takes long."""
    first = document["commands"][0]
    for draining, held in ((0, ""), (90, ""), (400, "n1: PodDisruptionBudget d/x allows no disruption of d/p")):
        commands = [{**first, "draining": draining, "heldBy": held}]
        text = plain(render({**document, "commands": commands}, "", Screen(tab="commands"), 160, 40))
        assert ("draining for" in text) is (draining > 0)
        assert ("held by n1: PodDisruptionBudget d/x" in text) is bool(held)
