"""Reads the series of a recording from a Prometheus, an hour at a time, and keeps each hour on disk.

A second start goes on with the hours that are missing. A window that is too much for the server is asked for in halves.
What the answer means is `recordings.series`' and `recordings.imported`'s.
"""

import asyncio
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from dovetail.api.findings import InputError, one_line
from dovetail.recordings.series import QUERIES, SeriesQuery, SeriesRuns, ValueRun, joined, runs_of

PART: Final = "hour-{:05d}.json.gz"
PLAN: Final = "plan.json"
_HOUR: Final = 3600.0
_LEAST_SECONDS: Final = 300.0
_AT_ONCE: Final = 4
_ANSWER_MAX: Final = 1 << 30


class _TooMuchError(Exception):
    """The server could not answer for a window of this length."""


class ImportPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is imported; a second start must ask for the same."""

    url: str
    match: str
    length: float
    step: float
    begins: float
    ends: float


@dataclass(slots=True, kw_only=True)
class SeriesReader:
    """Reads the series, hour by hour. `folder` holds what has been read so far."""

    plan: ImportPlan
    folder: Path
    token: str = ""
    timeout: float = 120.0
    progress: Callable[[float], None] | None = None
    queries: Sequence[SeriesQuery] = QUERIES
    _session: aiohttp.ClientSession | None = field(default=None)

    async def read(self) -> dict[str, list[SeriesRuns]]:
        """Read every hour that is not there yet, and return all of them joined."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = aiohttp.ClientTimeout(total=self.timeout)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            self._session = session
            await self._check_clusters()
            windows = self._windows()
            for number, (begins, ends) in enumerate(windows):
                path = self.folder / PART.format(number)
                if not path.exists():
                    _replace(path, await self._hour(begins, ends))
                if self.progress is not None:
                    self.progress((number + 1) / len(windows))
        parts = [_load(self.folder / PART.format(number)) for number in range(len(windows))]
        step = self.plan.step
        return {query.name: joined((part.get(query.name, ()) for part in parts), step) for query in self.queries}

    def _windows(self) -> list[tuple[float, float]]:
        plan, found, begins = self.plan, [], self.plan.begins
        while begins <= plan.ends:
            ends = min(plan.ends, begins + max(plan.step, _HOUR // plan.step * plan.step - plan.step))
            found.append((begins, ends))
            begins = ends + plan.step
        return found

    async def _check_clusters(self) -> None:
        """Refuse a Prometheus that holds several clusters, unless one is picked."""
        at = str(self.plan.ends)
        query = f"count by (cluster) (kube_node_info{{{self.plan.match}}})"
        try:
            rows = await self._ask("query", {"query": query, "time": at})
        except _TooMuchError as error:
            raise InputError(f"{self.plan.url} can't answer ({error}); try again, or check --url") from None
        clusters = sorted({row["metric"].get("cluster", "") for row in rows})
        if len(clusters) > 1:
            listed = ", ".join(name or "(none)" for name in clusters[:5])
            raise InputError(
                f"this Prometheus holds {len(clusters)} clusters ({listed}); pick one with --match 'cluster=\"NAME\"'"
            )

    async def _hour(self, begins: float, ends: float) -> bytes:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(query: SeriesQuery) -> list[SeriesRuns]:
            async with limit:
                return await self._window(query, begins, ends)

        found = await asyncio.gather(*(one(query) for query in self.queries))
        tree = {
            query.name: [[each.labels, [(run.first, run.last, run.value) for run in each.runs]] for each in series]
            for query, series in zip(self.queries, found, strict=True)
        }
        return gzip.compress(msgspec.json.encode(tree), mtime=0)

    async def _window(self, query: SeriesQuery, begins: float, ends: float) -> list[SeriesRuns]:
        """Ask for one window; in halves if it is too much at once."""
        step = self.plan.step
        params = {"query": query.promql(self.plan.match), "start": str(begins), "end": str(ends), "step": str(step)}
        try:
            return runs_of(await self._ask("query_range", params), step)
        except _TooMuchError as error:
            if ends - begins <= max(_LEAST_SECONDS, 2 * step):
                raise InputError(
                    f"{self.plan.url} can't answer for {query.metric} ({error}), not even for a few minutes at once; "
                    "give a longer --step, or raise its query.timeout and query.max-samples"
                ) from None
        middle = begins + (ends - begins) // 2 // step * step
        halves = [await self._window(query, begins, middle), await self._window(query, middle + step, ends)]
        return joined(halves, step)

    async def _ask(self, what: str, params: dict[str, str]) -> list[dict[str, Any]]:
        assert self._session is not None
        url = self.plan.url
        try:
            async with self._session.post(f"{url}/api/v1/{what}", data=params, allow_redirects=False) as response:
                raw = await response.content.read(_ANSWER_MAX + 1)
                while not response.content.at_eof() and len(raw) <= _ANSWER_MAX:
                    raw += await response.content.read(_ANSWER_MAX + 1 - len(raw))
                status = response.status
        except TimeoutError:
            raise _TooMuchError(f"no answer within {self.timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise InputError(f"{url} can't be reached ({one_line(str(error)) or type(error).__name__})") from None
        return self._result(status, raw)

    def _result(self, status: int, raw: bytes) -> list[dict[str, Any]]:
        url = self.plan.url
        if status in (401, 403):
            raise InputError(f"{url} refused the credentials ({status}); give --token-file FILE")
        if 300 <= status < 400:
            raise InputError(
                f"{url} redirects (status {status}), perhaps to a login page; give Prometheus' own address"
            )
        try:
            tree = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if status in (502, 503, 504):
                raise _TooMuchError(f"status {status}") from None
            page = "with a web page" if raw.lstrip()[:1] == b"<" else "with something that is not JSON"
            raise InputError(
                f"{url} answers {page} (status {status}), not as Prometheus does; is a path such as "
                "/prometheus missing in --url?"
            ) from None
        if not isinstance(tree, dict) or "status" not in tree:
            raise InputError(f"{url} does not answer as Prometheus does; check --url")
        if tree["status"] == "success":
            rows = tree.get("data", {}).get("result")
            if isinstance(rows, list):
                return rows
            raise InputError(f"{url} does not answer as Prometheus does; check --url")
        said = one_line(str(tree.get("error", "")))[:200]
        if tree.get("errorType") in ("timeout", "execution", "canceled", "unavailable"):
            raise _TooMuchError(said)
        raise InputError(f"{url} refused: {said or status}")


def _load(path: Path) -> dict[str, list[SeriesRuns]]:
    try:
        tree = msgspec.json.decode(gzip.decompress(path.read_bytes()))
        return {
            name: [
                SeriesRuns(tuple((key, value) for key, value in labels), [ValueRun(*run) for run in runs])
                for labels, runs in series
            ]
            for name, series in tree.items()
        }
    except (OSError, EOFError, ValueError, TypeError, msgspec.DecodeError):
        raise InputError(f"{path} is damaged; remove {path.parent} and import again") from None


def _replace(path: Path, raw: bytes) -> None:
    """Write a file as a whole."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(raw)
    new.replace(path)


def load_plan(folder: Path) -> ImportPlan | None:
    """Return what an earlier start began to read; None if there is nothing usable."""
    try:
        return msgspec.json.decode((folder / PLAN).read_bytes(), type=ImportPlan)
    except (OSError, msgspec.DecodeError):
        return None


def forget_empty(folder: Path) -> None:
    """Remove the plan and its folder if nothing was read yet."""
    if folder.is_dir() and all(entry.name == PLAN for entry in folder.iterdir()):
        (folder / PLAN).unlink(missing_ok=True)
        folder.rmdir()


def keep_plan(folder: Path, plan: ImportPlan) -> None:
    """Write down what is being read."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(folder / PLAN, msgspec.json.encode(plan))
