"""Owners whose pods came back larger than they left, remembered for an hour.

Before a command moves pods, the requests of each owner's largest leaving pod are noted. If a pod of that owner that was
created afterwards requests more (a start-up boost, a webhook, an autoscaler that can't be read), the owner's pods are
simulated with the larger size for an hour (`scheduling.pods.coming_sizes`), so that they are not moved again to where
they don't fit. In memory and bounded; a restart forgets it, which costs one move more. Sits in lifecycle, below
`engine_state`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.store import Store
from dovetail.model.coming_size import GrownSize
from dovetail.model.objects import Pod, ResourceList
from dovetail.model.quantity import resource_amount

KEPT_FOR: Final = 3600 * SECOND
_OWNERS_MAX: Final = 10_000
_STAYING: Final = ("DaemonSet", "Node")

_Sizes = dict[str, ResourceList]
"""Requests by container."""


@dataclass(slots=True)
class _Left:
    """An owner whose pods are moved: their largest requests, since when, and until when successors are looked at."""

    owner: str
    sizes: _Sizes
    since: datetime
    until: int


@dataclass(slots=True)
class _Grown:
    size: GrownSize
    until: int


class PodGrowth:
    """The owners whose pods came back larger, and until when that counts."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}
        self._grown: dict[str, _Grown] = {}
        self._stirred: set[str] = set()
        """Owners with pods that came or changed, or that left, since the last look."""
        self._ends: int | None = None
        """When the first entry is over, at the earliest; None: there is none."""

    def forget(self) -> None:
        """Forget all: another process leads."""
        self._left, self._grown, self._stirred, self._ends = {}, {}, set(), None

    def note(self, pod: Pod) -> None:
        """Take in that a pod came or changed."""
        if self._left:
            self._stirred.update(entry.uid for entry in pod.metadata.owner_references if entry.uid in self._left)

    def leave(self, pods: Iterable[Pod], now: datetime, elapsed: int) -> None:
        """Note the sizes of pods that are about to be moved."""
        for pod in pods:
            owner = next((entry for entry in pod.metadata.owner_references if entry.kind not in _STAYING), None)
            if owner is None or not owner.uid or len(self._left) >= _OWNERS_MAX:
                continue
            words = f"{owner.kind} {pod.metadata.namespace}/{owner.name}"
            known = self._left.get(owner.uid)
            sizes = _largest({} if known is None else known.sizes, pod)
            since = now if known is None else known.since
            self._left[owner.uid] = _Left(words, sizes, since, self._until(elapsed))
            self._stirred.add(owner.uid)

    def _until(self, elapsed: int) -> int:
        until = elapsed + KEPT_FOR
        self._ends = until if self._ends is None else min(self._ends, until)
        return until

    def look(self, store: Store, elapsed: int) -> bool:
        """Compare pods that came back with those that left, and drop what is over; True if something changed."""
        if self._ends is None or (elapsed < self._ends and not self._stirred):
            return False
        before = self.sizes()
        if elapsed >= self._ends:
            self._drop(elapsed)
        stirred, self._stirred = self._stirred | (before.keys() - self._grown.keys()), set()
        for uid in sorted(stirred & self._left.keys()):
            left = self._left[uid]
            for pod in store.pods_owned_by(uid):
                born = pod.metadata.creation_timestamp
                if born is None or born < left.since or not _is_larger(pod, left.sizes):
                    continue
                known = self._grown.get(uid)
                sizes = _largest(left.sizes if known is None else dict(known.size.containers), pod)
                size = GrownSize(owner=left.owner, containers=tuple(sorted(sizes.items())))
                if known is None or known.size != size:
                    self._grown[uid] = _Grown(size, self._until(elapsed))
        return before != self.sizes()

    def _drop(self, elapsed: int) -> None:
        """Drop what is over."""
        self._left = {uid: entry for uid, entry in self._left.items() if entry.until > elapsed}
        self._grown = {uid: entry for uid, entry in self._grown.items() if entry.until > elapsed}
        ends = [entry.until for entries in (self._left, self._grown) for entry in entries.values()]
        self._ends = min(ends, default=None)

    def sizes(self) -> dict[str, GrownSize]:
        """Return the sizes with which pods of these owners come back."""
        return {uid: entry.size for uid, entry in self._grown.items()}

    def times(self) -> tuple[int, ...]:
        """Return when a size is forgotten."""
        return tuple(entry.until for entry in self._grown.values())


def _largest(sizes: _Sizes, pod: Pod) -> _Sizes:
    found = {name: dict(requests) for name, requests in sizes.items()}
    for container in pod.spec.containers:
        mine = found.setdefault(container.name, {})
        for name, text in container.resources.requests.items():
            if name not in mine or resource_amount(name, text) > resource_amount(name, mine[name]):
                mine[name] = text
    return found


def _is_larger(pod: Pod, sizes: _Sizes) -> bool:
    for container in pod.spec.containers:
        before = sizes.get(container.name, {})
        for name, text in container.resources.requests.items():
            if name not in before or resource_amount(name, text) > resource_amount(name, before[name]):
                return True
    return False
