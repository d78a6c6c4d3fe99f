"""Waste (docs/rules.md#waste): cheap moves happen soon, expensive ones late, and the round knows when to look again."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction

import pytest
from msgspec.structs import replace as change

from dovetail.decide.scene import Scene
from dovetail.decide.waste import could_save
from dovetail.decide.work import Work
from dovetail.lifecycle.memory.waste import WasteBook
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.money import as_float, parse_money
from dovetail.model.persistence import Persistence
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Search, Settings
from dovetail.model.waste import UNSEEN_MAX, Wasted
from tests.support.design_world import NOW, Town, kind

HOUR = timedelta(hours=1)
VALUE = replace(DOVETAIL, search=Search.VALUE)


def _town(settings: Settings = DOVETAIL, *, price: float | None = 0.01, owner: str = "ReplicaSet") -> Town:
    """Build two nodes; the one with 20 pods saves $0.10, needs $0.40 to go at once, and may waste $0.20."""
    town = Town(kind("m", "0.10", cpu=4), settings=settings)
    priced = {} if price is None else {"disruptionPrice": price}
    town.pool(disruption={"consolidationSavingsThreshold": 0.02, **priced}, limits={"nodes": "0"})
    for name in ("busy", "rest"):
        town.node(name, "m")
    owners = [{"apiVersion": "v1", "kind": owner, "name": "rs", "uid": "rs"}]
    town.fill("busy", 20, cpu="50m", ownerReferences=owners)
    town.fill("rest", 25, cpu="50m")
    return town


def _wasted(amount: str, hours_ago: float = 0.0, rate: str = "0.10") -> dict[str, Wasted]:
    at = NOW - hours_ago * HOUR
    return {"busy": Wasted(amount=parse_money(amount), rate=parse_money(rate), at=at)}


@pytest.mark.parametrize("settings", [DOVETAIL, VALUE], ids=["prefix", "value"])
@pytest.mark.parametrize(
    ("waste", "goes"),
    [
        ({}, False),
        (_wasted("0.199999"), False),
        (_wasted("0.20"), True),
        (_wasted("0", hours_ago=1.99), False),
        (_wasted("0", hours_ago=2), True),
    ],
    ids=["nothing wasted", "almost", "just enough", "not long enough", "long enough at its rate"],
)
def test_a_node_goes_when_it_has_wasted_what_disturbing_it_is_worth(
    settings: Settings, waste: dict[str, Wasted], goes: bool
) -> None:
    """$0.10 an hour against 20 pods of a cent each: two hours."""
    result = _town(settings).round(waste=waste)
    assert bool(result.commands) == goes
    if goes:
        assert as_float(result.commands[0].savings) == pytest.approx(0.10)
        assert result.commands[0].required_savings == 0


def test_the_gate_says_what_was_wasted_and_when_it_suffices() -> None:
    """Gate `waste` has the wasted and required money and the time, which is the next change."""
    result = _town().round(waste=_wasted("0.05", hours_ago=0.5))
    verdict = next(entry for entry in result.verdicts if entry.node == "busy")
    figures = verdict.gates[-1].figures
    assert verdict.verdict == "waste"
    assert (figures["wasted"], figures["asked"]) == ("0.10", "0.20")
    assert result.next_change == NOW + HOUR
    assert str(figures["at"]).startswith("2026-05-13T16:30")


def test_the_first_look_already_knows_when_to_look_again() -> None:
    """The first round knows the possible savings, and so the time at which the waste suffices."""
    result = _town().round()
    assert result.could_save["busy"] == parse_money("0.10")
    assert result.next_change == NOW + 2 * HOUR


def test_without_a_price_all_is_as_ever() -> None:
    """Without a price for disruption the savings threshold decides, whatever was wasted."""
    result = _town(price=None).round(waste=_wasted("5"))
    assert result.commands == ()
    assert {entry.verdict for entry in result.verdicts} == {"savings-threshold"}
    assert result.could_save == {}


def test_karpenter_knows_no_waste() -> None:
    """Karpenter's profile has neither the field nor the gate."""
    assert _town(KARPENTER_1_15).round(waste=_wasted("5")).could_save == {}


@pytest.mark.parametrize(("threshold", "jobs", "goes"), [(0.001, False, True), (0.001, True, False)])
def test_what_ends_by_itself_is_not_moved_in_haste(threshold: float, jobs: bool, goes: bool) -> None:
    """With `jobsWait` a node with Jobs goes by waste only, however much it saves."""
    town = _town(replace(DOVETAIL, jobs_wait=True), owner="Job" if jobs else "ReplicaSet")
    town.pool(disruption={"consolidationSavingsThreshold": threshold, "disruptionPrice": 0.01}, limits={"nodes": "0"})
    first = town.round().commands
    assert (bool(first) and first[0].nodes == ("busy",)) == goes
    town.pods = {key: pod for key, pod in town.pods.items() if pod.spec.node_name == "busy"}
    for amount, enough in (("0.399999", not jobs), ("0.40", True)):
        late = town.round(waste=_wasted(amount), every_method=True)
        found = [command.nodes for entry in late.methods[3:] for command in entry.commands]
        assert found == ([("busy",)] if enough else []), "twice as much is asked for where pods of Jobs run"


@pytest.mark.parametrize("settings", [DOVETAIL, VALUE], ids=["prefix", "value"])
@pytest.mark.parametrize(
    ("restless", "price", "threshold", "goes"),
    [
        ({}, 0.01, 0.004, True),
        ({"default": 0.5}, 0.01, 0.004, False),
        ({"default": 0.5}, 0.01, 0.0033, True),
        ({"other": 0.5}, 0.01, 0.004, True),
        ({"default": 0.0}, 0.01, 0.004, True),
        ({"default": 0.5}, None, 0.004, True),
    ],
    ids=["quiet", "restless", "saves enough", "another pool", "no longer", "no price for waste"],
)
def test_a_restless_pool_asks_for_half_as_much_again_at_once(
    settings: Settings, restless: dict[str, float], price: float | None, threshold: float, goes: bool
) -> None:
    """$0.10 for 20 pods, so $0.005 a pod: passes 0.004, not 0.006. Waste counts as ever, and the round looks again."""
    town = _town(settings, price=price)
    priced = {} if price is None else {"disruptionPrice": price}
    town.pool(disruption={"consolidationSavingsThreshold": threshold, **priced}, limits={"nodes": "0"})
    until = {pool: NOW + hours * HOUR for pool, hours in restless.items()}
    found = town.round(restless=until)
    assert bool(found.commands) == goes
    if not goes:
        verdict = next(entry for entry in found.verdicts if entry.node == "busy")
        assert verdict.verdict == "waste"
        assert "half as much again until" in verdict.gates[-1].why
        assert found.next_change == NOW + HOUR / 2
        late = town.round(restless=until, waste=_wasted("0.20"))
        assert [command.nodes for command in late.commands] == [("busy",)]


@pytest.mark.parametrize(("restless", "hours"), [(True, 20), (False, 18)])
def test_ageing_is_seen_in_time_in_a_restless_pool(restless: bool, hours: int) -> None:
    """In a restless pool the required savings fall half as fast again with age, and the round wakes in time."""
    town = _town(price=1.0)
    for name in ("busy", "rest"):
        town.node(name, "m", age=timedelta(0), life="24h")
    found = town.round(restless={"default": NOW + 100 * HOUR} if restless else {})
    assert found.commands == ()
    assert found.next_change == NOW + hours * HOUR


@pytest.mark.parametrize(
    ("hours", "rate", "amount"), [(0.1, "0.10", "0.01"), (0.1, "0.05", "0.005"), (9, "0.10", "0.025")]
)
def test_the_book_takes_the_lesser_rate_and_no_time_that_nobody_saw(hours: float, rate: str, amount: str) -> None:
    """Between two looks the lesser of what both said; after a long time without a look only the first quarter hour."""
    store, book = Store(), WasteBook()
    store.observe(_town().nodes["busy"])
    book.update({"busy": parse_money("0.10")}, store, NOW)
    book.update({"busy": parse_money(rate)}, store, NOW + hours * HOUR)
    assert book.known()["busy"].amount == parse_money(amount)
    assert UNSEEN_MAX == HOUR / 4


def test_waste_is_lost_when_the_node_could_not_go() -> None:
    """A round that finds no place for the pods resets the waste; a round that did not look keeps it."""
    store, book = Store(), WasteBook()
    store.observe(_town().nodes["busy"])
    book.update({"busy": parse_money("0.10")}, store, NOW)
    book.update({}, store, NOW + HOUR / 60)
    assert "busy" in book.known()
    book.update({"busy": None}, store, NOW + HOUR / 30)
    assert book.known() == {}
    book.update({"busy": 1}, store, NOW + HOUR)
    store.vanish("Node", "", "busy")
    book.update({}, store, NOW + HOUR)
    assert book.known() == {}


def test_when_is_the_first_moment_at_which_it_suffices() -> None:
    """`when` and `by` agree to the microsecond."""
    wasted = Wasted(amount=0, rate=parse_money("0.07"), at=NOW)
    asked = Fraction(parse_money("0.01"), 3)
    when = wasted.when(asked)
    assert when is not None
    assert wasted.by(when) >= int(asked)
    assert wasted.by(when - timedelta(microseconds=1)) < asked
    assert change(wasted, rate=0).when(asked) is None


@pytest.mark.parametrize(("cheap", "rate"), [("0.06", "0.04"), ("0.10", None)], ids=["a cheaper machine", "none"])
def test_a_node_whose_pods_need_a_new_one_wastes_what_the_cheaper_one_saves(cheap: str, rate: str | None) -> None:
    """If pods need a new node, the waste is the difference to the cheapest machine."""
    town = Town(kind("m", "0.10", cpu=4), kind("s", cheap, cpu=2))
    town.pool(disruption={"consolidationSavingsThreshold": 0.5, "disruptionPrice": 0.01})
    for name in ("busy", "rest"):
        town.node(name, "m")
        town.pod(f"{name}-1", name, cpu="1500m")
        town.pod(f"{name}-2", name, cpu="100m")
    town.pod("rest-3", "rest", cpu="2000m")
    found = could_save(Work(Scene.of(town.question())))
    assert found["busy"] == (None if rate is None else parse_money(rate))


def _halves(*, starting: bool = False, owner: str = "ReplicaSet") -> Town:
    """Build two half-full nodes of $0.10; one for $0.15 takes the pods of both, and no machine is cheaper for one."""
    town = Town(kind("m", "0.10", cpu=4), kind("big", "0.15", cpu=8), settings=replace(VALUE, jobs_wait=True))
    town.pool(disruption={"restartPrice": "0.005"})
    owners = [{"apiVersion": "v1", "kind": owner, "name": "rs", "uid": "rs"}]
    for name in ("one", "two"):
        town.node(name, "m")
        town.fill(name, 3, cpu="1000m", ownerReferences=owners)
    if starting:
        town.node("new", "big", without=(names.INITIALIZED_LABEL,))
    return town


def test_nodes_that_can_only_go_together_waste_together() -> None:
    """Neither saves anything alone; together they save $0.05, half of it each, and the round knows when to look."""
    result = _halves().round(persistence={"default": Persistence()})
    assert result.commands == ()
    assert result.could_save == {"one": parse_money("0.025"), "two": parse_money("0.025")}
    assert result.next_change == NOW + HOUR * 0.6, "three restarts of half a cent, at $0.025 an hour"


@pytest.mark.parametrize(("wasted", "goes"), [("0.0149", False), ("0.015", True)])
def test_they_go_when_each_has_wasted_enough(wasted: str, goes: bool) -> None:
    """Six restarts of half a cent and two drains cost $0.037: less than 45 minutes of $0.05, more than 16 minutes."""
    waste = {name: Wasted(amount=parse_money(wasted), rate=parse_money("0.025"), at=NOW) for name in ("one", "two")}
    result = _halves().round(waste=waste, persistence={"default": Persistence()})
    assert [command.nodes for command in result.commands] == ([("one", "two")] if goes else [])


@pytest.mark.parametrize("starting", [True, False])
def test_a_machine_that_is_starting_does_not_reset_what_nodes_waste_together(starting: bool) -> None:
    """Nodes whose pods would go to a machine which is starting are not judged until that runs: the book keeps them."""
    found = could_save(Work(Scene.of(_halves(starting=starting).question())))
    assert ("one" in found, "two" in found) == ((False, False) if starting else (True, True))


def test_a_machine_that_is_starting_resets_what_a_node_wastes_alone() -> None:
    """Where machines start all the time, nodes that could go alone would be moved in haste."""
    town = _halves(starting=True)
    town.remove("two")
    assert could_save(Work(Scene.of(town.question()))) == {"one": None}


def test_nodes_with_pods_of_jobs_waste_nothing_together() -> None:
    """Pods of Jobs end by themselves: with `jobsWait` their nodes are not merged."""
    found = could_save(Work(Scene.of(_halves(owner="Job").question())))
    assert found == {"one": None, "two": None}
