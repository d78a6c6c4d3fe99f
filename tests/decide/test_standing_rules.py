"""Refusals that stay valid in another round, and the method that reports the search by value."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods.moves import Move
from dovetail.decide.refusals.standing import StandingRefusals
from dovetail.decide.search import by_value
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL
from dovetail.model.verdicts import Gate
from tests.support.nodes import NOW, facts_of

REFUSAL = Refusal(gate=Gate.PRICE, why="")
FACTS = facts_of(name="n")
LINEAGE, LAUNCHES, PODS = object(), object(), (object(),)


def _bounds(room: int = 3, *, leaving: bool = False) -> Any:
    return SimpleNamespace(room_for=lambda info: room, counts_leaving=leaving)


def _snapshot(lineage: object = LINEAGE, pods: Any = PODS, *, here: bool = True, covers: bool = True) -> Any:
    span = SimpleNamespace(covers=lambda now: covers)
    movers = SimpleNamespace(started=[(SimpleNamespace(id=7), 1)], of=PODS, span=span)
    return SimpleNamespace(
        lineage=lineage,
        states=[1],
        index={"n": 0} if here else {},
        node_index=lambda name: 0,
        movers=lambda place: movers,
        pods_on=[pods],
        now=NOW,
    )


def _kept() -> StandingRefusals:
    standing = StandingRefusals()
    view = standing.look_at(_snapshot(), _bounds(), LAUNCHES, DOVETAIL)  # type: ignore[arg-type]
    view.keep(FACTS, REFUSAL)
    assert view.refusal_of(FACTS) is REFUSAL
    return standing


@pytest.mark.parametrize(
    ("snapshot", "bounds", "launches", "settings", "stands"),
    [
        (_snapshot(), _bounds(), LAUNCHES, DOVETAIL, True),
        (_snapshot(), _bounds(), LAUNCHES, replace(DOVETAIL, ties=5), True),
        (_snapshot(), _bounds(), LAUNCHES, replace(DOVETAIL, paused=True), False),
        (_snapshot(), _bounds(), object(), DOVETAIL, False),
        (_snapshot(object()), _bounds(), LAUNCHES, DOVETAIL, False),
        (_snapshot(), _bounds(4), LAUNCHES, DOVETAIL, False),
        (_snapshot(), _bounds(leaving=True), LAUNCHES, DOVETAIL, False),
        (_snapshot(pods=(object(),)), _bounds(), LAUNCHES, DOVETAIL, False),
        (_snapshot(here=False), _bounds(), LAUNCHES, DOVETAIL, False),
    ],
    ids=["the same", "other ties", "settings", "launches", "objects", "room", "leaving", "pods", "gone"],
)
def test_what_stands(snapshot: Any, bounds: Any, launches: Any, settings: Any, stands: bool) -> None:
    """A refusal stays valid with the same settings, launches, objects, room and pods."""
    view = _kept().look_at(snapshot, bounds, launches, settings)
    assert (view.refusal_of(FACTS) is REFUSAL) is stands
    assert view.refusal_of(facts_of(name="n")) is None
    assert view.refusal_of(facts_of(name="other")) is None


def test_an_older_view_is_empty() -> None:
    """When a new round starts, the view of the previous round returns and stores nothing."""
    standing = StandingRefusals()
    old = standing.look_at(_snapshot(), _bounds(), LAUNCHES, DOVETAIL)  # type: ignore[arg-type]
    old.keep(FACTS, REFUSAL)
    new = standing.look_at(_snapshot(), _bounds(), LAUNCHES, DOVETAIL)  # type: ignore[arg-type]
    assert old.refusal_of(FACTS) is None
    assert new.refusal_of(FACTS) is REFUSAL
    other = facts_of(name="m")
    old.keep(other, REFUSAL)
    assert new.refusal_of(other) is None
    shut = StandingRefusals()
    leaving = shut.look_at(_snapshot(), _bounds(leaving=True), LAUNCHES, DOVETAIL)  # type: ignore[arg-type]
    leaving.keep(FACTS, REFUSAL)
    assert shut.entries == {}


def test_protection_that_ends() -> None:
    """A refusal is valid while the protection of its pods lasts."""
    standing = StandingRefusals()
    view = standing.look_at(_snapshot(covers=False), _bounds(), LAUNCHES, DOVETAIL)  # type: ignore[arg-type]
    view.keep(FACTS, REFUSAL)
    assert view.refusal_of(FACTS) is None


@pytest.mark.parametrize(
    ("nodes", "several", "one"),
    [(0, (0, 0), (0, 1)), (1, (0, 0), (1, 1)), (2, (1, 1), (0, 1))],
)
def test_which_method_tells(
    monkeypatch: pytest.MonkeyPatch, nodes: int, several: tuple[int, int], one: tuple[int, int]
) -> None:
    """The method multiNode reports several nodes; singleNode reports one node and the refusals."""
    move: Any = None
    if nodes:
        facts = tuple(facts_of(name=str(at)) for at in range(nodes))
        move = Move(nodes=facts, simulation=None, new_nodes=(), approved=None)  # type: ignore[arg-type]
    found = SimpleNamespace(move=move, held={"h": 1}, refused=((FACTS,), REFUSAL))
    monkeypatch.setattr(by_value, "command_of", lambda *_: "command")
    monkeypatch.setattr(by_value.multi_node, "candidates", lambda _: (FACTS,))
    context: Any = SimpleNamespace(stabilizing=False, searched=found)
    for method, (commands, refused) in ((Method.MULTI_NODE, several), (Method.SINGLE_NODE, one)):
        run = by_value._run(context, method)
        assert (len(run.commands), bool(run.refused)) == (commands, bool(refused))
        assert run.held == {"h": 1}
