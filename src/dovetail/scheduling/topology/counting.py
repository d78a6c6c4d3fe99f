"""What a simulation counts for topology rules: the states of the groups in use, and which of them count a pod.

A group is counted from the moment in which a pod that its rule applies to is prepared. Decides nothing. Sits in
scheduling, below the packer.
"""

from collections.abc import Iterable, Sequence

from dovetail.scheduling.frame import Frame
from dovetail.scheduling.pods.classes import TERMINAL, TERMINATING, PodClass
from dovetail.scheduling.pods.variants import Variant
from dovetail.scheduling.topology.groups import INVERSE
from dovetail.scheduling.topology.states import GroupState


class Counting:
    """The states of one simulation, by group (`states`)."""

    def __init__(self, frame: Frame, removed: frozenset[int], moving: Iterable[tuple[PodClass, int, int]]) -> None:
        """Count nothing yet; `moving`: class, node and flags of bound pods that leave their nodes."""
        self.states: dict[int, GroupState] = {}
        self._frame = frame
        self._removed = removed
        ties = frame.settings.ties
        self._salt = f"{ties}/{sorted(removed)}" if ties else ""
        self._moving: dict[int, list[tuple[int, int]]] = {}
        for cls, node, flags in moving:
            self._moving.setdefault(cls.id, []).append((node, flags))
        self._recorders: dict[int, list[GroupState]] = {}

    def activate(self, variant: Variant) -> None:
        """Start counting for the rules of a variant; placements made before are not counted, as upstream."""
        for rule in variant.rules:
            group = rule.group
            if group.id in self.states:
                continue
            state = self.states[group.id] = GroupState(group, self._salt)
            self._recorders.clear()
            state.forget_nodes(self._removed)
            if self._moving:
                self._forget_moving(state)

    def _forget_moving(self, state: GroupState) -> None:
        """Remove the moving pods from a rule's counts."""
        moving, group = self._moving, state.group
        # A terminating pod still enforces its anti-affinity but counts nowhere else.
        uncounted = TERMINAL if group.kind == INVERSE else TERMINATING
        for cls_id in moving.keys() & group.based_on:
            for node, flags in moving[cls_id]:
                if not flags & uncounted:
                    state.forget_pod(node)

    def recorders_of(self, cls: PodClass) -> Sequence[GroupState]:
        """Return the states that count pods of a class."""
        if not self.states:
            return ()
        found = self._recorders.get(cls.id)
        if found is None:
            states, near = self.states, self._frame.counting.get(cls.id)
            found = [states[group.id] for group in near if group.id in states] if near else []
            if cls.info.anti_affinity:
                owned = self._frame.inverse_owned(cls)
                found.extend(self.states[group.id] for group in owned if group.id in self.states)
            self._recorders[cls.id] = found
        return found
