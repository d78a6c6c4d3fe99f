"""Check that a simulation would also refuse whatever a bound refuses."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.methods import moves, single_node
from dovetail.decide.refusal import Refusal
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate
from tests.support.design_world import Town
from tests.support.golden_cases import GoldenCase, golden_cases
from tests.support.golden_decisions import question_of
from tests.support.towns import KINDS


def _scenes(case: GoldenCase) -> Iterator[Scene]:
    plain = replace(DOVETAIL, nominated_nodes=case.settings.nominated_nodes)
    for settings in (case.settings, plain):
        yield Scene.of(question_of(case, settings))


def _questions(context: Scene) -> Iterator[Sequence[NodeFacts]]:
    """Yield each candidate alone, and batches of them."""
    found = single_node.candidates(context)
    for facts in found:
        yield (facts,)
    for size in range(2, min(len(found), 9) + 1):
        yield found[:size]


def _refused_for_certain(scene: Scene) -> Counter[tuple[Gate, bool]]:
    """Run every query with and without a simulation, and count the refusals by bounds for each gate."""
    counts: Counter[tuple[Gate, bool]] = Counter()
    work = Work(scene)
    for nodes in _questions(scene):
        quick = moves.cost_move(work, nodes)
        if isinstance(quick, Refusal) and not quick.simulated:
            in_full = moves.cost_move(work, nodes, in_full=True)
            assert isinstance(in_full, Refusal), [facts.name for facts in nodes]
            counts[quick.gate, len(nodes) > 1] += 1
    return counts


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_nothing_is_refused_that_a_simulation_would_take(case: GoldenCase) -> None:
    """A simulation refuses everything that a bound refuses, in both profiles, for one or several nodes."""
    for context in _scenes(case):
        _refused_for_certain(context)


def _crowded(dice: random.Random, settings: str) -> Town:
    """Return a nearly full cluster with starting and leaving nodes, grace periods and pending pods."""
    town = Town(*KINDS, settings=KARPENTER_1_15 if settings == "karpenter" else DOVETAIL)
    threshold = dice.choice([0, 0, 0.001, 0.01])
    town.pool(disruption={"consolidateAfter": "0s", "consolidationGracePeriod": "20m", **_threshold(threshold)})
    for number in range(dice.randint(4, 12)):
        name, kind = f"n{number}", dice.choice(["s", "m", "l"])
        idle = timedelta(minutes=dice.choice([5, 60, 60, 60]))
        late = dice.random() < 0.1
        town.node(
            name,
            kind,
            idle=None if late else idle,
            without=(names.INITIALIZED_LABEL,) if late else (),
            conditions=[{"type": names.CONDITION_CONSOLIDATABLE, "status": "True"}],
        )
        room = {"s": 2000, "m": 4000, "l": 8000}[kind]
        for place in range(0 if late and dice.random() < 0.7 else dice.randint(2, 14)):
            cpu = dice.choice([300, 500, 900, 1500])
            if cpu <= room:
                room -= cpu
                town.pod(f"{name}-{place}", name, cpu=f"{cpu}m")
        if not late and dice.random() < 0.2:
            town.leaving[name] = LeavingNode(node=name, method=Method.SINGLE_NODE, since=town.now)
    for number in range(dice.choice([0, 0, 1, 3])):
        town.pod(f"waits-{number}", cpu=f"{dice.choice([300, 900, 1500])}m")
    return town


def _threshold(amount: float) -> dict[str, float]:
    return {"consolidationSavingsThreshold": amount} if amount else {}


@pytest.mark.parametrize("profile", ["dovetail", "karpenter"])
def test_what_is_certain_is_so_in_crowded_clusters_in_motion(profile: str) -> None:
    """In generated clusters no bound refuses what a simulation accepts, and each kind of bound refuses something."""
    counts: Counter[tuple[Gate, bool]] = Counter()
    for seed in range(400):
        town = _crowded(random.Random(seed), profile)
        counts += _refused_for_certain(Scene.of(town.question()))
    wanted = {
        (Gate.UNINITIALIZED_DESTINATION, False),
        (Gate.UNINITIALIZED_DESTINATION, True),
        (Gate.NEW_NODES, True),
        (Gate.PRICE, False),
    }
    if profile == "dovetail":
        wanted.add((Gate.SAVINGS_THRESHOLD, False))
    assert wanted <= counts.keys(), counts


@pytest.mark.parametrize("first", ["leaves", "waits", "neither"])
def test_harmless_pods_may_fill_a_node_on_its_way(first: str) -> None:
    """Pending pods and pods of leaving nodes may take the room of a starting node before moved pods do."""
    town = Town(*KINDS)
    town.pool(disruption={"consolidateAfter": "0s"})
    town.node("late", "s", idle=None, without=(names.INITIALIZED_LABEL,))
    town.node("asked", "m")
    town.pod("moves", "asked", cpu="1500m")
    if first == "waits":
        town.pod("larger", cpu="1900m")
    elif first == "leaves":
        town.node("goes", "s")
        town.pod("larger", "goes", cpu="1900m")
        town.leaving["goes"] = LeavingNode(node="goes", method=Method.SINGLE_NODE, since=town.now)
    context = Scene.of(town.question())
    found = context.starting.destination((context.index_of(context.by_name["asked"]),))
    assert (found is not None) == (first == "neither")


def test_bounds_do_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the packed golden case the bounds refuse every candidate, so the tests above check something."""
    case = next(case for case in golden_cases() if case.name == "046")
    context = next(_scenes(case))

    def no_simulation(*_: object, **__: object) -> NodeFacts:
        raise AssertionError("a simulation was asked for")

    refused = 0
    monkeypatch.setattr(Work, "simulate", no_simulation)
    work = Work(context)
    for facts in single_node.candidates(context):
        try:
            outcome = moves.cost_move(work, (facts,))
        except AssertionError:
            continue
        refused += isinstance(outcome, Refusal)
    assert refused > 0


@pytest.mark.parametrize(
    ("settings", "refused"), [(DOVETAIL, False), (KARPENTER_1_15, True)], ids=["dovetail", "karpenter"]
)
def test_pods_of_leaving_nodes_count_in_karpenter_alone(settings: Settings, refused: bool) -> None:
    """A new node for a leaving node's pod blocks the command under Karpenter's profile only."""
    town = Town(*KINDS, settings=settings)
    town.pool(disruption={"consolidateAfter": "0s"})
    ready = [{"type": names.CONDITION_CONSOLIDATABLE, "status": "True"}]
    for name in ("asked", "rest"):
        town.node(name, "s", conditions=ready)
        town.pod(f"{name}-1", name, cpu="300m")
    town.node("goes", "s")
    town.pod("large", "goes", cpu="1900m")
    town.leaving["goes"] = LeavingNode(node="goes", method=Method.SINGLE_NODE, since=town.now)
    context = Scene.of(town.question())
    work = Work(context)
    outcome = moves.cost_move(work, (context.by_name["asked"],))
    assert isinstance(outcome, Refusal) == refused
    in_full = moves.cost_move(work, (context.by_name["asked"],), in_full=True)
    assert isinstance(in_full, Refusal) == refused
