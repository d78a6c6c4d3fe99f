"""When is it certain that the pods of a node find room elsewhere? At the limits; `test_bounds_in_motion` has crowds."""

from typing import Any

import pytest

from dovetail.decide.refusals.plenty import Plenty
from dovetail.model.settings import KARPENTER_1_15
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.simulate import simulate
from tests.support.scheduling_build import near, node, pod, pool, snapshot, spread


def _is_certain(*objects: Any, closed: tuple[str, ...] = (), **more: Any) -> bool:
    """Return the answer for the node `n0`; where it is yes, a simulation agrees."""
    seen = snapshot(pool(), *objects, **more)
    shut = tuple(seen.index[name] for name in closed)
    certain = Plenty(seen, shut).for_pods_of(seen.index["n0"])
    result = simulate(seen, [seen.index["n0"]], SimulationOptions(closed=frozenset(shut)))
    assert not certain or (not result.own_new_nodes(count_all=False) and not result.blocking)
    return certain


def _nodes(count: int, cpu: int = 4, **more: Any) -> list[Any]:
    return [item for at in range(count) for item in node(f"n{at}", cpu, **more)]


def test_the_node_itself_is_no_room() -> None:
    """A node that has room for its own pod once more does not count."""
    assert not _is_certain(*_nodes(1), pod("p", on="n0"))
    assert _is_certain(*_nodes(2), pod("p", on="n0"))


def test_every_other_pod_may_take_a_node() -> None:
    """Each other pod of the node, and each that waits, may go to another node."""
    assert not _is_certain(*_nodes(2), pod("p", on="n0"), pod("w"))
    assert _is_certain(*_nodes(3), pod("p", on="n0"), pod("w"))
    assert not _is_certain(*_nodes(2), pod("p", on="n0"), pod("q", on="n0"))
    assert _is_certain(*_nodes(3), pod("p", on="n0"), pod("q", on="n0"))


def test_only_nodes_that_take_the_pod_count() -> None:
    """Closed nodes, nodes that are starting and nodes without room don't take it."""
    mine = pod("p", "2", on="n0")
    assert _is_certain(*_nodes(2), mine)
    assert not _is_certain(*_nodes(2), mine, closed=("n1",))
    assert not _is_certain(*_nodes(1), *node("n1", 4, started=False), mine)
    assert not _is_certain(*_nodes(2), mine, pod("full", "3", on="n1"))


@pytest.mark.parametrize("zones", ["ab", "aa"])
def test_every_zone_that_a_pod_may_have_to_spread_to_must_have_room(zones: str) -> None:
    """One zone is always open to the pod, but which one is up to the others."""
    wish = {"topologySpreadConstraints": [spread(app="p")]}
    objects = [item for at, zone in enumerate(("a", *zones)) for item in node(f"n{at}", 4, zone=zone)]
    assert not _is_certain(*objects, pod("p", on="n0", **wish))
    more = [item for zone in "ab" for at in range(2) for item in node(f"{zone}{at}", 4, zone=zone)]
    assert _is_certain(*objects, *more, pod("p", on="n0", **wish))


@pytest.mark.parametrize(
    "wish",
    [
        {"topologySpreadConstraints": [spread(app="p", minDomains=3)]},
        {"topologySpreadConstraints": [spread(app="p"), spread("topology.kubernetes.io/region", app="p")]},
        {"affinity": near("podAffinity", app="p")},
        {"affinity": near("podAntiAffinity", "topology.kubernetes.io/zone", app="p")},
        {"ports": [{"containerPort": 80, "hostPort": 80}]},
        {"resourceClaims": [{"name": "gpu"}]},
    ],
)
def test_other_rules_are_left_to_a_simulation(wish: dict[str, Any]) -> None:
    """Nothing is certain of a pod whose other rules look at more than one node, nor of ports and devices."""
    assert not _is_certain(*_nodes(9), pod("p", on="n0", **wish))


def test_a_rule_about_host_names_looks_at_one_node() -> None:
    """A pod that keeps others of its kind from its node finds one where there is none of them."""
    wish = {"affinity": near("podAntiAffinity", app="p")}
    assert _is_certain(*_nodes(3), pod("p-0", on="n0", **wish), pod("p-1", on="n1", **wish), *node("n9", 4))
    assert not _is_certain(*_nodes(2), pod("p-0", on="n0", **wish), pod("p-1", on="n1", **wish))


def test_by_karpenters_rules_nothing_is_certain() -> None:
    """New nodes for pods of others count there."""
    assert not _is_certain(*_nodes(3), pod("p", on="n0"), settings=KARPENTER_1_15)
