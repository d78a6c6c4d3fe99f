"""Unreadable values are found among what is new, whatever came, went or changed."""

from random import Random

import pytest

from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.oddities import Oddities, odd_spans
from dovetail.lifecycle.store import Store
from dovetail.model.objects import NodeClaim, NodeClaimSpec, ObjectMeta
from tests.support.nodes import facts_of


def _claim(name: str, life: str | None = None, grace: str | None = None) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name=name), spec=NodeClaimSpec(expire_after=life, termination_grace_period=grace)
    )


@pytest.mark.parametrize(
    ("life", "grace", "odd"),
    [
        (None, None, []),
        ("Never", "1h", []),
        ("1h", "Never", [("terminationGracePeriod", "Never")]),
        ("soon", "1h", [("expireAfter", "soon")]),
        ("soon", "late", [("expireAfter", "soon"), ("terminationGracePeriod", "late")]),
        ("", None, [("expireAfter", "")]),
    ],
)
def test_durations_that_cannot_be_read(life: str | None, grace: str | None, odd: list[tuple[str, str]]) -> None:
    """Only expireAfter may be Never; a duration that is not there is not unreadable."""
    assert odd_spans(_claim("a", life, grace)) == odd


@pytest.mark.parametrize("seed", range(20))
def test_claims_of_a_store_are_followed(seed: int) -> None:
    """After any changes, and for listings that were left out or asked about again, the answer is that of all claims."""
    dice, store, oddities = Random(seed), Store(), Oddities()
    listings = [store.node_claims()]
    for _ in range(60):
        for _ in range(dice.randrange(4)):
            name = f"c{dice.randrange(6)}"
            if dice.random() < 0.4:
                store.vanish("NodeClaim", "", name)
            else:
                store.observe(_claim(name, dice.choice(["1h", "2h", "3h", "Never", "soon"])))
        listings.append(store.node_claims())
        for claims in dice.choice([(), (listings[-1],), (listings[-1],), (dice.choice(listings), tuple(listings[-1]))]):
            assert oddities.in_claims(claims) == any(claim.spec.expire_after == "soon" for claim in claims)


@pytest.mark.parametrize("seed", range(20))
def test_nodes_are_followed(seed: int) -> None:
    """After any changes of nodes, the answer is that of all nodes."""
    dice, oddities, nodes = Random(seed), Oddities(), Lineup.of(())
    for _ in range(40):
        old = [facts for facts in nodes if dice.random() < 0.4]
        names = {facts.name for facts in nodes} - {facts.name for facts in old}
        coming = [name for name in "abcdef" if name not in names and dice.random() < 0.5]
        new = [facts_of(name=name, unreadable=("odd",) if dice.random() < 0.1 else ()) for name in coming]
        staying = [facts for facts in nodes if facts.name in names]
        nodes = nodes.edited(old, new) or Lineup.of(sorted([*staying, *new], key=lambda facts: facts.name))
        assert oddities.in_nodes(nodes) == any(facts.unreadable for facts in nodes)
