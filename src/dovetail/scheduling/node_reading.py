"""Reads nodes and claims for a snapshot, and keeps what the next one can reuse.

Nodes and claims are joined, sorted and read; objects that the previous snapshot has read are not read again. Decides
nothing; `scheduling.snapshot` calls it.
"""

from dataclasses import dataclass, replace

from dovetail.model.catalogue import Catalogue
from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.rules import Rules
from dovetail.model.settings import Settings
from dovetail.scheduling.launch.daemons import Daemons
from dovetail.scheduling.launch.machines import Machines, Resources
from dovetail.scheduling.launch.templates import TemplateCache
from dovetail.scheduling.nodes import (
    StateNode,
    claims_alike,
    join,
    joins_alike,
    leaving_reason,
    replaced,
    state_node,
)
from dovetail.scheduling.pods.bindings import NodeNames
from dovetail.scheduling.pods.class_index import IndexCache
from dovetail.scheduling.pods.classes import Classes
from dovetail.scheduling.room import Needs, Sizes

NodeEntry = tuple[StateNode, str, int, int]
"""A node as it was read, why it is leaving, if it is, its size, and the number of its name, if it has joined."""


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotMemory:
    """What the next snapshot reuses: registries that only grow, and results by object."""

    catalogue: Catalogue
    resources: Resources
    classes: Classes
    machines: Machines
    names: NodeNames
    template_cache: TemplateCache
    daemons: Daemons
    sizes: Sizes
    needs: Needs
    index: IndexCache
    ignored: dict[int, str]
    """Why pods of a spec without volumes can't be helped; empty where they can."""


@dataclass(frozen=True, slots=True, eq=False)
class EarlierNodes:
    """The nodes of the previous snapshot: their objects, the rules they were read under, and the results."""

    cluster: Cluster
    rules: Rules
    entries: list[NodeEntry]


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
            Daemons(),
            Sizes(),
            Needs(),
            IndexCache(),
            {},
        )
    same = old.catalogue is catalogue
    machines = old.machines if same else Machines(catalogue, old.resources)
    return replace(old, catalogue=catalogue, machines=machines, ignored=old.ignored if same else {})


def read_nodes(
    cluster: Cluster, settings: Settings, memory: SnapshotMemory, earlier: EarlierNodes | None
) -> list[NodeEntry]:
    """Return the nodes in the order in which pods are offered to them; only a node's own objects make it leaving."""
    known: dict[tuple[int, int], NodeEntry] = {}
    if earlier is not None and earlier.rules == settings.rules:
        renewed = _renewed(cluster, settings, memory, earlier)
        if renewed is not None:
            return renewed
        known = {(id(entry[0].node), id(entry[0].claim)): entry for entry in earlier.entries}
    found = [known.get((id(node), id(claim))) or _entry(node, claim, settings, memory) for node, claim in join(cluster)]
    found.sort(key=lambda entry: (not entry[0].initialized, entry[0].name))
    return found


def _renewed(
    cluster: Cluster, settings: Settings, memory: SnapshotMemory, earlier: EarlierNodes
) -> list[NodeEntry] | None:
    """Return the previous snapshot's entries with changed objects read again; None if nodes were added or removed."""
    before = earlier.cluster
    nodes = replaced(before.nodes, cluster.nodes, joins_alike)
    claims = replaced(before.node_claims, cluster.node_claims, claims_alike) if nodes is not None else None
    if nodes is None or claims is None:
        return None
    if not nodes and not claims:
        return earlier.entries
    found = list(earlier.entries)
    for place, (state, *_) in enumerate(earlier.entries):
        node, claim = state.node, state.claim
        if id(node) in nodes or id(claim) in claims:
            found[place] = _entry(nodes.get(id(node), node), claims.get(id(claim), claim), settings, memory)
    return found


def _entry(node: Node | None, claim: NodeClaim | None, settings: Settings, memory: SnapshotMemory) -> NodeEntry:
    state = state_node(node, claim, soft_closing=settings.rules.steers)
    for name in state.allocatable:
        memory.resources.column_of(name)
    code = memory.names.code(node.metadata.name) if node is not None else 0
    return state, leaving_reason(state, settings), memory.sizes.code(state.allocatable), code
