"""Karpenter's provisioner in the simulated cluster: waits for a batch of pods without a place, then opens nodes.

The batch window is Karpenter's: one second after the last new pod, ten at most; a pod that still waits asks again every
ten seconds, and so does a node that Karpenter empties: the pods still on it need a place as well. Where pods would go
is `scheduling.simulate`'s word, as Karpenter's own scheduler would say it; NodeClaims that are on their way count as
nodes there. Nodes that pods are sent to are nominated for twenty seconds.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace as change_settings
from typing import Final, cast

from msgspec.structs import replace

from dovetail.lifecycle.commands.records import DOVETAIL, is_tainted
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Replacement
from dovetail.model.objects import KINDS, Node, NodeClaim, Pod
from dovetail.model.settings import KARPENTER_1_15
from dovetail.scheduling.result import NewNode, PlacementResult
from dovetail.scheduling.simulate import place
from dovetail.scheduling.snapshot import Snapshot
from dovetail.sim.world.actuate import claim_from, record_on
from dovetail.sim.world.clock import SECOND, Clock, Dice
from dovetail.sim.world.cloud import Cloud
from dovetail.sim.world.karpenter.lifetimes import Karpenter
from dovetail.sim.world.karpenter.view import KarpenterView
from dovetail.sim.world.placement.shapes import Stuck
from dovetail.sim.world.steps import EVERY, MOVES
from dovetail.sim.world.store import Change, WorldStore

IDLE: Final = SECOND
LONGEST: Final = 10 * SECOND
ASK_AGAIN: Final = 10 * SECOND
NOMINATED_FOR: Final = 20 * SECOND
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


class Provisioner:
    """Opens nodes for pods that wait."""

    def __init__(self, store: WorldStore, clock: Clock, cloud: Cloud, karpenter: Karpenter, dice: Dice) -> None:
        self.store = store
        self.clock = clock
        self.cloud = cloud
        self.karpenter = karpenter
        self.dice = dice
        self.runs = 0
        self.opened = 0
        self.nominated: dict[str, int] = {}
        self.taken_names: frozenset[str] = frozenset()
        """Names of machines that were there before the run; no new one gets them."""
        self.on_nominated: Callable[[], None] = lambda: None
        self._view = KarpenterView(store)
        self._previous: Snapshot | None = None
        self._last_answer: tuple[tuple[Catalogue, tuple[str, ...]], PlacementResult] | None = None
        self._waiting: set[str] = set()
        self._waiting_nodes: dict[str, None] = {}
        self._leaving: dict[str, None] = {}
        self._heard = 0
        self._since = -1
        self._last = -1
        self._unplaced: set[str] = set()
        self._all_wait = False  # every pod without a place is in the open batch
        self._unlaunched: set[str] = set()
        store.listen_to_pods(self._view.note, EVERY & ~MOVES)
        store.listen(self._view.note, *(kind for kind in KINDS if kind != "Pod"))
        store.listen(self._on_node_change, "Node")
        store.listen_to_pods(self._on_pod_change, MOVES)
        store.listen(self._on_claim_change, "NodeClaim")

    # ------------------------------------------------------------ the batch

    def trigger(self, keys: Iterable[str]) -> None:
        """Start a batch for pods that found no place, or keep the open one open."""
        before = len(self._waiting)
        self._waiting.update(keys)
        if len(self._waiting) > before:
            self._begin()

    def trigger_stuck(self, stuck: Stuck) -> None:
        """Start a batch for all that are still stuck, or keep it open; those of this batch are known already."""
        after, self._heard = self._heard, stuck.number
        self.trigger(stuck.added_after(after))
        self._all_wait = len(stuck) == len(self._unplaced)

    def _trigger_node(self, name: str) -> None:
        """Include the pods of a draining node, again every ten seconds while it drains."""
        if name in self._leaving and name not in self._waiting_nodes:
            self._waiting_nodes[name] = None
            self._begin()

    def _begin(self) -> None:
        self._last = self.clock.now
        if self._since < 0:
            self._since = self.clock.now
            self.clock.after(IDLE, self._close)

    def _close(self) -> None:
        if self.karpenter.outage.puts_off(self._close):
            return
        due = min(self._last + IDLE, self._since + LONGEST)
        if self.clock.now < due:
            self.clock.at(due, self._close)
            return
        if self._unlaunched:
            self.clock.after(IDLE, self._close)  # Karpenter does not look before it knows what its last launches became
            return
        left = self._unplaced.copy() if self._all_wait else self._waiting & self._unplaced
        nodes = self._waiting_nodes
        self._waiting, self._waiting_nodes, self._all_wait, self._since, self._heard = set(), {}, False, -1, 0
        if left or any(self._has_movable(name) for name in nodes):
            self._run()
        if left:
            self.clock.after(ASK_AGAIN, self._ask_again, left)
        for name in nodes:
            self.clock.after(ASK_AGAIN, self._trigger_node, name)

    def _has_movable(self, node: str) -> bool:
        return any(pod.metadata.deletion_timestamp is None for pod in self.store.pods_on.get(node, {}).values())

    def _ask_again(self, keys: set[str]) -> None:
        if not self._all_wait:
            self.trigger(keys & self._unplaced)

    def _on_pod_change(self, change: Change) -> None:
        self._view.moved[change.key] = None
        pod = cast("Pod | None", change.new)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            self._unplaced.discard(change.key)
        elif change.key not in self._unplaced:
            self._unplaced.add(change.key)
            self._all_wait = False

    def _on_claim_change(self, change: Change) -> None:
        claim = cast("NodeClaim | None", change.new)
        if claim is None or claim.status.provider_id or claim.metadata.deletion_timestamp is not None:
            self._unlaunched.discard(change.key)
        else:
            self._unlaunched.add(change.key)

    # ------------------------------------------------------------ placing

    def _on_node_change(self, change: Change) -> None:
        if isinstance(change.new, Node) and is_emptied(change.new):
            if change.key not in self._leaving:
                self._leaving[change.key] = None
                self._trigger_node(change.key)
        else:
            self._leaving.pop(change.key, None)

    def snapshot(self) -> Snapshot:
        """Return the cluster as Karpenter's scheduler sees it now."""
        catalogue = self.cloud.seen_catalogue()
        settings = change_settings(KARPENTER_1_15, marked_for_deletion_nodes=self._marked(), ties=self._draw())
        self._previous = Snapshot(self._view.cluster(), catalogue, settings, self.clock.instant(), self._previous)
        return self._previous

    def _draw(self) -> int:
        return self.dice.stream("ties").randrange(1, 2**32)

    def _place(self) -> PlacementResult:
        """Return where Karpenter's scheduler would put the pods that wait.

        While nothing has changed, the answer is the last one: pods that find no place ask every ten seconds.
        """
        seen = (self.cloud.seen_catalogue(), self._marked())
        last = self._last_answer
        if last is not None and last[0][0] is seen[0] and last[0][1] == seen[1] and not self._view.is_stale:
            self._draw()  # so that chance goes on as if it had looked
            return last[1]
        found = place(self.snapshot())
        self._last_answer = (seen, found)
        return found

    def _marked(self) -> tuple[str, ...]:
        """Return nodes that Karpenter marked for deletion and whose replacements exist.

        Before that, replacements would be launched twice.
        """
        found = []
        for name in sorted(self._leaving):
            record = record_on(self.store.nodes[name])
            if record is None or all(claim in self.store.claims for claim in record.replacements):
                found.append(name)
        return tuple(found)

    def _run(self) -> None:
        self.runs += 1
        result = self._place()
        for new in result.new:
            self._open(new)
        self.nominate(there.node for there in result.existing)

    def nominate(self, nodes: Iterable[str]) -> None:
        """Nominate nodes that pods are on their way to: for a while nobody may disrupt them."""
        found = dict.fromkeys(nodes, self.clock.now + NOMINATED_FOR)
        if found:
            self.nominated |= found
            self.on_nominated()
            self.clock.after(NOMINATED_FOR, self._forget_nominations)

    def _forget_nominations(self) -> None:
        over = [name for name, until in self.nominated.items() if until <= self.clock.now]
        for name in over:
            del self.nominated[name]
        if over:
            self.on_nominated()

    def _open(self, new: NewNode) -> None:
        pool = self.store.pools[new.pool]
        wanted = Replacement(
            node_pool=new.pool,
            instance_types=tuple(kind.name for kind in new.instance_types),
            requirements=new.requirements,
            requests=new.requests,
            taints=new.taints,
            startup_taints=new.startup_taints,
        )
        name = self.new_name(new.pool)
        claim = claim_from(pool, name, wanted)
        self.store.put(replace(claim, metadata=replace(claim.metadata, creation_timestamp=self.clock.instant())))
        self.opened += 1
        self.karpenter.created(name)

    def new_name(self, pool: str) -> str:
        """Return a name for a NodeClaim that no other has, as Karpenter makes them."""
        dice = self.dice.stream("names")
        while True:
            name = f"{pool}-{''.join(dice.choice(_LETTERS) for _ in range(5))}"
            if name not in self.store.claims and name not in self.store.nodes and name not in self.taken_names:
                return name


def is_emptied(node: Node) -> bool:
    """Return whether Karpenter keeps pods off a node because it is to go: its own taint, or its own command's."""
    if any(taint.key == names.DISRUPTED_TAINT for taint in node.spec.taints):
        return True
    record = record_on(node) if is_tainted(node) else None
    return record is not None and record.by != DOVETAIL
