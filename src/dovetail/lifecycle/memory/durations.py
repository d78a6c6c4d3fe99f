"""How long savings last in each pool: how long removed nodes stayed away, and since when the load is level.

See docs/rules.md#one-price. Two things say how long the next saving will last. *What was learned*: of the last ten
nodes that commands removed to save money, how long each stayed away until a provisioner opened another (the estimate of
an exponential with one observation more, the prior). *Calm*: a load that has stayed at today's level for three hours
is expected to stay for one more; a node that a provisioner opens ends that. In memory: forgotten without harm. Times
are nanoseconds of the engine's own clock. Decides nothing. Sits in lifecycle, below `engine`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from dovetail.lifecycle.memory.owners import owners_of
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.objects import Node, Pod
from dovetail.model.persistence import PRIOR, Persistence, PoolLoad
from dovetail.model.timing.duration import HOUR, MINUTE
from dovetail.scheduling.pods.requests import spec_requests

REMOVALS_MAX: Final = 10
"""From so many removals a pool learns."""
HELD_MAX: Final = HOUR
"""A removal that lasted so long has lasted."""
STEP: Final = MINUTE
"""Levels of the same minute are kept together."""
STEPS_MAX: Final = 24 * 60
HOMES_MAX: Final = 20_000
"""Of so many owners it is remembered where their pods last ran."""


@dataclass(slots=True)
class _Removal:
    at: int
    undone: int | None = None

    def held(self, elapsed: int) -> int:
        return min(HELD_MAX, (elapsed if self.undone is None else self.undone) - self.at)


@dataclass(slots=True)
class _Levels:
    """The least and the greatest load of a minute: CPU and memory."""

    since: int
    least: tuple[int, int]
    most: tuple[int, int]

    def within(self, low: tuple[int, int], high: tuple[int, int]) -> bool:
        """Return whether all of it lies between two loads."""
        return all(a <= b for a, b in zip((*low, *self.most), (*self.least, *high), strict=True))


@dataclass(slots=True)
class _Pool:
    removed: deque[_Removal] = field(default_factory=lambda: deque(maxlen=REMOVALS_MAX))
    levels: deque[_Levels] = field(default_factory=lambda: deque(maxlen=STEPS_MAX))
    opened: int | None = None
    level_since: int | None = None
    first: int | None = None
    prior: int = PRIOR


class Durations:
    """What every pool has shown."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}
        self._homes: dict[str, str] = {}

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._pools, self._homes = {}, {}

    # ------------------------------------------------------------ what happens

    def took(self, pools: Iterable[str], elapsed: int) -> None:
        """Record nodes that a command removes to save money: the pool of each."""
        for pool in pools:
            self._of(pool).removed.append(_Removal(elapsed))

    def leaves(self, pods: Iterable[Pod], pool: str) -> None:
        """Record where pods that are about to move ran."""
        for pod in pods:
            for owner in owners_of(pod)[:1]:
                self._homes.pop(owner, None)
                self._homes[owner] = pool
        while len(self._homes) > HOMES_MAX:
            del self._homes[next(iter(self._homes))]

    def opened(self, pool: str, elapsed: int) -> None:
        """Record a node that a provisioner opens: the latest removal that still holds is undone by it."""
        known = self._of(pool)
        known.opened = elapsed
        standing = next((entry for entry in reversed(known.removed) if entry.undone is None), None)
        if standing is not None:
            standing.undone = elapsed

    def update(self, loads: Mapping[str, PoolLoad], store: Store, elapsed: int) -> None:
        """Record the loads that a round found, with the pods that wait for a node."""
        waiting = self._waiting(store) if loads else {}
        for pool, load in loads.items():
            more = waiting.get(pool, (0, 0))
            level = load.total[0] + more[0], load.total[1] + more[1]
            known = self._of(pool)
            if known.first is None:
                known.first, known.prior = elapsed, load.prior
            _note(known.levels, level, elapsed)
            known.level_since = _level_since(known.levels, level, load.node)

    def _of(self, pool: str) -> _Pool:
        return self._pools.setdefault(pool, _Pool())

    def _waiting(self, store: Store) -> dict[str, tuple[int, int]]:
        """Return what pending pods request, by the pool where pods of the same owner run or last ran."""
        found: dict[str, tuple[int, int]] = {}
        for pod in store.pending_pods():
            owner = next(iter(owners_of(pod)), "")
            pool = _home(store, owner) or self._homes.get(owner)
            if pool:
                asks, (cpu, memory) = spec_requests(pod.spec), found.get(pool, (0, 0))
                found[pool] = cpu + asks.get("cpu", 0), memory + asks.get("memory", 0)
        return found

    # ------------------------------------------------------------ what it means

    def known(self, elapsed: int, wall: Callable[[int], datetime]) -> dict[str, Persistence]:
        """Return what every pool has shown by now, by name."""
        return {name: _persistence(pool, elapsed, wall) for name, pool in sorted(self._pools.items())}


def _persistence(pool: _Pool, elapsed: int, wall: Callable[[int], datetime]) -> Persistence:
    undone = sum(1 for entry in pool.removed if entry.undone is not None and entry.undone - entry.at < HELD_MAX)
    held = sum(entry.held(elapsed) for entry in pool.removed)
    calm = None if pool.level_since is None else wall(max(pool.level_since, pool.opened or 0))
    prior = pool.prior if pool.level_since == pool.first else PRIOR  # what objects said ends with the level
    return Persistence(learned=min(prior, (prior + held) // (1 + undone)), removals=len(pool.removed), calm_since=calm)


def _note(levels: deque[_Levels], level: tuple[int, int], elapsed: int) -> None:
    last = levels[-1] if levels else None
    if last is None or elapsed - last.since >= STEP:
        if last is None or last.least != level or last.most != level:
            levels.append(_Levels(elapsed, level, level))
        return
    last.least = min(last.least[0], level[0]), min(last.least[1], level[1])
    last.most = max(last.most[0], level[0]), max(last.most[1], level[1])


def _level_since(levels: deque[_Levels], level: tuple[int, int], band: tuple[int, int]) -> int:
    """Return since when the load has stayed within a band around its level."""
    low, high = (level[0] - band[0], level[1] - band[1]), (level[0] + band[0], level[1] + band[1])
    since = levels[-1].since
    for entry in reversed(levels):
        if not entry.within(low, high):
            break
        since = entry.since
    return since


def _home(store: Store, owner: str) -> str:
    """Return the pool of a node on which a pod of this owner runs; empty if none does."""
    for pod in store.pods_owned_by(owner) if owner else ():
        node = store.get(Node, pod.spec.node_name) if pod.spec.node_name else None
        if node is not None:
            return node.metadata.labels.get(names.NODEPOOL, "")
    return ""
