"""Keeps `dovetail_regret_*` up to date: what was undone in the last two hours, by pool.

The figures are those of `dovetail regret` on a recording of the same two hours: both ask `recordings.regret`. Reads
only, so it runs in every replica and with `--observe`. Sits in live, beside `recorder`.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from dovetail.lifecycle.messages import Event, ObjectObserved, ObjectVanished
from dovetail.live.recorder import SteadyTime
from dovetail.model.objects import NodeClaim, Pod
from dovetail.recordings.recent import RecentLives
from dovetail.recordings.regret import PoolRegret, regrets

if TYPE_CHECKING:
    from dovetail.live.observability.metrics import Metrics
    from dovetail.live.run import Controller

_EVERY_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 1.0


async def watch_regrets(controller: "Controller") -> None:
    """Follow pods and NodeClaims, and set the metrics every minute, until cancelled."""
    clock = SteadyTime()
    lives = RecentLives(begins=clock())

    def take(event: Event) -> None:
        now = clock()
        if isinstance(event, ObjectObserved):
            if isinstance(event.object, Pod):
                lives.observe_pod(event.object, now)
            elif isinstance(event.object, NodeClaim):
                lives.observe_claim(event.object)
        elif isinstance(event, ObjectVanished):
            if event.kind == "Pod":
                place = (event.name, event.namespace)
                lives.vanish_pod(event.namespace, event.name, lambda: controller.engine.store.get(Pod, *place), now)
            elif event.kind == "NodeClaim":
                lives.vanish_claim(event.name, now)

    controller.listeners.append(take)
    while controller.why_unready():
        await asyncio.sleep(_WAIT_SECONDS)
    lives.begins = clock()  # what left before was not all seen
    while True:
        show_regrets(controller.metrics, await asyncio.to_thread(regrets, lives.recording(clock())))
        await asyncio.sleep(_EVERY_SECONDS)


def show_regrets(metrics: "Metrics", found: Sequence[PoolRegret]) -> None:
    """Set the metrics; those of pools that have no node any more vanish."""
    gauges = (
        metrics.regret_moves,
        metrics.regret_undone_moves,
        metrics.regret_undone_removals,
        metrics.regret_short_lived_nodes,
        metrics.regret_pods_moved_again,
    )
    for gauge in gauges:
        gauge.clear()
    for pool in found:
        figures = (
            pool.moves,
            pool.undone_moves,
            pool.undone_nodes,
            pool.short_lived_nodes,
            pool.moved_more_than_once,
        )
        for gauge, figure in zip(gauges, figures, strict=True):
            gauge.labels(pool.node_pool).set(figure)
