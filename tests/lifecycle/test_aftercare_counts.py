"""What a command still owes: pods that have not come back are counted, and halts end."""

from collections.abc import Callable

import msgspec
import pytest

from dovetail.api.pool_marks import Halt, write_halt
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.memory.aftercare import Aftercare
from dovetail.lifecycle.memory.owners import missing
from dovetail.lifecycle.store import Store
from dovetail.model import names
from tests.support.conversation import pod, pool, replica_set, stateful_set
from tests.support.runs import run, store_of


def every(pool: str) -> bool:
    """Return True for every pool."""
    return True


def cared(limit_of: Callable[[str], int | None] = lambda of: 60 * SECOND) -> tuple[Aftercare, Store]:
    """Return the aftercare state after a command on two pools whose pod of rs left at 100 s."""
    store = store_of(pool("web"), pool("two"), replica_set("rs", 1), pod("a", "n1", "rs"))
    care = Aftercare()
    care.begin(run("n1", "two/n2"), store, limit_of)
    store.vanish("Pod", "d", "a")
    care.left("c1", 100 * SECOND)
    return care, store


def test_aftercare_counts_once_for_a_version_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aftercare counts again only after a change, and at most every two seconds."""
    counted = []
    monkeypatch.setattr(
        "dovetail.lifecycle.memory.aftercare.missing",
        lambda before, store: counted.append(store.version) or missing(before, store),  # type: ignore[func-returns-value]
    )
    care, store = cared()
    assert care.next_at() == 0
    assert sorted(care.unsettled(store)) == ["two", "web"]
    assert care.look(store, 110 * SECOND, every) == ([], False)
    assert len(counted) == 1
    assert care.next_at() == 112 * SECOND
    store.observe(pod("b", "n3", "rs"))
    assert care.unsettled(store) == {}
    assert care.look(store, 112 * SECOND, every) == ([], True)
    assert care.next_at() is None
    assert care.look(store, 114 * SECOND, every) == ([], False)


def test_aftercare_of_pools_with_different_limits() -> None:
    """Each pool halts at its own limit; a pool without a limit never halts."""
    care, store = cared({"web": 60 * SECOND, "two": 90 * SECOND}.get)
    assert care.look(store, 160 * SECOND - 1, every)[0] == []
    [order] = care.look(store, 160 * SECOND, every)[0]
    assert (order.node_pool, order.id) == ("web", "halt/web/on/c1")
    assert care.look(store, 162 * SECOND, every)[0] == [], "it is asked for already"
    halted = pool("web", annotations={names.HALTED: order.value or ""})
    store.observe(msgspec.structs.replace(halted, metadata=msgspec.structs.replace(halted.metadata)))
    assert care.look(store, 164 * SECOND, every)[0] == []
    assert list(care.unsettled(store)) == ["two"]
    store.vanish("NodePool", "", "two")
    assert care.look(store, 190 * SECOND, every)[0] == [], "a pool that is gone can't be halted"
    assert care.next_at() is None


def test_aftercare_begins_once() -> None:
    """Aftercare compares with the pods before the first one left."""
    store = store_of(pool("web"), replica_set("rs", 1), pod("a", "n1", "rs"))
    care = Aftercare()
    care.begin(run("n1"), store, lambda of: SECOND)
    store.vanish("Pod", "d", "a")
    care.begin(run("n1"), store, lambda of: SECOND)
    assert care.next_at() is None, "its nodes are still there"
    assert care.unsettled(store) == {}
    assert care.look(store, 10 * SECOND, every) == ([], False)
    care.left("c1", 0)
    care.left("unknown", 0)
    assert list(care.unsettled(store)) == ["web"]
    care.forget()
    assert care.unsettled(store) == {}


@pytest.mark.parametrize(
    ("ready", "manages", "back", "ends"),
    [
        ((("rs", 1),), True, 1, True),
        ((("rs", 2),), True, 1, False),
        ((("rs", 1),), False, 1, False),
        ((), True, 1, False),
    ],
)
def test_halts_of_a_predecessor_end(ready: tuple[tuple[str, int], ...], manages: bool, back: int, ends: bool) -> None:
    """A found halt ends when its owners have enough ready pods; one without owners stays until resumed."""
    value = write_halt(Halt(why="w", command="old", ready=ready))
    items = [pod(f"p{index}", "n", "rs") for index in range(back)]
    store = store_of(pool("web", annotations={names.HALTED: value}), pool("two"), replica_set("rs", 2), *items)
    orders, settled = Aftercare().look(store, 0, lambda of: manages)
    assert [(order.id, order.node_pool, order.value) for order in orders] == (
        [("halt/web/off/old", "web", None)] if ends else []
    )
    assert not settled


def test_few_owners_are_named() -> None:
    """The halt names five owners, by namespace, kind and name."""
    store = store_of(pool("web"), *(replica_set(f"r{i}", 1) for i in range(6)), stateful_set("db", 1))
    for index in range(6):
        store.observe(pod(f"p{index}", "n1", f"r{index}"))
    store.observe(pod("q", "n1", "db", kind="StatefulSet"))
    care = Aftercare()
    care.begin(run("n1"), store, lambda of: SECOND)
    care.left("c1", 0)
    named = ", ".join(f"d/ReplicaSet/r{index}" for index in range(5))
    assert care.unsettled(store) == {
        "web": f"Pods that command c1 moved are not ready yet ({named}): NodePool web waits."
    }
