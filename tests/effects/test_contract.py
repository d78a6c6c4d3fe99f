"""One contract for every actuator: the same instruction on the same objects has the same outcome and result."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record, read_record
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import (
    ClearRecord,
    CloseNode,
    CreateNodeClaim,
    DeleteNodeClaim,
    EvictPod,
    Failure,
    HoldNode,
    InstructionFailed,
    InstructionSucceeded,
    LookAtPods,
    MarkPod,
    OpenNode,
    PublishEvent,
    ReleaseNode,
    SetPoolCondition,
    TaintNode,
    UnmarkPod,
    UntaintNode,
)
from dovetail.model.command import Action, Method, Replacement
from dovetail.model.objects import SelectorRequirement, Taint
from tests.effects.grounds import ApiServerGround, Ground, HttpGround, SimulatorGround, SmallWorldGround
from tests.support.e2e_world import claim as claim_tree
from tests.support.e2e_world import pool as pool_tree

Tree = dict[str, Any]
COMMAND, HOLD, DO_NOT_DISRUPT = "dovetail.dev/command", "dovetail.dev/hold", "karpenter.sh/do-not-disrupt"
OURS = {"key": "karpenter.sh/disruption", "value": "disrupting", "effect": "NoSchedule"}
THEIRS = {"key": "team", "value": "blue", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
POOL = "effect-pool"


@pytest.fixture(
    params=[
        "simulator",
        "small-world",
        "http",
        pytest.param("api-server", marks=[pytest.mark.apiserver, pytest.mark.xdist_group("apiserver")]),
    ]
)
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Yield each cluster that executes instructions, with a pool."""
    if request.param == "api-server":
        plane = request.getfixturevalue("api_server")
        with plane.client() as api:
            real = ApiServerGround(plane, api)
            try:
                yield _with_pool(real)
            finally:
                real.clean()
    else:
        kinds = {"simulator": SimulatorGround, "small-world": SmallWorldGround, "http": HttpGround}
        yield _with_pool(kinds[request.param]())


def _with_pool(ground: Ground) -> Ground:
    tree = pool_tree(POOL, labels={"team": "blue"})
    tree["metadata"]["annotations"] = {"karpenter.sh/nodepool-hash": "123", "karpenter.sh/nodepool-hash-version": "v3"}
    tree["spec"]["template"]["spec"]["taints"] = [{"key": "template", "value": "x", "effect": "NoSchedule"}]
    tree["spec"]["template"]["spec"]["startupTaints"] = [{"key": "starting", "effect": "NoExecute"}]
    ground.put(tree)
    return ground


def record(ident: str) -> str:
    """Return the record of a command."""
    nodes = (Candidate(node="n", claim="n", uid="u"),)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    made = Record(id=ident, action=Action.DELETE_COST, method=Method.SINGLE_NODE, phase="p", since=since, nodes=nodes)
    return encode_record(made)


def node(name: str, *taints: Tree, **annotations: str) -> Tree:
    """Return a Node."""
    meta = {"name": name, "annotations": {key.replace("__", "/"): value for key, value in annotations.items()}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"taints": list(taints)} if taints else {}}


def sealed(ground: Ground, ident: str) -> str:
    """Return the record of a command as objects carry it."""
    return ground.seal.sealed(record(ident))


def marked(ground: Ground, name: str, ident: str) -> Tree:
    """Return a Node with Dovetail's taint and the record of a command."""
    tree = node(name, THEIRS, OURS)
    tree["metadata"]["annotations"] = {COMMAND: sealed(ground, ident)}
    return tree


def claim(ground: Ground, name: str, ident: str = "", node_name: str = "") -> Tree:
    """Return a NodeClaim of the pool, with the record of a command and with a Node."""
    of = ground.get("NodePool", POOL)
    assert of is not None
    tree = claim_tree(name, of)
    tree["metadata"]["annotations"] = {COMMAND: sealed(ground, ident)} if ident else {}
    if node_name:
        tree["status"] = {"nodeName": node_name}
    return tree


def notes(ground: Ground, kind: str, name: str) -> dict[str, str]:
    """Return the annotations of an object."""
    tree = ground.get(kind, name)
    assert tree is not None
    return dict(tree["metadata"].get("annotations") or {})


def taints(ground: Ground, name: str) -> list[Tree]:
    """Return the taints of a Node, without those that an API server puts on new Nodes."""
    tree = ground.get("Node", name)
    assert tree is not None
    found = (tree.get("spec") or {}).get("taints") or []
    return [taint for taint in found if taint["key"] != "node.kubernetes.io/not-ready"]


def succeeded(answer: Any) -> bool:
    """Return whether an instruction was executed or was already done."""
    return isinstance(answer, InstructionSucceeded)


def failure(answer: Any) -> Failure | None:
    """Return how an instruction failed."""
    return answer.failure if isinstance(answer, InstructionFailed) else None


REPLACEMENT = Replacement(
    node_pool=POOL,
    instance_types=("small", "large"),
    capacity_types=("on-demand",),
    zones=("zone-a", "zone-b"),
    requirements=(
        SelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=("zone-a",)),
        SelectorRequirement(key="kubernetes.io/hostname", operator="In", values=("made-up-1",)),
        SelectorRequirement(key="karpenter.sh/initialized", operator="In", values=("true",)),
        SelectorRequirement(key="karpenter.sh/registered", operator="In", values=("true",)),
        SelectorRequirement(key="example.com/rack", operator="In", values=("r1", "r2")),
    ),
    requests={"cpu": 1500, "memory": 1 << 30, "pods": 2},
    taints=(Taint(key="replacement", effect="NoSchedule"),),
    startup_taints=(Taint(key="replacement-starts", effect="NoSchedule"),),
)


def create(name: str, ident: str, **changes: Any) -> CreateNodeClaim:
    """Return an instruction to create a replacement."""
    given: Tree = {"replacement": REPLACEMENT, **changes}
    return CreateNodeClaim(id=f"{ident}/create", command_id=ident, name=name, record=record(ident), **given)


def taint(name: str, ident: str) -> TaintNode:
    """Return an instruction to taint a node."""
    return TaintNode(id=f"{ident}/taint", command_id=ident, node=name, record=record(ident))


# ---------------------------------------------------------------- taints


def test_taint_adds_ours_and_its_time_and_keeps_others(ground: Ground) -> None:
    """Taint, time and record are written together; other taints stay; a second time changes nothing."""
    ground.put(node("effect-a", THEIRS))
    assert succeeded(ground.do(taint("effect-a", "c1")))
    theirs, ours = taints(ground, "effect-a")
    assert theirs == THEIRS
    assert {key: ours[key] for key in OURS} == OURS
    assert ours["timeAdded"]
    assert notes(ground, "Node", "effect-a")[COMMAND] == sealed(ground, "c1")
    before = ground.get("Node", "effect-a")
    assert succeeded(ground.do(taint("effect-a", "c1")))
    assert ground.get("Node", "effect-a") == before


def test_taint_never_takes_another_commands_node(ground: Ground) -> None:
    """A node with the taint and record of another command is unchanged."""
    ground.put(marked(ground, "effect-a", "other"))
    before = ground.get("Node", "effect-a")
    assert failure(ground.do(taint("effect-a", "c1"))) is Failure.TAKEN
    assert ground.get("Node", "effect-a") == before


def test_taint_never_overwrites_another_value(ground: Ground) -> None:
    """A taint with Dovetail's key and a foreign value is neither replaced nor removed."""
    foreign = {"key": "karpenter.sh/disruption", "value": "maintenance", "effect": "NoSchedule"}
    ground.put(node("effect-a", foreign))
    assert failure(ground.do(taint("effect-a", "c1"))) is Failure.TAKEN
    assert succeeded(ground.do(UntaintNode(id="2", command_id="c1", node="effect-a")))
    assert taints(ground, "effect-a") == [foreign]


def test_taint_of_a_vanished_node(ground: Ground) -> None:
    """Tainting a missing node reports that the node is gone."""
    assert failure(ground.do(taint("effect-gone", "c1"))) is Failure.NOT_FOUND


def test_taint_does_not_undo_what_happens_in_between(ground: Ground) -> None:
    """A write applies to the version that was read; after a conflict the object is read again."""
    ground.put(node("effect-a", OURS))
    ground.between(lambda: ground.annotate("Node", "effect-a", COMMAND, sealed(ground, "other")))
    assert failure(ground.do(taint("effect-a", "c1"))) is Failure.TAKEN
    assert notes(ground, "Node", "effect-a")[COMMAND] == sealed(ground, "other")


def test_hold_obeys_what_happens_in_between(ground: Ground) -> None:
    """A person's annotation that appears between the read and the write is kept."""
    ground.put(node("effect-a"))
    ground.between(lambda: ground.annotate("Node", "effect-a", DO_NOT_DISRUPT, "true"))
    assert succeeded(ground.do(HoldNode(id="1", node="effect-a")))
    assert notes(ground, "Node", "effect-a") == {DO_NOT_DISRUPT: "true"}


def test_untaint(ground: Ground) -> None:
    """Taint and record are removed and others stay, also another command's; a second time changes nothing."""
    ground.put(marked(ground, "effect-a", "c1"))
    before = ground.get("Node", "effect-a")
    assert succeeded(ground.do(UntaintNode(id="1", command_id="other", node="effect-a")))
    assert succeeded(ground.do(UntaintNode(id="2", command_id="", node="effect-a")))
    assert ground.get("Node", "effect-a") == before
    for _ in range(2):
        assert succeeded(ground.do(UntaintNode(id="3", command_id="c1", node="effect-a")))
        assert taints(ground, "effect-a") == [THEIRS]
        assert COMMAND not in notes(ground, "Node", "effect-a")


def test_untaint_without_an_id_takes_what_nobody_can_read(ground: Ground) -> None:
    """A taint with an unreadable record belongs to nobody and is removed."""
    tree = node("effect-a", OURS)
    tree["metadata"]["annotations"] = {COMMAND: "junk"}
    ground.put(tree)
    assert succeeded(ground.do(UntaintNode(id="1", command_id="", node="effect-a")))
    assert taints(ground, "effect-a") == []
    assert COMMAND not in notes(ground, "Node", "effect-a")


@pytest.mark.parametrize(
    "asked",
    [
        UntaintNode(id="1", command_id="c1", node="effect-gone"),
        HoldNode(id="1", node="effect-gone"),
        ReleaseNode(id="1", node="effect-gone"),
        MarkPod(id="1", namespace="default", name="effect-gone", uid="u"),
        UnmarkPod(id="1", namespace="default", name="effect-gone"),
        CloseNode(id="1", node="effect-gone"),
        OpenNode(id="1", node="effect-gone"),
        ClearRecord(id="1", command_id="c1", node_claim="effect-gone"),
        SetPoolCondition(id="1", node_pool="effect-gone", type="T", status="True", reason="R", message="m"),
    ],
    ids=lambda asked: type(asked).__name__,
)
def test_nothing_is_left_to_do_on_a_vanished_object(ground: Ground, asked: Any) -> None:
    """An instruction succeeds if the object to clean up is gone."""
    assert succeeded(ground.do(asked))


# ---------------------------------------------------------------- claims


def test_create_as_karpenter_would(ground: Ground) -> None:
    """The claim has the pool's template, the plan's requirements, the hold and the record."""
    answer = ground.do(create("effect-new", "c1"))
    made = ground.get("NodeClaim", "effect-new")
    assert made is not None
    assert succeeded(answer)
    assert isinstance(answer, InstructionSucceeded)
    assert answer.uid == made["metadata"]["uid"] != ""
    assert made["metadata"]["labels"] == {
        "karpenter.sh/nodepool": POOL,
        "karpenter.test.sh/testnodeclass": "default",
        "pool": POOL,
        "team": "blue",
        "example.com/rack": "r1",
    }
    assert made["metadata"]["annotations"] == {
        "karpenter.sh/nodepool-hash": "123",
        "karpenter.sh/nodepool-hash-version": "v3",
        DO_NOT_DISRUPT: "true",
        HOLD: "true",
        COMMAND: sealed(ground, "c1"),
    }
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["blockOwnerDeletion"]) == ("NodePool", POOL, True)
    spec = made["spec"]
    assert {entry["key"]: entry["values"] for entry in spec["requirements"]} == {
        "topology.kubernetes.io/zone": ["zone-a"],
        "example.com/rack": ["r1", "r2"],
        "node.kubernetes.io/instance-type": ["small", "large"],
    }
    assert spec["taints"] == [{"key": "template", "value": "x", "effect": "NoSchedule"}]
    assert spec["startupTaints"] == [{"key": "starting", "effect": "NoExecute"}]
    assert spec["resources"]["requests"] == {"cpu": "1500m", "memory": "1Gi", "pods": "2"}
    assert spec["expireAfter"] == "720h"


def test_create_twice_is_once(ground: Ground) -> None:
    """A claim that this command already created is not created again."""
    first = ground.do(create("effect-new", "c1"))
    made = ground.get("NodeClaim", "effect-new")
    assert ground.do(create("effect-new", "c1")) == first
    assert ground.get("NodeClaim", "effect-new") == made


FORGED = [
    pytest.param(lambda ground: "junk", id="no-json"),
    pytest.param(lambda ground: record("other"), id="unsealed"),
    pytest.param(lambda ground: Seal((b"a key of somebody else",)).sealed(record("other")), id="foreign-key"),
    pytest.param(lambda ground: sealed(ground, "other").replace('"p"', '"q"'), id="changed"),
    pytest.param(lambda ground: record("other").replace("Z", ""), id="no-zone"),
    pytest.param(lambda ground: '{"nodes":' * 5000 + "1" + "}" * 5000, id="deep"),
]


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_record_pins_nothing(ground: Ground, forge: Callable[[Ground], str]) -> None:
    """A record that Dovetail did not write neither protects a node nor survives an instruction that needs the node."""
    tree = node("effect-a", OURS)
    tree["metadata"]["annotations"] = {COMMAND: forge(ground)}
    ground.put(tree)
    assert succeeded(ground.do(taint("effect-a", "c1")))
    assert notes(ground, "Node", "effect-a")[COMMAND] == sealed(ground, "c1")
    tree = node("effect-b", OURS)
    tree["metadata"]["annotations"] = {COMMAND: forge(ground)}
    ground.put(tree)
    assert succeeded(ground.do(UntaintNode(id="1", command_id="", node="effect-b")))
    assert taints(ground, "effect-b") == []


@pytest.mark.parametrize("forge", FORGED)
def test_a_forged_claim_is_nobodys_replacement(ground: Ground, forge: Callable[[Ground], str]) -> None:
    """A claim with a replacement's name and a forged record of the command is refused."""
    tree = claim(ground, "effect-new")
    tree["metadata"]["annotations"] = {COMMAND: forge(ground).replace("other", "c1")}
    ground.put(tree)
    assert failure(ground.do(create("effect-new", "c1"))) is Failure.REFUSED


@pytest.mark.parametrize("holder", ["other", ""])
def test_create_refuses_a_name_that_is_taken(ground: Ground, holder: str) -> None:
    """A claim with that name that belongs to another command, or to none, is not this command's replacement."""
    ground.put(claim(ground, "effect-new", holder))
    before = ground.get("NodeClaim", "effect-new")
    assert failure(ground.do(create("effect-new", "c1"))) is Failure.REFUSED
    assert ground.get("NodeClaim", "effect-new") == before


def test_create_refuses_a_name_that_is_taken_in_between(ground: Ground) -> None:
    """A foreign claim that appears between the read and the write is also refused."""
    ground.between(lambda: ground.put(claim(ground, "effect-new", "other")))
    assert failure(ground.do(create("effect-new", "c1"))) is Failure.REFUSED


def test_create_without_its_pool(ground: Ground) -> None:
    """A deleted pool launches nothing."""
    gone = Replacement(node_pool="effect-gone", instance_types=("small",))
    assert failure(ground.do(create("effect-new", "c1", replacement=gone))) is Failure.NOT_FOUND


def test_delete_only_the_claim_that_was_meant(ground: Ground) -> None:
    """A deletion with another uid, or without one, deletes nothing."""
    tree = claim(ground, "effect-old")
    tree["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    ground.put(tree)
    found = ground.get("NodeClaim", "effect-old")
    assert found is not None
    for uid in ("another", ""):
        asked = DeleteNodeClaim(id="1", command_id="c", name="effect-old", uid=uid)
        assert failure(ground.do(asked)) is Failure.NOT_FOUND
    right = DeleteNodeClaim(id="2", command_id="c", name="effect-old", uid=found["metadata"]["uid"])
    for _ in range(2):
        assert succeeded(ground.do(right))
        leaving = ground.get("NodeClaim", "effect-old")
        assert leaving is not None
        assert leaving["metadata"]["deletionTimestamp"]
    gone = DeleteNodeClaim(id="3", command_id="c", name="effect-gone", uid="u")
    assert failure(ground.do(gone)) is Failure.NOT_FOUND


def pod(name: str, **annotations: str) -> Tree:
    """Return a pod that is bound to the node `effect-busy`."""
    meta = {
        "name": name,
        "namespace": "default",
        "annotations": {k.replace("__", "/"): v for k, v in annotations.items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"nodeName": "effect-busy", "containers": [{"name": "main", "image": "none"}]},
        "status": {"phase": "Running"},
    }


def rolling(tree: Tree) -> Tree:
    """Make a pod part of the ReplicaSet of a Deployment that surges."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-1", "uid": "r", "controller": True}
    tree["metadata"]["ownerReferences"] = [owner]
    return tree


@pytest.mark.parametrize(
    ("pods", "order", "kept"),
    [
        ([], {"only_empty": True}, False),
        ([pod("effect-p")], {"only_empty": True}, True),
        ([pod("effect-p")], {}, False),
        ([pod("effect-p", **{"karpenter.sh__do-not-disrupt": "true"})], {}, True),
        ([pod("effect-p", **{"karpenter.sh__do-not-disrupt": "true"})], {"spares_protected": False}, False),
        ([pod("effect-p", **{"karpenter.sh__do-not-disrupt": "true"})], {"node": ""}, False),
        ([rolling(pod("effect-p"))], {"roll_first": (("default", "shop-1"),)}, True),
        ([rolling(pod("effect-p"))], {"roll_first": (("default", "other-1"),)}, False),
        ([rolling(pod("effect-p"))], {"roll_first": (("default", "shop-1"),), "spares_protected": False}, False),
    ],
    ids=[
        "empty",
        "no-longer-empty",
        "moved",
        "protected",
        "lifted",
        "a-replacement",
        "rolls-first",
        "another-rolls",
        "rolls-lifted",
    ],
)
def test_the_pods_have_the_last_word(ground: Ground, pods: list[Tree], order: Tree, kept: bool) -> None:
    """A pod that was bound after the decision keeps its node, on every cluster."""
    tree = claim(ground, "effect-old", node_name="effect-busy")
    tree["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    ground.put(tree)
    for entry in pods:
        ground.put(entry)
    found = ground.get("NodeClaim", "effect-old")
    assert found is not None
    given = {"id": "1", "command_id": "c", "name": "effect-old", "uid": found["metadata"]["uid"], "node": "effect-busy"}
    answer = ground.do(DeleteNodeClaim(**{**given, **order}))
    assert failure(answer) is (Failure.OCCUPIED if kept else None)
    after = ground.get("NodeClaim", "effect-old")
    assert after is not None
    assert ("deletionTimestamp" in after["metadata"]) is not kept


def pdb(name: str, allowed: int, app: str = "shop") -> Tree:
    """Return a PDB over an app, with what its controller says."""
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 1,
        "desiredHealthy": 1 - allowed,
        "expectedPods": 1,
        "observedGeneration": 1,
    }
    meta = {"name": name, "namespace": "default"}
    spec = {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": allowed}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": status}


def shop(**annotations: str) -> Tree:
    """Return a ready pod of the app on the busy node."""
    marks = {key.replace("__", "/"): value for key, value in annotations.items()}
    spec = {"nodeName": "effect-busy", "containers": [{"name": "main", "image": "none"}]}
    meta = {"name": "effect-p", "namespace": "default", "labels": {"app": "shop"}, "annotations": marks}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


CLOSED = {"dovetail.dev__disruption-window": "0 3 31 2 *; 1h"}


@pytest.mark.parametrize(
    ("objects", "order", "why"),
    [
        ([shop()], {}, ""),
        ([shop(), pdb("effect-b", 1)], {}, ""),
        ([shop(), pdb("effect-b", 0)], {}, "default/effect-b allows no disruption of pod default/effect-p"),
        ([shop(), pdb("effect-b", 0)], {"asks_pdbs": False}, ""),
        ([shop(), pdb("effect-b", 0, "other")], {}, ""),
        ([shop(), pdb("effect-b", 0)], {"nodes": ("effect-idle",)}, ""),
        ([shop(), pdb("effect-b", 0)], {"nodes": ("effect-idle", "effect-busy")}, "allows no disruption"),
        ([shop(), pdb("effect-b", 1), pdb("effect-c", 1)], {}, "has 2 PodDisruptionBudgets"),
        ([shop(**{"karpenter.sh__do-not-disrupt": "true"})], {}, "must not be disrupted"),
        ([rolling(shop())], {"roll_first": (("default", "shop-1"),)}, "rolling update"),
        ([shop(**CLOSED)], {}, "the window of pod default/effect-p"),
        ([shop(**CLOSED)], {"asks_windows": False}, ""),
    ],
)  # fmt: skip
def test_a_look_reads_pods_and_pdbs(ground: Ground, objects: list[Tree], order: Tree, why: str) -> None:
    """The last look refuses, on every cluster, what gate 6 refuses now; it writes nothing."""
    for entry in objects:
        ground.put(entry)
    before = ground.get("Pod", "effect-p")
    answer = ground.do(LookAtPods(**{"id": "1", "command_id": "c", "nodes": ("effect-busy",), **order}))
    assert failure(answer) is (Failure.OCCUPIED if why else None)
    assert why in getattr(answer, "detail", "")
    assert ground.get("Pod", "effect-p") == before


READY = {"conditions": [{"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                         "reason": "Initialized", "message": ""}]}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "pods", "candidate", "why"),
    [
        (READY, [], "there", ""),
        (READY, [pod("effect-p")], "there", "pod default/effect-p runs on the replacement effect-new"),
        ({}, [pod("effect-p")], "there", ""),
        (READY, [], "gone", "effect-old, which it replaces, is leaving"),
        (READY, [], "another", "effect-old, which it replaces, is leaving"),
        ({}, [], "gone", ""),
    ],
    ids=["empty", "full", "not-ready", "begun", "another-claim", "not-ready-begun"],
)
def test_an_undo_looks_at_the_replacement(
    ground: Ground, status: Tree, pods: list[Tree], candidate: str, why: str
) -> None:
    """A ready replacement with pods, or whose command has begun to delete, stays, on every cluster."""
    tree = claim(ground, "effect-new", "c1", node_name="effect-busy")
    tree["status"] |= status
    tree["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    ground.put(tree)
    uid = "u"
    if candidate != "gone":
        ground.put(claim(ground, "effect-old"))
        uid = (ground.get("NodeClaim", "effect-old") or {})["metadata"]["uid"] if candidate == "there" else "u"
    for entry in pods:
        ground.put(entry)
    found = ground.get("NodeClaim", "effect-new")
    assert found is not None
    asked = DeleteNodeClaim(
        id="1",
        command_id="c1",
        name="effect-new",
        uid=found["metadata"]["uid"],
        undo=True,
        candidates=(("effect-old", uid),),
    )
    answer = ground.do(asked)
    assert failure(answer) is (Failure.OCCUPIED if why else None)
    assert getattr(answer, "detail", "") == why
    after = ground.get("NodeClaim", "effect-new")
    assert after is not None
    assert ("deletionTimestamp" in after["metadata"]) is not bool(why)


def test_an_eviction_is_named_on_its_node_first(ground: Ground) -> None:
    """The record that names the pod is on the node before the pod goes; nothing goes without this command's record."""
    ground.put(marked(ground, "effect-busy", "c1"))
    ground.put(shop())
    uid = uid_of(ground, "effect-p")
    named = encode_record(replace(decoded(record("c1")), evicted=("default/effect-p",)))
    given = {"namespace": "default", "name": "effect-p", "uid": uid, "node": "effect-busy"}
    foreign = EvictPod(id="1", command_id="other", record=named, **given)
    assert failure(ground.do(foreign)) is Failure.TAKEN
    assert ground.get("Pod", "effect-p") is not None
    assert notes(ground, "Node", "effect-busy")[COMMAND] == sealed(ground, "c1")
    assert succeeded(ground.do(EvictPod(id="2", command_id="c1", record=named, **given)))
    assert notes(ground, "Node", "effect-busy")[COMMAND] == ground.seal.sealed(named)
    left = ground.get("Pod", "effect-p")
    assert left is None or "deletionTimestamp" in left["metadata"]


def test_a_pod_that_came_to_be_protected_is_not_evicted(ground: Ground) -> None:
    """Do-not-disrupt on the pod, as the server has it now, refuses its eviction."""
    ground.put(shop(**{"karpenter.sh__do-not-disrupt": "true"}))
    asked = EvictPod(id="1", command_id="c1", namespace="default", name="effect-p", uid=uid_of(ground, "effect-p"))
    assert failure(ground.do(asked)) is Failure.OCCUPIED
    assert ground.get("Pod", "effect-p") is not None


def decoded(text: str) -> Record:
    """Return the record in a text."""
    found = read_record(text)
    assert isinstance(found, Record)
    return found


def test_clear_takes_only_this_commands_record(ground: Ground) -> None:
    """The record is cleared on claim and Node; a record of another command stays on either."""
    ground.put(claim(ground, "effect-r", "c1", node_name="effect-rn"))
    ground.put(node("effect-rn", **{"dovetail.dev__command": sealed(ground, "c1")}))
    for ident in ("other", ""):
        assert succeeded(ground.do(ClearRecord(id="1", command_id=ident, node_claim="effect-r")))
        assert notes(ground, "NodeClaim", "effect-r")[COMMAND] == sealed(ground, "c1")
        assert notes(ground, "Node", "effect-rn")[COMMAND] == sealed(ground, "c1")
    for _ in range(2):
        assert succeeded(ground.do(ClearRecord(id="2", command_id="c1", node_claim="effect-r")))
        assert COMMAND not in notes(ground, "NodeClaim", "effect-r")
        assert COMMAND not in notes(ground, "Node", "effect-rn")


def test_clear_leaves_a_node_that_another_command_took(ground: Ground) -> None:
    """The claim's record may be this command's while the Node's record is another's."""
    ground.put(claim(ground, "effect-r", "c1", node_name="effect-rn"))
    ground.put(marked(ground, "effect-rn", "other"))
    assert succeeded(ground.do(ClearRecord(id="1", command_id="c1", node_claim="effect-r")))
    assert COMMAND not in notes(ground, "NodeClaim", "effect-r")
    assert notes(ground, "Node", "effect-rn")[COMMAND] == sealed(ground, "other")


def test_clear_without_an_id_takes_what_nobody_can_read(ground: Ground) -> None:
    """An unreadable record belongs to nobody."""
    tree = claim(ground, "effect-r")
    tree["metadata"]["annotations"] = {COMMAND: "junk"}
    ground.put(tree)
    assert succeeded(ground.do(ClearRecord(id="1", command_id="", node_claim="effect-r")))
    assert COMMAND not in notes(ground, "NodeClaim", "effect-r")


# ---------------------------------------------------------------- holds, conditions, events


def test_hold_and_release(ground: Ground) -> None:
    """A hold adds Dovetail's mark to Karpenter's annotation; a person's own annotation is never changed."""
    ground.put(node("effect-a", a="b"))
    ground.put(node("effect-b", **{"karpenter.sh__do-not-disrupt": "true"}))
    for _ in range(2):
        for name in ("effect-a", "effect-b"):
            assert succeeded(ground.do(HoldNode(id="1", node=name)))
    assert notes(ground, "Node", "effect-a") == {"a": "b", DO_NOT_DISRUPT: "true", HOLD: "true"}
    assert notes(ground, "Node", "effect-b") == {DO_NOT_DISRUPT: "true"}
    for name in ("effect-a", "effect-b"):
        assert succeeded(ground.do(ReleaseNode(id="2", node=name)))
    assert notes(ground, "Node", "effect-a") == {"a": "b"}
    assert notes(ground, "Node", "effect-b") == {DO_NOT_DISRUPT: "true"}


def test_hold_renews_one_that_was_half_taken_off(ground: Ground) -> None:
    """Dovetail's mark without Karpenter's annotation is not a hold."""
    ground.put(node("effect-a", **{"dovetail.dev__hold": "true"}))
    assert succeeded(ground.do(HoldNode(id="1", node="effect-a")))
    assert notes(ground, "Node", "effect-a") == {DO_NOT_DISRUPT: "true", HOLD: "true"}


def test_pool_conditions(ground: Ground) -> None:
    """The condition is set with its message; its time changes only with its status; a repetition writes nothing."""
    said = {"node_pool": POOL, "type": "DovetailPolicyReadable", "reason": "R"}
    assert succeeded(ground.do(SetPoolCondition(id="1", status="False", message="one\x1b", **said)))

    def conditions() -> Tree:
        pool = ground.get("NodePool", POOL)
        assert pool is not None
        return {entry["type"]: entry for entry in pool["status"]["conditions"]}

    first = conditions()["DovetailPolicyReadable"]
    assert (first["status"], first["reason"], first["message"]) == ("False", "R", "one\\u{1b}")
    assert first["lastTransitionTime"]
    before = ground.get("NodePool", POOL)
    assert succeeded(ground.do(SetPoolCondition(id="1", status="False", message="one\x1b", **said)))
    assert ground.get("NodePool", POOL) == before
    assert succeeded(ground.do(SetPoolCondition(id="1", status="False", message="two", **said)))
    assert conditions()["DovetailPolicyReadable"]["lastTransitionTime"] == first["lastTransitionTime"]


def test_publishing_never_fails_a_command(ground: Ground) -> None:
    """An event is for people: publishing it twice is harmless."""
    for _ in range(2):
        asked = PublishEvent(id="1", kind="Node", name="effect-a", reason="DisruptionBlocked", message="m")
        assert succeeded(ground.do(asked))


# ---------------------------------------------------------------- pods and steering

DELETION_COST, NEXT_VICTIM = "controller.kubernetes.io/pod-deletion-cost", "dovetail.dev/next-victim"
CLOSING = {"key": "dovetail.dev/closing", "effect": "PreferNoSchedule"}


def pod(name: str, **annotations: str) -> Tree:
    """Return a bound pod."""
    meta = {"name": name, "namespace": "default", "annotations": annotations}
    spec = {"nodeName": "effect-a", "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def uid_of(ground: Ground, name: str) -> str:
    """Return the uid of a pod."""
    tree = ground.get("Pod", name)
    assert tree is not None
    return str(tree["metadata"]["uid"])


def pod_notes(ground: Ground, name: str) -> dict[str, str]:
    """Return the annotations of a pod."""
    tree = ground.get("Pod", name)
    assert tree is not None
    return dict(tree["metadata"].get("annotations") or {})


def test_evict_the_very_pod(ground: Ground) -> None:
    """The pod with that uid is evicted; another pod with the same name is not found."""
    ground.put(pod("effect-pod"))
    stranger = EvictPod(id="1", command_id="c", namespace="default", name="effect-pod", uid="another")
    assert failure(ground.do(stranger)) is Failure.NOT_FOUND
    uid = uid_of(ground, "effect-pod")
    assert succeeded(ground.do(EvictPod(id="2", command_id="c", namespace="default", name="effect-pod", uid=uid)))
    left = ground.get("Pod", "effect-pod")
    assert left is None or left["metadata"].get("deletionTimestamp") or left["metadata"]["uid"] != uid
    gone = EvictPod(id="3", command_id="c", namespace="default", name="effect-none", uid=uid)
    assert failure(ground.do(gone)) is Failure.NOT_FOUND


def test_mark_and_unmark_a_victim(ground: Ground) -> None:
    """The deletion cost is written and removed together with Dovetail's mark; other annotations stay."""
    ground.put(pod("effect-pod", team="blue"))
    asked = MarkPod(id="1", namespace="default", name="effect-pod", uid=uid_of(ground, "effect-pod"))
    assert succeeded(ground.do(asked))
    marked_now = pod_notes(ground, "effect-pod")
    assert marked_now[DELETION_COST] == marked_now[NEXT_VICTIM] != ""
    assert succeeded(ground.do(asked))
    assert pod_notes(ground, "effect-pod") == marked_now
    assert succeeded(ground.do(UnmarkPod(id="2", namespace="default", name="effect-pod")))
    assert pod_notes(ground, "effect-pod") == {"team": "blue"}


@pytest.mark.parametrize(
    ("before", "after"),
    [({DELETION_COST: "7"}, {DELETION_COST: "7"}), ({DELETION_COST: "7", NEXT_VICTIM: "-100"}, {DELETION_COST: "7"})],
    ids=["a person's own", "ours, changed by a person since"],
)
def test_never_over_somebody_elses_value(ground: Ground, before: dict[str, str], after: dict[str, str]) -> None:
    """A deletion cost that Dovetail did not write is neither replaced nor removed."""
    ground.put(pod("effect-pod", **before))
    uid = uid_of(ground, "effect-pod")
    assert succeeded(ground.do(MarkPod(id="1", namespace="default", name="effect-pod", uid=uid)))
    assert pod_notes(ground, "effect-pod")[DELETION_COST] == "7"
    assert succeeded(ground.do(UnmarkPod(id="2", namespace="default", name="effect-pod")))
    assert pod_notes(ground, "effect-pod") == after


def test_close_and_open_a_node(ground: Ground) -> None:
    """The soft taint is added and removed once, without changing other taints."""
    ground.put(node("effect-a", THEIRS))
    for _ in range(2):
        assert succeeded(ground.do(CloseNode(id="1", node="effect-a")))
        assert taints(ground, "effect-a") == [THEIRS, CLOSING]
    for _ in range(2):
        assert succeeded(ground.do(OpenNode(id="2", node="effect-a")))
        assert taints(ground, "effect-a") == [THEIRS]
