"""Which nodes pass gates 1 to 7 of each method in one round, and where the others stop: expressions over the table.

What PDBs refuse changes too often to be kept in the table: it is asked of the nodes that pass all else. Sits in decide,
above the table, below the scene.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates import method_rules, node_rules
from dovetail.decide.gates.candidates import OWN_RULES, RULES, pod_rules, rules_before_pods
from dovetail.decide.gates.gate_results import GateContext, GateRule
from dovetail.decide.gates.table import LIFTS_OTHERS, LIFTS_REPAIR, REPAIRS, Bits, GateTable
from dovetail.model.cached import cached
from dovetail.model.command import Method
from dovetail.model.objects import Pod
from dovetail.model.verdicts import Gate

FirstClosed = tuple[tuple[Method, Gate | None], ...]
"""For each method of a node, the first of gates 1 to 7 that is closed now; None: it passes them all."""
_LIFTED_BY: Final = {Method.UNHEALTHY: LIFTS_REPAIR, Method.EXPIRED: LIFTS_OTHERS, Method.DRIFTED: LIFTS_OTHERS}
_FEW: Final = 16
"""Of more nodes than this, PDBs are asked of all at once."""


def _bits(rules: Sequence[GateRule]) -> int:
    return sum(1 << RULES.index(rule) for rule in rules)


_PDB: Final = _bits((node_rules.pdbs_allow,))
_BUFFER: Final = _bits((method_rules.no_buffer,))
_OWN: Final = {method: _bits((*rules_before_pods(method), *OWN_RULES.get(method, ()))) for method in Method}
_PODS: Final = {
    asks: {method: _bits(pod_rules(method, empty_asks_pdbs=asks)) for method in Method} for asks in (False, True)
}
_IN_ORDER: Final = tuple(method for method in Method if method is not Method.UNHEALTHY)


class OpenGates:
    """The answers for one round.

    `awaited`: returns the nodes that waiting pods would go to; asked only if a node could be deleted as empty.
    """

    def __init__(
        self, table: GateTable, gates: GateContext, awaited: Callable[[], Mapping[str, Sequence[Pod]]]
    ) -> None:
        self._table, self._gates, self._awaited = table, gates, awaited
        self._pods = _PODS[gates.settings.rules.empty_asks_pdbs]
        self._found: dict[Method, Sequence[int]] = {}

    def of(self, method: Method) -> Sequence[NodeFacts]:
        """Return the nodes that pass, by name, ignoring budgets."""
        return [self._table.nodes[row] for row in self.rows(method)]

    def rows(self, method: Method) -> Sequence[int]:
        """Return the rows of the nodes that pass."""
        if method is Method.SINGLE_NODE:
            method = Method.MULTI_NODE  # they have the same gates
        found = self._found.get(method)
        if found is None:
            found = self._find(method)
            if found and method is Method.EMPTY:
                nodes, awaited = self._table.nodes, self._awaited()
                found = [row for row in found if nodes[row].name not in awaited]
            self._found[method] = found
        return found

    def _find(self, method: Method) -> list[int]:
        """Return the rows that pass, whatever waits for a node."""
        found: list[int] = np.flatnonzero(self._stops(method, self._closed) == 0).tolist()
        guarded = self._guarded(method, found) if found and self._may_be_refused else []
        if not guarded:
            return found
        if len(guarded) > _FEW:
            refused = self._refused
        else:
            refused = frozenset(row for row in guarded if self._is_refused(row))
        out = refused.intersection(guarded)
        return [row for row in found if row not in out] if out else found

    @property
    def _may_be_refused(self) -> bool:
        return self._gates.vetoes is not None and self._gates.vetoes.any

    def _guarded(self, method: Method, rows: list[int]) -> list[int]:
        """Return those of some rows for which a method asks the PDBs."""
        if not self._pods[method] & _PDB:
            return []
        lifted = _LIFTED_BY.get(method, 0)
        return [row for row in rows if not lifted & int(self._flags[row])] if lifted else rows

    def _is_refused(self, row: int) -> bool:
        table, vetoes = self._table, self._gates.vetoes
        return vetoes is not None and vetoes.of(table.by_name[table.nodes[row].name]) is not None

    @cached
    def _refused(self) -> frozenset[int]:
        """Return the rows that PDBs refuse now."""
        table, vetoes = self._table, self._gates.vetoes
        if vetoes is None or not vetoes.any:
            return frozenset()
        if table.names.has_namesakes:
            return frozenset(row for row in range(len(table.nodes)) if self._is_refused(row))
        rows = table.names.rows
        return frozenset([rows[name] for name in vetoes.among(table.by_name) if name in rows])

    @cached
    def _places(self) -> list[int] | None:
        """Return the row that speaks for each row, if two nodes (a node and a claim) have the same name: the last."""
        table = self._table
        return [table.names.rows[facts.name] for facts in table.nodes] if table.names.has_namesakes else None

    @cached
    def _flags(self) -> npt.NDArray[np.uint16]:
        return self._table.flags if self._places is None else self._table.flags[self._places]

    @cached
    def _closed(self) -> Bits:
        """Return the rules that are closed for each row, but for PDBs."""
        table, closed = self._table, self._table.closed(self._gates.now)
        if self._gates.buffered:
            closed[[table.names.rows[name] for name in self._gates.buffered if name in table.names.rows]] |= _BUFFER
        return closed if self._places is None else closed[self._places]

    def _stops(self, method: Method, closed: Bits) -> Bits:
        """Return the rules of a method that are closed for each row; other than 0 where a pool does not repair."""
        own, pods, flags = _OWN[method], self._pods[method], self._flags
        found: Bits = closed & np.uint32(own | pods)
        if method in _LIFTED_BY:
            found = np.where(flags & _LIFTED_BY[method], closed & np.uint32(own), found)
        if method is Method.UNHEALTHY:
            found[(flags & REPAIRS) == 0] = 1
        return found

    def closed_for(self, name: str) -> int:
        """Return the rules that are closed for a node, as bits."""
        row = self._table.names.rows[name]
        return int(self._closed[row]) | (_PDB if self._is_refused(row) else 0)

    def ends(self) -> list[FirstClosed]:
        """Return where the gates of all nodes end for each method, by name; many nodes share one answer."""
        closed = self._closed
        if self._refused:
            closed = closed.copy()
            closed[list(self._refused)] |= _PDB
        awaited = self._awaited() if (self._stops(Method.EMPTY, closed) == 0).any() else {}
        made: dict[tuple[int, int, bool], FirstClosed] = {}
        found = []
        for facts, bits, flags in zip(self._table.nodes, closed.tolist(), self._flags.tolist(), strict=True):
            key = bits, flags & (REPAIRS | LIFTS_REPAIR | LIFTS_OTHERS), facts.name in awaited
            end = made.get(key)
            if end is None:
                end = made[key] = self._end(*key)
            found.append(end)
        return found

    def _end(self, closed: int, flags: int, awaited: bool) -> FirstClosed:
        found: list[tuple[Method, Gate | None]] = []
        for method in (*([Method.UNHEALTHY] if flags & REPAIRS else []), *_IN_ORDER):
            lifted = flags & _LIFTED_BY.get(method, 0)
            stops = closed & (_OWN[method] if lifted else _OWN[method] | self._pods[method])
            gate = RULES[(stops & -stops).bit_length() - 1].gate if stops else None
            found.append((method, Gate.NOMINATED if awaited and gate is None and method is Method.EMPTY else gate))
        return tuple(found)
