"""How long planned commands take: budgets, rates, windows, topology, stabilization and timers."""

from datetime import timedelta
from typing import Any

import pytest

from dovetail.decide.facts.node_facts import DRAIN, usual_launch
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.plan.pace import BY_ITSELF, Departing, Pace, pace_of
from tests.support.design_world import Town, kind

VALIDATION = timedelta(seconds=15)
DELETION = VALIDATION + DRAIN
REPLACEMENT = VALIDATION + usual_launch(()) + DRAIN


def paced(commands: list[Departing], settings: Settings = DOVETAIL, **disruption: Any) -> Pace:
    """Return the pace of commands in a pool of ten nodes."""
    town = Town(kind("m", "0.20"), settings=settings)
    town.pool(disruption=disruption)
    for number in range(10):
        town.node(f"n{number}", "m")
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    return pace_of(Scene.of(question), commands)


def drifted(number: int, **more: Any) -> Departing:
    """Return the replacement of one drifted node."""
    return Departing(
        method=Method.DRIFTED,
        nodes={"default": 1},
        names=(f"n{number}",),
        opened=((f"new-{number}", "default"),),
        **more,
    )


def cost(*nodes: str, takers: tuple[str, ...] = ()) -> Departing:
    """Return a deletion for cost."""
    taking = tuple((node, "default") for node in takers)
    return Departing(method=Method.SINGLE_NODE, nodes={"default": len(nodes)}, names=nodes, takers=taking)


def test_nothing_takes_no_time() -> None:
    """A plan without commands has ended."""
    pace = paced([])
    assert pace.seconds == 0


def test_a_replacement_takes_a_launch_and_a_drain() -> None:
    """One command is validated, launches and drains."""
    pace = paced([drifted(0)])
    assert pace.seconds == REPLACEMENT.total_seconds()
    assert pace.paced_by == BY_ITSELF


@pytest.mark.parametrize(("nodes", "batches"), [("1", 4), ("2", 2), ("4", 1), ("100%", 1), ("20%", 2)])
def test_a_budget_lets_so_many_go_side_by_side(nodes: str, batches: int) -> None:
    """Four replacements under a budget of two nodes take as long as two after each other."""
    pace = paced([drifted(number) for number in range(4)], budgets=[{"nodes": nodes}])
    assert pace.seconds == batches * REPLACEMENT.total_seconds()
    assert pace.paced_by == (BY_ITSELF if batches == 1 else f"the budget of NodePool default (nodes: {nodes})")


def test_a_budget_of_none_never_ends() -> None:
    """What a budget without a schedule forbids does not come with time."""
    pace = paced([drifted(0)], budgets=[{"nodes": "0"}])
    assert pace.end is None
    assert pace.seconds is None
    assert pace.paced_by == "the budget of NodePool default (nodes: 0)"


def test_a_scheduled_budget_is_waited_for() -> None:
    """A budget that forbids everything until 17:00 moves the start there (the tests' clock says 15:30)."""
    pace = paced([drifted(0)], budgets=[{"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}, {"nodes": "1"}])
    assert pace.seconds == (timedelta(minutes=90) + REPLACEMENT).total_seconds()


def test_a_window_is_waited_for() -> None:
    """Where windows allow, the commands start when one opens."""
    pace = paced([drifted(0)], windows=[{"schedule": "0 22 * * *", "duration": "2h"}], budgets=[{"nodes": "1"}])
    assert pace.seconds == (timedelta(hours=6, minutes=30) + REPLACEMENT).total_seconds()
    assert pace.paced_by == "the windows of NodePool default"


def test_a_window_that_closes_stops_the_rest_until_the_next() -> None:
    """What does not fit into a window goes on in the next one."""
    windows = [{"schedule": "0 15 * * *", "duration": "32m"}]
    pace = paced([drifted(number) for number in range(4)], windows=windows, budgets=[{"nodes": "1"}])
    assert pace.seconds == (timedelta(hours=23, minutes=30) + 2 * REPLACEMENT).total_seconds()


def test_a_rate_paces_the_starts() -> None:
    """Two nodes an hour: the fifth starts after two hours."""
    budgets = [{"nodes": "2", "per": "1h"}, {"nodes": "100%"}]
    pace = paced([drifted(number) for number in range(5)], budgets=budgets)
    assert pace.seconds == (timedelta(hours=2) + REPLACEMENT).total_seconds()
    assert pace.paced_by == "the budget of NodePool default (nodes: 2 per 1h)"


def test_domains_go_one_after_the_other() -> None:
    """A sequential topology budget finishes one zone before the next, so many of its nodes at once."""
    key = "topology.kubernetes.io/zone"
    budgets = [{"nodes": "100%", "topologyKey": key, "sequential": True, "reasons": ["Drifted"]}, {"nodes": "100%"}]
    zones = ["a", "a", "b", "b"]
    commands = [drifted(number, domains={("default", key): zone}) for number, zone in enumerate(zones)]
    town = Town(kind("m", "0.20", zones=("a", "b")))
    town.pool(disruption={"budgets": budgets})
    for number, zone in enumerate(zones):
        town.node(f"n{number}", "m", zone=zone)
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    pace = pace_of(Scene.of(question), commands)
    assert pace.seconds == 2 * REPLACEMENT.total_seconds()
    assert "one after the other" in pace.paced_by


def test_cost_actions_wait_for_stabilization() -> None:
    """Two cost actions in one pool are five minutes apart; drift does not wait."""
    pace = paced([cost("n0"), cost("n1")], budgets=[{"nodes": "100%"}])
    assert pace.seconds == (2 * DELETION + timedelta(minutes=5)).total_seconds()
    assert pace.paced_by == "the stabilization after each action"
    assert paced([cost("n0"), drifted(1)], budgets=[{"nodes": "100%"}]).seconds == REPLACEMENT.total_seconds()


def test_without_stabilization_nothing_is_said_of_it() -> None:
    """Under Karpenter's rules the next cost action waits only until the one before has ended."""
    pace = paced([cost("n0"), cost("n1")], KARPENTER_1_15, budgets=[{"nodes": "100%"}])
    assert pace.seconds == (2 * DELETION).total_seconds()
    assert pace.paced_by == BY_ITSELF


def test_a_node_that_got_pods_waits_for_its_timer() -> None:
    """A node that took pods is no source until consolidateAfter has passed since."""
    commands = [cost("n0", takers=("n1",)), cost("n1")]
    pace = paced(commands, budgets=[{"nodes": "100%"}], consolidateAfter="2h")
    assert pace.seconds == (2 * DELETION + timedelta(hours=2)).total_seconds()
    assert pace.paced_by == "consolidateAfter 2h of NodePool default"
