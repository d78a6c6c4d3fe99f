"""Is replacing nodes by several new ones worth it? The price gates of spec section 8, each for the sum (section 21).

`price.judge_replace` judges one new node. With several, each may be launched as any of its remaining types, so every
combination must pass the gates: the money that may be spent beyond the cheapest types is shared equally. Sits in
decide, beside `price`, below the methods.
"""

from collections.abc import Sequence
from fractions import Fraction

from dovetail.decide.gates import price, price_refusals
from dovetail.decide.gates.price import Judgement, Source
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.money import Money
from dovetail.model.settings import Settings
from dovetail.scheduling.result import NewNode


def judge_new_nodes(sources: Sequence[Source], new_nodes: Sequence[NewNode], settings: Settings) -> Judgement:
    """Judge replacing nodes by as many new ones as the simulation asked for."""
    if not new_nodes:
        return price.judge_delete(sources, settings)
    if len(new_nodes) == 1:
        return price.judge_replace(sources, new_nodes[0], settings)
    return _judge_several(sources, new_nodes, settings)


def _judge_several(sources: Sequence[Source], new_nodes: Sequence[NewNode], settings: Settings) -> Judgement:
    paid = sum(source.price for source in sources)
    required = price.required_of(sources, settings)
    from_spot = all(source.capacity_type == names.SPOT for source in sources)
    spot_to_spot = [from_spot and price.may_be_spot(node, settings) for node in new_nodes]
    if any(spot_to_spot) and not settings.spot_to_spot_consolidation:
        return price_refusals.spot_switched_off(paid)
    nodes = [_spot_only(node) if spot else node for node, spot in zip(new_nodes, spot_to_spot, strict=True)]
    refusal = _refuse_sum(nodes, paid, required)
    if refusal:
        return refusal
    spare = _Spare(nodes, paid, required)
    kept: list[NewNode] = []
    for node, spot in zip(nodes, spot_to_spot, strict=True):
        judged = _narrowed(sources, node, spare.affordable(node), settings, spot_to_spot=spot)
        if isinstance(judged, Refusal):
            return judged
        kept.append(judged)
    refusal = _refuse_sum(kept, paid, required)
    if refusal:
        return refusal
    savings = paid - sum(least_price(node) or 0 for node in kept)
    estimate = price.float_sum(sources) - sum(_cheapest_float(node) for node in kept)
    return price.approval(sources, tuple(kept), savings, estimate, settings)


def _spot_only(node: NewNode) -> NewNode:
    node = node.narrowed(names.SPOT)
    return node.with_types(node.offered_types())


def least_price(node: NewNode) -> Money | None:
    """Return the minimum price of a new node; None if nothing can be launched."""
    launches = [node.worst_launch_price(kind) for kind in node.instance_types]
    return min((launch.amount for launch in launches if launch is not None), default=None)


def _refuse_sum(nodes: Sequence[NewNode], paid: Money, required: Fraction) -> Refusal | None:
    """Apply gates 2 and 3 to the sum of the cheapest types."""
    total = 0
    for node in nodes:
        least = least_price(node)
        if least is None:
            return price_refusals.no_cheaper(paid, None)
        total += least
    if total >= paid:
        return price_refusals.no_cheaper(paid, total)
    if paid - total < required:
        return price_refusals.below_threshold(paid - total, paid, required, replaced=True)
    return None


class _Spare:
    """What may be spent beyond the cheapest types, an equal share for each new node."""

    def __init__(self, nodes: Sequence[NewNode], paid: Money, required: Fraction) -> None:
        self._count = len(nodes)
        self._rest = paid - required - sum(filter(None, map(least_price, nodes)))
        self._free = required <= 0

    def affordable(self, node: NewNode) -> list[InstanceType]:
        """Keep the types within a node's share; if no savings are required, the sum must still be less than now."""
        least = least_price(node) or 0
        kept = []
        for kind in node.instance_types:
            launch = node.worst_launch_price(kind)
            if launch is None:
                continue
            beyond = (launch.amount - least) * self._count
            if beyond == 0 or beyond < self._rest or (beyond == self._rest and not self._free):
                kept.append(kind)
        return kept


def _narrowed(
    sources: Sequence[Source], node: NewNode, kept: list[InstanceType], settings: Settings, *, spot_to_spot: bool
) -> NewNode | Refusal:
    """Apply minValues, the same-type gate and the spot gates to one of the new nodes (section 8, gates 4 and 5)."""
    refusal = price.refuse_few_values(node, kept, settings)
    if refusal:
        return refusal
    node = node.with_types(kept)
    if not spot_to_spot:
        node = price.spot_only_if_mixed(node, settings)
    elif len(sources) == 1:
        paid = sum(source.price for source in sources)
        judged = price.flexible_enough(node, settings, paid)
        if isinstance(judged, Refusal):
            return judged
        node = judged
    return price.drop_same_type(sources, node, settings) if len(sources) > 1 else node


def _cheapest_float(node: NewNode) -> float:
    cheapest = node.cheapest_launch_price(node.instance_types[0]) if node.instance_types else None
    return cheapest.as_float if cheapest else 0.0
