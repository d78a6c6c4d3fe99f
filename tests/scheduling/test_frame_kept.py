"""Changes that no simulation reads keep the compiled frame; all others rebuild it."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import cluster_of
from dovetail.model.objects import AnyObject, DaemonSet, Namespace, PersistentVolumeClaim
from dovetail.model.settings import DOVETAIL, PreferencePolicy, Settings
from dovetail.scheduling.simulate import place, simulate
from dovetail.scheduling.snapshot import Snapshot
from tests.support.scheduling_build import KINDS, NOW, homes, near, node, pod, pool, spread

CATALOGUE = Catalogue(instance_types=KINDS)
Objects = dict[str, AnyObject]


def _cluster() -> Objects:
    """Return three nodes, pods with and without rules, a daemon and pending pods."""
    found: Objects = {"pool": pool()}
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "a")):
        found.update({f"{name}-{i}": item for i, item in enumerate(node(name, zone=zone))})
    found["a"] = pod("a-1", on="n1", topologySpreadConstraints=[spread()])
    found["b"] = pod("b-1", "2", on="n2")
    found["c"] = pod("c-1", on="n2", affinity=near("podAntiAffinity", app="c"))
    found["d"] = pod("d-1", "0.1", on="n1", owner=("apps/v1", "DaemonSet"))
    found["waiting"] = pod("a-2", topologySpreadConstraints=[spread()])
    return found


def _answers(seen: Snapshot) -> list[object]:
    gone = [simulate(seen, [index]) for index in range(len(seen.states))]
    return [homes(place(seen)), *((homes(r), [u.pod.metadata.name for u in r.blocking]) for r in gone)]


def _marked(objects: Objects, key: str, **labels: str) -> None:
    item = objects[key]
    meta = msgspec.structs.replace(item.metadata, labels={**item.metadata.labels, **labels})
    objects[key] = msgspec.structs.replace(item, metadata=meta)


def _claim() -> PersistentVolumeClaim:
    return msgspec.convert({"metadata": {"name": "disk", "namespace": "default"}}, PersistentVolumeClaim)


Change = Callable[[Objects], object]
KEPT: dict[str, Change] = {
    "nothing": lambda objects: None,
    "a label of a pod that no rule looks at": lambda objects: _marked(objects, "b", revision="2"),
    "another object of the same pod": lambda objects: objects.update(
        a=pod("a-1", on="n1", topologySpreadConstraints=[spread()])
    ),
    "another pod that waits, of the same kind": lambda objects: objects.update(
        waiting=pod("a-3", topologySpreadConstraints=[spread()])
    ),
}
ANEW: dict[str, Change] = {
    "a label of a pod that a rule looks at": lambda objects: _marked(objects, "b", app="a"),
    "a pod is gone": lambda objects: objects.pop("b"),
    "a pod has come": lambda objects: objects.update(e=pod("b-2", on="n3")),
    "a pod is on another node": lambda objects: objects.update(b=pod("b-1", "2", on="n3")),
    "a pod is smaller": lambda objects: objects.update(b=pod("b-1", "1", on="n2")),
    "a pod has ended": lambda objects: objects.update(
        b=msgspec.structs.replace(objects["b"], status=msgspec.structs.replace(objects["b"].status, phase="Succeeded"))
    ),
    "a pod is going": lambda objects: objects.update(
        c=pod(
            "c-1",
            on="n2",
            affinity=near("podAntiAffinity", app="c"),
            meta={"deletionTimestamp": "2026-05-01T11:00:00Z"},
        )
    ),
    "another pod of a DaemonSet": lambda objects: objects.update(
        d=pod("d-1", "0.1", on="n1", owner=("apps/v1", "DaemonSet"))
    ),
    "a pod of another kind waits": lambda objects: objects.update(e=pod("e-1", "3")),
    "a node has another label": lambda objects: _marked(objects, "n1-0", disk="fast"),
    "a node is larger": lambda objects: objects.update(dict(zip(("n1-0", "n1-1"), node("n1", 16), strict=True))),
    "a node has a taint": lambda objects: objects.update(
        dict(zip(("n1-0", "n1-1"), node("n1", taints=[{"key": "k", "effect": "NoSchedule"}]), strict=True))
    ),
    "a node is gone": lambda objects: [objects.pop(key) for key in ("n3-0", "n3-1")],
    "a node is leaving": lambda objects: objects.update(
        dict(zip(("n3-0", "n3-1"), node("n3", meta={"deletionTimestamp": "2026-05-01T11:00:00Z"}), strict=True))
    ),
    "another pool": lambda objects: objects.update(pool=pool(limits={"cpu": "24"})),
    "a DaemonSet": lambda objects: objects.update(ds=msgspec.convert({"metadata": {"name": "ds"}}, DaemonSet)),
    "a claim of a volume": lambda objects: objects.update(disk=_claim()),
    "a namespace": lambda objects: objects.update(ns=msgspec.convert({"metadata": {"name": "x"}}, Namespace)),
}


def _after(change: Change, settings: Settings = DOVETAIL) -> tuple[Snapshot, Snapshot]:
    """Build a snapshot, query it, change the cluster and build the next; check both against fresh ones."""
    objects = _cluster()
    before = Snapshot(cluster_of(objects.values()), CATALOGUE, DOVETAIL, NOW)
    _answers(before)
    change(objects)
    cluster = cluster_of(objects.values())
    after = Snapshot(cluster, CATALOGUE, settings, NOW, before)
    assert _answers(after) == _answers(Snapshot(cluster, CATALOGUE, settings, NOW))
    return before, after


@pytest.mark.parametrize("change", KEPT.values(), ids=KEPT)
def test_the_frame_is_kept(change: Change) -> None:
    """The frame is kept if nothing that a simulation reads has changed."""
    before, after = _after(change)
    assert after.frame is before.frame


@pytest.mark.parametrize("change", ANEW.values(), ids=ANEW)
def test_the_frame_is_made_anew(change: Change) -> None:
    """The frame is rebuilt if something that a simulation reads has changed, with correct answers."""
    before, after = _after(change)
    assert after.frame is not before.frame


@pytest.mark.parametrize(
    "settings",
    [replace(DOVETAIL, ties=1), replace(DOVETAIL, marked_for_deletion_nodes=("n1",))],
    ids=["ties are drawn", "a node is marked"],
)
def test_other_settings_make_it_anew(settings: Settings) -> None:
    """The frame depends on the settings and, with random ties, on earlier queries."""
    before, after = _after(KEPT["nothing"], settings)
    assert after.frame is not before.frame


def test_a_frame_that_was_kept_holds_no_older_pods() -> None:
    """A kept frame refers to the pods of the newest snapshot, so that older ones can be freed."""
    _, after = _after(KEPT["another object of the same pod"])
    assert after.frame.places.bindings is after.bindings


def test_what_classes_ask_for_outlives_a_frame_that_is_made_anew() -> None:
    """Terms are compiled once while machines, namespaces and the policy for preferences are the same."""
    objects = _cluster()
    first = Snapshot(cluster_of(objects.values()), CATALOGUE, DOVETAIL, NOW)
    _answers(first)
    objects["e"] = pod("e-1", "1", on="n3")
    more = replace(first.cluster, pods=cluster_of(objects.values()).pods)
    second = Snapshot(more, CATALOGUE, DOVETAIL, NOW, previous=first)
    assert second.frame is not first.frame
    assert second.frame.terms is first.frame.terms
    ignoring = replace(DOVETAIL, preference_policy=PreferencePolicy.IGNORE)
    assert Snapshot(more, CATALOGUE, ignoring, NOW, previous=second).frame.terms is not first.frame.terms
    names = cluster_of([*objects.values(), msgspec.convert({"metadata": {"name": "default"}}, Namespace)]).namespaces
    other = Snapshot(replace(more, namespaces=names), CATALOGUE, DOVETAIL, NOW, previous=second)
    assert other.frame.terms is not first.frame.terms
    assert _answers(second) == _answers(Snapshot(more, CATALOGUE, DOVETAIL, NOW))
