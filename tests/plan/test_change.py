"""`dovetail diff`: which nodes drift by a change, how long the roll takes, and what it costs."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as change

from dovetail.api.pool_hash import pool_hash
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.objects import NodePool
from dovetail.plan.change import ManifestChange, change_of
from dovetail.plan.change_text import change_markdown, change_page, change_text, headline
from tests.support.commitments import paying, reserved
from tests.support.design_world import Town, kind


def _town(**disruption: Any) -> Town:
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationPolicy": "WhenEmpty", "budgets": [{"nodes": "1"}], **disruption})
    for number in range(3):
        town.node(f"n{number}", "m")
        town.fill(f"n{number}", 3, cpu="1200m")
    return town


def _question(town: Town) -> Question:
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


def _changed(town: Town, **parts: Any) -> ManifestChange:
    """Return what a change does; the parts are merged into `spec.template.spec`, `labels` into the metadata."""
    tree = msgspec.to_builtins(town.pools["default"])
    tree["metadata"] = {"name": "default"}
    template = tree["spec"]["template"]
    for key in ("labels", "annotations"):
        if key in parts:
            template.setdefault("metadata", {})[key] = parts.pop(key)
    disruption = parts.pop("disruption", None)
    if disruption is not None:
        tree["spec"]["disruption"] = {**tree["spec"]["disruption"], **disruption}
    if "weight" in parts:
        tree["spec"]["weight"] = parts.pop("weight")
    template["spec"] = {**template["spec"], **parts}
    return change_of(_question(town), [msgspec.convert(tree, NodePool)])


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"labels": {"team": "a"}}, "spec.template.metadata.labels"),
        ({"annotations": {"note": "a"}}, "spec.template.metadata.annotations"),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, "spec.template.spec.taints"),
        ({"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}, "spec.template.spec.startupTaints"),
        ({"expireAfter": "100h"}, "spec.template.spec.expireAfter"),
        ({"terminationGracePeriod": "1h"}, "spec.template.spec.terminationGracePeriod"),
        ({"nodeClassRef": {"group": "g", "kind": "k", "name": "other"}}, "spec.template.spec.nodeClassRef"),
        (
            {"requirements": [{"key": names.CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]},
            f"spec.template.spec.requirements[{names.CAPACITY_TYPE}]",
        ),
    ],
)
def test_what_makes_nodes_drift(parts: dict[str, Any], field: str) -> None:
    """A changed template drifts every node, by the field that Karpenter's hash or its requirements see."""
    found = _changed(_town(), **parts)
    assert [(entry.node_pool, entry.nodes, entry.fields) for entry in found.drifts] == [
        ("default", ("n0", "n1", "n2"), (field,))
    ]
    assert found.drifting == 3


@pytest.mark.parametrize(
    "parts",
    [
        {"disruption": {"budgets": [{"nodes": "50%"}]}},
        {"disruption": {"consolidateAfter": "5m"}},
        {"weight": 10},
        {"requirements": [{"key": names.CAPACITY_TYPE, "operator": "Exists"}]},
        {"requirements": [{"key": "no-node-has-it", "operator": "DoesNotExist"}]},
        {},
    ],
)
def test_what_does_not(parts: dict[str, Any]) -> None:
    """Budgets, timers, weights, and requirements that the nodes still meet change nothing on them."""
    found = _changed(_town(), **parts)
    assert found.drifts == ()
    assert found.roll is None
    assert headline(found) == "No node drifts, and the bill ends where it would without the change."


def test_the_default_of_the_crd_is_no_change() -> None:
    """Writing down the expireAfter that the API server fills in anyway drifts nothing."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(expireAfter=None)
    town.node("n0", "m")
    assert _changed(town, expireAfter="720h").drifts == ()


def test_the_hash_on_the_claim_counts() -> None:
    """A claim of an older template has drifted already, and one of the new template does not drift."""
    town = _town()
    new = change(town.pools["default"].spec.template.metadata, labels={"team": "a"})
    template = change(town.pools["default"].spec.template, metadata=new)
    wanted = change(town.pools["default"], spec=change(town.pools["default"].spec, template=template))
    for place, (name, claim) in enumerate(list(town.claims.items())):
        value = (pool_hash(wanted), "1", pool_hash(town.pools["default"]))[place]
        meta = change(claim.metadata, annotations={names.NODEPOOL_HASH: value, names.NODEPOOL_HASH_VERSION: "v3"})
        town.claims[name] = change(claim, metadata=meta)
    found = _changed(town, labels={"team": "a"})
    assert [entry.nodes for entry in found.drifts] == [("n2",)]
    assert [entry.settled for entry in found.drifts] == [("n0",)]


def test_a_hash_of_another_version_is_not_predicted() -> None:
    """A claim whose hash has another version is not judged by it, and the answer says so."""
    town = _town()
    for name, claim in list(town.claims.items()):
        meta = change(claim.metadata, annotations={names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v9"})
        town.claims[name] = change(claim, metadata=meta)
    found = _changed(town, labels={"team": "a"})
    assert found.drifts == ()
    assert any("hash of another version" in text for text in found.warnings)


def test_the_roll_is_paced_by_the_budget() -> None:
    """Three nodes under a budget of one follow each other; a budget of none never ends."""
    found = _changed(_town(), labels={"team": "a"})
    assert found.roll is not None
    assert found.roll.paced_by == "the budget of NodePool default (nodes: 1)"
    assert "takes about 3 minutes, until" in change_text(found, ())
    (status,) = found.after.first.rollouts
    assert status.expected_end == found.roll.end
    stuck = _changed(_town(budgets=[{"nodes": "0"}]), labels={"team": "a"})
    assert stuck.to_dict()["roll"] == {
        "nodes": 3,
        "expectedEnd": None,
        "pacedBy": "the budget of NodePool default (nodes: 0)",
    }
    assert "The roll never ends: " in change_text(stuck, ())


def test_a_blocked_node_keeps_the_roll_from_ending() -> None:
    """The same PDB as in `rollout status` is named, and only the other nodes have an end."""
    town = _town()
    town.pod("kept", "n1", labels={"app": "kept"})
    town.pdb("guard", {"app": "kept"}, 0)
    found = _changed(town, labels={"team": "a"})
    assert found.blocked == ("n1",)
    assert found.never == "PDB default/guard allows nothing"
    roll = found.to_dict()["roll"]
    assert (roll["nodes"], roll["expectedEnd"], roll["blocked"]) == (3, None, 1)
    text = " ".join(change_text(found, ()).split())
    assert "The roll of 3 nodes never ends while PDB default/guard allows nothing; the other 2 take" in text
    assert "never ends while PDB default/guard" in " ".join(change_markdown(found, ()).split())


def test_the_bill_under_commitments_is_that_of_the_plan() -> None:
    """The cost now is the bill, not the sum of what each node's going would save."""
    town = _town()
    town.settings = paying(commitments=[reserved(2, "m")])
    found = _changed(town, labels={"team": "a"})
    assert found.before.cost == town.round().cost_per_hour
    assert found.before.to_dict()["costPerHour"] == "0.2"


def test_the_plans_before_and_after_are_summed_up() -> None:
    """After the change the next round replaces a node; both sides have cost, actions, and where they end."""
    found = _changed(_town(), labels={"team": "a"}).to_dict()
    assert found["before"] == {"costPerHour": "0.6", "actions": 0, "endCostPerHour": "0.6", "endPodsMoved": 0}
    assert found["after"] == {"costPerHour": "0.6", "actions": 1, "endCostPerHour": "0.6", "endPodsMoved": 9}


def test_a_new_pool_drifts_nothing() -> None:
    """A pool that is not in the cluster is said to be new, with the nodes that it would get."""
    town = _town()
    pool = msgspec.convert({"metadata": {"name": "fresh"}, "spec": {}}, NodePool)
    found = change_of(_question(town), [pool])
    assert found.drifts == ()
    assert found.new_pools == (("fresh", 0),)
    assert any("NodePool fresh is new" in text for text in found.warnings)


def test_node_classes_are_loudly_not_predicted() -> None:
    """A change of a NodeClass stands above everything else, in every form."""
    found = change_of(_question(_town()), [], ["1 EC2NodeClass"])
    assert found.warnings[0].startswith("NOT PREDICTED: 1 EC2NodeClass")
    assert change_text(found, ()).startswith("warning: NOT PREDICTED: 1 EC2NodeClass")
    assert "> ⚠️ NOT PREDICTED: 1 EC2NodeClass" in change_markdown(found, ())
    page = change_page(found, ())
    assert "NOT PREDICTED" in page
    assert (
        "<title>As far as predicted: no node drifts, and the bill ends where it would without the change</title>"
        in page
    )


def test_the_title_of_the_page_is_the_answer() -> None:
    """Title and heading say what the change does; the lead adds how long the roll takes and does not repeat it."""
    found = _changed(_town(), labels={"team": "a"})
    answer = headline(found).removesuffix(".")
    page = change_page(found, ())
    assert answer.startswith("3 nodes of NodePool default drift")
    assert f"<title>{answer}</title>" in page
    assert f"<h1><bdi>{answer}</bdi></h1>" in page
    assert page.count(answer) == 2
    assert '<p class="lead">The roll of 3 nodes takes' in page


def test_the_page_has_differences_and_names_and_puts_warnings_last() -> None:
    """Each figure has its difference, the drifting nodes are named, and only what is not predicted stands on top."""
    found = _changed(_town(), labels={"team": "a"})
    page = change_page(replace(found, warnings=("a small thing", "NOT PREDICTED: 1 EC2NodeClass")), ())
    assert ">difference</th>" in page
    for node in found.drifts[0].nodes:
        assert f">{node}<" in page
    order = [page.index(text) for text in ("NOT PREDICTED: 1", "Before and after", "Nodes that drift", "a small thing")]
    assert order == sorted(order)


def test_a_name_cannot_leave_its_cell() -> None:
    """Markdown of a pull request is built from names that anybody may choose."""
    town = _town()
    found = change_markdown(_changed(town, labels={"team": "a"}), ["a|b <script>\n# head"])
    assert "a\\|b &lt;script>" in found
    assert "\n# head" not in found
