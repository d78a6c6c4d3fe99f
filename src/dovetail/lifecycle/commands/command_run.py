"""One command in progress: what is known about it, and what the store shows of its objects.

Facts only: `signals` decides which of them advance it, `steps` what to request, `machine` the order. Times are
nanoseconds of the engine's own clock, except those written into records. Sits in lifecycle, below `signals` and
`steps`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from dovetail.decide.in_flight import LeavingNode
from dovetail.lifecycle.commands.attempts import SECOND, Attempts
from dovetail.lifecycle.commands.machine import BEGINNING, TERMINAL, Phase, Signal
from dovetail.lifecycle.commands.records import (
    DOVETAIL,
    Candidate,
    Record,
    carries,
    encode_record,
    is_tainted,
    record_of,
)
from dovetail.lifecycle.messages import Failure
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Command, Method
from dovetail.model.objects import Node, NodeClaim, NodeClaimStatus, NodePool, condition, is_true
from dovetail.model.policies.daemon_like import DaemonLikePods
from dovetail.model.timing.duration import format_duration

EVICTION_LOOK: Final = SECOND // 2
"""How often the way of an evicted pod is looked at when no pod of its owners gets a node."""
_NOT_LAUNCHED_YET: Final = (None, "", "AwaitingReconciliation", "Launching")
"""Reasons of a condition Launched that is not True while the launch is in progress."""
_NOT_TAKEN_UP: Final = NodeClaimStatus()
"""The status of a NodeClaim that Karpenter has not processed yet."""
LINGER: Final = 60 * SECOND
"""How long a Node may outlive its NodeClaim before the command no longer waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What signals are derived from: the cluster, the time, and which pools are managed."""

    store: Store
    elapsed: int
    now: datetime
    replacement_timeout: int
    launch_timeout: int
    drain_patience: int
    manages: Callable[[str], bool]
    evicts: bool = False
    evicts_side_by_side: bool = False
    surges: bool = True
    looks_last: bool = True
    daemon_like: tuple[DaemonLikePods, ...] = ()
    rate_span: Callable[[str], int] = lambda _pool: 0
    """The longest span of a pool's rate budgets, in nanoseconds; 0: it has none (docs/rules.md#rates)."""
    begins: Callable[[Candidate], tuple[str, str] | None] = lambda _candidate: None
    """The topology key and the domain of a node whose pool lets drift work in one domain at a time; else None."""
    drain_for: Callable[[NodePool, Node], int | None] = lambda _pool, _node: None
    """How long the drain of a repaired node may take; None: as long as its claim allows (docs/rules.md#repair)."""
    surging_sets: Callable[[], tuple[tuple[str, str], ...]] = tuple
    """The ReplicaSets, by namespace and name, whose pods leave by a rolling update (docs/rules.md#surge)."""


class Evicted(msgspec.Struct, frozen=True):
    """A pod that a command evicted: its eviction, when, its node, its owners, and which pods they had then.

    `place`: where it is planned to go; None: the plan doesn't say. `size`: which pods can take each other's places.
    """

    ident: str
    at: int
    node: str
    place: str | None
    size: tuple[bool, int, int]
    owners: tuple[str, ...]
    siblings: frozenset[str]
    """By uid; any other pod of these owners came after the eviction."""


class _Plan:
    """Where a command's pods go, ready to be looked up."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.destinations = tuple(place.node for place in command.placements)
        self.places = {
            pod: (at, nth) for at, place in enumerate(command.placements) for nth, pod in enumerate(place.pods)
        }
        self.goals = {pod: place.node for place in command.placements for pod in place.pods} | {
            pod: f"#{at}" for at, new in enumerate(command.replacements) for pod in new.pods
        }


@dataclass(slots=True, kw_only=True)
class Run:
    """A command in progress. Mutable; only the engine changes it."""

    id: str
    action: Action
    method: Method
    candidates: tuple[Candidate, ...]
    replacements: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    phase: Phase
    by: str = DOVETAIL
    command: Command | None = None
    began: datetime
    began_at: int = 0
    phase_since: int = 0
    retry_at: int | None = None
    validate_at: int = 0
    deadline: int = 0
    begin_by: int = 0
    why: str = ""
    attempts: Attempts = field(default_factory=Attempts)
    seen: dict[str, str] = field(default_factory=dict)
    taken_up_at: dict[str, int] = field(default_factory=dict)
    launch_by: dict[str, int] = field(default_factory=dict)
    tainted: dict[str, None] = field(default_factory=dict)
    claim_gone_at: dict[str, int] = field(default_factory=dict)
    looked_at: int = 0
    to_evict: dict[str, None] | None = None
    in_the_air: tuple[Evicted, ...] = ()
    evicted: dict[str, dict[str, None]] = field(default_factory=dict)
    evicted_before: tuple[str, ...] = ()
    looks: int = 0
    cleared_at: int = 0
    refused_at: int | None = None
    warn_at: int | None = None
    drains_since: int | None = None
    verdict: Signal | None = None
    history: list[tuple[Phase, Signal]] = field(default_factory=list)
    _plan: "_Plan | None" = field(default=None, init=False, repr=False)
    _nodes: tuple[tuple[Candidate, ...], tuple[str, ...]] | None = field(default=None, init=False, repr=False)
    _by_node: tuple[tuple[Candidate, ...], dict[str, Candidate]] | None = field(default=None, init=False, repr=False)
    _leaving: "tuple[tuple[Candidate, ...], datetime, tuple[LeavingNode, ...]] | None" = field(
        default=None, init=False, repr=False
    )

    @property
    def is_over(self) -> bool:
        """Return whether it has ended."""
        return self.phase in TERMINAL

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the nodes that it removes."""
        known = self._nodes
        if known is None or known[0] is not self.candidates:
            known = self._nodes = (self.candidates, tuple([candidate.node for candidate in self.candidates]))
        return known[1]

    def candidate(self, node: str) -> Candidate:
        """Return the candidate of that node."""
        known = self._by_node
        if known is None or known[0] is not self.candidates:
            known = self._by_node = (self.candidates, {candidate.node: candidate for candidate in self.candidates})
        return known[1][node]

    @property
    def leaving(self) -> tuple[LeavingNode, ...]:
        """Return the nodes that it removes, as rounds see them; the same values until it is decided anew."""
        known = self._leaving
        if known is None or known[0] is not self.candidates or known[1] is not self.began:
            entries = [
                LeavingNode(node=node, method=self.method, since=self.began, command_id=self.id) for node in self.nodes
            ]
            known = self._leaving = (self.candidates, self.began, tuple(entries))
        return known[2]

    @property
    def source_pools(self) -> tuple[str, ...]:
        """Return the pools that its candidates belong to."""
        return tuple(sorted({candidate.pool for candidate in self.candidates}))

    @property
    def destinations(self) -> tuple[str, ...]:
        """Return the existing nodes that its pods will move to."""
        return () if self.command is None else self._plan_of(self.command).destinations

    @property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """Return which placement of the command has each pod, and its position there."""
        return {} if self.command is None else self._plan_of(self.command).places

    def goal(self, pod: str) -> str | None:
        """Return where the plan puts a pod (`namespace/name`): a node, or `#` and the number of a replacement."""
        return None if self.command is None else self._plan_of(self.command).goals.get(pod)

    def _plan_of(self, command: Command) -> "_Plan":
        if self._plan is None or self._plan.command is not command:
            self._plan = _Plan(command)
        return self._plan

    def record(self, phase: Phase, now: datetime, evicted: tuple[str, ...] = ()) -> str:
        """Return the record that its objects carry; `evicted`: pods whose eviction from that Node is requested."""
        return encode_record(
            Record(
                id=self.id,
                action=self.action,
                method=self.method,
                phase=phase.value,
                since=now,
                nodes=self.candidates,
                replacements=self.replacements,
                pools=self.pools,
                by=self.by,
                evicted=evicted,
            )
        )

    def next_at(self) -> int | None:
        """Return when it must be checked again if no event comes."""
        times = [] if self.retry_at is None else [self.retry_at]
        if self.phase is Phase.VALIDATING:
            times.append(self.validate_at)
        elif self.phase in (*BEGINNING, Phase.LAUNCHING, Phase.WAITING, Phase.SURGING):
            times += [self.deadline, *self.launch_by.values()]
            times += [self.begin_by] if self.phase in BEGINNING and self.attempts.any_open_failure() else []
        elif self.phase is Phase.CHECKING:
            times.append(self.deadline)
        elif self.phase is Phase.EVICTING:
            times.append(self.looked_at + EVICTION_LOOK)
        elif self.phase is Phase.DRAINING:
            times += [at + LINGER for at in self.claim_gone_at.values()]
            times += [] if self.warn_at is None else [self.warn_at]
        return min(times, default=None)

    # ------------------------------------------------------------ ids

    def taint_id(self, candidate: Candidate) -> str:
        """Return the id of the instruction that taints a candidate."""
        return f"{self.id}/taint/{candidate.node}"

    def note_id(self, pool: str) -> str:
        """Return the id of the instruction that notes the start on a pool."""
        return f"{self.id}/note/{pool}"

    def begin_id(self, pool: str) -> str:
        """Return the id of the instruction that writes on a pool which domain begins."""
        return f"{self.id}/begin/{pool}"

    def forget_id(self, pool: str) -> str:
        """Return the id of the instruction that removes the start from a pool."""
        return f"{self.id}/forget/{pool}"

    def untaint_id(self, candidate: Candidate) -> str:
        """Return the id of the instruction that untaints a candidate."""
        return f"{self.id}/untaint/{candidate.node}"

    def create_id(self, name: str) -> str:
        """Return the id of the instruction that creates a replacement."""
        return f"{self.id}/create/{name}"

    def delete_id(self, name: str) -> str:
        """Return the id of the instruction that deletes a NodeClaim."""
        return f"{self.id}/delete/{name}"

    def look_id(self) -> str:
        """Return the id of the last look before the irreversible step; another one each time that it begins anew."""
        return f"{self.id}/look/{self.looks}"

    def attribute_id(self, name: str, *, at_once: bool = False) -> str:
        """Return the id of the instruction that writes why a candidate's NodeClaim leaves."""
        return f"{self.id}/attribute{'-at-once' if at_once else ''}/{name}"

    def clear_id(self, name: str) -> str:
        """Return the id of the instruction that clears a replacement's record."""
        return f"{self.id}/clear/{name}"


# ---------------------------------------------------------------- what is seen


def look(run: Run, view: View) -> None:
    """Record what the store shows of the command's objects, to recognise later absences."""
    run.looked_at = view.elapsed
    for name in run.replacements:
        claim = view.store.get(NodeClaim, name)
        if claim is not None and carries_or_made(run, claim):
            run.seen[name] = claim.metadata.uid
            run.launch_by.pop(name, None)
            if claim.status != _NOT_TAKEN_UP and not _has_machine(claim):
                since = run.taken_up_at.setdefault(name, view.elapsed)
                run.launch_by[name] = since + view.launch_timeout
    for candidate in run.candidates:
        node = view.store.get(Node, candidate.node)
        if node is not None and carries(node, run.id):
            run.tainted[candidate.node] = None
        if claim_of(candidate, view.store) is None:
            run.claim_gone_at.setdefault(candidate.node, view.elapsed)


def carries_or_made(run: Run, claim: NodeClaim) -> bool:
    """Return whether a NodeClaim under a replacement's name is really this command's."""
    if carries(claim, run.id):
        return True
    attempt = run.attempts.get(run.create_id(claim.metadata.name))
    return run.seen.get(claim.metadata.name) == claim.metadata.uid or (attempt is not None and attempt.succeeded)


def claim_of(candidate: Candidate, store: Store) -> NodeClaim | None:
    """Return the candidate's NodeClaim if it is still the same one."""
    claim = store.get(NodeClaim, candidate.claim)
    return claim if claim is not None and claim.metadata.uid == candidate.uid else None


def is_gone(run: Run, candidate: Candidate, view: View) -> bool:
    """Return whether nothing is left of a candidate: NodeClaim and Node, the latter for at most a minute more."""
    if claim_of(candidate, view.store) is not None:
        return False
    node = view.store.get(Node, candidate.node)
    if node is None or not (carries(node, run.id) or candidate.node in run.tainted):
        return True
    if record_of(node) is None and not is_tainted(node):
        return True  # another node with the same name, or an orphan whose taint was removed
    gone_at = run.claim_gone_at.get(candidate.node, view.elapsed)
    return view.elapsed - gone_at >= LINGER


def is_leaving(run: Run, candidate: Candidate, view: View) -> bool:
    """Return whether a candidate's deletion has started: seen, or reported by the shell."""
    claim = claim_of(candidate, view.store)
    if claim is None or claim.metadata.deletion_timestamp is not None:
        return True
    ident = run.delete_id(candidate.claim)
    return run.attempts.succeeded(ident) or run.attempts.failed(ident) is Failure.NOT_FOUND


def replacement(run: Run, name: str, view: View) -> NodeClaim | None:
    """Return a replacement's NodeClaim, or None."""
    claim = view.store.get(NodeClaim, name)
    return claim if claim is not None and carries_or_made(run, claim) else None


def has_vanished(run: Run, name: str, view: View) -> bool:
    """Return whether a replacement that existed is gone, or being deleted."""
    claim = replacement(run, name, view)
    if claim is None:
        return name in run.seen
    return claim.metadata.deletion_timestamp is not None


def launch_failure(run: Run, name: str, view: View) -> str:
    """Return why a replacement will get no machine; empty if it has one, or may still get one.

    Karpenter's provisioner waits while any NodeClaim has no provider id, so a claim that it can't launch must not stay.
    The time-out counts from when Karpenter took the claim up. One without any status has not been processed yet (is
    Karpenter down?): the replacement's own deadline applies.
    """
    claim = replacement(run, name, view)
    if claim is None or _has_machine(claim) or claim.metadata.deletion_timestamp is not None:
        return ""
    if claim.status == _NOT_TAKEN_UP:
        return ""
    launched = condition(claim.status.conditions, names.CONDITION_LAUNCHED)
    if launched is not None and launched.status != "True" and launched.reason not in _NOT_LAUNCHED_YET:
        return f"{name} can't be launched ({launched.reason})"
    since = run.taken_up_at.get(name, view.elapsed)
    if view.elapsed - since >= view.launch_timeout:
        return f"{name} has had no machine for {format_duration(view.launch_timeout)}"
    return ""


def _has_machine(claim: NodeClaim) -> bool:
    return bool(claim.status.provider_id or claim.status.node_name)


def is_initialized(run: Run, name: str, view: View) -> bool:
    """Return whether a replacement is ready for pods."""
    claim = replacement(run, name, view)
    return claim is not None and is_true(claim.status.conditions, names.CONDITION_INITIALIZED)


def is_anothers(run: Run, candidate: Candidate, view: View) -> bool:
    """Return whether the node carries the taint and the record of another command (two controllers at once)."""
    node = view.store.get(Node, candidate.node)
    record = None if node is None or not is_tainted(node) else record_of(node)
    return record is not None and record.id != run.id


def hands_off(run: Run, view: View) -> str:
    """Return why Dovetail must leave a candidate alone: a person, or another command; empty if it need not."""
    for candidate in run.candidates:
        if not view.manages(candidate.pool):
            return f"pool {candidate.pool} is no longer managed"
        if is_anothers(run, candidate, view):
            return f"another command has taken {candidate.node}"
        for item in (view.store.get(Node, candidate.node), claim_of(candidate, view.store)):
            if item is not None and item.metadata.annotations.get(names.ALWAYS_DO_NOT_DISRUPT) == "true":
                return f"{candidate.node} now carries {names.ALWAYS_DO_NOT_DISRUPT}"
    return ""
