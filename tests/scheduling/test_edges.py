"""Clusters with nothing in them, and answers that must not depend on what was asked before."""

from dovetail.scheduling.place import place
from dovetail.scheduling.simulate import simulate
from tests.support.scheduling_build import homes, near, node, pod, pool, snapshot, spread, unplaced, without


def test_nothing_at_all() -> None:
    """No nodes, no pools, no types, no pods: nothing to place and nothing breaks."""
    found = place(snapshot(kinds=()))
    assert (found.existing, found.new, found.unplaced) == ((), (), ())


def test_no_pool_and_no_node() -> None:
    """A pod without any pool or node is told so."""
    assert "no pool can launch a node" in unplaced(place(snapshot(pod("a"), kinds=())))["a"]


def test_a_pool_without_types() -> None:
    """Pods still go to nodes that exist where the catalogue is empty."""
    assert homes(place(snapshot(pool(), node("n1"), pod("a"), kinds=()))) == {"a": "n1"}


def test_an_empty_node_goes_without_a_trace() -> None:
    """Taking away a node without pods places nothing."""
    result = without(snapshot(pool(), node("n1"), node("n2")), "n1")
    assert (result.placements, result.new_nodes, result.blocking) == ((), (), ())


def test_simulations_leave_the_snapshot_as_it_was() -> None:
    """The same question has the same answer, whatever was asked in between."""
    rules = {"topologySpreadConstraints": [spread()], "affinity": near("podAntiAffinity")}
    pods = [pod(f"a-{i}", "2", on=f"n{i % 3}", **rules) for i in range(3)]
    seen = snapshot(pool(), *(node(f"n{i}", zone="ab"[i % 2]) for i in range(4)), *pods, pod("w", **rules))
    first = [homes(simulate(seen, [i])) for i in range(4)]
    simulate(seen, [0, 1, 2])
    place(seen)
    assert [homes(simulate(seen, [i])) for i in range(4)] == first


def test_pending_and_leaving_pods_can_be_left_out() -> None:
    """What waits anyway is placed too, unless it is asked not to be."""
    seen = snapshot(pool(), node("n1"), node("n2"), pod("a", on="n1"), pod("w"))
    assert set(homes(without(seen, "n1"))) == {"a", "w"}
    assert set(homes(without(seen, "n1", include_pending=False))) == {"a"}


def test_first_fit_looks_past_full_nodes_again_and_again() -> None:
    """Many pods of several kinds fill node after node, in order, without leaving holes."""
    nodes = [node(f"n{i:02d}", 4) for i in range(10)]
    large, small = [pod(f"l-{i}", "3") for i in range(10)], [pod(f"s-{i}", "1") for i in range(10)]
    found = homes(place(snapshot(pool(limits={"cpu": "0"}), *nodes, *large, *small)))
    assert [found[f"l-{i}"] for i in range(10)] == [f"n{i:02d}" for i in range(10)]
    assert [found[f"s-{i}"] for i in range(10)] == [f"n{i:02d}" for i in range(10)]
