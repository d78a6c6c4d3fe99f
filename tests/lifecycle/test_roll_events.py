"""Events about a roll on its NodePool: at its start, at each domain's end, at its end; each once, and true."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.rolling import Rollout, RollPart, annotations_of, written_on
from dovetail.decide.outcome import RollChange
from dovetail.lifecycle.memory.rolls import Rolls
from dovetail.lifecycle.messages import PublishEvent
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import NodeClaim, NodePool

BEGAN = datetime(2026, 5, 4, 12, tzinfo=UTC)
NOW = BEGAN + timedelta(minutes=30)
PARTS = (RollPart(domain="a", total=2, replaced=2), RollPart(domain="b", total=1))
ROLLING = Rollout(began=BEGAN, key="zone", parts=PARTS, turns=("a",))


def _pool(rollout: Rollout | None, request: str | None = None) -> NodePool:
    marks = {key: value for key, value in annotations_of(None, rollout or Rollout()).items() if value is not None}
    if request is not None:
        marks[names.ROLL] = request
    tree = {"metadata": {"name": "web", "uid": "u", "labels": {names.MANAGE: "true"}, "annotations": marks}}
    return msgspec.convert(tree, NodePool, strict=False)


def _claim(name: str, minutes: int) -> NodeClaim:
    stamp = (BEGAN + timedelta(minutes=minutes)).isoformat()
    labels = {names.NODEPOOL: "web"}
    tree = {"metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": stamp}}
    return msgspec.convert(tree, NodeClaim, strict=False)


def _events(pool: NodePool, after: Rollout, claims: tuple[NodeClaim, ...] = (), **more: Any) -> list[tuple[str, str]]:
    """Return the events of a round that finds a roll changed; the second look must add none."""
    store, rolls = Store(), Rolls()
    for item in (pool, *claims):
        store.observe(item)
    change = RollChange(node_pool="web", seen=written_on(pool), domain=None, rollout=after, **more)
    rolls.take([change])
    asked = list(rolls.wanted(store, lambda _: True, 0, NOW))
    again = list(rolls.wanted(store, lambda _: True, 1, NOW))
    assert not [entry for entry in again if isinstance(entry, PublishEvent)]
    found = [entry for entry in asked if isinstance(entry, PublishEvent)]
    assert all((entry.kind, entry.name) == ("NodePool", "web") for entry in found)
    return [(entry.reason, entry.message) for entry in found]


@pytest.mark.parametrize(("request_text", "why"), [(None, "they have drifted"), ("{}", "as requested")])
def test_at_its_start(request_text: str | None, why: str) -> None:
    """How many nodes, and whether somebody asked for it."""
    assert _events(_pool(None, request_text), ROLLING) == [
        ("RolloutStarted", f"3 nodes are to be replaced: {why}."),
    ]


def test_at_the_end_of_a_domain() -> None:
    """The domain and how many nodes it had."""
    before = Rollout(began=BEGAN, key="zone", parts=PARTS)
    assert _events(_pool(before), ROLLING, finished="a") == [
        ("RolloutDomainFinished", "a is done: its 2 nodes have been replaced."),
    ]


def test_a_domain_that_is_left_behind() -> None:
    """A warning with the nodes that could not go."""
    before = Rollout(began=BEGAN, key="zone", parts=PARTS)
    (found,) = _events(_pool(before), ROLLING, left_behind=("n1",))
    assert found == ("DriftDomainLeftBehind", "a is left behind for now: n1 could not go.")


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ((_claim("x", 1), _claim("y", 2), _claim("z", 3)), "All 3 nodes have been replaced, after 30m."),
        ((_claim("x", 1),), "All 3 nodes have been replaced, after 30m."),
        (
            (_claim("old", -60), *(_claim(f"n{at}", at) for at in (1, 2, 3))),
            "All 3 nodes have been replaced, after 30m.",
        ),
        (
            (_claim("old", -60), _claim("older", -90), _claim("x", 1)),
            "No node is to be replaced any more (1 of 3 nodes came since the roll began), after 30m.",
        ),
    ],
    ids=["all new", "fewer nodes than before", "others had not drifted", "taken back"],
)
def test_at_its_end(claims: tuple[NodeClaim, ...], message: str) -> None:
    """A roll that was taken back does not claim that all nodes were replaced."""
    assert _events(_pool(ROLLING), Rollout(), claims) == [("RolloutFinished", message)]
