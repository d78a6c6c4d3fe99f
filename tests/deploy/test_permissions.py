"""Least privilege, checked: with the chart's rules everything works, without any single one of them something breaks.

The product's own parts (watches, election, actions, release, capture) run under the chart's service account on a real
API server; what they complain of has to name the very permission that was taken away.
"""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.lifecycle.commands.records import Candidate, Record, encode_record
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.messages import (
    ClearRecord,
    CreateNodeClaim,
    DeleteNodeClaim,
    Event,
    Failure,
    HoldNode,
    InstructionFailed,
    NoteDisruption,
    ObjectObserved,
    PublishEvent,
    ReleaseNode,
    SetDisruptionReason,
    SetPoolCondition,
    TaintNode,
    UntaintNode,
)
from dovetail.lifecycle.published import PublishedState, encode_state
from dovetail.live.actuate import Actuator
from dovetail.live.capture import CaptureError, capture
from dovetail.live.holds import release
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.crd_check import look_at_crd
from dovetail.live.kubernetes.credentials import connect
from dovetail.live.kubernetes.lease import LeaderElection
from dovetail.live.kubernetes.resources import RESOURCES
from dovetail.live.kubernetes.watch import Informer
from dovetail.live.publish import KEY as STATE_KEY
from dovetail.live.publish import StatePublisher, read_state
from dovetail.live.record_key import SECRET_NAME, KeyRefusedError, load_seal
from dovetail.live.step_down import stop_controllers
from dovetail.model.command import Action, Method, Replacement
from dovetail.model.settings import DOVETAIL
from tests.deploy.account import install, kubeconfig_for, may, token_of
from tests.paths import ROOT
from tests.support.chart import NAMESPACE, Tree, atoms, without
from tests.support.control_plane import Client, ControlPlane, eventually
from tests.support.crd_rules import pool

MANIFESTS = list(yaml.safe_load_all((ROOT / "deploy" / "manifests" / "dovetail-acting.yaml").read_text()))
OBSERVING = list(yaml.safe_load_all((ROOT / "deploy" / "manifests" / "dovetail.yaml").read_text()))
ROLES = {
    f"{tree['kind']}/{tree['metadata']['name']}": tree
    for tree in MANIFESTS
    if tree["kind"] in ("ClusterRole", "Role") and not tree["metadata"]["name"].endswith("-viewer")
}
VIEWER = next(tree for tree in MANIFESTS if tree["metadata"]["name"] == "dovetail-viewer")
ATOMS = [(name, atom) for name, role in ROLES.items() for atom in atoms(role)]
IDS = [f"{name.partition('/')[0]}-{atom[2]}-{atom[3]}".replace("/", ".") for name, atom in ATOMS]
NAME = "permissions"
STATE_AT = datetime.now(UTC)
WAIT_SECONDS = 180.0
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/dovetail"


@dataclass
class Installed:
    """The chart on a server, its account, and one object of each kind."""

    plane: ControlPlane
    admin: Client
    account: Client
    kubeconfig: Path
    objects: dict[str, Tree] = field(default_factory=dict)


@pytest.fixture(scope="module")
def installed(api_server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Install the plain manifests and get a token for their account."""
    with _installed(api_server, MANIFESTS, NAMESPACE, tmp_path_factory.mktemp("account")) as made:
        yield made


@contextmanager
def _installed(server: ControlPlane, trees: list[Tree], space: str, folder: Path) -> Iterator[Installed]:
    """Install manifests into a namespace, get a token for their account, and create one object of each kind."""
    with server.client() as admin:
        install(admin, trees, space)
        token = token_of(admin, "dovetail", space)
        config = kubeconfig_for(server, token, folder / "kubeconfig", space)
        with Client(int(server.base_url.rsplit(":", 1)[1]), token, server.ca_path) as account:
            made = Installed(server, admin, account, config)
            admin.apply(AUTOSCALERS)
            eventually(lambda: may_list_autoscalers(admin))
            for tree in _one_of_each():
                admin.apply(tree)
                made.objects[tree["kind"]] = tree
            yield made


AUTOSCALERS: Tree = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "verticalpodautoscalers.autoscaling.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "autoscaling.k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "VerticalPodAutoscaler",
            "listKind": "VerticalPodAutoscalerList",
            "plural": "verticalpodautoscalers",
            "singular": "verticalpodautoscaler",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""The CRD of VerticalPodAutoscalers, without their schema: not every cluster has it."""


def may_list_autoscalers(admin: Client) -> bool:
    """Return whether the server serves the kind by now."""
    return admin.request("GET", "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers")[0] == 200


def _one_of_each() -> list[Tree]:
    """Return one object of every watched kind."""
    selector = {"matchLabels": {"app": NAME}}
    container = {"name": "main", "image": "none"}
    template = {"metadata": {"labels": {"app": NAME}}, "spec": {"containers": [container]}}
    claim_template = pool()["spec"]["template"]["spec"]
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "none", "volumeHandle": "x"},
    }
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("karpenter.sh/v1", "NodePool", {"spec": pool()["spec"]}),
        ("karpenter.sh/v1", "NodeClaim", {"spec": {"requirements": [], **claim_template}}),
        ("v1", "Node", {}),
        ("v1", "Pod", {"spec": {"containers": [container]}}),
        ("policy/v1", "PodDisruptionBudget", {"spec": {"minAvailable": 1, "selector": selector}}),
        ("apps/v1", "DaemonSet", {"spec": {"selector": selector, "template": template}}),
        ("apps/v1", "ReplicaSet", {"spec": {"replicas": 0, "selector": selector, "template": template}}),
        ("apps/v1", "StatefulSet", {"spec": {"serviceName": NAME, "selector": selector, "template": template}}),
        ("v1", "PersistentVolumeClaim", {"spec": wanted}),
        ("v1", "PersistentVolume", {"spec": volume}),
        ("storage.k8s.io/v1", "StorageClass", {"provisioner": "none"}),
        ("storage.k8s.io/v1", "CSINode", {"spec": {"drivers": []}}),
        ("scheduling.k8s.io/v1", "PriorityClass", {"value": 5}),
        ("v1", "Namespace", {}),
        (
            "autoscaling.k8s.io/v1",
            "VerticalPodAutoscaler",
            {"spec": {"targetRef": {"kind": "Deployment", "name": "x"}}},
        ),
    ]
    assert {row[1] for row in rows} == {resource.kind for resource in RESOURCES}
    namespaced = {resource.kind for resource in RESOURCES if resource.namespaced}
    return [
        {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": NAME, **({"namespace": "default"} if kind in namespaced else {})},
            **rest,
        }
        for version, kind, rest in rows
    ]


# ---------------------------------------------------------------- what Dovetail does, and what it reports


async def _watches(client: ApiClient, made: Installed) -> list[str]:
    """Watch every kind: a change made afterwards has to arrive, or a note has to come."""
    notes: dict[str, str] = {}
    seen: dict[str, str] = {}

    def informer(kind_of: Any) -> Informer:
        async def deliver(event: Event) -> None:
            if isinstance(event, ObjectObserved) and event.object.metadata.name == NAME:
                seen[kind_of.kind] = event.object.metadata.labels.get("poked", "")

        return Informer(
            client=client, resource=kind_of, deliver=deliver, note=lambda kind, text: notes.setdefault(kind, text)
        )

    informers = [informer(resource) for resource in RESOURCES]
    tasks = [asyncio.create_task(each.run()) for each in informers]
    stamp = datetime.now(UTC).strftime("%H%M%S%f")
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(each.watches or each.resource.kind in notes for each in informers):
                await asyncio.sleep(0.01)
            for tree in made.objects.values():
                label = {"metadata": {"labels": {"poked": stamp}}}
                kind = "application/merge-patch+json"
                await asyncio.to_thread(made.admin.request, "PATCH", made.admin.path_of(tree), label, kind=kind)
            while not all(seen.get(kind) == stamp or kind in notes for kind in made.objects):
                await asyncio.sleep(0.01)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return list(notes.values())


async def _election(client: ApiClient, made: Installed) -> list[str]:
    """Acquire the Lease, create it again after it was deleted, and release it."""
    notes: list[str] = []
    led = asyncio.Event()

    async def gained() -> None:
        led.set()

    async def lost() -> None:
        led.clear()

    election = LeaderElection(
        client=client,
        namespace=NAMESPACE,
        name="dovetail",
        identity="tried",
        gained=gained,
        lost=lost,
        note=notes.append,
        retry_period=0.05,
    )
    task = asyncio.create_task(election.run())
    async with asyncio.timeout(WAIT_SECONDS):
        while not led.is_set() and not notes:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(made.admin.request, "DELETE", LEASE_PATH)
        while not notes and (await asyncio.to_thread(made.admin.request, "GET", LEASE_PATH))[0] != 200:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return notes


async def _actions(client: ApiClient, made: Installed) -> list[str]:
    """Execute every instruction that changes the cluster: the steps of a replacement, and its rollback."""
    candidate = Candidate(node=NAME, claim=NAME, uid="")
    record = encode_record(
        Record(
            id="c1",
            action=Action.REPLACE_COST,
            method=Method.SINGLE_NODE,
            phase="tainting",
            since=datetime.now(UTC),
            nodes=(candidate,),
        )
    )
    new = f"{NAME}-new"
    requests = Replacement(node_pool=NAME, instance_types=("m5.large",), requests={"cpu": 100})
    told = {"kind": "Node", "name": NAME, "reason": "Tried", "message": f"the same thing twice at {datetime.now(UTC)}"}
    orders: list[Any] = [
        HoldNode(id="1", node=NAME),
        TaintNode(id="2", command_id="c1", node=NAME, record=record),
        PublishEvent(id="3", **told),
        PublishEvent(id="4", **told),
        CreateNodeClaim(id="5", command_id="c1", name=new, replacement=requests, record=record),
        ClearRecord(id="6", command_id="c1", node_claim=new),
        UntaintNode(id="8", command_id="c1", node=NAME),
        ReleaseNode(id="9", node=NAME),
        SetPoolCondition(
            id="10",
            node_pool=NAME,
            type="DovetailPolicyReadable",
            status="False",
            reason="Tried",
            message=datetime.now(UTC).isoformat(),
        ),
        NoteDisruption(
            id="11",
            command_id=f"noted at {datetime.now(UTC)}",
            node_pool=NAME,
            nodes=1,
            reason="Empty",
            at=datetime.now(UTC),
            keep=1,
        ),
    ]
    actuator = Actuator(client=client, identity="tried", seal=Seal((b"of these tests alone",)))
    answers = [await actuator.carry_out(order) for order in orders]
    tree = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": new}}
    there = await asyncio.to_thread(made.admin.get, tree)
    if there is not None:
        uid = there["metadata"]["uid"]
        # Karpenter's finalizer keeps a claim that is being deleted; the reason is only written then.
        kept = {"metadata": {"finalizers": ["example.com/kept"]}}
        path, kind = made.admin.path_of(tree), "application/merge-patch+json"
        await asyncio.to_thread(made.admin.request, "PATCH", path, kept, kind=kind)
        answers.append(await actuator.carry_out(DeleteNodeClaim(id="7", command_id="c1", name=new, uid=uid)))
        why = SetDisruptionReason(id="12", command_id="c1", name=new, uid=uid, reason="Drifted")
        answers.append(await actuator.carry_out(why))
        await asyncio.to_thread(made.admin.delete, tree)
        freed = {"metadata": {"finalizers": None}}
        await asyncio.to_thread(made.admin.request, "PATCH", path, freed, kind=kind)
    failed = [answer for answer in answers if isinstance(answer, InstructionFailed)]
    return [answer.detail for answer in failed if answer.failure is Failure.FORBIDDEN]


async def _key(client: ApiClient, made: Installed) -> list[str]:
    """Create the key of the records with the first replica and read it with the next."""
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET_NAME}"
    empty = {"data": None}
    await asyncio.to_thread(made.admin.request, "PATCH", path, empty, kind="application/merge-patch+json")
    try:
        assert await load_seal(client, NAMESPACE) == await load_seal(client, NAMESPACE)
    except KeyRefusedError as error:
        return [str(error)]
    return []


async def _releasing(client: ApiClient, made: Installed) -> list[str]:
    """Run the pre-delete hook on a node and a claim with Dovetail's marks and a pool with a condition."""
    for kind in ("Node", "NodeClaim"):
        marks = {"metadata": {"annotations": {"dovetail.dev/hold": "true", "karpenter.sh/do-not-disrupt": "true"}}}
        path = made.admin.path_of(made.objects[kind])
        await asyncio.to_thread(made.admin.request, "PATCH", path, marks, kind="application/merge-patch+json")

    notes = {"metadata": {"annotations": {"dovetail.dev/recent-disruptions": "[]"}}}
    path = made.admin.path_of(made.objects["NodePool"])
    await asyncio.to_thread(made.admin.request, "PATCH", path, notes, kind="application/merge-patch+json")

    async def at_once(_: float) -> None:
        return

    try:
        await stop_controllers(client, NAMESPACE, "dovetail", pause=at_once)
        tally = await release(client, None)
    except ApiError as error:
        return [str(error)] if error.status == 403 else []
    return tally.failed


async def _publishing(client: ApiClient) -> list[str]:
    """Write the leader's state."""
    warned: list[str] = []
    publisher = StatePublisher(client=client, namespace=NAMESPACE, fence=lambda: True, warn=warned.append)
    await publisher.write(encode_state(PublishedState(by="tried", at=datetime.now(UTC), settings=DOVETAIL)))
    return warned


async def _everything(made: Installed) -> list[str]:
    async with ApiClient(connect(str(made.kubeconfig))) as client:
        crd = await look_at_crd(client)
        complaints = [crd.note] if crd.note else []
        complaints += await _watches(client, made)
        complaints += await _election(client, made)
        complaints += await _key(client, made)
        complaints += await _publishing(client)
        complaints += await _actions(client, made)
        complaints += await _releasing(client, made)
    made.admin.request("DELETE", LEASE_PATH)
    made.admin.apply(next(tree for tree in MANIFESTS if tree["kind"] == "Lease"))
    return complaints


def _names(complaint: str, resource: str, verb: str) -> bool:
    """Return whether a message names the resource and the verb: in the server's words, or as the rule to add."""
    plural, _, part = resource.partition("/")
    server = re.search(rf'cannot {verb} resource "{plural}{"/" + part if part else ""}"', complaint)
    rule = re.search(rf'resources: \["{re.escape(resource)}"\], verbs: \[[^\]]*\b{verb}\b', complaint)
    return bool(server or rule)


# ---------------------------------------------------------------- the tests


def test_with_all_rules_nothing_is_refused(installed: Installed) -> None:
    """All watches, the Lease, all actions and the release work with the chart's account alone."""
    assert asyncio.run(_everything(installed)) == []


def test_nothing_else_is_allowed(installed: Installed) -> None:
    """The account can't change pods, secrets, other Leases or roles, and can't delete pools."""
    account = installed.account
    for group, resource, verb in (
        ("", "pods", "delete"),
        ("", "pods/eviction", "create"),
        ("", "secrets", "get"),
        ("", "secrets", "create"),
        ("", "secrets", "list"),
        ("", "configmaps", "get"),
        ("", "configmaps", "patch"),
        ("", "nodes", "delete"),
        ("karpenter.sh", "nodepools", "delete"),
        ("karpenter.sh", "nodeclaims/status", "update"),
        ("coordination.k8s.io", "leases", "create"),
        ("rbac.authorization.k8s.io", "clusterroles", "patch"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "patch"),
    ):
        assert not may(account, group, resource, verb, namespace="kube-system"), f"{verb} {resource}"
        assert not may(account, group, resource, verb), f"{verb} {resource}"


def _rights(trees: list[Tree]) -> set[tuple[str, str, str]]:
    """Return all permissions of the chart's account, from all its roles."""
    roles = [tree for tree in trees if tree["kind"] in ("ClusterRole", "Role")]
    return {atom[1:] for role in roles if not role["metadata"]["name"].endswith("-viewer") for atom in atoms(role)}


def test_observing_has_only_reading_rights() -> None:
    """By default no role has a verb that changes anything, or a permission that acting would lack."""
    assert {verb for _, _, verb in _rights(OBSERVING)} == {"get", "list", "watch"}
    assert _rights(OBSERVING) < _rights(MANIFESTS)
    assert not [tree for tree in OBSERVING if tree["kind"] in ("Role", "RoleBinding")]


def test_an_observing_account_sees_everything_and_can_change_nothing(api_server: ControlPlane, tmp_path: Path) -> None:
    """On a real server, all watches and the CRD check work without an error, and every write is refused."""
    space = f"{NAMESPACE}-observing"
    with _installed(api_server, [_moved(tree, space) for tree in OBSERVING], space, tmp_path) as made:

        async def look() -> list[str]:
            async with ApiClient(connect(str(made.kubeconfig))) as client:
                note = (await look_at_crd(client)).note
                return [*([note] if note else []), *await _watches(client, made)]

        assert asyncio.run(look()) == []
        for group, resource, verb in sorted(_rights(MANIFESTS) - _rights(OBSERVING)):
            if verb not in ("get", "list", "watch"):
                for where in (space, "default"):
                    assert not may(made.account, group, resource, verb, namespace=where), f"{verb} {resource}"


def _moved(tree: Tree, space: str) -> Tree:
    """Return an object moved to another namespace, with its cluster-wide parts and subjects renamed."""
    text = yaml.safe_dump(tree).replace(f"namespace: {NAMESPACE}\n", f"namespace: {space}\n")
    moved: Tree = yaml.safe_load(text)
    if moved["kind"] in ("ClusterRole", "ClusterRoleBinding"):
        moved["metadata"]["name"] += "-observing"
    if moved["kind"] == "ClusterRoleBinding":
        moved["roleRef"]["name"] += "-observing"
    if moved["kind"] == "Namespace":
        moved["metadata"]["name"] = space
    return moved


@pytest.mark.parametrize(("role_name", "atom"), ATOMS, ids=IDS)
def test_without_any_single_permission_something_breaks(
    installed: Installed, role_name: str, atom: tuple[int, str, str, str]
) -> None:
    """If one verb on one resource is removed, Dovetail reports exactly that one."""
    role = ROLES[role_name]
    number, group, resource, verb = atom
    scope = role["metadata"].get("namespace", "")
    name = (role["rules"][number].get("resourceNames") or [""])[0]
    installed.admin.apply(without(role, atom))
    try:
        eventually(lambda: not may(installed.account, group, resource, verb, namespace=scope, name=name))
        complaints = asyncio.run(_everything(installed))
    finally:
        installed.admin.apply(role)
        eventually(lambda: may(installed.account, group, resource, verb, namespace=scope, name=name))
    assert complaints, f"{verb} on {resource} is superfluous"
    assert [text for text in complaints if not _names(text, resource, verb)] == []


@pytest.mark.parametrize("kind", [resource.kind for resource in RESOURCES])
def test_optional_kinds_degrade_and_essential_ones_wait(api_server: ControlPlane, tmp_path: Path, kind: str) -> None:
    """Without permissions, an optional kind reports what is lost; an essential one names the missing rule."""
    notes: list[str] = []
    resource = next(entry for entry in RESOURCES if entry.kind == kind)

    async def deliver(event: Event) -> None:
        raise AssertionError(event)

    async def look() -> bool:
        async with ApiClient(connect(str(api_server.write_kubeconfig(tmp_path / "config", user="nobody")))) as client:
            informer = Informer(
                client=client, resource=resource, deliver=deliver, note=lambda kind, text: notes.append(text)
            )
            task = asyncio.create_task(informer.run())
            async with asyncio.timeout(WAIT_SECONDS):
                while not notes:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return informer.synced.is_set()

    assert asyncio.run(look()) is not resource.essential
    assert _names(notes[0], resource.plural, "watch")
    assert (resource.without in notes[0]) is bool(resource.without) or resource.essential


@pytest.fixture(scope="module")
def viewer(api_server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Bind the role for viewers to an account."""
    with api_server.client() as admin:
        install(admin, MANIFESTS, NAMESPACE)
        meta = {"name": "looker", "namespace": NAMESPACE}
        admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
        admin.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "looker"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dovetail-viewer"},
                "subjects": [{"kind": "ServiceAccount", **meta}],
            }
        )
        token = token_of(admin, "looker", NAMESPACE)
        config = kubeconfig_for(api_server, token, tmp_path_factory.mktemp("viewer") / "kubeconfig")
        port = int(api_server.base_url.rsplit(":", 1)[1])
        with Client(port, token, api_server.ca_path) as account:
            _leads(admin)
            yield Installed(api_server, admin, account, config)


async def _captured(made: Installed) -> list[str]:
    async with ApiClient(connect(str(made.kubeconfig))) as client:
        try:
            warnings = (await capture(client)).warnings
        except CaptureError as error:
            return [str(error)]
        reading = await read_state(client, NAMESPACE, STATE_AT + timedelta(hours=1))
        return [*warnings, *([reading.problem] if reading.problem else [])]


def _leads(admin: Client) -> None:
    """Publish a state, and let its writer lead."""
    state = {"data": {STATE_KEY: encode_state(PublishedState(by="tried", at=STATE_AT, settings=DOVETAIL)).decode()}}
    held = {"spec": {"holderIdentity": "tried", "renewTime": f"{STATE_AT + timedelta(hours=1):%Y-%m-%dT%H:%M:%S.%fZ}"}}
    for group, name, patch in (
        ("/api/v1", "configmaps/dovetail-state", state),
        ("/apis/coordination.k8s.io/v1", "leases/dovetail", held),
    ):
        path = f"{group}/namespaces/{NAMESPACE}/{name}"
        admin.request("PATCH", path, patch, kind="application/merge-patch+json")


def test_the_role_for_people_suffices_for_a_plan(viewer: Installed) -> None:
    """With the viewer's role, everything that plan, explain, budgets and snapshot need is read without an error."""
    assert asyncio.run(_captured(viewer)) == []


@pytest.mark.parametrize("atom", list(atoms(VIEWER)), ids=lambda atom: f"{atom[2]}-{atom[3]}")
def test_the_role_for_people_has_nothing_to_spare(viewer: Installed, atom: tuple[int, str, str, str]) -> None:
    """Without one of the viewer's permissions, an essential kind stops the capture and others are warnings by name."""
    number, group, resource, verb = atom
    name = (VIEWER["rules"][number].get("resourceNames") or [""])[0]
    viewer.admin.apply(without(VIEWER, atom))
    try:
        eventually(lambda: not may(viewer.account, group, resource, verb, name=name))
        complaints = asyncio.run(_captured(viewer))
    finally:
        viewer.admin.apply(VIEWER)
        eventually(lambda: may(viewer.account, group, resource, verb, name=name))
    assert len(complaints) == 1
    assert _names(complaints[0], resource, verb)
