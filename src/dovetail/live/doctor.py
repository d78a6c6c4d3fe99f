"""`dovetail doctor`: what is installed, reachable, allowed, managed and missing, each with a remedy.

Reads only, and no pods: version and CRD of the server, access reviews for this identity, NodePools and Nodes, the
Deployments of Karpenter and Dovetail, and Dovetail's Lease. What may not be read is `unknown`, never `ok`. Sits in
live; the command prints what is returned here.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from dovetail.api.catalogue import CatalogueError, load_catalogue
from dovetail.api.clouds.detect import choose_catalogue
from dovetail.api.findings import InputError
from dovetail.api.policy import effective_policy
from dovetail.api.reading.admitted import Shared, admit
from dovetail.api.versions import version_note
from dovetail.live.kubernetes.client import JSON, UNREADABLE, ApiClient, ApiError
from dovetail.live.kubernetes.crd_check import look_at_crd
from dovetail.live.kubernetes.neighbour import USUAL_PLACES, Neighbour
from dovetail.live.kubernetes.resources import BY_KIND, LEASE, RESOURCES, Resource
from dovetail.model import names
from dovetail.model.objects import Node, NodePool
from dovetail.model.policies.managed import is_labelled
from dovetail.model.settings import Settings
from dovetail.report.words import count, listing, safe

NOT_REACHED: Final = "the cluster was not reached"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_STALE_SECONDS: Final = 60.0
_SELECTOR: Final = "app.kubernetes.io/name=dovetail"
_INSTALL: Final = "install the chart (docs/install.md), or `dovetail run --observe`"
_VIEWER: Final = "bind the chart's ClusterRole dovetail-viewer, or add "
CHECKS: Final = (
    "cluster", "crds", "karpenter", "reading", "writing", "controller", "pools", "policies", "holds", "prices",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the examination. `state` is ok, warn, fail or unknown; ok has no remedy."""

    name: str
    state: str
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Controller:
    """What is known of a Dovetail in the cluster: `runs` is None if it may not be looked at."""

    check: Check
    runs: bool | None
    acts: bool = False


def unreached(why: str, remedy: str) -> list[Check]:
    """Return the checks for a cluster that does not answer."""
    rest = [Check(name=name, state="unknown", why=NOT_REACHED) for name in CHECKS[1:]]
    return [Check(name="cluster", state="fail", why=why, remedy=remedy), *rest]


async def examine(client: ApiClient, settings: Settings, now: Callable[[], datetime]) -> list[Check]:
    """Run every check; raise ApiError or UnreachableError only if the server itself does not answer."""
    reached = await _cluster(client)
    pools, nodes = await asyncio.gather(_objects(client, "NodePool"), _objects(client, "Node"))
    controller = await _controller(client, now)
    return [
        reached,
        await _crds(client),
        await _karpenter(client),
        await _reading(client),
        await _writing(client),
        controller.check,
        _pools(pools, settings, controller),
        _policies(pools, settings),
        _holds(nodes, controller),
        _prices(nodes),
    ]


async def _cluster(client: ApiClient) -> Check:
    tree = msgspec.json.decode(await client.request("GET", "/version", tries=2))
    version = str(tree.get("gitVersion") or "unknown")
    note = version_note("Kubernetes", version)
    why = f"{safe(client.connection.name or 'the cluster')} answers, Kubernetes {safe(version)}"
    if note:
        return Check(name="cluster", state="warn", why=safe(note), remedy="see docs/supported-versions.md")
    return Check(name="cluster", state="ok", why=why)


async def _crds(client: ApiClient) -> Check:
    state = await look_at_crd(client)
    if not state.known:
        remedy = "install Karpenter, or: dovetail crds | kubectl apply --server-side -f -"
        return Check(name="crds", state="fail", why=state.note, remedy=remedy)
    if state.missing:
        why = f"Karpenter's own CRDs: {count(len(state.missing), 'field')} of Dovetail can't be written in spec"
        remedy = (
            "use the annotation dovetail.dev/disruption, or: "
            "dovetail crds | kubectl apply --server-side --force-conflicts -f -"
        )
        return Check(name="crds", state="warn", why=why, remedy=remedy)
    if state.note:
        return Check(name="crds", state="unknown", why="the CRDs may not be read", remedy=state.note)
    return Check(name="crds", state="ok", why="NodePools have Dovetail's fields")


async def _karpenter(client: ApiClient) -> Check:
    refused = False
    for where in USUAL_PLACES:
        found = Neighbour(where)
        try:
            await found.look(client)
        except InputError as error:
            refused = refused or "not allowed" in str(error)
            continue
        if found.note:
            remedy = "see docs/supported-versions.md"
            return Check(name="karpenter", state="warn", why=safe(found.note), remedy=remedy)
        version = f"v{found.version}" if found.version else "of an unknown version"
        return Check(name="karpenter", state="ok", why=f"Karpenter {version} ({where})")
    if refused:
        rule = BY_KIND["Deployment"].rule("get", "karpenter")
        return Check(name="karpenter", state="unknown", why="its Deployment may not be read", remedy=f"add {rule}")
    places = " or ".join(USUAL_PLACES)
    remedy = "nothing to do if a provider runs it (EKS Auto Mode); else install Karpenter"
    return Check(name="karpenter", state="unknown", why=f"there is no Deployment {places}", remedy=remedy)


async def _reading(client: ApiClient) -> Check:
    allowed = await asyncio.gather(*(_may(client, resource, "list") for resource in RESOURCES))
    lacking = [resource for resource, may in zip(RESOURCES, allowed, strict=True) if not may]
    essential = [resource for resource in lacking if resource.essential]
    if essential:
        why = f"plan needs to list {listing(resource.plural for resource in essential)}"
        return Check(name="reading", state="fail", why=why, remedy=_VIEWER + essential[0].rule("list"))
    if lacking:
        why = f"{listing(resource.plural for resource in lacking)} can't be listed: {lacking[0].without}"
        return Check(name="reading", state="warn", why=why, remedy=_VIEWER + lacking[0].rule("list"))
    return Check(name="reading", state="ok", why="you may list everything that plan reads")


async def _writing(client: ApiClient) -> Check:
    kinds = [BY_KIND[kind] for kind in ("NodePool", "NodeClaim", "Node")]
    allowed = await asyncio.gather(*(_may(client, resource, "patch") for resource in kinds))
    if all(allowed):
        return Check(name="writing", state="ok", why="you may hold, release, pause and resume pools")
    lacking = [resource.plural for resource, may in zip(kinds, allowed, strict=True) if not may]
    why = f"you may not patch {listing(lacking)}: plan and explain work, hold and pause don't"
    return Check(name="writing", state="ok", why=why)


async def _controller(client: ApiClient, now: Callable[[], datetime]) -> _Controller:
    try:
        deployments = await _listed(client, BY_KIND["Deployment"], {"labelSelector": _SELECTOR})
        leases = await _listed(client, LEASE, {"fieldSelector": "metadata.name=dovetail"})
    except ApiError as error:
        if error.status != 403:
            raise
        remedy = f"add {BY_KIND['Deployment'].rule('list')} and {LEASE.rule('list')}"
        check = Check(name="controller", state="unknown", why="its Deployment may not be read", remedy=remedy)
        return _Controller(check=check, runs=None)
    if deployments:
        return _of_deployment(deployments[0], leases, now())
    led = next((lease for lease in leases if (lease.get("spec") or {}).get("holderIdentity")), None)
    if led is not None and _age(led, now()) < _STALE_SECONDS:
        why = f"{safe(str(led['spec']['holderIdentity']))} leads, outside the chart"
        return _Controller(check=Check(name="controller", state="ok", why=why), runs=True, acts=True)
    check = Check(name="controller", state="warn", why="no controller is installed: nothing acts", remedy=_INSTALL)
    return _Controller(check=check, runs=False)


def _of_deployment(tree: dict[str, Any], leases: Sequence[dict[str, Any]], now: datetime) -> _Controller:
    space, name = tree["metadata"]["namespace"], tree["metadata"]["name"]
    container = tree["spec"]["template"]["spec"]["containers"][0]
    acts = "--observe" not in (container.get("args") or ())
    ready, wanted = (tree.get("status") or {}).get("readyReplicas") or 0, tree["spec"].get("replicas", 1)
    where = safe(f"{space}/{name}")
    if not ready:
        remedy = f"kubectl logs --namespace {safe(space)} deployment/{safe(name)}"
        check = Check(
            name="controller", state="fail", why=f"{where}: none of {count(wanted, 'replica')} is ready", remedy=remedy
        )
        return _Controller(check=check, runs=False, acts=acts)
    if not acts:
        check = Check(name="controller", state="ok", why=f"{where} observes ({ready} of {wanted} ready)")
        return _Controller(check=check, runs=True)
    lease = next((each for each in leases if each["metadata"]["namespace"] == space), None)
    age = _age(lease, now) if lease is not None else float("inf")
    if age >= _STALE_SECONDS:
        remedy = f"kubectl logs --namespace {safe(space)} deployment/{safe(name)} | grep -i lease"
        check = Check(
            name="controller", state="fail", why=f"{where} runs, but no replica renews its Lease", remedy=remedy
        )
        return _Controller(check=check, runs=False, acts=True)
    check = Check(name="controller", state="ok", why=f"{where} acts ({ready} of {wanted} ready)")
    return _Controller(check=check, runs=True, acts=True)


def _pools(pools: Sequence[NodePool] | None, settings: Settings, controller: _Controller) -> Check:
    if pools is None:
        return Check(name="pools", state="unknown", why="NodePools may not be read")
    if not pools:
        return Check(
            name="pools", state="warn", why="there is no NodePool", remedy="create one: Dovetail acts on pools"
        )
    given = [
        pool.metadata.name
        for pool in pools
        if is_labelled(pool.metadata.labels) or pool.metadata.name in settings.pools
    ]
    halted = [pool.metadata.name for pool in pools if _stands(pool)]
    if halted:
        why = f"{count(len(given), 'pool')} of {len(pools)} managed; paused or halted: {listing(halted)}"
        return Check(name="pools", state="warn", why=why, remedy=f"dovetail resume {safe(halted[0])}")
    if not given and controller.acts:
        remedy = f"kubectl label nodepool {safe(pools[0].metadata.name)} dovetail.dev/manage=true"
        return Check(
            name="pools", state="warn", why=f"none of {count(len(pools), 'pool')} is managed by label", remedy=remedy
        )
    named = f": {listing(given)}" if given else ""
    return Check(name="pools", state="ok", why=f"{len(given)} of {count(len(pools), 'pool')} managed{named}")


def _stands(pool: NodePool) -> bool:
    return any(mark in pool.metadata.annotations for mark in (names.PAUSED, names.HALTED))


def _policies(pools: Sequence[NodePool] | None, settings: Settings) -> Check:
    if pools is None:
        return Check(name="policies", state="unknown", why="NodePools may not be read")
    broken = [
        (pool.metadata.name, problem) for pool in pools for problem in effective_policy(pool, settings).problems[:1]
    ]
    if broken:
        name, problem = broken[0]
        more = f" (and {count(len(broken) - 1, 'more pool')})" if len(broken) > 1 else ""
        remedy = f"kubectl get nodepool {safe(name)} -o yaml | dovetail validate -"
        return Check(name="policies", state="fail", why=f"{safe(name)}: {safe(problem)}{more}", remedy=remedy)
    return Check(name="policies", state="ok", why=f"{count(len(pools), 'policy', 'policies')} can be read")


def _holds(nodes: Sequence[Node] | None, controller: _Controller) -> Check:
    if nodes is None:
        return Check(name="holds", state="unknown", why="Nodes may not be read")
    held = sum(names.HOLD in node.metadata.annotations for node in nodes)
    if held and controller.runs is False:
        why = f"{count(held, 'node')} held, and no controller runs: nobody consolidates them"
        return Check(name="holds", state="warn", why=why, remedy="dovetail release --all, or start the controller")
    return Check(name="holds", state="ok", why=f"{count(held, 'node')} of {len(nodes)} held for Dovetail")


def _prices(nodes: Sequence[Node] | None) -> Check:
    if nodes is None:
        return Check(name="prices", state="unknown", why="Nodes may not be read")
    if not nodes:
        return Check(name="prices", state="unknown", why="there is no node yet")
    try:
        where, note = choose_catalogue(nodes)
        catalogue = load_catalogue(where)
    except CatalogueError as error:
        remedy = "dovetail catalog export --from-nodes -f FILE writes a catalogue to fill in; pass it with --catalog"
        return Check(name="prices", state="warn", why=str(error).partition(";")[0], remedy=remedy)
    known = {kind.name for kind in catalogue.instance_types}
    used = Counter(node.metadata.labels.get(names.INSTANCE_TYPE, "") for node in nodes if _is_launched(node))
    lacking = sorted(kind for kind in used if kind and kind not in known)
    if lacking:
        why = f"{where} has no price for {listing(lacking)}: their cost is unknown, not 0"
        return Check(name="prices", state="warn", why=why, remedy="dovetail catalog export, add them, pass --catalog")
    if note:
        return Check(name="prices", state="warn", why=note, remedy="give --catalog yourself")
    return Check(name="prices", state="ok", why=f"built-in {where} of {catalogue.as_of}")


def _is_launched(node: Node) -> bool:
    return names.NODEPOOL in node.metadata.labels


async def _may(client: ApiClient, resource: Resource, verb: str) -> bool:
    asked = {"group": resource.group, "resource": resource.plural, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    answer = msgspec.json.decode(
        await client.request("POST", _REVIEWS, body=msgspec.json.encode(review), content_type=JSON)
    )
    return bool((answer.get("status") or {}).get("allowed"))


async def _objects(client: ApiClient, kind: str) -> Any:
    """Return the readable objects of a kind, or None if they may not be listed."""
    shared = Shared()
    found = []
    try:
        answer = await client.list_all(BY_KIND[kind].path())
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise
    for raw in answer.items:
        try:
            found.append(admit(raw, kind, shared)[0])
        except UNREADABLE:
            continue
    return found


async def _listed(client: ApiClient, resource: Resource, params: dict[str, str]) -> list[dict[str, Any]]:
    answer = await client.list_all(resource.path(), params)
    return [msgspec.json.decode(raw) for raw in answer.items]


def _age(lease: dict[str, Any], now: datetime) -> float:
    """Return the seconds since a Lease was renewed, by this machine's clock."""
    renewed = (lease.get("spec") or {}).get("renewTime")
    try:
        moment = datetime.fromisoformat(str(renewed))
    except ValueError:
        return float("inf")
    return (now - moment.astimezone(UTC)).total_seconds()


def worst(checks: Iterable[Check]) -> str:
    """Return the worst state of all."""
    order = ("fail", "warn", "unknown", "ok")
    return min((check.state for check in checks), key=order.index, default="ok")
