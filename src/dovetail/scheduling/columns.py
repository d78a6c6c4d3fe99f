"""Nodes as columns: interned labels and taints, and the masks of nodes that meet requirements or are tolerated.

Every mask is computed once per distinct set of requirements or tolerations and kept for the snapshot. Knows nodes in
the order in which pods are offered to them (initialized first, then by name); knows nothing of pods or room.
"""

from collections.abc import Iterable, Sequence
from typing import Final

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
Places = npt.NDArray[np.int64]
_SETS_MAX: Final = 1000
"""How many sets of taints are kept, whether a node has them or not, before all nodes are read again."""
_OLD_NAMES = {new: old for old, new in ALIASES.items()}


def _taint_key(taints: Sequence[Taint]) -> tuple[tuple[str, str, str], ...]:
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


class _TaintCodes:
    """The distinct sets of taints of nodes, and for each node the index of its set."""

    def __init__(self, sets: Sequence[tuple[Taint, ...]], codes: Codes) -> None:
        self.sets, self.codes = list(sets), codes

    def read(self, places: Iterable[int], rows: Iterable[tuple[Taint, ...]]) -> None:
        """Read the taints of the nodes at some places."""
        known = {_taint_key(taints): code for code, taints in enumerate(self.sets)}
        for place, taints in zip(places, rows, strict=True):
            code = known.setdefault(_taint_key(taints), len(known))
            if code == len(self.sets):
                self.sets.append(taints)
            self.codes[place] = code

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> Mask:
        """Return the nodes whose taints are all tolerated."""
        allowed = np.array([tolerates(tolerations, taints) for taints in self.sets], dtype=np.bool_)
        return allowed[self.codes] if self.sets else np.ones(0, dtype=np.bool_)


class NodeColumns:
    """Labels and taints of all nodes as integer codes."""

    _taints: _TaintCodes
    _raw_taints: _TaintCodes

    def __init__(
        self, states: Sequence[StateNode], old: "NodeColumns | None" = None, was: Places | None = None
    ) -> None:
        """Read nodes; `was`: the places of nodes with the same state in the old columns, -1: it has to be read."""
        self.states = states
        self.count = len(states)
        self._labels: dict[str, tuple[list[str], Codes]] = {}
        self._label_masks: dict[Requirements, Mask] = {}
        self._entry_masks: dict[Requirement, Mask] = {}
        self._taint_masks: dict[tuple[bool, tuple[Toleration, ...]], Mask] = {}
        if old is None or was is None or not old.count or len(old._taints.sets) > _SETS_MAX:
            fresh = list(range(self.count))
            self._taints = _TaintCodes((), np.zeros(self.count, dtype=np.int32))
            self._raw_taints = _TaintCodes((), np.zeros(self.count, dtype=np.int32))
            self.renamed: Mask = np.zeros(self.count, dtype=np.bool_)
            self.unnamed: Mask = np.zeros(self.count, dtype=np.bool_)
        else:
            fresh = np.flatnonzero(was < 0).tolist()
            self._taints = _TaintCodes(old._taints.sets, old._taints.codes[was])
            self._raw_taints = _TaintCodes(old._raw_taints.sets, old._raw_taints.codes[was])
            self.renamed, self.unnamed = old.renamed[was], old.unnamed[was]
        coming = [states[place] for place in fresh]
        self._taints.read(fresh, [state.taints for state in coming])
        self._raw_taints.read(fresh, map(_raw_taints, coming))
        self.renamed[fresh] = [state.renamed for state in coming]
        self.unnamed[fresh] = [state.unnamed for state in coming]

    def carried_to(self, states: Sequence[StateNode], places: Iterable[int]) -> bool:
        """Return whether these columns are still valid for newer states of the same nodes; if so, adopt those.

        `places`: where states may have changed.
        """
        if not all(_reads_alike(self.states[place], states[place]) for place in places):
            return False
        self.states = states
        return True

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
        key = (raw, tolerations)
        mask = self._taint_masks.get(key)
        if mask is None:
            mask = (self._raw_taints if raw else self._taints).tolerated(tolerations)
            self._taint_masks[key] = mask
        return mask
