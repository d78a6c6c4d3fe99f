"""Promised and actual savings in the live view: from commands and nodes alone, an hour after the end."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.command import Action, Method
from dovetail.model.objects import Node, NodeClaim, Pod
from dovetail.sim.scenarios.scenario import load_scenario
from dovetail.ui.commands import CommandNow, commands_of
from dovetail.ui.history import History
from dovetail.ui.outcomes import OutcomesSeen
from dovetail.ui.sources import SimulationSource
from dovetail.ui.watcher import Watcher

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def _node(name: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": {names.NODEPOOL: "web"}}}, Node, strict=False)


def _pod(name: str, node: str) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "rs", "controller": True}
    tree = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(tree, Pod, strict=False)


def _command(coming: tuple[str, ...] = (), action: str = "deleteCost") -> CommandNow:
    return CommandNow(
        id="one", by="dovetail", action=action, reason="Cost", since=NOW, nodes=("a",),
        replacements=tuple(f"{name}-claim" for name in coming), steps=("done",) * 5, pods_left=0, coming=coming,
    )  # fmt: skip


def _seen(
    coming: tuple[str, ...] = (), *, opened: int | None = None, undone: bool = False, action: str = "deleteCost"
) -> OutcomesSeen:
    """Return the books of a view that saw one command on a node of a dollar, and looked on for an hour and more."""
    seen = OutcomesSeen()
    prices = {"a": 1.0, "b": 1.0, **dict.fromkeys(coming, 0.25)}
    cluster = Cluster(nodes=tuple(map(_node, ("a", "b"))), pods=(_pod("p", "a"), _pod("q", "b")))
    seen.take(NOW, (), {"a": 1.0, "b": 1.0}, cluster)
    seen.take(NOW + MINUTE, (_command(coming, action),), prices, cluster)
    left = {name: price for name, price in prices.items() if undone or name != "a"}
    seen.take(NOW + 2 * MINUTE, (), left, cluster)
    for minute in range(3, 64):
        if minute == opened:
            left = {**left, "fresh": 0.5}
            cluster = Cluster(nodes=tuple(map(_node, left)))
        seen.take(NOW + minute * MINUTE, (), left, cluster)
    return seen


@pytest.mark.parametrize(
    ("coming", "opened", "promised", "saved", "reopened"),
    [((), None, 1.0, 1.0, 0), (("n",), None, 0.75, 0.75, 0), ((), 32, 1.0, 0.75, 1), (("n",), 32, 0.75, 0.5, 1)],
    ids=["it went for nothing", "for a cheaper one", "a node was opened half an hour later", "both"],
)
def test_money(coming: tuple[str, ...], opened: int | None, promised: float, saved: float, reopened: int) -> None:
    """The price of what goes less that of what comes is promised; a node that comes later takes what it costs."""
    (found,) = _seen(coming, opened=opened).found
    assert (found.promised, found.saved, found.reopened) == pytest.approx((promised, saved, reopened))
    assert (found.pods, found.pools) == (1, ("web",))


def test_the_document_adds_up() -> None:
    """The document has the sums and the latest commands, as in the schema."""
    document = _seen(opened=32).document()
    assert {key: document[key] for key in ("commands", "held", "promised", "saved", "reopened", "pods")} == {
        "commands": 1, "held": 0, "promised": 1.0, "saved": 0.75, "reopened": 1, "pods": 1,
    }  # fmt: skip
    assert [entry["id"] for entry in document["last"]] == ["one"]


@pytest.mark.parametrize(("undone", "action"), [(True, "deleteCost"), (False, "replaceDrifted")])
def test_what_promises_nothing(undone: bool, action: str) -> None:
    """A command that was undone, and one that is not for money."""
    assert not _seen(undone=undone, action=action).found


def test_the_nodes_of_replacements_are_found_by_their_claims() -> None:
    """A record names NodeClaims; clouds name nodes as they like."""
    record = encode_record(
        Record(
            id="c1",
            action=Action.REPLACE_COST,
            method=Method.SINGLE_NODE,
            phase="waiting",
            since=NOW,
            nodes=(Candidate(node="a", claim="a-claim", uid=""),),
            replacements=("c1-0", "c1-1"),
        )
    )
    old = _node("a")
    marked = msgspec.structs.replace(
        old, metadata=msgspec.structs.replace(old.metadata, annotations={names.COMMAND: record})
    )
    claims = (
        msgspec.convert({"metadata": {"name": "c1-0"}, "status": {"nodeName": "ip-10-0-0-7"}}, NodeClaim, strict=False),
        msgspec.convert({"metadata": {"name": "c1-1"}}, NodeClaim, strict=False),
    )
    (found,) = commands_of(Cluster(nodes=(marked,), node_claims=claims))
    assert found.replacements == ("c1-0", "c1-1")
    assert found.coming == ("ip-10-0-0-7",)


def test_a_simulated_cluster_shows_it() -> None:
    """Two hours of issue 7146 under Karpenter's rules, a look every half minute: money, and pods moved again."""
    scenario = load_scenario("issue-7146")
    source = SimulationSource(scenario, scenario.policies[0], speed=1)
    watcher = Watcher(source, History())
    for _ in range(240):
        source._pass(30)
        watcher.look()
    watcher._history.close()
    assert watcher.document is not None
    found = watcher.document["outcomes"]
    assert found["commands"] > 0
    assert 0 <= found["saved"] <= found["promised"] + 1e-6
    assert 0 < found["movedAgain"] <= found["pods"]
