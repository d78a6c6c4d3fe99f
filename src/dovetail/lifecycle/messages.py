"""What goes into the engine and what comes out: events are past facts, instructions are imperatives.

Nothing else crosses the border between the pure core and a shell. Both are plain frozen values that can be journaled
and replayed. Every instruction carries an `id` that is the same whenever the same thing is asked for again, so that a
shell may repeat it safely; the answer to it names that id.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from dovetail.lifecycle.reports import Report
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Replacement
from dovetail.model.objects import AnyObject
from dovetail.model.settings import Settings

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectObserved:
    """An object is there, new or changed; the whole of it.

    `distrusted`: why the command record that it carried was taken off (`commands.seal`); empty where nothing was.
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
    """All that exists has been observed at least once: decisions may begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewGrewOld:
    """Nothing has been heard of these kinds for too long: no decision until `Synced` comes again."""

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
class CatalogueChanged:
    """Prices or types are new."""

    catalogue: Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertChanged:
    """The alert gate holds all pools, with this sentence; empty: it no longer does (spec section 17)."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """The settings file is new."""

    settings: Settings


class Failure(StrEnum):
    """How an instruction failed.

    `taken`: the node carries the taint and record of another command, which must not be overwritten.
    `occupied`: pods are on the node, as the server has them now, that a deletion must not disturb.
    `conflict`, `throttled` and `unreachable` are tried again; `not-found` means that its object is gone (or, for a
    creation, its pool); `forbidden` and `refused` will not change by themselves. A deletion whose uid no longer fits is
    `not-found`: the object that was meant is gone.
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
    """The shell carried out the instruction of that id; `uid` is that of the object it made, where it made one.

    Also the answer where nothing was left to do: the taint was there, a NodeClaim of that name and command existed.
    """

    id: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFailed:
    """The shell could not carry out the instruction of that id."""

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
    | CatalogueChanged
    | AlertChanged
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
    """Take our taint and the command's record off the node, unless the record is another command's.

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
    undone. `only_empty`: no pod that would have to move may be there; `spares_protected`: nor one that says
    do-not-disrupt, nor one of the ReplicaSets `roll_first` (namespace and name), which leave by a rolling update.
    Otherwise the answer is `occupied`. `drain_for`: the longest that the drain may take, ns (spec section 19).
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDisruptionReason:
    """Say on a NodeClaim that is being deleted why it goes, so that Karpenter's evictions name the true reason.

    Only after the deletion: Karpenter takes the condition off claims that neither it nor anybody else is deleting.
    """

    id: str
    command_id: str
    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Evict the pod if it is still the one with this uid, through the eviction API so that PDBs hold (section 24)."""

    id: str
    command_id: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgeDeployment:
    """Begin the rolling update of a Deployment by a mark in its pod template (spec section 20), once per mark."""

    id: str
    command_id: str
    namespace: str
    name: str
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearRecord:
    """Take the command's record off a replacement whose command has ended well, and off its Node (Karpenter copies it).

    With an empty `command_id`: whatever record there is, since none can be read.
    """

    id: str
    command_id: str
    node_claim: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDisruption:
    """Write into a pool's history that nodes begin to leave, before they do (spec section 13).

    Entries older than `keep` nanoseconds go. An entry of the same command is not written twice.
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
    """Take a command that was rolled back out of a pool's history."""

    id: str
    command_id: str
    node_pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltPool:
    """Write on a NodePool why it halts (spec section 17), or take that off again."""

    id: str
    node_pool: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldNode:
    """Keep Karpenter's own voluntary disruption off the node (spec section 10)."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseNode:
    """Return a node that we hold back to Karpenter."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPod:
    """Make the pod the next victim of a scale-down (section 23): a deletion cost, with our mark beside it.

    A deletion cost that somebody else wrote stays as it is.
    """

    id: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmarkPod:
    """Take our deletion cost off the pod again; one that somebody has changed since stays."""

    id: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseNode:
    """Put `dovetail.dev/closing:PreferNoSchedule` on the node, so that new pods prefer others (section 23)."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNode:
    """Take that taint off the node again."""

    id: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishEvent:
    """Tell people, on the object that it concerns. `warning` or normal."""

    id: str
    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoolCondition:
    """Report on the NodePool, e.g. that a budget can't be read."""

    id: str
    node_pool: str
    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send `ClockAdvanced` at this time, whatever else happens."""

    at: datetime


ClusterInstruction = (
    TaintNode
    | UntaintNode
    | CreateNodeClaim
    | DeleteNodeClaim
    | SetDisruptionReason
    | EvictPod
    | SurgeDeployment
    | ClearRecord
    | NoteDisruption
    | ForgetDisruption
    | HaltPool
    | HoldNode
    | ReleaseNode
    | MarkPod
    | UnmarkPod
    | CloseNode
    | OpenNode
    | PublishEvent
    | SetPoolCondition
)
"""What reads or changes objects of the cluster; `lifecycle.effects` says how."""

Instruction = ClusterInstruction | WakeAt | Report
"""All that an engine asks of its shell."""
