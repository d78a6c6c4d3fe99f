"""`dovetail hold` and `dovetail release`: protect a pool's nodes from Karpenter's own disruption, or release them.

Needs no running controller, and removes what an uninstalled controller has left: holds, and with `--all` also its
taints and records. What a person put on a node is never touched: `dovetail.dev/hold` marks Dovetail's own
(docs/rules.md#karpenter).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from dovetail.api.rolling import MARKS
from dovetail.lifecycle.conditions import POLICY_READABLE
from dovetail.lifecycle.effects.claim_effects import unasked_patch
from dovetail.lifecycle.effects.node_effects import hold_patch, open_patch, release_patch
from dovetail.lifecycle.effects.pod_effects import unmark_patch
from dovetail.live.kubernetes.client import MERGE_PATCH, ApiClient, ApiError
from dovetail.live.kubernetes.resources import BY_KIND, Resource
from dovetail.model import names
from dovetail.model.policies.managed import is_labelled

Tree = dict[str, Any]
# A NodeClaim's annotations are copied to its Node when that registers: nodes are processed after claims.
_CONDITIONS: Final = (POLICY_READABLE, names.ROLLOUT_COMPLETE)
_CLAIMS_FIRST: Final = (BY_KIND["NodeClaim"], BY_KIND["Node"])


@dataclass(slots=True)
class HoldTally:
    """What was changed, what was left alone, what could not be done."""

    changed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def plus(self, later: "HoldTally") -> "HoldTally":
        """Return the sum of two runs; the later one determines what was left and what failed."""
        return HoldTally([*self.changed, *later.changed], later.kept, later.failed)


class UnknownPoolError(Exception):
    """A pool was named that does not exist; the message lists those that do."""


async def hold(client: ApiClient, pools: Sequence[str]) -> HoldTally:
    """Hold every node of the pools."""
    tally = HoldTally()
    await check_pools(client, pools)
    for resource in _CLAIMS_FIRST:
        for item in await listed_items(client, resource):
            if _pool(item) in pools and not _is_registered(item):
                await apply_change(client, resource, item, hold_patch, tally)
    return tally


async def release(client: ApiClient, pools: Sequence[str] | None) -> HoldTally:
    """Release the pools' nodes to Karpenter; with None, remove everything of Dovetail from all objects."""
    tally = HoldTally()
    if pools is not None:
        await check_pools(client, pools)
    for resource in _CLAIMS_FIRST:
        for item in await listed_items(client, resource):
            if pools is not None and _pool(item) not in pools:
                continue
            change = _release_and_open if pools is not None else leave_nothing
            await apply_change(client, resource, item, change, tally)
    await _take_marks_back(client, pools, tally)
    for item in await listed_items(client, BY_KIND["NodePool"]):
        if pools is None or item["metadata"]["name"] in pools:
            notes = without_notes if pools is None else without_roll
            if notes(item) is not None:
                await apply_change(client, BY_KIND["NodePool"], item, notes, tally)
            if without_condition(item) is not None:
                await apply_change(client, BY_KIND["NodePool"], item, without_condition, tally, subresource="status")
    return tally


async def _take_marks_back(client: ApiClient, pools: Sequence[str] | None, tally: HoldTally) -> None:
    """Remove the marks of steering from pods: those on the pools' nodes, or all (docs/rules.md#steering)."""
    ours: dict[str, None] | None = None
    if pools is not None:
        nodes = await listed_items(client, BY_KIND["Node"])
        ours = {str(item["metadata"]["name"]): None for item in nodes if _pool(item) in pools}
    for item in await listed_items(client, BY_KIND["Pod"]):
        if unmark_patch(item) is not None and (ours is None or (item.get("spec") or {}).get("nodeName") in ours):
            await apply_change(client, BY_KIND["Pod"], item, unmark_patch, tally)


def _release_and_open(item: Tree) -> Tree | None:
    """Remove the hold and a request to replace the node, and from a Node also the soft taint of steering."""
    patches = release_patch(item), unasked_patch(item)
    annotations = {name: None for patch in patches if patch for name in patch["metadata"]["annotations"]}
    tree: Tree = {"metadata": {"annotations": annotations}} if annotations else {}
    opened = open_patch(item) if item.get("kind") == "Node" else None
    return {**tree, **(opened or {})} or None


def without_notes(pool: Tree) -> Tree | None:
    """Return the patch that removes Dovetail's history, halts and rolls from a NodePool; a person's pause stays."""
    return _without(pool, (names.RECENT_DISRUPTIONS, names.HALTED, *MARKS))


def without_roll(pool: Tree) -> Tree | None:
    """Return the patch that removes a roll from a NodePool: what Dovetail keeps of it, and the request for it."""
    return _without(pool, MARKS)


def _without(pool: Tree, marks: Sequence[str]) -> Tree | None:
    annotations = pool["metadata"].get("annotations") or {}
    ours = [name for name in marks if name in annotations]
    return {"metadata": {"annotations": dict.fromkeys(ours, None)}} if ours else None


def without_condition(pool: Tree) -> Tree | None:
    """Remove Dovetail's conditions from a NodePool's status."""
    conditions = (pool.get("status") or {}).get("conditions") or []
    kept = [entry for entry in conditions if entry.get("type") not in _CONDITIONS]
    return None if len(kept) == len(conditions) else {"status": {"conditions": kept}}


def leave_nothing(item: Tree) -> Tree | None:
    """Remove everything of Dovetail from an object: hold, request, record, and the taint that came with the record."""
    annotations = item["metadata"].get("annotations") or {}
    patch: Tree = {}
    if names.HOLD in annotations:
        patch[names.HOLD] = None
        patch[names.DO_NOT_DISRUPT] = None
    for ours in (names.COMMAND, names.ROLL):
        if ours in annotations:
            patch[ours] = None
    tree: Tree = {"metadata": {"annotations": patch}} if patch else {}
    taints = (item.get("spec") or {}).get("taints") or []
    left = [taint for taint in taints if _is_ours(taint)]
    if item.get("kind") == "Node" and any(taint.get("key") == names.CLOSING_TAINT for taint in taints):
        taints = [taint for taint in taints if taint.get("key") != names.CLOSING_TAINT]
        tree.setdefault("metadata", {})
        tree["spec"] = {"taints": taints or None}
    # Also without a record, in case a person removed only the record; on nodes of pools nothing else uses this taint.
    if item.get("kind") == "Node" and left and (names.COMMAND in annotations or _pool(item)):
        tree.setdefault("metadata", {})
        tree["spec"] = {"taints": [taint for taint in taints if not _is_ours(taint)] or None}
    return tree or None


def _is_ours(taint: Tree) -> bool:
    return taint.get("key") == names.DISRUPTION_TAINT and taint.get("value") == names.DISRUPTION_TAINT_VALUE


def _is_registered(item: Tree) -> bool:
    """Return whether it is a NodeClaim with a registered Node: the hold goes on the Node."""
    return bool(item.get("kind") == "NodeClaim" and (item.get("status") or {}).get("nodeName"))


async def still_given(client: ApiClient, pools: Sequence[str] | None) -> list[str]:
    """Return the pools, of these or of all, that are labelled as managed: a controller would hold their nodes again."""
    return sorted(
        item["metadata"]["name"]
        for item in await listed_items(client, BY_KIND["NodePool"])
        if is_labelled(item["metadata"].get("labels") or {}) and (pools is None or item["metadata"]["name"] in pools)
    )


async def pool_names(client: ApiClient) -> list[str]:
    """Return the names of all pools."""
    return sorted(item["metadata"]["name"] for item in await listed_items(client, BY_KIND["NodePool"]))


async def check_pools(client: ApiClient, pools: Sequence[str]) -> None:
    """Raise UnknownPoolError if a pool that was named does not exist."""
    known = await pool_names(client)
    for pool in pools:
        if pool not in known:
            raise UnknownPoolError(f"there is no NodePool {pool!r}; there are: {', '.join(known) or 'none'}")


async def listed_items(client: ApiClient, resource: Resource) -> list[Tree]:
    """Return every object of a kind, as the server has it."""
    listing = await client.list_all(resource.path())
    return [{"kind": resource.kind, **msgspec.json.decode(raw)} for raw in listing.items]


def _pool(item: Tree) -> str:
    return str((item["metadata"].get("labels") or {}).get(names.NODEPOOL, ""))


async def apply_change(
    client: ApiClient,
    resource: Resource,
    item: Tree,
    change: Callable[[Tree], Tree | None],
    tally: HoldTally,
    *,
    subresource: str = "",
) -> None:
    """Write against the version that was listed; read once more if it has changed."""
    name, namespace = item["metadata"]["name"], str(item["metadata"].get("namespace") or "")
    for _ in range(5):
        patch = change(item)
        if patch is None:
            tally.kept.append(f"{resource.kind} {name}")
            return
        patch.setdefault("metadata", {})["resourceVersion"] = item["metadata"]["resourceVersion"]
        try:
            await client.request(
                "PATCH",
                resource.path(name, namespace, subresource),
                body=msgspec.json.encode(patch),
                content_type=MERGE_PATCH,
                params={"fieldManager": "dovetail"},
            )
        except ApiError as error:
            if error.status == 404:
                return
            if error.status != 409:
                tally.failed.append(f"{resource.kind} {name}: {error}")
                return
            item = {
                "kind": resource.kind,
                **msgspec.json.decode(await client.request("GET", resource.path(name, namespace))),
            }
        else:
            tally.changed.append(f"{resource.kind} {name}")
            return
    tally.failed.append(f"{resource.kind} {name}: it kept changing; run the command again")
