"""What the engine reports: Kubernetes events when a verdict changes, reports for logs and metrics, conditions on pools.

Decides nothing; remembers what was reported last, so that nothing is reported twice. See docs/rules.md#reports;
savings-threshold, Observability.

Reports are the types of `reports`. Sits in lifecycle, below `engine`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from operator import itemgetter
from typing import Final

from dovetail.decide.outcome import BlockedMove
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run, View, claim_of, is_initialized
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.decisions import Decision
from dovetail.lifecycle.messages import Instruction, ObjectObserved, PublishEvent
from dovetail.lifecycle.reports import (
    BudgetChanged,
    CommandAdvanced,
    DisruptedNode,
    ExpiryChanged,
    MovesBlocked,
    RecordIgnored,
    Report,
    VerdictsChanged,
    Warned,
    expiry_reports,
    some_of,
)
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.objects import NodePool
from dovetail.model.verdicts import ELIGIBLE, BriefVerdict, Gate
from dovetail.scheduling.pods.pod import is_reschedulable

VERDICTS_EVERY: Final = 60 * SECOND
"""How often all verdicts are computed, at most: on a busy cluster every round would, for thousands of sentences."""
BLOCKED_MEMORY: Final = 3600 * SECOND
"""How long a move that was blocked must not have been before it counts as another one."""
_PASSING: Final = frozenset(
    gate.value
    for gate in (
        Gate.STABILIZATION,
        Gate.UNINITIALIZED_DESTINATION,
        Gate.BACK_OFF,
        Gate.CONSOLIDATE_AFTER,
        Gate.GRACE_PERIOD,
        Gate.NOMINATED,
        Gate.MARKED_FOR_DELETION,
    )
)
"""Waits that end by themselves, and nodes that leave already: nothing blocks these nodes.

Where pods come and go, each of them would otherwise be an event on a node, with other seconds every time.
"""
_OF_POOLS: Final = frozenset(gate.value for gate in (Gate.BUDGET, Gate.WINDOW, Gate.HEALTH))
"""What holds all nodes of a pool at once. It is one event on the pool, as Karpenter has it, not one on every node."""
_CONSOLIDATION: Final = (Method.EMPTY, Method.MULTI_NODE, Method.SINGLE_NODE)
_DEFAULT_POLICY: Final = "WhenEmptyOrUnderutilized"
_ATTODOLLARS: Final = 10**18
_node: Final[Callable[[BriefVerdict], str]] = itemgetter(0)
_pool_and_verdict: Final[Callable[[BriefVerdict], tuple[str, str]]] = itemgetter(1, 2)


def publish(kind: str, name: str, reason: str, message: str, *, warning: bool = False) -> PublishEvent:
    """Build an event; its id follows from its text."""
    digest = sha256(f"{reason}\x00{message}".encode()).hexdigest()[:10]
    ident = f"event/{kind}/{name}/{digest}"
    return PublishEvent(id=ident, kind=kind, name=name, reason=reason, message=message, warning=warning)


def command_report(
    run: Run, source: Phase | None, found: Signal | None, target: Phase, elapsed: int, view: View | None = None
) -> CommandAdvanced:
    """Build the report of one step of a command; with a view, including the numbers for metrics."""
    unready, disrupted = 0, tuple[DisruptedNode, ...]()
    if view is not None and target is Phase.ROLLING_BACK:
        unready = sum(not is_initialized(run, name, view) for name in run.replacements)
    if view is not None and target is Phase.DELETING:
        disrupted = _disrupted(run, view)
    return CommandAdvanced(
        command_id=run.id,
        phase=target,
        source=source,
        signal=found,
        action=run.action,
        method=run.method,
        nodes=run.nodes,
        replacements=run.replacements,
        pools=tuple(dict.fromkeys(entry.pool for entry in run.candidates)),
        seconds=(elapsed - run.began_at) / SECOND,
        savings=None if run.command is None else run.command.savings / _ATTODOLLARS,
        why=run.why,
        terminate_first="" if run.command is None else run.command.terminate_first,
        disrupted=disrupted,
        launched_in=run.pools if found is Signal.LAUNCHED else (),
        unready=unready,
    )


def _disrupted(run: Run, view: View) -> tuple[DisruptedNode, ...]:
    """Return the numbers that Karpenter's metrics count for nodes that leave."""
    found = []
    for entry in run.candidates:
        claim, pool = claim_of(entry, view.store), view.store.get(NodePool, entry.pool)
        if claim is None:
            continue
        word = "" if pool is None else str(pool.spec.disruption.consolidation_policy or _DEFAULT_POLICY)
        found.append(
            DisruptedNode(
                pool=entry.pool,
                capacity_type=claim.metadata.labels.get(names.CAPACITY_TYPE, ""),
                policy=_snake(word) if run.method in _CONSOLIDATION else "",
                mode="graceful" if claim.spec.termination_grace_period is None else "eventual",
                pods=sum(is_reschedulable(pod) for pod in view.store.pods_on(entry.node)),
            )
        )
    return tuple(found)


def _snake(word: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", word).lower()


def command_event(run: Run, target: Phase) -> Iterator[PublishEvent]:
    """Yield events on the affected nodes: a command has started, or was rolled back."""
    if target is Phase.TAINTING:
        verb = "are" if len(run.replacements) > 1 else "is"
        coming = f" once {some_of(run.replacements)} {verb} ready" if run.replacements else ""
        for entry in run.candidates:
            yield publish("Node", entry.node, "DisruptionStarted", f"{run.action.value} ({run.id}): leaves{coming}.")
    elif target is Phase.ROLLING_BACK:
        for entry in run.candidates:
            message = f"{run.action.value} ({run.id}) is undone: {run.why}."
            yield publish("Node", entry.node, "DisruptionUndone", message, warning=True)


class Announcer:
    """Remembers what was reported last. `manages`: whether a pool is managed; `exists`: whether a node or claim exists.

    `is_busy`: whether nodes of a pool leave by commands in progress. It is told of every object that vanishes
    (`forget`), and of changes after which verdicts must not wait (`hurry`).
    """

    def __init__(
        self,
        verdicts_every: int = VERDICTS_EVERY,
        *,
        manages: Callable[[str], bool] = lambda pool: True,
        exists: Callable[[str], bool] = lambda node: True,
        is_busy: Callable[[str], bool] = lambda pool: False,
    ) -> None:
        self._verdicts_every = verdicts_every
        self._manages, self._exists, self._is_busy = manages, exists, is_busy
        self._counted: dict[str, BriefVerdict] = {}
        self._tally: Counter[tuple[str, str]] = Counter()
        self._vanished: dict[str, None] = {}
        self._published: frozenset[BriefVerdict] = frozenset()
        self._verdicts: dict[str, str] = {}
        self._held_pools: dict[str, str] = {}
        self._counts: dict[str, tuple[tuple[str, int], ...]] = {}
        self._budgets: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._warned: dict[str, None] = {}
        self._expiring: dict[str, ExpiryChanged] = {}
        self._blocked_at: dict[tuple[str, ...], int] = {}
        self._blocked_until = 0
        """When the first of them may be forgotten, at the earliest."""
        self._verdicts_at: int | None = None
        self._verdicts_of: Decision | None = None
        self._distrusted: dict[tuple[str, str], str] = {}
        self._unsaid: dict[tuple[str, str], PublishEvent] = {}

    def announce(self, result: Decision, elapsed: int, *, publishes: bool) -> list[Instruction]:
        """Return what is new in the result of a round."""
        if publishes:
            unsaid, self._unsaid = tuple(self._unsaid.values()), {}
        else:
            unsaid = ()
        said: list[Instruction] = [*unsaid, *self._budget_rows(result), *self._blocked(result)]
        said += [*self._warnings(result), *self._without_gone()]
        return said + self.verdicts_due(result, elapsed, publishes=publishes)

    def hurry(self) -> None:
        """Report the verdicts of the next round, however long ago the last ones were reported."""
        self._verdicts_at = None

    def minds(self, event: ObjectObserved) -> bool:
        """Return whether `distrusted` has anything to do: it has not for most events."""
        return bool(event.distrusted or self._distrusted)

    def distrusted(self, event: ObjectObserved, *, publishes: bool) -> list[Instruction]:
        """Report, once, that an object carries a command record that is ignored."""
        kind, name = type(event.object).__name__, event.object.metadata.name
        if not event.distrusted:
            self.forget(kind, name)
            return []
        if self._distrusted.get((kind, name)) == event.distrusted:
            return []
        self._distrusted[kind, name] = event.distrusted
        message = f"The annotation {names.COMMAND} is ignored: {event.distrusted}."
        published = publish(kind, name, "CommandRecordIgnored", message, warning=True)
        report = RecordIgnored(kind=kind, name=name, why=event.distrusted)
        if publishes:
            return [report, published]
        self._unsaid[kind, name] = published
        return [report]

    def forget(self, kind: str, name: str) -> None:
        """Forget an ignored record: it is gone, or the object is."""
        self._distrusted.pop((kind, name), None)
        self._unsaid.pop((kind, name), None)
        if name in self._counted:
            self._vanished[name] = None

    def verdicts_due(self, result: Decision, elapsed: int, *, publishes: bool) -> list[Instruction]:
        """Report a round's verdicts once, when they are due; also if nothing has changed since."""
        self._keep_blocked(result, elapsed)
        last = self._verdicts_at
        if (
            result.commands
            or result is self._verdicts_of
            or (last is not None and elapsed - last < self._verdicts_every)
        ):
            return []
        self._verdicts_at, self._verdicts_of = elapsed, result
        events = self._changes(result) if publishes else []
        self._vanished = {}
        self._counted = dict(zip(map(_node, result.brief_verdicts), result.brief_verdicts, strict=True))
        self._tally = Counter(map(_pool_and_verdict, self._counted.values()))
        return [*self._counts_of(), *self._expiry(result), *events]

    @property
    def told_round(self) -> Decision | None:
        """Return the last round whose verdicts were computed; None: there was none."""
        return self._verdicts_of

    def _expiry(self, result: Decision) -> Iterator[Report]:
        """Report the pools in which other nodes expire within a week than at the last verdicts."""
        found = expiry_reports(result.expiring)
        for pool in self._expiring.keys() - found.keys():
            yield ExpiryChanged(pool=pool, within_day=0, within_week=0, late=0)
        for pool, report in found.items():
            if self._expiring.get(pool) != report:
                yield report
        self._expiring = found

    def _without_gone(self) -> Iterator[Report]:
        """Count the verdicts again if nodes are gone: the next verdicts may be a while away."""
        gone = [node for node in self._vanished if not self._exists(node)]
        self._vanished = {}
        for node in gone:
            self._tally[_pool_and_verdict(self._counted.pop(node))] -= 1
        if gone:
            yield from self._counts_of()

    def _budget_rows(self, result: Decision) -> Iterator[Report]:
        for row in result.budgets:
            figures = (row.allowed_with_domains, row.used, row.left_with_domains)
            key = (row.node_pool, row.reason.value)
            if self._budgets.get(key) != figures:
                self._budgets[key] = figures
                allowed, used, left = figures
                yield BudgetChanged(pool=row.node_pool, reason=row.reason, allowed=allowed, used=used, left=left)

    def _blocked(self, result: Decision) -> Iterator[Report]:
        """Yield reports of moves that were not blocked before.

        A single node is one move. So is a batch of the same pools: which prefix of their nodes was tried last changes
        from round to round and is not news.
        """
        moves: dict[str, list[BlockedMove]] = {}
        for move in _one_batch(result.blocked):
            if _key(move) not in self._blocked_at:
                for pool in move.node_pools:
                    moves.setdefault(pool, []).append(move)
        for pool in sorted(moves):
            first = moves[pool][0]
            why = f"{some_of(first.nodes)}: {first.why}"
            yield MovesBlocked(pool=pool, moves=len(moves[pool]), nodes=first.nodes, why=why)

    def _keep_blocked(self, result: Decision, elapsed: int) -> None:
        """Remember what is blocked until it has not been for a while: rounds in which another method acts don't ask."""
        self._blocked_at |= {_key(move): elapsed for move in _one_batch(result.blocked)}
        if elapsed >= self._blocked_until:
            self._blocked_at = {key: at for key, at in self._blocked_at.items() if elapsed - at < BLOCKED_MEMORY}
            self._blocked_until = min(self._blocked_at.values(), default=elapsed) + BLOCKED_MEMORY

    def _warnings(self, result: Decision) -> Iterator[Report]:
        for warning in result.warnings:
            if warning not in self._warned:
                yield Warned(message=warning)
        self._warned = dict.fromkeys(result.warnings)

    def _counts_of(self) -> Iterator[Report]:
        counts: dict[str, dict[str, int]] = {pool: {} for pool in self._counts}
        for (pool, verdict), count in self._tally.items():
            if count:
                counts.setdefault(pool, {})[verdict] = count
        for pool in sorted(counts):
            now = tuple(sorted(counts[pool].items()))
            if self._counts.get(pool) != now:
                yield VerdictsChanged(pool=pool, counts=now)
            self._counts[pool] = now
            if not now:
                del self._counts[pool]

    def _changes(self, result: Decision) -> list[PublishEvent]:
        """Return events about verdicts that changed since the last ones that were published."""
        before, self._published = self._published, frozenset(result.brief_verdicts)
        new = self._published - before
        changed = [entry for entry in result.brief_verdicts if entry in new] if new else []
        for node in {entry.node for entry in before - self._published}.difference(map(_node, new)):
            self._verdicts.pop(node, None)  # it is gone
        events = []
        for entry in changed:
            if entry.verdict in _PASSING:
                continue
            known = self._verdicts.get(entry.node)
            self._verdicts[entry.node] = entry.verdict
            if not entry.node_pool or not self._manages(entry.node_pool):
                continue  # the controller that manages that pool reports why its nodes stay
            if entry.verdict not in (ELIGIBLE, known) and entry.verdict not in _OF_POOLS:
                events.append(
                    publish("Node", entry.node, "DisruptionBlocked", f"{entry.verdict}: {result.why(entry.node)}")
                )
        return [*self._pools_held(result), *events]

    def _pools_held(self, result: Decision) -> Iterator[PublishEvent]:
        """Yield an event for every pool that something else holds as a whole than at the last verdicts."""
        first = {entry.node_pool: entry for entry in reversed(result.brief_verdicts) if entry.verdict in _OF_POOLS}
        held = {
            pool: entry.verdict
            for pool, entry in sorted(first.items())
            if pool and self._manages(pool) and not self._uses_budget(pool, entry.verdict, result)
        }
        before, self._held_pools = self._held_pools, held
        for pool, verdict in held.items():
            if before.get(pool) != verdict:
                why = result.why(first[pool].node)
                yield publish("NodePool", pool, "DisruptionBlocked", f"{verdict}: {why}")

    def _uses_budget(self, pool: str, verdict: str, result: Decision) -> bool:
        """Return whether a pool waits only because commands in progress use its budget: that blocks nothing."""
        rows = [row for row in result.budgets if row.node_pool == pool]
        return verdict == Gate.BUDGET.value and self._is_busy(pool) and any(row.allowed > 0 for row in rows)


def _one_batch(blocked: Iterable[BlockedMove]) -> Iterator[BlockedMove]:
    """Yield the moves of single nodes, and the largest batch of the same pools."""
    batches: dict[tuple[str, ...], BlockedMove] = {}
    for move in blocked:
        if len(move.nodes) == 1:
            yield move
        elif move.node_pools not in batches or len(move.nodes) > len(batches[move.node_pools].nodes):
            batches[move.node_pools] = move
    yield from batches.values()


def _key(move: BlockedMove) -> tuple[str, ...]:
    return ("node", move.nodes[0]) if len(move.nodes) == 1 else ("batch", *move.node_pools)
