"""The live view behind the browser: commands from objects, history, the document, the server's rules."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
from aiohttp.test_utils import TestClient, TestServer

from dovetail.api.findings import InputError
from dovetail.cli.main import main
from dovetail.decide.decider import Decider
from dovetail.decide.round import decide
from dovetail.decide.work import Work
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.ui.commands import STEPS, CommandNow, commands_of
from dovetail.ui.document import coming
from dovetail.ui.history import History, Sample
from dovetail.ui.server import Server, is_loopback
from dovetail.ui.sources import SimulationSource
from dovetail.ui.watcher import Watcher
from tests.paths import ROOT
from tests.support.design_world import Town, kind

_SCHEMAS = ROOT / "src/dovetail/report/schemas"
_START = datetime(2026, 1, 5, 18, 15, tzinfo=UTC)
MINUTE = 60 * 10**9


def simulated(policy: int = 0, scenario: str = "issue-7146") -> SimulationSource:
    """Return a simulation whose time advances only by `_pass`."""
    loaded = load_scenario(scenario)
    return SimulationSource(loaded, loaded.policies[policy], speed=1)


@pytest.fixture(scope="module")
def states() -> list[dict[str, Any]]:
    """Return the documents of ten minutes of issue 7146 under Karpenter's rules, every ten seconds."""
    source = simulated()
    watcher = Watcher(source, History())
    seen = []
    for _ in range(60):
        source._pass(10)
        assert watcher.look()
        assert watcher.document is not None
        seen.append(watcher.document)
    watcher._history.close()
    return seen


def test_the_document_keeps_its_schema(states: list[dict[str, Any]]) -> None:
    """The live document and the plan in it are what their schemas say."""
    live = json.loads((_SCHEMAS / "live.schema.json").read_text())
    plan = json.loads((_SCHEMAS / "plan.schema.json").read_text())
    for state in states[::20]:
        read = json.loads(json.dumps(state))
        jsonschema.validate(read, live)
        jsonschema.validate(read["plan"], plan)


def test_commands_are_followed_from_taint_to_end(states: list[dict[str, Any]]) -> None:
    """A command's steps finish one after another, and it disappears once its nodes are gone."""
    order = {"done": 2, "now": 1, "later": 0, "none": 3}
    seen: dict[str, list[list[str]]] = {}
    for state in states:
        for command in state["commands"]:
            assert len(command["steps"]) == len(STEPS)
            ranks = [order[step] for step in command["steps"] if step != "none"]
            assert ranks == sorted(ranks, reverse=True)
            assert command["steps"].count("now") <= 1
            seen.setdefault(command["id"], []).append(command["steps"])
    assert len(seen) > 5
    phases = {tuple(steps) for entries in seen.values() for steps in entries}
    assert len(phases) >= 3
    assert not {entry["id"] for entry in states[-1]["commands"]} & set(list(seen)[:3])


def test_money_is_counted(states: list[dict[str, Any]]) -> None:
    """A command saves the price of the removed nodes minus the new ones, added up over time."""
    last = states[-1]["money"]
    first = states[0]["money"]
    assert last["commands"] > 0
    assert last["savedPerHour"] > 0
    assert 0 < last["savedSoFar"] < last["savedPerHour"]
    assert abs((first["costPerHour"] - last["savedPerHour"]) - last["costPerHour"]) < first["costPerHour"] * 0.25


def test_history_tells_what_came_and_went(states: list[dict[str, Any]]) -> None:
    """Samples are in order of time; starts, ends, new nodes and removed nodes are listed."""
    history = states[-1]["history"]
    assert history["seconds"] == sorted(history["seconds"])
    assert len(history["seconds"]) == len(history["nodes"]) == 60
    assert {entry["kind"] for entry in history["events"]} == {"began", "ended", "came", "went"}


def test_what_comes_next_is_in_the_future(states: list[dict[str, Any]]) -> None:
    """Timers, expiry and windows are listed soonest first."""
    for state in states[::15]:
        seconds = [entry["seconds"] for entry in state["next"]]
        assert seconds == sorted(seconds)
        assert all(second >= 0 for second in seconds)
    assert any("expiry of" in entry["what"] for entry in states[-1]["next"])


def _command(ident: str, nodes: tuple[str, ...], came: tuple[str, ...] = (), action: str = "replaceCost") -> CommandNow:
    return CommandNow(
        id=ident, by="dovetail", action=action, reason="Cost", since=_START, nodes=nodes,
        replacements=tuple(f"{name}-claim" for name in came), coming=came,
        steps=("done", "done", "done", "now", "later"), pods_left=0,
    )  # fmt: skip


def _sample(at: float) -> Sample:
    return Sample(at=_START.timestamp() + at, nodes=2, cost=3.0, pods=5, pending=0, under_way=0)


def test_history_survives_a_restart(tmp_path: Path) -> None:
    """After a restart samples, events and savings are back; an ended command is closed, a rolled-back one counts 0."""
    path = str(tmp_path / "history.sqlite")
    before = {"a": 2.0, "b": 1.0, "c": 1.0}
    history = History(path)
    history.take(_sample(0), (), before)
    history.take(_sample(10), (_command("one", ("a",), ("n",)), _command("two", ("b",))), before)
    history.take(_sample(20), (_command("one", ("a",), ("n",)), _command("two", ("b",))), {**before, "n": 0.5})
    history.close()
    again = History(path)
    assert len(again.samples()) == 3
    again.take(_sample(30), (), {"b": 1.0, "c": 1.0, "n": 0.5})
    saved = again.saved(_START.timestamp() + 30 + 3600)
    assert (saved.per_hour, saved.so_far) == (1.5, 1.5)
    told = [entry.text for entry in again.events()]
    assert "replace for cost of a is done" in told
    assert "replace for cost of b was undone" in told
    assert again.since() == _START.timestamp()
    again.close()
    assert oct(Path(path).stat().st_mode & 0o777) == "0o600"


def test_drift_saves_nothing(tmp_path: Path) -> None:
    """Only cost and empty commands count as savings."""
    history = History()
    history.take(_sample(0), (_command("one", ("a",), action="deleteDrifted"),), {"a": 1.0})
    history.take(_sample(10), (), {})
    assert history.saved(_START.timestamp() + 3600).per_hour == 0
    history.close()


def test_a_long_history_is_thinned() -> None:
    """A page gets a bounded number of samples, the newest among them."""
    history = History()
    for at in range(5_000):
        history.take(_sample(float(at)), (), {})
    samples = history.samples()
    assert 1_000 < len(samples) <= 2_001
    assert samples[-1].at == _START.timestamp() + 4_999
    history.close()


@pytest.mark.parametrize("content", [b"this is no database, but text that is long enough" * 5, None])
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """An unusable file fails with one sentence and stays unchanged."""
    path = tmp_path / "x"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match="can't be used"):
        History(str(path))
    if content is not None:
        assert path.read_bytes() == content


def test_a_cluster_without_records_has_no_command() -> None:
    """Without records nothing is in progress."""
    question = simulated().question()
    assert question is not None
    assert commands_of(question.cluster) == ()


@pytest.mark.parametrize("error", [InputError("no prices here"), RuntimeError("odd object")])
def test_trouble_is_told_and_does_not_end_the_view(error: Exception) -> None:
    """A failed read is shown as a problem; the next one continues."""
    source = simulated()
    fail = [error]
    look = source.question

    def question() -> Any:
        if fail:
            raise fail[0]
        return look()

    source.question = question  # type: ignore[method-assign]
    watcher = Watcher(source, History(), every=0.01)
    watcher.start()
    try:
        _until(lambda: str(error) in watcher.problem)
        fail.clear()
        _until(lambda: watcher.document is not None and not watcher.problem)
    finally:
        watcher.stop()


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


# ---------------------------------------------------------------- the server


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    """Yield a watcher that has read once; its source does not change."""
    source = simulated()
    made = Watcher(source, History())
    source._pass(30)
    made.look()
    yield made
    made._history.close()


def _visit(watcher: Watcher, visit: Callable[[Any], Awaitable[None]], token: str | None = None) -> None:
    async def session() -> None:
        async with TestClient(TestServer(Server(watcher, "t", token).app())) as client:
            await visit(client)

    asyncio.run(session())


def test_page_and_state_are_served(watcher: Watcher) -> None:
    """The page has the strict policy as a header too; the state is the watcher's document; nothing is cached."""

    async def visit(client: Any) -> None:
        page = await client.get("/")
        assert page.status == 200
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        state = await (await client.get("/api/state")).json()
        assert state["version"] == watcher.version
        assert state["document"]["kind"] == "live"
        assert (await client.get("/api/state")).headers["Cache-Control"] == "no-store"

    _visit(watcher, visit)


def test_a_node_is_asked_for_by_name(watcher: Watcher) -> None:
    """A node has its pods' targets and what would change its verdict; an unknown name is not found."""

    async def visit(client: Any) -> None:
        assert watcher.document is not None
        node = watcher.document["plan"]["nodes"]["name"][0]
        found = await (await client.get("/api/node", params={"name": node})).json()
        assert set(found) == {"moves", "changes"}
        gone = await (await client.get("/api/node", params={"name": "nobody"})).json()
        assert gone == {"moves": None, "changes": [], "gone": True}
        assert "blockers" in await (await client.get("/api/blockers")).json()

    _visit(watcher, visit)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "10.0.0.7:8717"])
def test_a_foreign_name_is_refused_without_a_token(watcher: Watcher, host: str) -> None:
    """A foreign host name that resolves to this machine gets nothing (DNS rebinding)."""

    async def visit(client: Any) -> None:
        for path in ("/", "/api/state", "/api/events", "/api/node?name=x"):
            assert (await client.get(path, headers={"Host": host})).status == 403

    _visit(watcher, visit)


def test_with_a_token_nobody_looks_without_it(watcher: Watcher) -> None:
    """Without the token neither page nor state is served; it comes by header or in the opened address."""
    token = "0123456789abcdef"

    async def visit(client: Any) -> None:
        for path in ("/", "/api/state", "/api/events", "/?token=wrong"):
            assert (await client.get(path)).status == 401
        bearer = {"Authorization": f"Bearer {token}"}
        assert (await client.get("/api/state", headers=bearer)).status == 200
        opened = await client.get(f"/?token={token}", allow_redirects=False)
        assert opened.status == 302
        cookie = opened.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        given = {"Cookie": f"dovetail-token={token}"}
        assert (await client.get("/api/state", headers=given)).status == 200

    _visit(watcher, visit, token)


def test_only_the_speed_can_be_set_and_only_by_its_own_page(watcher: Watcher) -> None:
    """Another origin, another method and another value are refused; nothing else takes a write."""

    async def visit(client: Any) -> None:
        own = f"http://{client.host}:{client.port}"
        body = {"speed": 300}
        assert (await client.post("/api/speed", json=body)).status == 403
        assert (await client.post("/api/speed", json=body, headers={"Origin": "http://evil.example"})).status == 403
        assert (await client.post("/api/speed", json={"speed": 7}, headers={"Origin": own})).status == 400
        assert (await client.post("/api/speed", data=b"x", headers={"Origin": own})).status == 400
        assert (await client.post("/api/speed", json=body, headers={"Origin": own})).status == 200
        assert watcher.source.status().speed == 300
        for wanted in (5, -1, True, "5", None, 10**400, float("nan")):  # a simulation only goes forward
            assert (await client.post("/api/time", json={"seconds": wanted}, headers={"Origin": own})).status == 400
        for method in ("put", "delete", "patch", "post"):
            answer = await getattr(client, method)("/api/state", headers={"Origin": own})
            assert answer.status == 405

    _visit(watcher, visit)


async def _raw(client: Any, request: bytes) -> int:
    """Send bytes that no client would send; return the status."""
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(request)
    await writer.drain()
    line = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return int(line.split()[1])


_BROKEN = [
    b"GET / HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: [v1.x]\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost:99999999\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: dovetail-token=\xff\xfe\r\n\r\n",
    b"GET /?token=%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /api/node?name=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /api/speed HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\nContent-Length: 0\r\n\r\n",
    b"POST /api/speed HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 200000\r\n\r\n"
    + b"[" * 200_000,
    b"POST /api/speed HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    (
        b"POST /api/speed HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
        b"Content-Type: application/json; charset=none\r\nContent-Length: 2\r\n\r\n{}"
    ),
]


@pytest.mark.parametrize("token", [None, "secret"])
def test_a_broken_request_is_no_fault_of_the_server(watcher: Watcher, token: str | None) -> None:
    """Broken hosts, origins and headers, deep JSON and text that is no UTF-8 are the client's fault: never a 500."""

    async def visit(client: Any) -> None:
        for request in _BROKEN:
            assert await _raw(client, request) < 500, request[:120]

    _visit(watcher, visit, token)


def test_the_stream_says_when_something_is_new(watcher: Watcher) -> None:
    """The stream sends one message at once and one after each read, with its version and a reconnection delay."""

    async def visit(client: Any) -> None:
        async with client.get("/api/events", timeout=aiohttp.ClientTimeout(total=20)) as stream:
            assert stream.headers["Content-Type"] == "text/event-stream"
            assert b"retry:" in await stream.content.readline()
            first = await _message(stream)
            source: Any = watcher.source
            source._pass(10)
            await asyncio.get_running_loop().run_in_executor(None, watcher.look)
            assert int(await _message(stream)) == int(first) + 1

    _visit(watcher, visit)


async def _message(stream: Any) -> str:
    while True:
        line = (await stream.content.readline()).decode().strip()
        if line.startswith("data: "):
            return line.removeprefix("data: ")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False), ("::", False),
     ("10.1.2.3", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_what_counts_as_this_machine(host: str, expected: bool) -> None:
    """Only loopback addresses count as this machine."""
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--listen", "0.0.0.0:0"], "add --token-file"),
        (["--listen", "8717"], "write HOST:PORT"),
        (["--listen", "localhost:99999"], "write HOST:PORT"),
        (["--speed", "7"], "write one of"),
        (["--policy", "nobody"], "no such policy"),
        (["--token-file", "/nowhere"], "can't be read"),
        (["--history", "/nowhere/x"], "can't be used"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage exits with status 2, the problem and what to write."""
    assert main(["ui", "--scenario", "issue-7146", *arguments]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.strip().splitlines()) == 1


def test_commands_shorter_than_a_look_are_counted() -> None:
    """Looks five minutes apart count every command that looks ten seconds apart count."""
    counted = []
    for step in (10, 300):
        source = simulated()
        history = History()
        watcher = Watcher(source, history)
        for _ in range(1800 // step):
            for _ in range(step // 10):
                source._pass(10)
            watcher.look()
        counted.append({row[0] for row in history._base.execute("SELECT id FROM commands")})
        history.close()
    assert counted[0] == counted[1]
    assert len(counted[0]) > 5


def test_what_could_go_is_not_held_back(states: list[dict[str, Any]]) -> None:
    """Eligible nodes wait for their turn and for no check."""
    assert all(row["gate"] != "eligible" for state in states for row in state["money"]["held"])


def test_a_command_between_two_looks_is_seen() -> None:
    """However long a step of a simulation is, each command that began and ended in it is seen, and only once."""
    seen = []
    for step in (2, 20):
        source = simulated(policy=-1)
        found = []
        for _ in range(1_200 // step):
            source._pass(step)
            found += [entry for entry in source.passed() if entry.id not in {old.id for old in found}]
        seen.append([(entry.action, entry.nodes) for entry in found])
    assert len(seen[0]) >= 4
    assert seen[0] == seen[1]


def test_similar_changes_of_many_pools_are_one() -> None:
    """From four pools on, a timer that all have is one row that counts their nodes and says how many pools."""
    made = Town(kind("m", "0.20"))
    for pool in ("a", "b", "c", "d", "e"):
        made.pool(pool, disruption={"consolidateAfter": "5m", "expireAfter": "100h"})
        for number in range(2):
            made.node(f"{pool}{number}", "m", pool=pool, age=timedelta(hours=1))
    question = made.question()
    work = Work(Decider().scene(question))
    rows = [(row["what"], row["pool"]) for row in coming(work.scene, decide(work))]
    assert ("expiry of 10 nodes, in 5 pools", "") in rows
    assert len(rows) == len({what for what, _ in rows}), "each kind once"


def test_a_closed_page_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """A browser that goes away while it is being told ends its request quietly."""

    async def session() -> None:
        watcher = Watcher(simulated(), History())
        server = Server(watcher, "test")
        async with TestClient(TestServer(server.app())) as client:
            answer = await client.get("/api/events", headers={"Host": "localhost"})
            await answer.content.readany()
            answer.close()
            for _ in range(20):
                watcher._notify()
                await asyncio.sleep(0.05)

    asyncio.run(session())
    assert not [record for record in caplog.records if "Error handling request" in record.message]
