"""Which NodeClaims Karpenter is going to find drifted because of their NodePool: by its hash, or by its requirements.

Karpenter v1 compares the annotations `karpenter.sh/nodepool-hash` of both, and the NodeClaim's labels with the
NodePool's requirements. So it can be told before Karpenter has looked. Drift of a NodeClass can't. Sits in api; pure.
"""

from functools import lru_cache

import msgspec

from dovetail.api.pool_hash import POOL_HASH_VERSION, pool_hash
from dovetail.model.labels.requirements import OperatorError, Requirement, Requirements
from dovetail.model.names import INSTANCE_TYPE, NODEPOOL_HASH, NODEPOOL_HASH_VERSION
from dovetail.model.objects import NodeClaim, NodeClaimTemplate, NodePool, NodePoolSpec


def is_judged(pool: NodePool) -> bool:
    """Return whether Karpenter has seen the NodePool's template as it is: the hash that it wrote is that of now.

    A hash of another version can't be checked, and counts as current.
    """
    annotations = pool.metadata.annotations
    if NODEPOOL_HASH not in annotations or annotations.get(NODEPOOL_HASH_VERSION) != POOL_HASH_VERSION:
        return True
    try:
        return annotations[NODEPOOL_HASH] == _hash_of(msgspec.json.encode(pool.spec.template))
    except ValueError:
        return True  # a template that can't be read has no hash


@lru_cache(maxsize=256)
def _hash_of(template: bytes) -> str:
    return pool_hash(NodePool(spec=NodePoolSpec(template=msgspec.json.decode(template, type=NodeClaimTemplate))))


def will_drift(pool: NodePool, claim: NodeClaim) -> bool:
    """Return whether Karpenter finds a NodeClaim drifted when it looks next, by its NodePool alone."""
    of_pool, of_claim = pool.metadata.annotations, claim.metadata.annotations
    hashes = of_pool.get(NODEPOOL_HASH), of_claim.get(NODEPOOL_HASH)
    same_version = of_pool.get(NODEPOOL_HASH_VERSION) == of_claim.get(NODEPOOL_HASH_VERSION)
    if same_version and None not in hashes and hashes[0] != hashes[1]:
        return True
    if INSTANCE_TYPE not in claim.metadata.labels:
        return False  # it has not been launched, and lacks the labels of its machine
    try:
        return unmet_requirement(pool, claim) is not None
    except (OperatorError, ValueError):
        return False


def unmet_requirement(pool: NodePool, claim: NodeClaim) -> str | None:
    """Return the key of a requirement of the pool that the claim's labels do not meet; None: they meet all.

    A label that the claim lacks meets only requirements that don't need it.
    """
    labels = claim.metadata.labels
    wanted = Requirements.from_spec(pool.spec.template.spec.requirements)
    for one in wanted:
        if not _meets(one, labels.get(one.key)):
            return one.key
    return None


def _meets(wanted: Requirement, value: str | None) -> bool:
    return wanted.lenient() if value is None else wanted.has(value)
