"""The promise that commands launch no more than the pods of their own nodes need, however many run concurrently.

The upper bound of what the pods of a command's nodes need is what they would need if no existing node took any of them;
that is computed here independently, without pending pods, and only where more is launched than the one node that every
pod that moves needs. Pods of other leaving nodes count only for the zones that they take (topology spread), never for
the nodes that they need. Each node is in one command only (another checker's promise), so the bound per command also
bounds all commands together. Uses objects and calls, never the engine's state. Sits in sim, beside the other checkers.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, cast

from msgspec.structs import replace

from dovetail.lifecycle.commands.records import Record, decode_record
from dovetail.lifecycle.messages import CreateNodeClaim, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.cluster import Cluster
from dovetail.model.command import Action
from dovetail.model.objects import DaemonSet, Node, Pod
from dovetail.model.settings import DOVETAIL, Search, Settings
from dovetail.scheduling.entries import SimulationOptions
from dovetail.scheduling.pods.evictions import Blockers, is_protected
from dovetail.scheduling.pods.pod import is_pending, is_reschedulable
from dovetail.scheduling.pods.requests import pod_requests, spec_requests
from dovetail.scheduling.simulate import simulate
from dovetail.scheduling.snapshot import Snapshot
from dovetail.sim.checks.promises import Checker, is_tainted
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_MEASURED: Final = ("cpu", "memory")
_TOGETHER: Final = 4
"""Of how many commands that began together every order is tried."""


def _opened(node: Node) -> Node:
    """Return a node as it was before a command tainted it."""
    taints = tuple(taint for taint in node.spec.taints if taint.key != names.DISRUPTION_TAINT)
    return replace(node, spec=replace(node.spec, taints=taints))


class _Need:
    """What a command's launches may ask for in sum, and what they have asked for."""

    __slots__ = ("asked", "room")

    def __init__(self, room: dict[str, int]) -> None:
        self.room = room
        self.asked: dict[str, dict[str, int]] = {}


class LaunchChecker(Checker):
    """No command launches more than its nodes' pods need, given all that is in progress (docs/rules.md#methods)."""

    rule = "too-many-replacements"
    follows = ("Pod", "Node")

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._needs: dict[str, _Need] = {}
        self._left: dict[str, list[tuple[int, Pod]]] = {}
        self._waited: dict[str, tuple[int | None, Pod]] = {}
        self._closed: dict[str, int] = {}
        self._last: Snapshot | None = None

    def changed(self, change: Change) -> None:
        """Remember which pods have left which node a moment ago, which wait or waited, and when nodes were tainted."""
        if change.kind == "Node":
            if is_tainted(cast("Node | None", change.new)):
                self._closed.setdefault(change.key, self.world.now)
            else:
                self._closed.pop(change.key, None)
            return
        old, new = cast("Pod | None", change.old), cast("Pod | None", change.new)
        if new is not None and not new.spec.node_name:
            self._waited[change.key] = (None, new)
        elif change.key in self._waited:
            self._waited[change.key] = (self.world.now, self._waited[change.key][1])
        if (
            old is not None
            and old.spec.node_name
            and is_reschedulable(old)
            and (new is None or not is_reschedulable(new))
        ):
            self._left.setdefault(old.spec.node_name, []).append((self.world.now, old))

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Count a command's replacements when it begins, and add up what they ask for as they are launched."""
        if isinstance(instruction, TaintNode) and not self.watch.is_karpenters(instruction.command_id):
            record = decode_record(instruction.record)
            if record is not None and record.id not in self._needs:
                self._begin(record, host.engine.settings)
        elif isinstance(instruction, CreateNodeClaim):
            self._launch(instruction)

    def _begin(self, record: Record, settings: Settings) -> None:
        nodes, edge = [entry.node for entry in record.nodes], self.world.now - self.watch.lag
        gone = [pod for name in nodes for at, pod in self._left.pop(name, ()) if at >= edge]
        self._waited = {key: entry for key, entry in self._waited.items() if entry[0] is None or entry[0] >= edge}
        own = [pod for name in nodes for pod in self.store.pods_on.get(name, {}).values() if is_reschedulable(pod)]
        amounts = [pod_requests(pod) for pod in (*own, *gone, *(pod for _, pod in self._waited.values()))]
        self._needs[record.id] = _Need({name: sum(entry.get(name, 0) for entry in amounts) for name in _MEASURED})
        unsure = len(gone) + sum(is_pending(pod) for pod in own)  # pods that are not started may land anywhere
        launches = len(record.replacements)
        enough = unsure + self._has_movers(nodes)
        if record.action is Action.REPLACE_COST and settings.search is Search.VALUE:
            # Several small nodes may cost less than a large one (docs/rules.md#value); what they may hold stays
            # bounded.
            enough = max(enough, settings.replacements_max)
        if launches <= enough:
            return
        most = enough
        for cluster in self._clusters(nodes, edge):
            most = max(most, unsure + self._nodes_needed(nodes, cluster))
            if launches <= most:
                return
        self.broken(f"{record.id} launches {launches} nodes for {', '.join(nodes)}, whose pods need {most} at most")

    def _has_movers(self, nodes: list[str]) -> bool:
        """Return whether a pod of these nodes moves for certain: it needs one node at least."""
        pods, pdbs, now = self.store.pods_on, self.store.pdbs, self.world.clock.instant()
        found = ((key, pod) for name in nodes if name in self.store.nodes for key, pod in pods.get(name, {}).items())
        return any(
            is_reschedulable(pod)
            and not is_protected(pod, now)
            and not Blockers([pdbs[name] for name in self.world.evictions.guards_of(key, pod)]).block(pod)
            for key, pod in found
        )

    def _clusters(self, nodes: list[str], edge: int) -> Iterator[Cluster]:
        """Yield the cluster, and what it was if other nodes that were tainted a moment ago still stayed, in any order.

        Commands that begin together are decided one after the other, so that the first knows nothing of the others.
        """
        cluster = self.watch.cluster()
        new = [name for name, at in self._closed.items() if at >= edge and name not in nodes][:_TOGETHER]
        for count in range(len(new) + 1):
            for staying in itertools.combinations(new, count):
                opened = [_opened(node) if node.metadata.name in staying else node for node in cluster.nodes]
                yield dataclasses.replace(cluster, nodes=tuple(opened)) if staying else cluster

    def _nodes_needed(self, nodes: list[str], cluster: Cluster) -> int:
        """Return how many nodes the pods of these need at most, if no existing node takes any of them."""
        catalogue = self.world.cloud.seen_catalogue()
        self._last = snapshot = Snapshot(cluster, catalogue, DOVETAIL, self.world.clock.instant(), previous=self._last)
        chosen = [place for name in nodes if (place := snapshot.index.get(name)) is not None]
        alone = SimulationOptions(closed=range(len(snapshot.states)), include_pending=False, include_leaving=False)
        result = simulate(snapshot, chosen, alone)
        needed = len(result.new_nodes) + len(result.unplaced)
        # Pods that are packed in another order may need one node more, where they need several; said once is enough.
        needed += needed > 1 and cluster is self.watch.cluster()
        # A decision also places the pods of other leaving nodes (docs/rules.md#methods), and topology spread counts
        # them where they land: two pods that would share a node if they were alone may then need different zones. Only
        # new nodes with an own pod count here, without the allowance above; a pod that finds no place counts nothing. A
        # pending pod that comes before them takes room on a new node too, so that they may need one more. And a pod
        # that an existing node takes counts in that node's zone, so that another one may have to go elsewhere.
        for closed, pending in itertools.product((alone.closed, range(0)), (False, True)):
            options = replace(alone, closed=closed, include_leaving=True, include_pending=pending)
            beside = simulate(snapshot, chosen, options)
            spread_out = sum(any(pod.spec.node_name in nodes for pod in new.pods) for new in beside.new_nodes)
            needed = max(needed, spread_out)
        return needed

    def _launch(self, asked: CreateNodeClaim) -> None:
        """Count the launch; pending pods may share a replacement, pods of other commands' nodes may not."""
        need = self._needs.get(asked.command_id)
        if need is None or asked.name in need.asked:
            return
        need.asked[asked.name] = asked.replacement.requests
        daemons = self._daemons()
        for name in _MEASURED:
            total = sum(entry.get(name, 0) for entry in need.asked.values())
            most = need.room[name] + len(need.asked) * daemons[name]
            if total > most:
                self.broken(f"{asked.command_id} asks for {total} of {name}; its pods need {most} at most")

    def _daemons(self) -> dict[str, int]:
        """Return what all daemons take on a node, at most."""
        found = dict.fromkeys(_MEASURED, 0)
        for item in self.store.by_kind["DaemonSet"].values():
            spec = cast("DaemonSet", item).spec.template.spec
            for name, amount in spec_requests(spec).items():
                if name in found:
                    found[name] += amount
        return found
