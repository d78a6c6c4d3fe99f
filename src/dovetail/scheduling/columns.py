"""Nodes as columns: interned labels and taints, and the masks of nodes that meet requirements or are tolerated.

Every mask is computed once per distinct set of requirements or tolerations and kept for the snapshot. Knows nodes in
the order in which pods are offered to them (initialized first, then by name); knows nothing of pods or room.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.model import names
from dovetail.model.labels.requirements import Requirement, Requirements
from dovetail.model.labels.syntax import ALIASES
from dovetail.model.objects import Taint, Toleration
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.pod import tolerates

Codes = npt.NDArray[np.int32]
_OLD_NAMES = {new: old for old, new in ALIASES.items()}


def _taint_mark(taints: Sequence[Taint]) -> tuple[tuple[str, str, str], ...]:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)


def _reads_alike(one: StateNode, other: StateNode) -> bool:
    """Return whether two states of a node agree in name, labels and taints."""
    return one is other or (
        one.name == other.name
        and one.hostname == other.hostname
        and (one.renamed, one.unnamed) == (other.renamed, other.unnamed)
        and (one.labels is other.labels or one.labels == other.labels)
        and one.taints == other.taints
        and _raw_taints(one) == _raw_taints(other)
    )


def _raw_taints(state: StateNode) -> tuple[Taint, ...]:
    """Return the taints of a node as its Node has them."""
    return state.node.spec.taints if state.node is not None else state.taints


class NodeColumns:
    """Labels and taints of all nodes as integer codes."""

    def __init__(self, states: Sequence[StateNode]) -> None:
        self.states = states
        self.count = len(states)
        self._labels: dict[str, tuple[list[str], Codes]] = {}
        self._label_masks: dict[Requirements, Mask] = {}
        self._entry_masks: dict[Requirement, Mask] = {}
        self._taint_masks: dict[tuple[bool, tuple[Toleration, ...]], Mask] = {}
        self.taint_sets, self._taint_codes = self._code_taints([state.taints for state in states])
        self.renamed: Mask = np.array([state.renamed for state in states], dtype=np.bool_)
        self.unnamed: Mask = np.array([state.unnamed for state in states], dtype=np.bool_)
        self.raw_taint_sets, self._raw_taint_codes = self._code_taints(list(map(_raw_taints, states)))

    def carried_to(self, states: Sequence[StateNode]) -> bool:
        """Return whether these columns are still valid for newer states of the same nodes; if so, adopt those."""
        if len(states) != self.count or not all(map(_reads_alike, self.states, states)):
            return False
        self.states = states
        return True

    def _code_taints(self, rows: list[tuple[Taint, ...]]) -> tuple[list[tuple[Taint, ...]], Codes]:
        places: dict[tuple[tuple[str, str, str], ...], int] = {}
        sets: list[tuple[Taint, ...]] = []
        codes = np.zeros(self.count, dtype=np.int32)
        for i, taints in enumerate(rows):
            mark = _taint_mark(taints) if taints else ()
            place = places.get(mark)
            if place is None:
                place = places[mark] = len(sets)
                sets.append(taints)
            codes[i] = place
        return sets, codes

    def labels(self, key: str) -> tuple[list[str], Codes]:
        """Return the values of a label, sorted, and for each node the index of its value.

        -1 where the node has no such label.
        """
        found = self._labels.get(key)
        if found is None:
            found = self._labels[key] = self._code_labels(key)
        return found

    def _code_labels(self, key: str) -> tuple[list[str], Codes]:
        old = _OLD_NAMES.get(key)
        if key == names.HOSTNAME:
            texts: list[str | None] = [state.hostname for state in self.states]
        else:
            texts = [state.labels.get(key) for state in self.states]
            if old is not None:
                texts = [s.labels.get(old) if t is None else t for s, t in zip(self.states, texts, strict=True)]
        values = sorted({text for text in texts if text is not None})
        place: dict[str | None, int] = {value: i for i, value in enumerate(values)}
        codes = np.fromiter((place.get(text, -1) for text in texts), dtype=np.int32, count=self.count)
        return values, codes

    def _entry_mask(self, entry: Requirement) -> Mask:
        mask = self._entry_masks.get(entry)
        if mask is None:
            values, codes = self.labels(entry.key)
            allowed = np.array([*(entry.has(value) for value in values), entry.lenient()], dtype=np.bool_)
            mask = self._entry_masks[entry] = allowed[codes]
        return mask

    def meets(self, reqs: Requirements) -> Mask:
        """Return the nodes whose labels meet the requirements.

        A missing label meets only NotIn and DoesNotExist.
        """
        mask = self._label_masks.get(reqs)
        if mask is None:
            mask = np.ones(self.count, dtype=np.bool_)
            for entry in reqs:
                mask = mask & self._entry_mask(entry)
            self._label_masks[reqs] = mask
        return mask

    def tolerated(self, tolerations: tuple[Toleration, ...], *, raw: bool = False) -> Mask:
        """Return the nodes whose taints are all tolerated; `raw`: including taints that go away while a node starts."""
        mark = (raw, tolerations)
        mask = self._taint_masks.get(mark)
        if mask is None:
            sets, codes = (self.raw_taint_sets, self._raw_taint_codes) if raw else (self.taint_sets, self._taint_codes)
            allowed = np.array([tolerates(tolerations, taints) for taints in sets], dtype=np.bool_)
            mask = allowed[codes] if sets else np.ones(0, dtype=np.bool_)
            self._taint_masks[mark] = mask
        return mask
