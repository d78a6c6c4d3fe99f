"""A person's request to replace nodes: annotation `dovetail.dev/roll` on a NodePool or a NodeClaim.

`{"before": T, "requested": T0, "reason": text}`: every node whose NodeClaim was created before T counts as drifted
since T0. `dovetail roll` writes it (docs/operations.md). What can't be read rolls nothing, and a warning says so. Sits
in api; pure.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

from dovetail.model.names import ROLL
from dovetail.model.objects import Instant, NodeClaim, NodePool

_REASON_MAX: Final = 500


class RollRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request: nodes created before a moment, who asked when, and why."""

    before: datetime
    requested: datetime
    reason: str = ""

    @property
    def cutoff(self) -> datetime:
        """Return the moment before which a node must have been created: never after the request itself.

        A request for the future would roll the replacements, too, again and again.
        """
        return min(self.before, self.requested)

    def covers(self, created: datetime | None) -> bool:
        """Return whether a node that was created then is asked to go."""
        return created is not None and created < self.cutoff


class _WireRequest(msgspec.Struct, frozen=True):
    before: Instant
    requested: Instant
    reason: str = ""


def read_request(item: NodePool | NodeClaim) -> RollRequest | None:
    """Return the request on an object; None if there is none or it can't be read."""
    value = item.metadata.annotations.get(ROLL)
    return None if value is None else decode_request(value)


def decode_request(value: str) -> RollRequest | None:
    """Read the annotation's value; None if it can't be read."""
    try:
        wire = msgspec.json.decode(value, type=_WireRequest)
        before, requested = wire.before.astimezone(UTC), wire.requested.astimezone(UTC)
    except (msgspec.DecodeError, RecursionError, OverflowError):
        return None
    return RollRequest(before=before, requested=requested, reason=wire.reason[:_REASON_MAX])


def write_request(request: RollRequest) -> str:
    """Return the annotation that holds a request."""
    tree = {"before": _instant(request.before), "requested": _instant(request.requested)}
    return msgspec.json.encode(tree | ({"reason": request.reason} if request.reason else {})).decode()


def _instant(when: datetime) -> str:
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
