"""One lifecycle controller and its order (lifecycle-controller), with a controller that finds everything at once."""

from datetime import datetime, timedelta
from pathlib import Path

from tests.support.background import cloud_on
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import controller
from tests.support.e2e_world import World, pool, write_catalogue, write_settings


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_lifecycle_order_and_stabilization(cluster: ControlPlane, world: World, tmp_path: Path) -> None:
    """Empty precedes expired, expired precedes drifted, drifted precedes cost; cost waits until the others are quiet.

    Design: lifecycle-controller.
    """
    catalogue = write_catalogue(tmp_path)
    windows = {"empty": "0s", "expired": "0s", "drifted": "6s", "cost": "0s"}
    settings = write_settings(tmp_path, stabilization=windows, stabilizationScope="cluster")
    with cloud_on(cluster.kubeconfig, catalogue):
        drifting = world.pool(pool("drifting", consolidateAfter="Never"))
        expiring = world.pool(pool("expiring", consolidateAfter="Never"))
        web = world.pool(pool("web", budgets=[{"nodes": "100%"}, {"nodes": "0", "reasons": ["Underutilized"]}]))
        world.node("stale", drifting)
        world.node("aged", expiring)
        world.node("idle", web)
        world.node("huge", web, "large")
        for app, node in (("a", "stale"), ("b", "aged"), ("c", "huge")):
            world.fill(
                app, [node], cpu="1500m", nodeSelector={"pool": world.nodes()[node]["metadata"]["labels"]["pool"]}
            )
        world.patch(expiring, {"spec": {"disruption": {"expireAfter": "1s"}}})
        world.patch(drifting, {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}})
        eventually(lambda: conditions_of(world.claims()["stale"]).get("Drifted") == "True")
        flags = ("--kubeconfig", str(cluster.kubeconfig), "--catalog", str(catalogue), "--settings", str(settings))
        with controller(tmp_path, "dovetail", *flags) as process:
            eventually(lambda: process.said("replaceExpired", phase="validating"))
            world.patch(expiring, {"spec": {"disruption": {"expireAfter": "1h"}}})
            # A cost action may begin while a node still drifts away; what is looked at is how long it waits after that.
            eventually(lambda: process.said("replaceDrifted", phase="done"))
            world.patch(web, {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})
            eventually(lambda: process.said("replaceCost", phase="done"))
            begun = [line for line in process.lines() if line.get("phase") == "validating"]
            actions = list(dict.fromkeys(line["action"] for line in begun))
            assert actions == ["deleteEmpty", "replaceExpired", "replaceDrifted", "replaceCost"]
            calm = _time(process.said("replaceDrifted", phase="done")[-1]["time"])
            began = _time(process.said("replaceCost", phase="tainting")[0]["time"])
            assert began - calm >= timedelta(seconds=5.9)
