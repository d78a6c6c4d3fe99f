"""How Karpenter's features change a cluster before anything is placed: prices, default constraints, virtual pods.

One value per snapshot: which gates count as on, the catalogue with overlays, each pod's effective spec, and the virtual
pods of buffers. What has not changed is reused from the previous snapshot. Decides nothing. Sits in scheduling, below
the snapshot.
"""

import msgspec

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.karpenter import FeatureGate, Features, features_of
from dovetail.model.objects import Pod
from dovetail.model.settings import Settings
from dovetail.scheduling.buffers import virtual_pods
from dovetail.scheduling.launch.overlays import Overlaid, overlaid
from dovetail.scheduling.pods.default_spread import DefaultSpread


class Surroundings(msgspec.Struct, frozen=True, eq=False):
    """See the module. `given`: the catalogue before overlays; `mark`: the inputs of the overlays."""

    features: Features
    given: Catalogue
    overlaid: Overlaid
    mark: tuple[object, ...]
    spread: DefaultSpread
    virtual: tuple[Pod, ...]

    @property
    def catalogue(self) -> Catalogue:
        """Return the effective catalogue."""
        return self.overlaid.catalogue


def surroundings_of(
    cluster: Cluster, catalogue: Catalogue, settings: Settings, previous: Surroundings | None
) -> Surroundings:
    """Return the effects of the features on a cluster; unchanged parts are the same objects as before."""
    features = features_of(settings.karpenter, cluster)
    overlays = cluster.node_overlays if features.has(FeatureGate.NODE_OVERLAY) else ()
    mark: tuple[object, ...] = ()
    if overlays:
        seen = tuple((pool.metadata.name, pool.spec.template.metadata.labels) for pool in cluster.node_pools)
        mark = (tuple((item.metadata.name, item.spec, item.status.conditions) for item in overlays), seen)
    if previous is not None and previous.given is catalogue and previous.mark == mark:
        priced = previous.overlaid
    else:
        priced = overlaid(catalogue, overlays, cluster.node_pools)
    spread = DefaultSpread(settings.karpenter.spread, cluster)
    if previous is not None and previous.spread.same_as(spread):
        spread = previous.spread
    return Surroundings(
        features=features,
        given=catalogue,
        overlaid=priced,
        mark=mark,
        spread=spread,
        virtual=virtual_pods(cluster) if features.has(FeatureGate.CAPACITY_BUFFER) else (),
    )
