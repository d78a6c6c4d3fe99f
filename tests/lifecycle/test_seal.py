"""Records that Dovetail did not write are reported and ignored; its own are trusted by every successor."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record, is_our_taint, read_record
from dovetail.lifecycle.commands.seal import Seal, admit
from dovetail.lifecycle.messages import (
    DeleteNodeClaim,
    Instruction,
    ObjectObserved,
    PublishEvent,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.command import Action, Method
from dovetail.model.objects import Node, NodeClaim, NodeSpec, ObjectMeta, Pod, Taint
from tests.support.lifecycle_world import SEAL, Driver, World, engine_for

OTHER = Seal((b"a key that is not ours",))


def record(world: World | None = None, *nodes: str, **changes: Any) -> Record:
    """Return a record of a command for these nodes."""
    candidates = []
    for name in nodes:
        claim = world.get(NodeClaim, f"{name}-claim") if world is not None else None
        uid = claim.metadata.uid if claim is not None else ""
        candidates.append(Candidate(node=name, claim=f"{name}-claim", uid=uid, pool="web"))
    made = Record(
        id="forged",
        action=Action.DELETE_COST,
        method=Method.SINGLE_NODE,
        phase="tainting",
        since=datetime(2026, 3, 2, 9, 0, tzinfo=UTC),
        nodes=tuple(candidates),
    )
    return msgspec.structs.replace(made, **changes)


PLAIN = encode_record(record(None, "a"))
UNREADABLE = {
    "no zone": PLAIN.replace("00Z", "00"),
    "5000 levels": '{"nodes":' * 5000 + "1" + "}" * 5000,
    "100,000 lists": "[" * 100_000 + "]" * 100_000,
    "deep in a field nobody knows": PLAIN[:-1] + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    "empty": "",
    "null": "null",
    "a number": "1e999",
    "cut": PLAIN[:-7],
    "another version": PLAIN.replace('"v":1', '"v":2'),
    "no id": PLAIN.replace("forged", ""),
    "an action that is none": PLAIN.replace("deleteCost", "deleteEverything"),
    "the 30th of February": PLAIN.replace("2026-03-02", "2026-02-30"),
    "year 0": PLAIN.replace("2026-03-02", "0000-03-02"),
    "a lone surrogate": PLAIN.replace("forged", "\\ud800"),
    "too long": PLAIN[:-1] + ',"x":"' + "x" * (300 << 10) + '"}',
    "nul": "\x00",
}
LIES = {
    "unsealed": PLAIN,
    "empty seal": PLAIN.replace('"seal":""', '"seal":"00"'),
    "odd seal": PLAIN.replace('"seal":""', '"seal":"é☃"'),
    "another key": OTHER.sealed(PLAIN),
    "changed after it was sealed": SEAL.sealed(PLAIN).replace("deleteCost", "deleteEmpty"),
    "sealed for another node": SEAL.sealed(encode_record(record(None, "b"))),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_can_not_be_read_says_why(text: str) -> None:
    """An unreadable record raises no exception and gives a reason of one line."""
    why = read_record(text)
    assert isinstance(why, str)
    assert why
    assert SEAL.opened(text) == why
    assert SEAL.sealed(text) == text


@pytest.mark.parametrize("text", [*UNREADABLE.values(), *LIES.values()], ids=[*UNREADABLE, *LIES])
def test_an_object_comes_in_without_it(text: str) -> None:
    """The engine sees the object without the annotation, and the reason."""
    meta = ObjectMeta(name="a", annotations={names.COMMAND: text, "other": "kept"})
    event = admit(ObjectObserved(object=Node(metadata=meta)), SEAL)
    assert event.object.metadata.annotations == {"other": "kept"}
    assert event.distrusted


def test_our_own_records_come_in() -> None:
    """Sealed records are accepted on a candidate's Node, a replacement's NodeClaim and the Node copied from it."""
    text = SEAL.sealed(encode_record(record(None, "a", replacements=("r",))))
    for item in (Node(metadata=ObjectMeta(name="a")), NodeClaim(metadata=ObjectMeta(name="r")), Node()):
        meta = msgspec.structs.replace(item.metadata, annotations={names.COMMAND: text})
        event = ObjectObserved(object=msgspec.structs.replace(item, metadata=meta))
        assert admit(event, SEAL) is event
    stray = NodeClaim(metadata=ObjectMeta(name="stray", annotations={names.COMMAND: text}))
    assert "NodeClaim" in admit(ObjectObserved(object=stray), SEAL).distrusted


def test_what_carries_no_record_is_left_alone() -> None:
    """Objects without a record are not copied."""
    for item in (Pod(metadata=ObjectMeta(annotations={names.COMMAND: "x"})), Node()):
        event = ObjectObserved(object=item)
        assert admit(event, SEAL) is event


def test_a_change_of_keys() -> None:
    """The new key seals; records of the previous key open until that key is removed."""
    old, new = b"the previous key of all", b"the key from now on"
    before = Seal((old,)).sealed(PLAIN)
    both = Seal((new, old))
    assert isinstance(both.opened(before), Record)
    assert both.sealed(PLAIN) == Seal((new,)).sealed(PLAIN)
    assert Seal((new,)).opened(before) == "its seal is not Dovetail's"


@pytest.mark.parametrize("keys", [(), (b"short",), (b"long enough, certainly", b"")])
def test_a_seal_needs_keys(keys: tuple[bytes, ...]) -> None:
    """A key that can be guessed is refused."""
    with pytest.raises(ValueError, match="16 bytes"):
        Seal(keys)
    assert "certainly" not in repr(Seal((b"long enough, certainly",)))


def _acted(driver: Driver) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for kind in (TaintNode, UntaintNode, DeleteNodeClaim):
        found[kind.__name__] = driver.told(kind)
    return found


@pytest.mark.parametrize("where", ["Node", "NodeClaim"])
@pytest.mark.parametrize("text", [*UNREADABLE.values(), *LIES.values()], ids=[*UNREADABLE, *LIES])
def test_the_engine_starts_acts_elsewhere_and_says_so(text: str, where: str) -> None:
    """A bad record on one node does not stop commands for other nodes, and that node is left alone."""
    world = World()
    world.add_pool()
    world.add_node("a")
    world.add_node("b", want="delete")
    item = world.get(Node, "a") if where == "Node" else world.get(NodeClaim, "a-claim")
    assert item is not None
    world.annotate(item, **{names.COMMAND: text})
    driver = Driver(world, engine_for()).begin().run(120)
    assert driver.ends() == ["done"]
    assert world.deleted == ["b-claim"]
    assert len(driver.reports("record-ignored")) == 1
    said = [event for event in driver.told(PublishEvent) if getattr(event, "reason", "") == "CommandRecordIgnored"]
    assert [(event.kind, event.name) for event in said] == [(where, item.metadata.name)]  # type: ignore[union-attr]


@pytest.mark.parametrize("lie", ["unsealed", "another key"])
def test_a_lie_that_names_other_nodes_touches_none(lie: str) -> None:
    """A forged record on a node cannot taint, free, delete or keep any other node."""
    world = World()
    world.add_pool()
    for name in ("liar", "b", "c"):
        world.add_node(name)
    ours = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
    forged = encode_record(record(world, "liar", "b", "c", phase="waiting"))
    text = forged if lie == "unsealed" else OTHER.sealed(forged)
    node = world.get(Node, "liar")
    assert node is not None
    world.annotate(msgspec.structs.replace(node, spec=NodeSpec(taints=(ours,))), **{names.COMMAND: text})
    driver = Driver(world, engine_for()).begin().run(900)
    acted = _acted(driver)
    assert acted["TaintNode"] == acted["DeleteNodeClaim"] == []
    assert {getattr(order, "node", "") for order in acted["UntaintNode"]} == {"liar"}
    assert world.tainted() == []
    assert driver.engine.runs == ()


def test_it_is_said_again_only_when_it_changes() -> None:
    """An ignored record is reported once, and again if it disappears and comes back."""
    world = World()
    world.add_pool()
    world.add_node("a")

    def write(text: str | None) -> int:
        node = world.get(Node, "a")
        assert node is not None
        world.annotate(node, **{names.COMMAND: text})
        driver.run(30)
        return len(driver.reports("record-ignored"))

    driver = Driver(world, engine_for()).begin().run(30)
    assert [write(text) for text in ("junk", "junk", PLAIN, None, PLAIN)] == [1, 1, 2, 2, 3]


def test_a_successor_trusts_its_predecessor() -> None:
    """A successor with the same key finishes the command; one with another key frees the node."""
    for seal, end in ((SEAL, ["done"]), (OTHER, [])):
        world = World(seal=seal)
        world.add_pool()
        world.add_node("a", want="replace")
        Driver(world, engine_for()).begin().run(20)
        assert world.tainted() == ["a"]
        world.seal = SEAL
        second = Driver(world, engine_for(identity="two")).begin().run(200)
        assert second.ends()[: len(end)] == end
        assert world.tainted() == []


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TIMES = st.sampled_from(
    ["2026-03-02T09:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-03-02T09:00:00Z", "now", ""]
)


@st.composite
def hostile_texts(draw: st.DrawFn) -> str:
    """Build records with replaced, missing or repeated fields, or any text; some have a foreign seal."""
    tree: dict[str, Any] = json.loads(encode_record(record(None, "a", "b", "c")))
    for key in draw(st.lists(st.sampled_from(sorted(tree)), max_size=4)):
        tree[key] = draw(TIMES) if key == "since" else draw(VALUES)
    for key in draw(st.lists(st.sampled_from(sorted(tree)), max_size=1)):
        del tree[key]
    text = json.dumps(tree)
    which = draw(st.integers(0, 4))
    if which == 0:
        return draw(st.text(max_size=40))
    if which == 1:
        return text[: draw(st.integers(0, len(text)))]
    return OTHER.sealed(text) if which == 2 else text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=hostile_texts(), on=st.sampled_from(["Node", "NodeClaim"]), tainted=st.booleans())
def test_no_record_of_a_stranger_is_ever_obeyed(text: str, on: str, tainted: bool) -> None:
    """For any foreign record the engine starts, acts on other nodes, and leaves the named nodes alone."""
    world = World()
    world.add_pool()
    for name in ("a", "b", "c"):
        world.add_node(name)
    world.add_node("wanted", want="delete")
    item = world.get(Node, "a") if on == "Node" else world.get(NodeClaim, "a-claim")
    assert item is not None
    if tainted and isinstance(item, Node):
        ours = Taint(key=names.DISRUPTION_TAINT, value=names.DISRUPTION_TAINT_VALUE, effect="NoSchedule")
        item = msgspec.structs.replace(item, spec=NodeSpec(taints=(ours,)))
    world.annotate(item, **{names.COMMAND: text})
    driver = Driver(world, engine_for()).begin().run(120)
    assert world.deleted == ["wanted-claim"]
    assert {getattr(order, "node", "") for order in driver.told(TaintNode)} == {"wanted"}
    assert world.tainted() == []
    assert len(driver.reports("record-ignored")) == 1


@pytest.mark.parametrize(
    ("key", "value", "ours"),
    [
        (names.DISRUPTION_TAINT, "disrupting", True),
        (names.DISRUPTION_TAINT, "candidate", False),
        (names.DISRUPTION_TAINT, "", False),
        ("example.org/maintenance", "disrupting", False),
    ],
)
def test_which_taint_is_ours(key: str, value: str, ours: bool) -> None:
    """A taint belongs to Dovetail only if both key and value match."""
    assert is_our_taint(Taint(key=key, value=value, effect="NoSchedule")) == ours
