"""The same outcome whatever the cluster does meanwhile.

Rivals for the Lease, a server that restarts, cut watches, throttling, conflicts, clocks that are an hour off.
"""

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.test_crash import _drift, _most_at_once
from tests.support.background import Cloud, Inside, cloud_on, running_inside
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import controller
from tests.support.e2e_world import Tree, World, pool, write_catalogue, write_settings
from tests.support.history import History, history_of
from tests.support.proxy import Answer, Proxy, Seen, proxy_for


@pytest.fixture
def cloud(cluster: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud that talks to the server itself."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)) as found:
        yield found


def _scene(world: World) -> Tree:
    web = world.pool(pool("web", consolidateAfter="Never"))
    world.node("first", web)
    world.fill("app", ["first", "first"])
    return web


def _replaced(world: World) -> None:
    """One new node with all pods, no mark anywhere."""
    eventually(lambda: "first" not in world.claims() and len(world.nodes()) == 1)
    world.wait_running("app", 2)
    eventually(lambda: not world.leftovers())


def _config(cluster: ControlPlane, folder: Path, server: str) -> Path:
    config = json.loads(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"] = {"server": server}
    path = folder / f"config-{time.monotonic_ns()}"
    path.write_text(json.dumps(config))
    return path


def _flags(folder: Path, kubeconfig: Path) -> list[str]:
    settings = write_settings(folder, validationDelay="0s")
    return [
        "--kubeconfig", str(kubeconfig), "--catalog", str(write_catalogue(folder)), "--settings", str(settings),
    ]  # fmt: skip


def test_two_replicas_and_one_that_sleeps_through_its_reign(
    cluster: ControlPlane, world: World, history: History, cloud: Cloud, tmp_path: Path
) -> None:
    """Only one replica leads; one that is stopped for longer than its Lease writes nothing after it wakes."""
    web = _scene(world)
    with (
        proxy_for(cluster.base_url, cluster.ca_path) as front,
        controller(
            tmp_path, "one", *_flags(tmp_path, _config(cluster, tmp_path, front.url)), "--identity", "one"
        ) as one,
    ):
        one.wait_for("leading")
        with controller(tmp_path, "two", *_flags(tmp_path, cluster.kubeconfig), "--identity", "two") as two:
            two.wait_for("in sync")
            assert two.metric("dovetail_leader") == 0
            assert one.metric("dovetail_leader") == 1

            def sleep_after_create(seen: Seen, status: int) -> None:
                if seen.method == "POST" and seen.path.endswith("/nodeclaims"):
                    one.process.send_signal(signal.SIGSTOP)

            front.after = sleep_after_create
            _drift(world, web, 1)
            two.wait_for("leading")
            front.after = lambda seen, status: None
            asleep = len(front.seen)
            one.process.send_signal(signal.SIGCONT)
            _replaced(world)
            one.wait_for("no longer leading")
            late = [seen for seen in front.seen[asleep:] if seen.acts()]
            assert late == []
            assert (one.metric("dovetail_leader"), two.metric("dovetail_leader")) == (0, 1)
            assert _most_at_once(history) == 2


def test_an_orderly_stop_gives_the_lease_back(cluster: ControlPlane, world: World, tmp_path: Path) -> None:
    """After SIGTERM the Lease has no holder, so that the next replica leads at once; the exit status is 0."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dovetail"
    with controller(tmp_path, "one", *_flags(tmp_path, cluster.kubeconfig), "--identity", "one") as one:
        one.wait_for("leading")
        assert world.api.request("GET", path)[1]["spec"]["holderIdentity"] == "one"
        assert one.stop() == 0
        assert one.said("stopped")
        assert not world.api.request("GET", path)[1]["spec"].get("holderIdentity")
    with controller(tmp_path, "two", *_flags(tmp_path, cluster.kubeconfig), "--identity", "two") as two:
        two.wait_for("leading")


def test_the_api_server_restarts_in_the_middle(
    cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path
) -> None:
    """A server restart between the creation of the replacement and the deletion changes nothing."""
    web = _scene(world)
    with controller(tmp_path, "dovetail", *_flags(tmp_path, cluster.kubeconfig)) as process:
        process.wait_for("leading")
        _drift(world, web, 1)
        eventually(lambda: conditions_of(world.claims()["first"]).get("Drifted") == "True")
        cloud.is_on = False
        eventually(lambda: len(world.claims()) == 2)
        world.api.close()
        cluster.restart_apiserver(down_seconds=3)
        cloud.is_on = True
        _replaced(world)
        assert process.process.poll() is None


def _all_kinds_of_trouble() -> Iterator[tuple[str, Callable[[Proxy], None]]]:
    counter = itertools.count()

    def throttled(seen: Seen) -> Answer | None:
        refuse = seen.is_write and next(counter) % 2 == 0
        return Answer(429, "TooManyRequests", {"Retry-After": "1"}) if refuse and "leases" not in seen.path else None

    def conflicting(seen: Seen) -> Answer | None:
        refuse = seen.method == "PATCH" and seen.acts() and next(counter) % 2 == 0
        return Answer(409, "Conflict") if refuse else None

    def failing(seen: Seen) -> Answer | None:
        return Answer(503, "ServiceUnavailable") if next(counter) % 4 == 0 else None

    def calm(proxy: Proxy) -> None:
        time.sleep(0.2)

    def cut(proxy: Proxy) -> None:
        time.sleep(0.7)
        proxy.cut_watches()

    yield "throttled", lambda proxy: (setattr(proxy, "before", throttled), calm(proxy))[1]
    yield "conflicting", lambda proxy: (setattr(proxy, "before", conflicting), calm(proxy))[1]
    yield "failing", lambda proxy: (setattr(proxy, "before", failing), calm(proxy))[1]
    yield "cut", cut


@pytest.mark.parametrize(("name", "disturb"), list(_all_kinds_of_trouble()), ids=lambda value: str(value)[:12])
def test_trouble_on_the_way_changes_nothing(
    cluster: ControlPlane,
    world: World,
    history: History,
    cloud: Cloud,
    tmp_path: Path,
    name: str,
    disturb: Callable[[Proxy], None],
) -> None:
    """With throttling, conflicts, failures and broken watches there is one replacement, one deletion and no mark."""
    web = _scene(world)
    with (
        proxy_for(cluster.base_url, cluster.ca_path) as front,
        controller(tmp_path, name, *_flags(tmp_path, _config(cluster, tmp_path, front.url))) as process,
    ):
        process.wait_for("leading")
        _drift(world, web, 1)
        deadline = time.monotonic() + 900  # each lost answer to a creation costs a minute or two; it has to end
        while "first" in world.claims() or world.leftovers():
            assert time.monotonic() < deadline
            disturb(front)
        front.before = lambda seen: None
        _replaced(world)
        assert len(history.created()) == 2, "one claim of the test's, one replacement"
        assert _most_at_once(history) == 2


@pytest.mark.parametrize("hours", [1, -1])
def test_an_hour_of_skew(
    cluster: ControlPlane, world: World, history: History, cloud: Cloud, tmp_path: Path, hours: int
) -> None:
    """A leader whose clock is an hour off dies in the middle; one whose clock is right finishes, or rolls back."""
    web = _scene(world)
    catalogue, settings = write_catalogue(tmp_path), write_settings(tmp_path, validationDelay="0s")

    def clock() -> datetime:
        return datetime.now(UTC) + timedelta(hours=hours)

    cloud.is_on = False
    skewed = Inside(cluster.kubeconfig, catalogue, settings, identity="skewed", clock=clock)
    with running_inside(skewed):
        eventually(lambda: skewed.engine.acts)
        cloud.is_on = True
        _drift(world, web, 1)
        eventually(lambda: len(history.created()) == 2)
        cloud.is_on = False
    cloud.is_on = True
    with running_inside(Inside(cluster.kubeconfig, catalogue, settings, identity="right")):
        # By the right clock a record from an hour ago has timed out, unless its machine is ready: both ends are fine.
        eventually(lambda: len(world.claims()) == 1 and not world.leftovers())
        world.wait_running("app", 2)
    assert _most_at_once(history) == 2


def test_a_skewed_controller_alone_comes_to_the_same_end(
    cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path
) -> None:
    """A command ends normally if the clock is an hour slow and then an hour fast during it."""
    web = _scene(world)
    offset = [timedelta(hours=-1)]
    inside = Inside(
        cluster.kubeconfig,
        write_catalogue(tmp_path),
        write_settings(tmp_path, validationDelay="0s"),
        clock=lambda: datetime.now(UTC) + offset[0],
    )
    with history_of(cluster) as history, running_inside(inside):
        eventually(lambda: inside.engine.acts)
        _drift(world, web, 1)
        eventually(lambda: len(history.created()) == 1)
        offset[0] = timedelta(hours=1)
        _replaced(world)  # two hours have not really passed: nothing has timed out
        assert _most_at_once(history) == 2
        assert len(history.created()) == 1
