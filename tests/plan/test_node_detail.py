"""`explain`: where pods would land, utilisation, all blockers at once, all nodes in one table."""

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.plan.explanation import explain
from dovetail.plan.node_detail import detail_of
from dovetail.plan.node_table import node_rows, rows_page, rows_text
from dovetail.plan.pages.explanation_page import explanation_page
from tests.support.design_world import Town, kind


def _question(town: Town) -> Question:
    return Question(cluster=town.cluster, catalogue=town.catalogue, settings=town.settings, now=town.now)


def _town() -> Town:
    town = Town(kind("l", "0.40", cpu=8), kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0})
    town.node("full", "l")
    town.pod("small", "full", cpu="1000m")
    town.pod("wide", "full", cpu="3000m")
    town.node("room", "m")
    town.pod("there", "room", cpu="2500m")
    return town


def test_where_each_pod_would_land() -> None:
    """One pod fits on an existing node; the other needs a new one, which is named."""
    town = _town()
    work = Work(Decider().scene(_question(town)))
    detail = detail_of(work, work.scene.by_name["full"])
    landings = {entry.pod: (entry.node, entry.new) for entry in detail.landings}
    assert landings == {"default/small": ("room", None), "default/wide": (None, "m of default")}
    assert detail.new_nodes == ("m of default",)
    assert round(detail.utilisation["cpu"], 3) == 0.5
    assert detail.age is not None


def test_a_pod_without_a_place_says_why() -> None:
    """The output shows the scheduler's reason."""
    town = _town()
    town.pod("stuck", "full", cpu="100m", spec={"nodeSelector": {names.ZONE: "nowhere"}})
    work = Work(Decider().scene(_question(town)))
    stuck = next(e for e in detail_of(work, work.scene.by_name["full"]).landings if e.pod == "default/stuck")
    assert stuck.node is None
    assert stuck.new is None
    assert stuck.why


def test_all_blockers_at_once() -> None:
    """An annotation, two protected pods, a PDB, a timer and an empty budget are all named, not one after the other."""
    town = Town(kind("m", "0.20", cpu=4))
    town.pool(disruption={"consolidateAfter": "2h", "budgets": [{"nodes": "0"}]})
    town.node("n", "m", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("one", "n", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("two", "n", annotations={names.DO_NOT_DISRUPT: "true"})
    town.pod("web", "n", labels={"app": "web"})
    town.pdb("web", {"app": "web"}, 0)
    found = explain(_question(town), "n")
    gates = [entry["gate"] for entry in found.to_dict()["blockers"]]
    assert gates == [
        "node-do-not-disrupt",
        "pod-do-not-disrupt",
        "pod-do-not-disrupt",
        "pdb",
        "consolidate-after",
        "budget",
    ]
    assert "All that is in the way now (6):" in found.text
    assert max(map(len, found.text.splitlines())) <= 80


def test_every_node_in_one_table() -> None:
    """Rows have utilisation, pods and the verdict; you can choose a pool; the table fits."""
    town = _town()
    town.pool("other")
    town.node("ip-10-0-17-133.eu-west-1.compute.internal", "m", pool="other")
    question = _question(town)
    rows = node_rows(question)
    assert [row.name for row in rows] == ["full", "ip-10-0-17-133.eu-west-1.compute.internal", "room"]
    assert [row.pods for row in rows] == [2, 0, 1]
    assert [row.name for row in node_rows(question, ("other",))] == ["ip-10-0-17-133.eu-west-1.compute.internal"]
    assert max(map(len, rows_text(rows).splitlines())) <= 80
    assert "TYPE" in rows_text(rows, wide=True)
    assert "<code>room</code>" in rows_page(question, rows)


def test_one_node_as_a_page() -> None:
    """The page has the gates and the target nodes."""
    page = explanation_page(explain(_question(_town()), "full"))
    assert "Where its pods would land" in page
    assert "<code>default/wide</code>" in page
