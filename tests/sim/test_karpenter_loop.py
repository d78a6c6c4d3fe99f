"""Karpenter's disruption loop in the simulated cluster: when it runs, when it pauses, what it considers."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.refusals.starting import STARTING
from dovetail.decide.round import RoundResult, decide
from dovetail.decide.work import Work
from dovetail.model.command import Method
from dovetail.model.objects import LabelSelectorSpec, ObjectMeta, PodDisruptionBudget, PodDisruptionBudgetSpec
from dovetail.model.verdicts import Gate
from dovetail.sim.checks.small_clusters import small_catalogue
from dovetail.sim.ledger import Result, RunLedger
from dovetail.sim.run import run_scenario
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.sim.world.clock import HOUR, MINUTE, SECOND
from dovetail.sim.world.karpenter import loop
from dovetail.sim.world.karpenter.loop import LoopDecider
from dovetail.sim.world.karpenter.node_objects import with_condition
from dovetail.sim.world.world import World, WorldConfig
from tests.support.rogue import QUICK, pool_named, settle, small_world, work


def looking_on(world: World) -> RunLedger:
    """Return a running Karpenter and an observer that records its actions."""
    ledger = RunLedger(world, step=10 * SECOND)
    ledger.begin()
    host = world.add_karpenter()
    ledger.follow(host)
    host.start()
    return ledger


def plain_world(nodes: int, **disruption: Any) -> World:
    """Return a world with one machine type, so that nodes can be deleted but never replaced by cheaper ones."""
    medium = tuple(kind for kind in small_catalogue().instance_types if kind.name == "medium")
    world = World(WorldConfig(catalogue=dataclasses.replace(small_catalogue(), instance_types=medium), times=QUICK))
    world.add_pool(pool_named(budgets=[{"nodes": "100%"}], **disruption))
    for index in range(nodes):
        world.add_node("blue", "medium", "zone-a", "on-demand", age=2 * HOUR, name=f"n{index}")
    return world


def closed(ledger: RunLedger) -> Result:
    """Return the result so far."""
    return ledger.result("karpenter-1.15", ())


def test_only_pods_and_nodes_that_come_and_go_count_as_change() -> None:
    """Bound or deleted pods and joining or leaving nodes are changes, as are five minutes; a condition is not."""
    world = small_world(nodes=2)
    world.workloads.add(work(replicas=2))
    settle(world, 5)
    state = world.consolidation
    before = state.version()
    claim = world.store.claims["n0"]
    conditions = with_condition(claim.status.conditions, "Consolidatable", "True", world.clock.instant())
    world.put(replace(claim, status=replace(claim.status, conditions=conditions)))
    assert state.version() == before
    world.workloads.scale("ReplicaSet", "default/web", 3)
    settle(world, 5)
    grown = state.version()
    assert grown != before
    world.workloads.scale("ReplicaSet", "default/web", 2)
    settle(world, 5)
    shrunk = state.version()
    assert shrunk != grown
    world.add_node("blue", "medium", "zone-a", "on-demand", name="late")
    joined = state.version()
    assert joined != shrunk
    world.run(world.now + 4 * MINUTE)
    assert state.version() == joined
    world.run(world.now + MINUTE)
    assert state.version() != joined


@pytest.mark.parametrize(("stirred", "waits"), [(False, True), (True, False)])
def test_loop_that_found_nothing_waits_for_a_change(stirred: bool, waits: bool) -> None:
    """A node that becomes consolidatable later waits for a pod change, at most five minutes."""
    world = plain_world(3)
    world.workloads.add(work("big", replicas=2, cpu="2900m"))
    world.workloads.add(work("late", cpu="200m", replicas=1))
    ledger = looking_on(world)
    world.run(35 * SECOND)
    world.workloads.add(work("more", cpu="700m", replicas=1))  # its node is not yet consolidatable at 40 s
    world.run(100 * SECOND)
    assert not closed(ledger).commands
    if stirred:
        world.workloads.scale("ReplicaSet", "default/late", 2)
    world.run(200 * SECOND)
    assert (not closed(ledger).commands) is waits
    world.run(420 * SECOND)
    assert closed(ledger).commands


def test_one_command_at_a_time_is_validated() -> None:
    """The loop sleeps for fifteen seconds, so no two commands begin within them."""
    world = small_world(nodes=8, budgets=[{"nodes": "100%"}], consolidateAfter="5s")
    for index in range(8):
        world.workloads.add(work(f"w{index}", replicas=1, cpu="1500m"))
    ledger = looking_on(world)
    world.run(10 * MINUTE)
    times = [entry.at for entry in closed(ledger).commands]
    assert len(times) > 1
    assert all(later - earlier >= 15 for earlier, later in pairwise(times))


def test_destinations_are_nominated_for_twenty_seconds() -> None:
    """From the start of a command, the target nodes of its pods are not disrupted."""
    world = plain_world(3, consolidateAfter="5s")
    for index in range(3):
        world.workloads.add(work(f"w{index}", replicas=1, cpu="500m"))
    ledger = looking_on(world)
    while not closed(ledger).commands and world.now < 5 * MINUTE:
        world.run(world.now + SECOND)
    gone = closed(ledger).commands[0].nodes
    kept = set(world.store.nodes) - set(gone)
    world.run(world.now + SECOND)
    assert set(world.provisioner.nominated) & kept
    world.run(world.now + 30 * SECOND)
    assert not world.provisioner.nominated


def test_pods_still_on_a_draining_node_get_room_at_once() -> None:
    """The provisioner places them together with pending pods: one node for all."""
    world = small_world(nodes=1)
    world.put(
        PodDisruptionBudget(
            metadata=ObjectMeta(name="web", namespace="default"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelectorSpec(match_labels={"app": "web"}), max_unavailable=1),
        )
    )
    world.workloads.add(work(replicas=3, cpu="1"))
    settle(world, 20)
    world.karpenter.delete("n0")
    world.run(world.now + 3 * SECOND)
    opened = [claim for name, claim in world.store.claims.items() if name != "n0"]
    assert [claim.spec.resources.requests["cpu"] for claim in opened] == ["3"]
    settle(world, 120)
    assert "n0" not in world.store.nodes
    assert len(world.store.nodes) == 1


def test_drifted_nodes_go_at_once_without_a_validation() -> None:
    """Karpenter validates empty and underutilized nodes after 15 seconds, but begins to replace a drifted one at once.

    After each it looks again as soon as it knows the machine that it launched, until the budget is used up.
    """
    world = plain_world(3, consolidateAfter="Never")
    world.workloads.add(work("big", replicas=3, cpu="2900m"))
    ledger = looking_on(world)
    world.run(60 * SECOND)
    world.set_template_labels("blue", {"team": "b"}, within=0)
    world.run(2 * MINUTE)
    found = closed(ledger)
    assert [mark.action for mark in found.commands] == ["replaceDrifted"] * 3
    assert found.commands[0].at - 60 <= 11
    assert all(later.at - mark.at < 15 for mark, later in pairwise(found.commands))


def test_the_dice_do_not_count_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day in which every round is asked twice, the first answer thrown away, is the same day."""
    scenario = load_scenario("issue-7146")
    karpenter = scenario.policy("karpenter-1.15")
    once, extra = run_scenario(scenario, karpenter, 3, until=90 * MINUTE), []
    ask = LoopDecider.round

    def asked_twice(self: LoopDecider, question: Question) -> RoundResult:
        extra.append(ask(LoopDecider(self._state, self._dice), question))
        return ask(self, question)

    monkeypatch.setattr(LoopDecider, "round", asked_twice)
    assert run_scenario(scenario, karpenter, 3, until=90 * MINUTE) == once
    assert once.commands
    assert any(not result.commands for result in extra)


@pytest.mark.parametrize("name", ["karpenter-1.15", "savings-threshold"])
def test_skipped_rounds_would_have_decided_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A course in which every round is asked has the same commands, pods and bill as one in which most are skipped."""
    scenario = load_scenario("issue-7146")
    skipped = run_scenario(scenario, scenario.policy(name), 3, until=30 * MINUTE)
    monkeypatch.setattr(Question, "asks_the_same", lambda *_, until: False)
    asked = run_scenario(scenario, scenario.policy(name), 3, until=30 * MINUTE)
    assert asked.rounds > 1.5 * skipped.rounds
    assert skipped.commands
    when_told = dataclasses.replace(skipped.series, gates=asked.series.gates)  # verdicts are reported with rounds
    assert dataclasses.replace(skipped, rounds=asked.rounds, series=when_told) == asked


@pytest.mark.parametrize("name", ["issue-7146", "batch-churn"])
def test_simulations_that_stop_early_decide_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's simulations stop at the first pod for a starting node; whole ones find the same, in the same words."""
    told: list[RoundResult] = []
    stopped = 0

    def both(asked: Work, *, without: tuple[Method, ...] = ()) -> RoundResult:
        nonlocal stopped
        whole, found = decide(Work(asked.scene), without=without), decide(asked, without=without)
        refused = [entry for entry in asked.unscored.values() if isinstance(entry, Refusal) and entry is not STARTING]
        stopped += sum(entry.gate is Gate.UNINITIALIZED_DESTINATION and not entry.simulated for entry in refused)
        assert (found.commands, found.next_change) == (whole.commands, whole.next_change)
        assert (found.blocked, found.could_save) == (whole.blocked, whole.could_save)
        assert found.brief_verdicts == whole.brief_verdicts
        assert [found.why(entry.node) for entry in found.brief_verdicts] == [
            whole.why(entry.node) for entry in whole.brief_verdicts
        ]
        told.append(found)
        return found

    monkeypatch.setattr(loop, "decide", both)
    scenario = load_scenario(name)
    policy = next(entry for entry in scenario.policies if entry.name == "karpenter-1.15")
    run_scenario(scenario, policy, 0, 20 * MINUTE)
    assert any(result.commands for result in told)
    assert stopped
