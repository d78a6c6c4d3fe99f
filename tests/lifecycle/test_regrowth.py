"""Cost actions that do not hold: a node comes back for the moved pods."""

from dataclasses import replace

import msgspec
import pytest

from dovetail.decide.question import Question
from dovetail.lifecycle.engine import Engine
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command
from dovetail.model.money import UNIT
from dovetail.model.objects import (
    Condition,
    Node,
    NodeClaim,
    NodeClaimStatus,
    NodeSpec,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
)
from dovetail.model.rules import KARPENTER_RULES
from dovetail.model.settings import StabilizationEnds
from tests.support.design_world import kind
from tests.support.lifecycle_world import CALM, WANT, Driver, ScriptedPlanner, World, engine_for


class PatientPlanner(ScriptedPlanner):
    """Skip pools that the engine reports as regrown, as `decide` does for cost actions."""

    def _wish(self, node: Node, question: Question) -> Command | None:
        until = question.in_flight.regrown.get(node.metadata.labels[names.NODEPOOL])
        waits = until is not None and question.now < until
        cost = node.metadata.annotations.get(WANT, "").startswith("cost-")
        return None if waits and cost else super()._wish(node, question)


class Springy(World):
    """Open a new node at once for the pods of each removed node, as a provisioner would."""

    bought: dict[str, str] = {}
    springs: int = 0
    keeps_springing: bool = True

    def add_pod(self, name: str, node: str) -> None:
        """Add a pod of a ReplicaSet that runs."""
        owner = OwnerReference(kind="ReplicaSet", name="app", uid="rs-1")
        meta = ObjectMeta(name=name, namespace="", owner_references=(owner,))
        self.put(Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase="Running")))

    def finish(self, name: str) -> None:
        """Move the pods to a node that Karpenter opens for them, or to the first that is there."""
        claim = self.get(NodeClaim, name)
        assert claim is not None
        pods = [pod for pod in self.all(Pod) if pod.spec.node_name == claim.status.node_name]
        super().finish(name)
        home = "z"
        if self.keeps_springing:
            self.springs += 1
            home = f"s{self.springs}"
            done = Condition(type=names.CONDITION_INITIALIZED, status="True")
            labels = {names.NODEPOOL: "web", **self.bought}
            status = NodeClaimStatus(node_name=home, provider_id=home, conditions=(done,))
            self.put(NodeClaim(metadata=ObjectMeta(name=f"{home}-claim", labels=labels), status=status))
            meta = ObjectMeta(name=home, labels=labels, annotations={WANT: "cost-delete"})
            self.put(Node(metadata=meta, spec=NodeSpec(provider_id=home)))
        for pod in pods:
            self.put(msgspec.structs.replace(pod, spec=PodSpec(node_name=home)))


def springy(*, keeps_springing: bool = True) -> Springy:
    """Build a world with one node to remove, one to stay, and a pod to move."""
    world = Springy()
    world.keeps_springing = keeps_springing
    world.add_pool()
    world.add_node("z")
    world.add_node("a", want="cost-delete")
    world.add_pod("p", "a")
    return world


def test_cycle_is_broken_by_ever_longer_waits() -> None:
    """A node that always comes back is removed a few times a day, not every minute."""
    world = springy()
    driver = Driver(world, engine_for(CALM, PatientPlanner())).begin().run(24 * 3600)
    assert driver.ends().count("done") <= 12
    waits = [dict(report.figures)["seconds"] for report in driver.reports("regrowth")]
    assert waits[:4] == [600, 1200, 2400, 4800]
    assert max(int(wait) for wait in waits) == 4 * 3600


class Promising(PatientPlanner):
    """Promise savings of half a dollar per hour for every command."""

    def _wish(self, node: Node, question: Question) -> Command | None:
        command = super()._wish(node, question)
        return command and replace(command, savings=UNIT // 2)


@pytest.mark.parametrize(
    ("ends", "bought", "waits"),
    [
        (StabilizationEnds.LANDED, "fifth", [120, 240, 480, 960]),
        (StabilizationEnds.LANDED, "whole", [600, 1200, 2400, 4800]),
        (StabilizationEnds.LANDED, "dearer", [600, 1200, 2400, 4800]),
        (StabilizationEnds.LANDED, "cheap", [60, 120, 240, 480]),
        (StabilizationEnds.LANDED, "unknown", [600, 1200, 2400, 4800]),
        (StabilizationEnds.WINDOW, "fifth", [600, 1200, 2400, 4800]),
    ],
)
def test_the_first_wait_goes_by_what_was_lost(ends: StabilizationEnds, bought: str, waits: list[int]) -> None:
    """The first wait is the lost share of the savings times ten minutes."""
    prices = {"fifth": "0.10", "whole": "0.50", "dearer": "0.60", "cheap": "0.01"}
    catalogue = Catalogue(instance_types=tuple(kind(name, price) for name, price in prices.items()))
    offer = catalogue.instance_types[0].offerings[0]
    world = springy()
    world.bought = {
        names.INSTANCE_TYPE: bought, names.ZONE: offer.zone, names.CAPACITY_TYPE: offer.capacity_type,
    }  # fmt: skip
    settings = replace(CALM, stabilization_ends=ends)
    driver = Driver(world, Engine(settings, catalogue, decider=Promising())).begin().run(24 * 3600)
    found = [dict(report.figures)["seconds"] for report in driver.reports("regrowth")]
    assert found[:4] == waits
    assert max(int(wait) for wait in found) == 4 * 3600


def test_action_that_holds_makes_nobody_wait() -> None:
    """If the pods find room, nothing is reported and no pool waits."""
    world = springy(keeps_springing=False)
    driver = Driver(world, engine_for(CALM, PatientPlanner())).begin().run(600)
    assert driver.ends() == ["done"]
    assert driver.reports("regrowth") == []
    assert driver.engine.in_flight().regrown == {}


def test_nodes_for_other_pods_are_no_regrowth() -> None:
    """A node that is opened for other pods is no regrowth."""
    world = springy(keeps_springing=False)
    driver = Driver(world, engine_for(CALM, PatientPlanner())).begin().run(20)
    world.add_node("elsewhere")
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(600)
    assert driver.ends() == ["done"]
    assert driver.reports("regrowth") == []


def test_other_methods_do_not_wait() -> None:
    """Drift goes on in a pool whose cost actions wait."""
    world = springy()
    driver = Driver(world, engine_for(CALM, PatientPlanner())).begin().run(120)
    assert driver.engine.in_flight().regrown.keys() == {"web"}
    world.add_node("old", want="delete")
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)
    driver.run(60)
    assert driver.ends() == ["done", "done"]
    assert world.get(Node, "old") is None


def test_karpenters_profile_does_not_watch() -> None:
    """Under Karpenter's profile the engine repeats its cycles."""
    world = springy()
    settings = replace(CALM, rules=KARPENTER_RULES)
    driver = Driver(world, engine_for(settings, PatientPlanner())).begin().run(600)
    assert driver.ends().count("done") > 5
    assert driver.reports("regrowth") == []
