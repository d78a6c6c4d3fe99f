"""The document of the plan's page matches its schema and the plan."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace as change

from dovetail.api.catalogue import load_catalogue
from dovetail.api.reading.decode import load_cluster
from dovetail.api.settings import load_settings
from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.decide.round import RoundResult
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.objects import Taint
from dovetail.plan import view
from tests.paths import ROOT
from tests.support.golden_cases import DATA

_SCHEMA = json.loads((ROOT / "src/dovetail/report/schemas/plan.schema.json").read_text())
_NOW = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)


def _question(case: str) -> Question:
    folder = DATA / case
    return Question(
        cluster=load_cluster([str(folder / "cluster.json.gz")]),
        catalogue=load_catalogue(str(folder / "catalog.json.gz")),
        settings=load_settings(None, "dovetail"),
        now=_NOW,
    )


@pytest.fixture(scope="module", params=["045"])
def shown(request: pytest.FixtureRequest) -> tuple[Question, RoundResult, dict[str, Any]]:
    """Return a golden cluster, its round and its document."""
    question = _question(request.param)
    decider = Decider()
    result = decider.round(question)
    document = json.loads(json.dumps(view.plan_view(question, Work(decider.scene(question)), result)))
    return question, result, document


def test_the_document_keeps_its_schema(shown: tuple[Question, RoundResult, dict[str, Any]]) -> None:
    """The document matches the schema; columns of a table have the same length."""
    _, _, document = shown
    jsonschema.validate(document, _SCHEMA)
    for part in ("nodes", "pods", "after"):
        assert len({len(column) for column in document[part].values()}) == 1, part
    assert len(document["chains"]) == len(document["nodes"]["name"])


def test_it_says_what_the_round_says(shown: tuple[Question, RoundResult, dict[str, Any]]) -> None:
    """Verdicts, actions and checks equal the round's; each pod is on its node."""
    question, result, document = shown
    nodes = document["nodes"]
    assert list(zip(nodes["name"], nodes["verdict"], strict=True)) == [(v.node, v.verdict) for v in result.verdicts]
    taken = {name for name, action in zip(nodes["name"], nodes["action"], strict=True) if action >= 0}
    assert taken == {name for command in result.commands for name in command.nodes}
    for place, entry in enumerate(result.verdicts):
        chain = [document["checks"][check] for check in document["chains"][place]]
        assert [(check["gate"], check["passed"]) for check in chain] == [(g.gate.value, g.passed) for g in entry.gates]
    where = {f"{pod.metadata.namespace}/{pod.metadata.name}": pod.spec.node_name for pod in question.cluster.pods}
    for pod, node in zip(document["pods"]["name"], document["pods"]["node"], strict=True):
        assert where[pod] == nodes["name"][node]


def test_after_the_round_the_taken_nodes_are_gone(shown: tuple[Question, RoundResult, dict[str, Any]]) -> None:
    """The state after the commands has no removed node, each replacement, and no pod twice."""
    _, result, document = shown
    before, after = document["nodes"], document["after"]
    taken = {name for command in result.commands for name in command.nodes}
    assert taken.isdisjoint(after["name"])
    new = sum(len(command.replacements) for command in result.commands)
    assert sum(after["isNew"]) == new
    assert len(after["name"]) == len(before["name"]) - len(taken) + new


def test_pods_of_a_node_are_followed(shown: tuple[Question, RoundResult, dict[str, Any]]) -> None:
    """A node's moves name each of its movable pods at most once, and no pod of another node."""
    _, _, document = shown
    place = {name: index for index, name in enumerate(document["nodes"]["name"])}
    movable: dict[int, set[str]] = {}
    for pod, node, moves in zip(
        document["pods"]["name"], document["pods"]["node"], document["pods"]["moves"], strict=True
    ):
        if moves:
            movable.setdefault(node, set()).add(pod)
    assert document["moves"]
    for entry in document["moves"]:
        named = [pod for to in entry["to"] for pod in to["pods"]]
        assert len(named) == len(set(named))
        assert set(named) <= movable[place[entry["node"]]]
        assert all(to["node"] != entry["node"] for to in entry["to"])


def test_examples_are_tried_not_guessed(shown: tuple[Question, RoundResult, dict[str, Any]]) -> None:
    """For a blocked node the document has the results of a change, for its pool and check."""
    question, _, document = shown
    for example in document["examples"]:
        assert example["changes"] == view.changes_of(question, example["node"])


def test_closing_nodes_are_marked() -> None:
    """Only a node with Dovetail's soft taint is shown as closing."""
    question = _question("045")
    chosen = question.cluster.nodes[1]
    taint = Taint(key=names.CLOSING_TAINT, effect="PreferNoSchedule")
    closing = change(chosen, spec=change(chosen.spec, taints=(*chosen.spec.taints, taint)))
    nodes = tuple(closing if node is chosen else node for node in question.cluster.nodes)
    question = replace(question, cluster=replace(question.cluster, nodes=nodes))
    decider = Decider()
    document = view.plan_view(question, Work(decider.scene(question)), decider.round(question), live=True)["nodes"]
    marked = [name for name, mark in zip(document["name"], document["closing"], strict=True) if mark]
    assert marked == [chosen.metadata.name]


def test_the_live_form_leaves_out_what_is_asked_for_later() -> None:
    """Moves and examples take a simulation each; the live view requests them node by node."""
    question = _question("045")
    decider = Decider()
    result = decider.round(question)
    document = view.plan_view(question, Work(decider.scene(question)), result, live=True)
    jsonschema.validate(json.loads(json.dumps(document)), _SCHEMA)
    assert document["moves"] == document["examples"] == []
