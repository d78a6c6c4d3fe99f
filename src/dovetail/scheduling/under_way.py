"""What commands in progress have planned for the pods of their nodes, and how a simulation respects it.

A command that waits for its validation, or for its machines, has planned where the pods of its nodes will go: to
existing nodes, or to replacements that are not visible yet. The next command must neither launch for those pods again
nor use the room planned for them. Sits in scheduling, above the packer and below simulate.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from dovetail.model.command import Placement, Replacement
from dovetail.model.labels.requirements import Requirements
from dovetail.scheduling.entries import Entry, Lane
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.launch.claims import Claim
from dovetail.scheduling.launch.machines import Amounts, Mask, TypeBits
from dovetail.scheduling.launch.templates import Template
from dovetail.scheduling.packer import Packer
from dovetail.scheduling.pods.variants import NodeList

_NONE: Final[frozenset[int]] = frozenset()


class UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of commands in progress for pods (`namespace/name`) of leaving nodes.

    `launches`: replacements whose machine is not known yet, each with its pods. `placements`: existing nodes, or
    NodeClaims whose machine is known, and the pods planned for them.
    """

    launches: tuple[Replacement, ...] = ()
    placements: tuple[Placement, ...] = ()


NOTHING_UNDER_WAY = UnderWay()


class Settled:
    """The planned places of the pods of leaving nodes, in every simulation that removes none of these nodes.

    Valid if no topology rule applies, neither to them nor to the other pods of a simulation. `unsettled`: pods without
    a plan, or whose plan no longer works. `nodes`: the existing nodes with such a pod.
    """

    __slots__ = ("_launched", "_lists", "_open", "_room", "_touched", "nodes", "unsettled")

    def __init__(self, scratch: Packer, leaving: dict[str, Entry], plans: UnderWay, index: Mapping[str, int]) -> None:
        """Place them in `scratch`, a packing that removes nothing and has placed nothing."""
        self.unsettled, self._launched = _settle(scratch, leaving, plans, index)
        self._touched = scratch.touched
        for here in self._touched.values():
            here.shared = True
        self.nodes = frozenset(scratch.touched)
        self._room: Amounts | None = None
        self._open: tuple[frozenset[int], Mask] | None = None
        self._lists: dict[tuple[int, frozenset[int]], tuple[NodeList, NodeList]] = {}

    def room(self, frame: Frame) -> Amounts:
        """Return the free resources of all nodes once the pods are in their planned places; don't modify them."""
        if self._room is None:
            self._room = frame.room.copy()
            for node, here in self._touched.items():
                self._room[node] = here.left
        return self._room

    def serves(self, engine: Packer) -> bool:
        """Return whether it is valid for a simulation whose pods are prepared."""
        return not engine.states and self.nodes.isdisjoint(engine.removed)

    def put_into(self, engine: Packer) -> None:
        """Place the pods there, before any other."""
        engine.touched.update(self._touched)
        for lane in engine.lanes.values():
            if lane is not None:
                lane.nodes, lane.closed = self._left_in(lane, engine.frame), _NONE
        engine.opened += len(self._launched)
        for claim in self._launched if engine.limits_left else ():
            engine.charge(claim)

    def _left_in(self, lane: Lane, frame: Frame) -> NodeList:
        """Return the nodes of a lane that are open and still have room for a pod; computed once for all simulations."""
        key = (id(lane.nodes), lane.closed)
        if key not in self._lists:
            every, room = lane.nodes.all, self.room(frame)
            keep = self._opened(lane.closed, len(room))[every]
            for column, amount in lane.need:
                keep &= room[every, column] >= amount
            self._lists[key] = lane.nodes, NodeList(every[keep])
        return self._lists[key][1]

    def _opened(self, closed: frozenset[int], count: int) -> Mask:
        """Return which nodes are not closed; simulations of a round close the same ones."""
        if self._open is None or self._open[0] is not closed:
            found = np.ones(count, dtype=np.bool_)
            found[list(closed)] = False
            self._open = closed, found
        return self._open[1]


def settle(engine: Packer, leaving: Sequence[Entry], plans: UnderWay, index: Mapping[str, int]) -> list[Entry]:
    """Place pods of leaving nodes as planned; return those without a plan, or whose plan no longer works."""
    return _settle(engine, {entry.name: entry for entry in leaving}, plans, index)[0]


def _settle(
    engine: Packer, waiting: dict[str, Entry], plans: UnderWay, index: Mapping[str, int]
) -> tuple[list[Entry], list[Claim]]:
    """Place the pods that wait, by name; what is left of them is the first result."""
    launched: list[Claim] = []
    templates = {template.name: template for template in engine.frame.templates}
    for launch in plans.launches:
        template = templates.get(launch.node_pool)
        if template is not None:
            entries = [entry for name in launch.pods if (entry := waiting.pop(name, None)) is not None]
            launched.append(_launch(engine, template, launch, entries))
    for place in plans.placements:
        node = index.get(place.node)
        for name in place.pods if node is not None else ():
            entry = waiting.get(name)
            if entry is not None and node is not None and engine.put_on(entry, node):
                del waiting[name]
    return list(waiting.values()), launched


def _launch(engine: Packer, template: Template, launch: Replacement, entries: Sequence[Entry]) -> Claim:
    """Count a planned launch against the pool's limits and in the topology; no other pods may join it.

    Which types it may be matters only for limits, and its requirements only for topology.
    """
    limited = template.index in engine.limits_left
    claim = Claim(engine.next_number(), template, _types(engine, template, launch) if limited else template.types)
    if limited:
        engine.charge(claim)
    if engine.states:
        machines = engine.frame.machines
        wanted = machines.intern(Requirements.from_spec(launch.requirements))
        claim.reqs = machines.merged(template.reqs, wanted) or template.reqs
        for entry in entries:
            engine.count_on_claim(entry, claim)
    return claim


def _types(engine: Packer, template: Template, launch: Replacement) -> TypeBits:
    named: TypeBits = 0
    for name in launch.instance_types:
        place = engine.frame.machines.place.get(name)
        if place is not None:
            named |= 1 << place
    return template.types & named or template.types
