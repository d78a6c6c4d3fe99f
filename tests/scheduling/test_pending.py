"""Pods that wait are carried from snapshot to snapshot, in the order in which they are placed."""

from random import Random

import pytest

from dovetail.lifecycle.store import Store
from dovetail.model.catalogue import Catalogue
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling.pods import pending
from dovetail.scheduling.snapshot import Snapshot
from tests.support.scheduling_build import KINDS, NOW, node, pod, pool


@pytest.mark.parametrize("seed", range(40))
def test_the_queue_is_the_one_that_a_new_reading_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes, goes, is bound or replaced, pods wait in the same order, also those with the same key."""
    monkeypatch.setattr(pending, "_FEW", seed % 4)
    dice, store, seen = Random(seed), Store(), None
    for item in (pool(), *node("n")):
        store.observe(item)
    catalogue = Catalogue(instance_types=KINDS)
    followed = 0
    for _ in range(25):
        for _ in range(dice.choice([0, 1, 3, 12])):
            name = f"p{dice.randrange(12)}"
            store.vanish("Pod", "default", name)
            if dice.random() < 0.7:
                on, uid = dice.choice(["", "", "n"]), dice.choice(["", str(dice.random())])
                store.observe(pod(name, dice.choice(["0.5", "1"]), on=on, meta={"uid": uid}))
        cluster = store.cluster()
        seen = Snapshot(cluster, catalogue, DOVETAIL, NOW, seen)
        if dice.random() < 0.2:
            continue
        followed += seen._waiting._queue is not None
        fresh = Snapshot(cluster, catalogue, DOVETAIL, NOW)
        assert [id(entry.pod) for entry in seen.queued] == [id(entry.pod) for entry in fresh.queued]
    assert followed
