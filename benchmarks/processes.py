"""Observe processes from outside: memory and CPU from /proc, actions and their times from the logs."""

import json
import os
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
WAIT_SECONDS = 240.0
_TICK = os.sysconf("SC_CLK_TCK")
_KIB_IN_MIB = 1024


class Watched:
    """A process that is observed from outside."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def mebibytes(self, field: str = "VmRSS") -> float:
        """Return its current memory, or its peak (VmHWM)."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+)", text)
        return round(int(found.group(1)) / _KIB_IN_MIB, 1) if found else 0.0

    def cpu_seconds(self) -> float:
        """Return its CPU time so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def cores_over(self, seconds: float, meanwhile: Callable[[], None] = lambda: None) -> float:
        """Return how many cores it uses on average over a time."""
        began, cpu = time.monotonic(), self.cpu_seconds()
        meanwhile()
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        return round((self.cpu_seconds() - cpu) / (time.monotonic() - began), 4)


def busy_seconds() -> float:
    """Return the CPU time of everything on the machine since it started."""
    user, nice, system, _idle, _waiting, irq, soft = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft) / _TICK


def lines_of(log: Path) -> list[Tree]:
    """Return the complete lines of a log so far that are JSON objects."""
    text = log.read_text(errors="replace")
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [json.loads(line) for line in whole if line.startswith("{")]


def at_of(line: Tree) -> datetime:
    """Return when a line was written."""
    return datetime.fromisoformat(line["time"])


def wait_for(check: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Poll until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)
    return found
