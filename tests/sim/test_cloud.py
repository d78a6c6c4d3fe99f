"""The simulated cloud launches what the built-in provider would: the cheapest machine that fits the claim."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import names
from dovetail.model.catalogue import InstanceType
from dovetail.model.command import Replacement
from dovetail.model.objects import SelectorRequirement
from dovetail.sim.world.actuate import claim_from
from dovetail.standin.machines import cheapest_machine
from tests.support.rogue import small_world

KINDS = ("large", "medium", "medium-b", "small", "small-b")


def _allocatable(kind: InstanceType, resource: str) -> int:
    return kind.allocatable()[resource]


def test_the_requests_must_fit() -> None:
    """If the cheapest type of the claim is too small for its requests, the next one is launched."""
    world = small_world(0)
    by_name = {kind.name: kind for kind in world.cloud.catalogue.instance_types}
    room = _allocatable(by_name["small"], "cpu")
    for cpu, types in ((room, ("small", "medium")), (room + 1, ("medium",))):
        wanted = Replacement(node_pool="blue", instance_types=("small", "medium"), requests={"cpu": cpu})
        claim = claim_from(world.store.pools["blue"], f"new-{cpu}", wanted)
        instance = world.cloud.launch(claim)
        assert instance is not None
        assert instance.kind.name == types[0]


def test_what_fits_nowhere_is_not_sold() -> None:
    """If no type fits, no machine is launched, not even a smaller one."""
    world = small_world(0)
    wanted = Replacement(node_pool="blue", instance_types=(), requests={"cpu": 10**9})
    assert world.cloud.launch(claim_from(world.store.pools["blue"], "new", wanted)) is None


@settings(max_examples=60, deadline=None)
@given(
    types=st.lists(st.sampled_from(KINDS), max_size=4, unique=True),
    cpu=st.integers(0, 9000),
    zones=st.lists(st.sampled_from(["zone-a", "zone-b", "zone-c", "zone-x"]), max_size=2, unique=True),
    capacity=st.sampled_from([(), (names.SPOT,), (names.ON_DEMAND,), (names.SPOT, names.ON_DEMAND)]),
)
def test_both_clouds_sell_the_same(types: list[str], cpu: int, zones: list[str], capacity: tuple[str, ...]) -> None:
    """The simulator and the provider of test clusters use one rule (up to the zone among equal prices)."""
    world = small_world(0)
    more = [
        SelectorRequirement(key=key, operator="In", values=tuple(values))
        for key, values in ((names.ZONE, zones), (names.CAPACITY_TYPE, capacity))
        if values
    ]
    wanted = Replacement(node_pool="blue", instance_types=tuple(types), requests={"cpu": cpu}, requirements=tuple(more))
    claim = claim_from(world.store.pools["blue"], "new", wanted)
    expected = cheapest_machine(claim, world.cloud.seen_catalogue())
    sold = world.cloud.launch(claim)
    if expected is None or sold is None:
        assert expected is sold is None
    else:
        assert (sold.kind, sold.zone, sold.capacity_type) == (
            expected.kind, expected.offering.zone, expected.offering.capacity_type
        )  # fmt: skip


@pytest.mark.parametrize("kinds", [KINDS])
def test_the_table_above_names_real_types(kinds: tuple[str, ...]) -> None:
    """The types in the table exist."""
    assert set(kinds) <= {kind.name for kind in small_world(0).cloud.catalogue.instance_types}
