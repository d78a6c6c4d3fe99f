"""Listings of the store include the previous position of each object."""

from random import Random

import msgspec
import pytest

from dovetail.lifecycle.store import Store
from dovetail.model.listing import Listing
from dovetail.model.objects import ObjectMeta, Pod, PodStatus


def _pod(number: int, phase: str = "") -> Pod:
    return Pod(metadata=ObjectMeta(name=f"p{number:03d}", namespace="n"), status=PodStatus(phase=phase))


@pytest.mark.parametrize("seed", range(20))
def test_each_object_is_where_its_listing_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After few or many changes, an object with a previous position is the same object, and others are new or gone."""
    monkeypatch.setattr("dovetail.lifecycle.column._MOVED_MAX", 4)
    dice, store = Random(seed), Store()
    before = store.cluster().pods
    for _ in range(30):
        for _ in range(dice.choice([1, 5, 30])):
            number = dice.randrange(40)
            if dice.random() < 0.3:
                store.vanish("Pod", "n", f"p{number:03d}")
            else:
                store.observe(_pod(number, phase=dice.choice(["Running", "Pending"])))
        after = store.cluster().pods
        if after is before:
            continue
        assert isinstance(after, Listing)
        assert [pod.metadata.name for pod in after] == sorted(pod.metadata.name for pod in after)
        assert all(store.get(Pod, pod.metadata.name, "n") is pod for pod in after)
        assert len(after.origin) == len(after)
        if isinstance(before, Listing):
            assert after.since is before.mark
            for pod, place in zip(after, after.origin, strict=True):
                assert (before[place] is pod) if place >= 0 else all(pod is not other for other in before)
            assert list(map(id, after.gone)) == [id(pod) for pod in before if all(pod is not other for other in after)]
            assert list(map(id, after.new)) == [id(pod) for pod in after if all(pod is not other for other in before)]
        before = after


def test_a_listing_is_a_tuple_to_everybody_else() -> None:
    """A listing compares like a tuple."""
    store = Store()
    store.observe(_pod(1))
    pods = store.cluster().pods
    assert pods == (_pod(1),)
    assert msgspec.structs.asdict(pods[0])["metadata"].name == "p001"
