"""Refusals that stay valid in another round, and the method that reports the search by value."""

from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.methods.moves import Move
from dovetail.decide.refusals.sieve import Possible
from dovetail.decide.refusals.standing import StandingRefusals
from dovetail.decide.search import by_value
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL
from dovetail.model.verdicts import Gate
from tests.support.nodes import NOW, facts_of, minutes

REFUSAL = Refusal(gate=Gate.PRICE, why="")
POSSIBLE = Possible(None)
FACTS = facts_of(name="n", price=3, price_float=3.0)
LINEAGE, LAUNCHES, PODS = object(), object(), (object(),)
ROOM: dict[Any, Any] = {"kind": (("m", 2),)}


class _Answers:
    """Replace a shelter, or what is certain about starting nodes: the given answers, and those that were asked for."""

    def __init__(self, given: dict[Any, Any], *, homeless: int = 1, counted: tuple[int, ...] = ()) -> None:
        self.width = 2
        self.given, self.answers = given, dict[Any, Any]()
        self.counted, self.any, self.planned = set(counted), bool(given), frozenset[str]()
        self.homeless = lambda movers: homeless

    def answer(self, *subject: Any) -> Any:
        """Return the answer about a subject."""
        key = subject[0] if len(subject) == 1 else subject
        self.answers[key] = self.given[key]
        return self.given[key]


def _snapshot(
    lineage: object = LINEAGE, pods: Any = PODS, *, now: datetime = NOW, ready: int = 1, started: bool = True
) -> Any:
    span = SimpleNamespace(covers=lambda now: now == NOW)
    specs: list[Any] = []
    movers = SimpleNamespace(of=PODS, span=span, specs=specs, started=specs if started else [])
    return SimpleNamespace(
        lineage=lineage,
        states=[1],
        initialized=ready,
        index={"n": 0},
        movers=lambda place: movers,
        pods_on=[pods],
        now=now,
    )


def _view(standing: StandingRefusals, snapshot: Any = None, **parts: Any) -> Any:
    shelter = parts.get("shelter") or _Answers(parts.get("room", ROOM), homeless=parts.get("homeless", 1))
    bounds: Any = SimpleNamespace(for_moved=shelter, counts_leaving=parts.get("leaving", False))
    unready: Any = parts.get("unready") or _Answers({})
    return standing.look_at(
        snapshot or _snapshot(), bounds, unready, parts.get("launches", LAUNCHES), parts.get("settings", DOVETAIL)
    )


def _kept(found: Any = REFUSAL, *, alone: bool = True, place: int = 0, **parts: Any) -> StandingRefusals:
    """Return a memory of one answer, for which the room for a kind of pods was looked up."""
    standing = StandingRefusals()
    view = _view(standing, **parts)
    assert view.of(FACTS, place) is None
    view.keep(FACTS, place, found, alone=alone)
    view._shelter.answer("kind")
    if view._unready.any:
        view._unready.answer("class", False)
    assert view.of(FACTS, place) is found
    return standing


@pytest.mark.parametrize(
    ("snapshot", "parts", "stands"),
    [
        (_snapshot(), {}, True),
        (_snapshot(), {"settings": replace(DOVETAIL, ties=5)}, True),
        (_snapshot(), {"settings": replace(DOVETAIL, paused=True)}, False),
        (_snapshot(), {"launches": object()}, False),
        (_snapshot(object()), {}, False),
        (_snapshot(pods=(object(),)), {}, False),
        (_snapshot(now=NOW + minutes(5)), {}, False),
        (_snapshot(ready=0), {}, False),
    ],
    ids=["the same", "other ties", "settings", "launches", "objects", "pods", "protection", "starting"],
)
@pytest.mark.parametrize("alone", [True, False])
def test_what_stands(snapshot: Any, parts: Any, stands: bool, alone: bool) -> None:
    """An answer stays valid with the same settings, launches, objects and pods, while their protection lasts."""
    view = _view(_kept(alone=alone), snapshot, **parts)
    assert (view.of(FACTS, 0) is REFUSAL) is stands
    assert view.of(facts_of(name="other"), 0) is None
    assert view.of(FACTS, -1) is None


def test_other_facts_with_the_same_price() -> None:
    """Only a node's pods and its price count among its own facts."""
    view = _view(_kept())
    assert view.of(facts_of(name="n", price=3, price_float=3.0, ready=False), 0) is REFUSAL
    assert view.of(facts_of(name="n", price=4, price_float=3.0), 0) is None
    assert view.of(facts_of(name="n", price=3, price_float=3.5), 0) is None


@pytest.mark.parametrize(
    ("parts", "alone", "stands"),
    [
        ({"room": {"kind": (("m", 1),)}}, False, False),
        ({"room": {"kind": (("o", 2),)}}, False, False),
        ({"room": {"kind": None}}, False, False),
        ({"room": {"kind": None}}, True, True),
        ({"homeless": 3}, False, True),
        ({"room": {"kind": None}, "homeless": 3}, True, False),
        ({"room": {"kind": None}, "shelter": _Answers({"kind": None}, counted=(0,))}, True, False),
        ({"unready": _Answers({("class", False): 1})}, False, False),
        ({"unready": _Answers({("class", False): 1})}, True, True),
    ],
)
def test_the_room_that_an_answer_rests_on(parts: Any, alone: bool, stands: bool) -> None:
    """An answer is valid with the same room, or if it rests on pods that again fit on no other node."""
    view = _view(_kept(alone=alone), **parts)
    assert (view.of(FACTS, 0) is REFUSAL) is stands


@pytest.mark.parametrize(
    ("answers", "planned", "stands"),
    [({("class", False): 1}, (), True), ({("class", False): 2}, (), False), ({("class", False): 1}, ("n",), False)],
)
def test_starting_nodes_that_an_answer_rests_on(answers: Any, planned: tuple[str, ...], stands: bool) -> None:
    """An answer about starting nodes is valid while the same ones take the pods and the same nodes expect others."""
    standing = _kept(POSSIBLE, alone=False, unready=_Answers({("class", False): 1}))
    unready = _Answers(answers)
    unready.planned = frozenset(planned)
    assert (_view(standing, unready=unready).of(FACTS, 0) is POSSIBLE) is stands


def test_room_that_comes_back() -> None:
    """A round with other room, in which nothing is computed, does not end the validity of earlier answers."""
    standing = _kept(alone=False)
    _view(standing, room={"kind": None})
    assert _view(standing).of(FACTS, 0) is REFUSAL


def test_an_older_view_knows_nothing_of_what_came_later() -> None:
    """Once a later round has looked at the answers, an earlier one adds none that rest on the room of its time."""
    standing = StandingRefusals()
    old, new = _view(standing), _view(standing)
    old.keep(FACTS, 0, REFUSAL, alone=False)
    assert new.of(FACTS, 0) is REFUSAL  # nothing was asked about the room
    old.keep(FACTS, 0, POSSIBLE, alone=False)
    assert old.of(FACTS, 0) is None
    assert new.of(FACTS, 0) is None
    old.keep(FACTS, 0, REFUSAL, alone=True)
    assert old.of(FACTS, 0) is REFUSAL


def test_pods_that_have_not_started() -> None:
    """A node with such pods has no answer that rests on the room for started ones: theirs may be on closed nodes."""
    standing, snapshot = StandingRefusals(), _snapshot(started=False)
    _view(standing, snapshot).keep(FACTS, 0, REFUSAL, alone=False)
    assert _view(standing, snapshot).of(FACTS, 0) is None
    _view(standing, snapshot).keep(FACTS, 0, REFUSAL, alone=True)
    assert _view(standing, snapshot).of(FACTS, 0) is REFUSAL


def test_a_resource_that_is_new() -> None:
    """Rounds that know other resources don't compare themselves with each other."""
    standing = _kept()
    wider = _Answers(ROOM)
    wider.width = 3
    assert _view(standing, shelter=wider).of(FACTS, 0) is None


@pytest.mark.parametrize(("kinds", "stands"), [(1000, True), (1001, False)])
def test_kinds_of_pods_that_are_gone(kinds: int, stands: bool) -> None:
    """A round that would ask about very many kinds asks about none: jobs leave kinds behind that never come again."""
    standing, room = StandingRefusals(), dict.fromkeys(range(kinds))
    view = _view(standing, room=room)
    view.keep(FACTS, 0, REFUSAL, alone=False)
    for number in range(kinds):
        view._shelter.answer(number)
    again = _view(standing, room=room)
    assert (again.of(FACTS, 0) is REFUSAL) is stands
    assert len(again._shelter.answers) == (kinds if stands else 0)


def test_what_is_not_kept() -> None:
    """Nothing is kept if pods of leaving nodes count, nor about nodes that the scheduler does not see as ready."""
    standing = StandingRefusals()
    assert _view(standing, leaving=True) is None
    view = _view(standing, _snapshot(ready=0))
    view.keep(FACTS, 0, REFUSAL, alone=True)
    view.keep(FACTS, -1, REFUSAL, alone=True)
    assert standing.entries == {}


def test_nodes_that_are_gone() -> None:
    """Answers about nodes that are gone are dropped when they are many."""
    standing = StandingRefusals()
    for number in range(100):
        _view(standing).keep(facts_of(name=f"gone-{number}"), 0, REFUSAL, alone=True)
    _view(standing).keep(FACTS, 0, REFUSAL, alone=True)
    assert len(standing.entries) < 100
    assert _view(standing).of(FACTS, 0) is REFUSAL


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
