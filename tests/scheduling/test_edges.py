"""Empty clusters, and answers that must not depend on earlier queries."""

from typing import Any

import msgspec
import pytest

from dovetail.model.objects import DaemonSet
from dovetail.scheduling.simulate import place, simulate
from tests.support.scheduling_build import homes, near, node, pod, pool, snapshot, spread, unplaced, without


def requesting(memory: str) -> dict[str, Any]:
    """Return a container that requests an amount of memory."""
    return {"name": "c", "resources": {"requests": {"memory": memory}}}


def daemon(name: str, container: dict[str, Any]) -> DaemonSet:
    """Return a DaemonSet of one container."""
    template = {"spec": {"containers": [container]}}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"template": template}}, DaemonSet)


def test_nothing_at_all() -> None:
    """A cluster without nodes, pools, types and pods places nothing and raises nothing."""
    found = place(snapshot(kinds=()))
    assert (found.existing, found.new, found.unplaced) == ((), (), ())


def test_no_pool_and_no_node() -> None:
    """A pod without any pool or node is refused with that reason."""
    assert "no pool can launch a node" in unplaced(place(snapshot(pod("a"), kinds=())))["a"]


def test_a_pool_without_types() -> None:
    """With an empty catalogue pods still go to existing nodes."""
    assert homes(place(snapshot(pool(), node("n1"), pod("a"), kinds=()))) == {"a": "n1"}


def test_an_empty_node_goes_without_a_trace() -> None:
    """Removing a node without pods places nothing."""
    result = without(snapshot(pool(), node("n1"), node("n2")), "n1")
    assert (result.placements, result.new_nodes, result.blocking) == ((), (), ())


def test_simulations_leave_the_snapshot_as_it_was() -> None:
    """The same query has the same answer, whatever was simulated in between."""
    rules = {"topologySpreadConstraints": [spread()], "affinity": near("podAntiAffinity")}
    pods = [pod(f"a-{i}", "2", on=f"n{i % 3}", **rules) for i in range(3)]
    seen = snapshot(pool(), *(node(f"n{i}", zone="ab"[i % 2]) for i in range(4)), *pods, pod("w", **rules))
    first = [homes(simulate(seen, [i])) for i in range(4)]
    simulate(seen, [0, 1, 2])
    place(seen)
    assert [homes(simulate(seen, [i])) for i in range(4)] == first


def test_pending_and_leaving_pods_can_be_left_out() -> None:
    """Pending pods are placed too, unless they are excluded."""
    seen = snapshot(pool(), node("n1"), node("n2"), pod("a", on="n1"), pod("w"))
    assert set(homes(without(seen, "n1"))) == {"a", "w"}
    assert set(homes(without(seen, "n1", include_pending=False))) == {"a"}


def test_first_fit_looks_past_full_nodes_again_and_again() -> None:
    """Many pods of several kinds fill the nodes in order, without gaps."""
    nodes = [node(f"n{i:02d}", 4) for i in range(10)]
    large, small = [pod(f"l-{i}", "3") for i in range(10)], [pod(f"s-{i}", "1") for i in range(10)]
    found = homes(place(snapshot(pool(limits={"cpu": "0"}), *nodes, *large, *small)))
    assert [found[f"l-{i}"] for i in range(10)] == [f"n{i:02d}" for i in range(10)]
    assert [found[f"s-{i}"] for i in range(10)] == [f"n{i:02d}" for i in range(10)]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [requesting("9E"), requesting("9E")]},
        {"containers": [requesting("9E")], "overhead": {"memory": "9E"}},
        {
            "containers": [requesting("1")],
            "initContainers": [{**requesting("9E"), "restartPolicy": "Always"}, requesting("9E")],
        },
    ],
    ids=["containers", "overhead", "init containers"],
)
def test_requests_whose_sum_is_beyond_64_bits(spec: dict[str, Any]) -> None:
    """A pod that no machine could hold finds no place; the others do."""
    found = place(snapshot(pool(), node("n1"), pod("whale", **spec), pod("a")))
    assert set(unplaced(found)) == {"whale"}
    assert homes(found) == {"a": "n1"}


def test_a_node_is_full_whatever_the_sum_of_its_pods() -> None:
    """Huge pods that were bound past the scheduler leave no room, also where their sum is beyond 64 bits."""
    whales = [pod(f"whale-{i}", on="n1", containers=[requesting("4Ei")]) for i in range(4)]
    daemons = [daemon(f"d-{i}", requesting("4Ei")) for i in range(4)]
    for huge in (whales, daemons):
        assert homes(place(snapshot(node("n1"), *huge, pod("a"), kinds=()))) == {}
