"""Which nodes PodDisruptionBudgets keep now, found when somebody asks.

PDBs start and stop refusing evictions all the time: whenever a pod moves, those of its workload do, on every node that
has one of its pods. Most of that is over before a method asks. So it is no part of a node's facts: it is read off the
node's pods on request, and kept from round to round for the nodes of which nothing has changed. Sits in decide, above
node_facts, below the cache and the gates.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from dovetail.decide.facts.drainability import Guards, PdbVeto
from dovetail.decide.facts.lineup import Lineup
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.model.cached import cached
from dovetail.model.listing import Table
from dovetail.scheduling.pods.by_node import ByNode
from dovetail.scheduling.pods.surge import NO_SURGES
from dovetail.scheduling.snapshot import Snapshot


class KeptVetoes:
    """The nodes with a veto by name, as they were when all were asked for last, and those to look at again.

    `turn` is another object for every snapshot that is read: only what was read last may be asked here.
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

    @cached
    def _guarded(self) -> ByNode[bool] | None:
        return self._snapshot.bindings.might(self._guards.might_refuse)

    def of(self, facts: NodeFacts) -> PdbVeto | None:
        """Return the first pod of a node that can't be evicted now; one whose Deployment rolls is not evicted."""
        guards, snapshot = self._guards, self._snapshot
        if not guards.refusing:
            return None
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

    def among(self, nodes: Lineup) -> Mapping[str, PdbVeto]:
        """Return those of all nodes that have a veto, by name; no two of them have the same name."""
        if self._kept is None or self._kept.turn is not self._turn:
            return {facts.name: veto for facts in nodes if (veto := self.of(facts)) is not None}
        return self._kept.settled(nodes.by_name, self.of)
