"""What nodes waste: what removing them would save, and how much waste allows removal for small savings.

Spec section 22. The engine keeps what was wasted (`lifecycle.waste`) and passes it to the next question; this module
computes what removing each node would save now, ignoring the threshold, and words the gate. Bounded: in a large cluster
only the nodes with the highest savings per disruption are considered. Sits in decide, beside the methods.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from dovetail.decide.context import RoundContext
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price_refusals import Refusal
from dovetail.decide.gates.price_sum import judge_new_nodes
from dovetail.decide.methods.moves import refuse_back_off, refuse_unplaced
from dovetail.decide.search.dual import SLACK, ValueBound
from dovetail.decide.words import clock, dollars
from dovetail.model.money import Money
from dovetail.model.verdicts import Gate
from dovetail.model.waste import Wasted

LOOKED_AT_MAX: Final = 64
"""Of how many nodes a round finds out what they waste."""


def could_save(context: RoundContext) -> Mapping[str, Money | None]:
    """Return what removing each node would save per hour now; None: it can't go. Others are not considered."""
    found = context.could_save
    if found is None:
        found = context.could_save = _could_save(context)
    return found


def _could_save(context: RoundContext) -> Mapping[str, Money | None]:
    if not context.settings.rules.waste or context.stabilizing:
        return {}
    if all(policy.disruption_price is None for policy in context.policies.values()):
        return {}  # most clusters: nothing else of this round needs the order of all nodes
    priced = [facts for facts in context.cost_order if context.haste.asked_waste(facts) is not None]
    known = context.question.waste
    priced.sort(key=lambda facts: (facts.name not in known, -facts.savings_ratio, facts.name))
    if ValueBound(context, priced, free=True).at_most() <= SLACK:  # a packed cluster: a simulation would not find more
        return dict.fromkeys((facts.name for facts in priced[:LOOKED_AT_MAX]), None)
    return {facts.name: _savings(context, facts) for facts in priced[:LOOKED_AT_MAX]}


def _savings(context: RoundContext, facts: NodeFacts) -> Money | None:
    place = context.index_of(facts)
    for least, launch, _ in context.bounds.replacement_at_least(place, several=context.new_nodes_max > 1):
        if least > context.new_nodes_max or (launch is not None and launch.amount >= facts.price):
            return None
    simulation = context.simulate((facts,), for_cost=True)
    own = simulation.own_new_nodes(count_all=False)
    hopeless = len(own) > context.new_nodes_max or any(not node.instance_types for node in own)
    if hopeless or refuse_unplaced(simulation, context.settings) or refuse_back_off(context, own):
        return None
    free = [replace(source, required=source.least, asked_waste=None) for source in context.sources((facts,))]
    judged = judge_new_nodes(free, own, context.settings)
    return None if isinstance(judged, Refusal) else judged.savings


def as_waste(context: RoundContext, facts: NodeFacts, refusal: Refusal) -> Refusal:
    """Return a node's waste, the required waste and when it will be reached, if its pool prices disruption."""
    asked = context.haste.asked_waste(facts) if refusal.gate is Gate.SAVINGS_THRESHOLD else None
    if asked is None:
        return refusal
    (source,) = context.sources((facts,))
    amount = source.wasted
    rate = could_save(context).get(facts.name)
    due = None if rate is None else Wasted(amount=amount, rate=rate, at=context.now).when(asked)
    when = "once it could go" if due is None else f"at {clock(due)}"
    haste = _why_no_haste(context, facts, refusal)
    return Refusal(
        gate=Gate.WASTE,
        why=f"It does not go at once ({haste}); it has wasted {dollars(amount)} so far and goes when "
        f"{dollars(asked)} are wasted, {when}.",
        figures={
            **refusal.figures,
            "wasted": dollars(amount, bare=True),
            "asked": dollars(asked, bare=True),
            "at": None if due is None else clock(due),
        },
        savings=refusal.savings,
        required=refusal.required,
        simulated=refusal.simulated,
        due=due,
        instead=refusal.instead,
    )


def _why_no_haste(context: RoundContext, facts: NodeFacts, refusal: Refusal) -> str:
    """Return why a node does not go at once."""
    if context.haste.waits_for_jobs(facts):
        return "pods of Jobs run on it"
    until = context.haste.restless_until(facts)
    why = refusal.why.rstrip(".")
    if until is None:
        return why
    return f"{why}; half as much again until {clock(until)}, as nodes were opened in NodePool {facts.pool_name} lately"
