"""Which nodes PodDisruptionBudgets block now, computed on request.

A PDB may start or stop refusing evictions whenever a pod of its workload moves, and that concerns every node with such
a pod. Most of these changes are over before a method asks. So vetoes are not part of a node's facts: they are computed
from the node's pods on request, and cached for nodes that have not changed. Sits in decide, above node_facts, below the
cache and the gates.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dovetail.decide.facts.drainability import Guards, PdbVeto
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.model.cached import cached
from dovetail.model.listing import Table
from dovetail.scheduling.pods.bindings import ByNode
from dovetail.scheduling.pods.surge import NO_SURGES
from dovetail.scheduling.snapshot import Snapshot


class KeptVetoes:
    """The nodes with a veto, by name, when all were last computed, and the nodes to look at again.

    `turn` is a new object for each snapshot: only the latest snapshot may ask here.
    """

    def __init__(self) -> None:
        self.turn = object()
        self._found: Table[PdbVeto] = Table.of({})
        self._unsure: dict[str, None] = {}

    def begin(self) -> None:
        """Begin a new turn."""
        self.turn = object()

    def look_again(self, names: Iterable[str]) -> None:
        """Note nodes that came, whose pods changed, or whose PDBs started or stopped refusing evictions."""
        self._unsure.update(dict.fromkeys(names))

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        if name in self._found:
            self._unsure[name] = None
        else:
            self._unsure.pop(name, None)

    def settled(self, nodes: Mapping[str, NodeFacts], ask: Callable[[NodeFacts], PdbVeto | None]) -> Table[PdbVeto]:
        """Return the nodes that have a veto, and the first one of each."""
        changed: dict[str, PdbVeto | None] = {}
        for name in self._unsure:
            facts = nodes.get(name)
            veto = None if facts is None else ask(facts)
            if veto is not None or name in self._found:
                changed[name] = veto
        self._unsure = {}
        if changed:
            self._found = self._found.edited(changed)
        return self._found


class Vetoes:
    """The pods that can't be evicted in one snapshot; `kept`: what a `Decider` remembers."""

    def __init__(self, snapshot: Snapshot, guards: Guards, now: datetime, kept: KeptVetoes | None = None) -> None:
        self._snapshot, self._guards, self._now = snapshot, guards, now
        self._kept, self._turn = kept, None if kept is None else kept.turn
        self._asked: dict[NodeFacts, PdbVeto | None] = {}

    @cached
    def _guarded(self) -> ByNode[bool] | None:
        return self._snapshot.bindings.might(self._guards.refusing.may_select)

    def of(self, facts: NodeFacts) -> PdbVeto | None:
        """Return the first pod of a node that can't be evicted now; one whose Deployment rolls is not evicted."""
        if not self._guards.refusing:
            return None
        if facts not in self._asked:
            self._asked[facts] = self._find(facts)
        return self._asked[facts]

    def _find(self, facts: NodeFacts) -> PdbVeto | None:
        guards, snapshot = self._guards, self._snapshot
        if self._guarded is not None:
            place = snapshot.index.get(facts.name, -1)
            if place >= 0 and snapshot.pods_on[place] is facts.pods and True not in self._guarded[place]:
                return None
        surges = snapshot.surges
        for pod in facts.pods:
            veto = guards.veto(pod, self._now)
            if veto is not None and (surges is NO_SURGES or surges.of(pod) is None):
                return veto
        return None

    @property
    def any(self) -> bool:
        """Return whether a PDB refuses evictions now, of whatever pods."""
        return bool(self._guards.refusing)

    def among(self, nodes: Mapping[str, NodeFacts]) -> Mapping[str, PdbVeto]:
        """Return those of all nodes that have a veto, by name."""
        if self._kept is None or self._kept.turn is not self._turn:
            return {name: veto for name, facts in nodes.items() if (veto := self.of(facts)) is not None}
        return self._kept.settled(nodes, self.of)
