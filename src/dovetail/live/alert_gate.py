"""The setting `alertGate`: a Prometheus query; any sample in its result holds all pools (docs/rules.md#health).

Queries periodically and sends the result to the engine. Until the first answer everything is held. If Prometheus can't
be reached, the last answer is kept for two minutes; then `whenUnreachable` applies. An answer counts only if all of it
was read and understood: an error status, a redirect, a packed, broken or endless answer is the same as none.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec

from dovetail.lifecycle.messages import AlertChanged
from dovetail.model.settings import AlertGate, WhenUnreachable

if TYPE_CHECKING:
    from dovetail.live.run import Controller

UNREACHABLE_AFTER: Final = 120.0
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)
_ANSWER_MAX: Final = 8 << 20
_PLAIN: Final = {"Accept-Encoding": "identity"}  # so that a small answer can't grow in memory
_LOOK_SECONDS: Final = 5.0
_SECOND: Final = 1_000_000_000
NOT_ASKED: Final = "The alert gate has not been answered yet: nothing starts before."


class AlertError(Exception):
    """The query got no usable answer; the message says why."""


@dataclass(slots=True, kw_only=True)
class AlertState:
    """What the gate knows: the last answer, and since when there is none. `clock`: a monotonic clock in seconds."""

    clock: Callable[[], float] = time.monotonic
    why: str = NOT_ASKED
    unreachable_since: float | None = None
    problem: str = field(default="")

    def answered(self, alerts: list[str]) -> None:
        """Record an answer: the firing alerts, by name."""
        self.unreachable_since, self.problem = None, ""
        more = f" and {len(alerts) - 3} more" if len(alerts) > 3 else ""
        self.why = f"The alert gate holds: {', '.join(alerts[:3])}{more}." if alerts else ""

    def failed(self, gate: AlertGate, problem: str) -> None:
        """Record that there was no answer."""
        now = self.clock()
        self.problem = problem
        if self.unreachable_since is None:
            self.unreachable_since = now
        if now - self.unreachable_since > UNREACHABLE_AFTER:
            holds = gate.when_unreachable is WhenUnreachable.HOLD
            self.why = f"The alert gate can't be asked ({problem}): nothing starts." if holds else ""


def read_answer(raw: bytes) -> list[str]:
    """Return the names of the samples in an instant query's response; raise AlertError if it can't be read."""
    try:
        tree = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AlertError("the answer is not JSON") from None
    if not isinstance(tree, dict) or tree.get("status") != "success" or not isinstance(tree.get("data"), dict):
        said = tree.get("error") if isinstance(tree, dict) else None
        raise AlertError(f"Prometheus refused: {str(said)[:200]}" if said else "the answer is none of Prometheus'")
    result, kind = tree["data"].get("result"), tree["data"].get("resultType")
    if not isinstance(result, list) or kind not in ("vector", "matrix", "scalar", "string"):
        raise AlertError("the answer has no result")
    return sorted(_name(sample) for sample in result) if kind in ("vector", "matrix") else ["the query"]


def _name(sample: Any) -> str:
    labels = sample.get("metric") if isinstance(sample, dict) else None
    if not isinstance(labels, dict) or not labels:
        return "the query"
    return str(labels.get("alertname") or labels.get("__name__") or "the query")[:100]


async def ask(session: aiohttp.ClientSession, gate: AlertGate) -> list[str]:
    """Send the query once and return the names of the samples; raise AlertError unless the whole answer was read."""
    asked = session.get(
        f"{gate.url}/api/v1/query",
        params={"query": gate.query},
        headers=_PLAIN,
        timeout=_TIMEOUT,
        allow_redirects=False,
    )
    try:
        async with asked as response:
            return await _answer(response)
    except TimeoutError:
        raise AlertError("no answer within 10 s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise AlertError(str(error)[:200] or type(error).__name__) from None


async def _answer(response: aiohttp.ClientResponse) -> list[str]:
    if 300 <= response.status < 400:
        raise AlertError(f"status {response.status}: redirects are not followed")
    packed = response.headers.get("Content-Encoding", "identity")
    if packed != "identity":
        raise AlertError(f"the answer is packed ({packed[:20]}), though plain text was asked for")
    raw = bytearray()
    async for piece in response.content.iter_any():
        raw += piece
        if len(raw) > _ANSWER_MAX:
            raise AlertError(f"the answer is longer than {_ANSWER_MAX >> 20} MiB")
    if response.status == 200:
        return read_answer(bytes(raw))
    if raw.startswith(b"{"):
        read_answer(bytes(raw))  # raises with Prometheus' own words
    raise AlertError(f"status {response.status}")


def watch_alerts(state: AlertState | None = None) -> "Callable[[Controller], Awaitable[None]]":
    """Return the background task; it follows changes of the settings."""

    async def alert_gate(controller: "Controller") -> None:
        known, told = state or AlertState(), ""
        if controller.engine.settings.alert_gate is not None:
            told = NOT_ASKED  # the first event of all: no round comes before the gate's first answer
            await controller.put(AlertChanged(why=told))
        async with aiohttp.ClientSession() as session:
            while True:
                gate = controller.engine.settings.alert_gate
                if gate is None:
                    known, why = AlertState(clock=known.clock), ""
                else:
                    await _look(session, gate, known)
                    why = known.why
                if why != told:
                    told = why
                    controller.log.info("alert gate", why=why or "it is open")
                    await controller.put(AlertChanged(why=why))
                await asyncio.sleep(_LOOK_SECONDS if gate is None else gate.every / _SECOND)

    return alert_gate


async def _look(session: aiohttp.ClientSession, gate: AlertGate, state: AlertState) -> None:
    try:
        state.answered(await ask(session, gate))
    except AlertError as error:
        state.failed(gate, str(error))
