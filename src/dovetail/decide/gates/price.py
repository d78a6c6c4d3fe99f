"""Is a cost action worth it? The price gates of docs/rules.md#price, in order, on the result of the simulation.

savings-threshold: Design Options 1, Recommendation ("Where this fits in the consolidation pipeline"), Appendix A. Given
the nodes to remove and the one new node, it keeps the instance types that may be launched, or says at which gate none
was left and with which numbers. Money is exact in the profile `dovetail`; the profile `karpenter-1.15` compares the
floats that Karpenter compares, in its order. With several new nodes (docs/rules.md#value) each may be launched as any
of its remaining types, so every combination must pass: the money that may be spent beyond the cheapest types is shared
equally. Knows nothing of budgets, timers or other candidates. Sits in decide, below the methods.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import msgspec
from msgspec.structs import replace

from dovetail.decide.refusal import Refusal, below_threshold, no_cheaper, not_less, spot_switched_off
from dovetail.decide.words import dollars
from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.money import Money
from dovetail.model.settings import MinValuesPolicy, Settings
from dovetail.model.verdicts import Gate
from dovetail.scheduling.result import LaunchPrice, NewNode

_LAST: Final = Fraction(1, 1000)
UNPAYABLE: Final = Fraction(10**30)
"""More than any move saves."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates need to know about a node to remove."""

    name: str
    instance_type: str
    capacity_type: str
    price: Money
    price_float: float
    offering_price: float | None = None
    required: Fraction = Fraction(0)
    wasted: Money = 0
    least: Fraction = Fraction(0)
    asked_waste: Fraction | None = None
    gate: Gate = Gate.SAVINGS_THRESHOLD
    """The gate that says that it saves too little."""
    restarts: Fraction = Fraction(0)
    """What its restarts are worth."""
    launch: Fraction = Fraction(0)
    launch_later: Fraction = Fraction(0)
    """The share of its price that a replacement must earn in each hour, if nodes go at once and if they go later."""
    together: Money | None = None
    """What all nodes of the command cost together, if that is not the sum of their prices (commitments)."""
    kept_price: Money | None = None
    """What this node costs if it is kept and the others go, if that is not its price."""


class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is worth it: its new nodes, what it saves and what it had to save."""

    new_nodes: tuple[NewNode, ...] = ()
    savings: Money
    savings_float: float
    required: Fraction = Fraction(0)
    by_waste: bool = False
    restarts: Fraction = Fraction(0)
    """What the restarts are worth, if the pools price them (docs/rules.md#one-price)."""

    @property
    def value(self) -> Fraction:
        """Return what it saves beyond what it has to (docs/rules.md#value); moves approved only by waste come last."""
        return self.savings * _LAST if self.by_waste else self.savings - self.required


Judgement = Approved | Refusal


def paid_for(sources: Sequence[Source]) -> Money:
    """Return what nodes cost together."""
    if sources and sources[0].together is not None:
        return sources[0].together
    return sum(source.price for source in sources)


def judge_new_nodes(sources: Sequence[Source], new_nodes: Sequence[NewNode], settings: Settings) -> Judgement:
    """Judge replacing nodes by as many new ones as the simulation asked for."""
    if not new_nodes:
        return judge_delete(sources, settings)
    if len(new_nodes) == 1:
        return judge_replace(sources, new_nodes[0], settings)
    return _judge_several(sources, new_nodes, settings)


def judge_delete(sources: Sequence[Source], settings: Settings) -> Judgement:
    """Judge removing nodes without a replacement: the whole price is saved.

    Design: savings-threshold, Consolidate-delete behavior.
    """
    price = paid_for(sources)
    required = required_of(sources, settings)
    if price < required:
        return below_threshold(price, price, required, replaced=False, gate=gate_of(sources))
    return approval(sources, (), price, settings)


def judge_replace(sources: Sequence[Source], new_node: NewNode, settings: Settings) -> Judgement:
    """Judge replacing nodes by one (docs/rules.md#price, gates 1 to 5). The types of `new_node` are sorted by price."""
    price = paid_for(sources)
    required = required_of(sources, settings, replaced=True)
    spot_to_spot = all(s.capacity_type == names.SPOT for s in sources) and may_be_spot(new_node, settings)
    if spot_to_spot:
        if not settings.spot_to_spot_consolidation:
            return spot_switched_off(price)
        new_node = _spot_only(new_node)
    gates = (
        _FloatGates(sources, settings)
        if settings.rules.float_prices
        else _ExactGates(price, required, gate_of(sources))
    )
    kept = gates.cheaper(new_node)
    refusal = refuse_few_values(new_node, kept, settings) or gates.refuse(new_node, kept)
    if refusal:
        return refusal
    several = len(sources) > 1
    judged = _narrowed(sources, new_node.with_types(kept), settings, spot_to_spot=spot_to_spot, same_type=several)
    return judged if isinstance(judged, Refusal) else _approve(sources, judged, settings)


def _judge_several(sources: Sequence[Source], new_nodes: Sequence[NewNode], settings: Settings) -> Judgement:
    paid = paid_for(sources)
    required = required_of(sources, settings, replaced=True)
    from_spot = all(source.capacity_type == names.SPOT for source in sources)
    spot_to_spot = [from_spot and may_be_spot(node, settings) for node in new_nodes]
    if any(spot_to_spot) and not settings.spot_to_spot_consolidation:
        return spot_switched_off(paid)
    nodes = [_spot_only(node) if spot else node for node, spot in zip(new_nodes, spot_to_spot, strict=True)]
    total = _least_sum(nodes)
    if total is None or total >= paid:
        return no_cheaper(paid, total)
    if paid - total < required:
        return below_threshold(paid - total, paid, required, replaced=True, gate=gate_of(sources))
    spare = (paid - total - required) / len(nodes)  # an equal share for each
    kept: list[NewNode] = []
    for node, spot in zip(nodes, spot_to_spot, strict=True):
        affordable = _affordable(node, spare, free=required <= 0)
        judged = refuse_few_values(node, affordable, settings) or _narrowed(
            sources, node.with_types(affordable), settings, spot_to_spot=spot, same_type=True
        )
        if isinstance(judged, Refusal):
            return judged
        kept.append(judged)
    total = _least_sum(kept)
    assert total is not None  # the gates keep only what can be launched, and what keeps them whichever comes
    return approval(sources, tuple(kept), paid - total, settings)


def refuse_no_cheaper(price: Money, price_float: float, launch: LaunchPrice, settings: Settings) -> Refusal | None:
    """Refuse one node whose pods need a machine of at least a given price, if that is not less than the node's."""
    hopeless = launch.as_float >= price_float if settings.rules.float_prices else launch.amount >= price
    return not_less(price, launch.amount) if hopeless else None


def refuse_at_most(sources: Sequence[Source], settings: Settings) -> Refusal | None:
    """Refuse nodes that save too little even in the best case, without a replacement."""
    judged = judge_delete(sources, settings)
    return replace(judged, simulated=False) if isinstance(judged, Refusal) else None


def refuse_one_at_most(price: Money, required: tuple[int, int], launch: LaunchPrice | None) -> Refusal | None:
    """Refuse one node that saves too little even in the best case: no replacement, or one of the given price.

    What it has to save is given as a ratio.
    """
    amount, unit = required
    savings = price if launch is None or price * unit < amount else price - launch.amount
    if savings * unit >= amount:
        return None
    replaced = savings != price
    return below_threshold(savings, price, Fraction(amount, unit), replaced=replaced, simulated=False)


def required_of(sources: Sequence[Source], settings: Settings, *, replaced: bool = False) -> Fraction:
    """Sum threshold x disruption cost over the nodes, each by its own pool's threshold (docs/rules.md#price, gate 3).

    `replaced`: new nodes are launched for them, which may have a price too (docs/rules.md#one-price).
    """
    if not settings.rules.savings_threshold:
        return Fraction(0)
    if has_wasted_enough(sources):
        return least_of(sources, replaced=replaced)
    return _at_once(sources, replaced=replaced)


def _at_once(sources: Sequence[Source], *, replaced: bool) -> Fraction:
    bar = sum((source.required for source in sources), Fraction(0))
    return _with_launch(bar, max(source.launch for source in sources), sources) if replaced else bar


def least_of(sources: Sequence[Source], *, replaced: bool = False) -> Fraction:
    """Return what nodes must save even after they have wasted enough (setting wasteFloor); at most their threshold."""
    bar = sum((min(source.least, source.required) for source in sources), Fraction(0))
    return _with_launch(bar, max(source.launch_later for source in sources), sources) if replaced else bar


def _with_launch(bar: Fraction, share: Fraction, sources: Sequence[Source]) -> Fraction:
    """Add the price of launches to a bar: the new nodes must also earn `share` of their price in each hour.

    s >= bar + share x (c - s), where c is what the nodes cost and s what is saved, solved for s.
    """
    return (bar + share * paid_for(sources)) / (1 + share) if share else bar


def gate_of(sources: Sequence[Source]) -> Gate:
    """Return the gate that refuses nodes which save too little."""
    return sources[0].gate if sources else Gate.SAVINGS_THRESHOLD


def has_wasted_enough(sources: Sequence[Source]) -> bool:
    """Return whether nodes together have wasted as much as their disruption is worth (docs/rules.md#waste)."""
    asked = Fraction(0)
    for source in sources:
        if source.asked_waste is None:
            return False
        asked += source.asked_waste
    return sum(source.wasted for source in sources) >= asked > 0


def approval(sources: Sequence[Source], new_nodes: tuple[NewNode, ...], savings: Money, settings: Settings) -> Approved:
    """Approve a move: because it saves what its disruption requires, or because of what was wasted."""
    asks = settings.rules.savings_threshold
    required = _at_once(sources, replaced=bool(new_nodes)) if asks else Fraction(0)
    by_waste = savings < required
    return Approved(
        new_nodes=new_nodes,
        savings=savings,
        savings_float=float_sum(sources) - sum(map(_cheapest_float, new_nodes)),
        required=least_of(sources, replaced=bool(new_nodes)) if by_waste else required,
        by_waste=by_waste,
        restarts=sum((source.restarts for source in sources), Fraction(0)),
    )


def float_sum(sources: Sequence[Source]) -> float:
    """Add prices in Karpenter's float arithmetic."""
    total = 0.0
    for source in sources:
        total += source.price_float
    return total


def may_be_spot(new_node: NewNode, settings: Settings) -> bool:
    """Return whether a spot machine could be launched."""
    if settings.rules.spot_by_requirements:
        return new_node.allows(names.CAPACITY_TYPE, names.SPOT)
    return names.SPOT in new_node.capacity_types


class _ExactGates:
    """Gates 2 and 3 with exact money."""

    def __init__(self, price: Money, required: Fraction, gate: Gate) -> None:
        self.price, self.required, self.gate = price, required, gate

    def cheaper(self, new_node: NewNode) -> list[InstanceType]:
        """Keep the types that save something, and enough (savings-threshold, Modified algorithm)."""
        kept = []
        for kind in new_node.instance_types:
            launch = new_node.worst_launch_price(kind)
            if launch is not None and launch.amount < self.price and self.price - launch.amount >= self.required:
                kept.append(kind)
        return kept

    def refuse(self, new_node: NewNode, kept: Sequence[InstanceType]) -> Refusal | None:
        """Return whether the price or the threshold left no type."""
        if kept:
            return None
        launches = [new_node.worst_launch_price(kind) for kind in new_node.instance_types]
        amounts = [launch.amount for launch in launches if launch is not None]
        cheapest = min(amounts, default=None)
        if cheapest is None or cheapest >= self.price:
            return no_cheaper(self.price, cheapest)
        return below_threshold(
            self.price - cheapest,
            self.price,
            self.required,
            replaced=True,
            cheaper=sum(1 for a in amounts if a < self.price),
            gate=self.gate,
        )


class _FloatGates:
    """Gate 2 in Karpenter's float arithmetic; it has no gate 3."""

    def __init__(self, sources: Sequence[Source], settings: Settings) -> None:
        unknown = settings.rules.unpriced_node_frees_batch and any(s.offering_price is None for s in sources)
        self.price = 0.0 if unknown else float_sum(sources)
        self.exact = paid_for(sources)

    def cheaper(self, new_node: NewNode) -> list[InstanceType]:
        """Keep the types whose worst launch price is below the total price of the nodes."""
        return _cheaper_than(new_node, self.price)

    def refuse(self, new_node: NewNode, kept: Sequence[InstanceType]) -> Refusal | None:
        """Return the refusal that nothing is cheaper, if that is so."""
        if kept:
            return None
        return no_cheaper(self.exact, least_price(new_node))


def _cheaper_than(new_node: NewNode, price: float) -> list[InstanceType]:
    kept = []
    for kind in new_node.instance_types:
        launch = new_node.worst_launch_price(kind)
        if launch is not None and launch.as_float < price:
            kept.append(kind)
    return kept


def refuse_few_values(new_node: NewNode, kept: Sequence[InstanceType], settings: Settings) -> Refusal | None:
    """Check minValues again on the remaining types, as Karpenter does after each price filter; best effort passes."""
    if not new_node.has_min_values:
        return None
    lenient = settings.min_values_policy is MinValuesPolicy.BEST_EFFORT
    if lenient and not settings.rules.strict_min_values:
        return None
    check = new_node.check_min_values(kept)
    if check.met:
        return None
    wanted = {r.key: r.min_values for r in new_node.requirements if r.min_values is not None}
    key = min(check.unmet)
    return Refusal(
        gate=Gate.MIN_VALUES,
        why=f"The {len(kept)} cheaper instance types have {check.unmet[key]} values of {key}, "
        f"and the pool's minValues asks for {wanted[key]}.",
        figures={"key": key, "values": check.unmet[key], "minValues": wanted[key], "types": len(kept)},
    )


def flexible_enough(new_node: NewNode, settings: Settings, price: Money) -> NewNode | Refusal:
    """Check that there are enough types, and keep the cheapest of them (savings-threshold, Spot interaction)."""
    least = max(1, settings.spot_minimum_types)
    count = len(new_node.instance_types)
    if count < least:
        return Refusal(
            gate=Gate.SPOT_FLEXIBILITY,
            why=f"{count} instance types are left for a spot node, {least} are the least "
            "(fewer would race to the cheapest).",
            figures={"types": count, "minimumTypes": least, "price": dollars(price, bare=True)},
        )
    if new_node.has_min_values:
        least = max(least, new_node.check_min_values().needed)
    return new_node.with_types(new_node.instance_types[:least])


def spot_only_if_mixed(new_node: NewNode, settings: Settings) -> NewNode:
    """Restrict to spot if both are possible: no pricier on-demand node is launched (docs/rules.md#price, gate 5)."""
    if settings.rules.spot_by_requirements:
        mixed = all(new_node.allows(names.CAPACITY_TYPE, kind) for kind in (names.SPOT, names.ON_DEMAND))
        return new_node.narrowed(names.SPOT) if mixed else new_node
    return _spot_only(new_node) if {names.SPOT, names.ON_DEMAND} <= set(new_node.capacity_types) else new_node


def drop_same_type(sources: Sequence[Source], new_node: NewNode, settings: Settings) -> NewNode | Refusal:
    """Drop types for which keeping one of the nodes would be as good (docs/rules.md#price, gate 4).

    If a removed node's type is among the remaining types, every type priced at or above the cheapest such node is
    dropped.
    """
    offered = {kind.name for kind in new_node.instance_types}
    same = [source for source in sources if source.instance_type in offered]
    if settings.rules.float_prices:
        return _drop_same_type_float(sources, same, new_node, settings)
    if not same:
        return new_node
    ceiling = min(source.price if source.kept_price is None else source.kept_price for source in same)
    kept = []
    for kind in new_node.instance_types:
        launch = new_node.worst_launch_price(kind)
        if launch is not None and launch.amount < ceiling:
            kept.append(kind)
    if not kept:
        return _same_type(same)
    return refuse_few_values(new_node, kept, settings) or new_node.with_types(kept)


def _drop_same_type_float(
    sources: Sequence[Source], same: Sequence[Source], new_node: NewNode, settings: Settings
) -> NewNode | Refusal:
    """Drop the same types as Karpenter does: by compatible offerings only; a type without one counts as 0."""
    prices: dict[str, float] = {}
    for source in same:
        if source.offering_price is not None:
            known = prices.get(source.instance_type)
            prices[source.instance_type] = source.offering_price if known is None else min(known, source.offering_price)
    ceiling = min((prices.get(source.instance_type, 0.0) for source in same), default=float("inf"))
    kept = _cheaper_than(new_node, ceiling)
    refusal = refuse_few_values(new_node, kept, settings)
    if refusal is None and not kept:
        refusal = _same_type(same) if same else no_cheaper(paid_for(sources), None)
    return refusal or new_node.with_types(kept)


def _same_type(same: Sequence[Source]) -> Refusal:
    first = min(same, key=lambda s: (s.price, s.name))
    price = dollars(first.price)
    return Refusal(
        gate=Gate.SAME_TYPE,
        why=f"Keeping {first.name} and deleting the others would do as well: no type is cheaper than its {price}.",
        figures={"node": first.name, "price": dollars(first.price, bare=True)},
    )


def _approve(sources: Sequence[Source], new_node: NewNode, settings: Settings) -> Judgement:
    """Compute the savings: never overstated by default; Karpenter's estimate in its profile."""
    price = paid_for(sources)
    if settings.rules.hopeful_savings:
        cheapest = new_node.cheapest_launch_price(new_node.instance_types[0])
        savings = price - (cheapest.amount if cheapest else 0)
    else:
        least = least_price(new_node)
        assert least is not None  # the gates keep only what can be launched
        savings = price - least
    return approval(sources, (new_node,), savings, settings)


def least_price(node: NewNode) -> Money | None:
    """Return the minimum price of a new node; None if nothing can be launched."""
    launches = [node.worst_launch_price(kind) for kind in node.instance_types]
    return min((launch.amount for launch in launches if launch is not None), default=None)


def _cheapest_float(node: NewNode) -> float:
    cheapest = node.cheapest_launch_price(node.instance_types[0])
    return cheapest.as_float if cheapest else 0.0


def _spot_only(node: NewNode) -> NewNode:
    node = node.narrowed(names.SPOT)
    return node.with_types(node.offered_types())


def _least_sum(nodes: Sequence[NewNode]) -> Money | None:
    """Add up what the new nodes would cost at least for certain; None where one can't be launched."""
    total = 0
    for node in nodes:
        least = least_price(node)
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
    sources: Sequence[Source], node: NewNode, settings: Settings, *, spot_to_spot: bool, same_type: bool
) -> NewNode | Refusal:
    """Apply the spot gates and, if asked, the same-type gate to one new node (docs/rules.md#price, gates 4 and 5)."""
    if not spot_to_spot:
        node = spot_only_if_mixed(node, settings)
    elif len(sources) == 1:
        return flexible_enough(node, settings, sources[0].price)
    return drop_same_type(sources, node, settings) if same_type else node
