"""Small rules of a round that mutation tests found unchecked: each test fails without its rule."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.facts.pod_sums import DAEMON, RESCHEDULABLE, TERMINAL, PodSums
from dovetail.decide.gates.balanced import judge_shares
from dovetail.model.objects import ObjectMeta, Pod
from dovetail.model.settings import DOVETAIL
from tests.support.design_world import NOW, Town, kind, moved

HOUR = timedelta(hours=1)


def test_a_node_that_grows_old_enough_is_looked_at_then() -> None:
    """If only minNodeAge holds a node, the next change is when the node reaches that age."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"minNodeAge": "3h"})
    town.node("empty", "m", age=HOUR)
    result = town.round()
    assert result.commands == ()
    assert result.next_change == NOW + 2 * HOUR


def test_new_prices_reach_a_decider_that_remembers() -> None:
    """A machine that becomes cheaper between two rounds is launched in spite of the cache."""
    town = Town(kind("big", "0.40", cpu=16), kind("small", "0.40", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    town.node("n", "big")
    town.pod("p", "n", cpu="1500m")
    decider = Decider()
    assert decider.round(town.question()).commands == ()
    town.kinds["small"] = kind("small", "0.10", cpu=4)
    (command,) = decider.round(town.question()).commands
    assert moved(command) == ("replaceCost", ("n",))


@pytest.mark.parametrize(
    ("threshold", "gate"), [(1, "savings-threshold"), (0, "eligible")], ids=["saves too little", "nothing is asked for"]
)
def test_the_cheapest_type_says_which_gate_it_was(threshold: float, gate: str) -> None:
    """If one type is a little cheaper, the refusal names the threshold and not the price."""
    town = Town(kind("less", "0.19"), kind("same", "0.20"), kind("more", "0.30", cpu=8))
    town.pool(disruption={"consolidationSavingsThreshold": threshold})
    town.node("n", "same")
    town.pod("p", "n", cpu="2000m")
    assert town.verdicts()["n"] == gate


@pytest.mark.parametrize(("idle", "goes"), [(HOUR, True), (timedelta(minutes=1), False)])
def test_only_running_timers_close_destinations(idle: timedelta, goes: bool) -> None:
    """The setting closes only destinations whose consolidateAfter timer is running."""
    town = Town(kind("m", "0.20"), settings=replace(DOVETAIL, consolidate_after_hides_destinations=True))
    town.pool(disruption={"consolidateAfter": "10m", "consolidationSavingsThreshold": 0.01}, limits={"nodes": "0"})
    town.node("a", "m")
    town.pod("on-a", "a")
    town.node("b", "m", idle=idle)
    town.fill("b", 3, cpu="1000m")
    assert moved(town.act()) == (("deleteCost", ("a",)) if goes else None)


def test_room_that_fits_exactly_is_room() -> None:
    """A pod fits if it needs exactly the free room of the only other node."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01}, limits={"nodes": "0"})
    town.node("a", "m")
    town.pod("on-a", "a", cpu="1000m")
    town.node("b", "m")
    town.fill("b", 3, cpu="1000m")
    assert moved(town.act()) == ("deleteCost", ("a",))


@pytest.mark.parametrize(
    ("saved", "disturbed", "score"),
    [(0.2, 0.0, None), (0.2, 0.4, None), (0.2, 0.5, 0.4), (0.2, 1.0, 0.2), (0.0, 0.0, 0.0), (0.0, 0.5, 0.0)],
)
def test_balanced_scores(saved: float, disturbed: float, score: float | None) -> None:
    """A move that disturbs nothing passes; a refusal carries its score."""
    refusal = judge_shares("blue", saved, disturbed)
    assert (None if refusal is None else refusal.figures["score"]) == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    ("allowed", "words"),
    [((0,), "PodDisruptionBudget"), ((5, 5), "has 2 PodDisruptionBudgets (default/guard-0, default/guard-1)")],
)
def test_two_pdbs_on_one_pod_are_told_as_such(allowed: tuple[int, ...], words: str) -> None:
    """The eviction API refuses a pod with two PDBs; the verdict says that and names both."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("n", "m")
    town.pod("p", "n", labels={"app": "web"})
    for number, count in enumerate(allowed):
        town.pdb(f"guard-{number}", {"app": "web"}, allowed=count)
    (entry,) = town.round(every_method=True).verdicts
    assert entry.verdict == "pdb"
    assert words in entry.why
    assert ("has 2" in entry.why) == (len(allowed) > 1)


@pytest.mark.parametrize(
    ("flags", "counted"),
    [
        (0, (True, True, False)),
        (RESCHEDULABLE, (True, True, True)),
        (DAEMON, (True, False, False)),
        (TERMINAL, (True, False, False)),
    ],
    ids=["a mirror pod", "one that moves", "a daemon", "one that ended"],
)
def test_which_pods_count_into_which_sum(flags: int, counted: tuple[bool, bool, bool]) -> None:
    """The sums are all pods, the pods in Karpenter's state (no daemons), and the pods that move."""
    sums = PodSums()
    sums.add(Pod(metadata=ObjectMeta(name="p", namespace="d")), flags)
    assert (sums.all > 0, sums.tracked > 0, sums.moving > 0) == counted
