"""The upper bound on the value of commands: at least the value of any command, at most the proven optimum's cost."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from dovetail.api.catalogue import load_catalogue
from dovetail.api.reading.decode import load_cluster
from dovetail.decide import waste
from dovetail.decide.decider import Decider
from dovetail.decide.methods.moves import Move, cost_move
from dovetail.decide.optimal import Optimal, optimal_of, value_at_most
from dovetail.decide.question import Question
from dovetail.decide.scene import Scene
from dovetail.decide.search import by_value, dual
from dovetail.decide.search.dual import ValueBound
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Method
from dovetail.model.money import UNIT, Money, as_float, parse_money
from dovetail.model.settings import DOVETAIL, RECOMMENDED, Search, Settings
from dovetail.plan.to_end import plan_to_end
from tests.paths import ROOT, SHARED
from tests.support.design_world import Town, kind
from tests.support.towns import towns

OWN = ROOT / "benchmarks" / "data" / "quality"
VALUE_4 = replace(DOVETAIL, search=Search.VALUE, replacements_max=4)
SETS_MAX = 6
THETA = 0.01
_CONSOLIDATABLE = {"type": names.CONDITION_CONSOLIDATABLE, "status": "True"}
PROVEN = 0.006
"""How far the best known solutions of the set are from what is proven."""


def _optima(folder: Path) -> list[tuple[Path, dict[str, object]]]:
    """Return the folder and the optimum at a threshold of 0.01 of every cluster of a set."""
    file = folder / "optimum.jsonl"
    rows = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    clusters = folder / "clusters" if (folder / "clusters").is_dir() else folder
    return [(clusters, row) for row in rows if row["theta"] == THETA]


def _question(folder: Path, name: str, rules: Settings = DOVETAIL) -> Question:
    about = json.loads((folder / f"{name}.about.json").read_text())
    cluster = load_cluster([folder / f"{name}.json.gz"])
    asked = {"consolidateAfter": "15s", "budgets": [{"nodes": "100%"}], "consolidationSavingsThreshold": THETA}
    pools = []
    for pool in cluster.node_pools:
        disruption = msgspec.convert(asked, type(pool.spec.disruption))
        pools.append(
            msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, disruption=disruption))
        )  # fmt: skip
    kinds = {entry.name: entry for entry in load_catalogue("aws:us-east-1").instance_types}
    catalogue = Catalogue(instance_types=tuple(kinds[entry] for entry in about["types"]), source="test")
    now = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)
    return Question(cluster=replace(cluster, node_pools=tuple(pools)), catalogue=catalogue, settings=rules, now=now)


@pytest.mark.parametrize(
    ("folder", "best"),
    [pytest.param(folder, row, id=f"{where}-{row['name']}")
     for where, root in (("own", OWN), ("shared", SHARED / "quality")) for folder, row in _optima(root)],
)  # fmt: skip
def test_never_dearer_than_the_proven_optimum(folder: Path, best: dict[str, float]) -> None:
    """The bound on the cost is below the proven optimum, and close enough to be useful."""
    question = _question(folder, str(best["name"]))
    result = Decider().round(question)
    assert result.value_at_most is not None
    least = sum(map(as_float, result.prices.values())) - as_float(result.value_at_most)
    assert least <= best["obj"] + 1e-9
    assert least <= best["bound"] * (1 + PROVEN)
    assert least >= 0.88 * best["obj"]


def test_the_plan_says_how_much_of_it_is_reached() -> None:
    """A complete scale-down plan reaches most of the possible savings and never more than all."""
    found = plan_to_end(_question(OWN, "01-scaledown-30", replace(RECOMMENDED, pool_defaults=()))).optimal
    assert found is not None
    assert found.reached is not None
    assert 0.9 <= found.reached <= 1


def _open(context: Scene) -> tuple[object, ...]:
    return tuple(dict.fromkeys((*context.passing(Method.EMPTY), *context.passing(Method.MULTI_NODE))))


@settings(max_examples=100, deadline=None)
@given(towns)
def test_no_set_is_worth_more(town: Town) -> None:
    """Every set of up to six nodes that passes, with up to four new ones, is worth no more than the bound."""
    town.settings = VALUE_4
    context = Decider().scene(town.question())
    bound = value_at_most(context)
    candidates = context.cost_order[:SETS_MAX]
    for size in range(1, len(candidates) + 1):
        for nodes in combinations(candidates, size):
            move = cost_move(Work(context), nodes, in_full=True)
            if isinstance(move, Move):
                assert bound is not None
                assert move.approved.value <= bound + UNIT // 10**6


@settings(max_examples=60, deadline=None)
@given(towns)
def test_the_search_is_skipped_only_where_nothing_better_exists(town: Town) -> None:
    """With the bound and without it the same command is found, or one that is worth the same."""
    town.settings = VALUE_4
    own = by_value.best_of(Work(Decider().scene(town.question()))).move
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValueBound, "at_most", lambda self, enough=0.0: 1e9)
        other = by_value.best_of(Work(Decider().scene(town.question()))).move
    assert (own and own.approved.value) == (other and other.approved.value)


def _packed(count: int) -> Town:
    """Return machines of the only kind there is, each without room for another pod."""
    town = Town(kind("m", "0.10", cpu=4, memory=16), settings=VALUE_4)
    town.pool(disruption={"consolidationSavingsThreshold": 0.001})
    for number in range(count):
        town.node(f"n{number}", "m")
        town.fill(f"n{number}", 3, cpu="1200m")
    return town


def test_a_packed_cluster_is_not_searched() -> None:
    """In a packed cluster the bound is 0, so no set is proposed."""
    context = Decider().scene(_packed(12).question())
    assert value_at_most(context) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_value, "Growth", _never)
        assert by_value.best_of(Work(context)).move is None
    assert optimal_of((), 0) == Optimal(value=0, at_most=0)
    assert Optimal(value=0, at_most=0).reached is None


def _never(*_: object, **__: object) -> None:
    raise AssertionError("a packed cluster was searched")


def test_a_packed_cluster_wastes_nothing_and_is_not_simulated_for_it() -> None:
    """In a packed cluster with a price for disruption, no node is simulated to measure waste."""
    town = _packed(12)
    town.pool(disruption={"consolidationSavingsThreshold": 0.02, "disruptionPrice": 0.01})
    context = Decider().scene(town.question())
    result = town.round()
    assert set(result.could_save.values()) == {None}
    work = Work(context)
    by_value.best_of(work)
    assert work.pods_simulated == 0


_PRICED = {"consolidationSavingsThreshold": 0.02, "disruptionPrice": 0.01}


def _wastes(town: Town) -> Mapping[str, Money | None]:
    """Return what could be saved, once the candidates were looked through."""
    work = Work(Decider().scene(town.question()))
    by_value.best_of(work)
    return waste.could_save(work)


def test_a_node_that_saves_for_certain_needs_no_bound() -> None:
    """Where many nodes have room, what each wastes is found without a search for the bound."""
    town = Town(kind("m", "0.10", cpu=4, memory=16), settings=VALUE_4)
    town.pool(disruption=_PRICED)
    for number in range(9):
        town.node(f"n{number}", "m")
        town.fill(f"n{number}", 3, cpu="200m")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waste, "ValueBound", _never)
        found = _wastes(town)
    assert len(found) == 9
    assert None not in found.values()


@settings(max_examples=60, deadline=None)
@given(towns)
def test_what_is_certain_agrees_with_the_bound(town: Town) -> None:
    """With and without the look at nodes that save for certain, the same nodes waste the same."""
    town.settings = VALUE_4
    town.pool(disruption=_PRICED)
    own = _wastes(town)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waste, "_one_saves_for_certain", lambda *_: False)
        assert _wastes(town) == own


@pytest.mark.parametrize(
    ("value", "at_most", "reached"),
    [("0", "0", None), ("0", "1", 0.0), ("0.5", "1", 0.5), ("1", "1", 1.0)],
)
def test_the_share(value: str, at_most: str, reached: float | None) -> None:
    """The share is None if nothing is worth doing."""
    assert Optimal(value=parse_money(value), at_most=parse_money(at_most)).reached == reached


def test_nodes_that_may_not_go_count_for_nothing() -> None:
    """If no node passes the gates, the plan has no bound and no sentence about it."""
    town = _packed(2)
    town.pool(disruption={"consolidateAfter": "Never"})
    assert town.round().value_at_most is None
    assert town.round().to_dict()["optimal"] is None


@pytest.mark.parametrize("amounts", [(3,), (3, 5), (2, 7), (4, 6, 9), (1,), (10,)])
@pytest.mark.parametrize("most", [0, 1, 2, 7, 8, 15, 23])
def test_sums_that_pods_can_come_to(amounts: tuple[int, ...], most: int) -> None:
    """For every number the table has the greatest sum of repeatable amounts that does not exceed it."""
    reached = {0}
    for total in range(most + 1):
        if any(total - amount in reached for amount in amounts):
            reached.add(total)
    expected = [max(total for total in reached if total <= number) for number in range(most + 1)]
    assert dual._sums_up_to(amounts, most).tolist() == expected


@pytest.mark.parametrize("seed", range(10))
def test_rooms_that_take_the_same_pods_are_worth_what_each_is_alone(seed: int) -> None:
    """The worth of a room does not depend on the other rooms."""
    rng = np.random.default_rng(seed)
    needs = rng.integers(0, 5, size=(rng.integers(0, 12), 3)).astype(np.float64)
    rooms = rng.integers(0, 6, size=(rng.integers(0, 40), 3)).astype(np.float64)
    prices = rng.random(3)
    together = dual._Rooms(rooms, needs).worth(prices)
    alone = [float(dual._Rooms(room[None, :], needs).worth(prices)[0]) for room in rooms]
    assert together.tolist() == pytest.approx(alone)


@pytest.mark.parametrize("amount", ["9223372036854775807", "16Ei"])
def test_a_node_with_absurd_room_is_a_node_like_any_other(amount: str) -> None:
    """A node that says it has more memory than 63 bits can count bytes neither ends the round nor is taken for full."""
    town = Town(kind("m", "0.2"), settings=RECOMMENDED)
    town.pool(disruption={"consolidateAfter": "0s", "disruptionPrice": 0.01})
    for name, memory in (("a", "1"), ("b", "100000001")):
        town.node(name, "m")
        town.pod(f"{name}0", name, cpu="901m", memory=memory)
    node = town.nodes["a"]
    room = {**node.status.allocatable, "memory": amount}
    town.nodes["a"] = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=room))
    result = Decider().round(town.question())
    assert result.value_at_most is not None
    assert {entry.node for entry in result.verdicts} == {"a", "b"}


def test_usable_room_is_what_requests_add_up_to() -> None:
    """Rooms of few units hold sums of requests, and rooms of more than can be tried, or of 2^63, all their units."""
    rooms = np.array([[7.0], [2.0], [2.0 * dual._UNITS_MAX + 1], [2.0**63]])
    found = dual._usable(rooms, np.array([[3.0], [5.0]]))
    assert found.tolist() == [[6.0], [0.0], [2.0 * dual._UNITS_MAX + 1], [2.0**63]]


def test_a_result_that_is_read_late_is_the_same() -> None:
    """A pod of a later round that asks for a resource nobody knew changes nothing in an earlier round's verdicts."""
    town = Town(kind("m", "0.2"), settings=RECOMMENDED)
    town.pool(disruption={"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]})
    for name in "abc":
        town.node(name, "m", conditions=[_CONSOLIDATABLE], **({"drifted": timedelta(hours=1)} if name == "c" else {}))
        town.pod(f"{name}0", name, cpu="500m")
    catalogue, decider = town.catalogue, Decider()
    question = town.question(catalogue=catalogue)
    first = decider.round(question)
    asks = {"requests": {"cpu": "100m", "example.com/unheard-of": "1"}}
    town.pod("special", "c", spec={"containers": [{"name": "c", "resources": asks}]})
    assert decider.round(town.question(catalogue=catalogue)).verdicts
    assert first.verdicts == Decider(memory=False).round(question).verdicts


@pytest.mark.parametrize("cpu", [1, 4])
@pytest.mark.filterwarnings("error")
def test_a_machine_may_cost_nothing(cpu: int) -> None:
    """Beside a free type, large enough for the pods or not, no set of nodes is worth more than the bound."""
    town = Town(kind("m", "0.20", cpu=4), kind("s", "0.05", cpu=2), kind("free", "0", cpu=cpu))
    town.settings = VALUE_4
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name in ("a", "b"):
        town.node(name, "m")
        town.fill(name, 1, cpu="1500m")
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    result = Decider().round(question)
    saved = sum(command.savings for command in result.commands)
    assert saved > 0
    bound = result.value_at_most
    assert bound is not None
    assert bound >= saved
