"""`dovetail blockers`: how much money each blocker costs, found by planning without it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.facts.pdb_sums import pdb_sum
from dovetail.decide.question import Question
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.money import UNIT, parse_money
from dovetail.model.objects import PodDisruptionBudget
from dovetail.plan import remedy
from dovetail.plan.blocking.blockers import Blocker, find_blockers
from dovetail.plan.blocking.blockers_text import blockers_page, blockers_text
from dovetail.plan.pages.page import plan_page
from dovetail.plan.view import plan_view
from tests.support.design_world import Town, kind


def _question(town: Town) -> Question:
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


def _blockers(town: Town) -> dict[str, Blocker]:
    return {entry.name: entry for entry in find_blockers(_question(town))}


def _pdb(name: str, labels: dict[str, str], spec: dict[str, Any], **status: int) -> PodDisruptionBudget:
    tree = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, **spec},
        "status": status,
    }
    return msgspec.convert(tree, PodDisruptionBudget, strict=False)


def _town() -> Town:
    """Return three nodes of one pool: blocked by a PDB, blocked by an annotation, and with room for all."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("by-pdb", "m")
    town.pod("web-1", "by-pdb", cpu="500m", labels={"app": "web"})
    town.others.append(_pdb("web", {"app": "web"}, {"minAvailable": 1}, expectedPods=1, currentHealthy=1))
    town.node("by-pod", "m")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": True}
    town.pod("db-0", "by-pod", cpu="500m", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[owner])
    town.node("room", "m")
    town.pod("held", "room", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[])
    return town


def test_the_saving_is_what_the_core_finds_without_that_blocker() -> None:
    """A blocker is worth what the plan saves without it."""
    town = _town()
    found = _blockers(town)
    assert found["default/web"].kind == "PodDisruptionBudget"
    assert found["default/db"].kind == "Workload"
    assert found["default/held"].kind == "Pod"
    question = _question(town)
    lifted = replace(question, cluster=replace(question.cluster, pdbs=()))
    (command,) = Decider().round(lifted).commands
    assert command.nodes == ("by-pdb",)
    assert found["default/web"].savings == command.savings == parse_money("0.20")
    assert found["default/db"].savings == parse_money("0.20")


@pytest.mark.parametrize(
    ("after", "why", "step"),
    [
        ("Never", "consolidateAfter is Never.", "set consolidateAfter to a duration, such as 5m"),
        ("2h", "consolidateAfter is 2h and has not passed.", "wait, or shorten consolidateAfter"),
    ],
)
def test_nobody_is_told_to_wait_for_never(after: str, why: str, step: str) -> None:
    """A timer that runs can be waited for; Never can't."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidateAfter": after})
    town.node("empty", "m")
    (found,) = _blockers(town).values()
    assert (found.why, found.remedy) == (why, step)


@pytest.mark.parametrize(
    ("after", "step"),
    [("Never", "set consolidateAfter to a duration, such as 5m"), ("2h", "wait, or shorten consolidateAfter")],
)
def test_the_plan_advises_what_blockers_advises(after: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's table, the details of a node and the first remedy of a large cluster name the same step."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidateAfter": after})
    town.node("empty", "m")
    question, decider = _question(town), Decider()
    (found,) = find_blockers(question)
    assert found.remedy == step
    result = decider.round(question)
    assert f">{step}</td>" in plan_page(result)
    known = plan_view(question, Work(decider.scene(question)), result)["remedies"]
    assert known.get("consolidate-after default", known["consolidate-after"]) == step
    monkeypatch.setattr(remedy, "BLOCKERS_NODES_MAX", 0)
    assert f"First thing to change: {step}." in remedy.first_remedy(question, result)


def test_a_gate_of_two_pools_has_two_steps() -> None:
    """The row of the page names the pool where the first thing to change differs from pool to pool."""
    town = Town(kind("m", "0.20", cpu=4))
    for pool, after in (("a", "Never"), ("b", "2h")):
        town.pool(pool, disruption={"consolidateAfter": after})
        town.node(f"of-{pool}", "m", pool=pool)
    page = plan_page(Decider().round(_question(town)))
    assert "a: set consolidateAfter to a duration, such as 5m; b: wait, or shorten consolidateAfter" in page


@pytest.mark.parametrize(
    ("marks", "why", "step"),
    [
        ({names.PAUSED: "true"}, "It is paused until it is resumed.", "run dovetail resume default"),
        (
            {names.PAUSED: "true", names.PAUSED_REASON: "launch day"},
            "It is paused until it is resumed (launch day).",
            "run dovetail resume default",
        ),
        (
            {names.PAUSED: "2099-01-01T00:00:00Z"},
            "It is paused until 2099-01-01T00:00:00Z.",
            "wait until 2099-01-01T00:00:00Z, or run dovetail resume default",
        ),
    ],
)
def test_a_paused_pool_is_a_blocker(marks: dict[str, str], why: str, step: str) -> None:
    """It is worth what the plan saves once the pool is resumed, and `plan` advises the same."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(annotations=marks)
    town.node("empty", "m")
    question = _question(town)
    (found,) = find_blockers(question)
    assert (found.kind, found.name, found.gate, found.nodes) == ("NodePool", "default", "paused", 1)
    assert (found.savings, found.why, found.remedy) == (parse_money("0.20"), why, step)
    result = Decider().round(question)
    assert f">{step}</td>" in plan_page(result)
    said = remedy.first_remedy(question, result)
    waits = "wait" in step
    assert said.startswith("Nothing to change: what waits (paused)" if waits else "First thing to change: NodePool")


def test_a_paused_controller_is_one_blocker() -> None:
    """The setting is lifted for all pools at once; a pool that is paused as well stays so."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool("a")
    town.pool("b", annotations={names.PAUSED: "true"})
    for pool in ("a", "b"):
        town.node(f"of-{pool}", "m", pool=pool)
    question = _question(town)
    question = replace(question, settings=replace(question.settings, paused=True))
    (found,) = find_blockers(question)
    assert (found.kind, found.name, found.gate, found.nodes) == ("Settings", "paused", "paused", 2)
    assert (found.savings, found.remedy) == (parse_money("0.20"), "switch the setting paused off")
    assert ">switch the setting paused off</td>" in plan_page(Decider().round(question))


def test_a_node_with_two_blockers_is_nobodys_saving_alone() -> None:
    """Removing one of two blockers frees nothing; both name the node."""
    town = _town()
    town.pod("also", "by-pdb", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[])
    found = _blockers(town)
    assert found["default/web"].savings == found["default/also"].savings == 0
    assert (found["default/web"].nodes, found["default/web"].alone) == (1, 0)


def test_they_are_ranked_by_savings_then_name() -> None:
    """The most expensive comes first."""
    town = _town()
    town.kinds["x"] = kind("x", "1.00", cpu=4)
    town.node("dear", "x")
    town.pod("rare", "dear", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[])
    ranked = find_blockers(_question(town))
    assert ranked[0].name == "default/rare"
    assert [(-entry.savings, entry.name) for entry in ranked] == sorted((-e.savings, e.name) for e in ranked)


def test_pods_of_a_deployment_are_named_by_it() -> None:
    """A ReplicaSet is shown as its Deployment."""
    town = _town()
    tree = {
        "metadata": {
            "name": "api-5d4f",
            "namespace": "default",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "controller": True}],
        },
        "spec": {"replicas": 1},
    }
    from dovetail.model.objects import ReplicaSet

    town.others.append(msgspec.convert(tree, ReplicaSet, strict=False))
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "api-5d4f", "uid": "u", "controller": True}
    town.pod("api-5d4f-x", "by-pod", annotations={names.DO_NOT_DISRUPT: "true"}, ownerReferences=[owner])
    assert _blockers(town)["default/api"].kind == "Workload"


@pytest.mark.parametrize(
    ("spec", "pods", "spare", "said"),
    [
        ({"minAvailable": 3}, 3, 0, "minAvailable 3 of 3 pods leaves none"),
        ({"minAvailable": 1}, 1, 0, "minAvailable 1 of 1 pod leaves none"),
        ({"minAvailable": 2}, 3, 1, "leaves 1"),
        ({"minAvailable": 5}, 3, 0, "leaves none"),
        ({"minAvailable": "100%"}, 4, 0, "minAvailable 100% (rounded up: 4) of 4 pods leaves none"),
        ({"minAvailable": "90%"}, 5, 0, "minAvailable 90% (rounded up: 5) of 5 pods leaves none"),
        ({"minAvailable": "80%"}, 5, 1, "leaves 1"),
        ({"maxUnavailable": 0}, 7, 0, "maxUnavailable 0 of 7 pods lets none be away"),
        ({"maxUnavailable": "0%"}, 7, 0, "lets none be away"),
        ({"maxUnavailable": "1%"}, 7, 1, "maxUnavailable 1% (rounded up: 1) of 7 pods lets 1 be away"),
        ({"maxUnavailable": 9}, 7, 7, "lets 9 be away"),
        ({"minAvailable": "50%"}, 1, 0, "minAvailable 50% (rounded up: 1) of 1 pod leaves none"),
    ],
)
def test_the_arithmetic_of_a_pdb(spec: dict[str, Any], pods: int, spare: int, said: str) -> None:
    """Percentages are rounded up, as in Kubernetes; the rest may be unavailable."""
    total = pdb_sum(_pdb("p", {"a": "b"}, spec), pods)
    assert total.spare == spare
    assert total.impossible == (spare == 0)
    assert said in total.why


def test_a_pdb_that_can_never_allow_an_eviction_is_named_with_its_remedy() -> None:
    """`minAvailable` equal to the replicas is impossible; a PDB that only lacks healthy pods is not."""
    town = _town()
    town.node("other", "m")
    for number in range(2):
        town.pod(f"api-{number}", "other", cpu="500m", labels={"app": "api"})
    town.others.append(
        _pdb("api", {"app": "api"}, {"minAvailable": 1}, expectedPods=2, currentHealthy=1, desiredHealthy=1)
    )
    found = _blockers(town)
    assert found["default/web"].impossible
    assert "minAvailable 1 of 1 pod leaves none" in found["default/web"].why
    assert "maxUnavailable: 1" in found["default/web"].remedy
    assert not found["default/api"].impossible
    assert "1 unhealthy pod" in found["default/api"].remedy


def test_a_pod_under_two_pdbs_can_never_be_evicted() -> None:
    """The eviction API refuses a pod that two PDBs select."""
    town = _town()
    town.others.append(_pdb("web-too", {"app": "web"}, {"maxUnavailable": 1}, disruptionsAllowed=1, expectedPods=1))
    entry = _blockers(town)["default/web-too"]
    assert entry.impossible
    assert "selected by 2 PodDisruptionBudgets" in entry.why


def test_an_impossible_pdb_is_named_even_if_it_holds_no_node() -> None:
    """A PDB that would block the next drain is listed in advance."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidateAfter": "0s"})
    town.pod("waiting", labels={"app": "web"})
    town.others.append(_pdb("web", {"app": "web"}, {"maxUnavailable": 0}, expectedPods=1))
    (entry,) = find_blockers(_question(town))
    assert (entry.name, entry.impossible, entry.nodes, entry.savings) == ("default/web", True, 0, 0)


def test_a_drain_that_can_never_end_is_named() -> None:
    """A leaving node with a protected pod and without a terminationGracePeriod waits forever."""
    town = _town()
    claim = town.claims["by-pod"]
    metadata = msgspec.structs.replace(claim.metadata, deletion_timestamp=town.now - timedelta(hours=2))
    town.claims["by-pod"] = msgspec.structs.replace(claim, metadata=metadata)
    entry = _blockers(town)["default/db"]
    assert entry.impossible
    assert "is draining" in entry.why
    assert "terminationGracePeriod" in entry.why
    bounded = msgspec.structs.replace(claim.spec, termination_grace_period="1h")
    town.claims["by-pod"] = msgspec.structs.replace(town.claims["by-pod"], spec=bounded)
    assert not _blockers(town)["default/db"].impossible


@pytest.mark.parametrize(
    ("disruption", "gate"),
    [
        ({"consolidationPolicy": "WhenEmpty"}, "pool-policy"),
        ({"consolidateAfter": "Never"}, "consolidate-after"),
        ({"consolidateAfter": "2h"}, "consolidate-after"),
        ({"consolidationGracePeriod": "2h"}, "grace-period"),
        ({"budgets": [{"nodes": "0"}]}, "budget"),
        ({"consolidationSavingsThreshold": 100}, "savings-threshold"),
    ],
)
def test_a_pools_policy_is_a_blocker(disruption: dict[str, Any], gate: str) -> None:
    """Each blocker is removed by changing the one field that blocks the nodes, and the core computes the savings."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption=disruption)
    town.node("wide", "l")
    town.fill("wide", 2)
    (entry,) = find_blockers(_question(town))
    assert (entry.kind, entry.name, entry.gate, entry.nodes) == ("NodePool", "default", gate, 1)
    assert entry.savings == UNIT // 5
    assert entry.remedy


@pytest.mark.parametrize(
    ("budget", "why", "step"),
    [
        ({"nodes": "-5"}, "Budget 1 (nodes: -5) can't be read", "mend budget 1; dovetail validate says what is wrong"),
        ({"nodes": "0"}, "Its budgets (nodes: 0) allow no more now.", "raise the budget for this reason"),
        ({"nodes": "0", "schedule": "* * * * *", "duration": "1h"}, "nodes: 0", "or wait for its window"),
    ],
)
def test_the_remedy_for_a_budget_can_be_done(budget: dict[str, str], why: str, step: str) -> None:
    """A budget that can't be read is to be mended, and nobody is told to wait for a window that is not there."""
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"budgets": [budget]})
    town.node("wide", "l")
    town.fill("wide", 2)
    (entry,) = find_blockers(_question(town))
    assert why in entry.why
    assert step in entry.remedy
    assert ("window" in entry.remedy) == ("schedule" in budget)


def test_words_fit_eighty_columns_and_the_page_escapes_names() -> None:
    """Reason and remedy are wrapped; text from the cluster is not treated as markup."""
    town = _town()
    question = _question(town)
    blockers = find_blockers(question)
    assert max(map(len, blockers_text(question, blockers).splitlines())) <= 80
    assert "NEVER" in blockers_text(question, blockers)
    assert "<code>default/web</code>" in blockers_page(question, blockers)


@pytest.mark.parametrize(
    ("savings", "title"),
    [
        (["0.54", "3.15"], "<title>Pod a/b holds back most: $2,300 a month (pdb)</title>"),
        (["0"], "<title>Nothing that could be lifted holds money back</title>"),
        ([], "<title>Nothing that could be lifted holds money back</title>"),
    ],
)
def test_the_title_of_the_page_is_the_answer(savings: list[str], title: str) -> None:
    """It names what holds back most, and how much a month."""
    blockers = [_listed(savings=parse_money(text)) for text in savings]
    assert title in blockers_page(_question(_town()), blockers)


def test_the_promised_keys() -> None:
    """The JSON has the keys of the contract."""
    entry = find_blockers(_question(_town()))[0].to_dict()
    assert {"kind", "name", "gate", "nodes", "savingsPerHour", "impossible", "why", "remedy"} <= set(entry)
    assert entry["savingsPerHour"] == "0.2"


def _listed(**fields: Any) -> Blocker:
    known = {"kind": "Pod", "name": "a/b", "gate": "pdb", "nodes": 1, "savings": 0, "impossible": False}
    return Blocker(**{**known, "why": "It does.", "remedy": "don't", **fields})


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        (_listed(savings=parse_money("0.54")), "    $0.54/h  Pod a/b (pdb)"),
        (_listed(savings=parse_money("0.0031")), "  $0.0031/h  Pod a/b (pdb)"),
        (_listed(impossible=True), "             Pod a/b (pdb)  NEVER"),
        (_listed(by_themselves=parse_money("0.33")), "  $0.33      1  pdb   Pod a/b"),
        (_listed(), "1 more blocker would save nothing alone now (-o wide lists all)."),
    ],
)
def test_no_row_says_that_nothing_is_saved(entry: Blocker, shown: str) -> None:
    """A blocker stands beside what it saves, beside what its nodes alone would save, or is only counted."""
    question = _question(_town())
    text = blockers_text(question, [entry])
    assert shown in text.split("\n")
    for said in (text, blockers_text(question, [entry], wide=True), blockers_page(question, [entry])):
        assert "$0.00/h" not in said
