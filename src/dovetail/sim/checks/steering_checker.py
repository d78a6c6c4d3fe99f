"""The promises of docs/rules.md#steering: foreign values stay, a rate limit, one mark per ReplicaSet, all removed.

Sits in the simulator, beside the other checkers.
"""

from typing import TYPE_CHECKING, cast

from dovetail.lifecycle.messages import CloseNode, Instruction, MarkPod, OpenNode, UnmarkPod
from dovetail.model import names
from dovetail.model.objects import Pod
from dovetail.model.settings import SteeringMode
from dovetail.sim.checks.promises import Checker
from dovetail.sim.world.clock import MINUTE
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch


class SteeringChecker(Checker):
    """Marks of steering are few and slow, and never replace foreign values."""

    rule = "steering"
    follows = ("Pod",)

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._writes: list[int] = []

    def changed(self, change: Change) -> None:
        """Check that a deletion cost that somebody else wrote is not taken over."""
        if change.old is None or change.new is None:
            return
        old, new = cast("Pod", change.old).metadata.annotations, cast("Pod", change.new).metadata.annotations
        theirs = names.POD_DELETION_COST in old and old.get(names.STEERING_MARK) != old[names.POD_DELETION_COST]
        if theirs and new.get(names.POD_DELETION_COST) != old[names.POD_DELETION_COST]:
            self.broken(f"the deletion cost of {change.key} was {old[names.POD_DELETION_COST]} and Dovetail changed it")

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Count the writes of a minute; the rate is per engine, and one may take over from another."""
        if not isinstance(instruction, MarkPod | UnmarkPod | CloseNode | OpenNode):
            return
        settings, now = host.engine.settings, self.world.now
        self._writes = [at for at in self._writes if at > now - MINUTE] + [now]
        if len(self._writes) > 2 * settings.steering_writes_per_minute:
            self.broken(f"{len(self._writes)} writes of steering in a minute")
        if settings.steering is SteeringMode.OFF and isinstance(instruction, MarkPod | CloseNode):
            self.broken("steering is off, and something was marked")

    def ended(self) -> None:
        """Check that every ReplicaSet has one mark at most, and none without steering."""
        marked: dict[str, int] = {}
        for pod in self.store.pods.values():
            if names.STEERING_MARK in pod.metadata.annotations and pod.metadata.deletion_timestamp is None:
                for owner in pod.metadata.owner_references:
                    marked[owner.uid] = marked.get(owner.uid, 0) + 1
        for owner_uid, count in sorted(marked.items()):
            if count > 1:
                self.broken(f"{count} pods of the ReplicaSet {owner_uid} are marked")
