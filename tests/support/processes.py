"""The controller as a process of its own, started with the arguments that the chart gives to its container."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.chart import Tree, one
from tests.support.control_plane import eventually

COMMAND = (sys.executable, "-m", "dovetail.cli.main")


def environment() -> dict[str, str]:
    """Return a pod's environment, without the variables of the test run."""
    return {"PATH": os.environ.get("PATH", ""), "PYTHONWARNINGS": "error", "POD_NAME": "controller"}


def container_arguments(trees: list[Tree], kind: str, folder: Path) -> list[str]:
    """Return the container's arguments, with its variables filled in and its mounted ConfigMaps written to a folder."""
    workload = one(trees, kind)
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    text = "\n".join(container["args"]).replace("$(POD_NAMESPACE)", workload["metadata"]["namespace"])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for volume in pod["volumes"]:
        if "configMap" in volume:
            place = folder / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            for name, contents in one(trees, "ConfigMap", volume["configMap"]["name"])["data"].items():
                (place / name).write_text(contents)
            text = text.replace(mounts[volume["name"]], str(place))
    return text.split("\n")


class Running:
    """A process whose log is read while it runs."""

    def __init__(self, arguments: list[str], log: Path, more: dict[str, str] | None = None) -> None:
        self.path = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env={**environment(), **(more or {})},
                cwd=log.parent,
            )

    @property
    def text(self) -> str:
        return self.path.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """Return the log so far, line by line; each is one JSON object."""
        text = self.text
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last may be half a line

    def wait_for(self, *, seconds_max: float = 300.0, **fields: object) -> dict[str, Any]:
        """Wait for a line that has these fields."""

        def found() -> dict[str, Any] | None:
            assert self.process.poll() is None, self.text[-4000:]
            return next((line for line in self.lines() if fields.items() <= line.items()), None)

        line: dict[str, Any] = eventually(found, seconds_max=seconds_max)
        return line

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Stop the process, wait, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(180)


@contextlib.contextmanager
def running(arguments: list[str], log: Path, more: dict[str, str] | None = None) -> Iterator[Running]:
    """Run the process for the duration of the context, with additional environment variables."""
    made = Running(arguments, log, more)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()
