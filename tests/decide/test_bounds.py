"""What is refused without a simulation, a simulation would refuse too."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dovetail.decide import moves, single_node
from dovetail.decide.bounds import Bounds
from dovetail.decide.facts import NodeFacts
from dovetail.decide.price import Refusal
from dovetail.decide.scene import Scene
from dovetail.model.settings import DOVETAIL
from dovetail.scheduling.snapshot import Snapshot
from tests.designs.world import Town, kind
from tests.golden.cases import GoldenCase, golden_cases


def _scenes(case: GoldenCase) -> Iterator[Scene]:
    plain = replace(DOVETAIL, nominated_nodes=case.settings.nominated_nodes)
    for settings in (case.settings, plain):
        snapshot = Snapshot.build(case.cluster, case.catalogue, settings, case.now)
        yield Scene(snapshot, settings, case.now)


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_nothing_is_refused_that_a_simulation_would_take(case: GoldenCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every single-node refusal by bounds alone is a refusal with the bounds taken away as well, in both profiles."""
    for scene in _scenes(case):
        quick = [
            facts
            for facts in single_node.candidates(scene)
            if isinstance(outcome := moves.cost_move(scene, (facts,)), Refusal) and not outcome.simulated
        ]
        with monkeypatch.context() as patch:
            patch.setattr(Bounds, "replacement_at_least", lambda self, facts: (False, None))
            for facts in quick:
                assert isinstance(moves.cost_move(scene, (facts,)), Refusal), facts.name


def test_bounds_do_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the packed golden case the bounds answer for every candidate, so the test above is not about nothing."""
    case = next(case for case in golden_cases() if case.name == "046")
    scene = next(_scenes(case))

    def no_simulation(*_: object, **__: object) -> NodeFacts:
        raise AssertionError("a simulation was asked for")

    refused = 0
    monkeypatch.setattr(Scene, "simulate", no_simulation)
    for facts in single_node.candidates(scene):
        try:
            outcome = moves.cost_move(scene, (facts,))
        except AssertionError:
            continue
        refused += isinstance(outcome, Refusal)
    assert refused > 0


def test_sums_beyond_what_can_be_counted() -> None:
    """Pods that each ask for the largest amount there is: their node stays, and nothing overflows."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name in ("a", "b"):
        town.node(name, "m")
        town.fill(name, 2, cpu="1e300")
    assert town.act() is None
    assert set(town.verdicts().values()) == {"simulation"}
