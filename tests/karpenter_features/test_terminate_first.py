"""TerminateFirstDrift: a drifted node with a full reservation goes first, because its pods need its own slot."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.refusal import Refusal
from dovetail.model import names
from dovetail.model.catalogue import InstanceType, Offering
from dovetail.model.money import parse_money
from dovetail.model.objects import SelectorRequirement
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate
from tests.karpenter_features.world import BOTH, told
from tests.support.design_world import Town, kind, moved

LABEL = "karpenter.k8s.aws/capacity-reservation-id"
PROFILES = pytest.mark.parametrize("settings", BOTH, ids=["dovetail", "karpenter"])


def _reserved(name: str, *, free: int, on_demand: bool = False) -> InstanceType:
    made = kind(name, "1", zones=("a",))
    offers = [
        Offering(
            capacity_type=names.RESERVED,
            zone="a",
            price=parse_money("0.001"),
            price_float=0.001,
            reservation_id="r-1",
            reservation_capacity=free,
        )
    ]
    offers += list(made.offerings) if on_demand else []
    values = tuple(sorted({offer.capacity_type for offer in offers}))
    reqs = tuple(r for r in made.requirements if r.key != names.CAPACITY_TYPE)
    return replace(
        made,
        offerings=tuple(offers),
        requirements=(*reqs, SelectorRequirement(key=names.CAPACITY_TYPE, values=values)),
    )


CASES = {
    "full, gate on": ("TerminateFirstDrift=true", 0, names.RESERVED, "r-1", "deleteDrifted"),
    "full, gate off": ("", 0, names.RESERVED, "r-1", None),
    "a slot is free: replace first": ("TerminateFirstDrift=true", 1, names.RESERVED, "r-1", "replaceDrifted"),
    "the node holds no reservation": ("TerminateFirstDrift=true", 0, names.ON_DEMAND, "", None),
    "the label alone is no reservation": ("TerminateFirstDrift=true", 0, names.ON_DEMAND, "r-1", None),
    "a reservation of another name": ("TerminateFirstDrift=true", 0, names.RESERVED, "r-2", None),
    "no label": ("TerminateFirstDrift=true", 0, names.RESERVED, "", None),
}


@PROFILES
@pytest.mark.parametrize("case", CASES)
def test_drift_of_a_reserved_node(settings: Settings, case: str) -> None:
    """A node goes first only with the gate, and only if its own slot lets every pod return; also at validation."""
    gates, free, capacity, reservation, action = CASES[case]
    town = Town(_reserved("m", free=free), settings=told(settings, featureGates=gates))
    town.pool(capacity=(names.RESERVED, names.ON_DEMAND))
    labels = {LABEL: reservation} if reservation else {}
    town.node("n", "m", capacity=capacity, labels=labels, drifted=timedelta(hours=1))
    town.pod("p", "n", cpu="3")
    command = town.act()
    assert moved(command) == (None if action is None else (action, ("n",)))
    if command is not None:
        assert Decider().revalidate(command, town.question()) == command
    if action == "deleteDrifted":
        assert command is not None
        assert (command.replacements, command.savings) == ((), 0)


def test_a_slot_that_became_free_meanwhile() -> None:
    """At validation a command to delete the node first is refused if a replacement can come first now."""
    town = Town(_reserved("m", free=0), settings=told(DOVETAIL, featureGates="TerminateFirstDrift=true"))
    town.pool(capacity=(names.RESERVED,))
    town.node("n", "m", capacity=names.RESERVED, labels={LABEL: "r-1"}, drifted=timedelta(hours=1))
    town.pod("p", "n", cpu="3")
    command = town.act()
    assert command is not None
    town.kinds["m"] = _reserved("m", free=1)
    refusal = Decider().revalidate(command, town.question())
    assert isinstance(refusal, Refusal)
    assert refusal.gate is Gate.NEW_NODES


@PROFILES
def test_a_pod_that_a_slot_does_not_help_still_blocks(settings: Settings) -> None:
    """Terminate-first helps with capacity, not with pods that fit nowhere."""
    town = Town(_reserved("m", free=0), settings=told(settings, featureGates="TerminateFirstDrift=true"))
    town.pool(capacity=(names.RESERVED,))
    town.node("n", "m", capacity=names.RESERVED, labels={LABEL: "r-1"}, drifted=timedelta(hours=1))
    town.pod("p", "n", spec={"nodeSelector": {"example.com/nowhere": "x"}})
    assert town.act() is None


@PROFILES
def test_on_demand_comes_first_where_the_pool_allows_it(settings: Settings) -> None:
    """If another offering exists, the node is replaced in the ordinary way."""
    town = Town(
        _reserved("m", free=0, on_demand=True), settings=told(settings, featureGates="TerminateFirstDrift=true")
    )
    town.pool(capacity=(names.RESERVED, names.ON_DEMAND))
    town.node("n", "m", capacity=names.RESERVED, labels={LABEL: "r-1"}, drifted=timedelta(hours=1))
    town.pod("p", "n", cpu="3")
    assert moved(town.act()) == ("replaceDrifted", ("n",))


@pytest.mark.parametrize(
    ("free", "on_demand", "action"),
    [(0, False, "deleteDrifted"), (1, False, "replaceDrifted"), (0, True, "replaceDrifted")],
    ids=["full", "a slot is free", "on-demand would do"],
)
def test_drift_of_a_static_pool_of_reservations(free: int, on_demand: bool, action: str) -> None:
    """As in Karpenter, the node goes first only if the pool allows nothing but full reservations."""
    settings = told(KARPENTER_1_15, featureGates="TerminateFirstDrift=true")
    town = Town(_reserved("m", free=free, on_demand=on_demand), settings=settings)
    capacity = (names.RESERVED, names.ON_DEMAND) if on_demand else (names.RESERVED,)
    town.pool(capacity=capacity, replicas=1, disruption={"budgets": [{"nodes": "1"}]})
    town.node("n", "m", capacity=names.RESERVED, labels={LABEL: "r-1"}, drifted=timedelta(hours=1))
    town.pod("p", "n", cpu="3")
    assert moved(town.act()) == (action, ("n",))
