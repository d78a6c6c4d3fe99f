"""`explain` and `plan` ask the same round: for every node, search and policy, and for what a change would bring.

What a round takes is eligible, and passes the validation on the same question unchanged.

The clusters are golden ones, one of the benchmarks and those that the swarm draws; some nodes of each. `make test` asks
a part of them, CI more, `make test-long` all.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import msgspec
import pytest

from dovetail.api.catalogue import load_catalogue
from dovetail.api.reading.decode import load_cluster
from dovetail.decide.decider import Decider
from dovetail.decide.document import action, gate
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult, plan_round
from dovetail.model import names
from dovetail.model.money import format_money
from dovetail.model.objects import PodDisruptionBudget
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, RECOMMENDED, Search
from dovetail.model.verdicts import ELIGIBLE
from dovetail.plan.blocking.blockers import find_blockers
from dovetail.plan.explanation import explain
from dovetail.plan.to_end import plan_to_end
from dovetail.sim.checks.swarm import Trial
from tests.paths import SHARED, needs_shared
from tests.support.design_world import Town, kind
from tests.support.golden_cases import golden_cases
from tests.support.sizes import size

POLICIES = {
    "dovetail": DOVETAIL,
    "by value": replace(DOVETAIL, search=Search.VALUE, replacements_max=4),
    "recommended": RECOMMENDED,
    "karpenter": KARPENTER_1_15,
}
NODES = size(test=3, ci=6, long=40)
ODD = ("063", "P56")
"""Cases asked every time: a machine that only the search by value tries; a static pool's empty node."""
CASES = [
    case for place, case in enumerate(golden_cases()) if case.name in ODD or place % size(test=12, ci=4, long=1) == 0
]
SEEDS = range(size(test=3, ci=12, long=60))


def some(names: list[str]) -> Iterator[str]:
    """Yield some of the nodes, spread over all of them."""
    step = max(1, len(names) // NODES)
    yield from sorted(names)[::step][:NODES]


def check(question: Question) -> None:
    """Compare what `explain` says of some nodes with what `plan` says, now and after each change."""
    decider = Decider()
    result = decider.round(question)
    verdicts = {entry.node: entry for entry in result.verdicts}
    assert {verdicts[node].verdict for node in result.taken} <= {ELIGIBLE}
    for command in result.commands:
        assert decider.revalidate(command, question) == command
    for node in some(list(verdicts)):
        told = explain(question, node).to_dict()
        verdict = verdicts[node]
        assert (told["verdict"], told["why"]) == (verdict.verdict, verdict.why), node
        assert told["gates"] == [gate(entry) for entry in verdict.gates], node
        assert told["command"] == taking(result, node), node
        for opened, entry in zip(told["opens"], explain(question, node).opened, strict=True):
            other = plan_round(entry.question)
            assert opened["command"] == taking(other, node), (node, opened["if"])
            assert opened["savesMorePerHour"] == format_money(saved(other) - saved(result)), (node, opened["if"])
            assert opened["nodesMore"] == removed(other) - removed(result), (node, opened["if"])
            now = next(each for each in other.verdicts if each.node == node)
            assert opened["gate"] == now.verdict, (node, opened["if"])


def taking(result: RoundResult, node: str) -> object:
    """Return the command of a round that takes a node."""
    return next((action(command) for command in result.commands if node in command.nodes), None)


def saved(result: RoundResult) -> int:
    """Return what the commands of a round save per hour."""
    return sum(command.savings for command in result.commands)


def removed(result: RoundResult) -> int:
    """Return how many nodes the commands of a round remove."""
    return sum(len(command.nodes) for command in result.commands)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden_clusters(case: object, policy: str) -> None:
    """The verdict, the gates and the command of a node are those of the plan; changes are differences of two plans."""
    given = case
    check(
        Question(
            cluster=given.cluster,  # type: ignore[attr-defined]
            catalogue=given.catalogue,  # type: ignore[attr-defined]
            settings=POLICIES[policy],
            now=given.now,  # type: ignore[attr-defined]
        )
    )


@needs_shared
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cluster_of_the_benchmarks(policy: str) -> None:
    """The same on a hundred nodes with something to do for every method."""
    folder = SHARED / "bench" / "mixed-100"
    now = datetime.fromisoformat(json.loads((folder / "about.json").read_text())["now"])
    catalogue, cluster = load_catalogue(folder / "catalog.json.gz"), load_cluster([folder / "cluster.json.gz"])
    check(Question(cluster=cluster, catalogue=catalogue, settings=POLICIES[policy], now=now))


@pytest.mark.parametrize("seed", SEEDS)
def test_clusters_of_the_swarm(seed: int) -> None:
    """The same on a cluster that the swarm draws, with its settings and what its engine knows."""
    trial = Trial(seed)
    trial.build()
    trial.world.run(trial.world.now + 5 * 60 * 10**9)
    for settings in (trial.hosts[0].engine.settings, RECOMMENDED):
        check(replace(question_of(trial), settings=settings))


def question_of(trial: Trial) -> Question:
    """Return the question that the first engine of a run would ask now."""
    return trial.hosts[0].engine._state.question()


def test_later_rounds_are_asked() -> None:
    """With `to_end` a node that this round does not take names the round that does, if there is one."""
    found = 0
    for case in golden_cases()[:: size(test=6, ci=3, long=1)]:
        question = Question(cluster=case.cluster, catalogue=case.catalogue, settings=DOVETAIL, now=case.now)
        later: dict[str, tuple[int, object]] = {}
        for step in plan_to_end(question).steps:
            for command in step.commands:
                for node in command.nodes:
                    later.setdefault(node, (step.round, action(command)))
        here = [item.metadata.name for item in case.cluster.nodes]  # later rounds may take launched ones
        for node in [*some([name for name in later if name in here]), *some(here)][: NODES + 1]:
            told = explain(question, node, to_end=True).to_dict()["later"]
            number, taken = later.get(node, (1, None))
            assert told == (None if number == 1 else {"round": number, "action": taken}), (case.name, node)
            found += told is not None
    assert found


def one_figure(question: Question) -> int:
    """Compare what `blockers` and `explain` say of the same change; return how many changes both have."""
    compared = 0
    for blocker in find_blockers(question)[: size(test=2, ci=3, long=40)]:
        for opened in explain(question, blocker.example).opened if blocker.example else ():
            if same_change(opened.question, blocker.question):
                assert opened.savings == blocker.savings, (blocker.name, opened.if_)
                shown = opened.to_dict()["savingsPerHour"]
                assert shown == blocker.to_dict()["savingsPerHour"]
                compared += 1
    return compared


def same_change(one: Question, other: Question | None) -> bool:
    """Return whether two changed inputs are the same in everything that a blocker can be."""
    if other is None or one.settings != other.settings or one.now != other.now:
        return False
    columns = ("node_pools", "node_claims", "nodes", "pods", "pdbs", "capacity_buffers")
    return all(tuple(getattr(one.cluster, name)) == tuple(getattr(other.cluster, name)) for name in columns)


@pytest.mark.parametrize("policy", POLICIES)
def test_blockers_and_explain_give_one_figure(policy: str) -> None:
    """For the same change, both say the same dollars, under every search and policy."""
    town = a_town()
    question = Question(cluster=town.cluster, catalogue=town.catalogue, settings=POLICIES[policy], now=town.now)
    assert one_figure(question)
    for case in golden_cases()[:: size(test=30, ci=20, long=1)]:
        one_figure(replace(question, cluster=case.cluster, catalogue=case.catalogue, now=case.now))


def a_town() -> Town:
    """Return a town whose nodes stay because of a PDB, an annotation of a pod and one of a node."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    for name in ("by-pdb", "by-pod", "room"):
        town.node(name, "m")
    town.pod("web-1", "by-pdb", cpu="500m", labels={"app": "web"})
    tree = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": 0, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1},
    }
    town.others.append(msgspec.convert(tree, PodDisruptionBudget, strict=False))
    for pod, node in (("db-0", "by-pod"), ("held", "room")):
        town.pod(pod, node, cpu="500m", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[])
    return town


@pytest.mark.parametrize("seed", SEEDS)
def test_one_figure_in_clusters_of_the_swarm(seed: int) -> None:
    """The same in a cluster that the swarm draws."""
    trial = Trial(seed)
    trial.build()
    trial.world.run(trial.world.now + 5 * 60 * 10**9)
    one_figure(question_of(trial))
