"""The newest pod of each DaemonSet is followed from snapshot to snapshot."""

from datetime import UTC, datetime
from random import Random

import pytest

from dovetail.lifecycle.store import Store
from dovetail.model.objects import ObjectMeta, OwnerReference, Pod, PodStatus
from dovetail.scheduling.launch.machines import Resources
from dovetail.scheduling.pods.bindings import Bindings, NodeNames
from dovetail.scheduling.pods.classes import Classes

_AGES = [None, *(datetime(2026, 5, 1, hour, tzinfo=UTC) for hour in range(4))]


def _pod(dice: Random, name: str) -> Pod:
    owner = OwnerReference(
        api_version="apps/v1",
        kind="DaemonSet",
        name="ds",
        uid=dice.choice(["one", "two", ""]),
        controller=dice.random() < 0.8,
    )
    meta = ObjectMeta(
        name=name,
        namespace=dice.choice("ab"),
        creation_timestamp=dice.choice(_AGES),
        owner_references=(owner,) if dice.random() < 0.8 else (),
    )
    return Pod(metadata=meta, status=PodStatus(phase=dice.choice(["Running", "Pending"])))


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_daemons_are_those_that_a_new_reading_finds(seed: int) -> None:
    """Whatever comes, goes or is replaced, the same pods are the newest; of the same age, the first in order."""
    dice, store = Random(seed), Store()
    classes, names = Classes(Resources()), NodeNames()
    followed: Bindings | None = None
    for _ in range(40):
        for _ in range(dice.choice([1, 2, 6])):
            name = f"p{dice.randrange(8)}"
            if dice.random() < 0.4:
                store.vanish("Pod", dice.choice("ab"), name)
            else:
                store.observe(_pod(dice, name))
        pods = store.cluster().pods if dice.random() < 0.9 else tuple(store.cluster().pods)
        followed = Bindings(pods, classes, names, followed)
        fresh = Bindings(pods, classes, names, None)
        if dice.random() < 0.7:
            assert {uid: id(pod) for uid, pod in followed.newest_daemons.items()} == {
                uid: id(pod) for uid, pod in fresh.newest_daemons.items()
            }
