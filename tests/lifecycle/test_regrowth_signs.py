"""The signs of regrowth: new nodes that carry, or wait for, pods of the moved pods' owners."""

from datetime import UTC, datetime

import msgspec
import pytest

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.regrowth import FIRST_WAIT, LEAST_WAIT, LOOK_AFTER, Regrowth, is_ours
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.money import Money
from dovetail.model.objects import (
    AnyObject,
    NodeClaim,
    NodeClaimStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
)
from tests.support.conversation import pod
from tests.support.runs import run, store_of


def _pod(name: str, owner: str, node: str = "") -> Pod:
    references = (OwnerReference(kind="ReplicaSet", name=owner, uid=owner, api_version="apps/v1"),)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="d", uid=name, owner_references=references),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase="Running" if node else "Pending"),
    )


@pytest.mark.parametrize(
    ("owner", "node", "claim_on", "regrown"),
    [
        ("web", "new", "new", True),
        ("other", "new", "new", False),
        ("web", "", "", True),
        ("other", "", "", False),
        ("web", "", "new", False),
        ("web", "old", "new", False),
    ],
    ids=[
        "it carries one of the moved",
        "it carries another's",
        "one of the moved waits, and a node is on its way",
        "another's waits",
        "one waits, but the new node is there already",
        "the moved pod went to an old node",
    ],
)
def test_what_counts_as_a_node_that_came_back(owner: str, node: str, claim_on: str, regrown: bool) -> None:
    """Only new NodeClaims count, and only for pods of the same owners."""
    store, regrowth = Store(), Regrowth()
    for name in ("gone", "old"):
        store.observe(NodeClaim(metadata=ObjectMeta(name=name, uid=name), status=NodeClaimStatus(node_name=name)))
    store.observe(_pod("moved", "web", "gone"))
    run = Run(
        id="c1",
        action=Action.DELETE_COST,
        method=Method.SINGLE_NODE,
        candidates=(Candidate(node="gone", claim="gone", uid="gone", pool="pool"),),
        phase=Phase.DELETING,
        began=datetime(2026, 1, 1, tzinfo=UTC),
    )
    regrowth.begin(run, store)
    store.vanish("Pod", "d", "moved")
    store.vanish("NodeClaim", "", "gone")
    regrowth.end(run, 0, well=True)
    store.observe(NodeClaim(metadata=ObjectMeta(name="new", uid="new"), status=NodeClaimStatus(node_name=claim_on)))
    store.observe(_pod("again", owner, node))
    assert bool(regrowth.held(store, 1)) == regrown
    assert [pool for pool, _ in regrowth.judge(store, LOOK_AFTER)] == (["pool"] if regrown else [])


def claim(name: str, node: str = "", **annotations: str) -> NodeClaim:
    """Return a NodeClaim."""
    tree = {"metadata": {"name": name, "uid": name, "annotations": annotations}, "status": {"nodeName": node}}
    return msgspec.convert(tree, NodeClaim, strict=False)


def regrown(*came: AnyObject, saves: int | None = None) -> tuple[Regrowth, Store]:
    """Return the regrowth state after a command that moved a pod of rs off n1 and ended at 100 s."""
    store = store_of(claim("n1", "n1"), claim("n2", "n2"), pod("a", "n1", "rs"), pod("o", "n2", "other"))
    regrowth = Regrowth()
    regrowth.begin(run("n1", saves=saves), store)
    store.vanish("Pod", "d", "a")
    for item in came:
        store.observe(item)
    regrowth.end(run("n1"), 100 * SECOND, well=True)
    return regrowth, store


@pytest.mark.parametrize(
    ("came", "back"),
    [
        ((), False),
        ((claim("new", "n3"), pod("b", "n3", "rs")), True),
        ((claim("new", "n3"), pod("b", "n3", "other")), False),
        ((claim("new", "n3"), pod("b", "n3", "other"), pod("c", "n3", "rs")), True),
        ((claim("new", "n3"), pod("b", "n2", "rs")), False),
        ((claim("new"), pod("b", "", "rs")), True),
        ((claim("new"), pod("b", "", "other")), False),
        ((claim("new"), pod("b", "", "other"), pod("c", "", "rs")), True),
        ((claim("new", "n3"), pod("b", "", "rs")), False),
        ((claim("new", **{names.HOLD: "true"}), pod("b", "", "rs")), False),
        ((claim("new", **{names.COMMAND: "x"}), pod("b", "", "rs")), False),
    ],
)
def test_signs_of_regrowth(came: tuple[AnyObject, ...], back: bool) -> None:
    """A new claim of another creator that carries a moved owner's pod, or launches while one waits, is regrowth."""
    regrowth, store = regrown(*came)
    assert regrowth.next_at() == 100 * SECOND + LOOK_AFTER
    assert regrowth.held(store, 120 * SECOND) == ({"web": 160 * SECOND} if back else {})
    assert regrowth.judge(store, 160 * SECOND - 1) == []
    assert regrowth.judge(store, 160 * SECOND) == ([("web", FIRST_WAIT)] if back else [])
    assert regrowth.next_at() is None
    until = 160 * SECOND + FIRST_WAIT
    assert regrowth.held(store, until - 1) == ({"web": until} if back else {})
    assert regrowth.held(store, until) == {}


def test_suspicion_before_the_end_holds_for_a_minute() -> None:
    """While a command is in progress, each check extends the suspicion by a minute."""
    store = store_of(claim("n1", "n1"), pod("a", "n1", "rs"))
    regrowth = Regrowth()
    regrowth.begin(run("n1", "other/n2"), store)
    store.observe(claim("new", "n3"))
    store.observe(pod("b", "n3", "rs"))
    assert regrowth.held(store, 5 * SECOND) == {"web": 65 * SECOND, "other": 65 * SECOND}
    assert regrowth.judge(store, 10**15) == []
    assert regrowth.next_at() is None
    regrowth.end(run("n1"), 0, well=False)
    assert regrowth.held(store, 5 * SECOND) == {}
    regrowth.end(run("n1"), 0, well=True)
    assert regrowth.next_at() is None


def test_what_came_before_a_second_action_still_counts_against_the_first() -> None:
    """A NodeClaim that is old for the second command is new for the first."""
    store = store_of(claim("n1", "n1"), claim("n2", "n2"), pod("a", "n1", "rs"), pod("o", "n2", "other"))
    regrowth = Regrowth()
    regrowth.begin(run("n1"), store)
    store.vanish("Pod", "d", "a")
    for item in (claim("new", "n3"), pod("b", "n3", "rs"), pod("p", "n3", "other")):
        store.observe(item)
    regrowth.begin(run("two/n2", ident="c2"), store)
    assert regrowth.held(store, 5 * SECOND) == {"web": 65 * SECOND}


def test_regrowth_looks_at_the_earliest_first() -> None:
    """The earliest command is checked first; forgotten commands are not checked."""
    store = store_of(claim("n1", "n1"), pod("a", "n1", "rs"))
    regrowth = Regrowth()
    for number, at in enumerate((7, 3, 5)):
        regrowth.begin(run("n1", ident=f"c{number}"), store)
        regrowth.end(run("n1", ident=f"c{number}"), at * SECOND, well=True)
    assert regrowth.next_at() == 3 * SECOND + LOOK_AFTER
    regrowth.forget()
    assert regrowth.next_at() is None


def test_an_action_that_held_ends_the_row() -> None:
    """An action that holds resets the wait, unless the pool is still waiting."""
    regrowth, store = regrown(claim("new", "n3"), pod("b", "n3", "rs"))
    assert regrowth.judge(store, 160 * SECOND) == [("web", FIRST_WAIT)]
    store.vanish("NodeClaim", "", "new")
    for at, failures in ((161, 1), (160 + FIRST_WAIT // SECOND, 0)):
        regrowth.waits.expire(at * SECOND)
        regrowth.begin(run("n1"), store)
        regrowth.end(run("n1"), at * SECOND - LOOK_AFTER, well=True)
        assert regrowth.judge(store, at * SECOND) == []
        assert regrowth.waits.failures("web") == failures


@pytest.mark.parametrize(
    ("saves", "prices", "wait"),
    [
        (1000, (500,), FIRST_WAIT // 2),
        (1000, (250, 250), FIRST_WAIT // 2),
        (1000, (999,), FIRST_WAIT * 999 // 1000),
        (1000, (1000,), FIRST_WAIT),
        (1000, (2000,), FIRST_WAIT),
        (1000, (100,), LEAST_WAIT),
        (1000, (99,), LEAST_WAIT),
        (1000, (101,), FIRST_WAIT * 101 // 1000),
        (1000, (None,), FIRST_WAIT),
        (1000, (None, 10), FIRST_WAIT),
        (None, (10,), FIRST_WAIT),
        (None, (0,), FIRST_WAIT),
        (0, (0,), FIRST_WAIT),
    ],
)
def test_first_wait_by_what_was_lost(saves: int | None, prices: tuple[int | None, ...], wait: int) -> None:
    """The first wait depends on the lost share of the savings: at least a minute, all of it if unknown."""
    came = [(claim(f"new{i}", f"m{i}"), pod(f"b{i}", f"m{i}", "rs")) for i in range(len(prices))]
    regrowth, store = regrown(*(item for pair in came for item in pair), saves=saves)

    def price_of(item: NodeClaim) -> Money | None:
        return prices[int(item.metadata.name.removeprefix("new"))]

    assert regrowth.judge(store, 160 * SECOND, price_of) == [("web", wait)]


@pytest.mark.parametrize(("key", "ours"), [(names.HOLD, True), (names.COMMAND, True), (names.DO_NOT_DISRUPT, False)])
def test_which_claims_are_ours(key: str, ours: bool) -> None:
    """Either mark identifies a NodeClaim of Dovetail."""
    assert is_ours(claim("c", **{key: "x"})) == ours
