"""Prices that are really paid, before commitments: on-demand prices after a negotiated discount, and surcharges.

A discount is taken off the on-demand prices of a cloud; a surcharge comes on top of every price of the pools with a
kind of NodeClass. Changes what each pool sees of a catalogue (`scheduling.launch.pool_types`). What commitments cover
depends on the other nodes and is no price (`decide.billing`). Sits in scheduling, below the surroundings.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Final

from dovetail.api.clouds.detect import cloud_of_labels, home_of
from dovetail.model import names
from dovetail.model.catalogue import Catalogue, InstanceType, Offering
from dovetail.model.cluster import Cluster
from dovetail.model.money import UNIT, nearest
from dovetail.model.objects import NodePool
from dovetail.model.settings import Settings

_GROUPS: Final = {
    "karpenter.k8s.aws": "aws",
    "eks.amazonaws.com": "aws",
    "karpenter.azure.com": "azure",
    "karpenter.k8s.gcp": "gcp",
}
_NONE: Final = Fraction(0)
_NODES_READ: Final = 200
"""How many nodes are read for the cloud of pools whose NodeClass doesn't say it."""


def changes_prices(settings: Settings) -> bool:
    """Return whether the settings name a discount or a surcharge."""
    return bool(settings.discount or settings.surcharge)


def home_cloud(cluster: Cluster, catalogue: Catalogue) -> str:
    """Return the cloud of pools whose NodeClass doesn't say it: that of the nodes, else that of the catalogue."""
    labels = (entry.key for kind in catalogue.instance_types[:1] for entry in kind.requirements)
    return home_of(islice(cluster.nodes, _NODES_READ)).cloud or cloud_of_labels(labels)


def unplaced_discounts(cluster: Cluster, catalogue: Catalogue, settings: Settings) -> Iterator[str]:
    """Yield a sentence if nothing says to which pools a discount belongs."""
    groups = {pool.spec.template.spec.node_class_ref.group for pool in cluster.node_pools}
    if not settings.discount or not groups.difference(_GROUPS) or home_cloud(cluster, catalogue):
        return
    named = [cloud for cloud, _ in settings.discount]
    lacking = f"no node, NodeClass or price ({catalogue.source or 'the catalogue'}) says which cloud this is"
    if len(named) == 1:
        yield f"discount.{named[0]}: {lacking}; it is taken to be {named[0]}"
    else:
        yield f"discount: {lacking}, so none of {', '.join(named)} is taken off; name one cloud"


class PaidPrices:
    """The prices of types as pools pay them; types that are alike are changed once.

    `home`: the cloud of pools whose NodeClass doesn't say it. If nothing says it, a discount for one cloud is for this.
    """

    def __init__(self, cluster: Cluster, catalogue: Catalogue, settings: Settings) -> None:
        self._off: Mapping[str, Fraction] = dict(settings.discount)
        self._on_top: Mapping[str, Fraction] = {entry.node_class_kind: entry.share for entry in settings.surcharge}
        self.home = home_cloud(cluster, catalogue) if self._off else ""
        if not self.home and len(self._off) == 1:
            (self.home,) = self._off
        self._made: dict[tuple[int, Fraction, Fraction], InstanceType] = {}

    def seen_by(self, pool: NodePool | None, kinds: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
        """Return types with the prices that a pool pays; None: nodes without a pool."""
        reference = None if pool is None else pool.spec.template.spec.node_class_ref
        cloud = self.home if reference is None else _GROUPS.get(reference.group, self.home)
        off = self._off.get(cloud, _NONE)
        on_top = _NONE if reference is None else self._on_top.get(reference.kind, _NONE)
        return tuple(self._changed(kind, off, on_top) for kind in kinds)

    def _changed(self, kind: InstanceType, off: Fraction, on_top: Fraction) -> InstanceType:
        if not off and not on_top:
            return kind
        found = self._made.get((id(kind), off, on_top))
        if found is None:
            offers = tuple(_paid(offer, off, on_top) for offer in kind.offerings)
            found = self._made[id(kind), off, on_top] = replace(kind, offerings=offers)
        return found


def _paid(offer: Offering, off: Fraction, on_top: Fraction) -> Offering:
    base = nearest(offer.price * (1 - off)) if offer.capacity_type == names.ON_DEMAND else offer.price
    extra = nearest(base * on_top)
    if base + extra == offer.price and not extra:
        return offer
    return replace(offer, price=base + extra, price_float=(base + extra) / UNIT, extra=extra)
