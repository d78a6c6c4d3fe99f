"""Blockers from features of Karpenter and Kubernetes: CapacityBuffers, and pods with resource claims.

A CapacityBuffer is removed by omitting it; a pod's resource claims by removing them from its spec, as if every node had
its devices. `blockers` asks the core about both. Sits in plan.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dovetail.decide.decider import Decider
from dovetail.decide.question import Question
from dovetail.model.objects import Pod
from dovetail.model.verdicts import Gate, NodeVerdict
from dovetail.plan.blocking.pool_blockers import Lift
from dovetail.report.words import count
from dovetail.scheduling.pods.pod import is_reschedulable
from dovetail.scheduling.pods.requests import uses_resource_claims

OFF_CLAIMS = (
    "restart the pod yourself where its devices are: neither Karpenter nor Dovetail moves pods with resource claims"
)


def buffer_lifts(question: Question, verdicts: Iterable[NodeVerdict]) -> Iterator[Lift]:
    """Yield, for every CapacityBuffer that keeps empty nodes, the question without it and those nodes."""
    held = [entry.node for entry in verdicts if entry.verdict == Gate.CAPACITY_BUFFER.value]
    buffers = question.cluster.capacity_buffers if held else ()
    for buffer in buffers:
        kept = tuple(entry for entry in buffers if entry is not buffer)
        lifted = replace(question, cluster=replace(question.cluster, capacity_buffers=kept))
        still = Decider().scene(lifted).buffered
        freed = tuple(node for node in held if node not in still)
        if not freed:
            continue
        yield Lift(
            kind="CapacityBuffer",
            name=buffer.metadata.key,
            gate=Gate.CAPACITY_BUFFER.value,
            question=lifted,
            nodes=freed,
            why=f"It keeps {count(len(freed), 'empty node')} as spare capacity for pods to come.",
            remedy="make the CapacityBuffer smaller, if so much spare capacity is not needed",
        )


def holds_claims(pod: Pod) -> bool:
    """Return whether a pod would have to move and has resource claims."""
    return uses_resource_claims(pod.spec) and is_reschedulable(pod)
