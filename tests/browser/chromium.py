"""A real browser without any driver: Chromium, spoken to by its own DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0", "--hide-scrollbars",
)  # fmt: skip


def find() -> str | None:
    """The browser's program, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """One page: what it logged, what it fetched, and ways to ask and to look."""

    socket: aiohttp.ClientWebSocketResponse
    problems: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol; events that come meanwhile are noted."""
        number = next(self._numbers)
        await self.socket.send_json({"id": number, "method": method, "params": params})
        while True:
            answer = await self.socket.receive_json(timeout=60)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        thrown = method == "Runtime.exceptionThrown"
        logged = method == "Log.entryAdded" and params["entry"]["level"] == "error"
        said = method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert")
        if thrown or logged or said:
            self.problems.append(str(params))
        elif method == "Network.requestWillBeSent":
            self.fetched.append(params["request"]["url"])

    async def open(self, path: Path) -> None:
        """Open a file and wait until it has loaded."""
        for domain in ("Runtime", "Log", "Network", "Page"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(200):
            if await self.ask("document.readyState") == "complete":
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the page did not load")

    async def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def look(self, path: Path, *, width: int = 1000, height: int | None = None) -> None:
        """Take a screenshot of the whole page, or of its top."""
        tall = height or int(await self.ask("document.documentElement.scrollHeight"))
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=tall, deviceScaleFactor=1, mobile=False
        )
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def tab() -> AsyncIterator[Tab]:
    """Start a browser of our own and open one tab in it."""
    program = find()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            program, *FLAGS, f"--user-data-dir={folder}", "about:blank",
            stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            address = await asyncio.wait_for(_address(process), 60)
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{address}/json") as answer:
                    pages = [entry for entry in await answer.json() if entry["type"] == "page"]
                async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Tab(socket)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        if b"DevTools listening on ws://" in line:
            return line.decode().split("ws://")[1].split("/")[0]
    raise AssertionError("the browser ended before it listened")
