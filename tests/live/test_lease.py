"""Leader election on a real API server: rivals, renewal, stepping down, release."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web

from dovetail.live import clocks
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import connect
from dovetail.live.kubernetes.lease import LeaderElection
from tests.live.fake_server import talking_to, until
from tests.support.control_plane import ControlPlane

PATH = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Candidate:
    """A candidate for leadership that records its callbacks."""

    def __init__(self, client: ApiClient, identity: str, lease: str, **times: float) -> None:
        self.told: list[str] = []
        self.notes: list[str] = []

        async def gained() -> None:
            self.told.append("gained")

        async def lost() -> None:
            self.told.append("lost")

        settings = {"lease_duration": 2.0, "renew_deadline": 1.0, "retry_period": 0.1, **times}
        self.election = LeaderElection(
            client=client,
            namespace="default",
            name=lease,
            identity=identity,
            gained=gained,
            lost=lost,
            note=self.notes.append,
            **settings,  # type: ignore[arg-type]
        )
        self.task = asyncio.create_task(self.election.run())

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _client(plane: ControlPlane) -> AsyncIterator[ApiClient]:
    async with ApiClient(connect(str(plane.kubeconfig))) as client:
        yield client


def _holder(plane: ControlPlane, lease: str) -> Any:
    with plane.client() as api:
        return api.request("GET", f"{PATH}/{lease}")[1]["spec"].get("holderIdentity")


def test_one_leads_and_the_other_follows_when_it_is_given_back(api_server: ControlPlane) -> None:
    """The second waits while the first renews, and leads at once after a clean stop; transitions are counted."""

    async def context() -> None:
        async with _client(api_server) as client:
            asked: list[str] = []
            real: Callable[..., Any] = client.request

            async def counting(method: str, path: str, **rest: Any) -> bytes:
                asked.append(method)
                return await real(method, path, **rest)  # type: ignore[no-any-return]

            client.request = counting  # type: ignore[method-assign]
            patient = {"lease_duration": 90.0, "renew_deadline": 60.0}  # longer than any pause of a busy machine
            one = Candidate(client, "one", "orderly", **patient)
            await until(lambda: one.told == ["gained"])
            two = Candidate(client, "two", "orderly", **patient)
            await until(lambda: asked.count("PATCH") >= 10 and asked.count("GET") >= 10)
            assert (one.told, two.told) == (["gained"], [])
            assert one.election.may_act
            assert not two.election.may_act
            await one.stop()
            assert _holder(api_server, "orderly") != "one"
            await until(lambda: two.told == ["gained"])
            assert _holder(api_server, "orderly") == "two"
            await two.stop()
            assert not _holder(api_server, "orderly")

    asyncio.run(context())


def test_a_dead_leader_is_waited_for_by_ones_own_clock(api_server: ControlPlane) -> None:
    """A Lease whose times are an hour off is taken over after its duration by this process' clock, not before."""
    stamp = "2099-01-01T00:00:00.000000Z"
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 2, "renewTime": stamp, "acquireTime": stamp}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "dead"}, "spec": spec}
    lease["metadata"] = {"name": "dead", "namespace": "default", "labels": {"kept": "yes"}}
    with api_server.client() as api:
        assert api.create(lease)[0] == 201

    async def context() -> None:
        async with _client(api_server) as client:
            began = time.monotonic()
            heir = Candidate(client, "heir", "dead")
            await until(lambda: heir.told == ["gained"])
            assert time.monotonic() - began >= 2.0
            await heir.stop()

    asyncio.run(context())
    with api_server.client() as api:
        stored = api.request("GET", f"{PATH}/dead")[1]
    assert stored["metadata"]["labels"] == {"kept": "yes"}
    assert stored["spec"]["leaseTransitions"] == 1


def test_many_rivals_never_two_at_once(api_server: ControlPlane) -> None:
    """Of five candidates that die one after another without releasing, no two lead at the same time."""

    async def context() -> None:
        async with _client(api_server) as client:
            rivals = [Candidate(client, f"rival-{number}", "crowd") for number in range(5)]
            seen: list[str] = []
            deadline = time.monotonic() + 300
            while len(seen) < 3:
                assert time.monotonic() < deadline
                acting = [rival for rival in rivals if rival.election.may_act]
                assert len(acting) <= 1
                if acting and acting[0].election.identity not in seen:
                    seen.append(acting[0].election.identity)
                    acting[0].election.leading = False  # so that it does not release the Lease
                    acting[0].task.cancel()
                await asyncio.sleep(0.01)
            for rival in rivals:
                await rival.stop()

    asyncio.run(context())


def _lease(holder: str) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 2}}


def test_a_leader_that_can_not_renew_steps_down_in_time() -> None:
    """A leader may act before the deadline and not after it, whether the server fails or hangs."""
    broken = False

    def answer(request: web.Request, number: int) -> Any:
        if broken:
            return web.json_response({"code": 500}, status=500)
        return _lease("me")

    async def context() -> None:
        nonlocal broken
        async with talking_to(answer) as (_, client):
            me = Candidate(client, "me", "x", renew_deadline=0.6)
            await until(lambda: me.told[-1:] == ["gained"])
            broken = True
            await until(lambda: not me.election.may_act)
            await until(lambda: me.told[-1:] == ["lost"])
            assert any("can't be renewed" in note for note in me.notes)
            await me.stop()

    asyncio.run(context())


def test_a_server_that_hangs_does_not_hold_leadership_open() -> None:
    """A renewal without an answer is abandoned at the deadline."""
    hang = False

    def answer(request: web.Request, number: int) -> Any:
        if not hang:
            return _lease("me")
        response = web.StreamResponse()
        response.content_length = 10
        return response

    async def context() -> None:
        nonlocal hang
        async with talking_to(answer) as (_, client):
            me = Candidate(client, "me", "x", renew_deadline=0.6)
            await until(lambda: me.told[-1:] == ["gained"])
            hang = True
            await until(lambda: me.told[-1:] == ["lost"])
            await me.stop()

    asyncio.run(context())


def test_conflicts_and_missing_rights() -> None:
    """After a conflict the Lease is read again; a missing permission is logged once with the rule."""
    status: list[int] = [409, 403]

    def answer(request: web.Request, number: int) -> Any:
        if request.method == "GET":
            return _lease("")
        if status:
            code = status[0] if number < 12 else 200
            if number >= 6:
                code = 403 if number < 12 else 200
            if code != 200:
                return web.json_response({"code": code, "reason": "R", "message": "m"}, status=code)
        return _lease("me")

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            me = Candidate(client, "me", "x", renew_deadline=60.0)
            await until(lambda: me.told == ["gained"])
            await me.stop()
            assert [note for note in me.notes if "coordination.k8s.io" in note] == me.notes
            assert len(me.notes) == 1

    asyncio.run(context())


def test_the_written_spec() -> None:
    """A write is a patch that applies only to the version that was read."""
    bodies: list[dict[str, Any]] = []

    def answer(request: web.Request, number: int) -> Any:
        return _lease("me") if request.method == "GET" else {"metadata": {}}

    async def context() -> None:
        async with talking_to(answer) as (_, client):
            original: Callable[..., Any] = client.request

            async def spy(method: str, path: str, **rest: Any) -> bytes:
                if method == "PATCH":
                    bodies.append(json.loads(rest["body"]))
                return await original(method, path, **rest)  # type: ignore[no-any-return]

            client.request = spy  # type: ignore[method-assign]
            me = Candidate(client, "me", "x", renew_deadline=60.0)
            await until(lambda: me.told == ["gained"])
            await me.stop()

    asyncio.run(context())
    assert bodies[0]["metadata"] == {"resourceVersion": "1"}
    assert "acquireTime" not in bodies[0]["spec"], "it was ours already"
    assert bodies[-1]["spec"] == {"holderIdentity": None, "leaseDurationSeconds": 1}


def test_a_slow_server_makes_leading_slow_not_impossible() -> None:
    """If every call takes over a quarter of the renewal deadline, it still leads and renews with one call."""
    calls: list[str] = []
    version = 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal version
        calls.append(request.method)
        version += 1
        await asyncio.sleep(1.1)  # 5.5 s of the 20 s that are the default
        return web.json_response({"metadata": {"resourceVersion": str(version)}, "spec": {"holderIdentity": "me"}})

    async def context() -> None:
        async with talking_to(lambda request, number: {}) as (_, client):
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", slow)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            client.connection.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
            me = Candidate(client, "me", "x", lease_duration=6.0, renew_deadline=4.0, retry_period=0.4)
            await until(lambda: me.told == ["gained"])
            begun = len(calls)
            while len(calls) < begun + 6:
                assert me.election.may_act
                await asyncio.sleep(0.05)
            assert set(calls[begun:]) == {"PATCH"}
            assert me.told == ["gained"]
            await me.stop()
            await runner.cleanup()

    asyncio.run(context())


def test_a_conflict_while_renewing_is_read_at_once() -> None:
    """A leader keeps the Lease if someone changes its metadata, such as a label."""
    held = "me"
    refuse = 0

    def answer(request: web.Request, number: int) -> Any:
        nonlocal refuse
        if request.method == "PATCH" and refuse:
            refuse -= 1
            return web.json_response({"code": 409}, status=409)
        return {
            "metadata": {"resourceVersion": str(number)},
            "spec": {"holderIdentity": held, "leaseDurationSeconds": 9},
        }

    async def context() -> None:
        nonlocal refuse, held
        async with talking_to(answer) as (server, client):
            me = Candidate(client, "me", "x", renew_deadline=60.0)
            await until(lambda: me.told == ["gained"])
            refuse = 1
            await until(lambda: refuse == 0)
            seen = len(server.requests)
            await until(lambda: len(server.requests) > seen + 5)
            assert me.told == ["gained"]
            held, refuse = "another", 1000
            await until(lambda: me.told == ["gained", "lost"])
            await me.stop()

    asyncio.run(context())


def test_one_call_that_hangs_leaves_time_for_another() -> None:
    """One unanswered renewal does not lose the Lease."""
    hung = 0

    async def once(request: web.Request) -> web.StreamResponse:
        nonlocal hung
        if request.method == "PATCH" and hung == 1:
            hung = 2
            await asyncio.sleep(60)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me"}})

    async def context() -> None:
        nonlocal hung
        async with talking_to(lambda request, number: {}) as (_, client):
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", once)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            client.connection.server = f"http://127.0.0.1:{runner.addresses[0][1]}"
            me = Candidate(client, "me", "x", lease_duration=9.0, renew_deadline=6.0, retry_period=0.2)
            await until(lambda: me.told == ["gained"])
            hung = 1
            await until(lambda: bool(me.notes))
            await until(lambda: me.election.age < 1.0)
            assert me.told == ["gained"]
            await me.stop()
            await runner.cleanup()

    asyncio.run(context())


def test_a_renewal_counts_from_before_its_write() -> None:
    """The age of a Lease counts from the start of the call, when the server may have started its duration."""
    ages: list[float] = []

    async def context() -> None:
        async with talking_to(lambda request, number: {}) as (_, client):

            async def gained() -> None:
                ages.append(election.age)

            async def lost() -> None:
                return None

            class Slow(LeaderElection):
                """A server whose calls take a while."""

                async def _try(self) -> bool:
                    await asyncio.sleep(0.3)
                    return True

            election = Slow(client=client, namespace="default", name="x", identity="me", gained=gained, lost=lost)
            task = asyncio.create_task(election.run())
            await until(lambda: bool(ages))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(context())
    assert ages[0] >= 0.3


@pytest.mark.parametrize(
    ("age", "most"),
    [(0.0, 5.0), (4.0, 5.0), (7.0, 3.0), (9.5, 0.5), (12.0, 0.1)],
    ids=["just renewed", "half is left", "three seconds are left", "half a second is left", "too late"],
)
def test_a_renewal_is_not_waited_for_beyond_the_deadline(
    monkeypatch: pytest.MonkeyPatch, age: float, most: float
) -> None:
    """An attempt has the time until the deadline, at most half of it, so that no leader acts on an expired Lease."""
    waited: list[float] = []

    def timeout(seconds: float) -> contextlib.AbstractAsyncContextManager[None]:
        waited.append(seconds)
        return contextlib.nullcontext()

    async def nothing() -> None:
        return None

    async def context() -> None:
        async with talking_to(lambda request, number: {"spec": {"holderIdentity": "me"}}) as (_, client):
            election = LeaderElection(
                client=client, namespace="default", name="x", identity="me", gained=nothing, lost=nothing
            )
            election.renew_deadline = 10.0
            election.leading = True
            moment = clocks.now()
            election._renewed = clocks.Moment(steady=moment.steady - age, wall=moment.wall - age)
            with monkeypatch.context() as patch:
                patch.setattr("dovetail.live.kubernetes.lease.asyncio.timeout", timeout)
                await election._try()

    asyncio.run(context())
    assert waited[0] <= most
    assert waited[0] > most - 5.0, "but it is waited for"
