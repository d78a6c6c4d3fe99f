"""`dovetail roll`: ask a running controller to replace nodes, or take that back. See docs/rules.md#rolls.

A request is an annotation (`api.roll_request`) on a NodePool, or on the NodeClaim of one node. Its times are those of
the API server, so the clock of the machine that asks does not matter. Only the request is written here; the controller
does the rest, and says so by the condition `dovetail.dev/RolloutComplete` of the NodePool.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api.roll_request import RollRequest, decode_request, write_request
from dovetail.live.clocks import steady
from dovetail.live.holds import HoldTally, apply_change, listed_items
from dovetail.live.kubernetes.client import ApiClient, ApiError
from dovetail.live.kubernetes.resources import BY_KIND
from dovetail.model import names
from dovetail.model.policies.managed import is_labelled
from dovetail.model.text import nearest

Tree = dict[str, Any]
_POOLS: Final = BY_KIND["NodePool"]
_CLAIMS: Final = BY_KIND["NodeClaim"]
_KINDS: Final = {
    **dict.fromkeys(("nodepool", "nodepools", "nodepools.karpenter.sh", "nodepool.karpenter.sh"), "pool"),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("nodeclaim", "nodeclaims", "nodeclaims.karpenter.sh", "nodeclaim.karpenter.sh"), "node"),
}
_LOOK_SECONDS: Final = 1.0


class RollError(Exception):
    """A request that can't be made; the message says what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollTarget:
    """What is to be rolled: a NodePool, or one node of it by its NodeClaim. `pool`: the NodePool, as it was read."""

    pool: Tree
    claim: Tree | None = None
    node: str = ""

    @property
    def pool_name(self) -> str:
        """Return the name of the NodePool."""
        return str(self.pool["metadata"]["name"])

    @property
    def words(self) -> str:
        """Return what it is, for people."""
        return f"NodePool {self.pool_name}" if self.claim is None else f"node {self.node}"

    @property
    def item(self) -> Tree:
        """Return the object that carries the request."""
        return self.pool if self.claim is None else self.claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was made. `nodes`: how many nodes it asks for; `replaces`: the request that stood there before."""

    target: RollTarget
    request: RollRequest
    nodes: int
    of: int
    replaces: RollRequest | None


class Fleet:
    """The NodePools and NodeClaims of a cluster, and what time it was there when they were read."""

    def __init__(self, pools: Sequence[Tree], claims: Sequence[Tree], now: datetime) -> None:
        self.now = now
        self._pools = {str(item["metadata"]["name"]): item for item in pools}
        self._claims = claims

    @classmethod
    async def read(cls, client: ApiClient) -> "Fleet":
        """Read both kinds."""
        claims = await listed_items(client, _CLAIMS)
        pools = await listed_items(client, _POOLS)
        if client.server_time is None:
            raise RollError("the answers of the API server carry no date, so a request can't be dated; ask it directly")
        return cls(pools, claims, client.server_time)

    def targets(self, words: Iterable[str]) -> list[RollTarget]:
        """Return what people named, each once; raise RollError for a name that is not there, or that is two things."""
        found = [self._target(word) for word in words]
        return list({(target.pool_name, target.node): target for target in found}.values())

    def _target(self, word: str) -> RollTarget:
        kind, name = _split(word)
        pool = self._pools.get(name) if kind != "node" else None
        claims = [item for item in self._claims if name in (_node_of(item), item["metadata"]["name"])]
        claim = claims[0] if claims and kind != "pool" else None
        if pool is not None and claim is not None:
            raise RollError(f"{name} is a NodePool and a node; write nodepool/{name} or node/{name}")
        if pool is not None:
            return RollTarget(pool=pool)
        if claim is None:
            raise RollError(self._unknown(name, kind))
        owner = self._pools.get(_pool_of(claim))
        if owner is None:
            raise RollError(f"node {name} belongs to NodePool {_pool_of(claim) or '(none)'}, which is not there")
        return RollTarget(pool=owner, claim=claim, node=_node_of(claim) or str(claim["metadata"]["name"]))

    def _unknown(self, name: str, kind: str) -> str:
        what = {"pool": "NodePool", "node": "node of a NodePool"}.get(kind, "NodePool or node of one")
        nodes = [_node_of(item) or item["metadata"]["name"] for item in self._claims]
        known = sorted([*(self._pools if kind != "node" else ()), *(nodes if kind != "pool" else ())])
        near = nearest(name, known)
        pools = ", ".join(sorted(self._pools)) or "none"
        return f"there is no {what} {name!r}; " + (f"did you mean {near}?" if near else f"the NodePools are: {pools}")

    def covered(self, target: RollTarget, request: RollRequest) -> tuple[int, int]:
        """Return how many nodes of a target a request asks for, and how many it has."""
        claims = [item for item in self._claims if _pool_of(item) == target.pool_name]
        mine = claims if target.claim is None else [target.claim]
        return sum(request.covers(_created(item)) for item in mine), len(mine)

    def requests_on_nodes(self, pool: str) -> list[str]:
        """Return the nodes of a pool that have a request of their own."""
        asked = [item for item in self._claims if _pool_of(item) == pool and names.ROLL in _annotations(item)]
        return sorted(_node_of(item) or str(item["metadata"]["name"]) for item in asked)


def check_managed(targets: Iterable[RollTarget]) -> None:
    """Raise RollError for a pool that no controller manages: its request would stay there and do nothing."""
    for target in targets:
        labels = target.pool["metadata"].get("labels") or {}
        if not is_labelled(labels) and rollout_condition(target.pool) is None:
            raise RollError(
                f"Dovetail does not manage NodePool {target.pool_name}, so nobody would roll it; give it to Dovetail "
                f"first: kubectl label nodepool {target.pool_name} {names.MANAGE}=true"
            )


def rollout_condition(pool: Tree) -> Tree | None:
    """Return the condition that says whether a NodePool's roll is done; None: no controller has written it."""
    conditions = (pool.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == names.ROLLOUT_COMPLETE), None)


async def ask(
    client: ApiClient, fleet: Fleet, targets: Sequence[RollTarget], before: datetime | None, reason: str
) -> list[Asked]:
    """Write a request on every target that has nodes to replace; raise RollError if one can't be written."""
    if before is not None and before > fleet.now:
        raise RollError(
            f"--before is in the future: it is {_stamp(fleet.now)} on the API server; leave it out to replace all "
            "nodes that are there now"
        )
    request = RollRequest(before=before or fleet.now, requested=fleet.now, reason=reason)
    made = []
    for target in targets:
        nodes, of = fleet.covered(target, request)
        standing = _annotations(target.item).get(names.ROLL)
        replaces = None if standing is None else decode_request(standing)
        if nodes:
            await _annotate(client, target, write_request(request))
        made.append(Asked(target=target, request=request, nodes=nodes, of=of, replaces=replaces))
    return made


async def cancel(client: ApiClient, targets: Iterable[RollTarget]) -> list[RollTarget]:
    """Remove the requests on some targets; return those that had one."""
    found = [target for target in targets if names.ROLL in _annotations(target.item)]
    for target in found:
        await _annotate(client, target, None)
    return found


async def _annotate(client: ApiClient, target: RollTarget, value: str | None) -> None:
    def change(item: Tree) -> Tree | None:
        if _annotations(item).get(names.ROLL) == value:
            return None
        return {"metadata": {"annotations": {names.ROLL: value}}}

    tally = HoldTally()
    await apply_change(client, _POOLS if target.claim is None else _CLAIMS, target.item, change, tally)
    if tally.failed:
        raise RollError(f"the request was not written: {tally.failed[0]}")


async def taken_up(client: ApiClient, asked: Sequence[Asked], patience: float, say: Callable[[str], None]) -> list[str]:
    """Wait until the condition of every pool says that its roll is not done; return the pools that still don't.

    A request that is gone again was carried out at once, or taken back by somebody.
    """
    waiting = {entry.target.pool_name: entry for entry in asked if entry.nodes}
    ends = steady() + patience
    told = False
    while waiting:
        for name, entry in list(waiting.items()):
            pool = await _read(client, _POOLS.path(name))
            if pool is None or await _is_taken_up(client, entry, pool):
                del waiting[name]
        if not waiting or steady() >= ends:
            break
        if not told:
            say("waiting for the controller to take it up ...")
            told = True
        await asyncio.sleep(min(_LOOK_SECONDS, max(0.0, ends - steady())))
    return sorted(waiting)


async def _is_taken_up(client: ApiClient, entry: Asked, pool: Tree) -> bool:
    condition = rollout_condition(pool)
    is_false = condition is not None and condition.get("status") == "False"
    if entry.target.claim is None:
        return is_false or names.ROLL not in _annotations(pool)
    claim = await _read(client, _CLAIMS.path(str(entry.target.claim["metadata"]["name"])))
    if claim is None or names.ROLL not in _annotations(claim):
        return True
    # The condition may still be about nodes that had drifted before: then it could turn True for a moment.
    return is_false and condition is not None and condition.get("reason") == "Requested"


async def _read(client: ApiClient, path: str) -> Tree | None:
    try:
        found: Tree = msgspec.json.decode(await client.request("GET", path))
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return found


def _split(word: str) -> tuple[str, str]:
    kind, slash, name = word.partition("/")
    if not slash:
        return "", word
    if kind.lower() not in _KINDS:
        raise RollError(f"{word} is neither a NodePool nor a node; write nodepool/NAME or node/NAME")
    return _KINDS[kind.lower()], name


def _annotations(item: Tree) -> Tree:
    return item["metadata"].get("annotations") or {}


def _pool_of(claim: Tree) -> str:
    return str((claim["metadata"].get("labels") or {}).get(names.NODEPOOL, ""))


def _node_of(claim: Tree) -> str:
    return str((claim.get("status") or {}).get("nodeName") or "")


def _created(item: Tree) -> datetime | None:
    value = item["metadata"].get("creationTimestamp")
    return None if value is None else datetime.fromisoformat(value)


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
