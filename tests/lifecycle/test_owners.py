"""Who owns a pod, what there was before, and which owners lack pods."""

import pytest

from dovetail.lifecycle.memory.owners import Before, missing, owners_of, ready_of, ready_on
from dovetail.lifecycle.store import Store
from dovetail.model.objects import AnyObject
from tests.support.conversation import pod, replica_set, stateful_set


def store_of(*items: AnyObject) -> Store:
    """Return a store that holds these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    return store


def test_owners_of_a_pod() -> None:
    """DaemonSets and nodes are not owners of a pod here."""
    assert owners_of(pod("a", "n", "rs")) == ["rs"]
    assert owners_of(pod("a", "n", "ds", kind="DaemonSet")) == []
    assert owners_of(pod("a", "n", "n", kind="Node")) == []
    assert owners_of(pod("a", "n", "")) == []


def test_what_there_was_before() -> None:
    """The owners of the nodes' pods are recorded with all their ready pods; pods without an owner are ignored."""
    store = store_of(
        pod("a", "n1", "rs"), pod("b", "n2", "rs"), pod("c", "n2", "rs", ready=False), pod("d", "n1", "db"),
        pod("e", "n1", ""), pod("f", "n1", "late", ready=False), pod("g", "n2", "other"),
    )  # fmt: skip
    before = ready_on(["n1"], store)
    assert before == Before(ready={"db": 1, "late": 0, "rs": 2}, leaving=frozenset({"a", "d", "f"}))
    assert [ready_of(owner, store) for owner in ("rs", "other", "none")] == [2, 1, 0]
    assert ready_of("rs", store, frozenset({"a"})) == 1


@pytest.mark.parametrize(
    ("replicas", "ready", "lacks"),
    [
        (2, 2, 0),
        (2, 1, 1),
        (2, 0, 2),
        (3, 1, 1),
        (1, 1, 0),
        (1, 0, 1),
        (0, 0, 0),
        (3, 3, 0),
        (None, 1, 0),
        (None, 0, 0),
    ],
)
def test_who_lacks_pods(replicas: int | None, ready: int, lacks: int) -> None:
    """An owner lacks pods if it has fewer than before and fewer than it wants; a deleted owner wants none."""
    store = store_of(*(pod(f"p{index}", "n", "rs") for index in range(ready)), pod("old", "n", "rs", uid="left"))
    if replicas is not None:
        store.observe(replica_set("rs", replicas))
    gaps = missing(Before(ready={"rs": 2}, leaving=frozenset({"left"})), store)
    assert gaps == ({"rs": lacks} if lacks else {})


def test_a_stateful_set_without_a_number_wants_one() -> None:
    """A StatefulSet without replicas wants one pod, as the API server defaults it."""
    store = store_of(stateful_set("db", None))
    assert missing(Before(ready={"db": 3}), store) == {"db": 1}
