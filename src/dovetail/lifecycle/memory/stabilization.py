"""Where cost actions wait after a finished action, and until when (docs/rules.md#stabilization; lifecycle-controller).

An action touches the pools of its nodes, of its replacements and of the nodes that took its pods. In each of them no
cost action starts until its window has passed: the last action that touched a pool decides, by its kind. In a large
pool something expires every few minutes, so the windows of empty, expired and drifted actions hold a pool for at most
half of any hour; beyond that they hold only their replacements and the nodes that took their pods, as sources. With the
scope `cluster` the last action anywhere decides for all pools, without that bound. Times are nanoseconds of the
engine's own clock; a restart forgets them. Sits in lifecycle, below `engine_state`.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.memory.owners import owners_of
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import COST_METHODS, Method
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.settings import Stabilization, StabilizationScope

HOUR: Final = 3600 * SECOND
HALF: Final = HOUR // 2
"""For how much of any hour the windows of empty, expired and drifted actions may hold a pool."""
_EVERYWHERE: Final = ""


def window_of(method: Method, windows: Stabilization) -> int | None:
    """Return how long no cost action starts after an action of this method; None: a repair leaves that as it is."""
    match method:
        case Method.UNHEALTHY:
            return None
        case Method.EMPTY:
            return windows.empty
        case Method.EXPIRED:
            return windows.expired
        case Method.DRIFTED:
            return windows.drifted
        case Method.MULTI_NODE | Method.SINGLE_NODE:
            return windows.cost


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What an action touched: pools, and the nodes that came or took its pods."""

    pools: tuple[str, ...]
    nodes: tuple[str, ...] = ()


class CostWait(NamedTuple):
    """Until when cost actions wait somewhere, and after what."""

    until: int
    after: str


class _Window(msgspec.Struct, frozen=True, kw_only=True):
    """The window of the last action that touched a pool."""

    method: Method
    until: int
    after: str


class _Moving(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that a command moves: their owners, all pods of these owners then, and where the plan puts them."""

    owners: tuple[str, ...]
    known: frozenset[str]
    planned: tuple[str, ...]


class StabilizationMemory:
    """The windows of ended actions. Survives a loss of leadership: they describe the cluster, not the leader."""

    def __init__(self) -> None:
        self._moving: dict[str, _Moving] = {}
        self._windows: dict[str, _Window] = {}
        self._nodes: dict[str, CostWait] = {}
        self._held: dict[str, list[tuple[int, int]]] = {}
        """When empty, expired and drifted actions held each pool within the last hour."""

    # ------------------------------------------------------------ what an action touches

    def begin(self, run: Run, store: Store) -> None:
        """Record the pods that are about to leave, and where they are planned to go."""
        if run.id in self._moving:
            return
        pods = [pod for node in run.nodes for pod in store.pods_on(node)]
        owners = tuple(sorted({owner for pod in pods for owner in owners_of(pod)}))
        own = {pod.metadata.key for pod in pods}
        placements = () if run.command is None else run.command.placements
        self._moving[run.id] = _Moving(
            owners=owners,
            known=frozenset(pod.metadata.uid for owner in owners for pod in store.pods_owned_by(owner)),
            planned=tuple(sorted({place.node for place in placements if not own.isdisjoint(place.pods)})),
        )

    def touched(self, run: Run, store: Store) -> Footprint:
        """Return what an action that has ended touched; the pods count where they are planned and where they are."""
        moving = self._moving.pop(run.id, None)
        took = {} if moving is None else dict.fromkeys((*moving.planned, *_landed(moving, store)))
        pools = [*run.source_pools, *run.pools]
        for name in took:
            node = store.get(Node, name)
            if node is not None:
                pools.append(node.metadata.labels.get(names.NODEPOOL, ""))
        claims = (store.get(NodeClaim, name) for name in run.replacements)
        came = [claim.status.node_name for claim in claims if claim is not None and claim.status.node_name]
        return Footprint(pools=tuple(sorted({*pools} - {""})), nodes=tuple(sorted({*took, *came})))

    def drop(self, ident: str) -> None:
        """Forget a command that ended without moving anything."""
        self._moving.pop(ident, None)

    # ------------------------------------------------------------ windows

    def finished(
        self, method: Method, touched: Footprint, windows: Stabilization, scope: StabilizationScope, elapsed: int
    ) -> None:
        """Record that an action succeeded: from now on its window decides in what it touched."""
        window = window_of(method, windows)
        if window is None:
            return
        everywhere = scope is StabilizationScope.CLUSTER
        plural = "s" if len(touched.pools) > 1 else ""
        where = f" in NodePool{plural} {', '.join(touched.pools)}" if touched.pools else ""
        after, end = f"an action of method {method.value}{where}", elapsed + window
        for pool in (_EVERYWHERE,) if everywhere else touched.pools:
            until = end if everywhere or method in COST_METHODS else self._hold(pool, elapsed, window)
            self._release(pool, elapsed)
            if until > elapsed:
                self._windows[pool] = _Window(method=method, until=until, after=after)
                if method not in COST_METHODS and not everywhere:
                    self._held.setdefault(pool, []).append((elapsed, until))
            if until < end:
                self._nodes |= dict.fromkeys(touched.nodes, CostWait(end, after))

    def _hold(self, pool: str, elapsed: int, window: int) -> int:
        """Return until when a window may hold a pool: to its end, or until half of an hour is used up."""
        held = [(begin, min(end, elapsed)) for begin, end in self._held.get(pool, ()) if end > elapsed - HOUR]
        return held_until(held, elapsed, window)

    def _release(self, pool: str, elapsed: int) -> None:
        """End the window that decided in a pool so far."""
        self._windows.pop(pool, None)
        kept = [(begin, min(end, elapsed)) for begin, end in self._held.get(pool, ()) if end > elapsed - HOUR]
        self._held[pool] = [(begin, end) for begin, end in kept if begin < end]
        if not self._held[pool]:
            del self._held[pool]

    def landed(self, pools: Iterable[str], *, everywhere: bool) -> None:
        """End the windows of cost actions in pools or everywhere: all moved pods have landed (docs/rules.md#landed)."""
        for pool in (*pools, _EVERYWHERE) if everywhere else pools:
            window = self._windows.get(pool)
            if window is not None and window.method in COST_METHODS:
                del self._windows[pool]

    def expire(self, elapsed: int) -> bool:
        """Drop the windows that are over; True if there was one."""
        over = [pool for pool, window in self._windows.items() if window.until <= elapsed]
        nodes = [node for node, wait in self._nodes.items() if wait.until <= elapsed]
        for pool in over:
            del self._windows[pool]
        for node in nodes:
            del self._nodes[node]
        return bool(over or nodes)

    def times(self) -> list[int]:
        """Return when each window ends."""
        return [entry.until for memory in (self._windows, self._nodes) for entry in memory.values()]

    def pools(self, all_pools: Iterable[str], elapsed: int) -> dict[str, CostWait]:
        """Return the pools in which cost actions wait, by name."""
        everywhere = self._windows.get(_EVERYWHERE)
        found = {}
        for pool in all_pools:
            windows = [window for window in (everywhere, self._windows.get(pool)) if window is not None]
            last = max(windows, key=lambda window: window.until, default=None)
            if last is not None and last.until > elapsed:
                found[pool] = CostWait(last.until, last.after)
        return found

    def nodes(self, elapsed: int) -> dict[str, CostWait]:
        """Return the nodes that no cost action takes yet, by name."""
        return {node: self._nodes[node] for node in sorted(self._nodes) if self._nodes[node].until > elapsed}


def held_until(held: Iterable[tuple[int, int]], begin: int, window: int) -> int:
    """Return until when a window that begins now may hold a pool that was held at these times, in order, before.

    The time held within the hour before an instant never falls while the pool is held: it grows, or stays the same
    while an earlier time leaves that hour. So the hold may last as long as that is at most half an hour.
    """
    at, end = begin, begin + window
    earlier = [(since, until) for since, until in held if until + HOUR > begin]
    used = sum(until - max(since, begin - HOUR) for since, until in earlier)
    for since, until in earlier:
        grows_to = min(max(since + HOUR, at), end)
        if grows_to - at > HALF - used:
            break
        used += grows_to - at
        at = min(max(until + HOUR, grows_to), end)
    return min(end, at + HALF - used)


def _landed(moving: _Moving, store: Store) -> list[str]:
    """Return the nodes of the pods that came for those that were moved."""
    pods = [pod for owner in moving.owners for pod in store.pods_owned_by(owner)]
    return [pod.spec.node_name for pod in pods if pod.metadata.uid not in moving.known and pod.spec.node_name]
