"""`plan --to-end`: round after round on the capture, each applied as planned, until nothing is left."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.api.commitments import read_commitments
from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.money import UNIT
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.plan.apply import apply_commands
from dovetail.plan.to_end import plan_to_end
from tests.support.design_world import Town, kind
from tests.support.golden_cases import golden_case


def _question(town: Town) -> Question:
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


def _town() -> Town:
    """Return two empty nodes, two half-full ones that fit together, one drifted."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0, "budgets": [{"nodes": "1"}]})
    town.node("empty-1", "m")
    town.node("empty-2", "m")
    town.node("half-1", "m")
    town.fill("half-1", 2, cpu="900m")
    town.node("half-2", "m")
    town.fill("half-2", 2, cpu="900m")
    town.node("old", "l", drifted=timedelta(hours=2))
    town.fill("old", 2, cpu="1900m")
    return town


def test_every_round_is_the_plan_of_what_the_rounds_before_left() -> None:
    """Each step's commands are what `plan` says on the cluster that the steps before it left behind."""
    question = _question(_town())
    plan = plan_to_end(question)
    assert len(plan.steps) == 3
    opened = 0
    for step in plan.steps:
        assert Decider().round(question).commands == step.commands
        applied = apply_commands(question.cluster, step.commands, question.catalogue, question.now, opened + 1)
        opened += sum(map(len, applied.launched))
        question = Question(
            cluster=applied.cluster, catalogue=question.catalogue, settings=question.settings, now=question.now
        )
    assert Decider().round(question).commands == ()
    assert plan.complete


def test_budgets_hold_within_a_round_and_commands_have_ended_before_the_next() -> None:
    """A budget of one node allows one node per round; two empty nodes take two rounds."""
    plan = plan_to_end(_question(_town()))
    assert all(sum(len(command.nodes) for command in step.commands) == 1 for step in plan.steps)
    assert [step.commands[0].action.value for step in plan.steps][:2] == ["deleteEmpty", "deleteEmpty"]


def test_running_totals_add_up() -> None:
    """Cost and savings of every step add up to the initial cost; restarts are those of the commands so far."""
    town = _town()
    plan = plan_to_end(_question(town))
    start = 4 * UNIT // 5 + 2 * UNIT // 5
    moved = 0
    for step in plan.steps:
        moved += sum(command.pods for command in step.commands)
        assert step.cost + step.saved == start
        assert step.pods_moved == moved
    document = plan.to_dict()
    assert [entry["round"] for entry in document["steps"]] == list(range(1, len(plan.steps) + 1))
    assert set(document["steps"][0]) == {"round", "actions", "costPerHour", "savedPerHour", "podsMoved"}
    last, end = document["steps"][-1], document["end"]
    assert {key: end[key] for key in ("costPerHour", "savedPerHour", "podsMoved")} == {
        key: last[key] for key in ("costPerHour", "savedPerHour", "podsMoved")
    }
    assert end["commands"] == sum(len(entry["actions"]) for entry in document["steps"])
    assert end["nodes"] == plan.nodes < 5


def test_a_replacement_is_the_cheapest_machine_and_carries_its_pods() -> None:
    """The pods of a node that is replaced are bound to a new, initialized node of the cheapest type and zone."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4), kind("s", "0.10", cpu=2))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("wide", "l", zone="b")
    town.fill("wide", 2, cpu="1500m", spec={"nodeSelector": {names.ZONE: "b"}})
    question = _question(town)
    commands = Decider().round(question).commands
    applied = apply_commands(question.cluster, commands, question.catalogue, question.now)
    (node,) = applied.cluster.nodes
    assert node.metadata.labels[names.INSTANCE_TYPE] == "m"
    assert node.metadata.labels[names.ZONE] == "b"
    assert node.metadata.labels[names.INITIALIZED_LABEL] == "true"
    assert {pod.spec.node_name for pod in applied.cluster.pods} == {node.metadata.name}
    (claim,) = applied.cluster.node_claims
    assert claim.status.provider_id == node.spec.provider_id
    assert plan_to_end(question).to_dict()["end"]["costPerHour"] == "0.2"


@pytest.mark.parametrize("commitments", [[], [{"name": "p", "kind": "SavingsPlan", "hourly": "0.1", "rates": "28%"}]])
def test_the_end_saves_what_the_commands_promise(commitments: list[object]) -> None:
    """A new node costs what its command counts with, the highest price of its zones, not the lowest."""
    town = Town(kind("l", "0.40", cpu=8), *_unlike_zones())
    town.settings = replace(town.settings, commitments=read_commitments(commitments, "settings"))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("wide", "l")
    town.fill("wide", 2, cpu="1500m")
    plan = plan_to_end(_question(town))
    (command,) = (command for step in plan.steps for command in step.commands)
    assert command.action.value == "replaceCost"
    assert plan.saved == command.savings


def _unlike_zones() -> list[InstanceType]:
    """Return a type that costs $0.20 in the dearest zone and $0.10 in the others, and one that costs $0.21 in all."""
    even, uneven = kind("even", "0.21", cpu=4), kind("uneven", "0.20", cpu=4)
    last = max(offering.zone for offering in uneven.offerings)
    offers = (
        o if o.zone == last else replace(o, price=o.price // 2, price_float=o.price_float / 2) for o in uneven.offerings
    )
    return [even, replace(uneven, offerings=tuple(offers))]


@pytest.mark.parametrize("case", ["003", "E02", "E22", "P56"])
@pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["dovetail", "karpenter"])
def test_the_end_of_golden_clusters_is_the_sum_of_the_commands(case: str, settings: Settings) -> None:
    """P56 is a static pool: the same machine comes back, and the commands promise no savings."""
    given = golden_case(case)
    plan = plan_to_end(Question(cluster=given.cluster, catalogue=given.catalogue, settings=settings, now=given.now))
    assert plan.steps
    assert plan.saved == sum(command.savings for step in plan.steps for command in step.commands)


@pytest.mark.parametrize(("case", "hourly"), [("P30", 0.1), ("P30", 0.5), ("045", 2)])
def test_leaving_nodes_that_use_a_commitment_change_no_promise(case: str, hourly: float) -> None:
    """A plan that covers leaving nodes covers others once they are gone; each round saves what its commands say."""
    given = golden_case(case)
    plan = [{"name": "plan", "kind": "SavingsPlan", "hourly": hourly, "rates": "28%"}]
    settings = replace(DOVETAIL, commitments=read_commitments(plan, "settings"))
    end = plan_to_end(Question(cluster=given.cluster, catalogue=given.catalogue, settings=settings, now=given.now), 5)
    saved = 0
    for step in end.steps:
        saved += sum(command.savings for command in step.commands)
        assert step.saved == pytest.approx(saved, abs=10)
        assert step.cost == end.first.cost_per_hour - step.saved
    assert saved


def test_daemons_go_with_their_node_and_pods_that_nobody_placed_wait() -> None:
    """DaemonSet pods of a removed node are dropped; nothing else is lost."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("a", "m")
    town.node("b", "m")
    owner = {"kind": "DaemonSet", "apiVersion": "apps/v1", "name": "agent", "uid": "u"}
    town.pod("agent-a", "a", ownerReferences=[owner])
    town.pod("web", "b")
    question = _question(town)
    commands = Decider().round(question).commands
    assert [command.nodes for command in commands] == [("a",)]
    applied = apply_commands(question.cluster, commands, question.catalogue, question.now)
    assert [pod.metadata.name for pod in applied.cluster.pods] == ["web"]


def test_rounds_are_limited() -> None:
    """`--rounds 1` stops after one round and reports that more are left."""
    plan = plan_to_end(_question(_town()), 1)
    assert len(plan.steps) == 1
    assert not plan.complete


def test_timers_that_open_later_are_not_waited_for() -> None:
    """A node within its consolidateAfter stays to the end."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidateAfter": "2h"})
    town.node("a", "m")
    assert plan_to_end(_question(town)).steps == ()
