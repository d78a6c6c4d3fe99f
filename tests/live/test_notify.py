"""Webhooks against a real HTTP server: content, format, and that an unreachable target is harmless."""

import asyncio
import io
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.reports import CommandAdvanced, PoolBacksOff, Report, RoundEnded
from dovetail.live.observability import notify
from dovetail.live.observability.logs import Log
from dovetail.live.observability.notify import Notifier, NotifyError, Target, body, read_targets, worth_telling
from dovetail.model.command import Action, Method
from tests.support.certificates import write_certificates

SECRET = "hooks/T000/B000/very-secret"


def _report(phase: str, why: str = "") -> CommandAdvanced:
    return CommandAdvanced(
        command_id="c1",
        phase=Phase(phase),
        source=None,
        signal=None,
        action=Action.REPLACE_COST,
        method=Method.SINGLE_NODE,
        nodes=("n1",),
        savings=0.5,
        why=why,
    )


@asynccontextmanager
async def _receiver(answer: Callable[[int], int]) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Yield a server that records requests; `answer` returns the status of each request by its number."""
    got: list[dict[str, Any]] = []
    asked = 0

    async def take(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        status = answer(asked)
        if status < 300:
            got.append({"path": request.path, "type": request.content_type, **await request.json()})
        return web.Response(status=status, headers={"Location": "/elsewhere"} if 300 <= status < 400 else None)

    app = web.Application()
    app.add_routes([web.post("/{path:.*}", take)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/{SECRET}", got
    finally:
        await runner.cleanup()


async def _deliver(notifier: Notifier, *reports: Report) -> None:
    """Send the reports and wait until each was delivered or dropped."""
    wanted = sum(1 for report in reports if worth_telling(report)) * len(notifier.targets)
    task = asyncio.create_task(notifier.run())
    for report in reports:
        notifier.take(report)
    async with asyncio.timeout(180):
        while notifier.sent + notifier.dropped < wanted:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _send(answer: Callable[[int], int], *reports: Report, form: str = "json") -> tuple[list[dict[str, Any]], str]:
    text = io.StringIO()

    async def work() -> list[dict[str, Any]]:
        async with _receiver(answer) as (url, got):
            await _deliver(Notifier(targets=(Target(form, url),), log=Log("debug", text)), *reports)
            return got

    return asyncio.run(work()), text.getvalue()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.sleep
    monkeypatch.setattr(notify.asyncio, "sleep", lambda seconds: real(min(seconds, 0.01)))


def test_beginnings_ends_failures_and_undoings_are_told() -> None:
    """Four steps of a command, and a pool that backs off, are sent; the rest is only logged."""
    for phase in ("tainting", "done", "rolling-back", "failed"):
        assert worth_telling(_report(phase))
    for phase in ("validating", "launching", "waiting", "deleting", "refused"):
        assert not worth_telling(_report(phase))
    assert worth_telling(PoolBacksOff(command_id="c", pool="p", what="waits", failures=1, seconds=60, why="it failed"))
    assert not worth_telling(RoundEnded(commands=1, rounds=1, skipped=0))


def test_the_plain_form_has_every_figure() -> None:
    """The plain form has the topic, the command's id, the sentence and all numbers."""
    got, log = _send(lambda _: 200, _report("done"))
    assert got == [
        {
            "path": f"/{SECRET}",
            "type": "application/json",
            "source": "dovetail",
            "topic": "command",
            "command": "c1",
            "message": "replaceCost of n1 is done",
            "figures": {
                "phase": "done",
                "from": "",
                "signal": "",
                "action": "replaceCost",
                "method": "singleNode",
                "removes": 1,
                "launches": 0,
                "nodes": "n1",
                "replacements": "",
                "pools": "",
                "seconds": 0.0,
                "savings": 0.5,
            },
        }
    ]
    assert log == ""


def test_slack_gets_one_line_without_markup() -> None:
    """Slack markup, mentions and links in a name stay text."""
    got, _ = _send(lambda _: 200, _report("failed", "<!channel> *x* <https://evil|click> &amp; @here"), form="slack")
    assert (
        got[0]["text"]
        == "⚠ Dovetail: replaceCost of n1 is failed: &lt;!channel&gt; *x* &lt;https://evil|click&gt; &amp;amp; @here"
    )
    assert not any(got[0][key] for key in ("mrkdwn", "link_names", "unfurl_links", "unfurl_media"))


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_target_that_is_away_is_tried_again(status: int) -> None:
    """After two temporary errors and a success, the notification is delivered once."""
    got, log = _send(lambda number: status if number < 3 else 200, _report("done"))
    assert len(got) == 1
    assert log == ""


@pytest.mark.parametrize("status", [301, 400, 403, 404, 410])
def test_a_target_that_says_no_is_not_asked_again(status: int) -> None:
    """A wrong or moved address is dropped at once, with a warning that has neither URL nor secret."""
    asked: list[int] = []

    def answer(number: int) -> int:
        asked.append(number)
        return status

    _, log = _send(answer, _report("done"))
    assert asked == [1]
    assert json.loads(log)["why"] == f"status {status}"
    assert "secret" not in log


def test_nobody_there_costs_a_warning_without_the_url() -> None:
    """For a refused connection or an unknown host, the log names the form, never the address."""
    text = io.StringIO()
    urls = ("http://127.0.0.1:9/very-secret", "https://no-such-host.invalid/very-secret", "http://[bad/very-secret")
    targets = tuple(Target("json", url) for url in urls)
    notifier = Notifier(targets=targets, log=Log("debug", text))
    asyncio.run(_deliver(notifier, _report("done")))
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    assert [line["message"] for line in lines] == ["a notification could not be delivered"] * 3
    assert "secret" not in text.getvalue()
    assert "very-secret" not in repr(targets)


def test_tls_of_a_target_is_verified() -> None:
    """An HTTP session of Dovetail rejects an untrusted certificate."""
    with tempfile.TemporaryDirectory() as folder:
        write_certificates(Path(folder))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(folder) / "server.crt", Path(folder) / "server.key")
        reached: list[bytes] = []

        async def work() -> str:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                reached.append(await reader.read(100))
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
            port = server.sockets[0].getsockname()[1]
            text = io.StringIO()
            target = Target("json", f"https://localhost:{port}/x")
            await _deliver(Notifier(targets=(target,), log=Log("debug", text)), _report("done"))
            server.close()
            await server.wait_closed()
            return str(json.loads(text.getvalue())["why"])

        assert "Certificate" in asyncio.run(work())
        assert b"POST" not in b"".join(reached)


def test_the_queue_is_bounded_and_drops_the_oldest() -> None:
    """Without a target, thousands of reports use the memory of two hundred, and the newest are kept."""
    notifier = Notifier(targets=(), log=Log("error", io.StringIO()))
    for number in range(1000):
        notifier.take(_report("done", str(number)))
    assert notifier.dropped == 800
    assert [getattr(report, "why", "") for report in notifier._waiting] == [str(number) for number in range(800, 1000)]


def test_targets_are_read_from_a_folder(tmp_path: Path) -> None:
    """A folder has one file per form, like a mounted Secret; other files are ignored."""
    (tmp_path / "slack").write_text("https://example.invalid/a\n")
    (tmp_path / "json").write_text("  https://example.invalid/b  ")
    (tmp_path / "..data").mkdir()
    assert read_targets(tmp_path) == (
        Target("slack", "https://example.invalid/a"),
        Target("json", "https://example.invalid/b"),
    )


@pytest.mark.parametrize(
    ("name", "contents"),
    [("json", b"ftp://x/very-secret"), ("json", b""), ("json", b"\xff\xfe"), ("other", b"https://x")],
)
def test_a_folder_without_a_url_is_refused_in_one_sentence(tmp_path: Path, name: str, contents: bytes) -> None:
    """An invalid URL is not printed; a folder without any known file is reported."""
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(NotifyError) as caught:
        read_targets(tmp_path)
    assert "very-secret" not in str(caught.value)
    with pytest.raises(NotifyError, match="is not a folder"):
        read_targets(tmp_path / "missing")


def test_every_body_is_one_json_object() -> None:
    """Both forms are valid JSON for any report."""
    for form in notify.FORMS:
        assert json.loads(body(form, _report("done", '"\\\u2028</script>')))
