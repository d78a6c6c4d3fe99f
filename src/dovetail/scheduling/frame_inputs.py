"""The inputs of a frame, so that the next snapshot can tell whether it would compile the same frame again.

Most changes in a cluster between two rounds don't matter to simulations: a pod became ready, a node reported. The next
snapshot then reuses the whole frame, with everything computed in it. Also what of the nodes is free and in use, of
which a frame is compiled. Decides nothing. Sits in scheduling, below the
snapshot.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import fields

import msgspec
import numpy as np

from dovetail.model.cluster import Cluster
from dovetail.model.listing import are_the_same
from dovetail.model.objects import Pod
from dovetail.model.settings import Settings
from dovetail.scheduling.columns import NodeColumns, Places
from dovetail.scheduling.frame import Frame, Moving
from dovetail.scheduling.launch.daemons import DaemonTerms
from dovetail.scheduling.launch.machines import Amounts, Machines, Mask
from dovetail.scheduling.memory import SnapshotMemory
from dovetail.scheduling.nodes import StateNode
from dovetail.scheduling.pods.bindings import Bindings
from dovetail.scheduling.pods.classes import Classes
from dovetail.scheduling.pods.pod import HostPort
from dovetail.scheduling.pods.volumes import Storage
from dovetail.scheduling.room import expected_daemons, room_at, room_left

_READ = ("node_pools", "daemon_sets", "pvcs", "pvs", "storage_classes", "csi_nodes", "namespaces")
"""The kinds of objects that a frame reads as they are; nodes and pods it reads as columns."""
_SETTINGS = tuple(
    field.name for field in fields(Settings) if field.name not in ("marked_for_deletion_nodes", "nominated_nodes")
)
"""The settings that a frame may depend on besides the nodes that leave; nominated nodes are for decisions only."""
_FEW = 16
_SHARE = 2
"""If fewer than one node of so many changed, only they are looked at; with more, starting afresh is as fast."""


class FrameInputs(msgspec.Struct, frozen=True, eq=False):
    """Everything a frame depends on. `moving`: pods that move in every simulation; `codes`, `sizes`: by node."""

    settings: Settings
    cluster: Cluster
    machines: Machines
    width: int
    columns: NodeColumns
    bindings: Bindings
    codes: "array[int]"
    sizes: Sequence[int]
    staying: Mask
    joined: Mask
    moving: Moving
    virtual: Sequence[int]


class LastFrame(msgspec.Struct, frozen=True, eq=False):
    """The frame that was compiled last, and what it was compiled from.

    `changed`: the numbers of the nodes with another state or other pods since then; None: any may have. `same_daemons`:
    no pod of a DaemonSet has come or gone since then.
    """

    inputs: FrameInputs
    frame: Frame
    changed: frozenset[int] | None = frozenset()
    same_daemons: bool = True

    def later(self, changed: Iterable[int] | None, *, same_daemons: bool) -> "LastFrame | None":
        """Return the same frame, with more nodes that have changed; None once too many have."""
        both = None if changed is None or self.changed is None else self.changed.union(changed)
        if both is not None and len(both) > _FEW + len(self.inputs.codes) // _SHARE:
            return None
        return LastFrame(self.inputs, self.frame, both, same_daemons and self.same_daemons)

    def places(self, codes: "array[int]") -> tuple[Places, Places]:
        """Return the places of nodes in the frame, -1 where it has none; and the same with -1 where a node changed.

        `codes`: the numbers of the nodes' names.
        """
        was = self.inputs.bindings.was_at(codes)
        if self.changed is None:
            return was, np.full(len(codes), -1, dtype=np.int64)
        numbers = np.frombuffer(codes, dtype=np.int64)
        changed = np.fromiter(self.changed, dtype=np.int64)
        owner = np.full(max(numbers.max(initial=0), changed.max(initial=0)) + 1, -1, dtype=np.int64)
        owner[numbers] = np.arange(len(numbers))  # of two nodes with the same name, the last has the pods
        owner[changed] = -1
        return was, np.where(owner[numbers] == np.arange(len(numbers)), was, -1)

    def columns(self, states: Sequence[StateNode], bindings: Bindings, codes: "array[int]") -> NodeColumns:
        """Return labels and taints of newer nodes; the columns of the frame if nothing in them changed."""
        if codes is self.inputs.codes and not self.changed and self.changed is not None:
            return self.frame.columns  # the very same nodes
        was, same = self.places(codes)
        changed = np.flatnonzero(same < 0).tolist()
        if len(changed) < len(same) // _SHARE:
            bindings.look_up(changed)
        own = self.frame.columns
        stand = (was == np.arange(len(was))) | (np.frombuffer(codes, dtype=np.int64) == 0)
        if own.count == len(was) and stand.all() and own.carried_to(states, changed):
            return own
        return NodeColumns(states, own, same)

    def serves(self, inputs: FrameInputs) -> bool:
        """Return whether the frame is valid for newer inputs.

        If ties are broken at random, a draw depends on earlier calls, so such a frame is never reused. The pods of
        DaemonSets must be identical: the newest of them determines what is expected on new nodes.
        """
        own = self.inputs
        return (
            self.same_daemons
            and not inputs.settings.ties
            and inputs.columns is own.columns
            and inputs.machines is own.machines
            and inputs.width == own.width
            and all(are_the_same(getattr(inputs.cluster, name), getattr(own.cluster, name)) for name in _READ)
            and inputs.settings == own.settings
            and inputs.moving == own.moving
            and inputs.virtual == own.virtual
            and np.array_equal(inputs.staying, own.staying)
            and np.array_equal(inputs.joined, own.joined)
            and inputs.bindings.counts_like(own.bindings)
            and inputs.sizes == own.sizes
        )

    def serves_if_others_leave(self, inputs: FrameInputs) -> bool:
        """Return whether the frame differs from one for newer inputs only by the nodes that leave.

        Commands that start or end at the same moment change nothing else.
        """
        own = self.inputs
        return (
            inputs.cluster is own.cluster
            and not inputs.settings.ties
            and inputs.columns is own.columns
            and inputs.machines is own.machines
            and inputs.width == own.width
            and inputs.virtual == own.virtual
            and all(getattr(inputs.settings, name) == getattr(own.settings, name) for name in _SETTINGS)
        )

    def tells_daemons(self, cluster: Cluster, settings: Settings) -> bool:
        """Return whether the frame expects the pods of the DaemonSets that a newer cluster has."""
        own = self.inputs
        return (
            self.same_daemons
            and are_the_same(cluster.daemon_sets, own.cluster.daemon_sets)
            and settings.karpenter == own.settings.karpenter
            and settings.rules == own.settings.rules
        )

    def tells_room(self, inputs: FrameInputs, daemons: DaemonTerms, width: int) -> bool:
        """Return whether nodes that have not changed have as much room as in the frame; `width`: of how many kinds."""
        own = self.inputs
        return (
            len(self.frame.room) > 0
            and self.frame.room.shape[1] == width
            and self.frame.daemons.equals(daemons)
            and inputs.settings.rules == own.settings.rules
            and inputs.settings.karpenter == own.settings.karpenter
        )


def free_room(inputs: FrameInputs, terms: DaemonTerms, memory: SnapshotMemory, last: LastFrame | None) -> Amounts:
    """Return the free resources of all nodes; of the last frame, those of nodes that have not changed."""
    resources, bindings = memory.resources, inputs.bindings
    needs = memory.needs.of(memory.classes.all, len(resources.names))
    if last is None or not last.tells_room(inputs, terms, len(resources.names)):
        total, there = memory.sizes.of(inputs.sizes, resources)
        return room_left(total, there, bindings, needs, expected_daemons(terms, inputs.columns, resources))
    same = last.places(inputs.codes)[1]
    fresh = np.flatnonzero(same < 0)
    room: Amounts = last.frame.room[same]
    total, there = memory.sizes.of([inputs.sizes[place] for place in fresh.tolist()], resources)
    expected = expected_daemons(terms, inputs.columns, resources, fresh)
    room[fresh] = room_at(fresh, total, there, bindings, needs, expected)
    return room


def ports_and_volumes(
    pods: Sequence[Pod], bindings: Bindings, storage: Storage, classes: Classes
) -> tuple[dict[int, list[HostPort]], dict[int, dict[str, set[str]]]]:
    """Return the host ports in use by node, and the attached volumes by node and driver if there are attach limits."""
    ports: dict[int, list[HostPort]] = {}
    attached: dict[int, dict[str, set[str]]] = {}
    limits = bool(storage.limits)
    if not limits and not classes.ports:
        return ports, attached
    special = np.array([bool(c.info.ports) or (limits and c.info.volumes) for c in classes.all], dtype=np.bool_)
    for at in np.flatnonzero(bindings.running & special[bindings.cls]).tolist():
        pod, info, node = pods[at], bindings.class_at(at).info, int(bindings.node[at])
        if info.ports:
            ports.setdefault(node, []).extend(info.ports)
        if limits and info.volumes:
            for driver, claim in storage.needs(pod.metadata.namespace, pod.metadata.name, pod.spec).attached:
                attached.setdefault(node, {}).setdefault(driver, set()).add(claim)
    return ports, attached
