"""What commands in progress have planned for the pods of their nodes, and how a simulation respects it.

A command that waits for its validation, or for its machines, has planned where the pods of its nodes will go: to
existing nodes, or to replacements that are not visible yet. The next command must neither launch for those pods again
nor use the room planned for them. Sits in scheduling, above the packer and below simulate.
"""

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.model.command import Placement, Replacement
from dovetail.model.labels.requirements import Requirements
from dovetail.scheduling.entries import Entry
from dovetail.scheduling.frame import Frame
from dovetail.scheduling.launch.claims import Claim
from dovetail.scheduling.launch.machines import Amounts, TypeBits
from dovetail.scheduling.launch.templates import Template
from dovetail.scheduling.packer import Packer


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

    __slots__ = ("_launched", "_touched", "nodes", "unsettled")

    def __init__(self, scratch: Packer, leaving: Sequence[Entry], plans: UnderWay, index: Mapping[str, int]) -> None:
        """Place them in `scratch`, a packing that removes nothing and has placed nothing."""
        self.unsettled, self._launched = _settle(scratch, leaving, plans, index)
        self._touched = scratch.touched
        for here in self._touched.values():
            here.shared = True
        self.nodes = frozenset(scratch.touched)

    def room(self, frame: Frame) -> Amounts:
        """Return the free resources of all nodes once the pods are in their planned places."""
        left = frame.room.copy()
        for node, here in self._touched.items():
            left[node] = here.left
        return left

    def serves(self, engine: Packer) -> bool:
        """Return whether it is valid for a simulation whose pods are prepared."""
        return not engine.states and self.nodes.isdisjoint(engine.removed)

    def put_into(self, engine: Packer) -> None:
        """Place the pods there, before any other."""
        engine.touched.update(self._touched)
        engine.opened += len(self._launched)
        for claim in self._launched if engine.limits_left else ():
            engine.charge(claim)


def settle(engine: Packer, leaving: Sequence[Entry], plans: UnderWay, index: Mapping[str, int]) -> list[Entry]:
    """Place pods of leaving nodes as planned; return those without a plan, or whose plan no longer works."""
    return _settle(engine, leaving, plans, index)[0]


def _settle(
    engine: Packer, leaving: Sequence[Entry], plans: UnderWay, index: Mapping[str, int]
) -> tuple[list[Entry], list[Claim]]:
    launched: list[Claim] = []
    waiting = {_name(entry): entry for entry in leaving}
    templates = {template.name: template for template in engine.frame.templates}
    for launch in plans.launches:
        template = templates.get(launch.node_pool)
        if template is not None:
            entries = [waiting.pop(name) for name in launch.pods if name in waiting]
            launched.append(_launch(engine, template, launch, entries))
    for place in plans.placements:
        node = index.get(place.node)
        for name in place.pods if node is not None else ():
            entry = waiting.get(name)
            if entry is not None and node is not None and engine.put_on(entry, node):
                del waiting[name]
    return list(waiting.values()), launched


def _name(entry: Entry) -> str:
    meta = entry.pod.metadata
    return f"{meta.namespace}/{meta.name}"


def _launch(engine: Packer, template: Template, launch: Replacement, entries: Sequence[Entry]) -> Claim:
    """Count a planned launch against the pool's limits and in the topology; no other pods may join it."""
    machines = engine.frame.machines
    claim = Claim(engine.next_number(), template, _types(engine, template, launch))
    wanted = machines.intern(Requirements.from_spec(launch.requirements))
    claim.reqs = machines.merged(template.reqs, wanted) or template.reqs
    engine.charge(claim)
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
