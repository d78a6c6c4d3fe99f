"""Parts of the live shell in a thread of the test's own process: a cloud that outlives controllers, a controller."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from dovetail.api.catalogue import load_catalogue
from dovetail.api.settings import load_settings
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.engine_state import EngineRole
from dovetail.lifecycle.messages import Event
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import connect
from dovetail.live.kubernetes.resources import RESOURCES
from dovetail.live.kubernetes.watch import Informer
from dovetail.live.observability.logs import Log
from dovetail.live.observability.metrics import Metrics
from dovetail.live.record_key import load_seal
from dovetail.live.run import Controller
from dovetail.standin.provider import Provider


class Background:
    """A loop in a thread that runs one thing until it is stopped."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.fault: BaseException | None = None

    def _run(self) -> None:
        async def main() -> None:
            self._task = asyncio.current_task()
            self._started.set()
            await self._work()

        try:
            self._loop.run_until_complete(main())
        except asyncio.CancelledError:
            pass
        except BaseException as fault:
            self.fault = fault
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(60)

    def stop(self) -> None:
        """Cancel it and wait until it is gone."""
        if self._thread.is_alive() and self._task is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(120)
        assert not self._thread.is_alive()


class Cloud:
    """The built-in provider alone: launches and deletes machines independently of controllers."""

    def __init__(self, kubeconfig: Path, catalogue: Path, **parts: Any) -> None:
        self.is_on = True
        self._kubeconfig, self._catalogue, self._parts = kubeconfig, catalogue, parts

    async def work(self) -> None:
        settings = load_settings(None)
        async with ApiClient(connect(str(self._kubeconfig))) as client:
            provider = Provider(
                client=client,
                catalogue=load_catalogue(str(self._catalogue)),
                settings=lambda: settings,
                log=Log("error", StringIO()),
                is_on=lambda: self.is_on,
                **self._parts,
            )

            async def deliver(event: Event) -> None:
                provider.observe(event)

            watchers = [
                Informer(client=client, resource=resource, deliver=deliver, note=lambda kind, message: None)
                for resource in RESOURCES
            ]
            await asyncio.gather(provider.run(), *(watcher.run() for watcher in watchers))


@contextlib.contextmanager
def cloud_on(kubeconfig: Path, catalogue: Path, **parts: Any) -> Iterator[Cloud]:
    """Run the cloud for the duration of the context."""
    cloud = Cloud(kubeconfig, catalogue, **parts)
    background = Background(cloud.work)
    background.start()
    try:
        yield cloud
    finally:
        background.stop()
    if background.fault is not None:
        raise background.fault


class Inside:
    """A controller in this process, with a clock that the test chooses."""

    def __init__(
        self,
        kubeconfig: Path,
        catalogue: Path,
        settings: Path,
        *,
        identity: str = "inside",
        observe: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        crd_seconds: float = 60.0,
        **parts: Any,
    ) -> None:
        self.text = StringIO()
        self.metrics = Metrics()
        self.controller: Controller | None = None
        self._kubeconfig, self._parts, self._identity = kubeconfig, parts, identity
        self.engine = Engine(
            load_settings(settings),
            load_catalogue(str(catalogue)),
            EngineRole(identity=identity, observe=observe, holds_first=True),
        )
        self._clock, self._crd_seconds = clock, crd_seconds

    async def work(self) -> None:
        async with ApiClient(connect(str(self._kubeconfig))) as client:
            seal = None if self.engine.observe else await load_seal(client, "kube-system")
            self.controller = Controller(
                client=client,
                seal=seal,
                engine=self.engine,
                log=Log("debug", self.text),
                metrics=self.metrics,
                identity=self._identity,
                lease_namespace="kube-system",
                clock=self._clock,
                crd_seconds=self._crd_seconds,
                **self._parts,
            )
            await self.controller.run()


@contextlib.contextmanager
def running_inside(inside: Inside) -> Iterator[Inside]:
    """Run the controller for the duration of the context."""
    background = Background(inside.work)
    background.start()
    try:
        yield inside
    except BaseException:
        print(inside.text.getvalue())  # noqa: T201 - pytest shows it where the test failed
        raise
    finally:
        background.stop()
    if background.fault is not None:
        raise background.fault
