"""`dovetail top`: the essentials in the terminal, live and keyboard-driven. Read-only."""

import argparse
import contextlib
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from dovetail.api.findings import InputError
from dovetail.cli.cluster.ui import add_watch_options, source_of

if TYPE_CHECKING:
    from dovetail.ui.terminal import Line
    from dovetail.ui.watcher import Watcher

_EPILOG = """\
keys: tab view, up/down move, enter open a node, / search, s sort, space pause and +/- speed
of a simulation, ? help, q quit. It never writes to a cluster.

examples:
  dovetail top                                           the cluster of the kubeconfig
  dovetail top -f cluster.json                           a captured cluster
  dovetail top --scenario issue-7146                     a simulation
  dovetail top --once                                    one look, as plain text
"""
_TICK_MILLISECONDS = 200
_FIRST_LOOK_SECONDS = 120.0
_PROBLEM_SECONDS = 5.0


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "top",
        help="watch a cluster, a capture or a simulation in the terminal",
        description="Shows nodes, commands, what comes next and what is held back, live. Read-only.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_watch_options(parser)
    parser.add_argument("--once", action="store_true", help="print one look as plain text and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show until `q` is pressed."""
    from dovetail.ui.history import History
    from dovetail.ui.watcher import Watcher

    if not args.once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("dovetail top needs a terminal; write dovetail top --once for one look as text")
    watcher = Watcher(source_of(args), History(args.history))
    watcher.start()
    try:
        if args.once:
            return _print_once(watcher)
        return _show(watcher)
    finally:
        watcher.stop()


def _print_once(watcher: "Watcher") -> int:
    from dovetail.report.table import WIDTH
    from dovetail.ui.terminal import HEIGHT_MIN, WIDTH_MIN, Screen, plain, render

    began = time.monotonic()
    while watcher.document is None:
        waited = time.monotonic() - began
        if waited > (_PROBLEM_SECONDS if "broke" in watcher.problem else _FIRST_LOOK_SECONDS):
            raise InputError(watcher.problem or "there is nothing to see yet")
        time.sleep(0.05)
    rows = len(watcher.document["plan"]["nodes"]["name"])
    width = max(WIDTH_MIN, shutil.get_terminal_size((WIDTH, 0)).columns)
    print(plain(render(watcher.document, watcher.problem, Screen(), width, max(HEIGHT_MIN, rows + 6))[:-1]), end="")
    return 0


def _show(watcher: "Watcher") -> int:
    try:
        import curses
    except ImportError:
        raise InputError("dovetail top needs curses, which this Python has not; use dovetail ui") from None
    for variable in ("LINES", "COLUMNS"):  # exported by some shells: curses would believe them over the window itself
        os.environ.pop(variable, None)
    try:
        curses.wrapper(lambda window: _loop(window, watcher))
    except curses.error as error:
        raise InputError(f"this terminal can't be used ({error}); set TERM, or use dovetail ui") from None
    return 0


def _loop(window: Any, watcher: "Watcher") -> None:
    import curses

    from dovetail.ui.terminal import Screen, press, render

    styles = _styles()
    window.timeout(_TICK_MILLISECONDS)
    curses.set_escdelay(25)
    screen, shown = Screen(), None
    while not screen.leaving:
        height, width = window.getmaxyx()
        state = (watcher.version, screen, height, width)
        if state != shown:
            shown = state
            _paint(window, render(watcher.document, watcher.problem, screen, width - 1, height), styles)
        key = _key(window)
        if key:
            screen = press(screen, key, watcher.document, height)
            if screen.speed is not None:
                watcher.set_speed(screen.speed)


def _styles() -> dict[str, int]:
    import curses

    with contextlib.suppress(curses.error):  # a terminal without colours, or without a way to hide the cursor
        curses.curs_set(0)
    coloured = curses.has_colors()
    if coloured:
        with contextlib.suppress(curses.error):
            curses.use_default_colors()
    colours = {"good": curses.COLOR_GREEN, "bad": curses.COLOR_RED, "accent": curses.COLOR_CYAN}
    styles = {"plain": 0, "bold": curses.A_BOLD, "dim": curses.A_DIM, "chosen": curses.A_REVERSE}
    for place, (style, colour) in enumerate(colours.items(), start=1):
        if coloured:
            curses.init_pair(place, colour, -1)
            styles[style] = curses.color_pair(place)
        else:
            styles[style] = curses.A_BOLD
    return styles


def _paint(window: Any, lines: "list[Line]", styles: dict[str, int]) -> None:
    import curses

    window.erase()
    for row, line in enumerate(lines):
        column = 0
        for text, style in line:
            try:
                window.addstr(row, column, text, styles[style])
            except curses.error:
                break  # the window was made smaller meanwhile
            column = window.getyx()[1]
    window.refresh()


def _key(window: Any) -> str:
    """Return the key that was pressed, by name; nothing if none was."""
    import curses

    try:
        key = window.get_wch()
    except curses.error:
        return ""
    except KeyboardInterrupt:
        return "interrupt"
    if isinstance(key, str):
        names = {"\n": "enter", "\r": "enter", "\t": "tab", "\x1b": "escape", "\x7f": "backspace", "\b": "backspace"}
        return names.get(key, key)
    special = {
        curses.KEY_UP: "up",
        curses.KEY_DOWN: "down",
        curses.KEY_LEFT: "left",
        curses.KEY_PPAGE: "pageup",
        curses.KEY_NPAGE: "pagedown",
        curses.KEY_HOME: "home",
        curses.KEY_END: "end",
        curses.KEY_ENTER: "enter",
        curses.KEY_BACKSPACE: "backspace",
    }
    return special.get(key, "resize")
