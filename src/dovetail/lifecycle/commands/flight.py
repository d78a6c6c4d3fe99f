"""What commands in progress reserve, and how a decision becomes a command.

docs/rules.md#gates: their nodes count as marked for deletion from the moment they are proposed (gate 2), their
replacements and destinations are nominated until they end (gate 4). Changes nothing. Sits in lifecycle, below `engine`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from dovetail.decide.in_flight import LeavingNode
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate, command_id, replacement_names
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Command, Placement, Replacement
from dovetail.model.objects import Node, NodeClaim, Pod
from dovetail.scheduling.under_way import UnderWay


def leaving(runs: Iterable[Run]) -> tuple[LeavingNode, ...]:
    """Return the nodes that the commands remove, by name."""
    return tuple(sorted([entry for run in runs for entry in run.leaving], key=attrgetter("node", "command_id")))


class Targets:
    """The nodes and NodeClaims that commands in progress send pods to, counted again for those that changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[tuple[str, ...], Command | None, tuple[str, ...]]] = {}
        """What each command says, by identity: as it is kept here, nothing else has the same one."""
        self._counts: dict[str, int] = {}

    def of(self, runs: Iterable[Run]) -> set[str]:
        """Return the replacements and destinations of the commands."""
        counts, before = self._counts, self._known
        runs_now = {(id(run.replacements), id(run.command)): run for run in runs}
        gone = [before.pop(mark) for mark in before.keys() - runs_now.keys()]
        for mark in runs_now.keys() - before.keys():
            run = runs_now[mark]
            names = (*run.replacements, *run.destinations)
            before[mark] = run.replacements, run.command, names
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        for *_, names in gone:
            for name in names:
                counts[name] -= 1
                if not counts[name]:
                    del counts[name]
        return set(counts)


def nominated(targets: Iterable[str], lingering: Iterable[str], store: Store) -> tuple[str, ...]:
    """Return the nodes and NodeClaims that pods will move to, by name; `targets`: those of commands in progress."""
    found = {*targets, *lingering}
    found.update(store.nodes_of_claims(found))
    found.update(pod.status.nominated_node_name for pod in store.pending_pods())
    found.discard("")
    return tuple(sorted(found))


PLANNED = (
    Phase.VALIDATING,
    Phase.TAINTING,
    Phase.LAUNCHING,
    Phase.WAITING,
    Phase.CHECKING,
    Phase.DELETING,
    Phase.DRAINING,
)
"""The phases in which the pods of a command's nodes still have to go where it planned."""


@dataclass(slots=True)
class _Plan:
    """What one command has planned, and the values that it was computed from.

    `version`: that of the store when these were last compared.
    """

    command: Command
    phase: Phase
    candidates: tuple[Candidate, ...]
    replacements: tuple[str, ...]
    claims: tuple[NodeClaim | None, ...]
    pods: tuple[tuple[str, tuple[Pod, ...]], ...]
    launches: tuple[Replacement, ...]
    placements: tuple[Placement, ...]
    version: int = -1


class Plans:
    """What commands in progress have planned, computed again for those whose objects have changed."""

    def __init__(self) -> None:
        self._kept: dict[str, _Plan] = {}

    def under_way(self, runs: Iterable[Run], store: Store) -> UnderWay:
        """Return where the pods of the commands' nodes will go, and what will be launched for them.

        A command resumed from a predecessor has no plan: only its replacements are known.
        """
        found = {}
        launches: list[Replacement] = []
        placements: list[Placement] = []
        kept, version = self._kept, store.version
        for run in runs:
            command = run.command
            if command is not None and run.phase in PLANNED:
                last = kept.get(run.id)
                if last is not None and not (
                    last.command is command and last.phase is run.phase and last.candidates is run.candidates
                ):
                    last = None
                if last is None or last.version != version:
                    last = _looked_at(run, command, store, last)
                found[run.id] = last
                launches += last.launches
                placements += last.placements
        # A validation leaves out some commands, which the next round asks for again.
        self._kept = {**kept, **found} if len(kept) <= 2 * len(found) else found
        return UnderWay(launches=tuple(launches), placements=tuple(placements))


def _looked_at(run: Run, command: Command, store: Store, last: _Plan | None) -> _Plan:
    """Return what a command has planned now; `last`: what it had, if only objects may have changed since."""
    if last is None or not _is_valid(last, run, store):
        claims = tuple([store.get(NodeClaim, name) for name in run.replacements])
        last = _plan(run, command, claims, tuple([(node, store.pods_on(node)) for node in run.nodes]))
    last.version = store.version
    return last


def _is_valid(plan: _Plan, run: Run, store: Store) -> bool:
    """Return whether the objects of a command are those that its plan was computed from."""
    if plan.replacements is not run.replacements:
        return False
    for node, pods in plan.pods:
        if store.pods_on(node) is not pods:
            return False
    claims = zip(plan.replacements, plan.claims, strict=True)
    return not plan.claims or all(store.get(NodeClaim, name) is claim for name, claim in claims)


def _plan(
    run: Run,
    command: Command,
    claims: tuple[NodeClaim | None, ...],
    pods: tuple[tuple[str, tuple[Pod, ...]], ...],
) -> _Plan:
    launches: list[Replacement] = []
    placements: list[Placement] = []
    metas = [pod.metadata for _, here in pods for pod in here]
    own = {meta.key: None for meta in metas}
    for name, spec, claim in zip(run.replacements, command.replacements, claims, strict=True):
        planned = tuple(pod for pod in spec.pods if pod in own)
        if claim is not None and claim.status.provider_id:
            # The scheduler knows it by its claim until it registers.
            places = [name, *([claim.status.node_name] if claim.status.node_name else [])]
            placements += [Placement(node=place, pods=planned) for place in places]
        elif claim is not None or run.phase in (Phase.VALIDATING, Phase.TAINTING, Phase.LAUNCHING):
            launches.append(replace(spec, pods=planned))
    # A plan also lists the pods of other leaving nodes, of a whole wave of commands perhaps.
    where = run.places
    going = sorted((where[pod], pod) for pod in own if pod in where)
    for at, entries in groupby(going, key=lambda entry: entry[0][0]):
        placements.append(Placement(node=command.placements[at].node, pods=tuple(pod for _, pod in entries)))
    return _Plan(command, run.phase, run.candidates, run.replacements, claims, pods, tuple(launches), tuple(placements))


def has_pods(claim_name: str, store: Store) -> bool:
    """Return whether a replacement has pods (or is gone)."""
    claim = store.get(NodeClaim, claim_name)
    if claim is None:
        return True
    return any(
        not any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)
        for pod in store.pods_on(claim.status.node_name)
    )


def bind_to_claims(
    command: Command, store: Store, taken: Callable[[str], bool], manages: Callable[[str], bool]
) -> tuple[Candidate, ...] | None:
    """Return a command's nodes with their NodeClaims.

    None if a node has no NodeClaim, is not managed, or is in another command.
    """
    found = []
    for name in command.nodes:
        node, claim = store.get(Node, name), store.claim_of(name)
        if node is None or claim is None or not claim.metadata.uid or taken(name):
            return None
        pool = claim.metadata.labels.get(names.NODEPOOL, node.metadata.labels.get(names.NODEPOOL, ""))
        if not manages(pool):
            return None
        found.append(Candidate(node=name, claim=claim.metadata.name, uid=claim.metadata.uid, pool=pool))
    return tuple(found)


def propose(
    command: Command, candidates: tuple[Candidate, ...], *, identity: str, number: int, now: datetime, elapsed: int
) -> Run:
    """Build a command from a decision: it waits for its validation."""
    uids = tuple(entry.uid for entry in candidates)
    run = Run(
        id=command_id(command, uids, identity, now, number),
        action=command.action,
        method=command.method,
        candidates=candidates,
        phase=Phase.VALIDATING,
        began=now,
        began_at=elapsed,
        phase_since=elapsed,
    )
    adopt(run, command, candidates, now)
    return run


def adopt(run: Run, command: Command, candidates: tuple[Candidate, ...], now: datetime) -> None:
    """Replace a command's content with that of the (renewed) decision."""
    run.command, run.candidates, run.action, run.began = command, candidates, command.action, now
    run.replacements = replacement_names(command, run.id)
    run.pools = tuple(spec.node_pool for spec in command.replacements)
