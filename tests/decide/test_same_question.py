"""When the answer to the last question still holds: every field counts, and time only where it changes an answer."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from dovetail.decide.in_flight import InFlight
from dovetail.decide.question import CostHold, Question
from dovetail.model.coming_size import GrownSize
from dovetail.model.persistence import Persistence
from dovetail.model.settings import KARPENTER_1_15
from dovetail.model.waste import Wasted
from tests.support.design_world import NOW, Town, kind

LATER = NOW + timedelta(minutes=1)


def _asked() -> Question:
    town = Town(kind("m", "0.20"))
    town.pool()
    town.node("n", "m")
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=NOW)


OTHERS: dict[str, Any] = {
    "cluster": replace(_asked().cluster),
    "catalogue": replace(_asked().catalogue),
    "settings": KARPENTER_1_15,
    "in_flight": InFlight(nominated=("n",)),
    "managed_pools": ("default",),
    "settling": {"default": CostHold(until=LATER)},
    "settling_nodes": {"n": CostHold(until=LATER)},
    "alert": "errors",
    "may_surge": False,
    "unsettled": {"default": "default/p"},
    "pod_events": {"n": NOW},
    "waste": {"n": Wasted(amount=1, rate=1, at=NOW)},
    "restless": {"default": LATER},
    "grown": {"uid": GrownSize(owner="Deployment web", containers=())},
    "persistence": {"default": Persistence(removals=1)},
    "earning": {"claim": LATER},
}


def test_every_field_has_another_value() -> None:
    """A field that is added to `Question` is added here."""
    assert {*OTHERS, "now"} == {field.name for field in fields(Question)}


@pytest.mark.parametrize("name", OTHERS)
def test_every_field_makes_another_question(name: str) -> None:
    """A question in which anything but the time differs has an answer of its own."""
    asked = _asked()
    assert not replace(asked, now=LATER, **{name: OTHERS[name]}).asks_the_same(asked, until=None)


def test_time_alone_counts_from_the_next_change_on() -> None:
    """The same question later is answered already, until the time at which the answer changes by itself."""
    asked = _asked()
    again = replace(asked, now=LATER)
    assert again.asks_the_same(asked, until=None)
    assert again.asks_the_same(asked, until=LATER + timedelta(microseconds=1))
    assert not again.asks_the_same(asked, until=LATER)
    assert not again.asks_the_same(None, until=None)


def test_how_long_removals_have_held_so_far_is_time() -> None:
    """That removals have held a little longer is no other question; one more removal is."""
    asked = replace(_asked(), persistence={"default": Persistence(learned=5, removals=1)})
    longer = replace(asked, persistence={"default": Persistence(learned=6, removals=1)})
    assert longer.asks_the_same(asked, until=None)
    more = replace(asked, persistence={"default": Persistence(learned=5, removals=2)})
    assert not more.asks_the_same(asked, until=None)
