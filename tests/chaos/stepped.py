"""`dovetail` with a wall clock that a test can set: everything else is the program as it is.

`python -m tests.chaos.stepped OFFSETS run ...`: the wall clock is the machine's plus the seconds in the file OFFSETS.
"""

import contextlib
import sys
import threading
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import dovetail.live.actuate
import dovetail.live.kubernetes.lease
import dovetail.live.run
from dovetail.cli.main import entry

_offset = 0.0
_real = time.time


class Stepped:
    """Replaces the class datetime where `now` is called; returns plain datetimes."""

    @staticmethod
    def now(tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(seconds=_offset)


def _follow(path: Path) -> None:
    global _offset
    while True:
        with contextlib.suppress(OSError, ValueError):
            _offset = float(path.read_text())
        time.sleep(0.1)


def main() -> None:
    """Set up the clock, then run dovetail."""
    path = Path(sys.argv.pop(1))
    threading.Thread(target=_follow, args=(path,), daemon=True).start()
    time.time = lambda: _real() + _offset
    for module in (dovetail.live.run, dovetail.live.actuate, dovetail.live.kubernetes.lease):
        module.datetime = Stepped  # type: ignore[attr-defined]
    entry()


if __name__ == "__main__":
    main()
