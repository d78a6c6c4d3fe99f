"""Bounds on new nodes and certain refusals on small hand-made snapshots, with exact numbers at the edges."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dovetail.decide.refusals import starting as starting_module
from dovetail.decide.refusals.bounds import Bounds
from dovetail.decide.refusals.needs import NeedRows
from dovetail.decide.refusals.room import PlannedRoom
from dovetail.decide.refusals.starting import Starting
from dovetail.scheduling.pods.classes import SpecInfo
from tests.support.nodes import facts_of

Need = dict[int, int]


class _Info(SpecInfo):
    """Replace what follows from a pod's spec by given values."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


A: Any = _Info(id=1, bit=2, need=((0, 4), (1, 1)), claims=(), volumes=False)
B: Any = _Info(id=2, bit=4, need=((0, 2), (1, 2)), claims=(), volumes=False)
C: Any = _Info(id=3, bit=8, need=((1, 5),), claims=(), volumes=False)


class _Echo:
    """Replace the launch prices and return the need that was asked about."""

    def least_for(self, need: bytes) -> tuple[int, Any]:
        amounts = np.frombuffer(need, dtype=np.int64).tolist()
        return 7, {column: amount for column, amount in enumerate(amounts) if amount}

    def least_of_several(self, need: bytes) -> tuple[int, Any]:
        amounts = self.least_for(need)[1]
        return max(1, amounts.get(0, 0) // 4), {"share": amounts}


SPECS = (A, B, C)


def _movers(started: dict[Any, int], bound: dict[Any, int]) -> Any:
    """Return pods of a node by spec: those that have started, and those that are only bound to it."""
    first = tuple((info, started[info.id]) for info in SPECS if info.id in started)
    counts = {info.id: started.get(info.id, 0) + bound.get(info.id, 0) for info in SPECS}
    specs = tuple((info, counts[info.id]) for info in SPECS if counts[info.id]) if bound else first
    return SimpleNamespace(
        specs=specs,
        started=first,
    )


def _planned(snapshot: Any, left: dict[int, tuple[int, int]], unsettled: Sequence[Any] = ()) -> PlannedRoom:
    """Return the room that plans leave on some nodes."""
    if not left:
        return PlannedRoom(snapshot)

    def room(frame: Any) -> Any:
        found = frame.room.copy()
        for node, row in left.items():
            found[node] = row
        return found

    settled: Any = SimpleNamespace(room=room, nodes=frozenset(left), unsettled=list(unsettled))
    return PlannedRoom(snapshot, settled)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Hold the free room of each node, and its pods by spec."""

    rooms: Sequence[tuple[int, int]]
    started: dict[int, dict[Any, int]]
    bound: dict[int, dict[Any, int]] = field(default_factory=dict)
    closed: tuple[int, ...] = ()
    shut: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    counted: bool = False
    planned: dict[int, tuple[int, int]] = field(default_factory=dict)

    def alone(self, **options: Any) -> list[Any]:
        """Return the bounds for the first node."""
        (found,) = self.bounds(**options).alone([facts_of(name="n0")])
        return list(found)

    def bounds(self, **options: Any) -> Bounds:
        room = np.array(self.rooms, dtype=np.int64)
        is_open = np.array([at not in (*self.shut, *self.leaving) for at in range(len(self.rooms))])
        movers = [_movers(self.started.get(at, {}), self.bound.get(at, {})) for at in range(len(self.rooms))]
        snapshot: Any = SimpleNamespace(
            frame=SimpleNamespace(open=is_open, room=room, row=lambda at: room[at].tolist()),
            movers=lambda at: movers[at],
            leaving=[(at, ()) for at in self.leaving],
            settings=SimpleNamespace(rules=SimpleNamespace(others_pods_count=self.counted)),
            index={f"n{at}": at for at in range(len(self.rooms))},
        )
        launches: Any = _Echo()
        return Bounds(snapshot, self.closed, launches, _planned(snapshot, self.planned), NeedRows(2), **options)


TIGHT = [(0, 0), (4, 4), (0, 0)]

ONE_NODE = [
    pytest.param(Scene(rooms=[(1, 1), (8, 2)], started={0: {1: 2}}), [], id="all fit exactly"),
    pytest.param(
        Scene(rooms=[(1, 1), (10, 9)], started={0: {1: 3}}),
        [{0: 2}, {0: 4, 1: 1}],
        id="two of three fit",
    ),
    pytest.param(
        Scene(rooms=[(5, 5), (5, 5)], started={0: {1: 2}}),
        [{0: 3}, {0: 4, 1: 1}],
        id="its own room is no room",
    ),
    pytest.param(
        Scene(rooms=[(1, 1), (6, 9), (6, 9)], started={0: {1: 2, 2: 2}}),
        [],
        id="each kind fits, and so do the sums",
    ),
    pytest.param(
        Scene(rooms=[(1, 1), (4, 9), (6, 9)], started={0: {1: 2, 2: 2}}),
        [{0: 2}],
        id="each kind fits by itself, together they are short by two",
    ),
    pytest.param(Scene(rooms=[(1, 1)] + [(4, 1)] * 16, started={0: {1: 17}}), [{0: 4, 1: 1}], id="16 of 17"),
    pytest.param(Scene(rooms=[(1, 1)] + [(4, 1)] * 17, started={0: {1: 18}}), [{0: 4, 1: 1}], id="too many to count"),
    pytest.param(
        Scene(rooms=[(1, 1), (8, 2)], started={0: {1: 2}}, planned={1: (4, 1)}),
        [{0: 4, 1: 1}],
        id="room for one is planned for another pod",
    ),
    pytest.param(
        Scene(rooms=[(1, 1), (4, 9), (6, 9)], started={0: {1: 2, 2: 2}}, planned={0: (0, 0), 2: (4, 9)}),
        [{0: 4}],
        id="planned room is missing in the sums too",
    ),
    pytest.param(
        Scene(rooms=[(9, 9), (1, 1)], started={0: {1: 2}}), [{0: 8, 1: 2}], id="they fit on their own node only"
    ),
    pytest.param(Scene(rooms=[(1, 1), (1, 1)], started={0: {1: 2}}), [{0: 8, 1: 2}], id="they fit nowhere"),
    pytest.param(
        Scene(rooms=[(1, 1), (9, 9), (9, 9)], started={0: {1: 1}}, closed=(1, 2)), [{0: 4, 1: 1}], id="closed"
    ),
    pytest.param(
        Scene(rooms=[(0, 0), (2, 3)], started={0: {1: 1, 2: 2}}),
        [{0: 4, 1: 1}, {0: 6, 1: 2}, {0: 6, 1: 3}],
        id="one fits nowhere, of the others one has room",
    ),
    pytest.param(
        Scene(rooms=[(0, 0), (6, 6)], started={0: {1: 1}}, bound={0: {2: 3}}, closed=(1,)),
        [{0: 4, 1: 1}],
        id="pods that have not started use closed nodes",
    ),
    pytest.param(
        Scene(rooms=[(0, 0), (6, 6)], started={0: {1: 1}}, bound={0: {2: 4}}, closed=(1,)),
        [{0: 4, 1: 1}, {0: 6, 1: 3}],
        id="and are too many for them",
    ),
    pytest.param(Scene(rooms=TIGHT, started={0: {1: 1}, 2: {1: 1}}, leaving=(2,)), [], id="leaving pods don't count"),
    pytest.param(
        Scene(rooms=TIGHT, started={0: {1: 1}, 2: {1: 1}}, leaving=(2,), counted=True),
        [{0: 4}],
        id="leaving pods take the room",
    ),
    pytest.param(
        Scene(rooms=TIGHT, started={0: {1: 1}, 2: {3: 1}}, leaving=(2,), counted=True),
        [{1: 5}],
        id="a leaving pod fits nowhere",
    ),
    pytest.param(
        Scene(rooms=TIGHT, started={0: {1: 1}, 2: {3: 2, 1: 1}}, leaving=(2,), counted=True),
        [{1: 10}, {1: 10, 0: 4}],
        id="two leaving pods fit nowhere, one takes the room",
    ),
    pytest.param(
        Scene(rooms=[(4, 4), (0, 0), (0, 0)], started={0: {2: 1}, 2: {1: 1}}, leaving=(2,), counted=True),
        [{0: 6, 1: 3}],
        id="a leaving pod fits on the node asked about only",
    ),
]


@pytest.mark.parametrize(("scene", "found"), ONE_NODE)
def test_one_node(scene: Scene, found: list[Need]) -> None:
    """The bounds on launches for node 0 grow step by step; the first one counts pods that fit nowhere."""
    assert scene.alone() == [(7, need) for need in found]


@pytest.mark.parametrize(("scene", "found"), ONE_NODE)
def test_several_machines_for_one_node(scene: Scene, found: list[Need]) -> None:
    """The bound counts machines of the largest type, at least one, at the cheapest share."""
    expected: list[Any] = [(max(1, need.get(0, 0) // 4), {"share": need}) for need in found]
    assert scene.alone(several=True) == expected


@pytest.mark.parametrize(
    ("scene", "nodes", "need"),
    [
        (Scene(rooms=[(1, 1), (1, 1), (8, 2)], started={0: {1: 1}, 1: {1: 1}}), (0, 1), {}),
        (Scene(rooms=[(1, 1), (1, 1), (7, 2)], started={0: {1: 1}, 1: {1: 1}}), (0, 1), {0: 1}),
        (Scene(rooms=[(4, 4), (4, 4), (4, 4)], started={0: {1: 1}, 1: {1: 1}}), (0, 1), {0: 4}),
        (Scene(rooms=[(0, 0), (0, 0), (4, 4), (9, 9)], started={0: {1: 1}, 1: {1: 1}}, closed=(3,)), (0, 1), {0: 4}),
        (Scene(rooms=[(0, 0), (0, 0), (4, 4)], started={0: {3: 1}, 1: {1: 1}}), (0, 1), {1: 5}),
        (Scene(rooms=[(0, 0), (0, 0), (4, 4)], started={0: {3: 1}, 1: {3: 1}}), (0, 1), {1: 10}),
        (
            Scene(rooms=[(0, 0), (0, 0), (6, 6)], started={}, bound={0: {2: 2}, 1: {2: 2}}, closed=(2,)),
            (0, 1),
            {0: 2, 1: 2},
        ),
        (
            Scene(rooms=[(0, 0), (0, 0), (6, 6)], started={0: {2: 1}}, bound={1: {2: 2}}, closed=(2,)),
            (0, 1),
            {0: 2, 1: 2},
        ),
        (
            Scene(rooms=[(0, 0), (0, 0), (6, 6)], started={0: {1: 1}, 1: {1: 1}}, leaving=(1,), counted=True),
            (0,),
            {0: 2},
        ),
    ],
)
def test_several_nodes(scene: Scene, nodes: tuple[int, ...], need: Need) -> None:
    """The bound covers nodes that go together; an empty answer means that no launch is certain."""
    chosen = [facts_of(name=f"n{at}") for at in nodes]
    assert scene.bounds().together(chosen) == ((7, need) if need else (0, None))


def test_sums_beyond_64_bits() -> None:
    """Amounts whose sum needs more than 64 bits are added exactly."""
    huge = 2**62
    scene = Scene(rooms=[(0, 0), (huge, 9), (huge, 9), (huge, 9)], started={0: {1: 1}})
    room, fits = scene.bounds()._for_all.usable((1, 0))
    assert room == [3 * huge, 27]
    assert fits.tolist() == [False, True, True, True]
    assert scene.alone() == []


# ------------------------------------------------------------ nodes that are not ready


def _entry(info: Any, *, place: int, exempt: bool = False, kind: int = 0) -> Any:
    """Return a pod in the queue; `place` is its position."""
    return SimpleNamespace(
        pod=f"pod-{place}",
        cls=_class(info, info.id + 10 * kind),
        exempt=exempt,
        key=(0, 0, place),
        kind=(info.id + 10 * kind, exempt),
    )


@cache
def _class(info: Any, number: int) -> Any:
    """Return a class of pods; all are of the same size."""
    return _Class(info, number)


@dataclass(frozen=True, eq=False)
class _Class:
    info: Any
    id: int
    cpu: int = 0
    memory: int = 0


@dataclass(frozen=True, kw_only=True)
class Start:
    """Describe a cluster whose nodes from `ready` on are still starting; `pods` are the pods of node 0."""

    rooms: Sequence[tuple[int, int]]
    ready: int
    pods: Sequence[Any]
    waiting: Sequence[Any] = ()
    leaving: Sequence[Any] = ()
    counted: bool = False
    closed: tuple[int, ...] = ()
    simple: bool = True
    planned: dict[int, tuple[int, int]] = field(default_factory=dict)
    unsettled: Sequence[Any] = ()

    def found(self, *nodes: int) -> Any:
        return self.starting().destination(nodes or (0,))

    def starting(self) -> Starting:
        room = np.array(self.rooms, dtype=np.int64)

        def first(cls: Any) -> Any:
            fits = np.ones(len(room), dtype=np.bool_)
            for column, amount in cls.info.need:
                fits &= room[:, column] >= amount
            return SimpleNamespace(simple=self.simple, mask=fits)

        alike: dict[Any, list[Any]] = {}
        for entry in self.pods:
            alike.setdefault(entry.kind, []).append(entry)
        movers = {0: SimpleNamespace(alike=list(alike.values()))}
        snapshot: Any = SimpleNamespace(
            initialized=self.ready,
            states=[SimpleNamespace(name=f"n{at}") for at in range(len(room))],
            movers=lambda at: movers.get(at, SimpleNamespace(alike=[])),
            frame=SimpleNamespace(
                first=first,
                room=room,
                row=lambda at: room[at].tolist(),
                open=np.ones(len(room), dtype=np.bool_),
                may_need_room_only=lambda _: True,
            ),
            leaving_entries=list(self.leaving),
            queued=list(self.waiting),
            settings=SimpleNamespace(rules=SimpleNamespace(others_pods_count=self.counted)),
        )
        planned = _planned(snapshot, self.planned, self.unsettled)
        return Starting(snapshot, self.closed, planned)


def _pods(info: Any, *places: int, **options: Any) -> list[Any]:
    return [_entry(info, place=place, **options) for place in places]


FULL, LATE = (0, 0), (9, 9)


@pytest.mark.parametrize(
    ("start", "found"),
    [
        pytest.param(
            Start(rooms=[FULL, (9, 9), LATE], ready=2, pods=_pods(A, 5), planned={1: (3, 9)}),
            ("pod-5", "n2"),
            id="the room on a ready one is planned for others",
        ),
        pytest.param(
            Start(rooms=[FULL, LATE, LATE], ready=1, pods=_pods(A, 5), planned={1: (3, 9)}, leaving=_pods(A, 1, 2, 3)),
            ("pod-5", "n2"),
            id="leaving pods with a plan fill no other node",
        ),
        pytest.param(
            Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), planned={1: (3, 9)}), None, id="all room is planned"
        ),
        pytest.param(
            Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), planned={1: (7, 9)}, unsettled=_pods(A, 1)),
            None,
            id="a leaving pod without a plan may come first",
        ),
        pytest.param(
            Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), planned={1: (8, 9)}, unsettled=_pods(A, 1)),
            ("pod-5", "n1"),
            id="and leaves enough",
        ),
        pytest.param(
            Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), planned={0: (0, 0)}),
            None,
            id="pods planned for the node that goes may go anywhere",
        ),
        pytest.param(Start(rooms=[FULL, LATE], ready=2, pods=_pods(A, 5)), None, id="all nodes are ready"),
        pytest.param(Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5)), ("pod-5", "n1"), id="only a starting node"),
        pytest.param(Start(rooms=[FULL, FULL], ready=1, pods=_pods(A, 5)), None, id="no room on it"),
        pytest.param(Start(rooms=[FULL, (4, 1), LATE], ready=2, pods=_pods(A, 5)), None, id="room on a ready one"),
        pytest.param(
            Start(rooms=[FULL, (4, 1), LATE], ready=2, pods=_pods(A, 5, 6)), ("pod-6", "n2"), id="for one of two"
        ),
        pytest.param(
            Start(rooms=[FULL, (9, 2), (7, 9), LATE], ready=3, pods=_pods(A, 4, 5, 6, 7)),
            ("pod-7", "n3"),
            id="2 + 1 of 4",
        ),
        pytest.param(Start(rooms=[FULL, (9, 2), (7, 9), LATE], ready=3, pods=_pods(A, 4, 5, 6)), None, id="2 + 1 of 3"),
        pytest.param(
            Start(rooms=[LATE, LATE], ready=1, pods=_pods(A, 5)), ("pod-5", "n1"), id="its own room is no room"
        ),
        pytest.param(
            Start(rooms=[FULL, (9, 9), LATE], ready=2, pods=_pods(A, 5), closed=(1,)), ("pod-5", "n2"), id="closed"
        ),
        pytest.param(
            Start(rooms=[FULL, (9, 9), LATE], ready=2, pods=_pods(A, 5, exempt=True), closed=(1,)), None, id="exempt"
        ),
        pytest.param(
            Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), closed=(1,)), None, id="the starting one is closed"
        ),
        pytest.param(
            Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), simple=False), None, id="rules that are not simple"
        ),
        pytest.param(
            Start(rooms=[FULL, (4, 1), (9, 9)], ready=2, pods=[*_pods(A, 5), *_pods(B, 6, 7, 8)]),
            ("pod-6", "n2"),
            id="the second kind",
        ),
    ],
)
def test_pods_that_can_only_land_on_a_starting_node(start: Start, found: Any) -> None:
    """The bound names the first pod without room on a ready node, and the first starting node with room."""
    assert start.found() == found


@pytest.mark.parametrize(
    ("waiting", "found"),
    [
        pytest.param(_pods(B, 1), True, id="2 of 9 taken"),
        pytest.param(_pods(B, 1, 2), True, id="4 of 9 taken"),
        pytest.param(_pods(B, 1, 2, 3), False, id="6 of 9 taken: 3 are left"),
        pytest.param(_pods(B, 1, 2, 6), True, id="one of them comes later"),
        pytest.param(_pods(C, 1), True, id="5 of 9 taken, of the other resource"),
        pytest.param(_pods(C, 1, 2), False, id="10 of 9 taken"),
    ],
)
@pytest.mark.parametrize("ready", [1, 2])
def test_waiting_pods_may_fill_a_starting_node(waiting: list[Any], found: bool, ready: int) -> None:
    """A pod of four CPUs lands on the starting node unless earlier pending pods may leave less than four."""
    rooms = [FULL, LATE] if ready == 1 else [FULL, FULL, LATE]
    start = Start(rooms=rooms, ready=ready, pods=_pods(A, 5), waiting=waiting)
    assert (start.found() is not None) == found


@pytest.mark.parametrize(
    ("rooms", "taken", "found"),
    [
        ([FULL, (4, 9), (5, 9)], 1, True),
        ([FULL, (4, 9), (5, 9)], 2, False),
        ([FULL, (4, 9), (9, 9)], 3, True),
        ([FULL, (4, 9), (9, 9)], 4, False),
        ([FULL, (4, 1), (5, 1)], 1, False),
        ([FULL, (4, 9), (4, 9)], 0, True),
    ],
)
def test_all_starting_nodes_must_be_filled(rooms: list[tuple[int, int]], taken: int, found: bool) -> None:
    """Every starting node must be filled to less than the pod needs; each resource counts separately."""
    waiting = [_entry(_Info(id=7, need=((0, 2), (1, 1))), place=at) for at in range(taken)]
    assert (Start(rooms=rooms, ready=1, pods=_pods(A, 9), waiting=waiting).found() is not None) == found


def test_a_resource_that_nobody_before_it_asks_for_stays_free() -> None:
    """A pending pod that requests another resource does not fill a starting node."""
    start = Start(rooms=[FULL, (4, 9)], ready=1, pods=_pods(A, 5), waiting=_pods(C, 1))
    assert start.found() == ("pod-5", "n1")


@pytest.mark.parametrize(
    ("counted", "place", "found"), [(False, 1, False), (False, 9, False), (True, 1, False), (True, 9, True)]
)
def test_pods_of_leaving_nodes_may_fill_a_starting_node(counted: bool, place: int, found: bool) -> None:
    """Pods of leaving nodes are placed first; under Karpenter's rules they follow the usual pod order."""
    leaving = _pods(A, place, place + 1)
    start = Start(rooms=[FULL, LATE], ready=1, pods=_pods(A, 5), leaving=leaving, counted=counted)
    assert (start.found() is not None) == found


@pytest.mark.parametrize(("limit", "found"), [(1, None), (2, ("pod-7", "n3"))])
def test_nothing_is_certain_with_many_ready_nodes(limit: int, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """If more ready nodes than the limit could take a pod, only the simulation decides."""
    monkeypatch.setattr(starting_module, "_READY_MAX", limit)
    start = Start(rooms=[FULL, (4, 1), (4, 1), LATE], ready=3, pods=_pods(A, 5, 6, 7))
    assert start.found() == found


def test_nodes_that_go_too_take_nothing() -> None:
    """A ready or starting node that is itself a candidate takes no pod."""
    start = Start(rooms=[FULL, (4, 1), LATE, LATE], ready=2, pods=_pods(A, 5))
    assert start.found(0) is None
    assert start.found(0, 1) == ("pod-5", "n2")
    assert start.found(0, 1, 2) == ("pod-5", "n3")
    assert start.found(0, 1, 2, 3) is None
    assert start.found(1) is None
