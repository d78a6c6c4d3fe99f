"""New nodes are tried in the order of their number of pods, fewest first, like a stable sort."""

import random

from dovetail.scheduling.launch.claims import Claim
from dovetail.scheduling.launch.fill_order import FillOrder
from tests.support.scheduling_build import pod, pool, snapshot


def test_in_the_order_of_a_stable_sort() -> None:
    """After each random change the order equals a stable sort by the number of pods, without nodes that refused."""
    rng = random.Random(3)
    (template,), joins = snapshot(pool()).frame.templates, pod("p")
    order = FillOrder()
    expected: list[Claim] = []
    like = 0
    for step in range(3000):
        like = rng.randrange(3) if rng.random() < 0.1 else like
        before = order.open_to(like)
        expected.sort(key=lambda claim: len(claim.pods))
        assert [claim.number for claim in before] == [claim.number for claim in expected if like not in claim.refused]
        assert [claim.number for claim in order.in_order()] == [claim.number for claim in expected]
        for claim in before[: rng.choice((0, 0, 1, 2))]:
            claim.refused.add(like)
        order.drop_refusing(like)
        near = [claim for claim in before if like not in claim.refused]
        if not near or rng.random() < 0.1:
            grown = Claim(step, template, template.types)
            grown.pods.append(joins)
            order.open(grown)
            expected.append(grown)
        else:
            grown = rng.choice(near[: rng.choice((1, 3, len(near)))])
            grown.pods.append(joins)
        order.grow(grown)
