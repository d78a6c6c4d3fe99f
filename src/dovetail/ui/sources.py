"""Where the live view looks: a capture, a running simulation, or a cluster; `ui.recorded` has recordings.

Each source returns the question that a round would answer now. Commands in progress are read from the cluster's own
objects (`ui.commands`), so the same code shows all of them. Sources run in their own threads and never write.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from dovetail import __version__
from dovetail.decide.question import Question
from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.lifecycle.published import live_question
from dovetail.lifecycle.store import Store
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.credentials import Connection, UnreachableError
from dovetail.live.kubernetes.resources import RESOURCES
from dovetail.live.kubernetes.watch import Informer
from dovetail.live.publish import StateReading, read_state
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.policies.managed import managed_pools
from dovetail.model.settings import DOVETAIL, Settings
from dovetail.sim.run import add_controllers
from dovetail.sim.scenarios.scenario import Policy, Scenario
from dovetail.sim.scenarios.stage import Stage
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.world import World
from dovetail.ui.commands import CommandNow, PassingCommands

SPEEDS: Final = (0, 1, 10, 60, 300, 1800)
_STEP_SECONDS: Final = 0.1
_SHORT_STEP: Final = 20 * SECOND
_STATE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a source is doing, for people: `problem` is empty while all is well.

    `position` and `length` are in seconds, -1 if there is no end; `seekable`: whether `go_to` works.
    """

    kind: str
    name: str
    problem: str = ""
    speed: int = -1
    ended: bool = False
    position: float = -1
    length: float = -1
    seekable: bool = False


class DocumentSource(Protocol):
    """Something to look at."""

    def start(self) -> None:
        """Begin to follow it."""

    def stop(self) -> None:
        """Stop following it."""

    def question(self) -> Question | None:
        """Return the question of a round now; None while nothing is known yet."""

    def status(self) -> Status:
        """Return how it is doing."""

    def passed(self) -> tuple[CommandNow, ...]:
        """Return the commands that were seen since the last call, ended ones included."""

    def set_speed(self, speed: int) -> bool:
        """Change how fast time passes; False if it can't be changed."""

    def go_to(self, seconds: float) -> bool:
        """Go to a moment; False if that can't be done."""


class CaptureSource:
    """A captured cluster: stands still."""

    def __init__(self, name: str, question: Question) -> None:
        self._name = name
        self._question = question

    def start(self) -> None:
        """Skip: it was read already."""

    def stop(self) -> None:
        """Skip."""

    def question(self) -> Question | None:
        """Return the capture."""
        return self._question

    def status(self) -> Status:
        """Return how it is doing."""
        return Status(kind="capture", name=self._name)

    def passed(self) -> tuple[CommandNow, ...]:
        """Return nothing: nothing happens in a capture."""
        return ()

    def set_speed(self, speed: int) -> bool:
        """Return False: a capture has no time."""
        return False

    def go_to(self, seconds: float) -> bool:
        """Return False: a capture has one moment."""
        return False


class SimulationSource:
    """A scenario that runs while you look; its time can be sped up, slowed down and stopped."""

    def __init__(self, scenario: Scenario, policy: Policy, seed: int = 0, speed: int = 60) -> None:
        self._name = f"{scenario.name}, policy {policy.name}, seed {seed}"
        self._begin, self._end = scenario.warm_up, scenario.warm_up + scenario.until
        self._speed = speed
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulation", daemon=True)
        policy = policy.paying(scenario.tariff)
        world = Stage(scenario, policy, seed).build()
        world.run(scenario.warm_up)
        self._settings, hosts = add_controllers(world, policy)
        for host in hosts:
            host.start()
        self._world: World = world
        self._passing = PassingCommands()
        world.store.listen(lambda change: self._passing.observe(change.new), "Node", "NodeClaim")

    def start(self) -> None:
        """Advance time."""
        self._thread.start()

    def stop(self) -> None:
        """Stop time."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stopping.wait(_STEP_SECONDS):
            now = time.monotonic()
            self._pass(min(now - before, 1.0))
            before = now

    def _pass(self, seconds: float) -> None:
        """Advance the world by a number of real seconds, in short steps so that a look never waits long."""
        target = min(self._end, self._world.now + int(seconds * self._speed * SECOND))
        while self._world.now < target and not self._stopping.is_set():
            with self._lock:
                self._world.run(min(target, self._world.now + _SHORT_STEP))

    def question(self) -> Question | None:
        """Return the world as it is now."""
        with self._lock:
            return Question(
                cluster=self._world.store.cluster(),
                catalogue=self._world.cloud.seen_catalogue(),
                settings=self._settings,
                now=self._world.clock.instant(),
            )

    def status(self) -> Status:
        """Return how it is doing."""
        now = min(self._world.now, self._end)
        return Status(
            kind="simulation",
            name=self._name,
            speed=self._speed,
            ended=now >= self._end,
            position=round((now - self._begin) / SECOND, 1),
            length=round((self._end - self._begin) / SECOND, 1),
        )

    def passed(self) -> tuple[CommandNow, ...]:
        """Return the commands that were seen since the last call, ended ones included."""
        with self._lock:
            return self._passing.take()

    def set_speed(self, speed: int) -> bool:
        """Change how fast time passes; one of `SPEEDS`."""
        if speed not in SPEEDS:
            return False
        self._speed = speed
        return True

    def go_to(self, seconds: float) -> bool:
        """Return False: a simulation only goes forward."""
        return False


class ClusterSource:
    """A cluster, followed by list and watch, with the state that its controller publishes.

    `settings`: None: the controller's. `namespace`: where the controller runs; None: one of the usual places.
    """

    def __init__(
        self,
        name: str,
        connection: Connection,
        settings: Settings | None,
        catalogue: "CatalogueFor",
        namespace: str | None = None,
    ) -> None:
        self._name = name
        self._connection = connection
        self._settings = settings
        self._namespace = namespace
        self._reading: StateReading | None = None
        self._catalogue_for = catalogue
        self._catalogue: Catalogue | None = None
        self._store = Store()
        self._lock = threading.Lock()
        self._passing = PassingCommands()
        self._synced = False
        self._problem = "reading the cluster"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Close all watches."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and loop.is_running():
            loop.call_soon_threadsafe(task.cancel)
            self._thread.join(timeout=5)

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            try:
                await self._watch()
            except* (ApiError, UnreachableError) as errors:
                self._problem = f"the cluster can't be read: {errors.exceptions[0]}"

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(main())

    async def _watch(self) -> None:
        async with ApiClient(self._connection, user_agent=f"dovetail/{__version__}") as client:
            informers = [
                Informer(client=client, resource=resource, deliver=self._deliver, note=self._note, failed=self._note)
                for resource in RESOURCES
            ]
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_state(client))
                for informer in informers:
                    group.create_task(informer.run())
                for informer in informers:
                    if informer.resource.essential:
                        await informer.synced.wait()
                self._synced, self._problem = True, ""

    async def _follow_state(self, client: ApiClient) -> None:
        """Read the controller's state again and again; a failure is shown and tried again."""
        while True:
            try:
                self._reading = await read_state(client, self._namespace, datetime.now(UTC))
            except (ApiError, UnreachableError) as error:
                state = None if self._reading is None else self._reading.state
                why = f"the state of the controller can't be read ({error})"
                self._reading = StateReading(state=state, problem=why, short="its controller's state can't be read")
            await asyncio.sleep(_STATE_SECONDS)

    async def _deliver(self, event: Event) -> None:
        with self._lock:
            match event:
                case ObjectObserved():
                    self._store.observe(event.object)
                    self._passing.observe(event.object)
                case ObjectVanished():
                    self._store.vanish(event.kind, event.namespace, event.name, event.uid)
                case _:
                    pass

    def _note(self, kind: str, text: str) -> None:
        self._problem = f"{kind}: {text}"

    def question(self) -> Question | None:
        """Return the cluster as it is known now; None until everything has been listed once."""
        reading = self._reading
        if not self._synced or reading is None:
            return None
        with self._lock:
            cluster = self._store.cluster()
        if reading.problem:
            cluster = replace(cluster, notes=(reading.problem, *cluster.notes))
        if self._catalogue is None:
            self._catalogue = self._catalogue_for(cluster)
        self._problem = ""
        settings = self._settings or (DOVETAIL if reading.state is None else reading.state.settings)
        question = Question(
            cluster=cluster,
            catalogue=self._catalogue,
            settings=settings,
            now=datetime.now(UTC),
            managed_pools=managed_pools(cluster.node_pools, settings) or None,
        )
        with self._lock:
            return live_question(question, reading.state, self._store)

    def status(self) -> Status:
        """Return how it is doing."""
        short = self._reading.short if self._reading is not None else ""
        return Status(kind="cluster", name=f"{self._name} ({short})" if short else self._name, problem=self._problem)

    def passed(self) -> tuple[CommandNow, ...]:
        """Return the commands that were seen since the last call, ended ones included."""
        with self._lock:
            return self._passing.take()

    def set_speed(self, speed: int) -> bool:
        """Return False: a cluster's time is real time."""
        return False

    def go_to(self, seconds: float) -> bool:
        """Return False: a cluster's time is real time."""
        return False


CatalogueFor = Callable[[Cluster], Catalogue]
"""Chooses the catalogue once the nodes are known."""
