"""Which budgets keep Karpenter from disrupting a pool at all, so that its nodes need no hold."""

from typing import Any

import msgspec
import pytest

from dovetail.model.objects import NodePool
from dovetail.model.policies.quiet import is_quiet, is_quiet_tree

ALL = ["Empty", "Drifted", "Underutilized"]
OURS = {"dovetail.dev/disruption": '{"budgets": [{"nodes": "10%"}]}'}


@pytest.mark.parametrize(
    ("budgets", "closed"),
    [
        ([{"nodes": "0", "reasons": ALL}], True),
        ([{"nodes": "0"}], True),
        ([{"nodes": "0%"}], True),
        ([{"nodes": "0", "reasons": []}], True),
        ([{"nodes": "10%"}, {"nodes": "0", "reasons": ["Empty"]}, {"nodes": "0", "reasons": ALL[1:]}], True),
        ([{"nodes": "0", "topologyKey": ""}], True),
        ([], False),
        (None, False),
        ([{"nodes": "1"}], False),
        ([{"nodes": "10%"}], False),
        ([{}], False),
        ([{"nodes": "0", "reasons": ALL[:2]}], False),
        ([{"nodes": "0", "schedule": "@daily", "duration": "8h"}], False),
        ([{"nodes": "0", "topologyKey": "topology.kubernetes.io/zone"}], False),
        ([{"nodes": "0", "per": "1h"}], False),
        ([{"nodes": False}], False),
        ([{"nodes": "0", "reasons": "Empty"}], False),
        ([{"nodes": "0", "reasons": [["Empty"], 7]}], False),
        ("0", False),
        ([7], False),
    ],
)
def test_what_closes_a_pool(budgets: Any, closed: bool) -> None:
    """Only budgets of 0 nodes without any limit in time or place, for all three reasons of Karpenter, do."""
    spec = {"disruption": {} if budgets is None else {"budgets": budgets}}
    for annotations in (OURS, {}):
        tree = {"metadata": {"name": "web", "annotations": annotations}, "spec": spec}
        assert is_quiet_tree(tree) is (closed and annotations == OURS)
        try:
            pool = msgspec.convert(tree, NodePool, strict=False)
        except msgspec.ValidationError:
            continue
        assert is_quiet(pool.spec.disruption, annotations) is (closed and annotations == OURS)


@pytest.mark.parametrize("tree", [{}, {"spec": None}, {"spec": []}, {"spec": {"disruption": None}}, {"metadata": 7}])
def test_pools_without_a_policy_are_open(tree: Any) -> None:
    """A NodePool that says nothing, or can't be read, is held."""
    assert not is_quiet_tree(tree)
