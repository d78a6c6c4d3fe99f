"""How clouds and Karpenter's features change a cluster before anything is placed: types, prices, virtual pods.

One value per snapshot: which gates count as on, the catalogue as the pools see it, each pod's effective spec, and the
virtual pods of buffers. What has not changed is reused from the previous snapshot. Decides nothing. Sits in scheduling,
below the snapshot.
"""

from collections.abc import Mapping

import msgspec

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.coming_size import GrownSize
from dovetail.model.commitments import Commitment
from dovetail.model.karpenter import FeatureGate, Features, features_of
from dovetail.model.objects import Pod
from dovetail.model.settings import Settings
from dovetail.scheduling.buffers import virtual_pods
from dovetail.scheduling.launch.overlays import Overlaid, overlaid
from dovetail.scheduling.launch.paid_prices import PaidPrices, changes_prices
from dovetail.scheduling.launch.paid_types import hopeful
from dovetail.scheduling.launch.pool_types import PLAIN, dialects
from dovetail.scheduling.pods.coming_sizes import ComingSizes
from dovetail.scheduling.pods.default_spread import DefaultSpread


class Surroundings(msgspec.Struct, frozen=True, eq=False):
    """The effects on one cluster. `given`: the unchanged catalogue. `view_key`: what its view depends on."""

    features: Features
    given: Catalogue
    overlaid: Overlaid
    view_key: tuple[object, ...]
    committed: tuple[Commitment, ...]
    spread: DefaultSpread
    virtual: tuple[Pod, ...]
    coming: ComingSizes

    catalogue: Catalogue
    """The effective catalogue. Under commitments, types that they might cover cost the least that they could."""

    @property
    def paid(self) -> Catalogue:
        """Return the catalogue with the prices that are paid."""
        return self.overlaid.paid


def surroundings_of(
    cluster: Cluster,
    catalogue: Catalogue,
    settings: Settings,
    previous: Surroundings | None,
    grown: Mapping[str, GrownSize] | None = None,
) -> Surroundings:
    """Return the effects of the features on a cluster; unchanged parts are the same objects as before."""
    features = features_of(settings.karpenter, cluster)
    overlays = cluster.node_overlays if features.has(FeatureGate.NODE_OVERLAY) else ()
    view_key: tuple[object, ...] = ()
    spoken = dialects(cluster.node_pools)
    if any(dialect != PLAIN for dialect in spoken):
        view_key = tuple(
            (pool.metadata.name, dialect) for pool, dialect in zip(cluster.node_pools, spoken, strict=True)
        )
    if overlays:
        seen = tuple((pool.metadata.name, pool.spec.template.metadata.labels) for pool in cluster.node_pools)
        view_key = (
            *view_key,
            tuple((item.metadata.name, item.spec, item.status.conditions) for item in overlays),
            seen,
        )
    prices: PaidPrices | None = None
    if changes_prices(settings):
        prices = PaidPrices(cluster, catalogue, settings)
        classes = tuple((pool.metadata.name, pool.spec.template.spec.node_class_ref) for pool in cluster.node_pools)
        view_key = (*view_key, settings.discount, settings.surcharge, prices.home, classes)
    if previous is not None and previous.given is catalogue and previous.view_key == view_key:
        priced = previous.overlaid
    else:
        priced = overlaid(catalogue, overlays, cluster.node_pools, prices)
    spread = DefaultSpread(settings.karpenter.spread, cluster, resizes_count=settings.rules.resizes_count)
    if previous is not None and previous.spread.same_as(spread):
        spread = previous.spread
    coming = ComingSizes(cluster, grown or {}) if settings.rules.resizes_moved else ComingSizes(Cluster(), {})
    if previous is not None and previous.coming.same_as(coming):
        coming = previous.coming
    return Surroundings(
        features=features,
        given=catalogue,
        overlaid=priced,
        view_key=view_key,
        committed=settings.commitments,
        catalogue=_effective(priced, settings, previous),
        spread=spread,
        coming=coming,
        virtual=virtual_pods(cluster) if features.has(FeatureGate.CAPACITY_BUFFER) else (),
    )


def _effective(priced: Overlaid, settings: Settings, previous: Surroundings | None) -> Catalogue:
    """Return the catalogue that decisions use."""
    if settings.rules.list_prices:
        return priced.catalogue
    if not settings.commitments:
        return priced.paid
    if previous is not None and previous.overlaid is priced and previous.committed == settings.commitments:
        return previous.catalogue
    return hopeful(priced.paid, settings.commitments)
