"""How long runs will still take, estimated from what they took."""

from datetime import UTC, datetime

import pytest

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node
from dovetail.model.timing.duration import HOUR
from dovetail.sim.ledger import Interim
from dovetail.sim.run import STEPS
from dovetail.sim.time_left import TimeLeft
from dovetail.sim.whatif import BASELINE, CHANGED, RunWatcher, WhatIf


def test_nothing_is_known_before_the_first_report() -> None:
    """Without a report there is no estimate."""
    assert TimeLeft(("a", "b"), 2).left() is None


def test_a_slow_beginning_does_not_count_for_the_rest() -> None:
    """A run whose first tenth took a minute and whose next tenths take a second each has seconds left."""
    found = TimeLeft(("a",), 1)
    found.heard(0, 0.1, 60.0)
    assert found.left() == pytest.approx(540)
    for step in range(2, 6):
        found.heard(0, step / 10, 60.0 + 10 * (step - 1))
    assert found.left() == pytest.approx(5 * 10, rel=0.3)


def test_runs_of_one_kind_take_as_long() -> None:
    """What is like a finished run needs as long as that did, at the same places; two workers share the rest."""
    found = TimeLeft(("a", "b", "a", "b"), 2)
    for index in (0, 1):
        found.heard(index, 0.1, 60.0)
    found.heard(0, 1.0, 100.0)
    found.heard(1, 1.0, 100.0)
    assert found.left() == pytest.approx(100.0)
    found.heard(2, 0.1, 160.0)
    assert found.left() == pytest.approx((40 + 100) / 2)


@pytest.mark.parametrize(
    ("nodes", "after"),
    [
        (499, ["14m", "58m", "2h53m", "6h", "12h"]),
        (500, ["1m26s", "2m53s", "7m12s", "14m", "58m", "2h53m", "6h", "12h"]),
    ],
)
def test_a_large_cluster_is_looked_at_early(nodes: int, after: list[str]) -> None:
    """Every look is one of the simulator's reports, and needs both columns; hundreds of nodes get earlier ones."""
    looks: list[str] = []
    cluster = Cluster(nodes=tuple(Node() for _ in range(nodes)))
    asked = WhatIf(cluster=cluster, catalogue=Catalogue(instance_types=()), now=datetime.now(UTC), length=24 * HOUR)
    watcher = RunWatcher(lambda: 1.0, lambda *_: None, lambda look: looks.append(look.sentence()))
    watcher.begin(asked, [BASELINE, CHANGED], 2)
    for column in (0, 1):
        assert not looks
        for part in STEPS:
            figures = Interim(seconds=part * 86.4, cost=10**18, rate=10**18, pods_disrupted=1)
            watcher.heard(column, part / 1000, figures)
    assert [look.split(" of 24h")[0].removeprefix("after ") for look in looks] == after
