"""Validation of a command on fresh state before it is executed."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight
from dovetail.decide.question import CostHold
from dovetail.decide.refusal import Refusal
from dovetail.decide.round import plan_round
from dovetail.model import names
from dovetail.model.command import Command, Method
from dovetail.model.verdicts import Gate
from tests.support.design_world import NOW, Town, kind

CHEAP = {"consolidationSavingsThreshold": 0}
LATER = NOW + timedelta(minutes=2)
SETTLES = (
    "An action of method empty in NodePool x has just finished: cost actions in NodePool default wait for the pool to "
    "settle"
)


def _again(town: Town, command: Command) -> Command | Refusal:
    return Decider(memory=False).revalidate(command, town.question())


def _decided(town: Town) -> Command:
    command = town.act()
    assert command is not None
    return command


def _replacing() -> Town:
    """Return a node that a smaller one could replace."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption=CHEAP)
    town.node("n", "l")
    town.fill("n", 2, cpu="1000m")
    return town


def _deleting() -> Town:
    """Return a node whose pods fit on another."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption=CHEAP)
    town.node("a", "m")
    town.fill("a", 1)
    town.node("b", "m")
    town.fill("b", 2)
    return town


def test_nothing_changed() -> None:
    """On the same state the command is valid, with current placements."""
    for town in (_replacing(), _deleting()):
        command = _decided(town)
        assert _again(town, command) == command


@pytest.mark.parametrize(
    ("gate", "change"),
    [
        (Gate.NOMINATED, lambda town: setattr(town, "nominated", ("a",))),
        (Gate.NODE_DO_NOT_DISRUPT, lambda town: town.node("a", "m", annotations={names.DO_NOT_DISRUPT: "true"})),
        (Gate.POD_DO_NOT_DISRUPT, lambda town: town.pod("x", "a", annotations={names.DO_NOT_DISRUPT: "true"})),
        (Gate.MANAGED, lambda town: town.remove("a")),
        (Gate.BUDGET, lambda town: town.pool(disruption={**CHEAP, "budgets": [{"nodes": "0"}]})),
        (Gate.CONSOLIDATE_AFTER, lambda town: town.pool(disruption={**CHEAP, "consolidateAfter": "2h"})),
        (Gate.GRACE_PERIOD, lambda town: town.pool(disruption={**CHEAP, "consolidationGracePeriod": "2h"})),
        (Gate.PRICE, lambda town: town.pod("big", "b", cpu="3750m")),
        (Gate.SAVINGS_THRESHOLD, lambda town: town.pool(disruption={"consolidationSavingsThreshold": 1})),
    ],
    ids=lambda value: value.value if isinstance(value, Gate) else "",
)
def test_what_stops_it(gate: Gate, change: Any) -> None:
    """A closed gate, a used-up budget or missing room refuses the command and is named."""
    town = _deleting()
    command = _decided(town)
    assert command.nodes == ("a",)
    change(town)
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is gate


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"settling": {"default": CostHold(until=LATER, after="an action of method empty in NodePool x")}}, SETTLES),
        (
            {"settling_nodes": {"a": CostHold(until=LATER)}},
            "An action has just finished: no cost action takes",
        ),
        ({"in_flight": InFlight(regrown={"default": LATER})}, "The last cost action in NodePool default did not hold"),
        ({"settling": {"other": CostHold(until=LATER)}}, ""),
        ({"settling_nodes": {"b": CostHold(until=LATER)}}, ""),
        ({"settling": {"default": CostHold(until=NOW)}}, ""),
    ],
)
def test_what_a_cost_command_waits_for(change: dict[str, Any], why: str) -> None:
    """A pool that settles, a node that does, or a cost action that did not hold refuses a cost command; others don't.

    The round and the validation give the same gate and the same sentence.
    """
    town = _deleting()
    command = _decided(town)
    question = town.question(**change)
    answer = Decider(memory=False).revalidate(command, question)
    verdict = next(entry for entry in plan_round(question).verdicts if entry.node == "a")
    if not why:
        assert (answer, verdict.verdict) == (command, "eligible")
        return
    assert isinstance(answer, Refusal)
    assert (answer.gate, answer.why) == (Gate.STABILIZATION, f"a: {verdict.why}")
    assert verdict.verdict == Gate.STABILIZATION.value
    assert verdict.why.startswith(why)
    assert verdict.why.endswith("2m more.")


def test_another_command_took_the_budget() -> None:
    """Other commands in flight use up the budget during validation too."""
    town = _deleting()
    town.pool(disruption={**CHEAP, "budgets": [{"nodes": "1"}]})
    town.node("c", "m")
    command = Command(action=_decided(_deleting()).action, method=Method.SINGLE_NODE, nodes=("a",), pods=1)
    town.mark(Command(action=command.action, method=Method.EMPTY, nodes=("c",)))
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.BUDGET


def test_room_that_has_come_calls_for_a_new_decision() -> None:
    """A command is dropped if its replacement is no longer needed."""
    town = _replacing()
    command = _decided(town)
    town.node("fresh", "m")
    town.pod("busy", "fresh")
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.NEW_NODES


def test_a_replacement_that_would_not_do_any_more() -> None:
    """A command is refused if its pods no longer fit the planned type."""
    town = _replacing()
    command = _decided(town)
    town.pod("more", "n", cpu="3000m")
    again = _again(town, command)
    assert isinstance(again, Refusal)


def test_another_type_would_do_but_it_was_not_planned() -> None:
    """A command is refused if its pods outgrow one of the planned types, even if the other fits."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4), kind("x", "0.30", cpu=6))
    town.pool(disruption=CHEAP)
    town.node("n", "l")
    town.fill("n", 2, cpu="1000m")
    command = _decided(town)
    assert command.replacements[0].instance_types == ("m", "x")
    assert _again(town, command) == command
    town.pod("more", "n", cpu="2500m")
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.NEW_NODES


def test_a_price_that_has_risen() -> None:
    """A command is refused at the price gate if the planned type now costs as much as the node."""
    town = _replacing()
    command = _decided(town)
    town.kinds["m"] = kind("m", "0.40", cpu=4)
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.PRICE


def test_empty_nodes_drop_out_one_by_one() -> None:
    """Nodes that got a pod drop out of a command for empty nodes; the others go."""
    town = Town(kind("m", "0.20"))
    town.pool()
    for name in ("a", "b", "c"):
        town.node(name, "m")
    command = _decided(town)
    town.pod("late", "b")
    again = _again(town, command)
    assert isinstance(again, Command)
    assert again.nodes == ("a", "c")
    town.pod("later", "a")
    town.pod("latest", "c")
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.NOT_EMPTY


def test_drift_waits_for_its_zone() -> None:
    """A drifted node is refused if its zone is no longer the active one (topology-budgets)."""
    budget = {"nodes": "1", "topologyKey": names.ZONE, "sequential": True, "reasons": ["Drifted"]}
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"budgets": [budget], "consolidateAfter": "Never"})
    for name, zone in (("a0", "a"), ("b0", "b"), ("b1", "b")):
        town.node(name, "m", zone=zone, drifted=timedelta(hours=1))
        town.fill(name, 1)
    command = _decided(town)
    assert command.nodes == ("a0",)
    town.mark(Command(action=command.action, method=Method.DRIFTED, nodes=("b1",)))
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.TOPOLOGY_BUDGET


def test_drift_that_was_mended() -> None:
    """A node without the condition Drifted is not replaced."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidateAfter": "Never"})
    town.node("n", "m", drifted=timedelta(hours=1))
    town.fill("n", 1)
    command = _decided(town)
    claim = town.claims["n"]
    calm = tuple(c for c in claim.status.conditions if c.type != "Drifted")
    status = msgspec.structs.replace(claim.status, conditions=calm)
    town.claims["n"] = msgspec.structs.replace(claim, status=status)
    again = _again(town, command)
    assert isinstance(again, Refusal)
    assert again.gate is Gate.NOT_DRIFTED


def test_a_replacement_of_another_pool_is_another_command() -> None:
    """If the simulation would now launch the same types in another pool, the planned replacement is refused."""
    for weight, refused in ((0, False), (50, True)):
        town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
        town.pool(disruption=CHEAP, weight=10)
        town.node("n", "l")
        town.fill("n", 2, cpu="1000m")
        command = _decided(town)
        assert command.replacements[0].node_pool == "default"
        town.pool("other", disruption=CHEAP, weight=weight)
        again = _again(town, command)
        assert isinstance(again, Refusal) is refused
        if isinstance(again, Refusal):
            assert (again.gate, again.why) == (
                Gate.NEW_NODES,
                "The replacement that was planned would not do any more.",
            )
