"""How long machines and pods took in a recording: what a replay draws its own times from.

Pure. Sits beside `sim.scenarios.recorded_load`, which replays the load.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from math import sqrt
from statistics import fmean, pvariance
from typing import Final

from dovetail.recordings.lines import BY_POLICY
from dovetail.recordings.read import ClusterRecording, PodLife
from dovetail.sim.world.clock import SECOND, Span
from dovetail.sim.world.cloud import CloudTimes
from dovetail.sim.world.karpenter.draining import MIN_DRAIN
from dovetail.sim.world.kubelet import EVERY_OWNER, PodTimes, owner_key

_LEAST: Final = 5
"""From how many samples on times are drawn from what was recorded."""
_STAMPS: Final = 1 / 6
"""The mean variance, in s², that whole-second stamps add to the time between two of them."""
_SHORTEST_DRAIN: Final = timedelta(microseconds=MIN_DRAIN // 1000)
Stamps = tuple[datetime | None, datetime | None]


def recorded_times(recording: ClusterRecording) -> CloudTimes:
    """Return how long machines took to launch, to become ready and to end in the recording."""
    fresh = [claim for claim in recording.claims if claim.created is not None and claim.created > recording.begins]
    claims = fresh if len(fresh) >= _LEAST else recording.claims
    launch = _between((claim.created, claim.launched) for claim in claims)
    register = _between((claim.launched, claim.registered) for claim in claims)
    ready = _between((claim.registered, claim.ready) for claim in claims)
    plain = CloudTimes()
    if not (launch and register and ready):
        return plain
    ended = _between(_shutdown(recording))
    return CloudTimes(
        create=_span(launch),
        register=_span(register),
        ready=_span(ready),
        shutdown=_span(ended) if len(ended) >= _LEAST else plain.shutdown,
    )


def _shutdown(recording: ClusterRecording) -> Iterator[Stamps]:
    """Yield when each machine was drained, and when it was gone."""
    last: dict[str, datetime] = {}
    for life in recording.pods:
        if life.gone is not None and life.why in BY_POLICY:
            last[life.node] = max(life.gone, last.get(life.node, life.gone))
    for claim in recording.claims:
        if claim.deleting is not None:
            drained = claim.deleting + _SHORTEST_DRAIN
            yield max(drained, last.get(claim.node, drained)), claim.gone


def recorded_pod_times(recording: ClusterRecording) -> dict[str, PodTimes]:
    """Return how long pods took to become ready and to stop: of each owner with enough of them, and of all."""
    by_owner: dict[str, list[PodLife]] = {EVERY_OWNER: list(recording.pods)}
    for life in recording.pods:
        by_owner.setdefault(owner_key(life.namespace, life.pod_class.pod), []).append(life)
    return {owner: times for owner, lives in by_owner.items() if (times := _pod_times(lives)) is not None}


def _pod_times(lives: Sequence[PodLife]) -> PodTimes | None:
    start = _between((life.bound, life.ready) for life in lives)
    stop = _between((life.deleting, life.gone) for life in lives if life.bound is not None)
    if len(start) < _LEAST or len(stop) < _LEAST:
        return None
    return PodTimes(start=_span(start), stop=_span(stop))


def _between(stamps: Iterable[Stamps]) -> list[float]:
    """Return the seconds between two stamps, where both are known."""
    return [max(0.0, (end - begin).total_seconds()) for begin, end in stamps if begin is not None and end is not None]


def _span(found: Sequence[float]) -> Span:
    """Return the span that the middle four fifths of the times are drawn from.

    Kubernetes' stamps are whole seconds: times that are all alike differ by up to a second in them. That scatter is
    not the machines' own, and with it the machines of one batch would join one after the other.
    """
    ordered = sorted(found)
    tenth = len(ordered) // 10
    middle = ordered[tenth : len(ordered) - tenth]
    centre = fmean(middle)
    part = centre % 1.0
    added = max(_STAMPS, part * (1 - part))  # the latter if all times are alike: each is cut or rounded up
    half = sqrt(3 * max(0.0, pvariance(middle) - added))
    return Span(max(SECOND // 10, int((centre - half) * SECOND)), max(SECOND // 2, int((centre + half) * SECOND)))
