"""New nodes are tried in the order of their number of pods, fewest first, like a stable sort."""

import random
from types import SimpleNamespace
from typing import Any

from dovetail.scheduling.launch.claims import LAST
from dovetail.scheduling.launch.fill_order import FillOrder


def test_in_the_order_of_a_stable_sort() -> None:
    """After each random change the order equals a stable sort by the number of pods, without nodes that refused."""
    rng = random.Random(3)
    order: Any = FillOrder()
    expected: list[Any] = []
    like = 0
    for step in range(3000):
        like = rng.randrange(3) if rng.random() < 0.1 else like
        before = order.open_to(like)
        expected.sort(key=lambda claim: len(claim.pods))
        assert [claim.name for claim in before] == [claim.name for claim in expected if like not in claim.refused]
        assert [claim.name for claim in order.in_order()] == [claim.name for claim in expected]
        for claim in before[: rng.choice((0, 0, 1, 2))]:
            claim.refused.add(like)
        order.drop_refusing(like)
        near = [claim for claim in before if like not in claim.refused]
        if not near or rng.random() < 0.1:
            grown: Any = SimpleNamespace(name=step, pods=[0], position=LAST, refused=set())
            order.open(grown)
            expected.append(grown)
        else:
            grown = rng.choice(near[: rng.choice((1, 3, len(near)))])
            grown.pods.append(0)
        order.grow(grown)
