"""What a snapshot hands over to the next one: registries that only grow, and results by object.

Decides nothing; `scheduling.snapshot` owns it.
"""

import msgspec

from dovetail.model.catalogue import Catalogue
from dovetail.scheduling.launch.daemons import Daemons
from dovetail.scheduling.launch.machines import Machines, Resources
from dovetail.scheduling.launch.templates import TemplateCache, UnmetCache
from dovetail.scheduling.pods.bindings import NodeNames
from dovetail.scheduling.pods.class_index import IndexCache
from dovetail.scheduling.pods.classes import Classes
from dovetail.scheduling.pods.terms import TermsCache
from dovetail.scheduling.reading.rows import RowRegistries
from dovetail.scheduling.room import Needs, Sizes


class SnapshotMemory(msgspec.Struct, frozen=True, eq=False):
    """What the next snapshot reuses: registries that only grow, and results by object."""

    catalogue: Catalogue
    resources: Resources
    classes: Classes
    machines: Machines
    names: NodeNames
    template_cache: TemplateCache
    unmet: UnmetCache
    daemons: Daemons
    sizes: Sizes
    needs: Needs
    index: IndexCache
    terms: TermsCache
    ignored: dict[int, str]
    """Why pods of a spec without volumes can't be helped; empty where they can."""

    @property
    def of_rows(self) -> RowRegistries:
        """Return what nodes are numbered by."""
        return RowRegistries(self.resources, self.names, self.sizes)


def remembered(catalogue: Catalogue, old: SnapshotMemory | None) -> SnapshotMemory:
    """Return the memory of a new snapshot: empty, or that of the previous one."""
    if old is None:
        resources = Resources()
        return SnapshotMemory(
            catalogue,
            resources,
            Classes(resources),
            Machines(catalogue, resources),
            NodeNames(),
            TemplateCache(),
            UnmetCache(),
            Daemons(),
            Sizes(),
            Needs(),
            IndexCache(),
            TermsCache(),
            {},
        )
    same = old.catalogue is catalogue
    machines = old.machines if same else Machines(catalogue, old.resources)
    return msgspec.structs.replace(old, catalogue=catalogue, machines=machines, ignored=old.ignored if same else {})
