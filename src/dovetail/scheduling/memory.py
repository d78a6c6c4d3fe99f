"""What a snapshot hands over to the next one: registries that only grow, and the last results.

Decides nothing; `scheduling.snapshot` owns it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from dovetail.model.catalogue import Catalogue
from dovetail.scheduling.launch.daemons import Daemon, DaemonTerms
from dovetail.scheduling.launch.machines import Machines, Resources
from dovetail.scheduling.launch.templates import Template, UnmetCache
from dovetail.scheduling.pods.bindings import NodeNames
from dovetail.scheduling.pods.class_index import ClassIndex
from dovetail.scheduling.pods.classes import Classes
from dovetail.scheduling.pods.terms import ClassTerms
from dovetail.scheduling.room import Needs, Sizes
from dovetail.scheduling.rows import RowRegistries

Made = TypeVar("Made")


class Last(Generic[Made]):
    """The last result of a computation; valid while what it was made from is equal."""

    def __init__(self) -> None:
        self._made: tuple[tuple[object, ...], Made] | None = None

    def of(self, made_from: tuple[object, ...], make: Callable[[], Made]) -> Made:
        """Return the last result if it was made from the same, else a new one."""
        if self._made is None or self._made[0] != made_from:
            self._made = made_from, make()
        return self._made[1]


class SnapshotMemory(msgspec.Struct, frozen=True, eq=False):
    """What the next snapshot reuses.

    `ignored`: why pods of a spec without volumes can't be helped; empty where they can.
    """

    catalogue: Catalogue
    resources: Resources
    classes: Classes
    machines: Machines
    names: NodeNames
    unmet: UnmetCache
    sizes: Sizes
    needs: Needs
    daemons: Last[tuple[Daemon, ...]]
    templates: Last[tuple[DaemonTerms, tuple[Template, ...]]]
    index: Last[ClassIndex]
    terms: Last[ClassTerms]
    ignored: dict[int, str]

    @property
    def of_rows(self) -> RowRegistries:
        """Return what nodes are numbered by."""
        return RowRegistries(self.resources, self.names, self.sizes)


def memory_for(catalogue: Catalogue, old: SnapshotMemory | None) -> SnapshotMemory:
    """Return the memory of a new snapshot: empty, or that of the previous one."""
    if old is None:
        resources = Resources()
        return SnapshotMemory(
            catalogue=catalogue,
            resources=resources,
            classes=Classes(resources),
            machines=Machines(catalogue, resources),
            names=NodeNames(),
            unmet=UnmetCache(),
            sizes=Sizes(),
            needs=Needs(),
            daemons=Last(),
            templates=Last(),
            index=Last(),
            terms=Last(),
            ignored={},
        )
    if old.catalogue is catalogue:
        return old
    machines = Machines(catalogue, old.resources)
    return msgspec.structs.replace(old, catalogue=catalogue, machines=machines, ignored={})
