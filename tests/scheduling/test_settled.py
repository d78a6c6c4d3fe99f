"""Planned pods of leaving nodes are placed once for all simulations, with the same result as each time."""

from typing import Any

import pytest

from dovetail.model.command import Placement, Replacement
from dovetail.scheduling import simulate as module
from dovetail.scheduling.simulate import simulate
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.under_way import UnderWay
from tests.support.scheduling_build import homes, near, node, pod, pool, snapshot, spread

LEAVING = {"meta": {"deletionTimestamp": "2026-05-01T11:00:00Z"}}
PLAN = UnderWay(
    launches=(
        Replacement(node_pool="p", instance_types=("c.4",), requirements=(), requests={}, pods=("default/l-0",)),
    ),
    placements=(
        Placement(node="n1", pods=("default/l-1", "default/l-2", "default/l-3")),
        Placement(node="n2", pods=("default/l-4", "default/l-5")),
        Placement(node="gone", pods=("default/l-6",)),
    ),
)


def _cluster(rules: dict[str, Any], limits: dict[str, str]) -> Snapshot:
    """Build four nodes with some pods each, a leaving node with many pods, and a pending pod."""
    objects: list[Any] = [pool(limits=limits), *node("old", **LEAVING)]
    for at in range(1, 5):
        objects += node(f"n{at}", zone="ab"[at % 2])
        objects += [pod(f"a-{at}{i}", "1.5", on=f"n{at}", **(rules if i else {})) for i in range(3)]
    objects += [pod(f"l-{i}", "1", on="old") for i in range(8)]
    return snapshot(*objects, pod("w", "3"))


def _answers(seen: Snapshot, under_way: UnderWay) -> list[object]:
    found: list[object] = []
    for chosen in ([], [0], [1], [2], [3], [0, 1], [2, 3], [4]):
        result = simulate(seen, chosen, under_way=under_way)
        launched = [(new.pool, tuple(kind.name for kind in new.instance_types)) for new in result.new_nodes]
        found.append((chosen, homes(result), launched, [entry.pod.metadata.name for entry in result.unplaced]))
    return found


@pytest.mark.parametrize("limits", [{}, {"cpu": "48"}], ids=["no limits", "limits"])
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"topologySpreadConstraints": [spread()]},
        {"topologySpreadConstraints": [spread("kubernetes.io/hostname", app="l")]},
        {"topologySpreadConstraints": [spread(app="l")]},
        {"affinity": near("podAntiAffinity", app="l")},
    ],
    ids=["plain", "spread", "spread by those that come over hosts", "over zones", "away from those that come"],
)
def test_placed_once_is_as_placed_each_time(
    rules: dict[str, Any], limits: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans for staying, leaving, deleted and new nodes give the same result when placed once."""
    once = _answers(_cluster(rules, limits), PLAN)
    monkeypatch.setattr(module, "_FEW", 10**6)
    assert once == _answers(_cluster(rules, limits), PLAN)


def test_another_plan_is_placed_anew() -> None:
    """The placements of one plan are not reused for another plan on the same snapshot."""
    seen = _cluster({}, {})
    before = homes(simulate(seen, [2], under_way=PLAN))
    after = homes(simulate(seen, [2], under_way=UnderWay(placements=(Placement(node="n4", pods=("default/l-1",)),))))
    assert (before["l-1"], after["l-1"]) == ("n1", "n4")
    assert homes(simulate(seen, [2], under_way=PLAN)) == before
