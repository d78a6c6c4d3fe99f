import gzip
import json
from typing import Any

import msgspec

from dovetail.api.pool_hash import POOL_HASH_VERSION, pool_hash
from dovetail.model.objects import NodePool
from tests.paths import SHARED, needs_shared
from tests.support.crd_rules import pool, template


def hashed(**spec: Any) -> str:
    """Hash a pool with these fields in its template's spec."""
    return pool_hash(msgspec.convert(pool(template=template(**spec)), NodePool))


@needs_shared
def test_karpenters_hashes_are_reproduced() -> None:
    """The very numbers that Karpenter writes into its annotation."""
    units = json.loads(gzip.decompress((SHARED / "golden" / "units.json.gz").read_bytes()))
    asked = [unit for unit in units if unit["question"]["kind"] == "nodePoolHash"]
    assert asked
    for unit in asked:
        assert pool_hash(msgspec.convert(unit["question"]["nodePool"], NodePool)) == unit["answer"]["hash"]
        assert unit["answer"]["version"] == POOL_HASH_VERSION


def test_a_known_number() -> None:
    """One that Karpenter v1.15 gave, without any file at hand: labels a=b, 720h, a KWOK class."""
    tree = {
        "kind": "NodePool",
        "spec": {
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "expireAfter": "720h",
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                },
            }
        },
    }
    assert pool_hash(msgspec.convert(tree, NodePool)) == "8546743665302634964"


def test_order_of_taints_and_requirements_dont_count() -> None:
    """Lists of taints are sets, requirements are judged by other means."""
    one, two = {"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}
    assert hashed(taints=[one, two]) == hashed(taints=[two, one])
    assert hashed(requirements=[]) == hashed()


def test_what_makes_a_node_differ_counts() -> None:
    """Taints, startup taints, class, expiry and the grace period."""
    taint = [{"key": "a", "effect": "NoSchedule"}]
    other = {"group": "karpenter.test", "kind": "TestNodeClass", "name": "other"}
    variants = [
        hashed(),
        hashed(taints=taint),
        hashed(startupTaints=taint),
        hashed(expireAfter="24h"),
        hashed(expireAfter="Never"),
        hashed(terminationGracePeriod="0s"),
        hashed(terminationGracePeriod="1h"),
        hashed(nodeClassRef=other),
    ]
    assert len(set(variants)) == len(variants)
    assert hashed(expireAfter="720h") == hashed(expireAfter="43200m") == hashed()
