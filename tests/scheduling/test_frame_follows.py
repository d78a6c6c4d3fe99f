"""A frame that follows an earlier one equals a frame that is compiled anew, whatever came, went or changed since."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail.lifecycle.store import Store
from dovetail.model.catalogue import Catalogue
from dovetail.model.objects import AnyObject, DaemonSet
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.scheduling import frame_inputs
from dovetail.scheduling.simulate import place, simulate
from dovetail.scheduling.snapshot import Snapshot
from tests.support.scheduling_build import KINDS, NOW, homes, near, node, pod, pool, spread

CATALOGUE = Catalogue(instance_types=KINDS)
_SLOW = {"key": "slow", "effect": "NoSchedule"}
_FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tainted": {"taints": [_SLOW]},
    "starting": {"started": False, "taints": [_SLOW], "startup_taints": [_SLOW]},
    "large": {"cpu": 16},
    "other zone": {"zone": "b"},
    "leaving": {"claim_meta": {"deletionTimestamp": "2026-05-01T11:00:00Z"}},
    "alone": {"pool": ""},
}
_RULES: list[dict[str, Any]] = [
    {},
    {"topologySpreadConstraints": [spread()]},
    {"affinity": near("podAntiAffinity")},
    {"tolerations": [{"key": "slow", "operator": "Exists"}]},
    {"owner": ("apps/v1", "DaemonSet")},
    {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
    {"ports": [{"containerPort": 80, "hostPort": 80}]},
]
_NODES = [f"n{number}" for number in range(8)]
_NODE = st.tuples(st.just("node"), st.sampled_from(_NODES), st.sampled_from([*_FORMS, "gone"]))
_POD = st.tuples(
    st.sampled_from([f"{app}-{number}" for app in "ab" for number in range(6)]),
    st.sampled_from([*_NODES, "", "gone"]),
    st.sampled_from(["0.5", "3"]),
    st.integers(0, len(_RULES) - 1),
)
_MARKS = st.tuples(st.just("marks"), st.lists(st.sampled_from(_NODES), max_size=3, unique=True))
_STEP = st.tuples(
    st.one_of(st.lists(st.one_of(_NODE, _POD, _MARKS), max_size=5), st.lists(_MARKS, max_size=1)), st.booleans()
)
"""What changes (`marks`: which nodes commands remove), and whether a simulation is asked for before the next step."""


def _put(store: Store, change: tuple[Any, ...]) -> None:
    if change[0] == "node":
        _, name, form = change
        store.vanish("Node", "", name)
        store.vanish("NodeClaim", "", f"claim-{name}")
        for item in node(name, **_FORMS[form]) if form != "gone" else ():
            store.observe(item)
        return
    name, where, cpu, rules = change
    store.vanish("Pod", "default", name)
    if where != "gone":
        store.observe(pod(name, cpu, on=where, **_RULES[rules]))


def _seen(snapshot: Snapshot) -> dict[str, object]:
    frame, columns = snapshot.frame, snapshot.frame.columns
    tolerations = pod("x", tolerations=[{"key": "slow", "operator": "Exists"}]).spec.tolerations
    masks = [columns.tolerated(some, raw=raw).tolist() for some in ((), tolerations) for raw in (False, True)]
    gone = [simulate(snapshot, [index]) for index in range(len(snapshot.states))]
    return {
        "nodes": [state.name for state in columns.states],
        "taints": masks,
        "names": [columns.renamed.tolist(), columns.unnamed.tolist()],
        "room": frame.room.tolist(),
        "open": [frame.open.tolist(), frame.staying.tolist(), frame.sound.tolist()],
        "daemons": frame.daemons.daemons,
        "ports": frame.ports,
        # Labels that a selector once used still divide pods into classes: only the sum over classes is the same.
        "places": sorted(place for at in frame.places.counted.values() for place in at.tolist()),
        "answers": [homes(place(snapshot)), *((homes(found), len(found.blocking)) for found in gone)],
    }


@example(
    [
        ([("a-0", "n0", "0.5", 0), ("a-1", "n0", "0.5", 1), ("b-0", "n0", "0.5", 0)], False),
        ([("a-1", "n0", "0.5", 0)], False),
    ],
    DOVETAIL,
    0,
)
@example(
    [
        ([("node", "n7", "other zone"), *((f"a-{at}", on, "0.5", 1) for at, on in enumerate(("n0", "n7", "")))], True),
        ([("marks", ["n0"])], True),
        ([("marks", ["n7"])], True),
    ],
    DOVETAIL,
    16,
)
@given(
    st.lists(_STEP, min_size=1, max_size=6),
    st.sampled_from([DOVETAIL, KARPENTER_1_15]),
    st.sampled_from([0, 16]),
)
def test_a_frame_that_follows_equals_a_new_one(
    steps: list[tuple[list[Any], bool]], settings: Settings, few: int
) -> None:
    """Room, taints, ports, topology and answers agree, also if nobody asked for the frames in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_inputs, "_FEW", few)
        _follow(steps, settings)


def _follow(steps: list[tuple[list[Any], bool]], settings: Settings) -> None:
    store = Store()
    fixed: list[AnyObject] = [
        pool(),
        msgspec.convert(
            {
                "metadata": {"name": "ds", "uid": "o"},
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}]},
                    }
                },
            },
            DaemonSet,
        ),
    ]
    for item in (*fixed, *(item for name in _NODES for item in node(name))):
        store.observe(item)
    seen: Snapshot | None = None
    for changes, asked in (([], True), *steps, ([], True)):
        for change in changes:
            if change[0] == "marks":
                settings = replace(settings, marked_for_deletion_nodes=tuple(sorted(change[1])))
            else:
                _put(store, change)
        seen = Snapshot(store.cluster(), CATALOGUE, settings, NOW, seen)
        if asked:
            found, fresh = _seen(seen), _seen(Snapshot(store.cluster(), CATALOGUE, settings, NOW))
            assert found == fresh


def test_a_frame_in_which_others_leave_shares_the_rest() -> None:
    """If only the nodes that leave are others, room and columns are those of the frame before."""
    store = Store()
    for item in (pool(), *node("n1"), *node("n2"), pod("a-1", on="n1")):
        store.observe(item)
    before = Snapshot(store.cluster(), CATALOGUE, DOVETAIL, NOW)
    staying = before.frame.staying.tolist()
    marked = replace(DOVETAIL, marked_for_deletion_nodes=("n1",), nominated_nodes=("n2",))
    after = Snapshot(store.cluster(), CATALOGUE, marked, NOW, before)
    assert after.frame.room is before.frame.room
    assert after.frame.columns is before.frame.columns
    assert (staying, after.frame.staying.tolist()) == ([True, True], [False, True])
    assert after.frame.open.tolist() == [False, True]
    other = Snapshot(store.cluster(), CATALOGUE, replace(marked, ties=3), NOW, after)
    assert other.frame.room is not after.frame.room


def test_room_of_unchanged_nodes_is_not_summed_up_again() -> None:
    """Of two nodes, only the one with a new pod is looked at for the next frame."""
    store = Store()
    for item in (pool(), *node("n1"), *node("n2"), *node("n3"), *node("n4"), pod("a-1", on="n1")):
        store.observe(item)
    before = Snapshot(store.cluster(), CATALOGUE, DOVETAIL, NOW)
    room = before.frame.room.copy()
    store.observe(pod("a-2", on="n2"))
    after = Snapshot(store.cluster(), CATALOGUE, DOVETAIL, NOW, before)
    assert after._last is not None
    same = after._last.places(after.rows.codes)[1]
    assert same.tolist() == [0, -1, 2, 3]
    assert np.array_equal(after.frame.room[same >= 0], room[same[same >= 0]])
