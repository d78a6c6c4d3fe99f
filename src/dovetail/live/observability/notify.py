"""Webhooks: notify a chat room or a program about actions, failures and rollbacks.

A folder holds one file per target, named after its form (`slack` or `json`), with the URL inside; URLs are secrets and
never reach a log. Messages wait in a bounded queue: if a target is unreachable the oldest are dropped, and the
controller is never delayed. Text from the cluster is made safe first.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

import aiohttp
import msgspec

from dovetail.api.findings import InputError
from dovetail.lifecycle import reports
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.reports import CommandOutcome, ExpiryChanged
from dovetail.live.kubernetes.sockets import Sockets
from dovetail.live.observability.logs import Log
from dovetail.report.words import safe

if TYPE_CHECKING:
    from dovetail.live.run import Controller

FORMS: Final = ("slack", "json")
_PHASES: Final = (Phase.TAINTING, Phase.DONE, Phase.ROLLING_BACK, Phase.FAILED)
_WAITING_MAX: Final = 200
_TRIES: Final = 4
_TIMEOUT_SECONDS: Final = 10.0


class NotifyError(InputError):
    """The folder of webhooks can't be used; one sentence."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send, and in which form. The URL is kept out of every representation."""

    form: str
    url: str = field(repr=False)


def read_targets(folder: str | Path) -> tuple[Target, ...]:
    """Return the webhooks of a folder (a mounted Secret): files `slack` and `json` with a URL each."""
    root = Path(folder)
    if not root.is_dir():
        raise NotifyError(f"--notify {folder} is not a folder; name one with a file slack or json that holds the URL")
    targets = []
    for form in FORMS:
        path = root / form
        if path.exists():
            try:
                url = path.read_text().strip()
            except (OSError, UnicodeDecodeError):
                raise NotifyError(f"the file {form} in {folder} can't be read") from None
            if not url.startswith(("https://", "http://")):
                raise NotifyError(f"the file {form} in {folder} holds no URL; write https://...")
            targets.append(Target(form, url))
    if not targets:
        raise NotifyError(f"there is neither a file slack nor json in {folder}")
    return tuple(targets)


def worth_telling(report: reports.Report) -> bool:
    """Return whether to notify: of a command's start and end, a pool that backs off, a drain that hangs."""
    match report:
        case reports.CommandAdvanced():
            return report.phase in _PHASES
        case reports.PoolBacksOff() | reports.DrainHangs():
            return True
        case (
            reports.CommandFound()
            | reports.InstructionNotDone()
            | reports.NodesBackOff()
            | reports.CostActionUndone()
            | CommandOutcome()
            | reports.CommandProposed()
            | reports.CommandDropped()
            | reports.RoundEnded()
            | reports.VerdictsChanged()
            | reports.BudgetChanged()
            | ExpiryChanged()
            | reports.MovesBlocked()
            | reports.Warned()
            | reports.RecordIgnored()
            | reports.LeadershipChanged()
            | reports.RightChanged()
            | reports.NeighbourNoticed()
            | reports.ViewIsOld()
        ):
            return False
        case _:
            assert_never(report)


def message(report: reports.Report) -> dict[str, Any]:
    """Return the plain form: what happened, with every figure."""
    figures = {key: safe(value) if isinstance(value, str) else value for key, value in report.figures.items()}
    return {
        "source": "dovetail",
        "topic": safe(report.topic),
        "command": safe(reports.command_of(report)),
        "message": safe(report.message, 1000),
        "figures": figures,
    }


def body(form: str, report: reports.Report) -> bytes:
    """Return what is posted: Slack's form is one line of text, with its markup switched off."""
    plain = message(report)
    if form == "json":
        return msgspec.json.encode(plain)
    text = plain["message"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    alarming = isinstance(report, reports.PoolBacksOff | reports.DrainHangs) or getattr(report, "phase", None) in (
        Phase.ROLLING_BACK,
        Phase.FAILED,
    )
    mark = "⚠ " if alarming else ""
    quiet = {"mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}
    return msgspec.json.encode({"text": f"{mark}Dovetail: {text}", **quiet})


@dataclass(slots=True, kw_only=True)
class Notifier:
    """Accepts reports at once and sends them one after another."""

    targets: tuple[Target, ...]
    log: Log
    sent: int = 0
    dropped: int = 0
    _waiting: deque[reports.Report] = field(default_factory=lambda: deque(maxlen=_WAITING_MAX))
    _there: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, report: reports.Report) -> None:
        """Keep a report for sending, if it is worth telling."""
        if not worth_telling(report):
            return
        if len(self._waiting) == _WAITING_MAX:
            self.dropped += 1
        self._waiting.append(report)
        self._there.set()

    async def background_task(self, controller: "Controller") -> None:
        """Run beside a controller; receives every report from then on."""
        assert controller.telemetry is not None
        controller.telemetry.notify = self.take
        await self.run()

    async def run(self) -> None:
        """Send what comes, until cancelled."""
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
        sockets = Sockets()
        try:
            connector = aiohttp.TCPConnector(socket_factory=sockets.make)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                while True:
                    await self._there.wait()
                    while self._waiting:
                        report = self._waiting.popleft()
                        for target in self.targets:
                            await self._send(session, target, report)
                    self._there.clear()
        finally:
            await sockets.hang_up()

    async def _send(self, session: aiohttp.ClientSession, target: Target, report: reports.Report) -> None:
        why = ""
        for attempt in range(1, _TRIES + 1):
            try:
                async with session.post(
                    target.url,
                    data=body(target.form, report),
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                ) as answer:
                    if answer.status < 300:
                        self.sent += 1
                        return
                    why = f"status {answer.status}"
                    if answer.status < 500 and answer.status != 429:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                why = type(error).__name__  # its text may hold the URL
            await asyncio.sleep(0.5 * 2**attempt)
        self.dropped += 1
        self.log.warning("a notification could not be delivered", form=target.form, why=why)
