"""The price gates one by one, with whole dollars, on hand-made nodes (docs/rules.md#price, #value and #waste)."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace as change

from dovetail.decide.gates import price
from dovetail.decide.gates.price import Approved, Judgement, Source, judge_new_nodes
from dovetail.decide.refusal import PRICE_GATES, Refusal
from dovetail.model import names
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, MinValuesPolicy, Settings
from dovetail.model.verdicts import Gate
from dovetail.scheduling.result import LaunchPrice, NewNode
from tests.support.launches import DOLLAR, kind_at, new_node, source, type_names

SPOT_ON = replace(KARPENTER_1_15, spot_to_spot_consolidation=True)
BOTH = (names.ON_DEMAND, names.SPOT)
FLEXIBLE = replace(DOVETAIL, spot_minimum_types=2)


def _launch(amount: int) -> LaunchPrice:
    return LaunchPrice(amount=amount * DOLLAR, as_float=float(amount), capacity_type="", zone="")


def _told(judged: Judgement) -> Any:
    """Return a judgement: the gate and figures of a refusal, or the kept types, savings and required savings."""
    if isinstance(judged, Refusal):
        return judged.gate.value, judged.figures
    kept = [type_names(node) for node in judged.new_nodes]
    return kept, Fraction(judged.savings, DOLLAR), judged.savings_float, judged.required / DOLLAR, judged.by_waste


def _below(savings: str, required: str, paid: str, **more: int) -> tuple[str, dict[str, Any]]:
    figures = {"savingsPerHour": savings, "requiredSavingsPerHour": required, "price": paid, **more}
    return "savings-threshold", figures


def _dear(paid: str, cheapest: str | None) -> tuple[str, dict[str, Any]]:
    return "price", {"price": paid, **({} if cheapest is None else {"cheapestReplacement": cheapest})}


# ---------------------------------------------------------------- deleting


@pytest.mark.parametrize(
    ("required", "told"),
    [
        (0, ([], 5, 5.0, 0, False)),
        (4, ([], 5, 5.0, 4, False)),
        (5, ([], 5, 5.0, 5, False)),
        (6, _below("5.00", "6.00", "5.00")),
    ],
)
def test_deleting_saves_the_whole_price(required: int, told: Any) -> None:
    """Deleting nodes of 2 and 3 dollars saves 5; exactly the required savings are enough."""
    sources = [source("a", 2, required=required), source("b", 3)]
    judged = judge_new_nodes(sources, [], DOVETAIL)
    assert _told(judged) == told
    assert isinstance(judged, Approved) or judged.why.startswith("Deleting it")
    assert _told(judge_new_nodes(sources, [], KARPENTER_1_15)) == ([], 5, 5.0, 0, False)
    refusal = price.refuse_at_most(sources, DOVETAIL)
    assert (refusal is not None) == (required > 5)
    assert refusal is None or (_told(refusal), refusal.simulated) == (told, False)


@pytest.mark.parametrize(
    ("wasted", "asked", "enough"),
    [(3, 3, True), (2, 3, False), (0, 0, False), (1, 0, False), (4, 3, True), (9, None, False)],
)
def test_what_is_wasted_enough(wasted: int, asked: int | None, enough: bool) -> None:
    """All nodes together must have wasted the required amount; a node without a required amount never has."""
    amount = None if asked is None else Fraction(asked)
    one = source("a", 1, wasted=wasted, asked_waste=amount)
    assert price.has_wasted_enough([one]) is enough
    other = source("b", 1, wasted=1, asked_waste=Fraction(1))
    assert price.has_wasted_enough([one, other]) is (enough or (asked is not None and wasted >= asked))


def test_waste_lowers_what_is_asked() -> None:
    """After enough waste a node must save the floor only, at most its threshold; it is ranked last."""
    waste = {"wasted": 1, "asked_waste": Fraction(1)}
    dear, cheap = source("a", 2, required=9, least=Fraction(DOLLAR), **waste), source("b", 3, required=1, **waste)
    low = source("c", 3, required=1, least=Fraction(7 * DOLLAR), **waste)
    assert price.required_of([dear], DOVETAIL) == DOLLAR
    assert price.required_of([low], DOVETAIL) == DOLLAR
    assert price.required_of([dear, cheap, low], DOVETAIL) == 2 * DOLLAR
    assert price.required_of([change(dear, wasted=0), cheap], DOVETAIL) == 10 * DOLLAR
    assert price.required_of([dear], KARPENTER_1_15) == 0
    judged = judge_new_nodes([dear], [], DOVETAIL)
    assert _told(judged) == ([], 2, 2.0, 1, True)
    assert isinstance(judged, Approved)
    assert judged.value == Fraction(2 * DOLLAR, 1000)
    judged = judge_new_nodes([low], [], DOVETAIL)
    assert isinstance(judged, Approved)
    assert (judged.by_waste, judged.value) == (False, 2 * DOLLAR)


# ---------------------------------------------------------------- early refusals


@pytest.mark.parametrize(("paid", "refused"), [(4, True), (5, True), (6, False)])
@pytest.mark.parametrize("settings", [DOVETAIL, KARPENTER_1_15], ids=["exact", "floats"])
def test_no_cheaper_than_the_least(paid: int, refused: bool, settings: Settings) -> None:
    """A node whose pods need a machine of five dollars goes only if it costs more."""
    refusal = price.refuse_no_cheaper(paid * DOLLAR, float(paid), _launch(5), settings)
    assert (refusal is not None) is refused
    if refusal is not None:
        assert _told(refusal) == _dear(f"{paid}.00", "5.00")
        assert not refusal.simulated
    exact = settings is DOVETAIL
    assert (price.refuse_no_cheaper(9 * DOLLAR, 1.0, _launch(5), settings) is None) is exact
    assert (price.refuse_no_cheaper(1 * DOLLAR, 9.0, _launch(5), settings) is None) is not exact


@pytest.mark.parametrize(
    ("paid", "required", "launch", "told"),
    [
        (5, (5, 1), None, None),
        (5, (11, 2), None, _below("5.00", "5.50", "5.00")),
        (5, (11, 2), 2, _below("5.00", "5.50", "5.00")),
        (5, (6, 2), 2, None),
        (5, (7, 2), 2, _below("3.00", "3.50", "5.00")),
        (5, (10, 2), 1, _below("4.00", "5.00", "5.00")),
        (5, (10, 2), 0, None),
    ],
)
def test_one_node_saves_at_most(paid: int, required: tuple[int, int], launch: int | None, told: Any) -> None:
    """A node saves at most its price minus the cheapest machine that its pods need."""
    amount, unit = required
    machine = None if launch is None else _launch(launch)
    refusal = price.refuse_one_at_most(paid * DOLLAR, (amount * DOLLAR, unit), machine)
    assert (None if refusal is None else _told(refusal)) == told
    if refusal is not None:
        assert not refusal.simulated
        assert refusal.savings == Fraction(told[1]["savingsPerHour"]) * DOLLAR
        assert refusal.required == Fraction(amount, unit) * DOLLAR
        words = "Deleting it" if refusal.savings == paid * DOLLAR else "The cheapest replacement"
        assert refusal.why.startswith(words)


@pytest.mark.parametrize("gate", Gate)
def test_which_gates_are_about_the_price(gate: Gate) -> None:
    """A refusal by a price gate means that the pods had room."""
    assert Refusal(gate=gate, why="").is_price is (gate in PRICE_GATES)


# ---------------------------------------------------------------- one new node


def _one(sources: list[Source], node: NewNode, settings: Settings = DOVETAIL) -> Any:
    return _told(judge_new_nodes(sources, [node], settings))


CHEAP, FAIR, SAME, DEAR = kind_at("cheap", 2), kind_at("fair", 4), kind_at("same", 5), kind_at("dear", 9)
GONE = kind_at("gone")


@pytest.mark.parametrize(
    ("required", "kinds", "told"),
    [
        (0, [CHEAP, FAIR, SAME, DEAR, GONE], (["cheap fair"], 3, 3.0, 0, False)),
        (1, [CHEAP, FAIR, SAME, DEAR], (["cheap fair"], 3, 3.0, 1, False)),
        (2, [CHEAP, FAIR, SAME, DEAR], (["cheap"], 3, 3.0, 2, False)),
        (3, [CHEAP, FAIR, SAME, DEAR], (["cheap"], 3, 3.0, 3, False)),
        (4, [GONE, CHEAP, FAIR, SAME, DEAR], _below("3.00", "4.00", "5.00", cheaperTypes=2)),
        (0, [SAME, DEAR], _dear("5.00", "5.00")),
        (1, [DEAR, SAME], _dear("5.00", "5.00")),
        (0, [GONE], _dear("5.00", None)),
    ],
)
def test_types_that_save_enough_are_kept(required: int, kinds: list[Any], told: Any) -> None:
    """Gates 2 and 3: a type must be cheaper and save enough; the refusal names the gate that failed."""
    judged = judge_new_nodes([source("a", 5, required=required)], [new_node(*kinds)], DOVETAIL)
    assert _told(judged) == told
    if isinstance(judged, Refusal):
        assert judged.why.startswith("The cheapest replacement") is (told[0] == "savings-threshold")


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ([CHEAP, FAIR, SAME, DEAR, GONE], (["cheap fair"], 3, 3.0, 0, False)),
        ([SAME, DEAR], _dear("5.00", "5.00")),
        ([GONE], _dear("5.00", None)),
    ],
)
def test_karpenter_asks_no_threshold(kinds: list[Any], told: Any) -> None:
    """Karpenter's profile has gate 2 only, and uses floats."""
    assert _one([source("a", 5, required=9)], new_node(*kinds), KARPENTER_1_15) == told


def test_the_dearest_zone_counts_exactly() -> None:
    """Savings use the most expensive zone of the cheapest type; Karpenter uses the cheapest zone."""
    node = new_node(kind_at("x", 1, 4), kind_at("y", 3, 3))
    assert _one([source("a", 5)], node) == (["x y"], 2, 4.0, 0, False)
    assert _one([source("a", 5)], node, KARPENTER_1_15) == (["x y"], 4, 4.0, 0, False)
    assert _one([source("a", 4)], node) == (["y"], 1, 1.0, 0, False)


@pytest.mark.parametrize(
    ("least", "settings", "told"),
    [
        (1, DOVETAIL, "cheap fair"),
        (2, DOVETAIL, "cheap fair"),
        (3, DOVETAIL, "min-values"),
        (3, replace(DOVETAIL, min_values_policy=MinValuesPolicy.BEST_EFFORT), "cheap fair"),
        (3, KARPENTER_1_15, "min-values"),
        (3, replace(KARPENTER_1_15, min_values_policy=MinValuesPolicy.BEST_EFFORT), "min-values"),
    ],
)
def test_min_values_of_what_is_left(least: int, settings: Settings, told: str) -> None:
    """The cheap types must meet minValues; BestEffort passes, but not under Karpenter's profile."""
    judged = judge_new_nodes([source("a", 5)], [new_node(CHEAP, FAIR, DEAR, least=least)], settings)
    if isinstance(judged, Approved):
        assert type_names(judged.new_nodes[0]) == told
    else:
        assert judged.gate.value == told
        assert judged.figures == {"key": names.INSTANCE_TYPE, "values": 2, "minValues": least, "types": 2}
        assert "The 2 cheaper instance types have 2 values" in judged.why


def test_min_values_where_nothing_is_left() -> None:
    """If no type is left, the refusal names the price and not minValues."""
    node = new_node(SAME, DEAR, least=2)
    for settings in (DOVETAIL, KARPENTER_1_15):
        assert _one([source("a", 5)], node, settings) == _dear("5.00", "5.00")


def test_the_first_key_of_several_is_told() -> None:
    """If several keys have too few values, the refusal names the first."""
    node = new_node(CHEAP, FAIR, least=3)
    more = SelectorRequirement(key="zz", operator="Exists", min_values=1)
    judged = judge_new_nodes([source("a", 5)], [change(node, requirements=(more, *node.requirements))], DOVETAIL)
    assert isinstance(judged, Refusal)
    assert judged.figures["key"] == names.INSTANCE_TYPE


# ---------------------------------------------------------------- spot


MIXED = kind_at("mixed", 4, spot=[1])
PLAIN = kind_at("plain", 3)


@pytest.mark.parametrize(
    ("settings", "kinds", "kept", "narrowed"),
    [
        (DOVETAIL, [MIXED, PLAIN], "mixed", True),
        (DOVETAIL, [PLAIN], "plain", False),
        (DOVETAIL, [kind_at("s", spot=[1])], "s", False),
        (KARPENTER_1_15, [MIXED, PLAIN], "mixed plain", True),
        (KARPENTER_1_15, [PLAIN], "plain", True),
    ],
    ids=["both", "on demand only", "spot only", "Karpenter", "Karpenter, none offered"],
)
def test_both_become_spot(settings: Settings, kinds: list[Any], kept: str, narrowed: bool) -> None:
    """Gate 5: if both are possible, spot is requested; Karpenter reads the requirement, not the offerings."""
    judged = judge_new_nodes([source("a", 5)], [new_node(*kinds, capacity=BOTH)], settings)
    assert isinstance(judged, Approved)
    (node,) = judged.new_nodes
    entry = node.requirement(names.CAPACITY_TYPE)
    assert entry is not None
    assert (type_names(node), entry.values == (names.SPOT,)) == (kept, narrowed)


def test_karpenter_hopes_for_what_is_not_offered() -> None:
    """Karpenter counts the whole price as savings if the requested types have no price."""
    told = _one([source("a", 5)], new_node(PLAIN, capacity=BOTH), KARPENTER_1_15)
    assert told == (["plain"], 5, 5.0, 0, False)


@pytest.mark.parametrize("capacity", [(names.ON_DEMAND,), (names.SPOT,)])
def test_one_kind_of_capacity_stays(capacity: tuple[str, ...]) -> None:
    """Karpenter restricts the capacity type only if both are allowed."""
    node = new_node(MIXED, PLAIN, capacity=capacity)
    assert price.spot_only_if_mixed(node, KARPENTER_1_15) is node


SPOTS = [kind_at(f"s{number}", spot=[number]) for number in (1, 2, 3, 6)]


@pytest.mark.parametrize(
    ("least", "told"),
    [
        (0, (["s1"], 4, 4.0, 0, False)),
        (1, (["s1"], 4, 4.0, 0, False)),
        (2, (["s1 s2"], 4, 4.0, 0, False)),
        (3, (["s1 s2 s3"], 4, 4.0, 0, False)),
        (4, ("spot-flexibility", {"types": 3, "minimumTypes": 4, "price": "5.00"})),
    ],
)
def test_a_spot_node_needs_enough_types(least: int, told: Any) -> None:
    """Gate 5: a spot node is replaced by a minimum number of the cheapest types, at least one."""
    settings = replace(DOVETAIL, spot_minimum_types=least)
    assert _one([source("a", 5, spot=True)], new_node(*SPOTS), settings) == told


def test_spot_to_spot_with_min_values() -> None:
    """More types are launched if minValues requires them; the minimum stays the same."""
    for least, kept in ((1, "s1 s2"), (3, "s1 s2 s3")):
        judged = judge_new_nodes([source("a", 5, spot=True)], [new_node(*SPOTS, least=least)], FLEXIBLE)
        assert isinstance(judged, Approved)
        assert type_names(judged.new_nodes[0]) == kept


def test_spot_to_spot_counts_what_is_offered() -> None:
    """A spot node is replaced by types with a spot offering only."""
    node = new_node(PLAIN, MIXED, *SPOTS)
    assert _one([source("a", 5, spot=True)], node, FLEXIBLE) == (["mixed s1"], 4, 4.0, 0, False)
    assert _one([source("a", 5, spot=True)], new_node(PLAIN), FLEXIBLE) == (["plain"], 2, 2.0, 0, False)


@pytest.mark.parametrize(
    ("spot", "node", "off"),
    [
        ((True,), new_node(MIXED), True),
        ((True, True), new_node(MIXED), True),
        ((True, False), new_node(MIXED), False),
        ((False,), new_node(MIXED), False),
        ((True,), new_node(PLAIN, MIXED, capacity=(names.ON_DEMAND,)), False),
    ],
)
def test_spot_to_spot_can_be_switched_off(spot: tuple[bool, ...], node: NewNode, off: bool) -> None:
    """The setting applies if all removed nodes are spot and the new node may be spot."""
    sources = [source(str(number), 5, spot=is_spot) for number, is_spot in enumerate(spot)]
    for settings in (replace(DOVETAIL, spot_to_spot_consolidation=False), KARPENTER_1_15):
        told = _one(sources, node, settings)
        assert (told[0] == "spot-to-spot") is off
        if off:
            assert told[1] == {"price": f"{5 * len(spot)}.00", "spotToSpotConsolidation": False}


def test_karpenter_goes_by_what_is_allowed() -> None:
    """Karpenter's spot-to-spot rule reads the allowed capacity types; Dovetail's reads the offerings."""
    gone, node = [source("a", 5, spot=True)], new_node(PLAIN, capacity=BOTH)
    assert _one(gone, node, KARPENTER_1_15)[0] == "spot-to-spot"
    assert _one(gone, node, replace(DOVETAIL, spot_to_spot_consolidation=False))[0] == ["plain"]


# ---------------------------------------------------------------- the same type again


@pytest.mark.parametrize(
    ("sources", "kinds", "told"),
    [
        ([("a", 5, "fair"), ("b", 5, "fair")], [CHEAP, FAIR, SAME], (["cheap fair"], 8, 8.0, 0, False)),
        ([("a", 4, "fair"), ("b", 5, "fair")], [CHEAP, FAIR, SAME], (["cheap"], 7, 7.0, 0, False)),
        ([("a", 4, "fair"), ("b", 3, "other")], [FAIR, SAME], ("same-type", {"node": "a", "price": "4.00"})),
        ([("b", 4, "fair"), ("a", 4, "fair")], [FAIR, SAME], ("same-type", {"node": "a", "price": "4.00"})),
        ([("a", 4, "other"), ("b", 5, "other")], [CHEAP, FAIR], (["cheap fair"], 7, 7.0, 0, False)),
    ],
)
def test_what_keeping_one_would_do_as_well(sources: list[Any], kinds: list[Any], told: Any) -> None:
    """Gate 4: the type of removed nodes is kept only below the price of the cheapest of those nodes."""
    gone = [source(name, amount, kind=kind) for name, amount, kind in sources]
    for settings in (DOVETAIL, KARPENTER_1_15):
        assert _one(gone, new_node(*kinds), settings) == told


def test_one_node_may_become_its_own_type() -> None:
    """Gate 4 is for several nodes: one node may move to a cheaper offering of its own type."""
    for settings in (DOVETAIL, KARPENTER_1_15):
        assert _one([source("a", 5, kind="fair")], new_node(FAIR), settings) == (["fair"], 1, 1.0, 0, False)


def test_min_values_after_the_same_type() -> None:
    """The types that gate 4 leaves must meet minValues."""
    gone = [source("a", 4, kind="fair"), source("b", 5, kind="fair")]
    for settings in (DOVETAIL, KARPENTER_1_15):
        assert _one(gone, new_node(CHEAP, FAIR, least=2), settings)[0] == "min-values"


@pytest.mark.parametrize(
    ("offers", "kept"),
    [((5.0, 5.0), "cheap fair"), ((5.0, 4.0), "cheap"), ((None, 5.0), "cheap fair"), ((2.5, 9.0), "cheap")],
)
def test_karpenter_goes_by_offerings(offers: tuple[float | None, ...], kept: str) -> None:
    """Karpenter's price limit is the cheapest offering of the node's type; a type without one limits to 0."""
    gone = [source(str(at), 8, kind="fair", offering_price=offer) for at, offer in enumerate(offers)]
    judged = judge_new_nodes(gone, [new_node(CHEAP, FAIR)], KARPENTER_1_15)
    assert isinstance(judged, Approved)
    assert type_names(judged.new_nodes[0]) == kept


def test_karpenter_without_any_offering() -> None:
    """A type without a compatible offering counts as 0, so nothing is cheaper."""
    gone = [source(name, amount, kind="fair", offering_price=None) for name, amount in (("c", 9), ("b", 8), ("a", 8))]
    assert _one(gone, new_node(CHEAP, FAIR), KARPENTER_1_15) == ("same-type", {"node": "a", "price": "8.00"})
    other = [source("a", 8, kind="fair", offering_price=None), source("b", 8, kind="cheap")]
    assert _one(other, new_node(CHEAP, FAIR), KARPENTER_1_15)[0] == "same-type"


def test_karpenter_with_nothing_offered_and_no_same_type() -> None:
    """If the requirement has no offering and no type is removed, nothing can be launched."""
    told = _one([source("a", 4), source("b", 5)], new_node(PLAIN, capacity=BOTH), KARPENTER_1_15)
    assert told == _dear("9.00", None)


# ---------------------------------------------------------------- several new nodes


def _several(sources: list[Source], *nodes: NewNode, settings: Settings = DOVETAIL) -> Any:
    return _told(judge_new_nodes(sources, list(nodes), settings))


@pytest.mark.parametrize(
    ("paid", "required", "told"),
    [
        (7, 0, (["cheap", "cheap"], 3, 3.0, 0, False)),
        (8, 0, (["cheap", "cheap"], 4, 4.0, 0, False)),
        (9, 0, (["cheap fair", "cheap fair"], 5, 5.0, 0, False)),
        (9, 1, (["cheap fair", "cheap fair"], 5, 5.0, 1, False)),
        (9, 2, (["cheap", "cheap"], 5, 5.0, 2, False)),
        (9, 5, (["cheap", "cheap"], 5, 5.0, 5, False)),
        (9, 6, _below("5.00", "6.00", "9.00")),
        (4, 0, _dear("4.00", "4.00")),
        (3, 0, _dear("3.00", "4.00")),
    ],
)
def test_what_may_be_spent_is_shared_out(paid: int, required: int, told: Any) -> None:
    """Two new nodes cost at least two dollars; the rest of the money is divided equally."""
    gone = [source("a", paid, required=required)]
    node = new_node(CHEAP, FAIR, GONE, DEAR)
    assert _several(gone, node, node) == told
    judged = judge_new_nodes(gone, [node, node], DOVETAIL)
    if isinstance(judged, Refusal):
        assert judged.why.startswith("The cheapest replacement") is (told[0] == "savings-threshold")


def test_the_least_that_can_be_asked() -> None:
    """With any required savings, a type may use its whole share of the money."""
    gone = change(source("a", 8), price=8 * DOLLAR + 1, required=Fraction(1))
    node = new_node(CHEAP, FAIR)
    assert _several([gone], node, node)[0] == ["cheap fair", "cheap fair"]
    assert _several([change(gone, price=8 * DOLLAR, required=Fraction(0))], node, node)[0] == [
        "cheap",
        "cheap",
    ]


def test_one_that_cannot_be_launched_stops_all() -> None:
    """The move is refused if one of the new nodes cannot be launched."""
    for nodes in ((new_node(CHEAP), new_node(GONE)), (new_node(GONE), new_node(CHEAP))):
        assert _several([source("a", 9)], *nodes) == _dear("9.00", None)


def test_gates_of_each_of_several() -> None:
    """minValues, spot and the same type are checked for each new node."""
    one = [source("a", 20)]
    assert _several(one, new_node(CHEAP, FAIR), new_node(CHEAP, least=2))[0] == "min-values"
    kept = judge_new_nodes(one, [new_node(MIXED, PLAIN), new_node(PLAIN)], DOVETAIL)
    assert isinstance(kept, Approved)
    assert [type_names(node) for node in kept.new_nodes] == ["mixed", "plain"]
    two = [source("a", 4, kind="fair"), source("b", 9)]
    assert _several(two, new_node(CHEAP), new_node(FAIR)) == ("same-type", {"node": "a", "price": "4.00"})
    assert _several([source("a", 9, kind="fair")], new_node(CHEAP), new_node(FAIR))[0] == ["cheap", "fair"]


def test_spot_of_several() -> None:
    """One spot node that becomes several needs enough types for each; several removed nodes do not."""
    one, two = [source("a", 9, spot=True)], [source("a", 9, spot=True), source("b", 9, spot=True)]
    spots, plain = new_node(*SPOTS), new_node(CHEAP)
    assert _several(one, spots, spots, settings=FLEXIBLE)[0] == ["s1 s2", "s1 s2"]
    assert _several(one, spots, plain, settings=FLEXIBLE)[0] == ["s1 s2", "cheap"]
    few = new_node(SPOTS[0])
    told = ("spot-flexibility", {"types": 1, "minimumTypes": 2, "price": "9.00"})
    assert _several(one, spots, few, settings=FLEXIBLE) == told
    assert _several(two, spots, few, settings=FLEXIBLE)[0] == ["s1 s2 s3 s6", "s1"]
    mixed = new_node(MIXED, PLAIN)
    assert _several(two, mixed, plain, settings=FLEXIBLE) == (["mixed", "cheap"], 15, 15.0, 0, False)
    off = replace(DOVETAIL, spot_to_spot_consolidation=False)
    assert _several(two, plain, few, settings=off) == (
        "spot-to-spot",
        {"price": "18.00", "spotToSpotConsolidation": False},
    )
    assert _several([two[0], source("c", 9)], plain, few, settings=off)[0] == ["cheap", "s1"]
