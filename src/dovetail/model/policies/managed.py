"""Which NodePools Dovetail manages: those labelled `dovetail.dev/manage: "true"`, or named in the settings.

See docs/rules.md#karpenter. Sits in the model, for the controller, the planner and the commands that need no
controller.
"""

from collections.abc import Iterable, Mapping

from dovetail.model import names
from dovetail.model.objects import NodePool
from dovetail.model.settings import Settings


def is_labelled(labels: Mapping[str, str]) -> bool:
    """Return whether the labels of a NodePool make it a managed one."""
    return labels.get(names.MANAGE) == "true"


def is_managed(pool: NodePool, settings: Settings) -> bool:
    """Return whether Dovetail manages a NodePool."""
    return is_labelled(pool.metadata.labels) or pool.metadata.name in settings.pools


def managed_pools(pools: Iterable[NodePool], settings: Settings) -> tuple[str, ...]:
    """Return the names of the NodePools that Dovetail manages, in the order given."""
    return tuple(pool.metadata.name for pool in pools if is_managed(pool, settings))
