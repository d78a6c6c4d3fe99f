"""Is replacing nodes by several new ones worth it? The price gates, each for the sum (docs/rules.md#price and #value).

`price.judge_replace` judges one new node. With several, each may be launched as any of its remaining types, so every
combination must pass the gates: the money that may be spent beyond the cheapest types is shared equally. Sits in
decide, beside `price`, below the methods.
"""

from collections.abc import Sequence
from fractions import Fraction

from dovetail.decide.gates import price, price_refusals
from dovetail.decide.gates.price import Judgement, Source
from dovetail.decide.refusal import Refusal
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
    paid = price.paid_for(sources)
    required = price.required_of(sources, settings, replaced=True)
    from_spot = all(source.capacity_type == names.SPOT for source in sources)
    spot_to_spot = [from_spot and price.may_be_spot(node, settings) for node in new_nodes]
    if any(spot_to_spot) and not settings.spot_to_spot_consolidation:
        return price_refusals.spot_switched_off(paid)
    nodes = [_spot_only(node) if spot else node for node, spot in zip(new_nodes, spot_to_spot, strict=True)]
    total = _least_sum(nodes)
    if total is None or total >= paid:
        return price_refusals.no_cheaper(paid, total)
    if paid - total < required:
        return price_refusals.below_threshold(paid - total, paid, required, replaced=True, gate=price.gate_of(sources))
    spare = (paid - total - required) / len(nodes)  # an equal share for each
    kept: list[NewNode] = []
    for node, spot in zip(nodes, spot_to_spot, strict=True):
        affordable = _affordable(node, spare, free=required <= 0)
        judged = _narrowed(sources, node, affordable, settings, spot_to_spot=spot)
        if isinstance(judged, Refusal):
            return judged
        kept.append(judged)
    total = _least_sum(kept)
    assert total is not None  # the gates keep only what can be launched, and what keeps them whichever comes
    return price.approval(sources, tuple(kept), paid - total, settings)


def _spot_only(node: NewNode) -> NewNode:
    node = node.narrowed(names.SPOT)
    return node.with_types(node.offered_types())


def _least_sum(nodes: Sequence[NewNode]) -> Money | None:
    """Add up what the new nodes would cost at least for certain; None where one can't be launched."""
    total = 0
    for node in nodes:
        least = price.least_price(node)
        if least is None:
            return None
        total += least
    return total


def _affordable(node: NewNode, spare: Fraction, *, free: bool) -> list[InstanceType]:
    """Keep the types that cost at most `spare` more than the cheapest; `free`: less than `spare` more."""
    launches = {kind.name: node.worst_launch_price(kind) for kind in node.instance_types}
    amounts = {name: launch.amount for name, launch in launches.items() if launch is not None}
    most = min(amounts.values()) + spare
    fitting = {name for name, amount in amounts.items() if (amount < most if free else amount <= most)}
    return [kind for kind in node.instance_types if kind.name in fitting]


def _narrowed(
    sources: Sequence[Source], node: NewNode, kept: list[InstanceType], settings: Settings, *, spot_to_spot: bool
) -> NewNode | Refusal:
    """Apply minValues, the same-type gate and the spot gates to one new node (docs/rules.md#price, gates 4 and 5)."""
    refusal = price.refuse_few_values(node, kept, settings)
    if refusal:
        return refusal
    node = node.with_types(kept)
    if spot_to_spot and len(sources) == 1:
        return price.flexible_enough(node, settings, sources[0].price)
    if not spot_to_spot:
        node = price.spot_only_if_mixed(node, settings)
    return price.drop_same_type(sources, node, settings)
