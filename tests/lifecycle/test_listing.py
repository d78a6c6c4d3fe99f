"""Listings of the store know what changed since the one before, and share what did not."""

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import numpy as np
import pytest

from dovetail.lifecycle.column import Column
from dovetail.lifecycle.store import Store
from dovetail.model.listing import Listing, are_the_same
from dovetail.model.objects import ObjectMeta, Pod, PodStatus
from dovetail.scheduling.changes import carried, places_before


def _pod(number: int, phase: str = "") -> Pod:
    return Pod(metadata=ObjectMeta(name=f"p{number:03d}", namespace="n"), status=PodStatus(phase=phase))


@pytest.mark.parametrize("seed", range(40))
def test_each_object_is_where_its_listing_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After few or many changes, objects in runs are the same or were replaced, and all others are new or gone."""
    monkeypatch.setattr("dovetail.lifecycle.column._PART", 1 + seed % 4)
    dice, store = Random(seed), Store()
    before = store.cluster().pods
    earlier: list[tuple[Sequence[Pod], list[Pod]]] = []
    for _ in range(30):
        for number in range(40) if dice.random() < 0.1 else ():
            store.vanish("Pod", "n", f"p{number:03d}")
        if dice.random() < 0.5 and not store.cluster().pods:
            before = store.cluster().pods
        for _ in range(dice.choice([1, 5, 30, 200])):
            number = dice.randrange(40)
            if dice.random() < dice.choice([0.3, 0.9]):
                store.vanish("Pod", "n", f"p{number:03d}")
            else:
                store.observe(_pod(number, phase=dice.choice(["Running", "Pending"])))
        after = store.cluster().pods
        if after is before:
            continue
        earlier.append((after, list(after)))
        assert isinstance(after, Listing)
        assert [pod.metadata.name for pod in after] == sorted(pod.metadata.name for pod in after)
        assert {id(pod) for pod in after} == {id(pod) for pod in map(_known(store), range(40)) if pod is not None}
        assert [after[place] for place in range(-len(after), len(after))] == 2 * list(after)
        if isinstance(before, Listing):
            assert after.follows(before)
            _check_changes(before, after)
        before = after
    assert all(are_the_same(listing, as_it_was) for listing, as_it_was in earlier)


def test_changes_that_nobody_lists_are_not_noted_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that doesn't lead notes a few changes; the first listing after that has all objects, in order."""
    monkeypatch.setattr("dovetail.lifecycle.column._NOTED_MAX", 5)
    column = Column()
    for place in (("n", "b"), ("n", "a")):
        column.put(place, _pod(0))
    before = column.listed()
    for number in range(100):
        column.put(("n", f"{number}"), _pod(number))
        column.drop(("n", f"{number}"))
    assert len(column._changed) <= 2 * 2 + 5
    column.put(("n", "aa"), _pod(1))
    after = column.listed()
    assert list(after) == [column.by_place["n", name] for name in ("a", "aa", "b")]
    assert isinstance(after, Listing)
    assert not after.follows(before)


def _known(store: Store) -> Callable[[int], Pod | None]:
    return lambda number: store.get(Pod, f"p{number:03d}", "n")


def _check_changes(before: Listing[Pod], after: Listing[Pod]) -> None:
    places = np.arange(len(after))
    was = places_before(after, places).tolist()
    old, new = set(map(id, before)), set(map(id, after))
    assert [place for place, origin in enumerate(was) if origin < 0] == after.new_at
    assert all(after[place] is before[origin] for place, origin in enumerate(was) if origin >= 0)
    assert are_the_same(after.gone, [pod for pod in before if id(pod) not in new])
    assert are_the_same(after.new, [pod for pod in after if id(pod) not in old])
    assert are_the_same(after.gone, [before[place] for place in after.gone_at])
    assert are_the_same(after.new, [after[place] for place in after.new_at])
    assert are_the_same(after.new, after.at(after.new_at))
    (ids,) = carried([np.fromiter(map(id, before), dtype=np.int64, count=len(before))], after)
    assert all(ids[place] == id(after[place]) for place, origin in enumerate(was) if origin >= 0)


def test_a_listing_shares_the_parts_without_changes() -> None:
    """A listing after one change holds new parts only where something changed."""
    store = Store()
    for number in range(2_000):
        store.observe(_pod(number))
    before = store.cluster().pods
    store.observe(_pod(1_500, phase="Running"))
    after = store.cluster().pods
    assert isinstance(before, Listing)
    assert isinstance(after, Listing)
    assert sum(old is not new for old, new in zip(before._parts, after._parts, strict=True)) == 1
    assert len(after._parts) > 4


def test_a_listing_compares_like_a_tuple() -> None:
    """A listing compares like a tuple."""
    store = Store()
    store.observe(_pod(1))
    pods = store.cluster().pods
    assert pods == (_pod(1),)
    assert pods != (_pod(2),)
    with pytest.raises(IndexError):
        pods[1]
    assert msgspec.structs.asdict(pods[0])["metadata"].name == "p001"
