"""NodeOverlays: prices and extended resources with overlays, weights and conflicts."""

from typing import Any

import pytest

from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.money import format_money
from dovetail.model.objects import NodeOverlay, NodePool
from dovetail.model.settings import DOVETAIL, Settings
from dovetail.scheduling.launch.overlays import overlaid
from dovetail.scheduling.simulate import place
from tests.karpenter_features.world import BOTH, CONSOLIDATABLE, FREE, thing, told
from tests.support.design_world import Town, kind, moved
from tests.support.scheduling_build import pool

PROFILES = pytest.mark.parametrize("settings", BOTH, ids=["dovetail", "karpenter"])
ON = "NodeOverlay=true"


def _overlay(name: str = "o", /, *, on: str = "m", **spec: Any) -> NodeOverlay:
    """Return an overlay for an instance type; `where` has further requirements."""
    reqs = [{"key": names.INSTANCE_TYPE, "operator": "In", "values": [on]}, *spec.pop("where", [])]
    made = thing("NodeOverlay", name, spec={"requirements": reqs, **spec}, status=spec.pop("status", {}))
    assert isinstance(made, NodeOverlay)
    return made


def _prices(*overlays: NodeOverlay, pools: tuple[NodePool, ...] = (), spot: str | None = None) -> dict[str, list[str]]:
    """Return the prices of a 1-dollar type in zones a and b, by the pools that see them."""
    catalogue = Catalogue(instance_types=(kind("m", "1", spot=spot, zones=("a", "b")),))
    found = overlaid(catalogue, overlays, pools or (pool("p"),)).catalogue
    return {"+".join(k.pools): [format_money(o.price) for o in k.offerings] for k in found.instance_types}


def _in(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


CHANGES = {
    "an absolute price": ({"price": "0.25"}, "0.25"),
    "more": ({"priceAdjustment": "+0.5"}, "1.5"),
    "less": ({"priceAdjustment": "-0.3"}, "0.7"),
    "less than nothing is nothing": ({"priceAdjustment": "-2"}, "0"),
    "more percent": ({"priceAdjustment": "+10%"}, "1.1"),
    "less percent": ({"priceAdjustment": "-15%"}, "0.85"),
    "free": ({"priceAdjustment": "-100%"}, "0"),
    "no price at all": ({}, "1"),
    "both can't be": ({"price": "2", "priceAdjustment": "+1"}, "1"),
    "not a price": ({"price": "-2"}, "1"),
    "not an adjustment": ({"priceAdjustment": "10%"}, "1"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_how_a_price_changes(case: str) -> None:
    """A price changes exactly from the provider's price; an unreadable change is left out."""
    spec, price = CHANGES[case]
    assert _prices(_overlay(**spec)) == {"": [price, price]}


def test_an_overlay_that_can_not_be_read_is_reported() -> None:
    """An unreadable overlay is reported with its name and the problem."""
    catalogue = Catalogue(instance_types=(kind("m", "1"),))
    notes = overlaid(catalogue, [_overlay("x", capacity={"cpu": "4"}, price="3")], [pool("p")]).notes
    assert len(notes) == 1
    assert "NodeOverlay x" in notes[0]
    assert "cpu" in notes[0]


MATCHES = {
    "the type": ([], ["2", "2"]),
    "another zone of it": ([_in(names.ZONE, "b")], ["1", "2"]),
    "a capacity type it does not have": ([_in(names.CAPACITY_TYPE, "spot")], ["1", "1"]),
    "the pool": ([_in(names.NODEPOOL, "p")], ["2", "2"]),
    "another pool": ([_in(names.NODEPOOL, "q")], ["1", "1"]),
    "a label of the template": ([_in("team", "red")], ["2", "2"]),
    "another value of it": ([_in("team", "blue")], ["1", "1"]),
    "a key that nobody defines": ([_in("nobody", "x")], ["1", "1"]),
    "must not have it": ([_in("nobody", operator="DoesNotExist")], ["2", "2"]),
    "not that value": ([_in("nobody", "x", operator="NotIn")], ["2", "2"]),
    "exists": ([_in("team", operator="Exists")], ["2", "2"]),
}


@pytest.mark.parametrize("case", MATCHES)
def test_what_it_applies_to(case: str) -> None:
    """Requirements match the pool's name and the labels of template and type, but not the pool's requirements."""
    where, prices = MATCHES[case]
    own = pool("p", labels={"team": "red"}, requirements=[_in("nobody", "x")])
    assert _prices(_overlay(where=where, price="2"), pools=(own,)) == {"": prices}


def test_pools_may_see_different_prices() -> None:
    """A type with a changed price becomes a variant for the pools that see the change."""
    red, blue = pool("r", labels={"team": "red"}), pool("b")
    found = _prices(_overlay(where=[_in("team", "red")], price="2"), pools=(red, blue))
    assert found == {"": ["1", "1"], "r": ["2", "2"]}


ORDER: dict[str, tuple[list[NodeOverlay], str]] = {
    "the heavier wins": ([_overlay("a", price="2", weight=1), _overlay("b", price="3", weight=5)], "3"),
    "later ones are not added on top": (
        [_overlay("a", priceAdjustment="+1", weight=1), _overlay("b", priceAdjustment="+2", weight=5)],
        "3",
    ),
    "no weight is 0": ([_overlay("a", price="2", weight=1), _overlay("b", price="3")], "2"),
    "of one weight the later name stays": ([_overlay("a", price="2"), _overlay("b", price="3")], "3"),
    "one of price, one of capacity: no conflict": (
        [_overlay("a", price="2"), _overlay("b", capacity={"x.io/gpu": "1"})],
        "2",
    ),
    "two weights, then a conflict": (
        [_overlay("a", price="2", weight=3), _overlay("b", price="3", weight=3), _overlay("c", price="4", weight=1)],
        "3",
    ),
}


@pytest.mark.parametrize("case", ORDER)
def test_weights_and_conflicts(case: str) -> None:
    """Overlays are ordered by weight and then name, descending; the loser of a conflict is left out entirely."""
    overlays, price = ORDER[case]
    assert _prices(*overlays) == {"": [price, price]}
    assert _prices(*reversed(overlays)) == {"": [price, price]}


def test_a_conflict_leaves_the_whole_overlay_out() -> None:
    """A conflict leaves the overlay out in every pool and for every type."""
    catalogue = Catalogue(instance_types=(kind("m", "1"), kind("n", "1")))
    wide = thing("NodeOverlay", "a", spec={"requirements": [_in(names.INSTANCE_TYPE, "m", "n")], "price": "9"})
    assert isinstance(wide, NodeOverlay)
    found = overlaid(catalogue, [wide, _overlay("b", on="m", price="3")], [pool("p")])
    prices = {k.name: format_money(k.offerings[0].price) for k in found.catalogue.instance_types}
    assert prices == {"m": "3", "n": "1"}
    assert any("NodeOverlay a is left out" in note for note in found.notes)


def test_capacity() -> None:
    """For each resource the heaviest overlay wins; different resources add up; one matching offering is enough."""
    catalogue = Catalogue(instance_types=(kind("m", "1", zones=("a", "b")),))
    overlays = [
        _overlay("a", capacity={"x.io/gpu": "1", "x.io/nic": "2"}, weight=1),
        _overlay("b", capacity={"x.io/gpu": "4"}, weight=5, where=[_in(names.ZONE, "a")]),
    ]
    (made,) = overlaid(catalogue, overlays, [pool("p")]).catalogue.instance_types
    assert (made.capacity["x.io/gpu"], made.capacity["x.io/nic"]) == (4, 2)


GATES = {
    "named": (ON, {}, True),
    "seen": ("", {"conditions": [{"type": "ValidationSucceeded", "status": "True"}]}, True),
}
GATES |= {"neither": ("", {}, False), "named off": ("NodeOverlay=false", GATES["seen"][1], False)}


@PROFILES
@pytest.mark.parametrize("case", GATES)
def test_decisions_use_overlaid_prices(settings: Settings, case: str) -> None:
    """A node whose price an overlay lowers is no longer replaced."""
    gates, status, on = GATES[case]
    town = Town(kind("big", "1", cpu=4), kind("small", "0.5", cpu=2), settings=told(settings, featureGates=gates))
    town.pool(disruption=FREE)
    town.node("n", "big", conditions=[CONSOLIDATABLE])
    town.pod("p", "n", cpu="1")
    town.others.append(_overlay(on="big", price="0.4", status=status))
    assert moved(town.act()) == (None if on else ("replaceCost", ("n",)))
    shown = town.round(every_method=True).methods[-1].candidates[0].price_float
    assert shown == (0.4 if on else 1.0)


@PROFILES
def test_a_type_of_another_pool_keeps_its_price(settings: Settings) -> None:
    """Nodes and replacements of one pool have its overlay's price, those of the other pool don't."""
    town = Town(kind("big", "1", cpu=4), kind("small", "0.5", cpu=2), settings=told(settings, featureGates=ON))
    for name in ("cheap", "plain"):
        town.pool(name, disruption=FREE)
        town.node(f"on-{name}", "big", pool=name, conditions=[CONSOLIDATABLE])
    town.others.append(_overlay(on="big", price="0.1", where=[_in(names.NODEPOOL, "cheap")]))
    figures = {name: format_money(price) for name, price in town.round().prices.items()}
    assert figures == {"on-cheap": "0.1", "on-plain": "1"}


@pytest.mark.parametrize(("gates", "types"), [(ON, ["m"]), ("", [])])
def test_extended_resources_can_be_launched(gates: str, types: list[str]) -> None:
    """A pod that requests a resource which only an overlay provides gets a node."""
    town = Town(kind("m", "1"), settings=told(DOVETAIL, featureGates=gates))
    town.pool()
    requests = {"cpu": "1", "x.io/gpu": "1"}
    town.pod("p", spec={"containers": [{"name": "c", "resources": {"requests": requests}}]})
    town.others.append(_overlay(on="m", capacity={"x.io/gpu": "2"}))
    assert [entry.name for new in place(town.snapshot()).new for entry in new.instance_types] == types


def test_the_next_snapshot_knows_a_new_price() -> None:
    """Changed overlays are applied again; unchanged ones are reused."""
    from dovetail.scheduling.snapshot import Snapshot

    town = Town(kind("m", "1"), settings=told(DOVETAIL, featureGates=ON))
    town.pool()
    town.node("n", "m")
    town.others = [_overlay(price="2")]
    first = town.snapshot()
    same = Snapshot(town.cluster, first.surroundings.given, town.settings, town.now, first)
    assert same.catalogue is first.catalogue
    town.others = [_overlay(price="3")]
    then = Snapshot(town.cluster, first.surroundings.given, town.settings, town.now, same)
    kinds = [seen.kind_of("m", "default") for seen in (first, then)]
    assert [kind.offerings[0].price_float for kind in kinds if kind is not None] == [2.0, 3.0]
