"""`dovetail run` as a process of its own, as it runs in production: its logs, its metrics, its end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.control_plane import eventually


class Process:
    """A controller process. Logs go to a file, so that a killed one can still be read."""

    program: tuple[str, ...] = (sys.executable, "-m", "dovetail.cli.main")

    def __init__(
        self, folder: Path, name: str, *flags: str, before: Sequence[str] = (), cwd: Path | None = None
    ) -> None:
        self.log_path = folder / f"{name}-{time.monotonic_ns()}.log"
        environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*self.program, *before, "run", "--listen", "127.0.0.1:0", *flags],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def lines(self) -> list[dict[str, Any]]:
        """Return all log lines so far; a line that is no JSON is a fault."""
        text = self.log_path.read_text()
        complete = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in complete.splitlines()]

    def said(self, message: str, **fields: Any) -> list[dict[str, Any]]:
        """Return lines whose message contains that text, with these fields."""
        return [
            line
            for line in self.lines()
            if message in line["message"] and all(line.get(key) == value for key, value in fields.items())
        ]

    def wait_for(self, message: str, **fields: Any) -> dict[str, Any]:
        """Wait until it has logged the text."""

        def found() -> list[dict[str, Any]]:
            assert self.process.poll() is None, f"it ended: {self.log_path.read_text()[-2000:]}"
            return self.said(message, **fields)

        return dict(eventually(found)[0])

    @property
    def port(self) -> int:
        return int(self.wait_for("starting")["port"])

    def get(self, path: str) -> tuple[int, str]:
        """Send a request to its own port."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples with these labels; 0 where there is none."""
        from prometheus_client.parser import text_string_to_metric_families

        total = 0.0
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items()):
                    total += sample.value
        return total

    def kill(self) -> None:
        """Kill it without a clean shutdown, as the kernel does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Stop it as Kubernetes does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(180)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextlib.contextmanager
def controller(folder: Path, name: str, *flags: str) -> Iterator[Process]:
    """Run a controller for the duration of the context."""
    process = Process(folder, name, *flags)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.stop()
