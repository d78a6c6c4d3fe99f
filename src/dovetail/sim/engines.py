"""Where a sweep's runs happen: on this machine's cores or on a Dask cluster, with the same results in the same order.

A run is a pure function of its task, so one whose worker died is run again elsewhere, and nothing is lost or counted
twice. Each result is fetched as soon as it is ready: a worker that dies loses only its current run.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from dovetail.api.findings import InputError, one_line
from dovetail.sim.compare import Progress, Task, run_all
from dovetail.sim.ledger import Result
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import Policy, Scenario

Done = Callable[[int, Result], None]
"""Hears of each result as it comes: the place of its task, and the result."""
Note = Callable[[str], None]
"""Says something to the person who waits."""

_DASK: Final = re.compile(r"dask://(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):[0-9]{1,5}")
_RETRIES: Final = 5
_CONNECT_SECONDS: Final = 15
_WORKER_SECONDS: Final = 30


def run_tasks(
    tasks: Sequence[Task],
    engine: str,
    progress: Progress | None = None,
    *,
    done: Done | None = None,
    note: Note | None = None,
) -> list[Result]:
    """Return all results, in the order of the tasks. `engine` is `local` or `dask://HOST:PORT`."""
    if engine == "local":
        return run_all(tasks, progress, done=done)
    if _DASK.fullmatch(engine):
        return _on_dask(tasks, engine.removeprefix("dask://"), progress, done, note)
    raise InputError(f"--engine is {engine!r}; write local, or dask://HOST:PORT of a Dask scheduler")


@cache
def code_digest() -> str:
    """Return a digest of Dovetail's own code: results of other code are other results."""
    folder = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


# ---------------------------------------------------------------- on a Dask cluster


class OtherCodeError(Exception):
    """A worker has another Dovetail than the process that asks."""


def run_there(code: str, scenario: Scenario, policy: Policy, seed: int, until: int | None) -> Result:
    """Run one task on a worker; module level, so that the worker can import it."""
    if code != code_digest():
        raise OtherCodeError("a Dask worker has another version of Dovetail than this machine")
    return run_scenario(scenario, policy, seed, until)


def same_scenario(scenario: Scenario) -> Scenario:
    """Return the scenario: as a task of its own it goes to each worker once, and can be made again if one dies."""
    return scenario


def _on_dask(
    tasks: Sequence[Task], address: str, progress: Progress | None, done: Done | None, note: Note | None
) -> list[Result]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--engine dask:// needs the dask extra: pip install 'dovetail-k8s[dask]'") from None
    try:
        client = Client(f"tcp://{address}", timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError):
        raise InputError(f"no Dask scheduler answers at {address}; start one with `dask scheduler`") from None
    with client:
        _wait_for_workers(client, address, note)
        found: dict[int, Result] = {}
        for place, result in _as_they_come(client, tasks):
            found[place] = result
            if done is not None:
                done(place, result)
            if progress is not None:
                progress(len(found) / len(tasks))
        return [found[place] for place in range(len(tasks))]


def _as_they_come(client: Any, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """Yield every result with the place of its task, in the order in which they end."""
    from distributed import KilledWorker, as_completed

    code = code_digest()
    scenarios = {id(task[0]): task[0] for task in tasks}
    there = {mark: client.submit(same_scenario, scenario, pure=False) for mark, scenario in scenarios.items()}
    places: dict[Any, int] = {}
    for place, (scenario, policy, seed, until) in enumerate(tasks):
        asked = (code, there[id(scenario)], policy, seed, until)
        # Dask starts equal priorities in the order in which they were asked for.
        places[client.submit(run_there, *asked, pure=False, retries=_RETRIES)] = place
    waiting = as_completed(list(places), with_results=True, raise_errors=False, loop=client.loop)
    for future, result in waiting:
        if future.status != "finished":
            failure = result[1] if isinstance(result, tuple) else result
            if isinstance(failure, KilledWorker):
                raise InputError("worker after worker died at the same run; have they enough memory?")
            raise InputError(_why(failure)) from None
        place = places.pop(future)
        future.release()  # the worker may forget it
        yield place, result


def _why(failure: object) -> str:
    if isinstance(failure, OtherCodeError | ImportError | AttributeError):
        return f"{one_line(str(failure))}; install the same dovetail-k8s on every Dask worker"
    return f"a run failed on a Dask worker: {one_line(str(failure))}"


def _wait_for_workers(client: Any, address: str, note: Note | None) -> None:
    if not client.scheduler_info()["workers"] and note is not None:
        note(f"the Dask scheduler at {address} has no worker yet; waiting up to {_WORKER_SECONDS} s for one")
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except TimeoutError:
        raise InputError(
            f"the Dask scheduler at {address} has no worker; start some with `dask worker {address} --nthreads 1`"
        ) from None
    workers = client.scheduler_info()["workers"].values()
    if note is not None:
        crowded = any(worker["nthreads"] > 1 for worker in workers)
        hint = "; start them with --nthreads 1: runs in threads of one process get in each other's way"
        note(f"{len(workers)} Dask worker{'' if len(workers) == 1 else 's'}{hint if crowded else ''}")
