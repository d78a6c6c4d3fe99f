"""Controllers step down before an uninstallation: the Lease is taken over, and leaders get time to notice."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.cli.main import main
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import connect
from dovetail.live.kubernetes.lease import RELEASE_IDENTITY, LeaderElection
from dovetail.live.step_down import stop_controllers
from tests.support.control_plane import Client, ControlPlane


@contextlib.contextmanager
def _lease(client: Client, name: str, **spec: Any) -> Iterator[dict[str, Any]]:
    tree = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }
    client.apply(tree)
    try:
        yield tree
    finally:
        client.delete(tree)


def _stop(plane: ControlPlane, name: str) -> tuple[str, list[float]]:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def work() -> str:
        async with ApiClient(connect(str(plane.kubeconfig))) as client:
            return await stop_controllers(client, "default", name, pause=pause)

    return asyncio.run(work()), pauses


def test_a_leader_is_given_time_to_see_it(api_server: ControlPlane) -> None:
    """The Lease is taken for an hour; its holder gets longer to notice than it may act without renewing."""
    with api_server.client() as client, _lease(client, "held", holderIdentity="a", leaseDurationSeconds=15) as tree:
        assert _stop(api_server, "held") == ("a", [15.0])
        spec = client.get(tree)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == (RELEASE_IDENTITY, 3600)
    fields = LeaderElection.__dataclass_fields__
    assert fields["renew_deadline"].default < fields["lease_duration"].default  # type: ignore[operator]


def test_nobody_is_waited_for_where_nobody_leads(api_server: ControlPlane) -> None:
    """A free Lease, or one already taken, takes no time; a missing one is not an error."""
    with api_server.client() as client:
        with _lease(client, "free"):
            assert _stop(api_server, "free") == ("", [])
        with _lease(client, "ours", holderIdentity=RELEASE_IDENTITY):
            assert _stop(api_server, "ours") == (RELEASE_IDENTITY, [])
    assert _stop(api_server, "missing") == ("", [])


def test_a_leader_sees_it_and_steps_down_and_does_not_come_back(api_server: ControlPlane) -> None:
    """In a real election the leader loses the Lease within a few renewals and does not take it again."""
    happened: list[str] = []

    async def work() -> None:
        lost = asyncio.Event()

        async def gained() -> None:
            happened.append("gained")

        async def on_lost() -> None:
            happened.append("lost")
            lost.set()

        async with ApiClient(connect(str(api_server.kubeconfig))) as client:
            election = LeaderElection(
                client=client,
                namespace="default",
                name="fought",
                identity="leader",
                gained=gained,
                lost=on_lost,
                retry_period=0.05,
                lease_duration=1.0,
            )
            task = asyncio.create_task(election.run())
            async with asyncio.timeout(300):
                while not happened:
                    await asyncio.sleep(0.01)

                async def pause(seconds: float) -> None:
                    if seconds < 1:  # the leader renewed in between: try again
                        await asyncio.sleep(seconds)
                    else:
                        await lost.wait()

                assert await stop_controllers(client, "default", "fought", pause=pause) == "leader"
                assert not election.may_act
                await asyncio.sleep(1.5)  # longer than its own Lease would have lasted
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with api_server.client() as client, _lease(client, "fought"):
        asyncio.run(work())
    assert happened == ["gained", "lost"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--all", "--stop-controller", "dovetail"],
        ["--all", "--stop-controller", "/dovetail"],
        ["--all", "--stop-controller", "a/b/c"],
        ["pool", "--stop-controller", "dovetail/dovetail"],
    ],
)
def test_a_lease_is_named_in_full(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Half a name, or a name without --all, is wrong usage."""
    assert main(["release", *arguments]) == 2
    assert "--stop-controller goes with --all and names a Lease" in capsys.readouterr().err
