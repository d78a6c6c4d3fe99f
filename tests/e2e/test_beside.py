"""Living beside Karpenter, without it: holds, a person's own annotations, foreign CRDs, observing, missing rights."""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.crds.definitions import crds
from dovetail.live.feeds import watch_crd
from dovetail.live.kubernetes.crd_check import CrdState
from tests.support.background import Cloud, Inside, cloud_on, running_inside
from tests.support.control_plane import ControlPlane, conditions_of, eventually
from tests.support.controller import controller
from tests.support.e2e_world import TAINT, Tree, World, pool, write_catalogue, write_settings
from tests.support.history import history_of
from tests.support.karpenter import karpenters_own
from tests.support.proxy import proxy_for

HELD = {"karpenter.sh/do-not-disrupt": "true", "dovetail.dev/hold": "true"}


@pytest.fixture
def cloud(cluster: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    """Yield a cloud without a controller."""
    with cloud_on(cluster.kubeconfig, write_catalogue(tmp_path)) as found:
        yield found


def _dovetail(plane: ControlPlane, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    command = [sys.executable, "-m", "dovetail.cli.main", *words, "--kubeconfig", str(kubeconfig or plane.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


def _flags(plane: ControlPlane, folder: Path, **settings: Any) -> list[str]:
    config = write_settings(folder, **settings)
    return [
        "--kubeconfig", str(plane.kubeconfig), "--catalog", str(write_catalogue(folder)), "--settings", str(config),
    ]  # fmt: skip


def _annotations(item: Tree) -> dict[str, str]:
    return {k: v for k, v in (item["metadata"].get("annotations") or {}).items() if k in HELD}


def _annotate(world: World, node: str, **annotations: str | None) -> None:
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
    named = {key.replace("__", "/").replace("_", "-"): value for key, value in annotations.items()}
    world.patch(tree, {"metadata": {"annotations": named}})


def test_hold_and_release_without_a_controller(cluster: ControlPlane, world: World, cloud: Cloud) -> None:
    """`hold` and `release` work alone, on the named pools only, and keep a person's annotation."""
    web, other = world.pool(pool("web", managed=False)), world.pool(pool("other", managed=False))
    world.node("ours", web)
    world.node("theirs", web)
    world.node("elsewhere", other)
    _annotate(world, "theirs", **{"karpenter.sh/do-not-disrupt": "true"})
    roll = {"dovetail.dev/rolling-domain": "{}", "dovetail.dev/rollout": "{}"}
    for tree in (web, other):
        world.patch(tree, {"metadata": {"annotations": roll}})
    done = _dovetail(cluster, "hold", "web")
    assert (done.returncode, done.stdout) == (0, "held 1, left 1 as they were, failed 0\n")
    nodes = world.nodes()
    assert _annotations(nodes["ours"]) == HELD
    assert _annotations(nodes["theirs"]) == {"karpenter.sh/do-not-disrupt": "true"}
    assert _annotations(nodes["elsewhere"]) == {}
    assert _dovetail(cluster, "hold", "web").stdout.startswith("held 0")
    done = _dovetail(cluster, "release", "web")
    assert done.returncode == 0
    nodes = world.nodes()
    kept = [(world.api.get(tree) or {})["metadata"].get("annotations") or {} for tree in (web, other)]
    assert [sorted(roll.keys() & annotations.keys()) for annotations in kept] == [[], sorted(roll)]
    assert _annotations(nodes["ours"]) == {}
    assert _annotations(nodes["theirs"]) == {"karpenter.sh/do-not-disrupt": "true"}


def test_hold_says_what_is_wrong(cluster: ControlPlane, world: World) -> None:
    """A missing pool, no pool at all and missing permissions each fail with one sentence and exit status 2."""
    world.create(pool("web"))
    wrong = _dovetail(cluster, "hold", "wbe")
    assert wrong.returncode == 2
    assert "there is no NodePool 'wbe'; there are: web" in wrong.stderr
    assert _dovetail(cluster, "release").returncode == 2
    config = cluster.write_kubeconfig(cluster.folder / "nobody", user="nobody")
    refused = _dovetail(cluster, "release", "--all", kubeconfig=config)
    assert refused.returncode == 2
    assert "forbidden" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_release_all_leaves_nothing_of_ours(cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path) -> None:
    """After a controller died during a command, `release --all` removes holds, taints and records, and nothing else."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    world.node("first", web)
    world.fill("app", ["first", "first"])
    foreign = {"key": "team.example.com/own", "value": "x", "effect": "PreferNoSchedule"}
    first = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "first"}}
    world.patch(first, {"spec": {"taints": [foreign]}})
    with controller(tmp_path, "dovetail", *_flags(cluster, tmp_path)) as process:
        process.wait_for("leading")
        world.patch(web, {"spec": {"template": {"metadata": {"labels": {"generation": "two"}}}}})
        eventually(lambda: conditions_of(world.claims()["first"]).get("Drifted") == "True")
        cloud.is_on = False
        eventually(lambda: len(world.claims()) == 2)
        process.kill()
    assert world.leftovers()
    done = _dovetail(cluster, "release", "--all")
    assert done.returncode == 0, done.stderr
    assert "kubectl label nodepool web dovetail.dev/manage-" in done.stderr
    assert world.leftovers() == []
    assert all(_annotations(item) == {} for item in (*world.nodes().values(), *world.claims().values()))
    assert world.nodes()["first"]["spec"]["taints"] == [foreign]


def test_holds_follow_the_nodes(cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path) -> None:
    """New nodes of a given pool are held as they come, a pool that is taken back is released, others are observed."""
    web = world.pool(pool("web", consolidateAfter="Never"))
    other = world.pool(pool("other", managed=False))
    world.node("before", web)
    world.node("idle", other)
    with controller(tmp_path, "dovetail", *_flags(cluster, tmp_path)) as process:
        eventually(lambda: _annotations(world.nodes()["before"]) == HELD)
        world.node("after", web)
        eventually(lambda: _annotations(world.nodes()["after"]) == HELD)
        eventually(lambda: process.metric("dovetail_held_nodes") == 2)
        _annotate(world, "after", **{"karpenter.sh/do-not-disrupt": None, "dovetail.dev/hold": None})
        eventually(lambda: _annotations(world.nodes()["after"]) == HELD)
        assert _annotations(world.nodes()["idle"]) == {}
        assert "idle" in world.claims(), "an empty node of a pool that is not ours stays"
        world.patch(web, {"metadata": {"labels": {"dovetail.dev/manage": None}}})
        eventually(lambda: _annotations(world.nodes()["before"]) == {} == _annotations(world.nodes()["after"]))


def test_a_persons_no_is_honoured(cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path) -> None:
    """Both words keep a node that a person marked; ours counts under a hold too; without them the node goes."""
    web = world.pool(pool("web", budgets=[{"nodes": "0"}]))
    for name in ("plain", "kept", "always"):
        world.node(name, web)
    _annotate(world, "kept", **{"karpenter.sh/do-not-disrupt": "true"})
    with controller(tmp_path, "dovetail", *_flags(cluster, tmp_path)):
        eventually(lambda: _annotations(world.nodes()["always"]) == HELD)
        _annotate(world, "always", **{"dovetail.dev/do-not-disrupt": "true"})
        world.patch(web, {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}})
        eventually(lambda: "plain" not in world.nodes())
        _annotate(world, "always", **{"dovetail.dev/do-not-disrupt": None})
        eventually(lambda: "always" not in world.nodes())
        assert list(world.nodes()) == ["kept"]
        assert _annotations(world.nodes()["kept"]) == {"karpenter.sh/do-not-disrupt": "true"}


def test_observe_touches_nothing(cluster: ControlPlane, world: World, cloud: Cloud, tmp_path: Path) -> None:
    """An observing controller decides and reports, but only reads: it writes no Lease, event or mark."""
    web = world.pool(pool("web"))
    world.node("idle", web)
    eventually(lambda: conditions_of(world.claims()["idle"]).get("Consolidatable") == "True")
    with proxy_for(cluster.base_url, cluster.ca_path) as front:
        config = json.loads(cluster.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": front.url}
        through = tmp_path / "through-proxy"
        through.write_text(json.dumps(config))
        flags = ["--kubeconfig", str(through), *_flags(cluster, tmp_path)[2:], "--observe"]
        with controller(tmp_path, "dovetail", *flags) as process:
            proposal = process.wait_for("deleteEmpty of idle would be begun", topic="proposal")
            assert proposal["action"] == "deleteEmpty"
            assert process.metric("dovetail_observe_only") == 1
            eventually(lambda: process.metric("dovetail_budget_limit_nodes", nodepool="web", reason="Empty") == 1)
            assert process.get("/readyz")[0] == 200
            assert process.get("/healthz")[0] == 200
        assert len(front.seen) > 10
        assert [seen for seen in front.seen if seen.is_write] == []
    assert world.events() == []
    assert world.leftovers() == []
    assert _annotations(world.nodes()["idle"]) == {}
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dovetail"
    assert world.api.request("GET", lease)[0] == 404


def test_a_crd_that_lost_our_fields(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """It is noticed while we run, said with the way out, shown as a metric; the annotation form goes on working."""
    plane = new_api_server(whole=True)
    with plane.client() as api:
        world = World(api)
        state = CrdState(known=True, missing=(), note="")
        inside = Inside(
            plane.kubeconfig,
            write_catalogue(tmp_path),
            write_settings(tmp_path),
            crd_seconds=0.5,
            background_tasks=[watch_crd(state)],
        )
        with cloud_on(plane.kubeconfig, write_catalogue(tmp_path)), running_inside(inside):
            eventually(lambda: inside.engine.acts)
            assert inside.metrics.registry.get_sample_value("dovetail_crd_has_our_fields") == 1
            api.install_crds(karpenters_own())
            eventually(lambda: "lacks Dovetail's fields" in inside.text.getvalue())
            assert "budgets.topologyKey" in inside.text.getvalue()
            assert inside.metrics.registry.get_sample_value("dovetail_crd_has_our_fields") == 0
            refused = pool("refused", consolidationGracePeriod="1h")
            status, answer = api.create(refused, fieldValidation="Strict")
            assert status == 400
            assert "unknown field" in answer["message"]
            patient = world.pool(pool("patient", consolidateAfter="Never"))
            world.node("aged", patient)
            with history_of(plane) as history:
                world.patch(patient, {"metadata": {"annotations": {"dovetail.dev/disruption": "expireAfter: 3s"}}})
                eventually(lambda: "aged" not in world.claims())
                assert history.first("Node", lambda e: e.name == "aged" and e.is_tainted) is not None


def test_an_unknown_crd_version_is_only_observed(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """If the CRD does not serve v1, `dovetail run` reports that, observes, and takes no Lease."""
    plane = new_api_server(install=False)
    trees = copy.deepcopy(crds())
    for tree in trees:
        tree["spec"]["versions"][0]["name"] = "v2"
    with plane.client() as api:
        api.install_crds(trees)
        with controller(tmp_path, "dovetail", *_flags(plane, tmp_path)) as process:
            process.wait_for("serves v2, not v1: observing only")
            assert process.wait_for("starting")["observe"] is True
            process.wait_for("the cluster has no nodepools.karpenter.sh in v1")
            assert process.get("/readyz")[0] == 503
            path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/dovetail"
            assert api.request("GET", path)[0] == 404


def _role(name: str, user: str, rules: list[Tree]) -> list[Tree]:
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "apiGroup": group, "name": user}],
        },
    ]


def test_missing_rights_are_named(new_api_server: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """An optional kind is a warning with what is lost, an essential one is named with its rule and waited for."""
    plane = new_api_server()
    read = ["get", "list", "watch"]
    rules: list[Tree] = [
        {"apiGroups": ["karpenter.sh"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["nodes", "persistentvolumeclaims", "persistentvolumes"], "verbs": read},
        {"apiGroups": ["apps"], "resources": ["daemonsets", "replicasets", "statefulsets"], "verbs": read},
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": read},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": read},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": read},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"]},
    ]
    config = plane.write_kubeconfig(tmp_path / "limited", user="dovetail")
    flags = _flags(plane, tmp_path)
    flags[1] = str(config)
    with plane.client() as api:
        for tree in _role("dovetail", "dovetail", rules):
            api.apply(tree)
    with plane.client() as api, controller(tmp_path, "dovetail", *flags) as process:
        process.wait_for('not allowed to watch pods: add {apiGroups: [""], resources: ["pods"]', kind="Pod")
        process.wait_for("how many volumes a node can attach is not checked", kind="CSINode")
        process.wait_for("not allowed to use Leases in namespace kube-system")
        process.wait_for("the CRD's version and fields are not checked")
        assert process.get("/readyz")[0] == 503
        leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}
        pods = {"apiGroups": [""], "resources": ["pods"], "verbs": read}
        for tree in _role("dovetail", "dovetail", [*rules, pods, leases]):
            api.apply(tree)
        process.wait_for("in sync")
        process.wait_for("leading")
        assert process.get("/readyz")[0] == 200
        for token in plane.tokens.values():
            assert token not in process.log_path.read_text()


def test_taint_key() -> None:
    """The tests look for the taint that Dovetail writes."""
    from dovetail.model import names

    assert TAINT == names.DISRUPTION_TAINT
