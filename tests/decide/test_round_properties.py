"""Properties of every round, for any cluster."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.decide.decider import Decider
from dovetail.decide.document import plan_document
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.methods import single_node
from dovetail.decide.methods.moves import Move
from dovetail.decide.question import Question
from dovetail.decide.round import plan_round
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.cluster import cluster_of
from dovetail.model.command import REASON_OF, Command, Method
from dovetail.model.objects import Condition
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15
from dovetail.plan.explaining.counterfactual import ask, counterfactuals
from tests.support.design_world import Town
from tests.support.towns import build, shapes, towns

happenings = st.sampled_from(
    ["pod", "spared", "ended", "pending", "event", "pdb", "gone", "later", "soon", "leave", "nominate", "pool", "drift"]
)
often = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
sometimes = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _scene(town: Town) -> Scene:
    return Scene.of(town.question())


@often
@given(towns)
def test_never_over_a_budget(town: Town) -> None:
    """Commands started one after the other never take more nodes than each pool's budgets leave for the reason."""
    for _ in range(20):
        context = _scene(town)
        result = town.round()
        if not result.commands:
            break
        for command in result.commands:
            left = context.ledger.left(REASON_OF[command.method])
            for pool in left:
                count = sum(1 for name in command.nodes if context.by_name[name].pool_name == pool)
                assert count <= left[pool]
            town.mark(command)
    for row in town.round().budgets:
        assert row.left >= 0


@often
@given(towns)
def test_zones_in_turn(town: Town) -> None:
    """A sequential budget never lets drift begin in a second zone, or beyond the zone's allowance."""
    for _ in range(20):
        before = dict(town.leaving)
        context = _scene(town)
        result = town.round()
        if not result.commands:
            break
        for command in result.commands:
            town.mark(command)
            if command.method.value == "drifted":
                _check_zone(context, command, list(before))


def _check_zone(context: Scene, command: Command, in_flight: list[str]) -> None:
    for pool in {context.by_name[name].pool_name for name in command.nodes}:
        _, sequential = context.ledger.topology_budgets(pool)
        if sequential is None:
            continue
        chosen = {context.by_name[name].zone for name in command.nodes if context.by_name[name].pool_name == pool}
        busy = {context.by_name[name].zone for name in in_flight if context.by_name[name].pool_name == pool}
        assert len(chosen) == 1
        assert not busy or chosen <= busy


@often
@given(towns)
def test_every_node_has_one_verdict(town: Town) -> None:
    """Every node has exactly one verdict, and its chain of gates ends where the verdict says."""
    for profile in (DOVETAIL, KARPENTER_1_15):
        town.settings = profile
        verdicts = town.round().verdicts
        assert [entry.node for entry in verdicts] == sorted(town.nodes)
        for entry in verdicts:
            assert all(gate.passed for gate in entry.gates[:-1])
            assert entry.gates[-1].passed == (entry.verdict == "eligible")
            assert entry.why.endswith(".") or entry.why


@often
@given(towns)
def test_a_node_in_its_grace_period_is_in_no_cost_action(town: Town) -> None:
    """A node in its grace period is neither source nor destination of a cost action; pending pods may land there."""
    context = _scene(town)
    hidden = {facts.name for facts in context.nodes if facts.hidden_until is not None and town.now < facts.hidden_until}
    waiting = {f"default/{name}" for name, pod in town.pods.items() if not pod.spec.node_name}
    for method in town.round(every_method=True, every_candidate=True).methods[3:]:
        commands = [*method.commands, *(entry.command for entry in method.alone or () if entry.command)]
        for command in commands:
            assert not hidden & set(command.nodes)
            for placement in command.placements:
                assert placement.node not in hidden or set(placement.pods) <= waiting


@often
@given(shapes, st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(shape: dict[str, Any], rng: random.Random) -> None:
    """Objects and instance types in another order give the same plan, to the byte."""
    town = build(shape)
    plain = town.round(every_method=True, every_candidate=True)
    objects = [*town.pools.values(), *town.nodes.values(), *town.claims.values(), *town.pods.values(), *town.others]
    rng.shuffle(objects)
    kinds = list(town.catalogue.instance_types)
    rng.shuffle(kinds)
    catalogue = replace(town.catalogue, instance_types=tuple(kinds))
    question = town.question(cluster=cluster_of(objects), catalogue=catalogue)
    other = plan_round(question, every_method=True, every_candidate=True)
    assert msgspec.json.encode(plan_document(plain)) == msgspec.json.encode(plan_document(other))


def _worth_it(town: Town) -> set[str]:
    work = Work(_scene(town))
    return {facts.name for facts in work.scene.cost_order if isinstance(single_node.judge(work, facts), Move)}


def _with_threshold(shape: dict[str, Any], value: float) -> Town:
    pools = {pool: {**shape[pool], "consolidationSavingsThreshold": value} for pool in ("alpha", "beta")}
    return build({**shape, **pools})


@often
@given(shapes, st.floats(0, 0.2), st.floats(0, 0.2))
def test_a_higher_threshold_never_lets_more_go(shape: dict[str, Any], one: float, other: float) -> None:
    """A node that passes at a higher threshold also passes at a lower one.

    Pods of negative cost turn that round (a higher threshold asks for less), so they are left out here.
    """
    for node in shape["nodes"]:
        for pod in node["pods"]:
            pod.pop("cost", None)
    low, high = sorted((round(one, 4), round(other, 4)))
    assert _worth_it(_with_threshold(shape, high)) <= _worth_it(_with_threshold(shape, low))


@often
@given(shapes, st.integers(0, 6))
def test_more_disruption_never_lets_a_node_go(shape: dict[str, Any], which: int) -> None:
    """More expensive pods on a node never make a refused move pass."""
    if any(shape[pool]["consolidationPolicy"] == "Balanced" for pool in ("alpha", "beta")):
        return  # there a node is measured against its pool, whose total grows with it
    which %= len(shape["nodes"])
    before = _worth_it(build(shape))
    if not shape["nodes"][which]["pods"]:
        return  # an empty node is no cost candidate at all
    for pod in shape["nodes"][which]["pods"]:
        pod["cost"] = "2000000000"
    assert f"n{which}" not in _worth_it(build(shape)) - before


@often
@given(towns)
def test_what_was_decided_is_still_right_at_once(town: Town) -> None:
    """A new command passes validation unchanged on the same snapshot."""
    for command in (c for method in town.round(every_method=True).methods for c in method.commands):
        again = Decider(memory=False).revalidate(command, town.question())
        assert isinstance(again, Command), again
        assert again.nodes == command.nodes
        assert [r.instance_types for r in again.replacements] == [r.instance_types for r in command.replacements]


@often
@given(towns, st.lists(st.tuples(st.integers(0, 6), happenings), max_size=8))
def test_a_memory_changes_no_answer(town: Town, steps: list[tuple[int, str]]) -> None:
    """Rounds with memory give the same answers as rounds without, whatever happens in between."""
    decider, catalogue = Decider(), town.catalogue
    for number, (which, what) in enumerate([(0, "start"), *steps]):
        _happen(town, f"n{which}", what, number)
        for full in (False, True):
            question = town.question(catalogue=catalogue)
            kept = decider.round(question, every_method=full, every_candidate=full)
            plain = town.round(every_method=full, every_candidate=full)
            assert msgspec.json.encode(plan_document(kept)) == msgspec.json.encode(plan_document(plain))
            assert (kept.next_change, kept.blocked, kept.prices) == (plain.next_change, plain.blocked, plain.prices)


@often
@given(towns, st.sampled_from([0, 3, 8, 20]))
def test_the_order_of_reading_changes_nothing(town: Town, pods: int) -> None:
    """A result is the same if its methods are read before or after its verdicts, in large clusters too."""
    with patch.multiple("dovetail.decide.verdict", PODS_MAX=pods, FIRST_GATE_PODS_MAX=0):
        one, other = (town.round(every_candidate=True) for _ in range(2))
        methods, verdicts = one.methods, one.verdicts
        assert (other.verdicts, other.methods) == (verdicts, methods)


@often
@given(towns, st.lists(st.tuples(st.integers(0, 6), happenings), max_size=4))
def test_a_result_read_late_says_the_same(town: Town, steps: list[tuple[int, str]]) -> None:
    """Verdicts and methods that are read after later rounds are the same as if read at once."""
    decider, catalogue = Decider(), town.catalogue
    kept, at_once = [], []
    for number, (which, what) in enumerate([(0, "start"), *steps]):
        _happen(town, f"n{which}", what, number)
        question = town.question(catalogue=catalogue)
        kept.append(decider.round(question, every_candidate=True))
        at_once.append(msgspec.json.encode(plan_document(plan_round(question, every_candidate=True))))
    assert [msgspec.json.encode(plan_document(result)) for result in kept] == at_once


def _happen(town: Town, node: str, what: str, number: int) -> None:
    if what == "pdb":
        town.others.clear()
        town.pdb("guard", {"guarded": "yes"}, allowed=number % 3)
    elif what in ("later", "soon"):
        town.now += timedelta(minutes=20) if what == "later" else timedelta(seconds=30)
    elif what == "pending":
        town.pod(f"new-{number}", "", cpu="1500m")
    elif what == "pool":
        town.pool("alpha", disruption={"consolidateAfter": f"{number * 5}m"})
    elif node in town.nodes:
        _happen_to(town, node, what, number)


def _happen_to(town: Town, node: str, what: str, number: int) -> None:
    if what == "pod":
        town.pod(f"new-{number}", node, labels={"guarded": "yes"})
    elif what == "spared":
        town.pod(f"new-{number}", node, annotations={names.DO_NOT_DISRUPT: "70m"})
    elif what == "ended":
        here = sorted(key for key, pod in town.pods.items() if pod.spec.node_name == node)
        town.pods = {key: pod for key, pod in town.pods.items() if key not in here[:1]}
    elif what == "event":
        town.event(node)
    elif what == "gone" and len(town.nodes) > 1:
        town.remove(node)
    elif what == "leave" and town.leaving.pop(node, None) is None:
        town.leaving[node] = LeavingNode(node=node, method=Method.SINGLE_NODE, since=town.now)
    elif what == "nominate":
        town.nominated = () if town.nominated else (node,)
    elif what == "drift":
        claim = town.claims[node]
        drifted = Condition(type=names.CONDITION_DRIFTED, status="True", last_transition_time=None)
        status = msgspec.structs.replace(claim.status, conditions=(*claim.status.conditions, drifted))
        town.claims[node] = msgspec.structs.replace(claim, status=status)


@sometimes
@given(towns)
def test_nothing_changes_before_the_next_change(town: Town) -> None:
    """One second before `next_change`, the same nodes would go."""
    result = town.round()
    if result.commands or result.next_change is None or result.next_change - town.now < timedelta(seconds=2):
        return
    town.now = result.next_change - timedelta(seconds=1)
    assert town.round().commands == ()


@sometimes
@given(towns)
def test_removing_the_cause_does_what_explain_says(town: Town) -> None:
    """Without the do-not-disrupt pods that `explain` names, the verdict is the one it predicted."""
    world = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    for name in sorted(town.nodes):
        answer, found = counterfactuals(world, name)
        assert answer is not None
        if answer.eligible or answer.last.gate.value != "pod-do-not-disrupt":
            continue
        told = found[0]
        changed = dict(town.pods)
        for key, pod in town.pods.items():
            if f"default/{key}" in told.if_:
                annotations = {k: v for k, v in pod.metadata.annotations.items() if k != names.DO_NOT_DISRUPT}
                meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
                changed[key] = msgspec.structs.replace(pod, metadata=meta)
        town.pods, kept = changed, town.pods
        assert town.verdicts()[name] == told.gate
        town.pods = kept


def test_ask_knows_no_stranger() -> None:
    """A query for an unknown node has no answer."""
    town = Town()
    world = Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)
    assert ask(world, "nobody") is None
