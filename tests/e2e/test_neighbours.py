"""Other controllers that disrupt a managed pool, by the marks that they leave on a real API server."""

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dovetail.cli.main import main
from tests.support.background import cloud_on
from tests.support.control_plane import ControlPlane, eventually
from tests.support.controller import Process, controller
from tests.support.e2e_world import Tree, World, pool, write_catalogue, write_settings
from tests.support.karpenter import BINARY, HELD, beside_karpenter, is_so, kwok_pool, spread, wait_nodes

pytestmark = pytest.mark.e2e
_NUMBERS = itertools.count()
_NODE: Tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


@pytest.fixture
def leader(cluster: ControlPlane, world: World, tmp_path: Path) -> Iterator[Process]:
    """Yield a controller that leads, beside a cloud, with a pool `web` and its node `n`."""
    flags = ["--kubeconfig", str(cluster.kubeconfig), "--catalog", str(write_catalogue(tmp_path))]
    settings = write_settings(tmp_path, validationDelay="0s", leaseDuration="4s", renewDeadline="3s", retryPeriod="1s")
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)):
        world.node("n", world.pool(pool("web", consolidateAfter="Never")))
        with controller(tmp_path, "leader", *flags, "--settings", str(settings)) as process:
            process.wait_for("leading")
            yield process


def _halt(world: World) -> str:
    _, found = world.api.request("GET", "/apis/karpenter.sh/v1/nodepools/web")
    said: str = (found["metadata"].get("annotations") or {}).get("dovetail.dev/halted", "")
    return said


def _mark_anew(world: World, bare: Tree, marked: Tree) -> None:
    """Take a mark off the node and put it on again: one that was there at the controller's first look is not news."""
    world.patch(_NODE, bare)
    time.sleep(1)
    world.patch(_NODE, marked)


def _autoscaler(world: World) -> None:
    taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}
    _mark_anew(world, {"spec": {"taints": []}}, {"spec": {"taints": [taint]}})


def _cast(world: World) -> None:
    label = "autoscaling.cast.ai/draining"
    _mark_anew(world, {"metadata": {"labels": {label: None}}}, {"metadata": {"labels": {label: "rebalancing"}}})


def _descheduler(world: World) -> None:
    """Publish an event as the descheduler v0.36.0 does when it has evicted a pod; each time another one."""
    event: Tree = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"app-{next(_NUMBERS)}", "namespace": "default"},
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "action": "Descheduled",
        "reason": "HighNodeUtilization",
        "note": "pod eviction from n node by sigs.k8s.io/descheduler",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "app", "namespace": "default"},
        "reportingController": "sigs.k8s.io.descheduler",
        "reportingInstance": "sigs.k8s.io.descheduler-x",
        "type": "Normal",
    }
    world.api.request("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event)


@pytest.mark.parametrize(
    ("sign", "neighbour"),
    [(_autoscaler, "cluster-autoscaler"), (_cast, "CAST AI"), (_descheduler, "descheduler")],
    ids=["autoscaler", "cast", "descheduler"],
)
def test_a_neighbour_halts_the_pool_until_it_is_resumed(
    cluster: ControlPlane, world: World, leader: Process, sign: Callable[[World], None], neighbour: str
) -> None:
    """The sign is named on the pool, in the log and in the metric; `resume` ends the halt."""

    def noticed() -> bool:
        sign(world)  # again and again: what was published before the controller's first look does not count
        time.sleep(1)
        return neighbour in _halt(world)

    eventually(noticed)
    assert leader.metric("dovetail_neighbour_signs_total", nodepool="web", neighbour=neighbour) >= 1
    leader.wait_for(f"another controller disrupts NodePool web: {neighbour}")
    assert main(["resume", "web", "--kubeconfig", str(cluster.kubeconfig)]) == 0
    eventually(lambda: not _halt(world))


@pytest.mark.karpenter
@pytest.mark.xdist_group("karpenter")
@pytest.mark.skipif(not BINARY, reason="NOT RUN beside the real Karpenter: KARPENTER_BIN names no Karpenter")
def test_karpenter_that_disrupts_in_spite_of_the_hold(
    new_api_server: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """Somebody takes Karpenter's annotation off a held node while Dovetail can't put it back: the pool halts."""
    with beside_karpenter(new_api_server(whole=True), tmp_path) as beside:
        world, web = beside.world, kwok_pool("web", consolidateAfter="Never")
        world.create(web)
        world.create(spread("wide", 1, "1500m"))
        world.wait_running("wide", 1)
        wait_nodes(world, 1)
        ((name, _),) = world.nodes().items()
        ((claim, _),) = world.claims().items()
        node: Tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        flags = beside.flags(leaseDuration="600s", renewDeadline="500s", retryPeriod="2s")
        with controller(tmp_path, "leader", *flags) as leader:
            leader.wait_for("leading")
            eventually(lambda: HELD.items() <= (world.nodes()[name]["metadata"].get("annotations") or {}).items())
            time.sleep(70)  # signs on NodeClaims count from the second minute on
            leader.process.send_signal(signal.SIGSTOP)
            beside.kubelets.is_on = False  # so that Karpenter's replacement does not get ready
            bare = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}
            world.patch(node, bare)
            world.patch({**world.claims()[claim], "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}, bare)
            world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}})
            eventually(lambda: is_so(world.claims()[claim], "DisruptionReason"))
            leader.process.send_signal(signal.SIGCONT)
            eventually(lambda: f"Karpenter began to disrupt node {name} (Drifted) although it is held" in _halt(world))
            assert leader.metric("dovetail_neighbour_signs_total", nodepool="web", neighbour="Karpenter") == 1
            beside.kubelets.is_on = True
