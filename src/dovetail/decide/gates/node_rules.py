"""The rules of gates 1 to 6 of docs/rules.md#gates: may this node be disrupted at all, whatever the method.

The first group looks at the node, the second at its pods. `candidates` puts them in order. Sits in decide, above facts.
"""

from datetime import datetime
from functools import lru_cache
from typing import Final

from dovetail.api.pod_windows import PodWindow
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.gate_results import NEVER, GateContext, Said, rule, said
from dovetail.decide.words import clock, seconds
from dovetail.model import names
from dovetail.model.objects import Pod
from dovetail.model.verdicts import Gate


def _not_managed(facts: NodeFacts, gate_context: GateContext) -> bool:
    return (
        facts.claim is None
        or facts.node is None
        or not facts.pool_name
        or facts.pool is None
        or not gate_context.manages(facts.pool_name)
    )


@lru_cache(maxsize=256)
def _belongs_to(pool: str) -> Said:
    return said(f"It belongs to NodePool {pool}.")


@rule(Gate.MANAGED, _not_managed, lambda facts, _: _belongs_to(facts.pool_name))
def managed(facts: NodeFacts, _: GateContext) -> Said:
    """Dovetail may not act on the pool of the node."""
    if facts.claim is None:
        return said("The node has no NodeClaim: Karpenter does not manage it.")
    if facts.node is None:
        return said("The NodeClaim has no node yet.", nodeClaim=facts.claim.metadata.name)
    if not facts.pool_name:
        return said(f"The node has no label {names.NODEPOOL}.")
    if facts.pool is None:
        return said(f"NodePool {facts.pool_name} does not exist.", nodePool=facts.pool_name)
    return said(
        f"NodePool {facts.pool_name} is only observed: it is neither labelled {names.MANAGE}=true nor in `pools`.",
        nodePool=facts.pool_name,
    )


@rule(Gate.REBOOTING, lambda facts, _: facts.rebooting, "It is not being rebooted.")
def not_rebooting(_facts: NodeFacts, _: GateContext) -> Said:
    """Karpenter is rebooting the node."""
    return said("Karpenter is rebooting it.", condition=names.CONDITION_REBOOTING)


def _paused_until(facts: NodeFacts, gate_context: GateContext) -> datetime | bool | None:
    settings, pause = gate_context.settings, facts.pause
    if not settings.rules.pauses:
        return None
    if settings.paused:
        return True
    return pause is not None and (pause.until or True)


_NOT_PAUSED: Final = said("Its pool is not paused.")
_NO_PAUSE: Final = said("Karpenter knows no pause.")


def _why_not_paused(_: NodeFacts, gate_context: GateContext) -> Said:
    return _NOT_PAUSED if gate_context.settings.rules.pauses else _NO_PAUSE


@rule(Gate.PAUSED, _paused_until, _why_not_paused)
def not_paused(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The pool or the whole controller is paused."""
    if gate_context.settings.paused:
        return said("The setting `paused` is on: nothing starts anywhere.")
    pause = facts.pause
    assert pause is not None
    why = f" ({pause.reason})" if pause.reason else ""
    if pause.until is None:
        return said(f"NodePool {facts.pool_name} is paused until it is resumed{why}.", reason=pause.reason)
    left = seconds(pause.until - gate_context.now)
    return said(
        f"NodePool {facts.pool_name} is paused for {left} more{why}.", until=clock(pause.until), reason=pause.reason
    )


@rule(Gate.MARKED_FOR_DELETION, lambda facts, _: bool(facts.marked), "It is not leaving yet.")
def not_marked(facts: NodeFacts, _: GateContext) -> Said:
    """The node is already leaving."""
    return said(f"It is leaving already: {facts.marked}.", cause=facts.marked)


@rule(Gate.INITIALIZED, lambda facts, _: not facts.initialized, "It is initialized.")
def initialized(_facts: NodeFacts, _: GateContext) -> Said:
    """The node is not initialized."""
    return said(f"It is not initialized: label {names.INITIALIZED_LABEL} is not true.")


@rule(Gate.NOMINATED, lambda facts, _: facts.nominated, "No pods are on their way to it.")
def not_nominated(_facts: NodeFacts, _: GateContext) -> Said:
    """Pods are expected on the node."""
    return said("Pods are on their way to it.")


@rule(Gate.BACK_OFF, lambda facts, _: None if facts.resting is None else facts.resting.until, "It does not back off.")
def not_resting(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The node backs off after a command that was rolled back."""
    assert facts.resting is not None
    left = seconds(facts.resting.until - gate_context.now)
    return said(
        f"Its last command was rolled back ({facts.resting.why}); it is left alone for {left} more.",
        until=clock(facts.resting.until),
    )


def _always_kept(facts: NodeFacts) -> str:
    """Return the object that says always-do-not-disrupt; empty: none does."""
    claim = {} if facts.claim is None else facts.claim.metadata.annotations
    for where, annotations in (("node", facts.annotations), ("NodeClaim", claim)):
        if annotations.get(names.ALWAYS_DO_NOT_DISRUPT) == "true":
            return where
    return ""


def _node_kept(facts: NodeFacts, gate_context: GateContext) -> bool:
    if gate_context.settings.rules.own_annotations:
        if _always_kept(facts):
            return True
        if names.HOLD in facts.annotations:
            return False
    return facts.annotations.get(names.DO_NOT_DISRUPT) == "true"


_HELD: Final = said("It is held for Dovetail, which does not count.")
_NOT_KEPT: Final = said("The node does not say do-not-disrupt.")


def _why_not_kept(facts: NodeFacts, gate_context: GateContext) -> Said:
    return _HELD if gate_context.settings.rules.own_annotations and names.HOLD in facts.annotations else _NOT_KEPT


@rule(Gate.NODE_DO_NOT_DISRUPT, _node_kept, _why_not_kept)
def node_may_be_disrupted(facts: NodeFacts, gate_context: GateContext) -> Said:
    """The node or its NodeClaim says do-not-disrupt."""
    where = _always_kept(facts) if gate_context.settings.rules.own_annotations else ""
    if where:
        annotation = names.ALWAYS_DO_NOT_DISRUPT
        return said(f"The {where} says {annotation}=true.", annotation=annotation)
    return said(f"The node says {names.DO_NOT_DISRUPT}=true.", annotation=names.DO_NOT_DISRUPT)


@rule(
    Gate.POD_DO_NOT_DISRUPT,
    lambda facts, _: facts.protection is not None and (facts.protection.until or True),
    "No pod says do-not-disrupt.",
)
def pods_may_be_disrupted(facts: NodeFacts, gate_context: GateContext) -> Said:
    """A pod says do-not-disrupt."""
    found = facts.protection
    assert found is not None
    pod = found.pod.metadata.key
    if found.until is None:
        return said(f"Pod {pod} says {names.DO_NOT_DISRUPT}={found.value}.", pod=pod, value=found.value)
    left = seconds(found.until - gate_context.now)
    return said(
        f"Pod {pod} may not be disrupted for {found.value} from its start: {left} to go.",
        pod=pod,
        value=found.value,
        until=clock(found.until),
    )


def _refused(facts: NodeFacts, gate_context: GateContext) -> bool:
    return gate_context.vetoes is not None and gate_context.vetoes.of(facts) is not None


@rule(Gate.PDB, _refused, "No PodDisruptionBudget refuses an eviction now.")
def pdbs_allow(facts: NodeFacts, gate_context: GateContext) -> Said:
    """A PodDisruptionBudget refuses an eviction now."""
    veto = None if gate_context.vetoes is None else gate_context.vetoes.of(facts)
    assert veto is not None
    pod = veto.pod.metadata.key
    if len(veto.pdbs) > 1:
        return said(
            f"Pod {pod} has {len(veto.pdbs)} PodDisruptionBudgets ({', '.join(veto.pdbs)}) and can't be evicted.",
            pod=pod,
            pdb=", ".join(veto.pdbs),
        )
    return said(
        f"PodDisruptionBudget {veto.pdbs[0]} allows no disruption of pod {pod} now.",
        pod=pod,
        pdb=veto.pdbs[0],
        disruptionsAllowed=veto.allowed,
    )


def _closed_windows(facts: NodeFacts, gate_context: GateContext) -> list[tuple[Pod, PodWindow]]:
    """Return the pods whose windows are closed now."""
    now = gate_context.now
    return [(pod, entry) for pod, entry in facts.pod_windows if entry.window is None or not entry.window.active(now)]


def _windows_closed_until(facts: NodeFacts, gate_context: GateContext) -> datetime | None:
    if not facts.pod_windows or not gate_context.settings.rules.pod_windows or not _closed_windows(facts, gate_context):
        return None
    return min(window_edges(facts, gate_context), default=NEVER)


def window_edges(facts: NodeFacts, gate_context: GateContext) -> list[datetime]:
    """Return when the windows of the node's pods next open or close: until the first the rule's answer stays."""
    if not facts.pod_windows or not gate_context.settings.rules.pod_windows:
        return []
    now = gate_context.now
    edges = (entry.window.next_change(now) for _, entry in facts.pod_windows if entry.window is not None)
    return [at for at in edges if at is not None]


_WINDOWS_OPEN: Final = said("The windows of its pods are open.")
_NO_WINDOW: Final = said("No pod asks for a window of its own.")


def _why_in_windows(facts: NodeFacts, gate_context: GateContext) -> Said:
    return _WINDOWS_OPEN if facts.pod_windows and gate_context.settings.rules.pod_windows else _NO_WINDOW


@rule(Gate.POD_WINDOW, _windows_closed_until, _why_in_windows)
def pod_windows_open(facts: NodeFacts, gate_context: GateContext) -> Said:
    """A pod's own disruption window is closed."""
    closed = _closed_windows(facts, gate_context)
    pod, entry = closed[0]
    name = pod.metadata.key
    if entry.window is None:
        return said(f"The window of pod {name} can't be read ({entry.problem}).", pod=name, window=entry.text)
    opens = entry.window.next_change(gate_context.now)
    when = "never again" if opens is None else f"at {clock(opens)}, in {seconds(opens - gate_context.now)}"
    return said(
        f"Pod {name} may be disrupted only in its window ({entry.text}), which opens {when}.",
        pod=name,
        window=entry.text,
        opensAt=None if opens is None else clock(opens),
        closed=len(closed),
    )


def _cannot_surge(facts: NodeFacts, gate_context: GateContext) -> bool:
    may_surge = gate_context.may_surge
    return bool(facts.surges) and any(not may_surge or surge.problem for _, surge in facts.surges)


_NO_SURGE: Final = said("No pod needs its Deployment to roll.")


def _why_it_surges(facts: NodeFacts, _: GateContext) -> Said:
    if not facts.surges:
        return _NO_SURGE
    return said(f"It goes after a rolling update of {', '.join(surge.name for _, surge in facts.surges)}.")


@rule(Gate.SURGE, _cannot_surge, _why_it_surges)
def can_surge(facts: NodeFacts, gate_context: GateContext) -> Said:
    """A Deployment that moves by a rolling update can't roll now."""
    pod, surge = next(entry for entry in facts.surges if not gate_context.may_surge or entry[1].problem)
    name, problem = pod.metadata.key, f", but {surge.problem}"
    if not gate_context.may_surge:
        problem = ", which Dovetail has no right to patch"
    return said(f"Pod {name} moves with Deployment {surge.name}{problem}.", pod=name, deployment=surge.name)
