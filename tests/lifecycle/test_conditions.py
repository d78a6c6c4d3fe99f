"""The condition on a pool whose disruption policy cannot be read, and its removal."""

from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.conditions import POLICY_READABLE, Conditions
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodePool
from dovetail.model.settings import DOVETAIL


def _pool(*, broken: bool, told: str) -> NodePool:
    tree: dict[str, Any] = {
        "metadata": {"name": "web"},
        "spec": {"disruption": {"budgets": [{"nodes": "many" if broken else "1"}]}},
        "status": {"conditions": [{"type": POLICY_READABLE, "status": told, "message": "as it was"}] if told else []},
    }
    return msgspec.convert(tree, NodePool, strict=False)


@pytest.mark.parametrize(
    ("broken", "told", "said"),
    [
        (False, "", None),
        (False, "True", None),
        (False, "False", "True"),
        (True, "", "False"),
        (True, "True", "False"),
        (True, "False", "False"),
    ],
    ids=["well", "told so", "mended", "broken", "newly broken", "broken in another way"],
)
def test_what_a_pool_is_told(broken: bool, told: str, said: str | None) -> None:
    """A healthy pool gets no condition; each change is written once, until a retry is due."""
    store, conditions = Store(), Conditions()
    store.observe(_pool(broken=broken, told=told))
    conditions.look_at("web")
    asked = conditions.wanted(store, DOVETAIL, lambda pool: True, 0)
    assert [order.status for order in asked] == ([] if said is None else [said])
    assert conditions.wanted(store, DOVETAIL, lambda pool: True, 0) == []


def test_the_same_words_are_not_said_twice() -> None:
    """A pool that has the condition already, or is not managed, is left alone."""
    store, conditions = Store(), Conditions()
    store.observe(_pool(broken=True, told=""))
    conditions.look_at("web")
    [first] = conditions.wanted(store, DOVETAIL, lambda pool: True, 0)
    known = msgspec.to_builtins(_pool(broken=True, told="False"))
    known["status"]["conditions"][0]["message"] = first.message
    store.observe(msgspec.convert(known, NodePool, strict=False))
    again = Conditions()
    again.look_at("web")
    assert again.wanted(store, DOVETAIL, lambda pool: True, 0) == []
    stranger = Conditions()
    stranger.look_at("web")
    assert stranger.wanted(store, DOVETAIL, lambda pool: False, 0) == []
