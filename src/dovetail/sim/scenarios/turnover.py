"""Runs a captured cluster on through a stretch like its last one: as many pods come as came, and as many go.

A capture shows which pods came within its last hours, but not which left. A cluster of about constant size loses as
many as it gains, so each pod that came within the stretch before the capture comes again, one stretch later, and one
of its owner's pods goes at a time at which another pod comes: which one is chance. The number of pods is the same
before and after, and constant to within a batch in between. Jobs' pods that have ended run again as long as they did.
A StatefulSet's pods count from the set's own creation. Decides nothing about disruption.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from dovetail.model.cluster import Cluster
from dovetail.sim.scenarios.arrivals import Stay, arrive, resize, stays_of
from dovetail.sim.world.world import World

_Event = tuple[int, int, str, Callable[[], None]]


def arrivals_of(cluster: Cluster, begin: datetime, length: int) -> tuple[Stay, ...]:
    """Return the pods that came within so many nanoseconds before the beginning, oldest first."""
    since = begin - timedelta(microseconds=length // 1000)
    found = [stay for stay in stays_of(cluster) if since < stay.since <= begin and _is_load(stay)]
    return tuple(sorted(found, key=lambda stay: (stay.since, stay.key, stay.pod.metadata.name)))


def _is_load(stay: Stay) -> bool:
    """Return whether a pod can come again: it is still there, or it ended after it had begun."""
    return stay.until is None or (stay.until > stay.since and stay.pod.status.phase == "Succeeded")


def add_turnover(world: World, cluster: Cluster, begin: datetime, length: int) -> int:
    """Schedule what comes and goes from the beginning on; return how many pods come."""
    stays = arrivals_of(cluster, begin, length)
    shift = world.clock.since_start(begin) + length
    due = [shift - _nanoseconds(begin - stay.since) for stay in stays]
    events: list[_Event] = []
    lasting = [at for at, stay in enumerate(stays) if stay.until is None]
    leave = [due[at] for at in lasting]
    world.dice.stream("turnover").shuffle(leave)
    for when, at in zip(leave, lasting, strict=True):
        events.append((when, 0, stays[at].pod.metadata.name, partial(resize, world, stays[at], -1)))
    for when, stay in zip(due, stays, strict=True):
        events.append((when, 1, stay.pod.metadata.name, partial(arrive, world, stay)))
        if stay.until is not None and stay.kind != "Job":
            ends = when + _nanoseconds(stay.until - stay.since)
            events.append((ends, 0, stay.pod.metadata.name, partial(resize, world, stay, -1)))
    for when, _, _, action in sorted(events, key=lambda event: event[:3]):
        world.at(when, action)
    return len(stays)


def _nanoseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1) * 1000
