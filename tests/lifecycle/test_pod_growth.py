"""Owners whose pods came back larger: what a look finds does not depend on how often and how lazily it looks."""

from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from dovetail.lifecycle.memory.pod_growth import KEPT_FOR, PodGrowth
from dovetail.lifecycle.store import Store
from dovetail.model.objects import Pod

START = datetime(2026, 5, 1, tzinfo=UTC)
MINUTE = KEPT_FOR // 60


def _pod(name: str, owner: str, cpu: int, born: datetime, version: int) -> Pod:
    tree = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"{name}-{born:%H%M%S}",
            "resourceVersion": str(version),
            "creationTimestamp": born.isoformat(),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}],
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}]},
    }
    return msgspec.convert(tree, Pod, strict=False)


@pytest.mark.parametrize("seed", range(30))
def test_only_what_stirred_is_compared_and_nothing_is_missed(seed: int) -> None:
    """Over hours of moves and returns, a memory that hears every pod finds what one that compares all finds."""
    dice, store = Random(seed), Store()
    lazy, thorough = PodGrowth(), PodGrowth()
    found = elapsed = 0
    for step in range(150):
        elapsed += dice.randint(1, 2) * MINUTE
        now, owner = START + timedelta(minutes=step), dice.choice("abc")
        if dice.random() < 0.5:
            pod = _pod(f"{owner}-{dice.randrange(3)}", owner, dice.choice((100, 100, 150, 200)), now, step + 1)
            store.vanish("Pod", "default", pod.metadata.name)
            if store.observe(pod):
                lazy.note(pod)
        if dice.random() < 0.15:
            pods = list(store.pods_owned_by(owner))[:1]
            for memory in (lazy, thorough):
                memory.leave(pods, now, elapsed)
        for pod in store.cluster().pods:
            thorough.note(pod)
        assert lazy.look(store, elapsed) == thorough.look(store, elapsed)
        assert lazy.sizes() == thorough.sizes()
        assert lazy.times() == thorough.times()
        found += len(lazy.sizes())
    assert found
