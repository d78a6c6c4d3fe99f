"""The store compared with a plain dictionary that recomputes everything, for any sequence of changes."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest

from dovetail.lifecycle.commands.records import Record, encode_record, is_tainted, record_of
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import AnyObject, Node, NodeClaim, NodePool, Pod
from tests.support.conversation import pod, pool

DISRUPTED = {"key": names.DISRUPTION_TAINT, "value": names.DISRUPTION_TAINT_VALUE, "effect": "NoSchedule"}
CLOSING = {"key": names.CLOSING_TAINT, "effect": "PreferNoSchedule"}
OTHER = {"key": "team", "value": "blue", "effect": "NoSchedule"}
COMMANDS = ("one", "two")


def record(dice: Random) -> dict[str, str]:
    """Return the annotation of a command, one that can't be read, or none."""
    if dice.random() < 0.5:
        return {}
    if dice.random() < 0.3:
        return {names.COMMAND: "r"}
    at = datetime(2026, 1, 1, tzinfo=UTC)
    by = dice.choice(["dovetail", "dovetail", "karpenter"])
    made = Record(
        id=dice.choice(COMMANDS), action=Action.DELETE_EMPTY, method=Method.EMPTY, phase="", since=at, nodes=(), by=by
    )
    return {names.COMMAND: encode_record(made)}


def others(nodes: list[Node], claims: list[NodeClaim], known: str) -> tuple[list[str], list[str]]:
    """Return the Nodes and NodeClaims whose marks are not those of a known command, or of another controller."""

    def is_left(item: Node | NodeClaim) -> bool:
        marked = names.COMMAND in item.metadata.annotations or (isinstance(item, Node) and is_tainted(item))
        found = record_of(item)
        return marked and (found is None or (found.id != known and found.by == "dovetail"))

    found = [[item.metadata.name for item in items if is_left(item)] for items in (nodes, claims)]
    return found[0], found[1]


def meta(name: str, **more: Any) -> dict[str, Any]:
    """Return metadata."""
    return {"name": name, "uid": more.pop("uid", ""), "resourceVersion": more.pop("version", ""), **more}


def node(name: str, of: str = "web", *taints: dict[str, str], machine: str = "", **more: Any) -> Node:
    """Return a Node."""
    spec = {"taints": taints, "providerID": machine}
    tree = {"metadata": meta(name, labels={names.NODEPOOL: of} if of else {}, **more), "spec": spec}
    return msgspec.convert(tree, Node, strict=False)


def claim(name: str, on: str = "", machine: str = "", **more: Any) -> NodeClaim:
    """Return a NodeClaim."""
    status = {"nodeName": on, "providerID": machine}
    return msgspec.convert({"metadata": meta(name, **more), "status": status}, NodeClaim, strict=False)


def thing(dice: Random) -> AnyObject:
    """Return an object with one of a few names."""
    number = dice.randrange(4)
    match dice.randrange(4):
        case 0:
            taints = dice.sample([DISRUPTED, CLOSING, OTHER], dice.randrange(4))
            machine, of = dice.choice(["m0", "m1", ""]), dice.choice(["web", "two", ""])
            return node(f"n{number}", of, *taints, machine=machine, annotations=record(dice))
        case 1:
            leaving = dice.choice([None, "2026-01-01T00:00:00Z"])
            on, machine = dice.choice([f"n{number}", ""]), dice.choice(["m0", "m1", ""])
            return claim(f"c{number}", on, machine, annotations=record(dice), deletionTimestamp=leaving)
        case 2:
            return pool(f"p{number}", managed=dice.random() < 0.5)
        case _:
            marks = {names.STEERING_MARK: "1"} if dice.random() < 0.3 else {}
            made = pod(
                f"x{number}",
                dice.choice(["n0", "n1", ""]),
                dice.choice(["rs", "ds", ""]),
                phase=dice.choice(["Pending", "Failed"]),
                annotations=marks,
            )
            leaving = dice.choice([None, "2026-01-01T00:00:00Z"])
            tree = msgspec.to_builtins(made)
            tree["metadata"] |= {"deletionTimestamp": leaving, "uid": ""}
            return msgspec.convert(tree, Pod, strict=False)


def check(store: Store, there: dict[tuple[str, str, str], AnyObject]) -> None:
    """Check all answers of the store against those computed from the objects alone."""
    items = [item for _, item in sorted(there.items())]
    pods = [item for item in items if isinstance(item, Pod)]
    nodes = [item for item in items if isinstance(item, Node)]
    claims = [item for item in items if isinstance(item, NodeClaim)]
    pools = [item for item in items if isinstance(item, NodePool)]
    cluster = store.cluster()
    assert (list(cluster.pods), list(cluster.nodes)) == (pods, nodes)
    assert (list(store.nodes()), list(store.node_claims()), list(store.node_pools())) == (nodes, claims, pools)
    assert store.cluster() is cluster
    for name in ("n0", "n1", "", "n9"):
        assert list(store.pods_on(name)) == ([p for p in pods if name and p.spec.node_name == name])
        assert store.pods_on(name) is store.pods_on(name)
        machines = [item.spec.provider_id for item in nodes if item.metadata.name == name and item.spec.provider_id]
        owners = [item for item in claims if item.status.provider_id in machines]
        doubles = [item for item in nodes if item.spec.provider_id in machines]
        assert store.claim_of(name) is (owners[0] if len(owners) == len(doubles) == 1 else None)
    waiting = [
        p for p in pods if not p.spec.node_name and p.metadata.deletion_timestamp is None and p.status.phase != "Failed"
    ]
    assert list(store.pending_pods()) == waiting
    for of in ("web", "two", "", "none"):
        assert store.nodes_of(of) == [n.metadata.name for n in nodes if n.metadata.labels.get(names.NODEPOOL, "") == of]
    noted = [n.metadata.name for n in nodes if names.COMMAND in n.metadata.annotations or is_tainted(n)]
    assert sorted(store.marks.nodes) == noted
    assert sorted(store.marks.claims) == [c.metadata.name for c in claims if names.COMMAND in c.metadata.annotations]
    for command in (*COMMANDS, "none"):
        assert store.marks.others("dovetail", {command}) == others(nodes, claims, command)
    for item in claims:
        machine = item.status.provider_id
        theirs = [n.metadata.name for n in nodes if machine and n.spec.provider_id == machine]
        unseen = {item.status.node_name} - {"", *(n.metadata.name for n in nodes)}
        assert sorted(store.nodes_of_claims([item.metadata.name])) == sorted([*theirs, *unseen])
    assert store.nodes_of_claims(["c9"]) == []
    numbered = list(store.claims_after(0))
    assert [item for _, item in numbered] == [c for c in reversed(there.values()) if isinstance(c, NodeClaim)]
    for place, (number, _) in enumerate(numbered):
        assert list(store.claims_after(number)) == numbered[:place]
    assert not list(store.claims_after(store.claims_seen))
    unlaunched = [
        c
        for c in claims
        if not c.status.provider_id and not c.status.node_name and c.metadata.deletion_timestamp is None
    ]
    assert store.has_unlaunched() == bool(unlaunched)
    for uid in ("rs", "ds", "none"):
        owned = [p for p in pods if any(owner.uid == uid for owner in p.metadata.owner_references)]
        assert sorted(p.metadata.name for p in store.pods_owned_by(uid)) == [p.metadata.name for p in owned]
    closing = [n.metadata.name for n in nodes if any(t.key == names.CLOSING_TAINT for t in n.spec.taints)]
    assert sorted(store.closing_nodes) == closing
    steered = [("d", p.metadata.name) for p in pods if names.STEERING_MARK in p.metadata.annotations]
    assert sorted(store.steered_pods) == steered
    for name in ("n0", "c1", "n9"):
        known = {item.metadata.name for item in [*nodes, *claims]}
        assert store.has_machine(name) == (name in known)
    assert "" not in store._pods_of_node
    assert all(store._pods_of_node.values()), "no empty index is kept"
    assert all(store._nodes_of_pool.values()), "no empty index is kept"


@pytest.mark.parametrize("seed", range(6))
def test_the_store_is_what_was_seen(seed: int) -> None:
    """For objects without a uid, the last report of a name counts."""
    dice, store = Random(seed), Store()
    there: dict[tuple[str, str, str], AnyObject] = {}
    for _ in range(120):
        item = thing(dice)
        key = (type(item).__name__, item.metadata.namespace, item.metadata.name)
        version, kind_version = store.version, store.version_of(type(item))
        if dice.random() < 0.25:
            was = there.pop(key, None)
            assert store.vanish(*key) == was
            changed = was is not None
        else:
            changed = there.get(key) != item
            assert store.observe(item) == changed
            there[key] = item
        assert (store.version > version) == changed
        assert (store.version_of(type(item)) > kind_version) == changed
        assert store.get(type(item), key[2], key[1]) == there.get(key)
        check(store, there)
    assert set(store.versions()) >= {"nodes", "pods", "node_claims", "node_pools"}


@pytest.mark.parametrize("seed", range(6))
def test_marks_that_are_news(seed: int) -> None:
    """While no changed mark is news, the marks of no known command stay the same; a known command's is never news."""
    dice, store = Random(seed), Store()
    quiet = 0
    for _ in range(300):
        before = store.marks.others("dovetail", {"one", "two"})
        item = thing(dice)
        if dice.random() < 0.25:
            store.vanish(type(item).__name__, item.metadata.namespace, item.metadata.name)
        else:
            store.observe(item)
        if not store.marks.have_changed("dovetail", {"one"}, {"two": 1}):
            assert store.marks.others("dovetail", {"one", "two"}) == before
            quiet += isinstance(item, Node) and names.COMMAND in item.metadata.annotations
        assert not store.marks.have_changed("dovetail"), "it is told once"
    assert quiet > 0


def test_marks_of_very_many_commands_are_news() -> None:
    """An engine that never asks keeps a bounded memory of changed marks, and takes them all for news."""
    store, at = Store(), datetime(2026, 1, 1, tzinfo=UTC)
    commands = {f"c{number}": None for number in range(2000)}
    for ident in commands:
        made = Record(id=ident, action=Action.DELETE_EMPTY, method=Method.EMPTY, phase="", since=at, nodes=())
        store.observe(node(f"n-{ident}", annotations={names.COMMAND: encode_record(made)}))
    assert len(store.marks._changed) <= 1000
    assert store.marks.have_changed("dovetail", commands)
    assert not store.marks.have_changed("dovetail", commands)


def test_marks_have_a_version_of_their_own() -> None:
    """The marks version grows only when an object with a mark changes."""
    store = Store()
    for item, grows in (
        (node("a"), False),
        (node("b", "web", DISRUPTED), True),
        (node("c", annotations={names.COMMAND: "r"}), True),
        (claim("d"), False),
        (claim("e", annotations={names.COMMAND: "r"}), True),
        (node("f", "web", CLOSING), False),
    ):
        before = store.marks.version
        store.observe(item)
        assert (store.marks.version > before) == grows
        before = store.marks.version
        store.vanish(type(item).__name__, "", item.metadata.name)
        assert (store.marks.version > before) == grows, "its end is one too"


@pytest.mark.parametrize(
    ("known", "new", "taken"),
    [
        (("u", "9"), ("u", "10"), True),
        (("u", "10"), ("u", "9"), False),
        (("u", "10"), ("u", "10"), True),
        (("u", "x9"), ("u", "8"), True),
        (("u", "9"), ("u", "x8"), True),
        (("u", "10"), ("v", "9"), True),
        (("", "10"), ("", "9"), False),
    ],
)
def test_which_of_two_reports_is_newer(known: tuple[str, str], new: tuple[str, str], taken: bool) -> None:
    """The higher resource version is newer; one that is not a number counts as newer."""
    store = Store()
    assert store.observe(node("a", "old", uid=known[0], version=known[1]))
    assert store.observe(node("a", "new", uid=new[0], version=new[1])) == taken
    assert store.nodes_of("new") == (["a"] if taken else [])


def test_only_the_version_moved() -> None:
    """A new resource version alone is no change, but later reports are compared with it."""
    store = Store()
    store.observe(node("a", uid="u", version="1", generation=1))
    version = store.version
    assert not store.observe(node("a", uid="u", version="5", generation=2))
    assert store.version == version
    assert not store.observe(node("a", "two", uid="u", version="4"))
    assert store.observe(node("a", "two", uid="u", version="6"))
    for change in ({"labels": {"x": "y"}}, {"annotations": {"x": "y"}}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        before = claim("c", uid="c")
        store.observe(before)
        tree = msgspec.to_builtins(before)
        tree["metadata"] |= change
        assert store.observe(msgspec.convert(tree, NodeClaim, strict=False))


def test_who_is_gone_stays_gone() -> None:
    """A deleted uid never comes back, even if its end was reported before it was seen."""
    store = Store()
    assert store.vanish("Node", "", "a", "early") is None
    assert not store.observe(node("a", uid="early"))
    assert store.observe(node("a", uid="one"))
    assert store.observe(node("a", uid="two"))
    assert not store.observe(node("a", uid="one"))
    assert store.vanish("Node", "", "a", "one") is None
    assert store.vanish("Node", "", "a") is not None
    assert not store.observe(node("a", uid="two"))
    assert store.observe(node("a"))
    assert store.vanish("Node", "", "a", "any") is not None, "one without a uid is the one that is meant"
    assert store.observe(node("a"))


def test_the_memory_of_those_that_are_gone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of deleted uids is bounded and drops the oldest first."""
    monkeypatch.setattr("dovetail.lifecycle.store._TOMBSTONES_MAX", 2)
    store = Store()
    for uid in ("one", "two"):
        store.vanish("Node", "", "a", uid)
    assert not store.observe(node("a", uid="one"))
    store.vanish("Node", "", "a", "three")
    assert not store.observe(node("a", uid="two"))
    assert store.observe(node("a", uid="one"))
