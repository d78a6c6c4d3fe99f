"""One price (docs/rules.md#one-price): a saving must be expected to last long enough for the restarts that it costs."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.in_flight import InFlight
from dovetail.decide.round import RoundResult
from dovetail.model import names
from dovetail.model.money import parse_money
from dovetail.model.persistence import PRIOR, Persistence, PoolLoad
from dovetail.model.settings import DOVETAIL, Search, Settings
from dovetail.model.timing.duration import HOUR, MINUTE
from dovetail.model.verdicts import GateResult
from dovetail.model.waste import Wasted
from tests.support.design_world import NOW, Town, kind, stamp

VALUE = replace(DOVETAIL, search=Search.VALUE)
PAID_TWICE = Fraction(2, 60)
"""For how many hours a node that goes is paid beside those that take over."""


def _town(
    price: str, settings: Settings = DOVETAIL, *, pods: int = 20, owner: str = "ReplicaSet", **more: object
) -> Town:
    """Build two nodes of $0.10; the pods of the first fit on the second, which takes no more."""
    town = Town(kind("m", "0.10", cpu=4), settings=settings)
    town.pool(disruption={"restartPrice": price, **more}, limits={"nodes": "0"})
    for name in ("busy", "rest"):
        town.node(name, "m")
    owners = [{"apiVersion": "v1", "kind": owner, "name": "rs", "uid": "rs"}]
    town.fill("busy", pods, cpu="50m", ownerReferences=owners)
    town.fill("rest", 79 - pods, cpu="50m")
    return town


def _shown(learned: int = PRIOR, calm: timedelta | None = None, removals: int = 3) -> dict[str, Persistence]:
    since = None if calm is None else NOW - calm
    return {"default": Persistence(learned=learned, removals=removals, calm_since=since)}


def _gate(result: RoundResult) -> GateResult:
    verdict = next(entry for entry in result.verdicts if entry.node == "busy")
    assert verdict.verdict == "restart-price"
    return verdict.gates[-1]


@pytest.mark.parametrize("settings", [DOVETAIL, VALUE], ids=["prefix", "value"])
@pytest.mark.parametrize(
    ("price", "lasts", "goes"),
    [
        ("0.001", 14 * MINUTE, True),  # 20 pods: $0.02 + 2 minutes of $0.10 = 0.0233, just what it saves
        ("0.0011", 14 * MINUTE, False),
        ("0.0025", 32 * MINUTE, True),
        ("0.0025", 32 * MINUTE - 1, False),
        ("56m", 16 * MINUTE, True),  # a fourth of the node, so 14 minutes of its price, and 2 of the drain
        ("57m", 16 * MINUTE, False),
        ("168s/cpu", 16 * MINUTE, True),  # a CPU is a fourth of the node: 20 restarts are 14 minutes of its price
        ("169s/cpu", 16 * MINUTE, False),
    ],
)
def test_savings_must_last_long_enough(settings: Settings, price: str, lasts: int, goes: bool) -> None:
    """It goes at once if savings x expected duration reach the price of its restarts and of the drain, exactly."""
    result = _town(price, settings).round(persistence=_shown(lasts))
    assert bool(result.commands) == goes
    if goes:
        assert result.commands[0].nodes == ("busy",)


@pytest.mark.parametrize(
    ("calm", "goes"),
    [(None, False), (4.0, True), (2.14, True), (2.13, False)],
    ids=["nothing shown", "calm", "just", "no"],
)
def test_a_calm_pool_takes_what_a_restless_one_does_not(calm: float | None, goes: bool) -> None:
    """A load that was level for so long is expected to stay so for a third of that."""
    town = _town("0.0034")  # 20 x 0.0034 + 2 minutes of 0.10 = $0.0713, the savings of almost 43 minutes
    found = town.round(persistence=_shown(calm=None if calm is None else timedelta(hours=calm)))
    assert bool(found.commands) == goes


def _aged(pods: float, opened: float, young: int = 0) -> Town:
    """Build three nodes that nobody watched; the pods are so many hours old, but for some of a minute."""
    town = Town(kind("m", "0.10", cpu=4), settings=DOVETAIL)
    town.pool(disruption={"restartPrice": "1"}, limits={"nodes": "0"})
    for name in ("full", "rest"):
        town.node(name, "m", age=timedelta(hours=20))
    town.node("busy", "m", age=timedelta(hours=opened))
    for number in range(158):
        age = timedelta(minutes=1) if number < young else timedelta(hours=pods)
        node = "busy" if number < 20 else "rest" if number < 79 else "full"
        town.pod(f"p{number:03}", node, cpu="50m", creationTimestamp=stamp(NOW - age))
    return town


@pytest.mark.parametrize(
    ("pods", "opened", "young", "lasts"),
    [
        (10, 20, 0, 54),
        (2, 20, 0, 40),
        (10, 2, 0, 40),
        (10, 0.75, 0, 16),
        (0.5, 20, 0, 16),
        (10, 20, 80, 54),
        (10, 20, 81, 16),
    ],
    ids=[
        "long calm",
        "pods of 2 h",
        "a machine of 2 h",
        "new machine",
        "new pods",
        "a node of young pods",
        "more of them",
    ],
)
def test_a_capture_is_as_calm_as_its_objects_are_old(pods: float, opened: float, young: int, lasts: int) -> None:
    """Nobody watched: objects of many hours say that savings last longer. What was seen counts instead of that."""
    town = _aged(pods, opened, young)
    assert f"such savings are expected to last {lasts}m here" in _gate(town.round()).why
    assert "such savings lasted 9m here" in _gate(town.round(persistence=_shown(9 * MINUTE))).why


def test_machines_that_dovetail_launched_are_no_sign_of_unrest() -> None:
    """Only a provisioner's new machine ends the calm."""
    town = _aged(10, 0.5)
    assert "last 16m here" in _gate(town.round()).why
    town.claims["busy"].metadata.annotations[names.COMMAND] = "c1"
    assert "last 54m here" in _gate(town.round()).why


def test_the_gate_says_it_in_one_sentence() -> None:
    """Savings, how long such savings lasted, the worth of the restarts, and when it goes, which is the next look."""
    town = _town("0.005", pods=6)
    found = town.round(persistence=_shown(calm=timedelta(minutes=57)))
    gate = _gate(found)
    worth = 6 * Fraction("0.005") + PAID_TWICE / 10
    due = NOW - timedelta(minutes=57) + timedelta(hours=float(worth * 10 * 3))
    at = due.strftime("%H:%M:%S")
    assert gate.why == (
        f"It saves $0.10/h; such savings lasted 19m here; 6 restarts are worth $0.0333: not yet, at 2026-05-13T{at}Z."
    )
    assert dict(gate.figures) == {
        "savingsPerHour": "0.10",
        "expectedDuration": "19m",
        "restarts": 6,
        "restartsWorth": "0.0333333333",
        "at": f"2026-05-13T{at}Z",
    }
    assert found.next_change == due
    town.now = due
    shown = {"default": Persistence(removals=3, calm_since=NOW - timedelta(minutes=57))}
    assert town.round(persistence=shown).commands
    town.now = due - timedelta(microseconds=1)
    assert not town.round(persistence=shown).commands


def test_a_pool_that_has_shown_nothing_says_so() -> None:
    """What the objects say, an hour old, is an expectation, not something that was seen."""
    assert "such savings are expected to last 20m here" in _gate(_town("0.005").round()).why


@pytest.mark.parametrize(("owner", "factor"), [("ReplicaSet", 1), ("Job", 2)])
def test_later_when_as_much_was_wasted(owner: str, factor: int) -> None:
    """Once a node has wasted what its restarts are worth it goes, if 45 minutes of its savings pay for them."""
    town = _town("0.002", replace(DOVETAIL, jobs_wait=True), owner=owner)
    for amount, goes in (("0.039999", False), ("0.04", True)):
        money = parse_money(amount) * factor
        waste = {"busy": Wasted(amount=money, rate=parse_money("0.1"), at=NOW)}
        assert bool(town.round(waste=waste).commands) == goes
    dear = _town("0.0036", replace(DOVETAIL, jobs_wait=True), owner=owner)
    wasted = {"busy": Wasted(amount=parse_money(1), rate=parse_money("0.1"), at=NOW)}
    assert not dear.round(waste=wasted).commands, "$0.0753 are more than 45 minutes of $0.10"
    calm = _shown(calm=timedelta(hours=4))
    assert dear.round(waste=wasted, persistence=calm).commands


@pytest.mark.parametrize("launch", [0, 10 * MINUTE])
def test_a_launch_has_a_price(launch: int) -> None:
    """A replacement has to earn some minutes of its own price too."""
    town = Town(kind("old", "0.20", cpu=4), kind("new", "0.10", cpu=4), settings=replace(DOVETAIL, launch_price=launch))
    town.pool(disruption={"restartPrice": "0.001"})
    town.node("busy", "old")
    town.fill("busy", 10, cpu="300m")
    cost = 10 * Fraction("0.001") + PAID_TWICE * Fraction("0.2") + Fraction(launch, HOUR) * Fraction("0.1")
    enough = -(-cost * 10 * HOUR // 1)
    assert town.round(persistence=_shown(int(enough))).commands[0].replacements
    assert not town.round(persistence=_shown(int(enough) - 1)).commands


def test_a_node_that_was_launched_to_save_money_earns_its_cost_first() -> None:
    """Until then it is no source of a cost command, unless it is empty; the round looks again when it has."""
    town = _town("0.0001")
    until = NOW + timedelta(minutes=7)
    assert town.round().commands
    held = town.round(earning={"claim-busy": until, "claim-rest": until})
    assert not held.commands
    assert "has not earned what that cost: not yet, at 2026-05-13T15:37:00Z" in _gate(held).why
    assert held.next_change == until
    town.pods = {}
    assert {name for command in town.round(earning={"claim-busy": until}).commands for name in command.nodes}


@pytest.mark.parametrize("settings", [DOVETAIL, VALUE], ids=["prefix", "value"])
@pytest.mark.parametrize("wasted", [False, True])
def test_it_earns_its_cost_first_where_disruption_has_a_price(settings: Settings, wasted: bool) -> None:
    """The same in pools with `disruptionPrice`: at once and by waste; other nodes go as ever."""
    town = Town(kind("m", "0.10", cpu=4), settings=settings)
    town.pool(disruption={"disruptionPrice": 0.001, "consolidationSavingsThreshold": 1 if wasted else 0.0001})
    for name in ("busy", "rest"):
        town.node(name, "m")
        town.fill(name, 20, cpu="50m")
    waste = {name: Wasted(amount=parse_money("0.05"), rate=0, at=NOW) for name in town.nodes} if wasted else {}
    until = NOW + timedelta(minutes=7)
    assert town.round(waste=waste).commands
    held = town.round(waste=waste, earning={"claim-busy": until, "claim-rest": until})
    assert not held.commands
    gate = _gate(held)
    told = "A command that saves money launched it, and it has not earned what that cost"
    assert gate.why == f"{told}: not yet, at 2026-05-13T15:37:00Z."
    assert (gate.figures["at"], gate.figures["expectedDuration"]) == ("2026-05-13T15:37:00Z", None)
    assert held.next_change == until
    assert town.round(waste=waste, earning={"claim-busy": until}).commands[0].nodes == ("rest",)
    assert town.round(waste=waste, earning={"claim-busy": NOW, "claim-rest": NOW}).commands
    town.pods = {}
    assert town.round(earning={"claim-busy": until, "claim-rest": until}).commands, "an empty node goes"


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        ({}, True),
        ({"consolidationSavingsThreshold": 0.01}, True),
        ({"consolidationSavingsThreshold": 0.011}, False),
        ({"consolidationSavingsThreshold": 0.005}, True),
    ],
    ids=["unset", "as the CRD fills it in", "a person's", "a lower one"],
)
def test_a_threshold_that_a_pool_sets_holds_beside_it(fields: dict[str, float], goes: bool) -> None:
    """The default of 0.01 counts as unset; any other value still has to be saved."""
    assert bool(_town("0.0001", **fields).round().commands) == goes
    wasted = {"busy": Wasted(amount=parse_money(1), rate=parse_money("0.1"), at=NOW)}
    late = _town("0.0001", **fields).round(waste=wasted)
    assert bool(late.commands) == goes, "waste is no way round it"
    assert {entry.verdict for entry in late.verdicts if not goes} <= {"savings-threshold"}
    both = _town("0.0001", disruptionPrice=0.001, **fields)
    assert both.round(waste=wasted).commands, "but with a disruptionPrice it is"


def test_the_command_knows_when_it_has_paid() -> None:
    """Restarts and launches over savings: after so long the nodes that it launched have earned their cost."""
    (command,) = _town("0.001").round().commands
    assert command.pays_after == HOUR // 5


def test_the_load_of_a_pool() -> None:
    """The requests of all pods that would move, and what an average node has; only for pools that price restarts."""
    town = _town("0.001")
    found = Decider().round(replace(town.question(), in_flight=InFlight(nominated=("busy", "rest")))).loads
    assert found == {"default": PoolLoad(total=(79 * 50, 79 * 64 * 2**20), node=(4000, 16 * 2**30), prior=20 * MINUTE)}
    town.pool(disruption={})
    assert town.round().loads == {}
