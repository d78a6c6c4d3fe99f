"""Rows that follow the objects of a cluster equal rows that are read anew, whatever came, went or changed."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.cluster import Cluster, cluster_of
from dovetail.model.objects import Node, NodeClaim, NodeClaimStatus, NodeSpec, ObjectMeta
from dovetail.model.settings import Settings
from dovetail.scheduling.launch.machines import Resources
from dovetail.scheduling.pods.bindings import NodeNames
from dovetail.scheduling.room import Sizes
from dovetail.scheduling.rows import UNCHANGED, NodeRows, RowRegistries, read_rows

LABELS = {
    "": {},
    "unlabelled": {names.NODEPOOL: "web"},
    "registered": {names.NODEPOOL: "web", names.INSTANCE_TYPE: "m5.large", names.REGISTERED_LABEL: "true"},
    "initialized": {
        names.NODEPOOL: "web",
        names.INSTANCE_TYPE: "m5.large",
        names.REGISTERED_LABEL: "true",
        names.INITIALIZED_LABEL: "true",
    },
}
_IDS = st.sampled_from(["", "p1", "p2", "p3"])
_NAMES = st.sampled_from("abcd")
_CHANGE = st.tuples(st.sampled_from(["node", "claim"]), _NAMES, _IDS, st.sampled_from([*LABELS, "gone"]))
"""A Node or NodeClaim, its provider id (some are used twice), and how far it is."""
_Objects = dict[tuple[str, str], Node | NodeClaim]
_ROUNDS = st.lists(st.lists(_CHANGE, max_size=4), min_size=1, max_size=6)


def _object(kind: str, name: str, provider_id: str, state: str) -> Node | NodeClaim:
    if kind == "node":
        return Node(metadata=ObjectMeta(name=name, labels=LABELS[state]), spec=NodeSpec(provider_id=provider_id))
    return NodeClaim(metadata=ObjectMeta(name=name), status=NodeClaimStatus(provider_id=provider_id))


def _columns(rows: NodeRows) -> tuple[object, ...]:
    return (
        [(id(state.node), id(state.claim), state.name, state.initialized) for state in rows.states],
        rows.names,
        rows.codes,
        rows.sizes,
        rows.leaving,
        rows.stays,
        rows.has_node,
        dict(rows.index),
        rows.has_namesakes,
        dict(rows.name_of_claim),
        rows.initialized,
    )


def _apart() -> Callable[[_Objects], Cluster]:
    """Make clusters that don't know each other."""
    return lambda here: cluster_of(here.values())


def _listed() -> Callable[[_Objects], Cluster]:
    """Make clusters whose listings know what changed."""
    store, known = Store(), _Objects()

    def cluster(here: _Objects) -> Cluster:
        for kind, name in known.keys() - here.keys():
            store.vanish("Node" if kind == "node" else "NodeClaim", "", name)
        for key, item in here.items():
            if known.get(key) is not item:
                store.observe(item)
        known.clear()
        known.update(here)
        return store.cluster()

    return cluster


@given(_ROUNDS, st.sampled_from([_apart, _listed]))
def test_rows_that_follow_equal_rows_that_are_new(
    rounds: list[list[tuple[str, str, str, str]]],
    source: Callable[[], Callable[[_Objects], Cluster]],
) -> None:
    """All columns agree, and the edits lead from the columns of the last round to these."""
    registries, settings = RowRegistries(Resources(), NodeNames(), Sizes()), Settings()
    cluster_of_these, here = source(), _Objects()
    rows: NodeRows | None = None
    was: tuple[object, ...] = ()
    for changes in rounds:
        for kind, name, provider_id, state in changes:
            here.pop((kind, name), None)
            if state != "gone":
                here[kind, name] = _object(kind, name, provider_id, state)
        cluster, before = cluster_of_these(here), rows
        rows = read_rows(cluster, settings, registries, before)
        assert _columns(rows) == _columns(read_rows(cluster, settings, registries, None))
        assert before is None or _columns(before) == was
        was = _columns(rows)
        edits = UNCHANGED if rows is before else rows.edits
        if before is not None and edits is not None:
            states = list(before.states)
            edits.apply(states, [rows.states[place] for place in edits.new])
            assert list(map(id, states)) == list(map(id, rows.states))


@given(st.lists(_CHANGE, max_size=4), st.lists(_CHANGE, max_size=4))
def test_rows_can_be_followed_twice(
    first: list[tuple[str, str, str, str]], second: list[tuple[str, str, str, str]]
) -> None:
    """Two clusters that both come after the same rows get the rows of their own objects."""
    registries, settings = RowRegistries(Resources(), NodeNames(), Sizes()), Settings()
    here = {("node", name): _object("node", name, f"p{name}", "initialized") for name in "abcd"}
    rows = read_rows(cluster_of(here.values()), settings, registries, None)
    for changes in (first, second):
        after = dict(here)
        for kind, name, provider_id, state in changes:
            after.pop((kind, name), None)
            if state != "gone":
                after[kind, name] = _object(kind, name, provider_id, state)
        cluster = cluster_of(after.values())
        found = read_rows(cluster, settings, registries, rows)
        assert _columns(found) == _columns(read_rows(cluster, settings, registries, None))
        assert found.index == {name: place for place, name in enumerate(found.names)}
        assert ("x" in found.index, "a" in found.index) == (False, "a" in found.names)


@given(st.sets(st.sampled_from("bdfhj"), max_size=3), st.sets(st.sampled_from("acegik"), max_size=3))
def test_rows_are_found_where_they_are(gone: set[str], new: set[str]) -> None:
    """Whichever rows come and go at once, before, behind or between others, each is found at its place."""
    registries, settings = RowRegistries(Resources(), NodeNames(), Sizes()), Settings()
    made = {name: _object("node", name, f"p{name}", "initialized") for name in "abcdefghijk"}
    rows = read_rows(cluster_of([made[name] for name in "bdfhj"]), settings, registries, None)
    here = sorted({*"bdfhj"} - gone | new)
    rows = read_rows(cluster_of([made[name] for name in here]), settings, registries, rows)
    assert rows.index == {name: place for place, name in enumerate(here)}


def test_rows_without_a_change_stay_the_same() -> None:
    """A cluster with the same nodes and claims gets the very rows of the one before."""
    registries, settings = RowRegistries(Resources(), NodeNames(), Sizes()), Settings()
    cluster = cluster_of([_object("node", "a", "p1", "initialized"), _object("claim", "c", "p1", "")])
    rows = read_rows(cluster, settings, registries, None)
    assert read_rows(cluster_of([*cluster.nodes, *cluster.node_claims]), settings, registries, rows) is rows


def test_marked_nodes_leave() -> None:
    """A name that the settings mark leaves, whether one row has it or two."""
    registries, settings = RowRegistries(Resources(), NodeNames(), Sizes()), Settings()
    one, two = _object("node", "a", "", ""), _object("node", "b", "", "")
    rows = read_rows(cluster_of([one, two, _object("claim", "a", "p1", "")]), settings, registries, None)
    assert rows.has_namesakes
    reasons, staying = rows.staying(("a", "nobody"))
    assert [bool(why) for why in reasons] == [True, False, True]
    assert staying.tolist() == [False, True, False]
    rows = read_rows(cluster_of([one, two]), settings, registries, None)
    reasons, staying = rows.staying(("a", "nobody"))
    assert [bool(why) for why in reasons] == [True, False]
    assert staying.tolist() == [False, True]
    assert rows.staying(())[1].tolist() == [True, True]
