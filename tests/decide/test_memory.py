"""A memory that rounds share: what it may keep, and when time or a change invalidates it."""

from dataclasses import replace
from datetime import timedelta
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.decide.decider import Decider
from dovetail.decide.facts.cache import FactsCache
from dovetail.decide.gates import table
from dovetail.decide.in_flight import LeavingNode
from dovetail.decide.round import RoundResult
from dovetail.decide.scene import Scene
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import Deployment, ReplicaSet
from tests.support.design_world import Town, kind, moved


class _Shell:
    """Run round after round with one memory, as the controller does."""

    def __init__(self) -> None:
        self.town = Town(kind("m", "0.10"))
        self.town.pool(disruption={"consolidateAfter": "10m"})
        for name in ("a", "b"):
            self.town.node(name, "m")
            self.town.pod(f"on-{name}", name)
            self.town.event(name)
        self.catalogue, self.decider = self.town.catalogue, Decider()

    def ask(self) -> RoundResult:
        return self.decider.round(self.town.question(catalogue=self.catalogue))

    def verdicts(self) -> dict[str, str]:
        return {verdict.node: verdict.verdict for verdict in self.ask().verdicts}


def test_a_timer_that_runs_out_opens_a_node_that_was_remembered_closed() -> None:
    """If consolidateAfter ends between two rounds without any change, the second round acts."""
    shell = _Shell()
    assert shell.ask().commands == ()
    shell.town.now += timedelta(minutes=9)
    assert shell.ask().commands == ()
    shell.town.now += timedelta(minutes=1)
    assert shell.ask().commands != ()


def test_a_node_in_flight_is_not_remembered_as_staying() -> None:
    """A command that starts or ends between two rounds invalidates the facts of its node."""
    shell = _Shell()
    shell.town.now += timedelta(minutes=20)
    assert shell.ask().commands != ()
    shell.town.leaving["a"] = LeavingNode(node="a", method=Method.SINGLE_NODE, since=shell.town.now)
    assert shell.verdicts()["a"] == "marked-for-deletion"
    del shell.town.leaving["a"]
    assert shell.verdicts()["a"] != "marked-for-deletion"


def test_nominations_concern_their_own_nodes_only() -> None:
    """Karpenter's nominations come with the settings: only nodes that they name, or named, are read again."""
    shell = _Shell()
    before = shell.decider.scene(shell.town.question(catalogue=shell.catalogue)).by_name
    first = {name: before[name] for name in "ab"}
    for nominated in ((), ("a",), ()):
        settings = replace(shell.town.settings, nominated_nodes=nominated)
        scene = shell.decider.scene(replace(shell.town.question(catalogue=shell.catalogue), settings=settings))
        assert scene.by_name["b"] is first["b"]
        assert scene.by_name["a"].nominated is bool(nominated)


def test_a_pdb_counts_only_where_it_allows_nothing() -> None:
    """A cached free node is blocked once a PDB allows nothing, and free again afterwards."""
    shell = _Shell()
    town = shell.town
    town.pod("guarded", "a", labels={"app": "web"})
    town.now += timedelta(minutes=20)
    for allowed, stops in ((2, False), (1, False), (0, True), (1, False)):
        town.others.clear()
        town.pdb("guard", {"app": "web"}, allowed=allowed)
        assert (shell.verdicts()["a"] == "pdb") is stops


def _dicts(cache: FactsCache) -> list[dict[str, object]]:
    return [part for kept in (cache, cache.vetoes) for part in vars(kept).values() if isinstance(part, dict)]


def test_nothing_is_remembered_of_nodes_that_are_gone() -> None:
    """Of a node that is gone no trace is left, though a do-not-disrupt had expired or a PDB had refused there."""
    shell = _Shell()
    town, cache = shell.town, shell.decider._memory.facts
    assert cache is not None
    for value in ("30m", "90m", "true"):
        name = f"brief-{value}"
        town.node(name, "m")
        town.pod(f"kept-{value}", name, annotations={names.DO_NOT_DISRUPT: value}, labels={"app": "web"})
        for allowed in (1, 0):
            town.others.clear()
            town.pdb("web", {"app": "web"}, allowed=allowed)
            shell.ask()
        assert any(name in part for part in _dicts(cache))
        town.remove(name)
        shell.ask()
        shell.verdicts()
        assert not any(name in part for part in _dicts(cache))


def test_a_deployment_that_begins_to_surge_changes_the_nodes_of_its_pods() -> None:
    """Facts follow the Deployments that surge, and how many pods they have, though no pod has changed."""
    shell = _Shell()
    town = shell.town
    for name, where in (("q", "a"), ("r", "b")):
        town.pod(name, where, labels={"app": "web"})
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    owned = {"metadata": {"name": "rs", "namespace": "default", "uid": "rs", "ownerReferences": [owner]}}
    for replicas in (None, 2, 1, 3, None):
        town.others.clear()
        if replicas is not None:
            meta = {"name": "web", "namespace": "default", "uid": "d", "annotations": {names.SURGE: "true"}}
            rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
            tree = {"metadata": meta, "spec": {"replicas": replicas, "strategy": rolling}}
            town.others.append(msgspec.convert(tree, Deployment, strict=False))
            town.others.append(msgspec.convert(owned, ReplicaSet, strict=False))
        question = town.question(catalogue=shell.catalogue)
        context, plain = shell.decider.scene(question), Decider(memory=False).scene(question)
        assert list(map(repr, context.nodes)) == list(map(repr, plain.nodes))
        assert any(facts.surges for facts in plain.nodes) is (replicas == 1)


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["x", "y", "z", "pod", "no pod", "leaves", "later", "no node"]),
        st.sampled_from("abcd"),
        st.integers(0, 2),
        st.sampled_from(["nothing", "later", "one", "all"]),
    ),
    max_size=12,
)


def _answers(context: Scene) -> dict[str, object]:
    """Return where the gates of all nodes end, and which nodes pass, by method."""
    ends = {facts.name: end for facts, end in zip(context.nodes, context.first_closed(), strict=True)}
    return {**ends, **{method: [facts.name for facts in context.passing(method)] for method in Method}}


def _change(town: Town, what: str, where: str, number: int) -> None:
    """Change a pod of a node, the node, or the time."""
    if where not in town.nodes:
        town.node(where, "m")
    if what == "pod":
        town.pod(f"{where}{number}", where, labels={"app": "xyz"[number]})
    elif what == "leaves":
        leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if number else {}
        town.pod(f"{where}{number}", where, labels={"app": "xyz"[number]}, **leaving)
    elif what == "later":
        town.now += timedelta(minutes=20)
    elif what == "no node":
        town.remove(where)
    else:
        town.pods.pop(f"{where}{number}", None)


@given(_CHANGES, st.sampled_from([0, 16]))
def test_refused_evictions_follow_the_pdbs(changes: list[tuple[str, str, int, str]], few: int) -> None:
    """Whatever PDBs allow next, and whichever pods come, go or leave, facts and gates are those without memory.

    Not every round asks, and some rounds are asked only after others.
    """
    shell = _Shell()
    town, allowed = shell.town, {"x": 1, "y": 0, "z": 1}
    for name, drifted in (("c", timedelta(hours=1)), ("d", timedelta(hours=1))):
        town.node(name, "m", drifted=drifted)
    spec = msgspec.structs.replace(town.claims["d"].spec, termination_grace_period="5m")
    town.claims["d"] = msgspec.structs.replace(town.claims["d"], spec=spec)
    waiting = []
    for place, name in enumerate("abcabcdd"):
        notes = {names.DO_NOT_DISRUPT: "90m"} if place == 4 else {}
        town.pod(f"{name}{place}", name, labels={"app": "xyzyx"[place % 5]}, annotations=notes)
    for what, where, number, asks in [*changes, ("x", "a", 0, "all"), ("x", "a", 1, "all")]:
        if what in allowed:
            allowed[what] = number
        else:
            _change(town, what, where, number)
        town.others.clear()
        for app, left in allowed.items():
            town.pdb(app, {"app": app}, allowed=left)
        question = town.question(catalogue=shell.catalogue)
        context, plain = shell.decider.scene(question), Decider(memory=False).scene(question)
        assert list(map(repr, context.nodes)) == list(map(repr, plain.nodes))
        with mock.patch.object(table, "_FEW", few):
            if asks == "one":
                found = [facts.name for facts in context.passing(Method.DRIFTED)]
                assert found == [facts.name for facts in plain.passing(Method.DRIFTED)]
            if asks == "all":
                assert _answers(context) == _answers(plain)
            if asks == "later":
                waiting.append((context, plain))
    for context, plain in waiting:
        assert _answers(context) == _answers(plain)


@pytest.mark.parametrize(
    ("come", "gone"),
    [(("0",), ()), (("z",), ()), (("ab",), ("b",)), ((), ("a",)), (("0", "1"), ("a", "b")), (("c",), ("b", "a"))],
    ids=lambda names: "+".join(names) or "none",
)
def test_nodes_that_come_and_go_take_no_facts_from_others(come: tuple[str, ...], gone: tuple[str, ...]) -> None:
    """Nodes that change their position keep their own facts, and new nodes are read."""
    shell = _Shell()
    town = shell.town
    town.now += timedelta(minutes=20)
    shell.ask()
    before = shell.decider.scene(town.question(catalogue=shell.catalogue)).by_name
    for name in come:
        town.node(name, "m")
        town.pod(f"on-{name}", name, cpu="700m")
    for name in gone:
        town.remove(name)
    question = town.question(catalogue=shell.catalogue)
    context, plain = shell.decider.scene(question), Decider(memory=False).scene(question)
    assert list(map(repr, context.nodes)) == list(map(repr, plain.nodes))
    assert all(context.by_name[name] is before[name] for name in before if name not in gone)
    memory = shell.decider._memory.facts
    assert memory is not None
    assert memory._sums.keys() == memory._nodes.keys() == context.by_name.keys()
    assert shell.decider.round(question).verdicts == Decider(memory=False).round(question).verdicts


def test_new_prices_reach_a_decider_that_remembers() -> None:
    """A machine that becomes cheaper between two rounds is launched in spite of the cache."""
    town = Town(kind("big", "0.40", cpu=16), kind("small", "0.40", cpu=4))
    town.pool(disruption={"consolidationSavingsThreshold": 0.01})
    town.node("n", "big")
    town.pod("p", "n", cpu="1500m")
    decider = Decider()
    assert decider.round(town.question()).commands == ()
    town.kinds["small"] = kind("small", "0.10", cpu=4)
    (command,) = decider.round(town.question()).commands
    assert moved(command) == ("replaceCost", ("n",))
