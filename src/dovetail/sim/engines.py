"""Where a sweep's runs happen: on this machine's cores or on a Dask cluster, with the same results in the same order.

Dask keeps what is not finished: a worker that dies in the middle has its runs repeated elsewhere, and a run is a pure
function of its task, so nothing is lost or counted twice.
"""

from collections.abc import Sequence
from typing import Final

from dovetail.api.findings import InputError
from dovetail.sim.compare import Progress, Task, run_all
from dovetail.sim.ledger import Result
from dovetail.sim.run import run_scenario

_RETRIES: Final = 5
_CONNECT_SECONDS: Final = 15


def run_tasks(tasks: Sequence[Task], engine: str, progress: Progress | None = None) -> list[Result]:
    """Return all results, in the order of the tasks. `engine` is `local` or `dask://HOST:PORT`."""
    if engine == "local":
        return run_all(tasks, progress)
    if engine.startswith("dask://"):
        return _on_dask(tasks, engine.removeprefix("dask://"), progress)
    raise InputError(f"--engine is {engine!r}; write local, or dask://HOST:PORT of a Dask scheduler")


def run_one(task: Task) -> Result:
    """Run one simulation; at module level, so that a worker elsewhere can import it."""
    scenario, policy, seed, until = task
    return run_scenario(scenario, policy, seed, until)


def _on_dask(tasks: Sequence[Task], address: str, progress: Progress | None) -> list[Result]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError("--engine dask:// needs the dask extra: pip install 'dovetail-k8s[dask]'") from None
    try:
        client = Client(f"tcp://{address}", timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError):
        raise InputError(f"no Dask scheduler answers at {address}; start one with `dask scheduler`") from None
    with client:
        futures = client.map(run_one, list(tasks), pure=False, retries=_RETRIES)
        for done, _ in enumerate(as_completed(futures, loop=client.loop), start=1):
            if progress is not None:
                progress(done / len(tasks))
        return list(client.gather(futures))
