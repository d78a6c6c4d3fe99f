"""What nodes waste: what removing them would save, and how much waste allows removal for small savings.

See docs/rules.md#waste. The engine keeps what was wasted (`lifecycle.waste`) and passes it to the next question; this
module computes what removing each node would save now, ignoring the threshold, and when that is enough; nodes that
can't go alone may save something together. Bounded: in a large cluster only the nodes with the highest savings per
disruption are considered. Sits in decide, beside the methods.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from itertools import compress
from typing import Final

import numpy as np
from msgspec.structs import replace

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import balanced
from dovetail.decide.gates.price import judge_new_nodes
from dovetail.decide.gates.restart_price import AskedEarnings
from dovetail.decide.methods.moves import NOTHING_NEEDED, Possible, refuse_back_off, refuse_unplaced
from dovetail.decide.refusal import NotWastedEnough, NotWorthRestarts, Refusal, TooLittle
from dovetail.decide.refusals.launches import Least
from dovetail.decide.refusals.plenty import Plenty
from dovetail.decide.scene import Scene
from dovetail.decide.search.dual import SLACK, ValueBound, worths
from dovetail.decide.work import Work
from dovetail.model.money import Money
from dovetail.model.timing.duration import HOUR, SECOND, later
from dovetail.model.verdicts import Gate
from dovetail.model.waste import Wasted
from dovetail.scheduling.result import NewNode

LOOK_AGAIN: Final = 10 * SECOND
"""How soon a round looks again, at the earliest, where only time is missing."""
LOOKED_AT_MAX: Final = 64
"""For how many nodes a round computes what they waste."""
_TOGETHER: Final = (2, 3, 4, 6, 8)
"""How many of the nodes that can't go alone are tried together."""
_POOLS_MAX: Final = 2
_STARTING: Final = -1
"""The savings of nodes together, if their pods would go to a machine that is starting: known once it runs."""
_TRIED_MAX: Final = 8
_CERTAIN: Final = 1e-6
"""A value, as a share of the price scale, that no rounding error makes of nothing."""


def could_save(work: Work) -> Mapping[str, Money | None]:
    """Return what removing each node would save per hour now; None: it can't go. Others are not considered.

    Nor are nodes that may go together once a machine that is starting runs: what they wasted stands until then. Where
    machines start all the time, few nodes can go at any moment, and a set would never waste enough.
    """
    found = work.could_save
    if found is None:
        found = work.could_save = _could_save(work)
    return found


def _could_save(work: Work) -> Mapping[str, Money | None]:
    scene = work.scene
    if not scene.settings.rules.waste:
        return {}
    policies = scene.policies.values()
    if all(policy.disruption_price is None and policy.restart_price is None for policy in policies):
        return {}  # most clusters: nothing else of this round needs the order of all nodes
    sources = scene.cost_sources
    priced = _most_saved_first(scene, list(compress(sources, scene.haste.go_by_waste(sources))))
    chosen, plenty = priced[:LOOKED_AT_MAX], Plenty(scene.snapshot, scene.closed)
    saves = _one_saves_for_certain(work, chosen, plenty) or ValueBound(scene, priced, free=True).at_most() > SLACK
    if not saves:  # a packed cluster: a simulation would not find more
        return dict.fromkeys((facts.name for facts in chosen), None)
    bounds = scene.bounds.alone(chosen)
    alone = {facts.name: _savings(work, facts, found, plenty) for facts, found in zip(chosen, bounds, strict=True)}
    together = _together(work, [facts for facts in chosen if alone[facts.name] is None])
    found = {**alone, **together}
    return {name: rate for name, rate in found.items() if rate != _STARTING}


def _together(work: Work, nodes: Sequence[NodeFacts]) -> Mapping[str, Money]:
    """Return what nodes that can't go alone would save if several of a pool went at once: each by its price.

    Three half-full machines may fit on one that costs less than two of them.
    """
    pools: dict[str, list[NodeFacts]] = {}
    for facts in nodes:
        if not facts.surges and not work.scene.haste.waits_for_jobs(facts):  # pods of Jobs end by themselves
            pools.setdefault(facts.pool_name, []).append(facts)
    found: dict[str, Money] = {}
    for members in list(pools.values())[:_POOLS_MAX]:
        best: tuple[Money, Sequence[NodeFacts]] = 0, ()
        for size in dict.fromkeys(min(size, len(members)) for size in _TOGETHER):
            saved = _savings_of_all(work, members[:size]) if size > 1 else None
            if saved == _STARTING:
                found |= dict.fromkeys((facts.name for facts in members[:size]), _STARTING)
            elif saved is not None and saved > best[0]:
                best = saved, members[:size]
        paid = sum(facts.price for facts in best[1])
        found |= {facts.name: best[0] * facts.price // paid for facts in best[1]}
    return found


def _savings_of_all(work: Work, nodes: Sequence[NodeFacts]) -> Money | None:
    """Return what removing all of some nodes would save per hour now; None: they can't go."""
    scene = work.scene
    least, launch = scene.bounds.together(nodes)
    if least > scene.new_nodes_max or (launch is not None and launch.amount >= sum(facts.price for facts in nodes)):
        return None
    return _simulated(work, tuple(nodes))


def _one_saves_for_certain(work: Work, nodes: Sequence[NodeFacts], plenty: Plenty) -> bool:
    """Return whether one of the first nodes is certain to go without a new node and to save something.

    No bound on what all save is below that, so none has to be searched for.
    """
    scene = work.scene
    free = [facts for facts in nodes if work.certain.get(facts.name, NOTHING_NEEDED) == NOTHING_NEEDED][:_TRIED_MAX]
    worth = worths(scene, free, free=True).tolist() if free else []
    return any(
        value > _CERTAIN and plenty.for_pods_of(scene.index_of(facts)) for facts, value in zip(free, worth, strict=True)
    )


def _most_saved_first(scene: Scene, nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Order nodes: those that have wasted before, then by the most savings per disruption, then by name."""
    known, rows = scene.question.waste, scene.table.rows_of(nodes)
    prices = np.array([facts.price for facts in nodes], dtype=object)
    per_cost = (-prices / scene.price_scale).astype(np.float64) / [facts.rescheduling_cost_float for facts in nodes]
    new = np.array([facts.name not in known for facts in nodes])
    return [nodes[place] for place in np.lexsort((rows, per_cost, new)).tolist()]  # rows are in the order of the names


def _savings(work: Work, facts: NodeFacts, bounds: Iterable[Least], plenty: Plenty) -> Money | None:
    scene = work.scene
    for least, launch in bounds:
        if least > scene.new_nodes_max or (launch is not None and launch.amount >= facts.price):
            return None
    saved = _simulated(work, (facts,), fits=plenty.for_pods_of(scene.index_of(facts)))
    return None if saved == _STARTING else saved


def _simulated(work: Work, nodes: tuple[NodeFacts, ...], *, fits: bool = False) -> Money | None:
    """Return what removing nodes would save; None: they can't go. `fits`: no new node is needed for certain."""
    scene = work.scene
    own: tuple[NewNode, ...] = ()
    if not fits:
        simulation = work.simulate(nodes, for_cost=True)
        own = simulation.own_new_nodes(count_all=False)
        hopeless = len(own) > scene.new_nodes_max or any(not node.instance_types for node in own)
        unplaced = refuse_unplaced(simulation, scene.settings)
        if unplaced is not None and unplaced.gate is Gate.UNINITIALIZED_DESTINATION:
            return _STARTING
        if hopeless or unplaced or refuse_back_off(scene, own):
            return None
    # What restarts are worth is asked when enough was wasted: until then every saving counts.
    free = [
        replace(source, required=source.least, asked_waste=None)
        if source.gate is Gate.SAVINGS_THRESHOLD
        else replace(source, required=Fraction(0), asked_waste=None, launch=Fraction(0))
        for source in scene.sources(nodes)
    ]
    judged = judge_new_nodes(free, scene.priced(nodes, own), scene.settings)
    return None if isinstance(judged, Refusal) else judged.savings


def set_aside(work: Work, nodes: Sequence[NodeFacts], certain: Sequence[Refusal | Possible]) -> list[int | None]:
    """Find the nodes that save too little to go at once, whatever a simulation says, but go by waste later.

    `certain`: what is certain about each alone. Returns, for each of them, in how many nanoseconds age alone lets it go
    at once (0: never), and None for all others: those are judged one by one.
    """
    scene, haste = work.scene, work.scene.haste
    if not scene.settings.rules.savings_threshold:
        return [None] * len(nodes)
    pools = {facts.pool_name: facts for facts in nodes}
    lazy = {pool: not haste.restarts.applies(facts) and not balanced.asks(facts) for pool, facts in pools.items()}
    known = scene.question.waste
    open_ones = [
        by_waste and lazy[facts.pool_name] and isinstance(one, Possible) and facts.name not in known
        for facts, one, by_waste in zip(nodes, certain, haste.go_by_waste(nodes), strict=True)
    ]
    prices = np.array([facts.price for facts in nodes], dtype=object)
    launches = np.array([_launch_of(one) for one in certain], dtype=object)
    amounts, units = haste.bars(nodes, scene.table)
    aside = open_ones & ((prices - launches) * units < amounts).astype(np.bool_)
    savings = np.where(prices * units < amounts, prices, prices - launches)
    missing, found = amounts - savings * units, list[int | None]([None]) * len(nodes)
    for place in np.flatnonzero(aside).tolist():
        facts = nodes[place]
        falls_by = haste.falls_by(facts) if facts.expire_after else (0, 1)
        found[place] = until_crossing(missing[place], units[place], falls_by)
    return found


def _launch_of(found: Refusal | Possible) -> Money:
    return found.launch.amount if isinstance(found, Possible) and found.launch is not None else 0


def until_crossing(missing: int, unit: int, falls_by: tuple[int, int]) -> int:
    """Return in how many nanoseconds ageing lowers required savings to the savings, rounded up; 0: never.

    `missing`, `unit`: by how much they are too high, as a ratio; `falls_by`: an amount per number of nanoseconds.
    Design: savings-threshold: nodes get easier to move as they age.
    """
    amount, per = falls_by
    return -(-missing * per // (unit * amount)) if amount > 0 else 0


def due_of(work: Work, facts: NodeFacts) -> datetime | None:
    """Return when a node will have wasted enough, if it could go now; None: not by time alone."""
    rate = could_save(work).get(facts.name)
    if rate is None:
        return None
    scene, asked = work.scene, work.scene.haste.asked_waste(facts)
    return None if asked is None else Wasted(amount=scene.wasted(facts), rate=rate, at=scene.now).when(Fraction(*asked))


def as_waste(work: Work, facts: NodeFacts, refusal: Refusal) -> Refusal:
    """Return the refusal with what the node has wasted and when that is enough, if its pool prices disruption."""
    scene = work.scene
    if refusal.gate not in (Gate.SAVINGS_THRESHOLD, Gate.RESTART_PRICE):
        return refusal
    if scene.haste.restarts.applies(facts):
        amount, unit = scene.haste.own_threshold(facts)
        if refusal.savings * unit < amount:
            return replace(refusal, gate=Gate.SAVINGS_THRESHOLD)
        return _as_restart_price(work, facts, refusal)
    earning, worth = scene.haste.restarts.earning_until(facts), facts.asked_waste(scene.now)
    if earning is not None and worth is not None:
        return _still_earning(facts, refusal, earning, Fraction(*worth))
    asked = scene.haste.asked_waste(facts)
    if asked is None:
        return refusal
    return refusal.told_as(
        NotWastedEnough,
        Gate.WASTE,
        due_of(work, facts),
        at_once=refusal,
        wasted=scene.wasted(facts),
        asked=asked,
        pool=facts.pool_name,
        for_jobs=scene.haste.waits_for_jobs(facts),
        restless_until=scene.haste.restless_until(facts),
    )


def _still_earning(facts: NodeFacts, refusal: Refusal, until: datetime, worth: Fraction) -> Refusal:
    """Return the refusal of a node that a cost command launched, in a pool that prices disruption."""
    return refusal.told_as(
        NotWorthRestarts,
        Gate.RESTART_PRICE,
        until,
        pods=len(facts.reschedulable),
        worth=worth,
        duration=None,
        learned=False,
        earning=True,
        for_jobs=False,
    )


def _as_restart_price(work: Work, facts: NodeFacts, refusal: Refusal) -> Refusal:
    """Return the refusal with how long the savings should last, and when they or the waste will be enough."""
    scene = work.scene
    asked, earning = scene.haste.restarts.asked(facts), scene.haste.restarts.earning_until(facts)
    assert asked is not None
    replaced = isinstance(refusal, TooLittle) and refusal.replaced
    new = max(0, facts.price - refusal.savings) if replaced else 0
    launch = Fraction(scene.settings.launch_price * new, HOUR)
    cost = Fraction(*asked.restarts) + Fraction(*asked.moving) + launch
    return refusal.told_as(
        NotWorthRestarts,
        Gate.RESTART_PRICE,
        earning or _due(work, facts, refusal.savings, cost, asked),
        pods=len(facts.reschedulable),
        worth=cost,
        duration=asked.duration,
        learned=asked.pool.removals > 0 or asked.pool.calm_since is not None,
        earning=earning is not None,
        for_jobs=scene.haste.waits_for_jobs(facts),
    )


def _due(work: Work, facts: NodeFacts, savings: Money, cost: Fraction, asked: AskedEarnings) -> datetime | None:
    """Return when the savings are expected to last long enough, or enough was wasted; None: not by time alone."""
    scene = work.scene
    if savings <= 0:
        return None
    times = []
    lasts = cost * HOUR / savings
    needed = -(-lasts.numerator // lasts.denominator)
    if not scene.haste.waits_for_jobs(facts):
        times.append(asked.when_it_lasts(needed, scene.now))
    to_waste, rate = scene.haste.asked_waste(facts), could_save(work).get(facts.name)
    if to_waste is not None and rate is not None:
        wasted = Wasted(amount=scene.wasted(facts), rate=rate, at=scene.now).when(Fraction(*to_waste))
        believed = scene.now if needed <= asked.patient else asked.when_it_lasts(needed, scene.now)
        times.append(None if wasted is None or believed is None else max(wasted, believed))
    found = [at for at in times if at is not None]
    return max(min(found), later(scene.now, LOOK_AGAIN)) if found else None
