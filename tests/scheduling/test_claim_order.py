"""New nodes are tried in the order of their number of pods, fewest first, like a stable sort."""

import random
from types import SimpleNamespace
from typing import Any

from dovetail.scheduling.launch.claims import put_in_order


def test_in_the_order_of_a_stable_sort() -> None:
    """After each random change the order equals a stable sort by the number of pods."""
    rng = random.Random(3)
    claims: list[Any] = []
    expected: list[Any] = []
    for step in range(2000):
        if not claims or rng.random() < 0.1:
            grown = SimpleNamespace(name=step, pods=[0])
            claims.append(grown)
            expected.append(grown)
        else:
            grown = rng.choice(claims[: rng.choice((1, 3, len(claims)))])
            grown.pods.append(0)
        put_in_order(claims, grown)
        expected.sort(key=lambda claim: len(claim.pods))
        assert [claim.name for claim in claims] == [claim.name for claim in expected]
