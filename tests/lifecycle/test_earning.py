"""By when a node that a cost command launched has earned what that cost (docs/rules.md#one-price)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.command import Command
from dovetail.model.money import UNIT
from dovetail.model.objects import DisruptionSpec, Node, NodeClaim, NodePool, NodePoolSpec, ObjectMeta
from dovetail.model.settings import KARPENTER_1_15, Settings
from dovetail.model.timing.duration import MINUTE
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, World, engine_for


class _Priced(ScriptedPlanner):
    """Its commands save ten cents an hour and cost three units."""

    def __init__(self, pays_after: int = 0) -> None:
        super().__init__()
        self.pays_after = pays_after

    def _wish(self, node: Node, question: Question) -> Command | None:
        wish = super()._wish(node, question)
        return wish and replace(wish, savings=UNIT // 10, disruption_cost=3.0, pays_after=self.pays_after)


@pytest.mark.parametrize(
    ("price", "pays_after", "settings", "minutes"),
    [
        (0.005, 0, CALM, 9),  # three restarts are worth $0.015, saved in nine minutes
        (0.005, 4 * MINUTE, CALM, 4),  # restartPrice: the round has said it
        (None, 0, CALM, None),
        (0.005, 0, replace(CALM, rules=KARPENTER_1_15.rules), None),
    ],
    ids=["disruptionPrice", "restartPrice", "no price", "Karpenter's rules"],
)
def test_by_when(price: float | None, pays_after: int, settings: Settings, minutes: int | None) -> None:
    """From its creation until the savings have paid the restarts."""
    world = World()
    spec = NodePoolSpec(disruption=DisruptionSpec(disruption_price=price))
    world.put(NodePool(metadata=ObjectMeta(name="web", labels={names.MANAGE: "true"}), spec=spec))
    world.add_node("a", want="cost-replace")
    planner = _Priced(pays_after)
    driver = Driver(world, engine_for(settings, planner)).begin().run(100)
    assert driver.ends() == ["done"]
    made = [claim for claim in world.all(NodeClaim) if claim.metadata.name != "a-claim"]
    seen = {name: until for ask in planner.asks for name, until in ask.earning.items()}
    if minutes is None:
        assert seen == {}
    else:
        [claim] = made
        created = claim.metadata.creation_timestamp
        assert created is not None
        assert seen == {claim.metadata.name: created + timedelta(minutes=minutes)}
