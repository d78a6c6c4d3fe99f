"""Pods of a large cluster are read in memory order; no result depends on it."""

import random
from typing import Any

import pytest

from dovetail.model.objects import Pod
from dovetail.scheduling.launch.machines import Resources
from dovetail.scheduling.pods import bindings as module
from dovetail.scheduling.pods.bindings import Bindings, NodeNames
from dovetail.scheduling.pods.classes import Classes
from tests.support.scheduling_build import node_affinity, pod, spread


def made(number: int) -> Pod:
    """Build one of 3,000 pods: several sizes, apps and nodes; some are pending, some spread, some are daemons."""
    size, here = str(1 + number % 5), f"n{number % 7}" if number % 11 else ""
    more: dict[str, Any] = {"labels": {"app": f"a{number % 13}", "own": str(number)}}
    if number % 17 == 3:
        more["topologySpreadConstraints"] = [spread(app="a3")]
    if number % 19 == 5:
        own = [{"key": "metadata.name", "operator": "In", "values": [here]}]
        more |= {"owner": ("apps/v1", "DaemonSet"), "affinity": node_affinity(own)}
    return pod(f"p-{number:04}", size, on=here, **more)


def shuffled(seed: int) -> list[Pod]:
    """Build the same pods in another order, so that their memory order differs, and sort them."""
    numbers = list(range(3000))
    random.Random(seed).shuffle(numbers)
    return sorted((made(number) for number in numbers), key=lambda item: item.metadata.name)


def seen(pods: list[Pod]) -> tuple[Any, ...]:
    """Return what is read from pods: classes in order, and the class, flags and node of each pod."""
    names, classes = NodeNames(), Classes(Resources())
    found = Bindings(pods, classes, names, None)
    codes = {names.code(name): name for name in ("", *(f"n{place}" for place in range(7)))}
    specs = [
        (cls.info.id, cls.info.requests, cls.info.spec.node_name, cls.namespace, cls.labels) for cls in classes.all
    ]
    return specs, found.cls.tolist(), found.flags.tolist(), [codes[code] for code in found.at.tolist()]


def test_volumes_that_are_no_claims_tell_no_pods_apart() -> None:
    """The API server mounts a token into nearly every pod, under a random name: that makes no class of its own."""
    token = {"projected": {"sources": []}}
    disk = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    tokens = [[{"name": f"kube-api-access-{number}", **token}] for number in range(3)]
    pods = [pod("a-0"), pod("a-1", volumes=tokens[0]), pod("a-2", volumes=tokens[1])]
    pods += [pod("b-0", labels=pods[0].metadata.labels, volumes=[disk, *found]) for found in tokens]
    classes = Classes(Resources())
    assert Bindings(pods, classes, NodeNames(), None).cls.tolist() == [0, 0, 0, 1, 1, 1]
    assert [[volume.name for volume in cls.info.spec.volumes] for cls in classes.all] == [[], ["disk"]]
    daemon = pod("d-0", owner=("apps/v1", "DaemonSet"), volumes=[{"name": "host", "hostPath": {"path": "/"}}])
    assert classes.spec_info(daemon.spec, daemon=True) is classes.all[0].info


@pytest.mark.parametrize("seed", range(3))
def test_nothing_depends_on_where_pods_lie(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes have the same numbers as if the pods were read in their given order."""
    found = seen(shuffled(seed))
    monkeypatch.setattr(module, "_MANY", 10_000)
    assert found == seen([made(number) for number in range(3000)])
