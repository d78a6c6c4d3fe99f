"""What people and Karpenter do while a command is under way: the window is as long as a launch.

A PDB that allows nothing any more, a pod or a node that must not be disrupted, a Karpenter that stops, pods that come
and land on a replacement. Each begins some time after a command's first taint and ends minutes later. Drawn by dice of
their own. Sits in sim, below `swarm`.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from msgspec.structs import replace

from dovetail.lifecycle.messages import DeleteNodeClaim, Instruction, TaintNode
from dovetail.model import names
from dovetail.model.objects import (
    LabelSelectorSpec,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from dovetail.sim.world.actuate import record_on
from dovetail.sim.world.clock import MINUTE, SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.world import World

_LATEST: Final = 45 * SECOND
"""How long after the taint something happens, at most: launches of the swarm take up to 40 s."""


class Meanwhile:
    """Changes that come in the middle of commands. `odds`: how often; `others`: engines that stop with Karpenter."""

    def __init__(self, world: World, dice: Random, odds: float) -> None:
        self.world = world
        self.dice = dice
        self.odds = odds
        self.is_over = False
        self.others: list[Host] = []
        self._known: dict[str, None] = {}
        self._mend: dict[int, Callable[[], None]] = {}
        self._kinds = (
            *(self._protect_pod, self._protect_pod, self._close_pdb, self._close_pdb),
            *(self._protect_node, self._stop_karpenter, self._bring_pods, self._bring_pods),
        )

    def follow(self, host: Host) -> None:
        """Watch an engine's commands."""
        host.on_instruction.append(self._asked)

    def heal(self) -> None:
        """End everything that was changed."""
        self.is_over = True
        for number in sorted(self._mend):
            self._mend.pop(number)()

    def _asked(self, host: Host, asked: Instruction) -> None:
        if self.is_over or host.engine.settings.rules.plays_karpenter:
            return
        if isinstance(asked, TaintNode) and asked.command_id not in self._known:
            self._known[asked.command_id] = None
            for _ in range(2):
                if self.dice.random() < self.odds:
                    self._plan(asked.node)
        elif isinstance(asked, DeleteNodeClaim) and asked.node and asked.command_id in self._known:
            del self._known[asked.command_id]
            if self.dice.random() < self.odds:  # a person is faster than the last of the deletions
                self._begin(self._protect_pod, self._last_node(host, asked), 3 * MINUTE)

    def _plan(self, node: str) -> None:
        """Draw what happens to a command that takes this node, when and for how long."""
        what = self.dice.choice(self._kinds)
        delay, length = self.dice.randrange(_LATEST), self.dice.choice((20 * SECOND, 90 * SECOND, 6 * MINUTE))
        self.world.clock.after(delay, self._begin, what, node, length)

    def _last_node(self, host: Host, asked: DeleteNodeClaim) -> str:
        record = record_on(self.world.store.nodes.get(asked.node))
        return asked.node if record is None else record.nodes[-1].node

    def _begin(self, what: Callable[[str], Callable[[], None] | None], node: str, length: int) -> None:
        if self.is_over:
            return
        self.world.outside(f"meanwhile on {node}")
        end = what(node)
        if end is not None:
            number = self.world.clock.happened
            self._mend[number] = end
            self.world.clock.after(length, lambda: self._mend.pop(number, lambda: None)())

    # ------------------------------------------------------------ what happens

    def _pod_on(self, node: str) -> Pod | None:
        pods = self.world.store.pods_on.get(node, {})
        active = [key for key, pod in sorted(pods.items()) if pod.metadata.deletion_timestamp is None]
        return pods[active[self.dice.randrange(len(active))]] if active else None

    def _protect_pod(self, node: str) -> Callable[[], None] | None:
        pod = self._pod_on(node)
        if pod is None:
            return None
        key = pod.metadata.key
        self._annotate(pod, names.DO_NOT_DISRUPT, "true")

        def end() -> None:
            again = self.world.store.pods.get(key)
            if again is not None and again.metadata.uid == pod.metadata.uid:
                self._annotate(again, names.DO_NOT_DISRUPT, None)

        return end

    def _protect_node(self, node: str) -> Callable[[], None] | None:
        item = self.world.store.nodes.get(node)
        if item is None:
            return None
        self._annotate(item, names.ALWAYS_DO_NOT_DISRUPT, "true")

        def end() -> None:
            again = self.world.store.nodes.get(node)
            if again is not None and again.metadata.uid == item.metadata.uid:
                self._annotate(again, names.ALWAYS_DO_NOT_DISRUPT, None)

        return end

    def _annotate(self, item: Pod | Node, key: str, value: str | None) -> None:
        kept = {name: text for name, text in item.metadata.annotations.items() if name != key}
        self.world.store.touch_meta(item, annotations=kept if value is None else {**kept, key: value})

    def _close_pdb(self, node: str) -> Callable[[], None] | None:
        pod = self._pod_on(node)
        if pod is None:
            return None
        world = self.world
        guards = world.evictions.guards_of(pod.metadata.key, pod)
        if len(guards) > 1 or not pod.metadata.labels:
            return None
        selector = LabelSelectorSpec(match_labels=pod.metadata.labels)
        closed = PodDisruptionBudgetSpec(selector=selector, max_unavailable=0)
        if not guards:
            meta = ObjectMeta(name=f"closed-{pod.metadata.name}", namespace=pod.metadata.namespace)
            world.put(PodDisruptionBudget(metadata=meta, spec=closed))
            return lambda: self._remove_pdb(meta.key)
        key = guards[0]
        before = world.store.pdbs[key].spec
        world.put(replace(world.store.pdbs[key], spec=replace(closed, selector=before.selector)))
        return lambda: self._restore_pdb(key, before)

    def _remove_pdb(self, key: str) -> None:
        self.world.store.remove("PodDisruptionBudget", key)

    def _restore_pdb(self, key: str, spec: PodDisruptionBudgetSpec) -> None:
        budget = self.world.store.pdbs.get(key)
        if budget is not None:
            self.world.put(replace(budget, spec=spec))

    def _stop_karpenter(self, node: str) -> Callable[[], None] | None:
        outage = self.world.karpenter.outage
        if outage.is_on:
            return None
        outage.begin()
        for host in self.others:
            host.crash()

        def end() -> None:
            outage.end()
            for host in self.others:
                host.start()

        return end

    def _bring_pods(self, node: str) -> Callable[[], None] | None:
        sets = [("ReplicaSet", key) for key in self.world.workloads.keys("ReplicaSet")]
        if sets:
            kind, key = sets[self.dice.randrange(len(sets))]
            self.world.scale(kind, key, self.world.workloads.desired(kind, key) + 4)
        return None
