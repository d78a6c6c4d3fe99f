"""The rules of gates 1 to 6 of spec section 4: may this node be disrupted at all, whatever the method.

The first group looks at the node, the second at its pods. `candidates` puts them in order. Sits in decide, above facts.
"""

from datetime import datetime

from dovetail.api.pod_windows import PodWindow
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import GateContext, passed, pod_name, stopped
from dovetail.decide.words import clock, seconds
from dovetail.model import names
from dovetail.model.verdicts import Gate, GateResult


def managed(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that Dovetail may act on the pool of the node."""
    gate = Gate.MANAGED
    if facts.claim is None:
        return stopped(gate, "The node has no NodeClaim: Karpenter does not manage it.")
    if facts.node is None:
        return stopped(gate, "The NodeClaim has no node yet.", nodeClaim=facts.claim.metadata.name)
    if not facts.pool_name:
        return stopped(gate, f"The node has no label {names.NODEPOOL}.")
    if facts.pool is None:
        return stopped(gate, f"NodePool {facts.pool_name} does not exist.", nodePool=facts.pool_name)
    if gate_context.managed_pools is not None and facts.pool_name not in gate_context.managed_pools:
        return stopped(
            gate,
            f"NodePool {facts.pool_name} is only observed: it is neither labelled {names.MANAGE}=true nor in `pools`.",
            nodePool=facts.pool_name,
        )
    return passed(gate, f"It belongs to NodePool {facts.pool_name}.")


def not_rebooting(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check that Karpenter is not rebooting the node."""
    if facts.rebooting:
        return stopped(Gate.REBOOTING, "Karpenter is rebooting it.", condition=names.CONDITION_REBOOTING)
    return passed(Gate.REBOOTING, "It is not being rebooted.")


def not_paused(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that neither the pool nor the whole controller is paused."""
    gate, settings = Gate.PAUSED, gate_context.settings
    if not settings.rules.pauses:
        return passed(gate, "Karpenter knows no pause.")
    if settings.paused:
        return stopped(gate, "The setting `paused` is on: nothing starts anywhere.")
    pause = facts.pause
    if pause is None or not pause.holds(gate_context.now):
        return passed(gate, "Its pool is not paused.")
    why = f" ({pause.reason})" if pause.reason else ""
    if pause.until is None:
        return stopped(gate, f"NodePool {facts.pool_name} is paused until it is resumed{why}.", reason=pause.reason)
    left = seconds(pause.until - gate_context.now)
    return stopped(
        gate,
        f"NodePool {facts.pool_name} is paused for {left} more{why}.",
        until=clock(pause.until),
        reason=pause.reason,
    )


def not_marked(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check that the node is not already leaving."""
    gate = Gate.MARKED_FOR_DELETION
    if facts.marked:
        return stopped(gate, f"It is leaving already: {facts.marked}.", cause=facts.marked)
    return passed(gate, "It is not leaving yet.")


def initialized(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check that the node is initialized."""
    if not facts.initialized:
        return stopped(Gate.INITIALIZED, f"It is not initialized: label {names.INITIALIZED_LABEL} is not true.")
    return passed(Gate.INITIALIZED, "It is initialized.")


def not_nominated(facts: NodeFacts, _: GateContext) -> GateResult:
    """Check that no pods are expected on the node."""
    if facts.nominated:
        return stopped(Gate.NOMINATED, "Pods are on their way to it.")
    return passed(Gate.NOMINATED, "No pods are on their way to it.")


def node_may_be_disrupted(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check the do-not-disrupt annotations of the node and its NodeClaim."""
    gate = Gate.NODE_DO_NOT_DISRUPT
    assert facts.claim is not None
    if gate_context.settings.rules.own_annotations:
        for where, annotations in (("node", facts.annotations), ("NodeClaim", facts.claim.metadata.annotations)):
            if annotations.get(names.ALWAYS_DO_NOT_DISRUPT) == "true":
                return stopped(
                    gate,
                    f"The {where} says {names.ALWAYS_DO_NOT_DISRUPT}=true.",
                    annotation=names.ALWAYS_DO_NOT_DISRUPT,
                )
        if names.HOLD in facts.annotations:
            return passed(gate, "It is held for Dovetail, which does not count.")
    if facts.annotations.get(names.DO_NOT_DISRUPT) == "true":
        return stopped(gate, f"The node says {names.DO_NOT_DISRUPT}=true.", annotation=names.DO_NOT_DISRUPT)
    return passed(gate, "The node does not say do-not-disrupt.")


def pods_may_be_disrupted(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check the do-not-disrupt annotations of the pods."""
    gate, found = Gate.POD_DO_NOT_DISRUPT, facts.protection
    if found is None:
        return passed(gate, "No pod says do-not-disrupt.")
    pod = pod_name(found.pod)
    if found.until is None:
        return stopped(gate, f"Pod {pod} says {names.DO_NOT_DISRUPT}={found.value}.", pod=pod, value=found.value)
    left = seconds(found.until - gate_context.now)
    return stopped(
        gate,
        f"Pod {pod} may not be disrupted for {found.value} from its start: {left} to go.",
        pod=pod,
        value=found.value,
        until=clock(found.until),
    )


def pdbs_allow(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that no PodDisruptionBudget refuses an eviction now."""
    gate, vetoes = Gate.PDB, gate_context.vetoes
    veto = None if vetoes is None else vetoes.of(facts)
    if veto is None:
        return passed(gate, "No PodDisruptionBudget refuses an eviction now.")
    pod = pod_name(veto.pod)
    if len(veto.pdbs) > 1:
        return stopped(
            gate,
            f"Pod {pod} has {len(veto.pdbs)} PodDisruptionBudgets ({', '.join(veto.pdbs)}) and can't be evicted.",
            pod=pod,
            pdb=", ".join(veto.pdbs),
        )
    return stopped(
        gate,
        f"PodDisruptionBudget {veto.pdbs[0]} allows no disruption of pod {pod} now.",
        pod=pod,
        pdb=veto.pdbs[0],
        disruptionsAllowed=veto.allowed,
    )


def pod_windows_open(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that the pods' own disruption windows are open."""
    gate = Gate.POD_WINDOW
    if not facts.pod_windows or not gate_context.settings.rules.pod_windows:
        return passed(gate, "No pod asks for a window of its own.")
    closed = [(pod, entry) for pod, entry in facts.pod_windows if not _is_open(entry, gate_context.now)]
    if not closed:
        return passed(gate, "The windows of its pods are open.")
    pod, entry = closed[0]
    name = pod_name(pod)
    if entry.window is None:
        return stopped(gate, f"The window of pod {name} can't be read ({entry.problem}).", pod=name, window=entry.text)
    opens = entry.window.next_change(gate_context.now)
    when = "never again" if opens is None else f"at {clock(opens)}, in {seconds(opens - gate_context.now)}"
    return stopped(
        gate,
        f"Pod {name} may be disrupted only in its window ({entry.text}), which opens {when}.",
        pod=name,
        window=entry.text,
        opensAt=None if opens is None else clock(opens),
        closed=len(closed),
    )


def can_surge(facts: NodeFacts, gate_context: GateContext) -> GateResult:
    """Check that every Deployment that moves by a rolling update can roll now."""
    gate = Gate.SURGE
    if not facts.surges:
        return passed(gate, "No pod needs its Deployment to roll.")
    for pod, surge in facts.surges:
        name = pod_name(pod)
        if not gate_context.may_surge:
            why = f"Pod {name} moves with Deployment {surge.name}, which Dovetail has no right to patch."
            return stopped(gate, why, pod=name, deployment=surge.name)
        if surge.problem:
            why = f"Pod {name} moves with Deployment {surge.name}, but {surge.problem}."
            return stopped(gate, why, pod=name, deployment=surge.name)
    rolled = ", ".join(surge.name for _, surge in facts.surges)
    return GateResult(gate=gate, passed=True, why=f"It goes after a rolling update of {rolled}.", figures={})


def _is_open(entry: PodWindow, now: datetime) -> bool:
    return entry.window is not None and entry.window.active(now)
