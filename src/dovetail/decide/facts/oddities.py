"""Whether a NodeClaim or a pod has a value that can't be read: nearly always none has, so only new ones are checked.

Follows identities, as the roster does. The warnings of a round spell out what is found. Sits in decide, above lineup,
below the roster.
"""

from collections.abc import Sequence

from dovetail.decide.facts.lineup import step
from dovetail.decide.facts.node_facts import NodeFacts, is_length
from dovetail.model.objects import NodeClaim
from dovetail.model.timing.duration import NEVER
from dovetail.scheduling.reading.changes import changes


class Oddities:
    """What was asked about last, and whether there was an unreadable value."""

    def __init__(self) -> None:
        self._claims: Sequence[NodeClaim] = ()
        self._nodes: Sequence[NodeFacts] = ()
        self._odd_claims = self._odd_nodes = False

    def in_claims(self, claims: Sequence[NodeClaim]) -> bool:
        """Return whether a NodeClaim has an unreadable duration."""
        new = claims if self._odd_claims else changes(self._claims, claims)[1]
        self._claims, self._odd_claims = claims, any(odd_spans(claim) for claim in new)
        return self._odd_claims

    def in_nodes(self, nodes: Sequence[NodeFacts]) -> bool:
        """Return whether a pod of a node has an unreadable value."""
        new = nodes if self._odd_nodes else step(self._nodes, nodes)[1]
        self._nodes, self._odd_nodes = nodes, any(facts.unreadable for facts in new)
        return self._odd_nodes


def odd_spans(claim: NodeClaim) -> list[tuple[str, str]]:
    """Return the durations of a NodeClaim that can't be read: the fields and their values."""
    life, grace = claim.spec.expire_after, claim.spec.termination_grace_period
    found = []
    if life is not None and life != NEVER and not is_length(life):
        found.append(("expireAfter", life))
    if grace is not None and not is_length(grace):
        found.append(("terminationGracePeriod", grace))
    return found
