"""Executes the engine's instructions on the simulated cluster and returns the results.

`lifecycle.effects` decides what an instruction means, for this cluster as for a real one; this module only reads and
writes. Other modules handle what follows from a write (launch, drain, binding). Events about objects are not simulated.
"""

from functools import lru_cache
from typing import Final, assert_never

from msgspec.structs import replace

from dovetail.lifecycle.commands.records import Record
from dovetail.lifecycle.commands.seal import Seal
from dovetail.lifecycle.effects.effect_context import EffectContext
from dovetail.lifecycle.effects.node_claims import node_claim_tree
from dovetail.lifecycle.effects.objects import Answer, ConflictError, RefusedError, object_of, patched, perform, tree_of
from dovetail.lifecycle.effects.writes import PDBS, PODS_ON, Create, Delete, Patch, Ref, Tree, Write
from dovetail.lifecycle.messages import ClusterInstruction, Failure, InstructionSucceeded, PublishEvent
from dovetail.model import names
from dovetail.model.command import Replacement
from dovetail.model.objects import AnyObject, Node, NodeClaim, NodePool
from dovetail.sim.world.clock import Clock
from dovetail.sim.world.eviction import EvictionAnswer as Eviction
from dovetail.sim.world.karpenter.lifetimes import Karpenter
from dovetail.sim.world.store import WorldStore

SEAL: Final = Seal((b"the simulated world's key",))
"""All controllers of a simulated cluster share one key, as the replicas of a real one do."""
_opened = lru_cache(maxsize=1024)(SEAL.opened)  # the objects of a command carry the same text and are looked at often

__all__ = ["SEAL", "Actuator", "Answer", "ClusterInstruction", "claim_from", "record_on"]


class Actuator:
    """The API server as one controller meets it.

    `holds`: whether that is Dovetail, which protects the NodeClaims it creates from Karpenter and checks a node's pods
    once more before it deletes its NodeClaim.
    """

    def __init__(self, store: WorldStore, clock: Clock, karpenter: Karpenter, *, holds: bool) -> None:
        self.store = store
        self.clock = clock
        self.karpenter = karpenter
        self.holds = holds

    def carry_out(self, asked: ClusterInstruction) -> Answer:
        """Execute the instruction now, and return the resulting event."""
        if isinstance(asked, PublishEvent):
            return InstructionSucceeded(id=asked.id)
        return perform(
            asked, self, EffectContext(now=self.clock.instant(), seal=SEAL, holds=self.holds, looks_last=self.holds)
        )

    def _find(self, ref: Ref) -> AnyObject | None:
        key = f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
        return self.store.by_kind[ref.kind].get(key)

    def read(self, ref: Ref) -> Tree | None:
        """Return an object as JSON, or None."""
        if ref.kind == PODS_ON:
            return {"pods": tuple(self.store.pods_on.get(ref.name, {}).values())}
        if ref.kind == PDBS:
            self.store.on_settle()
            return {"pdbs": tuple(self.store.pdbs[key] for key in sorted(self.store.pdbs))}
        item = self._find(ref)
        return None if item is None else tree_of(item)

    def write(self, write: Write) -> str:
        """Make a write as the API server would, and let Karpenter know."""
        item = self._find(write.ref)
        match write:
            case Create(subresource="eviction"):
                self._evict(f"{write.ref.namespace}/{write.ref.name}")
            case Create():
                if item is not None:
                    raise ConflictError(f"{write.ref.kind} {write.ref.name} is there already")
                made = object_of(write.tree)
                metadata = replace(
                    made.metadata, creation_timestamp=self.clock.instant(), finalizers=(names.TERMINATION_FINALIZER,)
                )
                made = self.store.put(replace(made, metadata=metadata))
                self.karpenter.created(write.ref.name)
                return made.metadata.uid
            case Patch():
                if item is None:
                    raise ConflictError(f"{write.ref.kind} {write.ref.name} is gone")
                self.store.put(patched(item, write))
            case Delete():
                if item is None or item.metadata.uid != write.uid:
                    raise ConflictError(f"{write.ref.kind} {write.ref.name} is gone")
                self.karpenter.delete(write.ref.name)
                return write.uid
            case _:
                assert_never(write)
        return ""

    def _evict(self, key: str) -> None:
        if self.karpenter.draining.evictions.evict(key) is Eviction.REFUSED:
            raise RefusedError(Failure.THROTTLED, f"a PodDisruptionBudget refuses the eviction of {key}")


def claim_from(pool: NodePool, name: str, wanted: Replacement) -> NodeClaim:
    """Return the NodeClaim that Karpenter itself would write for this pool."""
    claim = object_of(node_claim_tree(name, wanted, tree_of(pool), {}))
    assert isinstance(claim, NodeClaim)
    return replace(claim, metadata=replace(claim.metadata, finalizers=(names.TERMINATION_FINALIZER,)))


def record_on(item: Node | NodeClaim | None) -> Record | None:
    """Return the trusted record that an object carries, if there is one."""
    text = None if item is None else item.metadata.annotations.get(names.COMMAND)
    record = "" if text is None else _opened(text)
    return None if isinstance(record, str) else record
