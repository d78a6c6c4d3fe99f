"""The exact writes of each instruction for each form of its object, or why there are none."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.api.pool_marks import Departure, decode_history, write_history
from dovetail.lifecycle.commands.records import Record, encode_record
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects import node_effects, pod_effects
from dovetail.lifecycle.effects.claim_effects import drain_bound
from dovetail.lifecycle.effects.effect import effect
from dovetail.lifecycle.effects.effect_context import EffectContext, patched, with_condition
from dovetail.lifecycle.effects.node_claims import launch_problem, node_claim_tree
from dovetail.lifecycle.effects.objects import RefusedError
from dovetail.lifecycle.effects.writes import (
    PODS_ON,
    Create,
    Delete,
    Done,
    Failed,
    Outcome,
    Patch,
    Read,
    Ref,
    Tree,
    Writes,
    annotation,
    listing,
    mapping,
    text,
)
from dovetail.lifecycle.messages import (
    BeginDomain,
    ClearRecord,
    ClusterInstruction,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    ForgetDisruption,
    HaltPool,
    KeepRoll,
    MarkPod,
    NoteDisruption,
    PublishEvent,
    SetDisruptionReason,
    SetPoolCondition,
    SurgeDeployment,
    TaintNode,
    UntaintNode,
)
from dovetail.model import names
from dovetail.model.command import Action, Method, Replacement
from dovetail.model.objects import SelectorRequirement
from dovetail.model.policies.reasons import Reason
from tests.support.conversation import pod

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
STAMP = "2026-05-11T12:00:00Z"
SEAL = Seal((b"sixteen bytes and more",))
CONTEXT = EffectContext(now=NOW, seal=SEAL)
OURS = {"key": names.DISRUPTION_TAINT, "value": names.DISRUPTION_TAINT_VALUE, "effect": "NoSchedule"}
STAMPED = {**OURS, "timeAdded": STAMP}
OTHER = {"key": "team", "value": "blue", "effect": "NoSchedule"}
NODE, CLAIM, POOL = Ref(kind="Node", name="n"), Ref(kind="NodeClaim", name="c"), Ref(kind="NodePool", name="p")
POD, PODS = Ref(kind="Pod", name="x", namespace="d"), Ref(kind=PODS_ON, name="n")


def record(ident: str) -> str:
    """Return the sealed record of a command."""
    plain = Record(id=ident, action=Action.DELETE_COST, method=Method.EMPTY, phase="tainting", since=NOW, nodes=())
    return SEAL.sealed(encode_record(plain))


def item(*, taints: list[Tree] | None = None, uid: str = "u", leaving: bool = False, **annotations: str) -> Tree:
    """Return an object as the server shows it."""
    meta: Tree = {"name": "n", "uid": uid, "resourceVersion": "7", "annotations": annotations}
    if leaving:
        meta["deletionTimestamp"] = STAMP
    return {"metadata": meta, "spec": {} if taints is None else {"taints": taints}}


def said(asked: ClusterInstruction, context: EffectContext = CONTEXT, **known: Tree | None) -> Outcome:
    """Return the outcome for the given known objects."""
    refs = {"node": NODE, "claim": CLAIM, "pool": POOL, "pod": POD, "pods": PODS}
    return effect(asked, {refs[key]: value for key, value in known.items()}, context)


def patch(ref: Ref, tree: Tree, subresource: str = "") -> Writes:
    """Return one patch of an object at version 7."""
    return Writes(writes=(Patch(ref=ref, resource_version="7", tree=tree, subresource=subresource),))


# ---------------------------------------------------------------- nodes


@pytest.mark.parametrize(
    ("taints", "noted", "outcome"),
    [
        (None, "", [STAMPED]),
        ([OTHER], "", [OTHER, STAMPED]),
        ([OURS], "", None),
        ([OTHER, OURS], "", None),
        ([OURS], "mine", "done"),
        ([OTHER, OURS], "mine", "done"),
        ([OTHER], "mine", [OTHER, STAMPED]),
        ([OURS], "theirs", "command theirs holds node n"),
        ([OTHER, OURS], "theirs", "command theirs holds node n"),
        ([OTHER], "theirs", [OTHER, STAMPED]),
        ([{**OURS, "value": "candidate"}], "", "node n carries karpenter.sh/disruption=candidate of somebody else"),
        ([OTHER, {**OURS, "value": "candidate"}], "", "node n carries karpenter.sh/disruption=candidate of somebody"),
        ([{**OURS, "value": "candidate", "effect": "NoExecute"}], "", "both"),
        ([{**OTHER, "value": "disrupting"}], "", "both"),
    ],
)
def test_taint(taints: list[Tree] | None, noted: str, outcome: Any) -> None:
    """The taint is added once with its time, beside other taints; not if another command or person has it."""
    asked = TaintNode(id="1", command_id="mine", node="n", record=encode_record(SEAL.opened(record("mine"))))  # type: ignore[arg-type]
    node = item(taints=taints, **({names.COMMAND: record(noted)} if noted else {}))
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: record("mine")}}}
    found = said(asked, node=node)
    match outcome:
        case "done":
            assert found == Done()
        case "both":
            assert found == patch(NODE, {**tree, "spec": {"taints": [*(taints or []), STAMPED]}})
        case str():
            assert isinstance(found, Failed)
            assert found.failure is Failure.TAKEN
            assert found.detail.startswith(outcome)
        case None:
            assert found == patch(NODE, tree)
        case _:
            assert found == patch(NODE, {**tree, "spec": {"taints": outcome}})


def test_taint_of_a_node_that_is_gone() -> None:
    """A node that is gone can't be tainted."""
    asked = TaintNode(id="1", command_id="mine", node="n", record="")
    assert said(asked, node=None) == Failed(failure=Failure.NOT_FOUND, detail="Node n is gone")


@pytest.mark.parametrize(
    ("taints", "noted", "left"),
    [
        (None, "", "done"),
        ([OTHER], "", "done"),
        ([OURS], "", [{"taints": None}]),
        ([OTHER, OURS], "", [{"taints": [OTHER]}]),
        ([OURS], "mine", [{"taints": None}]),
        ([OTHER, OURS, OTHER], "mine", [{"taints": [OTHER, OTHER]}]),
        (None, "mine", []),
        ([OTHER], "mine", []),
        ([OURS], "theirs", "done"),
        (None, "theirs", "done"),
        ([OURS], "junk", [{"taints": None}]),
    ],
)
def test_untaint(taints: list[Tree] | None, noted: str, left: Any) -> None:
    """Dovetail's taint and record are removed, and an unreadable record; another command's stay."""
    notes = {"": {}, "junk": {names.COMMAND: "junk"}}.get(noted, {names.COMMAND: record(noted)})
    found = said(UntaintNode(id="1", command_id="mine", node="n"), node=item(taints=taints, **notes))
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: None}}}
    assert found == (Done() if left == "done" else patch(NODE, {**tree, **({"spec": left[0]} if left else {})}))
    assert said(UntaintNode(id="1", command_id="mine", node="n"), node=None) == Done()


HELD = {names.DO_NOT_DISRUPT: "true", names.HOLD: "true"}


@pytest.mark.parametrize(
    ("notes", "holds", "releases"),
    [
        ({}, True, False),
        ({names.DO_NOT_DISRUPT: "true"}, False, False),
        ({names.DO_NOT_DISRUPT: "false"}, False, False),
        ({names.HOLD: "true"}, True, True),
        (HELD, False, True),
        ({**HELD, names.DO_NOT_DISRUPT: "false"}, True, True),
    ],
)
def test_hold_and_release(notes: dict[str, str], holds: bool, releases: bool) -> None:
    """A person's annotation stays; Dovetail's mark is added and removed as a whole."""
    put_on = {"metadata": {"annotations": HELD}}
    taken_off = {"metadata": {"annotations": dict.fromkeys(HELD)}}
    assert node_effects.hold_patch(item(**notes)) == (put_on if holds else None)
    assert node_effects.release_patch(item(**notes)) == (taken_off if releases else None)


SOFT = {"key": names.CLOSING_TAINT, "effect": "PreferNoSchedule"}


@pytest.mark.parametrize(
    ("taints", "closed", "opened"),
    [
        (None, [SOFT], None),
        ([OTHER], [OTHER, SOFT], None),
        ([SOFT], None, {"taints": None}),
        ([OTHER, SOFT], None, {"taints": [OTHER]}),
    ],
)
def test_close_and_open(taints: list[Tree] | None, closed: list[Tree] | None, opened: Tree | None) -> None:
    """The soft taint of steering is added and removed beside other taints."""
    node = item(taints=taints)
    assert node_effects.close_patch(node) == (None if closed is None else {"spec": {"taints": closed}})
    assert node_effects.open_patch(node) == (None if opened is None else {"spec": opened})


# ---------------------------------------------------------------- claims


def creation(**changes: Any) -> CreateNodeClaim:
    """Return the creation of a replacement."""
    plain = encode_record(SEAL.opened(record("mine")))  # type: ignore[arg-type]
    fields = {"replacement": Replacement(node_pool="p", instance_types=("m",)), "record": plain, **changes}
    return CreateNodeClaim(id="1", command_id="mine", name="c", **fields)


def test_create() -> None:
    """A claim is created once, held by Dovetail; never over a foreign claim or without a pool that can launch it."""
    assert said(creation()) == Read(ref=CLAIM)
    assert said(creation(), claim=None) == Read(ref=POOL)
    assert said(creation(), claim=item(**{names.COMMAND: record("mine")})) == Done(uid="u")
    refused = Failed(failure=Failure.REFUSED, detail="a NodeClaim c of somebody else is there")
    assert said(creation(), claim=item()) == refused
    assert said(creation(), claim=item(**{names.COMMAND: record("theirs")})) == refused
    assert said(creation(), claim=None, pool=None) == Failed(failure=Failure.NOT_FOUND, detail="NodePool p is gone")
    pool: Tree = {"metadata": {"name": "p", "uid": "pu"}}
    hopeless = {"metadata": {**pool["metadata"], "deletionTimestamp": STAMP}}
    why = Failed(failure=Failure.REFUSED, detail="NodePool p is being deleted")
    assert said(creation(), claim=None, pool=hopeless) == why
    for holds in (True, False):
        context = EffectContext(now=NOW, seal=SEAL, holds=holds)
        marks = {names.COMMAND: record("mine"), **(HELD if holds else {})}
        tree = node_claim_tree("c", creation().replacement, pool, marks)
        assert said(creation(), context, claim=None, pool=pool) == Writes(writes=(Create(ref=CLAIM, tree=tree),))
    closed: Tree = {**pool, "spec": {"disruption": {"budgets": [{"nodes": "0"}]}}}
    policy = {names.POLICY_ANNOTATION: "budgets: [{nodes: 10%}]"}
    quiet: Tree = {**closed, "metadata": {**pool["metadata"], "annotations": policy}}
    tree = node_claim_tree("c", creation().replacement, closed, {names.COMMAND: record("mine"), **HELD})
    assert said(creation(), claim=None, pool=closed) == Writes(writes=(Create(ref=CLAIM, tree=tree),))
    tree = node_claim_tree("c", creation().replacement, quiet, {names.COMMAND: record("mine")})
    assert said(creation(), claim=None, pool=quiet) == Writes(writes=(Create(ref=CLAIM, tree=tree),))


def deletion(**changes: Any) -> DeleteNodeClaim:
    """Return the deletion of a candidate's claim."""
    return DeleteNodeClaim(**{"id": "1", "command_id": "mine", "name": "c", "uid": "u", **changes})


def test_delete() -> None:
    """Exactly this claim is deleted, unless it is already leaving or a pod on its node forbids it."""
    gone = Failed(failure=Failure.NOT_FOUND, detail="NodeClaim c is gone")
    other = Failed(failure=Failure.NOT_FOUND, detail="NodeClaim c is another one by now")
    deleted = Writes(writes=(Delete(ref=CLAIM, uid="u"),))
    assert said(deletion(), claim=None) == gone
    assert said(deletion(), claim=item(uid="v")) == other
    assert said(deletion(uid=""), claim=item(uid="")) == other
    assert said(deletion(), claim=item(leaving=True)) == Done(uid="u")
    assert said(deletion(), claim=item()) == deleted, "a replacement has no node to be looked at"
    assert said(deletion(node="n"), claim=item()) == Read(ref=PODS)
    assert said(deletion(node="n"), EffectContext(now=NOW, seal=SEAL, looks_last=False), claim=item()) == deleted
    assert said(deletion(node="n"), claim=item(), pods={"pods": ()}) == deleted
    unreadable = said(deletion(node="n"), claim=item(), pods=None)
    assert unreadable == Failed(failure=Failure.OCCUPIED, detail="the pods of n can't be read")
    odd = said(deletion(node="n"), claim=item(), pods={"unreadable": "pod d/x is odd"})
    assert odd == Failed(failure=Failure.OCCUPIED, detail="pod d/x is odd")
    occupied = said(deletion(node="n", only_empty=True), claim=item(), pods={"pods": (pod("x", "n"),)})
    assert occupied == Failed(failure=Failure.OCCUPIED, detail="node n is no longer empty: pod d/x is on it")


def test_delete_with_a_bound_for_the_drain() -> None:
    """The drain's bound is written before the deletion, unless the drain already ends sooner."""
    bound = {"metadata": {"annotations": {names.TERMINATION_TIMESTAMP: "2026-05-11T12:05:00Z"}}}
    asked = deletion(drain_for=300 * 10**9)
    delete = Delete(ref=CLAIM, uid="u")
    assert said(asked, claim=item()) == Writes(
        writes=(Patch(ref=CLAIM, resource_version="7", tree=bound, subresource=""), delete)
    )
    sooner = item(**{names.TERMINATION_TIMESTAMP: "2026-05-11T12:04:59Z"})
    assert said(asked, claim=sooner) == Writes(writes=(delete,))


@pytest.mark.parametrize(
    ("present", "bound"),
    [
        (None, True),
        ("2026-05-11T12:00:00Z", False),
        ("2026-05-11T11:59:59Z", False),
        ("2026-05-11T12:00:01Z", True),
        ("2026-05-11T13:00:00+02:00", False),
        ("2026-05-11T11:00:00", True),
        ("soon", True),
    ],
)
def test_bound_of_a_drain(present: str | None, bound: bool) -> None:
    """A bound only moves the end sooner; an unreadable value, or one without a time zone, is overwritten."""
    claim = item(**({} if present is None else {names.TERMINATION_TIMESTAMP: present}))
    tree = {"metadata": {"annotations": {names.TERMINATION_TIMESTAMP: STAMP}}}
    assert drain_bound(claim, NOW) == (tree if bound else None)


def test_attribute() -> None:
    """The condition is written to exactly this claim, once its deletion has begun."""
    asked = SetDisruptionReason(id="1", command_id="mine", name="c", uid="u", reason="Drifted")
    told = {"type": names.CONDITION_DISRUPTION_REASON, "status": "True", "reason": "Drifted", "message": "Drifted"}
    assert said(asked, claim=None) == Done()
    assert said(asked, claim=item(uid="v", leaving=True)) == Done()
    assert said(asked, claim=item()) == Done()
    stamped = {"status": {"conditions": [{**told, "lastTransitionTime": STAMP}]}}
    assert said(asked, claim=item(leaving=True)) == patch(CLAIM, stamped, "status")
    assert said(asked, claim={**item(leaving=True), "status": {"conditions": [told]}}) == Done()


@pytest.mark.parametrize(
    ("claim_of", "node_of", "asked_by", "cleared"),
    [
        ("mine", "mine", "mine", "cn"),
        ("mine", "theirs", "mine", "c"),
        ("theirs", "mine", "mine", "n"),
        ("theirs", "theirs", "mine", ""),
        ("mine", None, "mine", "c"),
        ("junk", "mine", "", "c"),
        ("", "mine", "", ""),
        ("", "junk", "", "n"),
    ],
)
def test_clear(claim_of: str, node_of: str | None, asked_by: str, cleared: str) -> None:
    """The command's record is cleared on claim and node; without an id, an untrusted record is cleared."""

    def with_record(of: str) -> Tree:
        return item(**({} if not of else {names.COMMAND: "junk" if of == "junk" else record(of)}))

    asked = ClearRecord(id="1", command_id=asked_by, node_claim="c")
    claim = {**with_record(claim_of), "status": {"nodeName": "n"}}
    assert said(asked, claim=None) == Done()
    assert said(asked, claim=claim) == Read(ref=NODE)
    tree: Tree = {"metadata": {"annotations": {names.COMMAND: None}}}
    refs = {"c": CLAIM, "n": NODE}
    writes = tuple(Patch(ref=refs[letter], resource_version="7", tree=tree, subresource="") for letter in cleared)
    found = said(asked, claim=claim, node=None if node_of is None else with_record(node_of))
    assert found == (Writes(writes=writes) if writes else Done())
    alone = said(asked, claim=with_record(claim_of))
    assert alone == (Writes(writes=writes[:1]) if cleared.startswith("c") else Done())


# ---------------------------------------------------------------- pods


def test_evict() -> None:
    """Exactly this pod is evicted, unless it is already leaving."""
    asked = EvictPod(id="1", command_id="mine", namespace="d", name="x", uid="u")
    gone = Failed(failure=Failure.NOT_FOUND, detail="Pod d/x is gone")
    assert said(asked, pod=None) == gone
    assert said(asked, pod=item(uid="v")) == gone
    blank = EvictPod(id="1", command_id="mine", namespace="d", name="x", uid="")
    assert said(blank, pod=item(uid="")) == gone
    assert said(asked, pod=item(leaving=True)) == Done(uid="u")
    found = said(asked, pod=item())
    assert isinstance(found, Writes)
    [write] = found.writes
    assert isinstance(write, Create)
    assert (write.ref, write.subresource) == (POD, "eviction")
    assert write.tree["deleteOptions"] == {"preconditions": {"uid": "u"}}


def test_surge() -> None:
    """A Deployment is rolled once per command; not if it is paused or no longer requests it."""
    ref = Ref(kind="Deployment", name="w", namespace="d")
    asked = SurgeDeployment(id="1", command_id="mine", namespace="d", name="w", mark="m")
    refusal = Failed(failure=Failure.REFUSED, detail="Deployment d/w is paused, or no longer asks to surge")
    wants = {names.SURGE: "true"}

    def shown(mark: str | None, paused: bool, **notes: str) -> Tree:
        template = {"metadata": {"annotations": {} if mark is None else {names.SURGED_AT: mark}}}
        return {**item(**notes), "spec": {"template": template, **({"paused": True} if paused else {})}}

    assert effect(asked, {ref: None}, CONTEXT) == Done()
    for mark in (None, "older"):
        rolled = patch(ref, {"spec": {"template": {"metadata": {"annotations": {names.SURGED_AT: "m"}}}}})
        assert effect(asked, {ref: shown(mark, False, **wants)}, CONTEXT) == rolled
        assert effect(asked, {ref: shown(mark, True, **wants)}, CONTEXT) == refusal
        assert effect(asked, {ref: shown(mark, False)}, CONTEXT) == refusal
        assert effect(asked, {ref: shown(mark, False, **{names.SURGE: "false"})}, CONTEXT) == refusal
    assert effect(asked, {ref: shown("m", True)}, CONTEXT) == Done()


MARK = dict.fromkeys((names.POD_DELETION_COST, names.STEERING_MARK), pod_effects.NEXT_VICTIM)


def test_mark() -> None:
    """Exactly this pod is marked, once, and a person's value is not overwritten."""
    asked = MarkPod(id="1", namespace="d", name="x", uid="u")
    assert said(asked, pod=None) == Done()
    assert said(asked, pod=item(uid="v")) == Done()
    assert said(asked, pod=item(leaving=True)) == Done()
    assert said(asked, pod=item(**{names.POD_DELETION_COST: "5"})) == Done()
    assert said(asked, pod=item()) == patch(POD, {"metadata": {"annotations": MARK}})


@pytest.mark.parametrize(
    ("notes", "taken_off"),
    [
        ({}, None),
        ({names.POD_DELETION_COST: "-100"}, None),
        (MARK, tuple(MARK)),
        ({**MARK, names.POD_DELETION_COST: "5"}, (names.STEERING_MARK,)),
        ({names.STEERING_MARK: "-100"}, (names.STEERING_MARK,)),
    ],
)
def test_unmark(notes: dict[str, str], taken_off: tuple[str, ...] | None) -> None:
    """Dovetail's value is removed; a value that a person wrote over it stays."""
    tree = None if taken_off is None else {"metadata": {"annotations": dict.fromkeys(taken_off)}}
    assert pod_effects.unmark_patch(item(**notes)) == tree


# ---------------------------------------------------------------- pools and people


def departure(command: str, minutes: int) -> Departure:
    """Return an entry of a pool's history that is this many minutes old."""
    return Departure(at=NOW - timedelta(minutes=minutes), nodes=1, reason=Reason.EMPTY, command=command)


@pytest.mark.parametrize(
    ("before", "noted", "forgotten"),
    [
        ([], ["mine"], None),
        ([("old", 30)], ["old", "mine"], None),
        ([("older", 90), ("old", 30)], ["old", "mine"], None),
        ([("mine", 5)], None, []),
        ([("old", 30), ("mine", 5)], None, ["old"]),
    ],
)
def test_history(before: list[tuple[str, int]], noted: list[str] | None, forgotten: list[str] | None) -> None:
    """A command is recorded once and old entries expire; forgetting a command removes only its entry."""
    history = tuple(departure(*entry) for entry in before)
    pool = item(**({names.RECENT_DISRUPTIONS: write_history(history)} if history else {}))
    keep = 3600 * 10**9
    note = NoteDisruption(id="1", command_id="mine", node_pool="p", nodes=2, reason="Drifted", at=NOW, keep=keep)
    forget = ForgetDisruption(id="1", command_id="mine", node_pool="p")
    for asked, kept in ((note, noted), (forget, forgotten)):
        assert said(asked, pool=None) == Done()
        found = said(asked, pool=pool)
        if kept is None:
            assert found == Done()
            continue
        assert isinstance(found, Writes)
        [write] = found.writes
        assert isinstance(write, Patch)
        assert (write.ref, write.resource_version) == (POOL, "7")
        value = write.tree["metadata"]["annotations"][names.RECENT_DISRUPTIONS]
        assert (value is None) == (not kept)
        assert [entry.command for entry in decode_history(value) or ()] == kept
        if kept and kept[-1] == "mine":
            last = (decode_history(value) or ())[-1]
            assert (last.nodes, last.reason, last.at) == (2, Reason.DRIFTED, NOW)


def test_history_that_cannot_be_read() -> None:
    """An unreadable history is not overwritten."""
    asked = ForgetDisruption(id="1", command_id="mine", node_pool="p")
    found = said(asked, pool=item(**{names.RECENT_DISRUPTIONS: "junk"}))
    assert isinstance(found, Failed)
    assert found.failure is Failure.REFUSED


@pytest.mark.parametrize(
    ("present", "value", "writes"),
    [(None, "why", True), ("why", "why", False), ("other", "why", True), ("why", None, True), (None, None, False)],
)
def test_halt(present: str | None, value: str | None, writes: bool) -> None:
    """The annotation is written unless it already has the value."""
    asked = HaltPool(id="1", node_pool="p", value=value)
    assert said(asked, pool=None) == Done()
    pool = item(**({} if present is None else {names.HALTED: present}))
    tree = {"metadata": {"annotations": {names.HALTED: value}}}
    assert said(asked, pool=pool) == (patch(POOL, tree) if writes else Done())


def _rolling(domain: str | None, key: str = "zone") -> str:
    return json.dumps({"key": key, "value": domain, "since": "2026-01-01T00:00:00Z"}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("present", "rollout"),
    [
        ({}, None),
        ({names.ROLLING_DOMAIN: "odd"}, None),
        ({names.ROLLING_DOMAIN: _rolling("b", key="rack")}, None),
        ({names.ROLLING_DOMAIN: _rolling("b")}, '{"turns":["b"],"leftBehind":["b"]}'),
        ({names.ROLLING_DOMAIN: _rolling(None)}, '{"turns":[null],"leftBehind":[null]}'),
        ({names.ROLLOUT: '{"turns":["b","a"],"leftBehind":["a"]}'}, '{"turns":["b","a"]}'),
    ],
    ids=["first", "unreadable", "another label", "another domain", "no label", "again"],
)
def test_beginning_a_domain(present: dict[str, str], rollout: str | None) -> None:
    """The domain is written before its first taint; one that stands there had its turn."""
    asked = BeginDomain(id="1", command_id="c", node_pool="p", key="zone", domain="a", at=NOW)
    found = said(asked, pool=item(**present))
    assert isinstance(found, Writes)
    write = found.writes[0]
    assert isinstance(write, Patch)
    told = write.tree["metadata"]["annotations"]
    assert json.loads(told[names.ROLLING_DOMAIN]) == {"key": "zone", "value": "a", "since": STAMP}
    assert told.get(names.ROLLOUT) == rollout
    assert said(asked, pool=None) == Done()


def test_a_domain_that_is_begun_stays() -> None:
    """A domain that was begun keeps its time and its clock."""
    asked = BeginDomain(id="1", command_id="c", node_pool="p", key="zone", domain="a", at=NOW)
    assert said(asked, pool=item(**{names.ROLLING_DOMAIN: _rolling("a")})) == Done()


@pytest.mark.parametrize(
    ("present", "writes"),
    [((None, None), True), (("x", None), False), ((None, "y"), False), (("d", "r"), False)],
)
def test_a_roll_is_kept_as_it_was_seen(present: tuple[str | None, str | None], writes: bool) -> None:
    """What a round found is written only if the pool still says what the round saw."""
    marks = ((names.ROLLING_DOMAIN, "d"), (names.ROLLOUT, "r"))
    asked = KeepRoll(id="1", node_pool="p", marks=marks, seen=(None, None))
    there = dict(zip((names.ROLLING_DOMAIN, names.ROLLOUT), present, strict=True))
    tree = {"metadata": {"annotations": {names.ROLLING_DOMAIN: "d", names.ROLLOUT: "r"}}}
    pool = item(**{name: value for name, value in there.items() if value is not None})
    assert said(asked, pool=pool) == (patch(POOL, tree) if writes else Done())
    assert said(asked, pool=None) == Done()


WANTED = {"type": "T", "status": "True", "reason": "R", "message": "m"}
BESIDE = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("present", "since"),
    [
        ([], STAMP),
        ([BESIDE], STAMP),
        ([WANTED], None),
        ([BESIDE, WANTED], None),
        ([{**WANTED, "message": "other", "lastTransitionTime": "then"}, BESIDE], "then"),
        ([{**WANTED, "message": "other"}], STAMP),
        ([{**WANTED, "status": "False", "lastTransitionTime": "then"}], STAMP),
    ],
)
def test_conditions_of_an_object(present: list[Tree], since: str | None) -> None:
    """The condition is added once beside others; its time stays while its status does."""
    shown = {**item(), "status": {"conditions": present}}
    others = [entry for entry in present if entry is BESIDE]
    tree = {"status": {"conditions": [*others, {**WANTED, "lastTransitionTime": since}]}}
    assert with_condition(shown, WANTED, CONTEXT) == (None if since is None else tree)
    asked = SetPoolCondition(id="1", node_pool="p", type="T", status="True", reason="R", message="m")
    assert said(asked, pool=shown) == (Done() if since is None else patch(POOL, tree, "status"))
    assert said(asked, pool=None) == Done()


def test_event() -> None:
    """An event's name follows from its object and text; its type from the instruction."""
    asked = PublishEvent(id="1", kind="Node", name="n.", reason="R", message="m")
    outcome = effect(asked, {}, CONTEXT)
    assert isinstance(outcome, Read)
    stem, _, digest = outcome.ref.name.rpartition(".")
    assert (stem, len(digest), outcome.ref.namespace) == ("n", 16, "default")
    for warning, kind in ((True, "Warning"), (False, "Normal")):
        asked = PublishEvent(id="1", kind="Node", name="n", reason="R", message="m", warning=warning)
        ref = effect(asked, {}, CONTEXT)
        assert isinstance(ref, Read)
        made = effect(asked, {ref.ref: None}, CONTEXT)
        assert isinstance(made, Writes)
        [write] = made.writes
        assert isinstance(write, Create)
        assert write.tree["type"] == kind


# ---------------------------------------------------------------- what is shared


def test_an_object_is_patched_where_it_is_there_and_needs_it() -> None:
    """An object is patched if it exists and differs; otherwise nothing is left to do."""
    assert patched(NODE, None, lambda tree: {"x": 1}) == Done()
    assert patched(NODE, item(), lambda tree: None) == Done()
    assert patched(NODE, item(), lambda tree: {"x": 1}) == patch(NODE, {"x": 1})


def test_trees_are_read_whatever_their_shape() -> None:
    """A value of an unexpected form counts as missing."""
    tree: Tree = {"a": {"b": {"c": "d"}, "l": [{"x": 1}, 2], "t": ({"x": 1},), "n": 5}}
    assert mapping(tree, "a", "b") == {"c": "d"}
    assert mapping(tree, "a", "b", "c") == {}
    assert mapping(tree, "a", "l", "x") == {}
    assert mapping(None, "a") == {}
    assert listing(tree, "a", "l") == [{"x": 1}]
    assert listing(tree, "a", "t") == [{"x": 1}]
    assert listing(tree, "a", "b") == []
    assert listing(tree, "a", "n") == []
    assert text(tree, "a", "b", "c") == "d"
    assert text(tree, "a", "n") == ""
    assert annotation(item(k="v"), "k") == "v"
    assert annotation(item(), "k") is None
    assert annotation({"metadata": {"annotations": {"k": 5}}}, "k") is None


def test_a_refusal_says_why() -> None:
    """A refusal keeps the server's message for the answer."""
    error = RefusedError(Failure.THROTTLED, "a PodDisruptionBudget says no")
    assert (error.detail, error.failure) == ("a PodDisruptionBudget says no", Failure.THROTTLED)


# ---------------------------------------------------------------- NodeClaims


def requirement(key: str, *values: str, operator: str = "In", min_values: int | None = None) -> SelectorRequirement:
    """Return a requirement."""
    return SelectorRequirement(key=key, operator=operator, values=values, min_values=min_values)


def claim_of(replacement: Replacement, **template: Any) -> Tree:
    """Return the NodeClaim of a replacement of a pool with this template."""
    pool = {"metadata": {"name": "p", "uid": "pu"}, "spec": {"template": template}}
    return node_claim_tree("c", replacement, pool, {})


@pytest.mark.parametrize(
    ("reference", "label"),
    [
        ({"group": "g.io", "kind": "EC2NodeClass", "name": "x"}, {"g.io/ec2nodeclass": "x"}),
        ({"group": "g.io", "kind": "EC2NodeClass"}, {"g.io/ec2nodeclass": ""}),
        ({"group": "g.io"}, {}),
        ({"kind": "EC2NodeClass"}, {}),
        ({}, {}),
    ],
)
def test_label_of_the_node_class(reference: Tree, label: dict[str, str]) -> None:
    """The node class label uses group and kind, if both are present."""
    tree = claim_of(Replacement(node_pool="p", instance_types=()), spec={"nodeClassRef": reference})
    assert tree["metadata"]["labels"] == {names.NODEPOOL: "p", **label}
    [owner] = tree["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"], owner["blockOwnerDeletion"]) == ("p", "pu", True)


def test_hashes_of_the_pool_are_copied() -> None:
    """The pool's hashes are copied if present: without them Karpenter would see the claim as drifted."""
    pool: Tree = {"metadata": {"name": "p", "annotations": {names.NODEPOOL_HASH: "h", names.NODEPOOL_HASH_VERSION: ""}}}
    tree = node_claim_tree("c", Replacement(node_pool="p", instance_types=()), pool, {"mark": "m"})
    assert tree["metadata"]["annotations"] == {names.NODEPOOL_HASH: "h", "mark": "m"}


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        (requirement("team", "blue", "red"), {"team": "blue"}),
        (requirement("example.org/team", "blue"), {"example.org/team": "blue"}),
        (requirement("team", "blue", operator="NotIn"), {}),
        (requirement("team", operator="Exists"), {}),
        (requirement("team"), {}),
        (requirement("karpenter.k8s.aws/instance-family", "m5"), {}),
        (requirement("karpenter.sh/capacity-type", "spot"), {}),
        (requirement("node.kubernetes.io/odd", "x"), {}),
        (requirement("eks.k8s.io/odd", "x"), {}),
        (requirement("odd.k8s.aws/x", "x"), {}),
        (requirement("eks.amazonaws.com/instance-category", "m", "c"), {}),
        (requirement("cloud.google.com/gke-accelerator", "nvidia-l4"), {}),
        (requirement("kubernetes.azure.com/mode", "user"), {}),
        (requirement(names.ZONE, "z1"), {}),
    ],
)
def test_labels_of_users_follow_from_requirements(entry: SelectorRequirement, label: dict[str, str]) -> None:
    """Labels of a provider depend on the launched machine and are left out; a label of the template stays."""
    tree = claim_of(Replacement(node_pool="p", instance_types=(), requirements=(entry,)))
    assert tree["metadata"]["labels"] == {names.NODEPOOL: "p", **label}
    if label:
        [key] = label
        set_before = claim_of(
            Replacement(node_pool="p", instance_types=(), requirements=(entry,)), metadata={"labels": {key: "own"}}
        )
        assert set_before["metadata"]["labels"][key] == "own"


def test_requirements_of_a_claim() -> None:
    """Requirements are sorted by key without the simulation's; instance types are last, with the pool's minimum."""
    entries = (
        requirement("team", "blue", min_values=2),
        requirement(names.HOSTNAME, "h"),
        requirement(names.INSTANCE_TYPE, "a", "b", min_values=3),
        requirement("arch", operator="Exists"),
    )
    tree = claim_of(Replacement(node_pool="p", instance_types=("m", "n"), requirements=entries, requests={"cpu": 1500}))
    assert tree["spec"]["requirements"] == [
        {"key": "arch", "operator": "Exists"},
        {"key": "team", "operator": "In", "values": ["blue"], "minValues": 2},
        {"key": names.INSTANCE_TYPE, "operator": "In", "values": ["m", "n"], "minValues": 3},
    ]
    assert tree["spec"]["resources"] == {"requests": {"cpu": "1500m"}}
    untyped = claim_of(Replacement(node_pool="p", instance_types=(), requirements=entries))
    assert [entry["key"] for entry in untyped["spec"]["requirements"]] == ["arch", names.INSTANCE_TYPE, "team"]


def pool_of(**parts: Any) -> Tree:
    """Return a pool; `requirements` are its template's."""
    spec: Tree = {"limits": parts.get("limits", {})}
    spec["template"] = {"spec": {"requirements": parts.get("requirements", [])}}
    status = {"conditions": parts.get("conditions", []), "resources": parts.get("used", {})}
    return {"metadata": {"name": "p", **parts.get("meta", {})}, "spec": spec, "status": status}


TYPES = Replacement(node_pool="p", instance_types=("m", "n"), requirements=(requirement("team", "blue", "red"),))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({}, ""),
        ({"meta": {"deletionTimestamp": STAMP}}, "NodePool p is being deleted"),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, "NodePool p is not Ready"),
        ({"conditions": [BESIDE, {"type": "X", "status": "False"}]}, ""),
        ({"conditions": [{"type": "X", "status": "False"}, {"type": "Ready", "status": "Unknown"}]}, ""),
        ({"limits": {"cpu": "10"}, "used": {"cpu": "10"}}, "NodePool p is at its limit of 10 cpu"),
        ({"limits": {"cpu": "10"}, "used": {"cpu": "11"}}, "NodePool p is at its limit of 10 cpu"),
        ({"limits": {"cpu": "10"}, "used": {"cpu": "9999m"}}, ""),
        ({"limits": {"cpu": 10}, "used": {"cpu": 10}}, "NodePool p is at its limit of 10 cpu"),
        ({"limits": {"cpu": "10"}}, ""),
        ({"limits": {"cpu": None}, "used": {"cpu": "10"}}, ""),
        ({"limits": {"cpu": []}, "used": {"cpu": "10"}}, ""),
        ({"limits": {"cpu": "10"}, "used": {"cpu": []}}, ""),
        ({"limits": {"cpu": "much"}, "used": {"cpu": "10"}}, ""),
        ({"limits": {"memory": "1Gi"}, "used": {"cpu": "10"}}, ""),
        ({"requirements": [{"key": "team", "operator": "In", "values": ["red"]}]}, ""),
        (
            {"requirements": [{"key": "team", "operator": "In", "values": ["green"]}]},
            "NodePool p no longer allows team blue, red",
        ),
        ({"requirements": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]}, ""),
        ({"requirements": [{"key": "team", "operator": "Exists"}]}, ""),
        (
            {"requirements": [{"key": "team", "operator": "DoesNotExist"}]},
            "NodePool p no longer allows team blue, red",
        ),
        ({"requirements": [{"key": "other", "operator": "In", "values": ["x"]}]}, ""),
        ({"requirements": [{"key": names.INSTANCE_TYPE, "operator": "In", "values": ["n"]}]}, ""),
        (
            {"requirements": [{"key": names.INSTANCE_TYPE, "operator": "In", "values": ["o"]}]},
            f"NodePool p no longer allows {names.INSTANCE_TYPE} m, n",
        ),
        ({"requirements": [{"key": 5, "operator": "In", "values": ["x"]}]}, ""),
        ({"requirements": [{"key": "team", "operator": 5, "values": ["x"]}]}, ""),
        ({"requirements": [{"key": "team", "operator": "In", "values": "green"}]}, ""),
        ({"requirements": [{"key": "team", "operator": "Odd", "values": ["x"]}]}, ""),
        (
            {"requirements": [{"key": "team", "operator": "Odd"}, {"key": "team", "operator": "In", "values": ["x"]}]},
            "NodePool p no longer allows team blue, red",
        ),
    ],
)
def test_what_makes_a_launch_hopeless(parts: dict[str, Any], why: str) -> None:
    """A pool can't launch if it is leaving, not ready, at its limit, or no longer allows the requirements."""
    assert launch_problem(TYPES, pool_of(**parts)) == why


def test_what_a_replacement_is_limited_to() -> None:
    """A replacement is limited by the values of its own In requirement, or by its instance types."""
    only = {"requirements": [{"key": names.INSTANCE_TYPE, "operator": "In", "values": ["x"]}]}
    free = Replacement(node_pool="p", instance_types=())
    assert launch_problem(free, pool_of(**only)) == ""
    listed = Replacement(node_pool="p", instance_types=(), requirements=(requirement(names.INSTANCE_TYPE, "y"),))
    assert launch_problem(listed, pool_of(**only)) == f"NodePool p no longer allows {names.INSTANCE_TYPE} y"
    team = {"requirements": [{"key": "team", "operator": "In", "values": ["x"]}]}
    for entry in (requirement("team", "y", operator="NotIn"), requirement("team"), requirement("other", "y")):
        loose = Replacement(node_pool="p", instance_types=("m",), requirements=(entry,))
        assert launch_problem(loose, pool_of(**team)) == ""


ASKED = '{"before": "2026-01-01T00:00:00Z", "requested": "2026-01-01T00:00:00Z"}'


@pytest.mark.parametrize(
    ("request_there", "kind", "status", "writes"),
    [
        pytest.param(None, names.ROLLOUT_COMPLETE, "True", True, id="no request"),
        pytest.param(ASKED, names.ROLLOUT_COMPLETE, "True", False, id="asked"),
        pytest.param(ASKED, names.ROLLOUT_COMPLETE, "False", True, id="it is not done"),
        pytest.param(ASKED, "T", "True", True, id="another condition"),
        pytest.param("junk", names.ROLLOUT_COMPLETE, "True", True, id="a request that can't be read asks for nothing"),
    ],
)
def test_a_roll_is_not_done_over_a_request(request_there: str | None, kind: str, status: str, writes: bool) -> None:
    """That nothing is to be replaced is not written on a NodePool on which somebody has asked for a roll meanwhile."""
    pool = item(**({} if request_there is None else {names.ROLL: request_there}))
    asked = SetPoolCondition(id="1", node_pool="p", type=kind, status=status, reason="R", message="m")
    assert isinstance(said(asked, pool=pool), Writes) is writes
