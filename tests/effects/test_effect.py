"""What an instruction means, as a pure function, for any objects."""

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects.effect import effect
from dovetail.lifecycle.effects.effect_context import EffectContext
from dovetail.lifecycle.effects.node_claims import node_claim_tree
from dovetail.lifecycle.effects.writes import (
    Create,
    Delete,
    Done,
    Failed,
    Patch,
    Read,
    Ref,
    Writes,
    apply_merge_patch,
    described,
)
from dovetail.lifecycle.messages import (
    BeginDomain,
    ClearRecord,
    CloseNode,
    ClusterInstruction,
    CreateNodeClaim,
    DeleteNodeClaim,
    DropPoolCondition,
    DropRollRequest,
    EvictPod,
    ForgetDisruption,
    HaltPool,
    HoldNode,
    KeepRoll,
    LookAtPods,
    MarkPod,
    NoteDisruption,
    OpenNode,
    PublishEvent,
    ReleaseNode,
    SetDisruptionReason,
    SetPoolCondition,
    SurgeDeployment,
    TaintNode,
    UnmarkPod,
    UntaintNode,
)
from dovetail.model.command import Replacement
from dovetail.model.objects import SelectorRequirement

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = EffectContext(now=NOW, seal=Seal((b"sixteen bytes and more",)))
EVERY: tuple[ClusterInstruction, ...] = (
    TaintNode(id="1", command_id="c", node="n", record="r"),
    UntaintNode(id="1", command_id="c", node="n"),
    CreateNodeClaim(
        id="1", command_id="c", name="n", record="r", replacement=Replacement(node_pool="p", instance_types=("m",))
    ),
    DeleteNodeClaim(id="1", command_id="c", name="n", uid="u"),
    SetDisruptionReason(id="1", command_id="c", name="n", uid="u", reason="Drifted"),
    EvictPod(id="1", command_id="c", namespace="d", name="n", uid="u"),
    EvictPod(id="1", command_id="c", namespace="d", name="n", uid="u", node="n", record="{}"),
    LookAtPods(id="1", command_id="c", nodes=("n",)),
    SurgeDeployment(id="1", command_id="c", namespace="d", name="n", mark="m"),
    ClearRecord(id="1", command_id="c", node_claim="n"),
    MarkPod(id="1", namespace="d", name="n", uid="u"),
    UnmarkPod(id="1", namespace="d", name="n"),
    CloseNode(id="1", node="n"),
    OpenNode(id="1", node="n"),
    NoteDisruption(
        id="1", command_id="c", node_pool="p", nodes=1, reason="Drifted", at=datetime(2026, 1, 1, tzinfo=UTC), keep=1
    ),
    ForgetDisruption(id="1", command_id="c", node_pool="p"),
    HaltPool(id="1", node_pool="p", value="why"),
    HaltPool(id="1", node_pool="p", value=None),
    BeginDomain(id="1", command_id="c", node_pool="p", key="zone", domain="a", at=NOW),
    KeepRoll(id="1", node_pool="p", marks=(("dovetail.dev/rollout", "r"),), seen=(None,)),
    HoldNode(id="1", node="n"),
    ReleaseNode(id="1", node="n"),
    PublishEvent(id="1", kind="Node", name="n", reason="R", message="m"),
    SetPoolCondition(id="1", node_pool="p", type="T", status="True", reason="R", message="m"),
    DropPoolCondition(id="1", node_pool="p", type="T"),
    DropRollRequest(id="1", node_claim="n"),
    NoteDisruption(id="1", command_id="c", node_pool="p", nodes=1, reason="Drifted", at=NOW, keep=10**12),
    HaltPool(id="1", node_pool="p", value="{}"),
    SurgeDeployment(id="1", command_id="c", namespace="d", name="w", mark="m"),
    ForgetDisruption(id="1", command_id="c", node_pool="p"),
)
KEYS = st.sampled_from(
    ["metadata", "annotations", "spec", "status", "taints", "key", "value", "effect", "template", "conditions", "type",
     "nodeName", "resourceVersion", "uid", "dovetail.dev/command", "karpenter.sh/disruption", "series", "count",
     "labels", "nodeClassRef", "group", "kind", "deletionTimestamp", "dovetail.dev/recent-disruptions",
     "dovetail.dev/rolling-domain", "dovetail.dev/rollout", "dovetail.dev/roll"]
)  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "disrupting", "T", "junk", "é", "[]", "[1]", "[" * 5000])
)
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5))
OBJECTS = st.none() | st.dictionaries(KEYS, TREES, max_size=6)


def test_every_instruction_that_acts_is_here() -> None:
    """The table below has every instruction."""
    assert {type(asked) for asked in EVERY} == set(get_args(ClusterInstruction))


@pytest.mark.parametrize("asked", EVERY, ids=lambda asked: type(asked).__name__)
def test_first_it_wants_to_see_the_object(asked: ClusterInstruction) -> None:
    """An instruction reads the object before it writes."""
    assert isinstance(effect(asked, {}, CONTEXT), Read)


@settings(max_examples=100, deadline=None)
@given(tree=TREES, patch=TREES)
def test_merge_patch_is_idempotent(tree: Any, patch: Any) -> None:
    """Applying the same patch twice changes nothing the second time."""
    once = apply_merge_patch(tree, patch)
    assert apply_merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("tree", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_of_the_rfc(tree: Any, patch: Any, result: Any) -> None:
    """Merge patches match the examples of RFC 7386, appendix A."""
    assert apply_merge_patch(tree, patch) == result


def test_a_patch_depends_on_the_version_that_was_read() -> None:
    """A patch names the version that was read."""
    node = {"metadata": {"name": "n", "resourceVersion": "7"}}
    outcome = effect(HoldNode(id="1", node="n"), {Ref(kind="Node", name="n"): node}, CONTEXT)
    assert isinstance(outcome, Writes)
    (write,) = outcome.writes
    assert isinstance(write, Patch)
    assert write.body()["metadata"]["resourceVersion"] == "7"
    assert write.body()["metadata"]["annotations"]["dovetail.dev/hold"] == "true"


def test_a_deletion_names_the_uid() -> None:
    """A deletion names the uid, so that a later object of the same name is safe."""
    claim = {"metadata": {"name": "n", "uid": "u"}}
    asked = DeleteNodeClaim(id="1", command_id="c", name="n", uid="u")
    ref = Ref(kind="NodeClaim", name="n")
    assert effect(asked, {ref: claim}, CONTEXT) == Writes(writes=(Delete(ref=ref, uid="u"),))


def test_a_claim_without_instance_types_keeps_the_templates() -> None:
    """A replacement in a static pool keeps the template's instance types."""
    types = SelectorRequirement(key="node.kubernetes.io/instance-type", operator="In", values=("a",))
    wanted = Replacement(node_pool="p", instance_types=(), requirements=(types,))
    tree = node_claim_tree("n", wanted, {"metadata": {"name": "p"}}, {})
    assert [entry["values"] for entry in tree["spec"]["requirements"]] == [["a"]]


def test_two_requirements_of_one_key_both_stay() -> None:
    """Two requirements on one key are both kept."""
    bounds = tuple(
        SelectorRequirement(key="example.com/size", operator="NotIn", values=(value,)) for value in ("s", "m")
    )
    wanted = Replacement(node_pool="p", instance_types=("a",), requirements=bounds)
    tree = node_claim_tree("n", wanted, {"metadata": {"name": "p"}}, {})
    assert [entry["values"] for entry in tree["spec"]["requirements"]] == [["s"], ["m"], ["a"]]


def test_a_created_event_says_what_it_is_about() -> None:
    """An event names its object with its kind, and control characters are removed."""
    asked = PublishEvent(id="1", kind="NodePool", name="p", reason="R", message="x\x1b[31m", warning=True)
    read = effect(asked, {}, CONTEXT)
    assert isinstance(read, Read)
    outcome = effect(asked, {read.ref: None}, CONTEXT)
    assert isinstance(outcome, Writes)
    (write,) = outcome.writes
    assert isinstance(write, Create)
    assert write.tree["regarding"] == {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "p", "uid": ""}
    assert write.tree["type"] == "Warning"
    assert "\x1b" not in write.tree["note"]


@pytest.mark.parametrize(
    ("metadata", "marked"),
    [
        ({"uid": "u"}, True),
        ({"uid": "another"}, False),
        ({"uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
        (None, False),
    ],
    ids=["it", "another of its name", "it is going", "it is gone"],
)
def test_only_the_very_pod_becomes_the_next_victim(metadata: dict[str, str] | None, marked: bool) -> None:
    """A new pod with the same name is not the pod of the instruction."""
    asked = MarkPod(id="1", namespace="d", name="n", uid="u")
    read = effect(asked, {}, CONTEXT)
    assert isinstance(read, Read)
    pod = None if metadata is None else {"metadata": metadata}
    assert isinstance(effect(asked, {read.ref: pod}, CONTEXT), Writes if marked else Done)


@pytest.mark.parametrize(("letter", "kept"), [("a", 128), ("\u00fc", 64)], ids=["one byte each", "two bytes each"])
def test_an_event_keeps_to_the_servers_limits(letter: str, kept: int) -> None:
    """The reporting instance has at most 128 bytes and the note 1024; a name of 128 bytes is not cut."""
    asked = PublishEvent(id="1", kind="Node", name="n", reason="R", message=letter * 3000)
    read = effect(asked, {}, CONTEXT)
    assert isinstance(read, Read)
    for length in (kept, kept + 1, 3 * kept):
        outcome = effect(asked, {read.ref: None}, EffectContext(now=NOW, seal=CONTEXT.seal, identity=letter * length))
        assert isinstance(outcome, Writes)
        (write,) = outcome.writes
        assert isinstance(write, Create)
        shown = write.tree["reportingInstance"]
        assert len(shown.encode()) <= 128
        assert len(write.tree["note"].encode()) <= 1024
        if length == kept:
            assert shown == letter * kept


@pytest.mark.parametrize(("series", "count"), [({}, 2), ({"count": 4}, 5), ({"count": "many"}, 2)])
def test_an_event_that_happens_again_is_counted(series: dict[str, Any], count: int) -> None:
    """A repeated event's count grows by one; an unreadable count becomes 2."""
    asked = PublishEvent(id="1", kind="Node", name="n", reason="R", message="m")
    read = effect(asked, {}, CONTEXT)
    assert isinstance(read, Read)
    outcome = effect(asked, {read.ref: {"metadata": {"resourceVersion": "1"}, "series": series}}, CONTEXT)
    assert isinstance(outcome, Writes)
    (write,) = outcome.writes
    assert isinstance(write, Patch)
    assert write.tree["series"]["count"] == count


@pytest.mark.parametrize("asked", EVERY, ids=lambda asked: type(asked).__name__)
@settings(max_examples=60, deadline=None)
@given(objects=st.lists(OBJECTS, min_size=1, max_size=3))
def test_no_object_is_too_strange(asked: ClusterInstruction, objects: list[Any]) -> None:
    """For any server state there is an outcome, and everything to be written can be sent."""
    known: dict[Ref, Any] = {}
    for _ in range(4):
        outcome = effect(asked, known, CONTEXT)
        if not isinstance(outcome, Read):
            break
        known[outcome.ref] = objects[len(known) % len(objects)]
    assert isinstance(outcome, Writes | Done | Failed)
    if isinstance(outcome, Writes):
        for write in outcome.writes:
            assert described(write)
            msgspec.json.encode(write)
