"""A snapshot built from the previous one answers like one built from scratch."""

import random

import pytest

from dovetail.lifecycle.store import Store
from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.objects import AnyObject
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling import snapshot as snapshot_module
from dovetail.scheduling.simulate import place, simulate
from dovetail.scheduling.snapshot import Snapshot
from tests.support.scheduling_build import KINDS, NOW, homes, near, node, pod, pool, snapshot, spread

CATALOGUE = Catalogue(instance_types=KINDS)


def _answers(seen: Snapshot) -> list[object]:
    found: list[object] = [homes(place(seen))]
    for index, state in enumerate(seen.states):
        result = simulate(seen, [index])
        found.append((state.name, homes(result), [u.pod.metadata.name for u in result.blocking]))
    return found


def _pods(rng: random.Random, count: int, nodes: list[str]) -> list[AnyObject]:
    rules = ({}, {"topologySpreadConstraints": [spread()]}, {"affinity": near("podAntiAffinity")})
    return [
        pod(f"{rng.choice('abc')}-{i}", rng.choice(("0.5", "1", "2")), on=rng.choice([*nodes, ""]), **rng.choice(rules))
        for i in range(count)
    ]


def test_changes_give_the_same_answers_as_a_fresh_start() -> None:
    """After many changes of pods and nodes, both ways of building agree each time."""
    rng = random.Random(7)
    names = [f"n{i}" for i in range(6)]
    objects: dict[str, AnyObject] = {"pool": pool()}
    for name in names:
        objects.update({f"{name}-{i}": item for i, item in enumerate(node(name, zone=rng.choice("ab")))})
    objects.update({f"pod-{p.metadata.name}": p for p in _pods(rng, 30, names)})
    seen: Snapshot | None = None
    for _ in range(25):
        for key in rng.sample([k for k in objects if k.startswith("pod-")], 3):
            del objects[key]
        for fresh in _pods(rng, 4, names):
            objects[f"pod-{fresh.metadata.name}"] = fresh
        name = rng.choice(names)
        objects.update({f"{name}-{i}": item for i, item in enumerate(node(name, zone=rng.choice("ab")))})
        cluster: Cluster = cluster_of(objects.values())
        seen = Snapshot(cluster, CATALOGUE, DOVETAIL, NOW, seen)
        assert _answers(seen) == _answers(Snapshot(cluster, CATALOGUE, DOVETAIL, NOW))


def test_what_did_not_change_is_not_read_again() -> None:
    """Unchanged nodes, and pods on unchanged nodes, are the same objects."""
    first, second = node("n1"), node("n2")
    running, other = pod("a", on="n1"), pod("b", on="n2")
    before = snapshot(pool_ := pool(), first, second, running, other)
    after = snapshot(pool_, first, second, running, pod("b", on="n2"), previous=before)
    assert after.states[0] is before.states[0]
    assert after.pods_on[0] is before.pods_on[0]
    assert after.pods_on[1] is not before.pods_on[1]


def test_new_selectors_look_at_labels_anew() -> None:
    """A rule that reads a label for the first time splits pods that were equal before."""
    fixed = [pool(limits={"cpu": "0"}), *node("n1"), *node("n2"), pod("a-1", on="n1", labels={"app": "a", "rev": "1"})]
    before = snapshot(*fixed)
    picky = pod("b", affinity=near("podAntiAffinity", labelSelector={"matchLabels": {"rev": "1"}}))
    after = snapshot(*fixed, picky, previous=before)
    assert homes(place(after)) == {"b": "n2"}


def _waiting_pod(rng: random.Random, name: str) -> AnyObject:
    """Return a pod that waits, is bound, belongs to a DaemonSet, or can't be helped, with or without a volume."""
    spec: dict[str, object] = rng.choice(
        (
            {},
            {"nodeSelector": {"karpenter.sh/nodepool-unknown": "x"}},
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": rng.choice("pq")}}]},
            {"owner": ("apps/v1", "DaemonSet")},
        )
    )
    meta = {"uid": f"{name}-{rng.random()}"}
    return pod(name, rng.choice(("0.5", "1")), on=rng.choice(("n1", "", "", "")), meta=meta, **spec)


def test_waiting_pods_are_carried_from_listing_to_listing() -> None:
    """Pods that wait, and those that can't be helped, are the same as in a new snapshot, also after one unused."""
    rng = random.Random(11)
    store = Store()
    for item in (pool(), *node("n1")):
        store.observe(item)
    seen: Snapshot | None = None
    ignored = 0
    for step in range(60):
        for name in rng.sample([f"p{i}" for i in range(20)], 3):
            if rng.random() < 0.3:
                store.vanish("Pod", "default", name)
            else:
                store.observe(_waiting_pod(rng, name))
        before, seen = seen, Snapshot(store.cluster(), CATALOGUE, DOVETAIL, NOW, seen)
        if step % 4 == 3:
            continue
        afresh = Snapshot(store.cluster(), CATALOGUE, DOVETAIL, NOW)
        assert [id(entry.pod) for entry in seen.queued] == [id(entry.pod) for entry in afresh.queued]
        assert [(entry.key, entry.cls.info.requests) for entry in seen.queued] == [
            (entry.key, entry.cls.info.requests) for entry in afresh.queued
        ]
        assert [entry.key for entry in seen.queued] == sorted(entry.key for entry in seen.queued)
        assert seen.ignored == afresh.ignored
        ignored += len(seen.ignored)
        if before is not None and "queued" in vars(before):
            kept = {id(entry.pod): entry for entry in before.queued}
            assert all(kept.get(id(entry.pod), entry) is entry for entry in seen.queued)
    assert ignored > 20


def test_names_of_nodes_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry of names stays about as large as the cluster, however many nodes have come and gone."""
    monkeypatch.setattr(snapshot_module, "_REGISTRY_MAX", 10)
    fixed, seen, starts = [pool(), *node("stays")], None, 0
    for number in range(60):
        before, objects = seen, [*fixed, *node(f"n{number}"), pod("a-1", on=f"n{number}")]
        seen = Snapshot(cluster_of(objects), CATALOGUE, DOVETAIL, NOW, before)
        starts += before is None or seen._memory.names is not before._memory.names
        assert _answers(seen) == _answers(Snapshot(cluster_of(objects), CATALOGUE, DOVETAIL, NOW))
        assert len(seen._memory.names) <= 12
    assert starts < 10, "a few names too many are kept"
