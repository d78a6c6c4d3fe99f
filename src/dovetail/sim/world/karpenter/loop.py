"""Karpenter's disruption loop as in v1.15: which methods it asks in a turn, and when it pauses.

The decisions are `decide`'s; this says what Karpenter does not ask. A consolidation method that found nothing is not
asked again until the cluster has changed in a way that counts (a pod bound or gone, a node come, ready or leaving, a
pool edited) or five minutes have passed: a node that merely became consolidatable, or is no longer nominated, is no
such change. A command that fails its validation hands on to the methods after its own in the same turn. Facts:
Karpenter v1.15's source (`state.Cluster.ConsolidationState`, `disruption.Controller`), read for its behaviour.
"""

from dataclasses import replace as change
from datetime import datetime
from typing import Final

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.decide.refusal import Refusal
from dovetail.decide.round import METHODS, RoundResult, decide
from dovetail.decide.scene import Scene
from dovetail.decide.work import Work
from dovetail.model import names
from dovetail.model.command import Command, Method
from dovetail.model.objects import Node, NodeClaim, NodePool
from dovetail.sim.world.clock import MINUTE, Clock, Dice
from dovetail.sim.world.steps import BOUND, WENT
from dovetail.sim.world.store import Change, WorldStore

LOOK_AGAIN: Final = 5 * MINUTE
_ORDER: Final = tuple(METHODS)


class ConsolidationState:
    """When the cluster last changed in a way that could let something be consolidated."""

    def __init__(self, store: WorldStore, clock: Clock) -> None:
        self.clock = clock
        self._version = 0
        self._since = 0
        store.listen_to_pods(self._on_pod_change, WENT | BOUND)
        store.listen(self._on_change, "Node", "NodeClaim", "NodePool")

    def version(self) -> int:
        """Return a number that changes with every such change, and after five minutes without one."""
        if self.clock.now - self._since >= LOOK_AGAIN:
            self._mark()
        return self._version

    def looks_again_at(self) -> datetime:
        """Return when it changes by time alone."""
        return self.clock.instant_of(self._since + LOOK_AGAIN)

    def _mark(self) -> None:
        self._version += 1
        self._since = self.clock.now

    def _on_pod_change(self, change: Change) -> None:
        """Mark a pod that is gone, or was bound."""
        self._mark()

    def _on_change(self, change: Change) -> None:
        if _counts(change.old, change.new):
            self._mark()


def _counts(old: object, new: object) -> bool:
    """Return whether a change of another object may let something be consolidated, in Karpenter's eyes."""
    match old, new:
        case (Node(), Node()):
            return old.metadata.labels.get(names.INITIALIZED_LABEL) != new.metadata.labels.get(names.INITIALIZED_LABEL)
        case (NodeClaim(), NodeClaim()):
            return (old.status.provider_id, old.metadata.deletion_timestamp is None) != (
                new.status.provider_id,
                new.metadata.deletion_timestamp is None,
            )
        case (NodePool(), NodePool()):
            return bool(old.spec != new.spec)
        case (None, NodeClaim()):
            return bool(new.status.provider_id)
        case (Node() | NodeClaim(), None) | (None, Node() | NodePool()):
            return True
    return False


class LoopDecider:
    """Decides as Karpenter's loop does, by asking a `Decider`."""

    def __init__(self, state: ConsolidationState, dice: Dice) -> None:
        self._decider = Decider()
        self._state = state
        self._dice = dice
        self._settled: dict[Method, int] = {}
        self._passed: tuple[Method, ...] = ()

    def round(self, question: Question) -> RoundResult:
        """Ask the methods that have not settled since the cluster last changed."""
        state = self._state.version()
        settled = tuple(method for method, since in self._settled.items() if since == state)
        without, self._passed = (*self._passed, *settled), ()
        scene = self._decider.scene(self._by_chance(question, "round"))
        result = decide(Work(scene, hasty=True), without=without)
        self._settle(scene, result, without, state)
        if state in self._settled.values():
            again = self._state.looks_again_at()
            result = change(result, next_change=min(result.next_change or again, again))
        return result

    def revalidate(self, command: Command, question: Question) -> Command | Refusal:
        """Check a command again; where it is refused, the rest of the turn belongs to the methods after its own."""
        answer = self._decider.revalidate(command, self._by_chance(question, "validation"))
        if isinstance(answer, Refusal) and command.method is not _ORDER[-1]:
            self._passed = _ORDER[: _ORDER.index(command.method) + 1]
        return answer

    def _by_chance(self, question: Question, asked: str) -> Question:
        """Return the question with ties between domains random, as Karpenter iterates over its maps in random order.

        What is drawn depends on the instant and on what is asked then, not on how many questions came before.
        """
        dice = self._dice.of("loop", f"{question.now.isoformat()}/{asked}")
        return change(question, settings=change(question.settings, ties=dice.randrange(1, 2**32)))

    def _settle(self, scene: Scene, result: RoundResult, without: tuple[Method, ...], state: int) -> None:
        """Note which consolidation methods had candidates, were not short of budget, and still found nothing."""
        acting = result.commands[0].method if result.commands else None
        if acting not in (None, Method.SINGLE_NODE) or not scene.cost_order:
            return
        pools: dict[str, int] = {}
        for facts in scene.cost_order:
            pools[facts.pool_name] = pools.get(facts.pool_name, 0) + 1
        left = scene.left(Method.MULTI_NODE)
        if Method.MULTI_NODE not in without and all(left.get(pool, 0) >= count for pool, count in pools.items()):
            self._settled[Method.MULTI_NODE] = state
        if acting is None and Method.SINGLE_NODE not in without and all(left.get(pool, 0) > 0 for pool in pools):
            self._settled[Method.SINGLE_NODE] = state
