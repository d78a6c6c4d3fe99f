"""A zombie, a blind one and one that slept, beside the real Karpenter: what an attacker tried, as tests.

Runs where KARPENTER_BIN names a Karpenter v1.15 with the kwok provider; skips loudly elsewhere.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from dovetail.live.kubernetes.resources import plural_in
from tests.chaos.front import IDENTITY, Front, front_of
from tests.chaos.test_chaos import LEASE, Chaotic, _controller, _steal
from tests.support.control_plane import ControlPlane, eventually
from tests.support.e2e_world import World, pod
from tests.support.karpenter import BINARY, Beside, beside_karpenter, kwok_pool, scale, spread, wait_nodes
from tests.support.proxy import Answer, Seen

pytestmark = [
    pytest.mark.karpenter,
    pytest.mark.slow,
    pytest.mark.xdist_group("karpenter"),
    pytest.mark.skipif(
        not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter with the kwok provider"
    ),
]


@pytest.fixture
def beside(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> Iterator[Beside]:
    """Yield a control plane of its own with Karpenter on it."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as found:
        yield found


@pytest.fixture
def front(beside: Beside) -> Iterator[Front]:
    """Yield the proxy between Dovetail and the server."""
    with front_of(beside.plane.base_url, beside.plane.ca_path, beside.plane.token) as found:
        yield found


@pytest.fixture
def process(beside: Beside, front: Front) -> Iterator[Chaotic]:
    """Run Dovetail behind the proxy."""
    folder = beside.folder / "dovetail"
    folder.mkdir()
    catalogue = (beside.folder / "catalogue.json").read_bytes()
    with _controller(beside.plane, front, folder) as found:
        (folder / "catalogue.json").write_bytes(catalogue)
        found.wait_for("leading")
        yield found


def _two_nodes(world: World) -> None:
    """Create one node with a pod that fills it, and one node that is about to be empty."""
    world.create(kwok_pool("web", consolidateAfter="0s"))
    world.create(spread("wide", 2, "1500m"))
    world.wait_running("wide", 2)
    wait_nodes(world, 2)


def _page(seen: Seen) -> web.Response | None:
    return web.Response(text="<html>", content_type="text/html") if "leases" in seen.path else None


def test_no_zombie(beside: Beside, front: Front, process: Chaotic) -> None:
    """If the answer about the Lease is HTML, Dovetail reports it and stops leading; later it leads and acts again."""
    _two_nodes(beside.world)
    assert process.metric("dovetail_leader") == 1
    front.before = _page
    eventually(lambda: process.metric("dovetail_leader") == 0)
    process.wait_for("no longer leading")
    assert process.get("/healthz")[0] == 200
    assert process.metric("dovetail_lease_age_seconds") > 0
    assert process.metric("dovetail_malformed_answers_total", resource="leases") > 0
    front.before = lambda seen: None
    eventually(lambda: process.metric("dovetail_leader") == 1)
    scale(beside.world, "wide", 1)
    eventually(lambda: len(beside.world.nodes()) == 1)
    assert front.violations == []


@pytest.mark.parametrize("code", [403, 500])
def test_not_blind(beside: Beside, front: Front, process: Chaotic, code: int) -> None:
    """A node that was seen empty stays if a protected pod lands on it while pods can't be read."""
    world = beside.world
    _two_nodes(world)
    eventually(lambda: all("dovetail.dev/hold" in n["metadata"]["annotations"] for n in world.nodes().values()))
    front.before = lambda seen: Answer(code, "Forbidden") if plural_in(seen.path) == "pods" else None
    front.cut_watches()  # The watch of pods ends here: Dovetail only has what it last saw.
    scale(world, "wide", 1)
    used = {each["spec"]["nodeName"] for each in world.pods("wide")}
    (empty,) = set(world.nodes()) - used
    guard = pod("guard", "guard", empty, cpu="100m")
    guard["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    world.create(guard)
    world.wait_running("guard", 1)
    eventually(lambda: process.get("/readyz")[0] == 503)
    eventually(lambda: "Pod" in process.get("/readyz")[1])
    time.sleep(20)
    assert [seen for seen in front.seen if seen.method == "DELETE" and "nodeclaims" in seen.path] == []
    front.before = lambda seen: None
    eventually(lambda: process.get("/readyz")[0] == 200)
    time.sleep(10)
    assert empty in world.nodes()
    assert [each["metadata"]["name"] for each in world.pods("guard")] == ["guard"]
    # The other node may go: its remaining pods fit next to the protected one.
    assert front.violations == []


def test_no_write_out_of_a_long_sleep(beside: Beside, front: Front, process: Chaotic) -> None:
    """A deletion answered with 429 is not repeated if the process sleeps and another replica takes the Lease."""
    world = beside.world
    _two_nodes(world)
    throttled = threading.Event()

    def stopped_at_the_deletion(seen: Seen) -> Answer | None:
        if seen.method == "DELETE" and "nodeclaims" in seen.path and not throttled.is_set():
            throttled.set()
            process.process.send_signal(signal.SIGSTOP)
            return Answer(429, "TooManyRequests", {"Retry-After": "1"})
        return None

    front.before = stopped_at_the_deletion
    stop = threading.Event()
    with beside.plane.client() as thief:
        stealing = threading.Thread(target=_steal, args=(thief, stop), daemon=True)
        stealing.start()
        scale(world, "wide", 1)
        eventually(throttled.is_set)
        holder = lambda: (world.api.request("GET", LEASE)[1].get("spec") or {}).get("holderIdentity")  # noqa: E731
        eventually(lambda: holder() == "thief")
        before = len(front.seen)
        process.process.send_signal(signal.SIGCONT)
        eventually(lambda: any(seen.path == LEASE for seen in front.seen[before:]))
        late = [seen for seen in front.seen[before:] if seen.acts()]
        assert late == [] or holder() == IDENTITY
        stop.set()
        stealing.join(30)
    eventually(lambda: len(world.nodes()) == 1)
    eventually(lambda: not world.leftovers())
    assert front.violations == [], "every write came while its sender held the Lease"
