"""The kept order of cost candidates is that of a plain sort, for any costs, lifetimes and changes."""

import random
from datetime import timedelta

from dovetail.decide.facts.cost import UNIT
from dovetail.decide.facts.cost_order import CostOrder
from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.model.objects import NodeClaim, ObjectMeta
from dovetail.model.settings import CandidateOrder
from tests.support.nodes import NOW, facts_of, minutes
from tests.support.sizes import size

_NAMES = [f"n{number}" for number in range(60)]
_HOUR = 3600 * 10**9
_COSTS = (0, UNIT, UNIT, 2 * UNIT, -UNIT, 3 * UNIT, UNIT // 3, 10**30, -(10**30))
_LIVES = (None, _HOUR, _HOUR, 720 * _HOUR, _HOUR + 1, 0, 1, 10**30)


def _facts(name: str, chance: random.Random) -> NodeFacts:
    created = NOW - timedelta(microseconds=chance.choice([0, 1, 10**6, 60 * 10**6, 3000 * 10**6]))
    claim = NodeClaim(metadata=ObjectMeta(creation_timestamp=created))
    return facts_of(name=name, claim=claim, pod_costs=chance.choice(_COSTS), expire_after=chance.choice(_LIVES))


def test_order_as_sorted() -> None:
    """However nodes change and the clock goes, they are ordered by exact cost, rounded once, and by name."""
    for seed in range(size(test=60, ci=200, long=2000)):
        chance, kept, now = random.Random(seed), CostOrder(), NOW
        nodes = Lineup.of([_facts(name, chance) for name in sorted(_NAMES[: chance.choice([1, 50])])])
        for _ in range(12):
            if chance.random() < 0.7:
                now = NOW + minutes(chance.choice([0, 1, 1.5, 30, 59, 70]))
            gone = [facts for facts in nodes if chance.random() < 0.06]
            free = {*_NAMES} - {facts.name for facts in nodes} | {facts.name for facts in gone}
            new = [_facts(name, chance) for name in sorted(free) if chance.random() < 0.2]
            edited = nodes.edited(gone, new)
            here = [*[facts for facts in nodes if all(facts is not one for one in gone)], *new]
            nodes = edited or Lineup.of(sorted(here, key=lambda facts: facts.name))
            if chance.random() < 0.1:
                by_ratio = kept.of(nodes, CandidateOrder.SAVINGS_RATIO, now)
                assert {*map(id, by_ratio)} == {*map(id, nodes)}
                continue
            found = kept.of(nodes, CandidateOrder.DISRUPTION_COST, now)
            plain = sorted(nodes, key=lambda facts: (facts.disruption_cost_float(now), facts.name))
            assert [facts.name for facts in found] == [facts.name for facts in plain], seed
            assert {*map(id, found)} == {*map(id, nodes)}
