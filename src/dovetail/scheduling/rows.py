"""The nodes of a snapshot as parallel columns, brought up to date by the objects that changed.

Nodes and claims are joined by provider id, read once each and sorted in the order in which pods are offered to them:
initialized first, then by name. The next snapshot looks only at Nodes and NodeClaims that are other objects than
before, and learns which rows they changed. Decides nothing; `scheduling.snapshot` owns the rows.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np

from dovetail.model.cluster import Cluster
from dovetail.model.objects import Node, NodeClaim
from dovetail.model.rules import Rules
from dovetail.model.settings import Settings
from dovetail.scheduling.changes import changes
from dovetail.scheduling.launch.machines import Mask, Resources
from dovetail.scheduling.nodes import MARKED, Pair, StateNode, join, leaving_reason, pair_up, state_node
from dovetail.scheduling.pods.bindings import NodeNames
from dovetail.scheduling.room import Sizes

Item = TypeVar("Item")
_Kind = TypeVar("_Kind", Node, NodeClaim)
_Key = tuple[str, str]
"""What a row is found by: the provider id, or the name of a Node that has none."""
_Order = tuple[bool, str]
_FEW: Final = 16
"""With so many changes more than there are rows, joining all objects again is faster than changing rows in place."""


class Edits(msgspec.Struct, frozen=True):
    """How one sequence of rows became another: `gone`, highest place first, are taken out, then `new` are put in."""

    gone: tuple[int, ...] = ()
    new: tuple[int, ...] = ()

    def apply(self, values: MutableSequence[Item], coming: Iterable[Item]) -> None:
        """Change a column of the old rows into one of the new rows; `coming`: the values of those that are new."""
        for place in self.gone:
            del values[place]
        for place, value in zip(self.new, coming, strict=True):
            values.insert(place, value)


UNCHANGED: Final = Edits()


class RowRegistries(msgspec.Struct, frozen=True):
    """What rows are numbered by; registries only grow."""

    resources: Resources
    names: NodeNames
    sizes: Sizes


class _Row(msgspec.Struct, frozen=True, eq=False):
    """One node as it was read: why it is leaving, its size, and the number of its name, 0 if it has not joined."""

    state: StateNode
    leaving: str
    size: int
    code: int

    @property
    def order(self) -> _Order:
        return not self.state.initialized, self.state.name


class _Join(msgspec.Struct, eq=False):
    """All that can be joined, by provider id, and the rows that came of it; `twins`: an id is used twice.

    `order`: what the rows are sorted by; `named`: how many rows have each name; `name_of_claim`: the names of rows by
    those of their NodeClaims. `token`: that of the rows that all this belongs to. The rows after them take it over and
    change it.
    """

    nodes: dict[str, Node]
    claims: dict[str, NodeClaim]
    rows: dict[_Key, _Row]
    twins: bool
    order: list[_Order]
    named: Counter[str]
    name_of_claim: dict[str, str]
    token: object


class NodeRows(msgspec.Struct, frozen=True, eq=False):
    """All rows, column by column.

    `edits`: how they follow from the rows before; None: all objects were joined again. `token`: stands for these rows.
    `initialized`: how many are of initialized nodes; these come first. `has_namesakes`: two rows have the same name.
    """

    nodes: Sequence[Node]
    claims: Sequence[NodeClaim]
    rules: Rules
    joined: _Join
    initialized: int
    has_namesakes: bool
    states: list[StateNode]
    names: list[str]
    codes: "array[int]"
    sizes: list[int]
    leaving: list[str]
    stays: bytearray
    has_node: bytearray
    index: Mapping[str, int]
    edits: Edits | None = None
    token: object = msgspec.field(default_factory=object)

    @property
    def name_of_claim(self) -> Mapping[str, str]:
        """Return the names of rows by those of their NodeClaims."""
        if self.joined.token is self.token:
            return self.joined.name_of_claim
        return _claims_and_names(self.states)

    def staying(self, marked: Sequence[str]) -> tuple[list[str], Mask]:
        """Return why each row is leaving, empty if it is not, and which rows stay; rows that are `marked` leave too."""
        stays = np.frombuffer(self.stays, dtype=np.bool_)
        if not marked:
            return self.leaving, stays
        chosen = frozenset(marked)
        places = (
            [place for place, name in enumerate(self.names) if name in chosen]
            if self.has_namesakes
            else [place for name in marked if (place := self.index.get(name)) is not None]
        )
        reasons, stays = list(self.leaving), stays.copy()
        stays[places] = False
        for place in places:
            reasons[place] = MARKED
        return reasons, stays


def read_rows(cluster: Cluster, settings: Settings, registries: RowRegistries, earlier: NodeRows | None) -> NodeRows:
    """Return the rows of a cluster; of the earlier ones, only those whose objects changed are read again."""
    if earlier is not None and earlier.rules != settings.rules:
        earlier = None
    found = None if earlier is None else _renewed(earlier, cluster, settings, registries)
    return _all_rows(cluster, settings, registries, earlier) if found is None else found


def _all_rows(cluster: Cluster, settings: Settings, registries: RowRegistries, earlier: NodeRows | None) -> NodeRows:
    """Join and sort all objects; a pair that the earlier rows have is not read again."""
    known: dict[tuple[int, int], _Row] = {}
    if earlier is not None:
        known = {(id(row.state.node), id(row.state.claim)): row for row in earlier.joined.rows.values()}
    rows = [
        known.get((id(node), id(claim))) or _row((node, claim), settings, registries) for node, claim in join(cluster)
    ]
    rows.sort(key=lambda row: row.order)
    nodes = {node.spec.provider_id: node for node in cluster.nodes if node.spec.provider_id}
    claims = {claim.status.provider_id: claim for claim in cluster.node_claims if claim.status.provider_id}
    by_key = {_key_of(row): row for row in rows}
    ids = [*map(_id_of, cluster.nodes), *map(_id_of, cluster.node_claims)]
    twins = len(nodes) + len(claims) != len(ids) - ids.count("") or len(by_key) != len(rows)
    names = [row.state.name for row in rows]
    token, states, named = object(), [row.state for row in rows], Counter(names)
    initialized, has_namesakes = sum(state.initialized for state in states), len(named) != len(names)
    return NodeRows(
        nodes=cluster.nodes,
        claims=cluster.node_claims,
        rules=settings.rules,
        joined=_Join(
            nodes, claims, by_key, twins, [row.order for row in rows], named, _claims_and_names(states), token
        ),
        initialized=initialized,
        has_namesakes=has_namesakes,
        states=states,
        names=names,
        codes=array("q", [row.code for row in rows]),
        sizes=[row.size for row in rows],
        leaving=[row.leaving for row in rows],
        stays=bytearray(not row.leaving for row in rows),
        has_node=bytearray(row.state.node is not None for row in rows),
        index=_index(names),
        token=token,
    )


def _renewed(before: NodeRows, cluster: Cluster, settings: Settings, registries: RowRegistries) -> NodeRows | None:
    """Return the rows with changed objects joined and read again; None if that has to be done for all."""
    gone, new = changes(before.nodes, cluster.nodes)
    gone_claims, new_claims = changes(before.claims, cluster.node_claims)
    if not (gone or new or gone_claims or new_claims):
        return before
    many = len(gone) + len(new) + len(gone_claims) + len(new_claims)
    joined = before.joined
    if joined.twins or joined.token is not before.token or many > _FEW + len(before.names):
        return None
    joined.token = None
    if not _replace(joined.nodes, gone, new) or not _replace(joined.claims, gone_claims, new_claims):
        return None
    nodes, claims, rows = joined.nodes, joined.claims, joined.rows
    named = {node.metadata.name: node for node in new if not node.spec.provider_id}
    out, coming = [], []
    changed: list[Node | NodeClaim] = [*gone, *new, *filter(_id_of, [*gone_claims, *new_claims])]
    for key in dict.fromkeys(map(_key_of_object, changed)):
        provider_id, name = key
        node = nodes.get(provider_id) if provider_id else named.get(name)
        found = pair_up(node, claims.get(provider_id) if provider_id else None)
        old = rows.pop(key, None)
        if old is not None and found is not None and found[0] is old.state.node and found[1] is old.state.claim:
            rows[key] = old
            continue
        if old is not None:
            out.append(old)
        if found is not None:
            rows[key] = row = _row(found, settings, registries)
            coming.append(row)
    found_rows = _edited(before, cluster, out, coming)
    joined.token = None if found_rows is None else found_rows.token
    return found_rows


def _edited(before: NodeRows, cluster: Cluster, out: list[_Row], coming: list[_Row]) -> NodeRows | None:
    """Return the columns without some rows and with others; None if one of these has another's place in the order."""
    order, named, claims = before.joined.order, before.joined.named, before.joined.name_of_claim
    gone = sorted([_place_of(before, row) for row in out], reverse=True)
    for place in gone:
        del order[place]
    coming.sort(key=lambda row: row.order)
    new = []
    for row in coming:
        place = bisect_left(order, row.order)
        if place < len(order) and order[place] == row.order:
            return None
        order.insert(place, row.order)
        new.append(place)
    for row in out:
        if row.state.claim is not None:
            del claims[row.state.claim.metadata.name]
        named[row.state.name] -= 1
        if not named[row.state.name]:
            del named[row.state.name]
    named.update([row.state.name for row in coming])
    claims.update(_claims_and_names([row.state for row in coming]))
    edits = Edits(tuple(gone), tuple(new))
    states, names, codes, sizes = list(before.states), list(before.names), before.codes[:], list(before.sizes)
    leaving, stays, has_node = list(before.leaving), before.stays[:], before.has_node[:]
    edits.apply(states, [row.state for row in coming])
    edits.apply(names, [row.state.name for row in coming])
    edits.apply(codes, [row.code for row in coming])
    edits.apply(sizes, [row.size for row in coming])
    edits.apply(leaving, [row.leaving for row in coming])
    edits.apply(stays, [not row.leaving for row in coming])
    edits.apply(has_node, [row.state.node is not None for row in coming])
    initialized, has_namesakes = bisect_left(order, (True, "")), len(named) != len(names)
    same = names == before.names
    index = before.index if same else _index(names)
    return NodeRows(
        nodes=cluster.nodes,
        claims=cluster.node_claims,
        rules=before.rules,
        joined=before.joined,
        initialized=initialized,
        has_namesakes=has_namesakes,
        states=states,
        names=names,
        codes=codes,
        sizes=sizes,
        leaving=leaving,
        stays=stays,
        has_node=has_node,
        index=index,
        edits=edits,
    )


def _place_of(rows: NodeRows, row: _Row) -> int:
    """Return the place of a row; rows of the same name are told apart by their objects."""
    place = bisect_left(rows.joined.order, row.order)
    while rows.states[place] is not row.state:
        place += 1
    return place


def _row(found: Pair, settings: Settings, registries: RowRegistries) -> _Row:
    node, claim = found
    rules = settings.rules
    state = state_node(node, claim, soft_closing=rules.steers, readiness_passes=rules.readiness_taints_pass)
    for name in state.allocatable:
        registries.resources.column_of(name)
    code = registries.names.code(node.metadata.name) if node is not None else 0
    return _Row(state, leaving_reason(state, settings), registries.sizes.code(state.allocatable), code)


def _key_of(row: _Row) -> _Key:
    node, claim = row.state.node, row.state.claim
    if claim is not None:
        return _key_of_object(claim)
    assert node is not None, "a row has a Node or a NodeClaim"
    return _key_of_object(node)


def _key_of_object(item: Node | NodeClaim) -> _Key:
    provider_id = _id_of(item)
    return (provider_id, "") if provider_id else ("", item.metadata.name)


def _id_of(item: Node | NodeClaim) -> str:
    return item.spec.provider_id if isinstance(item, Node) else item.status.provider_id


def _index(names: Sequence[str]) -> dict[str, int]:
    """Return the places of names; of two equal names, the last one's."""
    return dict(zip(names, range(len(names)), strict=True))


def _claims_and_names(states: Iterable[StateNode]) -> dict[str, str]:
    return {state.claim.metadata.name: state.name for state in states if state.claim is not None}


def _replace(known: dict[str, _Kind], gone: Sequence[_Kind], new: Sequence[_Kind]) -> bool:
    """Replace objects by provider id; return False if an id would be used twice."""
    for item in gone:
        known.pop(_id_of(item), None)
    return all(not _id_of(item) or known.setdefault(_id_of(item), item) is item for item in new)
