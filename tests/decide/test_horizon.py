"""The next time at which a round could answer differently without any event, for each source of times."""

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from dovetail.api.pool_marks import Departure
from dovetail.api.rolling import RollingDomain, write_rolling
from dovetail.decide.facts.cost import UNIT
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.budgets import BudgetLedger, window_times
from dovetail.decide.horizon import next_change
from dovetail.decide.in_flight import InFlight
from dovetail.decide.question import CostHold
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.objects import NodePool, ObjectMeta, Pod
from dovetail.model.policies.controls import AllowWindow, Health, PendingLimit
from dovetail.model.policies.policy import Budget, DisruptionPolicy, Reason
from dovetail.model.settings import DOVETAIL
from dovetail.model.timing.windows import window
from dovetail.model.verdicts import Gate
from tests.support.design_world import Town, kind, stamp
from tests.support.nodes import NOW, facts_of, minutes
from tests.support.scenes import scene_of

MINUTE = 60 * 10**9
HOUR = 60 * MINUTE
RATE = DisruptionPolicy(budgets=(Budget(index=0, nodes="1", amount=1, per=10 * MINUTE),))
AT_16, AT_17, NEVER = (window(f"0 {hour} * * *", HOUR) for hour in (16, 17, 18))


def _scene(nodes: Sequence[NodeFacts] = (), policy: DisruptionPolicy | None = None, **parts: Any) -> Scene:
    """Return a scene of these nodes; `left`: when nodes of the pool began to leave, `pods`, `pools`: its objects."""
    left, policies = parts.pop("left", ()), {} if policy is None else {"default": policy}
    cluster = Cluster(node_pools=tuple(parts.pop("pools", ())), pods=tuple(parts.pop("pods", ())))
    for name in ("settling", "settling_nodes"):
        parts[name] = {held: CostHold(until=until) for held, until in parts.get(name, {}).items()}
    scene = scene_of(nodes, policies, cluster=cluster, **parts)
    history = tuple(Departure(at=at, nodes=1, reason=Reason.EMPTY, command="c") for at in left)
    vars(scene)["ledger"] = BudgetLedger({}, policies, DOVETAIL, NOW, scene.in_flight, histories={"default": history})
    return scene


def _node(idle: float, **facts: Any) -> NodeFacts:
    """Return a node whose consolidateAfter of ten minutes began this many minutes ago."""
    return facts_of(policy=DisruptionPolicy(consolidate_after=10 * MINUTE), last_event=NOW - minutes(idle), **facts)


WAITING = msgspec.convert(
    {
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "lastTransitionTime": stamp(NOW - minutes(3)),
                }
            ],
        }
    },
    Pod,
    strict=False,
)


def _rolling(idle: float | None) -> NodePool:
    """Return a pool that rolls in a zone in which nothing could be done for this many minutes."""
    since = None if idle is None else NOW - minutes(idle)
    mark = write_rolling(RollingDomain(key="zone", domain="a", since=NOW, idle_since=since))
    return NodePool(metadata=ObjectMeta(name="p", annotations={names.ROLLING_DOMAIN: mark}))


@pytest.mark.parametrize(
    ("scene", "after"),
    [
        (_scene(), None),
        (_scene(settling={"a": NOW + minutes(4)}), 4),
        (_scene(settling_nodes={"n": NOW + minutes(3)}), 3),
        (_scene(settling={"a": NOW}), None),
        (_scene(in_flight=InFlight(back_off={"a": NOW + minutes(6), "b": NOW + minutes(5)})), 5),
        (_scene(in_flight=InFlight(regrown={"a": NOW + minutes(6)})), 6),
        (_scene(restless={"a": NOW + minutes(6)}), 6),
        (_scene(policy=RATE, left=[NOW - minutes(11), NOW - minutes(3)]), 7),
        (_scene(policy=DisruptionPolicy(windows=(AllowWindow(index=0, window=AT_16),))), 30),
        (
            _scene(
                policy=DisruptionPolicy(health=Health(pending_pods=PendingLimit(count=1, lasting=5 * MINUTE))),
                pods=(WAITING,),
            ),
            2,
        ),
        (_scene(pools=[_rolling(3), _rolling(None)]), 7),
        (_scene([_node(10), _node(9), _node(8)]), 1),
        (_scene([_node(8), _node(9)]), 1),
        (_scene([_node(8)], settling={"a": NOW + minutes(1)}), 1),
        (_scene([_node(9)], settling={"a": NOW + minutes(2)}), 1),
        (_scene([_node(10)]), None),
    ],
)
def test_the_soonest_counts(scene: Scene, after: float | None) -> None:
    """The next change is the earliest time that is still to come, in minutes."""
    assert next_change(Work(scene), []) == (None if after is None else NOW + minutes(after))


def test_windows_of_budgets() -> None:
    """Readable budget windows that still open or close count as changes."""
    budgets = (
        Budget(index=0, nodes="1"),
        Budget(index=1, nodes="1", window=AT_16),
        Budget(index=2, nodes="1", window=AT_17, problem="odd"),
        Budget(index=3, nodes="1", window=window("0 0 30 2 *", HOUR)),
    )
    policy = DisruptionPolicy(budgets=budgets, windows=(AllowWindow(index=0, window=NEVER),))
    assert list(window_times(policy, NOW)) == [NOW + minutes(30), NOW + minutes(150)]


def _ageing(units: int, threshold: int = 10) -> NodeFacts:
    """Return a node that lives an hour and whose required savings, `threshold x units`, fall with its age."""
    policy = DisruptionPolicy(savings_threshold=threshold)
    return facts_of(policy=policy, expire_after=HOUR, pod_costs=units * UNIT, last_event=None)


@pytest.mark.parametrize(
    ("nodes", "gate", "required", "savings", "after"),
    [
        ([_ageing(6)], Gate.SAVINGS_THRESHOLD, 40, 30, 10),
        ([_ageing(6)], Gate.WASTE, 40, 30, 10),
        ([_ageing(6)], Gate.PRICE, 40, 30, None),
        ([_ageing(6), _ageing(6)], Gate.SAVINGS_THRESHOLD, 40, 30, 5),
        ([_ageing(6), _ageing(0)], Gate.SAVINGS_THRESHOLD, 40, 30, 10),
        ([_ageing(0)], Gate.SAVINGS_THRESHOLD, 40, 30, None),
        ([_ageing(-6)], Gate.SAVINGS_THRESHOLD, 40, 30, None),
        ([_ageing(6)], Gate.SAVINGS_THRESHOLD, 30, 30, None),
        ([_ageing(6)], Gate.SAVINGS_THRESHOLD, 31, 30, 1),
        ([_ageing(1, threshold=7)], Gate.SAVINGS_THRESHOLD, 31, 30, 60 / 7),
    ],
)
def test_ageing_crosses_the_threshold(
    nodes: list[NodeFacts], gate: Gate, required: int, savings: int, after: float | None
) -> None:
    """The required savings of six pods fall by 60 an hour; sets add up; times round up to a microsecond."""
    refusal = Refusal(gate=gate, why="", savings=savings, required=Fraction(required))
    found = next_change(Work(_scene()), [(tuple(nodes), refusal)])
    if after is None:
        assert found is None
    else:
        assert found is not None
        assert 0 <= (found - NOW).total_seconds() - after * 60 < 1e-6


def test_the_least_that_falls() -> None:
    """Even the smallest required savings fall with age and give the time of the next change."""
    node = facts_of(policy=DisruptionPolicy(savings_threshold=1), expire_after=HOUR, pod_costs=UNIT, last_event=None)
    refusal = Refusal(gate=Gate.WASTE, why="", savings=0, required=Fraction(1, 2))
    assert next_change(Work(_scene()), [((node,), refusal)]) == NOW + minutes(30)
    least = facts_of(policy=DisruptionPolicy(savings_threshold=1), expire_after=HOUR, pod_costs=1, last_event=None)
    tiny = Refusal(gate=Gate.WASTE, why="", savings=0, required=Fraction(1, UNIT))
    assert next_change(Work(_scene()), [((least,), tiny)]) == NOW + minutes(60)


def test_when_a_refusal_is_due() -> None:
    """A refusal that names its own time counts with that time."""
    refusal = Refusal(gate=Gate.PRICE, why="", due=NOW + minutes(9))
    assert next_change(Work(_scene()), [((_ageing(6),), refusal)]) == NOW + minutes(9)


def test_a_node_that_grows_old_enough_is_looked_at_then() -> None:
    """If only minNodeAge holds a node, the next change is when the node reaches that age."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"minNodeAge": "3h"})
    town.node("empty", "m", age=timedelta(hours=1))
    result = town.round()
    assert result.commands == ()
    assert result.next_change == NOW + 2 * timedelta(hours=1)
