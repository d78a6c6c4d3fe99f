"""The pods that wait for a node, prepared for placement and carried from snapshot to snapshot.

Thousands may wait through many snapshots: a pod that has not changed keeps its entry, found by its position. Decides
nothing; sits in scheduling, below the snapshot.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dovetail.model.listing import Listing
from dovetail.model.objects import Pod
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.bindings import Bindings, Column
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.reading.changes import places_before

WhyIgnored = Callable[[Pod, PodClass], str]
"""Why no node could help a pod; empty if one could. The same for all pods of a class without volumes."""


class PendingPods:
    """`entries`: pods that a new node could help; `ignored`: those that none could help, each with the reason."""

    def __init__(
        self, bindings: Bindings, keys: frozenset[str], old: "PendingPods | None", why_ignored: WhyIgnored
    ) -> None:
        """Read them; `keys`: the labels by which pods are classed (another set may give other classes)."""
        self._pods = bindings.pods
        self._keys = keys
        unbound = np.flatnonzero(bindings.at == 0)
        was = None if old is None or old._keys is not keys else self._places_in(old, unbound)
        found: list[Entry | None]
        if old is None or was is None:
            found, missing = [None] * len(unbound), list(range(len(unbound)))
        else:
            found, missing = old._entries_at(was)
        places = unbound.tolist()
        for here in missing:
            pod = self._pods[places[here]]
            if filters.is_provisionable(pod):
                found[here] = Entry(pod, bindings.class_at(places[here]), exempt=True, pending=True)
        waiting = [entry for entry in found if entry is not None]
        if len(waiting) < len(found):
            unbound = unbound[[entry is not None for entry in found]]
        self._places: Column = unbound
        self._waiting: npt.NDArray[np.object_] = np.fromiter(waiting, dtype=object, count=len(waiting))
        self.entries: list[Entry] = []
        self.ignored: list[tuple[Pod, str]] = []
        self._sort_out(bindings.cls[unbound], waiting, why_ignored)

    def _places_in(self, old: "PendingPods", places: Column) -> Column:
        """Return the previous index of the pods at these places; -1 if it is not the same object, or did not wait."""
        pods = self._pods
        if pods is old._pods:
            return places
        if isinstance(pods, Listing) and pods.follows(old._pods):
            return places_before(pods, places)
        # The old pods are alive, so an equal id means the same object.
        known = {id(entry.pod): place for entry, place in zip(old._waiting, old._places.tolist(), strict=True)}
        return np.array([known.get(id(pods[place]), -1) for place in places.tolist()], dtype=np.int64)

    def _entries_at(self, places: Column) -> tuple[list[Entry | None], list[int]]:
        """Return the entries of the pods at these places, and for which of them there is none."""
        if not len(self._places):
            return [None] * len(places), list(range(len(places)))
        near = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        missing = np.flatnonzero(self._places[near] != places)
        found = self._waiting[near]
        found[missing] = None
        return found.tolist(), missing.tolist()

    def _sort_out(self, classes: Column, found: list[Entry], why_ignored: WhyIgnored) -> None:
        _, firsts = np.unique(classes, return_index=True)
        if not any(found[at].cls.info.volumes or why_ignored(found[at].pod, found[at].cls) for at in firsts.tolist()):
            self.entries = found
            return
        for entry in found:
            why = why_ignored(entry.pod, entry.cls)
            if why:
                self.ignored.append((entry.pod, why))
            else:
                self.entries.append(entry)
