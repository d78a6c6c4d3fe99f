"""Every instruction on real objects: executed once, repeated, and with a conflicting change in between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    Failure,
    HoldNode,
    InstructionFailed,
    InstructionSucceeded,
    PublishEvent,
    ReleaseNode,
    SetPoolCondition,
    TaintNode,
    UntaintNode,
)
from dovetail.live.actuate import Actuator
from dovetail.live.kubernetes.client import ApiClient
from dovetail.live.kubernetes.credentials import connect
from dovetail.model.command import Action, Method, Replacement
from dovetail.model.objects import SelectorRequirement
from tests.support.control_plane import Client, ControlPlane
from tests.support.e2e_world import pool

Tree = dict[str, Any]
SEAL = Seal((b"the key of these tests",))


def _record(ident: str) -> str:
    nodes = (Candidate(node="n", claim="n", uid="u"),)
    return encode_record(
        Record(
            id=ident, action=Action.DELETE_COST, method=Method.SINGLE_NODE, phase="tainting",
            since=datetime(2026, 1, 1, tzinfo=UTC), nodes=nodes,
        )
    )  # fmt: skip


@pytest.fixture
def api(api_server: ControlPlane) -> Iterator[Client]:
    """Yield the shared server; objects of these tests are named actuate-*."""
    with api_server.client() as client:
        yield client
        for kind in ("api/v1/nodes", "apis/karpenter.sh/v1/nodeclaims", "apis/karpenter.sh/v1/nodepools"):
            for item in client.request("GET", f"/{kind}")[1]["items"]:
                if item["metadata"]["name"].startswith("actuate-"):
                    client.request("DELETE", f"/{kind}/{item['metadata']['name']}")


@contextlib.asynccontextmanager
async def _actuator(plane: ControlPlane) -> AsyncIterator[Actuator]:
    async with ApiClient(connect(str(plane.kubeconfig))) as client:
        yield Actuator(client=client, identity="tests", seal=SEAL, uid_of=lambda kind, name: f"uid-of-{name}")


def _do(plane: ControlPlane, *orders: Any) -> list[Any]:
    async def context() -> list[Any]:
        async with _actuator(plane) as actuator:
            return [await actuator.carry_out(order) for order in orders]

    return asyncio.run(context())


def _node(api: Client, name: str, **spec: Any) -> Tree:
    tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
    assert api.create(tree)[0] == 201
    return tree


def _ok(answers: list[Any]) -> bool:
    return all(isinstance(answer, InstructionSucceeded) for answer in answers)


def _taints(api: Client, tree: Tree) -> list[str]:
    found = api.get(tree)
    assert found is not None
    return [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in found["spec"].get("taints", [])]


def test_taint_and_untaint(api_server: ControlPlane, api: Client) -> None:
    """Taint and record are added and removed together, idempotently; other taints and other commands' marks stay."""
    own = {"key": "mine", "value": "x", "effect": "NoSchedule"}
    node = _node(api, "actuate-taint", taints=[own])
    before = [entry for entry in _taints(api, node) if "disruption" not in entry]
    taint = TaintNode(id="1", command_id="c1", node="actuate-taint", record=_record("c1"))
    assert _ok(_do(api_server, taint, taint))
    assert "karpenter.sh/disruption=disrupting:NoSchedule" in _taints(api, node)
    found = api.get(node)
    assert found is not None
    assert found["metadata"]["annotations"]["dovetail.dev/command"] == SEAL.sealed(_record("c1"))
    assert _ok(_do(api_server, UntaintNode(id="2", command_id="other", node="actuate-taint")))
    assert "karpenter.sh/disruption=disrupting:NoSchedule" in _taints(api, node)
    untaint = UntaintNode(id="3", command_id="c1", node="actuate-taint")
    assert _ok(_do(api_server, untaint, untaint))
    assert _taints(api, node) == before
    found = api.get(node)
    assert "dovetail.dev/command" not in (found or {})["metadata"].get("annotations", {})
    (gone,) = _do(api_server, TaintNode(id="4", command_id="c", node="actuate-absent", record="r"))
    assert isinstance(gone, InstructionFailed)
    assert gone.failure is Failure.NOT_FOUND


def test_create_twice_is_once(api_server: ControlPlane, api: Client) -> None:
    """A NodeClaim looks as Karpenter would create it, with hold and record; a foreign claim of that name is refused."""
    tree = pool("actuate-pool", labels={"team": "blue"})
    tree["metadata"]["annotations"] = {"karpenter.sh/nodepool-hash": "123", "karpenter.sh/nodepool-hash-version": "v3"}
    status, made = api.create(tree)
    assert status == 201
    replacement = Replacement(
        node_pool="actuate-pool",
        instance_types=("small", "large"),
        requirements=(SelectorRequirement(key="topology.kubernetes.io/zone", operator="In", values=("zone-a",)),),
        requests={"cpu": 1500, "memory": 1 << 30, "pods": 2},
    )
    order = CreateNodeClaim(id="1", command_id="c1", name="actuate-new", replacement=replacement, record=_record("c1"))
    first, second = _do(api_server, order, order)
    assert isinstance(first, InstructionSucceeded)
    assert first.uid
    assert second == first
    found = api.get({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "actuate-new"}})
    assert found is not None
    meta = found["metadata"]
    assert meta["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    assert meta["labels"] == {
        "karpenter.sh/nodepool": "actuate-pool",
        "karpenter.test.sh/testnodeclass": "default",
        "pool": "actuate-pool",
        "team": "blue",
    }
    assert meta["annotations"]["karpenter.sh/nodepool-hash"] == "123"
    assert meta["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert meta["annotations"]["dovetail.dev/hold"] == "true"
    assert found["spec"]["resources"]["requests"]["cpu"] == "1500m"
    wanted = {entry["key"]: entry["values"] for entry in found["spec"]["requirements"]}
    assert wanted["node.kubernetes.io/instance-type"] == ["small", "large"]
    (refused,) = _do(
        api_server,
        CreateNodeClaim(id="2", command_id="c2", name="actuate-new", replacement=replacement, record=_record("c2")),
    )
    assert refused.failure is Failure.REFUSED
    clear = ClearRecord(id="3", command_id="c1", node_claim="actuate-new")
    assert _ok(_do(api_server, clear, clear))
    found = api.get(found)
    assert "dovetail.dev/command" not in (found or {})["metadata"]["annotations"]


def test_a_record_that_can_not_be_read_can_be_cleared(api_server: ControlPlane, api: Client) -> None:
    """Without an id the instruction clears an unreadable record; a readable one stays."""
    status, made = api.create(pool("actuate-pool"))
    assert status == 201
    from tests.support.e2e_world import claim

    for name, record in (("actuate-junk", "junk"), ("actuate-fine", SEAL.sealed(_record("c9")))):
        tree = claim(name, made)
        tree["metadata"]["annotations"] = {"dovetail.dev/command": record}
        assert api.create(tree)[0] == 201
        assert _ok(_do(api_server, ClearRecord(id="1", command_id="", node_claim=name)))
        found = api.get(tree)
        left = ((found or {})["metadata"].get("annotations") or {}).get("dovetail.dev/command")
        assert left == (None if record == "junk" else record)


def test_delete_only_the_one_that_was_meant(api_server: ControlPlane, api: Client) -> None:
    """An object with another uid is not deleted, and a missing one is reported as gone."""
    from tests.support.e2e_world import claim

    _, made = api.create(pool("actuate-pool"))
    _, stored = api.create(claim("actuate-old", made))
    wrong, right, again = _do(
        api_server,
        DeleteNodeClaim(id="1", command_id="c", name="actuate-old", uid="another"),
        DeleteNodeClaim(id="2", command_id="c", name="actuate-old", uid=stored["metadata"]["uid"]),
        DeleteNodeClaim(id="3", command_id="c", name="actuate-old", uid=stored["metadata"]["uid"]),
    )
    assert wrong.failure is Failure.NOT_FOUND
    assert isinstance(right, InstructionSucceeded)
    assert again.failure is Failure.NOT_FOUND


def test_hold_and_release(api_server: ControlPlane, api: Client) -> None:
    """A hold adds Dovetail's mark to Karpenter's annotation; a person's own annotation is never changed."""
    held = _node(api, "actuate-held")
    theirs = _node(api, "actuate-theirs")
    api.request(
        "PATCH", "/api/v1/nodes/actuate-theirs", {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}},
        kind="application/merge-patch+json",
    )  # fmt: skip
    orders = [HoldNode(id=name, node=name) for name in ("actuate-held", "actuate-theirs", "actuate-absent")]
    assert _ok(_do(api_server, *orders, *orders))
    assert (api.get(held) or {})["metadata"]["annotations"]["dovetail.dev/hold"] == "true"
    assert "dovetail.dev/hold" not in (api.get(theirs) or {})["metadata"]["annotations"]
    assert _ok(_do(api_server, *[ReleaseNode(id=order.id, node=order.node) for order in orders]))
    assert not (api.get(held) or {})["metadata"].get("annotations")
    assert (api.get(theirs) or {})["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"


def test_events_are_counted_not_repeated(api_server: ControlPlane, api: Client) -> None:
    """The same event about the same node is one Event with a count; control characters are removed."""
    order = PublishEvent(id="1", kind="Node", name="actuate-x", reason="DisruptionBlocked", message="pdb: no\x1b[31m")
    assert _ok(_do(api_server, order, order, order))
    found = [
        item
        for item in api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")[1]["items"]
        if item["regarding"]["name"] == "actuate-x"
    ]
    assert len(found) == 1
    assert found[0]["series"]["count"] == 3
    assert found[0]["regarding"]["uid"] == "uid-of-actuate-x"
    assert "\x1b" not in found[0]["note"]


def test_pool_conditions(api_server: ControlPlane, api: Client) -> None:
    """Dovetail's condition is added to the others, and its time changes only with its status."""
    tree = pool("actuate-pool")
    api.create(tree)
    order = SetPoolCondition(
        id="1",
        node_pool="actuate-pool",
        type="DovetailPolicyReadable",
        status="False",
        reason="Unreadable",
        message="m",
    )
    assert _ok(_do(api_server, order))
    first = (api.get(tree) or {})["status"]["conditions"]
    assert _ok(_do(api_server, order))
    assert (api.get(tree) or {})["status"]["conditions"] == first


def test_nothing_is_written_without_leadership(api_server: ControlPlane, api: Client) -> None:
    """An actuator that no longer leads reports that and leaves the object unchanged."""
    node = _node(api, "actuate-quiet")
    version = (api.get(node) or {})["metadata"]["resourceVersion"]

    async def context() -> Any:
        async with _actuator(api_server) as actuator:
            actuator.may_act = lambda: False
            return await actuator.carry_out(HoldNode(id="1", node="actuate-quiet"))

    answer = asyncio.run(context())
    assert answer.failure is Failure.UNREACHABLE
    assert (api.get(node) or {})["metadata"]["resourceVersion"] == version
