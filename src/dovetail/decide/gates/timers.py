"""The two timers that pod events restart: consolidateAfter and consolidationGracePeriod.

See docs/rules.md#timers; grace-period, Key Design Principle. Until the first has passed, a node is not consolidated;
until the second has passed, cost actions ignore it, as a source and as a destination. Knows only a node's last pod
event and its pool's policy. Sits in decide, below candidates.
"""

from datetime import datetime

from dovetail.decide.facts.node_facts import NodeFacts, Timer
from dovetail.model import names
from dovetail.model.objects import NodeClaim, condition, is_true
from dovetail.model.settings import Settings


def last_pod_event(claim: NodeClaim | None, seen: datetime | None = None) -> datetime | None:
    """Return the last pod event of a node or, if none is known, when it was initialized (grace-period, Core Logic).

    `seen`: the last one that Dovetail saw itself; the later of both counts, as Karpenter can miss one.
    """
    if claim is None:
        return None
    written = claim.status.last_pod_event_time
    if written is not None and seen is not None:
        return max(written, seen)
    if written is not None or seen is not None:
        return written or seen
    initialized = condition(claim.status.conditions, names.CONDITION_INITIALIZED)
    if initialized is not None and initialized.status == "True":
        return initialized.last_transition_time
    return None


def closed_until(facts: NodeFacts, settings: Settings) -> datetime | None:
    """Return when a cost action may move pods to a node again; None: it is not closed by a timer.

    Closed are nodes in their grace period (grace-period, Integration Points 2) and, as in Karpenter or if the setting
    says so, those within consolidateAfter. Their own pods and capacity still count: they are closed, not gone
    (docs/deviations.md).
    """
    until = facts.hidden_until if settings.rules.grace_period else None
    timer = _destination_timer(facts, settings) if settings.consolidate_after_hides_destinations else None
    if timer is None:
        return until
    return timer.until if until is None else max(until, timer.until)


def _destination_timer(facts: NodeFacts, settings: Settings) -> Timer | None:
    if not settings.rules.consolidatable_condition:
        return facts.consolidate_after
    # Karpenter requires condition Initialized on the claim and, unlike for sources, includes static pools.
    claim, policy = facts.claim, facts.policy
    if claim is None or policy is None:
        return None
    initialized = is_true(claim.status.conditions, names.CONDITION_INITIALIZED)
    return facts.timer(policy.consolidate_after) if initialized else None
