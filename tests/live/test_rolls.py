"""Requests to roll are dated by the API server, and stay there if no controller takes them up."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from dovetail.cli.main import main
from dovetail.live.rolls import Fleet, RollError, ask
from tests.live.fake_server import talking_to
from tests.support.control_plane import ControlPlane
from tests.support.e2e_world import pool

SERVER = datetime(2031, 5, 4, 3, 2, 1, tzinfo=UTC)
"""What the API server's clock says; the clock of the machine that runs the test says something else."""
CREATED = "2031-05-04T03:00:00Z"


def _listing(*items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7"}, "items": list(items)}


def _pool() -> dict[str, Any]:
    return {"metadata": {"name": "web", "resourceVersion": "7", "labels": {"dovetail.dev/manage": "true"}}}


def _claim() -> dict[str, Any]:
    labels = {"karpenter.sh/nodepool": "web"}
    meta = {"name": "web-0", "resourceVersion": "7", "labels": labels, "creationTimestamp": CREATED}
    return {"metadata": meta, "status": {"nodeName": "ip-1"}}


def _answer(date: str | None) -> Any:
    def answer(request: web.Request, _: int) -> web.Response:
        tree = {"nodepools": _listing(_pool()), "nodeclaims": _listing(_claim())}
        body = tree.get(request.path.rsplit("/", 1)[-1], _pool())
        response = web.json_response(body)
        if date is not None:
            response.headers["Date"] = date
        return response

    return answer


def _asked(date: str | None, before: datetime | None = None) -> str:
    """Ask for a roll; return the annotation that is written."""
    written: list[str] = []

    async def work() -> None:
        async with talking_to(_answer(date)) as (server, client):
            handled = server.handle

            async def handle(request: web.Request) -> web.StreamResponse:
                if request.method == "PATCH":
                    written.append((await request.json())["metadata"]["annotations"]["dovetail.dev/roll"])
                return await handled(request)

            server.handle = handle  # type: ignore[method-assign]
            fleet = await Fleet.read(client)
            await ask(client, fleet, fleet.targets(["web"]), before, "")

    asyncio.run(work())
    return written[0]


def test_the_servers_clock_dates_a_request() -> None:
    """T0 and the default of T are the time of the API server, years away from that of this machine."""
    found = json.loads(_asked("Sun, 04 May 2031 03:02:01 GMT"))
    assert found == {"before": "2031-05-04T03:02:01Z", "requested": "2031-05-04T03:02:01Z"}


def test_the_future_is_the_servers_future() -> None:
    """A time that is past on the server is accepted although it is to come here, and one after it is refused."""
    found = json.loads(_asked("Sun, 04 May 2031 03:02:01 GMT", SERVER.replace(second=0)))
    assert found["before"] == "2031-05-04T03:02:00Z"
    with pytest.raises(RollError, match=r"in the future: it is 2031-05-04T03:02:01Z on the API server"):
        _asked("Sun, 04 May 2031 03:02:01 GMT", SERVER.replace(second=2))


@pytest.mark.parametrize("date", ["", "soon"])
def test_an_answer_without_a_date(date: str) -> None:
    """A proxy that removes the date leaves nothing to date a request by, and the local clock is not used instead."""
    with pytest.raises(RollError, match="carry no date"):
        _asked(date)


def test_without_a_controller_the_request_stays(api_server: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
    """If no controller takes a request up in time, the exit status is 1 and the answer says what to check."""
    tree = pool("idle")
    template = tree["spec"]["template"]["spec"]
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "idle-0", "labels": {"karpenter.sh/nodepool": "idle"}},
        "spec": {"nodeClassRef": template["nodeClassRef"], "requirements": template["requirements"]},
    }
    config = ["--kubeconfig", str(api_server.kubeconfig)]
    with api_server.client() as api:
        for each in (tree, claim):
            assert api.create(each)[0] == 201
        try:
            while main(["roll", "idle", "--timeout", "1s", *config]) == 0:
                pass  # creation times are whole seconds: in this one no node is older
            said = capsys.readouterr()
            assert "no controller has taken the request up within 1s" in said.err
            found = api.get(tree)
            assert found is not None
            assert "dovetail.dev/roll" in found["metadata"]["annotations"]
            assert main(["roll", "idle", "--cancel", *config]) == 0
        finally:
            for each in (claim, tree):
                api.request("DELETE", api.path_of(each))
