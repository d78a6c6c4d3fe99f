"""What is left of the pools' limits, without the nodes that a simulation removes.

Sits in scheduling, below the snapshot.
"""

from collections.abc import Mapping, Sequence

from dovetail.model import names
from dovetail.scheduling.launch.machines import Mask
from dovetail.scheduling.launch.templates import Template
from dovetail.scheduling.nodes import StateNode


class PoolLimits:
    """The limits of the templates' pools against the nodes that stay."""

    def __init__(self, templates: Sequence[Template], states: Sequence[StateNode], staying: Mask) -> None:
        self._states, self._staying = states, staying
        self._left = {template.index: dict(template.limits) for template in templates if template.limits}
        self._place = {template.name: template.index for template in templates if template.limits}
        for state, stays in zip(states, staying.tolist(), strict=True) if self._left else ():
            at = self._place.get(state.labels.get(names.NODEPOOL, "")) if stays else None
            if at is not None:
                _take(self._left[at], state.capacity, -1)

    def left_without(self, removed: Sequence[int]) -> dict[int, dict[str, int]]:
        """Return what each template's pool has left once these nodes are gone; the caller may modify it."""
        left = {at: dict(amounts) for at, amounts in self._left.items()}
        for index in removed if left else ():
            state = self._states[index]
            at = self._place.get(state.labels.get(names.NODEPOOL, ""))
            if at is not None and self._staying[index]:
                _take(left[at], state.capacity, 1)
        return left


def _take(left: dict[str, int], capacity: Mapping[str, int], sign: int) -> None:
    for name in left:
        left[name] += sign * (1 if name == "nodes" else capacity.get(name, 0))
