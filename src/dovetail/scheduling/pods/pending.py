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
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.bindings import Bindings, Column
from dovetail.scheduling.pods.classes import PodClass

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
        self._at: npt.NDArray[np.object_] = np.empty(len(self._pods), dtype=object)
        self._known: Mask = np.zeros(len(self._pods), dtype=np.bool_)
        if old is not None and old._keys is keys:
            self._carry(old, unbound)
        for place in unbound[~self._known[unbound]].tolist():
            pod = self._pods[place]
            if filters.is_provisionable(pod):
                self._at[place] = Entry(pod, bindings.class_at(place), exempt=True, pending=True)
                self._known[place] = True
        self.entries: list[Entry] = []
        self.ignored: list[tuple[Pod, str]] = []
        self._sort_out(bindings, unbound[self._known[unbound]], why_ignored)

    def _carry(self, old: "PendingPods", unbound: Column) -> None:
        """Take over the entries of pods that are the same objects."""
        pods = self._pods
        if pods is old._pods:
            self._at, self._known = old._at, old._known
        elif isinstance(pods, Listing) and isinstance(old._pods, Listing) and pods.since is old._pods.mark:
            was = np.frombuffer(pods.origin, dtype=np.int64)
            there = np.flatnonzero(was >= 0)
            self._at[there] = old._at[was[there]]
            self._known[there] = old._known[was[there]]
        else:
            known = {id(entry.pod): entry for entry in old._at[old._known].tolist()}
            for place in unbound.tolist():
                entry = known.get(id(pods[place]))
                if entry is not None:  # the old pods are alive, so an equal id means the same object
                    self._at[place], self._known[place] = entry, True

    def _sort_out(self, bindings: Bindings, waiting: Column, why_ignored: WhyIgnored) -> None:
        found: list[Entry] = self._at[waiting].tolist()
        _, firsts = np.unique(bindings.cls[waiting], return_index=True)
        if not any(found[at].cls.info.volumes or why_ignored(found[at].pod, found[at].cls) for at in firsts.tolist()):
            self.entries = found
            return
        for entry in found:
            why = why_ignored(entry.pod, entry.cls)
            if why:
                self.ignored.append((entry.pod, why))
            else:
                self.entries.append(entry)
