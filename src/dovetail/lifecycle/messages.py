"""What goes into the engine and what comes out: events are past facts, instructions are imperatives.

Nothing else crosses the boundary between the pure core and a shell. Both are plain frozen values that can be journaled
and replayed. Every instruction has an `id` that is the same whenever the same thing is requested again, so a shell may
repeat it safely; the answer names that id.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dovetail.lifecycle.reports import Report
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Replacement
from dovetail.model.objects import AnyObject
from dovetail.model.policies.daemon_like import DaemonLikePods
from dovetail.model.settings import Settings

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectObserved:
    """An object is new or has changed; contains the whole object.

    `distrusted`: why its command record was removed (`commands.seal`); empty if it was not.
    """

    object: AnyObject
    distrusted: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectVanished:
    """An object is gone. With its `uid`, a late event of the same object can't bring it back."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """Everything that exists has been observed at least once: decisions may start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewGrewOld:
    """There was no news of these kinds for too long: no decision until the next `Synced`."""

    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipGained:
    """From now on, the engine of this process may act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipLost:
    """Another process may act: no instruction until leadership is gained again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAdvanced:
    """Time has passed; sent when a `WakeAt` falls due, and at least once a poll interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet:
    """The wall clock was set since the last event, by so many microseconds (back, if negative): no time has passed."""

    by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTook:
    """The last round took so many nanoseconds of the shell's time: the next one waits for as long.

    A shell sends it after a long round. Without the wait a round that takes longer than the poll interval would be due
    again at the next event: thousands of events and the steps of commands would wait behind one round each.
    """

    nanoseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueChanged:
    """Prices or types have changed."""

    catalogue: Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSeen:
    """Another controller, `by`, evicted a pod from a node, by one of its strategies."""

    node: str
    by: str
    strategy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChanged:
    """The alert gate holds all pools, with this sentence; empty: it no longer does (docs/rules.md#health)."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """The settings file has changed."""

    settings: Settings


class Failure(StrEnum):
    """How an instruction failed.

    `taken`: the node carries the taint and record of another command, which must not be overwritten. `occupied`: the
    node has pods, as the server shows them now, that must not be disrupted. `conflict`, `throttled` and
    `unreachable` are retried; `not-found` means that its object is gone (or, for a creation, its pool); `forbidden` and
    `refused` are permanent. A deletion whose uid no longer matches is `not-found`: that object is gone.
    """

    CONFLICT = "conflict"
    NOT_FOUND = "not-found"
    THROTTLED = "throttled"
    FORBIDDEN = "forbidden"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TAKEN = "taken"
    OCCUPIED = "occupied"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSucceeded:
    """The shell executed the instruction of that id; `uid` is that of the object it created, if any.

    Also the answer if nothing was left to do: the taint was there, a NodeClaim of that name and command existed.
    """

    id: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFailed:
    """The shell could not execute the instruction of that id."""

    id: str
    failure: Failure
    detail: str = ""


Event = (
    ObjectObserved
    | ObjectVanished
    | Synced
    | ViewGrewOld
    | LeadershipGained
    | LeadershipLost
    | ClockAdvanced
    | ClockSet
    | RoundTook
    | CatalogueChanged
    | AlertChanged
    | EvictionSeen
    | SettingsChanged
    | InstructionSucceeded
    | InstructionFailed
)

# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintNode:
    """Put `karpenter.sh/disruption=disrupting:NoSchedule` on the node, and the command's record as an annotation.

    A node with the taint and the record of another command is left as it is, and the answer is `taken`.
    """

    id: str
    command_id: str
    node: str
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UntaintNode:
    """Remove the taint and the command's record from the node, unless the record is another command's.

    With an empty `command_id`: whatever record there is, since none can be read.
    """

    id: str
    command_id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNodeClaim:
    """Create this replacement under this exact name (idempotent), held, with the command's record."""

    id: str
    command_id: str
    name: str
    replacement: Replacement
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteNodeClaim:
    """Delete the NodeClaim if it is still the one with this uid, and if the pods on its node still allow it.

    `node`: whose pods must be read right before the deletion (`commands.last_look`); empty for a replacement that is
    rolled back. `only_empty`: no pod that would have to move may be there; `spares_protected`: nor one with
    do-not-disrupt, nor one of the ReplicaSets `roll_first` (namespace and name), which leave by a rolling update.
    Otherwise the answer is `occupied`. `drain_for`: the maximum duration of the drain, ns (docs/rules.md#repair).

    `undo`: it is a replacement that is rolled back. If it is initialized and has pods that would have to move, or if
    one of the NodeClaims `candidates` (name and uid) is gone or being deleted, the answer is `occupied`.

    `daemon_like`: pods that go with their node and are not asked.
    """

    id: str
    command_id: str
    name: str
    uid: str
    node: str = ""
    only_empty: bool = False
    spares_protected: bool = True
    roll_first: tuple[tuple[str, str], ...] = ()
    drain_for: int | None = None
    undo: bool = False
    candidates: tuple[tuple[str, str], ...] = ()
    daemon_like: tuple[DaemonLikePods, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAtPods:
    """Read the pods of nodes that are about to go, and the PDBs over them; write nothing.

    The answer is `occupied` if a pod has do-not-disrupt or must leave by a rolling update (`roll_first`, as in
    `DeleteNodeClaim`). `asks_pdbs`: or if a PDB would refuse an eviction now. `asks_windows`: or if the window of a pod
    is closed. `daemon_like`: pods that are not asked.
    """

    id: str
    command_id: str
    nodes: tuple[str, ...]
    asks_pdbs: bool = True
    asks_windows: bool = True
    roll_first: tuple[tuple[str, str], ...] = ()
    daemon_like: tuple[DaemonLikePods, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDisruptionReason:
    """Write on a NodeClaim that is being deleted why, so that Karpenter's evictions name the true reason.

    Only after the deletion: Karpenter removes the condition from claims that are not being deleted.
    """

    id: str
    command_id: str
    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Evict the pod if it still has this uid, through the eviction API so that PDBs hold (docs/rules.md#evictions).

    First the `record`, which names the pod as evicted, is written on its `node`, unless that carries the record of
    another command or none; then the answer is `taken`.
    """

    id: str
    command_id: str
    namespace: str
    name: str
    uid: str
    node: str = ""
    record: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeDeployment:
    """Start the rolling update of a Deployment by a mark in its pod template (docs/rules.md#surge), once per mark."""

    id: str
    command_id: str
    namespace: str
    name: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearRecord:
    """Remove the command's record from a replacement after success, and from its Node (Karpenter copies it).

    With an empty `command_id`: whatever record there is, since none can be read.
    """

    id: str
    command_id: str
    node_claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDisruption:
    """Write into a pool's history that nodes start leaving, before they do (docs/rules.md#rates).

    Entries older than `keep` nanoseconds are removed. An entry of the same command is not written twice.
    """

    id: str
    command_id: str
    node_pool: str
    nodes: int
    reason: str
    at: datetime
    keep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetDisruption:
    """Remove a command that was rolled back from a pool's history."""

    id: str
    command_id: str
    node_pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltPool:
    """Write on a NodePool why it halts (docs/rules.md#health), or remove that."""

    id: str
    node_pool: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginDomain:
    """Write on a NodePool which domain drift begins in, before the first node there is tainted (topology-budgets).

    A domain that is begun already stays as it is.
    """

    id: str
    command_id: str
    node_pool: str
    key: str
    domain: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepRoll:
    """Write on a NodePool what is kept of its roll, or remove that: annotations, by name (`api.rolling.MARKS`).

    `seen`: what these annotations said when that was decided, in this order. If they say something else by now, nothing
    is written: a command has begun the next domain since, or a person has asked for something else.
    """

    id: str
    node_pool: str
    marks: tuple[tuple[str, str | None], ...]
    seen: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRollRequest:
    """Remove a person's request to replace one node from its NodeClaim: nobody manages its pool any more."""

    id: str
    node_claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNode:
    """Keep Karpenter's own voluntary disruption away from the node (docs/rules.md#karpenter)."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNode:
    """Release a held node to Karpenter."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPod:
    """Make the pod the next victim of a scale-down (docs/rules.md#steering): a deletion cost, with Dovetail's mark.

    A deletion cost that somebody else wrote stays as it is.
    """

    id: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmarkPod:
    """Remove Dovetail's deletion cost from the pod; a value that was changed since stays."""

    id: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseNode:
    """Put `dovetail.dev/closing:PreferNoSchedule` on the node: new pods prefer others (docs/rules.md#steering)."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNode:
    """Remove that taint from the node."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvent:
    """Publish a Kubernetes event on the object that it concerns. `warning` or normal."""

    id: str
    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoolCondition:
    """Report on the NodePool, e.g. that a budget can't be read, or how far a roll is."""

    id: str
    node_pool: str
    type: str
    status: str
    reason: str
    message: str
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPoolCondition:
    """Remove a condition from a NodePool."""

    id: str
    node_pool: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send `ClockAdvanced` at this time, whatever else happens."""

    at: datetime


ClusterInstruction = (
    TaintNode
    | UntaintNode
    | CreateNodeClaim
    | DeleteNodeClaim
    | LookAtPods
    | SetDisruptionReason
    | EvictPod
    | SurgeDeployment
    | ClearRecord
    | NoteDisruption
    | ForgetDisruption
    | HaltPool
    | BeginDomain
    | KeepRoll
    | DropRollRequest
    | HoldNode
    | ReleaseNode
    | MarkPod
    | UnmarkPod
    | CloseNode
    | OpenNode
    | PublishEvent
    | SetPoolCondition
    | DropPoolCondition
)
"""What reads or changes objects of the cluster; `lifecycle.effects` says how."""

Instruction = ClusterInstruction | WakeAt | Report
"""All that an engine asks of its shell."""
