"""The pods that wait for a node, prepared for placement and carried from snapshot to snapshot.

Thousands may wait through many snapshots: a pod that has not changed keeps its entry, found by its position, and its
place in the queue. Pods that no new node could help are ignored, as Karpenter ignores them before it simulates: a pod
that refuses every pool's nodes, requests restricted labels, or has unusable claims. Sits in scheduling, below the
snapshot.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.model.labels.requirements import pod_requirements
from dovetail.model.labels.syntax import ALIASES, is_label_value, is_qualified_name
from dovetail.model.listing import Listing
from dovetail.model.objects import Pod, SelectorRequirement
from dovetail.scheduling.changes import places_before
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.pods import pod as filters
from dovetail.scheduling.pods.bindings import Bindings, Column
from dovetail.scheduling.pods.classes import PodClass
from dovetail.scheduling.pods.volumes import VolumeNeeds

WhyIgnored = Callable[[Pod, PodClass], str]
"""Why no node could help a pod; empty if one could. The same for all pods of a class without volumes."""
_by_key = attrgetter("key")
_FEW: Final = 200
"""If more pods are new, all are sorted again."""


class PendingPods:
    """`entries`: pods that a new node could help; `ignored`: those that none could help, each with the reason."""

    def __init__(
        self, bindings: Bindings, keys: frozenset[str], old: "PendingPods | None", why_ignored: WhyIgnored
    ) -> None:
        """Read them; `keys`: the labels by which pods are classed (another set may give other classes)."""
        self._pods = bindings.pods
        self._keys = keys
        unbound = np.flatnonzero(bindings.at == 0)
        found: npt.NDArray[np.object_] = np.full(len(unbound), None, dtype=object)
        missing, gone = np.arange(len(unbound)), list[Entry]()
        if old is not None and old._keys is keys:
            found, missing, gone = old._entries_at(self._places_in(old, unbound))
        else:
            old = None
        places = unbound[missing].tolist()
        new, passed_over = list[Entry](), list[int]()
        for here, place, cls in zip(missing.tolist(), places, bindings.classes_at(places), strict=True):
            pod = self._pods[place]
            if filters.is_provisionable(pod):
                found[here] = entry = Entry(pod, cls, exempt=True, pending=True)
                new.append(entry)
            else:
                passed_over.append(here)
        if passed_over:
            unbound, found = np.delete(unbound, passed_over), np.delete(found, passed_over)
        self._places: Column = unbound
        self._waiting = found
        self.entries: list[Entry] = []
        self.ignored: list[tuple[Pod, str]] = []
        self._sort_out(bindings.cls[unbound], found.tolist(), why_ignored)
        self._queue: list[Entry] | None = None if old is None else self._followed(old, gone, new)

    @property
    def queue(self) -> list[Entry]:
        """Return the entries in the order in which they are placed; don't modify them."""
        if self._queue is None:
            self._queue = sorted(self.entries, key=_by_key)
        return self._queue

    def _followed(self, old: "PendingPods", gone: list[Entry], new: list[Entry]) -> list[Entry] | None:
        """Return the queue of earlier pods without those that are gone and with new ones.

        None if the order has to be found again. Of two pods with the same key, the first in the cluster comes first;
        listings are always in the same order.
        """
        same_order = isinstance(self._pods, Listing) and isinstance(old._pods, Listing)
        if old._queue is None or not same_order or old.ignored or self.ignored or len(new) > _FEW:
            return None
        left = set(gone)
        queue = [entry for entry in old._queue if entry not in left] if left else old._queue.copy()
        for entry in new:
            place = bisect_left(queue, entry.key, key=_by_key)
            if place < len(queue) and queue[place].key == entry.key:
                return None
            queue.insert(place, entry)
        return queue

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

    def _entries_at(self, places: Column) -> tuple[npt.NDArray[np.object_], Column, list[Entry]]:
        """Return the entries of the pods at these places, for which of them there is none, and all other entries."""
        if not len(self._places):
            return np.full(len(places), None, dtype=object), np.arange(len(places)), []
        near = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        known = self._places[near] == places
        found, missing = self._waiting[near], np.flatnonzero(~known)
        found[missing] = None
        others = np.ones(len(self._places), dtype=np.bool_)
        others[near[known]] = False
        return found, missing, self._waiting[others].tolist()

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


_OPERATORS: Final = frozenset({"In", "NotIn", "Gt", "Lt", "Gte", "Lte", "Exists", "DoesNotExist"})
_BOUNDS: Final = frozenset({"Gt", "Lt", "Gte", "Lte"})
_RESERVED: Final = "karpenter.sh"
_CAPACITY_TYPES: Final = frozenset({names.SPOT, names.ON_DEMAND, names.RESERVED})


def why_ignored(pod: Pod, volumes: VolumeNeeds, known: frozenset[str]) -> str:
    """Return why a waiting pod is excluded; empty if it is not."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    pool = pod_requirements(pod.spec.node_selector, affinity, preferences=True).get(names.NODEPOOL)
    if pool is not None and pool.operator() == "DoesNotExist":
        return "it asks not to run on a node of any pool"
    entries = [SelectorRequirement(key=k, operator="In", values=(v,)) for k, v in pod.spec.node_selector.items()]
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        if term.match_fields:
            return "its node affinity selects by fields, which new nodes can't be made for"
        entries.extend(term.match_expressions)
    return _first_problem(entries, known) or (volumes.unusable or "")


def _first_problem(entries: Iterable[SelectorRequirement], known: frozenset[str]) -> str:
    for entry in entries:
        problem = _problem(entry, ALIASES.get(entry.key, entry.key), known)
        if problem:
            return f"its node affinity or selector {problem}"
    return ""


def _problem(entry: SelectorRequirement, key: str, known: frozenset[str]) -> str:
    if entry.operator not in _OPERATORS:
        return f"has the unknown operator {entry.operator} on {key}"
    domain = key.rpartition("/")[0]
    if key not in known and (key == names.HOSTNAME or domain == _RESERVED or domain.endswith("." + _RESERVED)):
        return f"asks for the label {key}, which no pool may set"
    if key == names.CAPACITY_TYPE and entry.operator == "In" and not _CAPACITY_TYPES & set(entry.values):
        return f"asks for a {key} that does not exist"
    if not is_qualified_name(key):
        return f"names {key!r}, which is not a valid label"
    wrong = next((value for value in entry.values if not is_label_value(value)), None)
    if wrong is not None:
        return f"asks for {key} = {wrong!r}, which is not a valid label value"
    if entry.operator == "In" and not entry.values:
        return f"lists no value for {key}"
    if entry.operator in _BOUNDS and not (len(entry.values) == 1 and entry.values[0].isdigit()):
        return f"needs one whole number for {key} with {entry.operator}"
    return ""
