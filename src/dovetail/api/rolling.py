"""What Dovetail keeps on a NodePool about a roll: the domain that it works in, and the domains that had their turn.

`dovetail.dev/rolling-domain` names the domain of a sequential topology budget in which drift was begun, so that a
restart or another leader goes on in it; `dovetail.dev/rollout` lists the domains that had their turn in this roll.
Design: topology-budgets. Annotations are input: one that can't be read counts as missing, and a warning says so. Sits
in api; pure.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from dovetail.model.command import Method
from dovetail.model.names import ROLL, ROLLING_DOMAIN, ROLLOUT
from dovetail.model.objects import Instant, NodePool
from dovetail.model.timing.duration import format_duration, parse_go_duration

NO_DOMAIN: Final = "(no label)"
"""The domain of nodes that lack the label: one of their own. No label can have this value; it is null in JSON."""
_TURNS_MAX: Final = 10_000
_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RollingDomain(msgspec.Struct, frozen=True, kw_only=True):
    """The domain in which drift was begun, and since when.

    `idle_since`: since when nothing can be done there because of its nodes' own gates; None: something can, or a gate
    of the pool stops that clock. `idle_for`: the nanoseconds that the clock had counted when it was stopped.
    """

    key: str
    domain: str
    since: datetime
    idle_since: datetime | None = None
    idle_for: int = 0


class RollPart(msgspec.Struct, frozen=True, kw_only=True):
    """One domain of a roll: how many nodes were to be replaced there, and how many of them were."""

    domain: str
    total: int
    replaced: int = 0


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a whole roll, from its first node to its last.

    `parts`: how far it is in each domain of the label `key`; without a topology budget there is one part, and no key.
    `turns`: the domains that had their turn; `left_behind`: those of them that were left with drifted nodes. `seconds`:
    how long a node took so far, from the decision until it was gone; 0: none has gone yet.
    """

    began: datetime | None = None
    key: str = ""
    seconds: int = 0
    parts: tuple[RollPart, ...] = ()
    turns: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()

    def after(self, domain: str, *, left_behind: bool) -> "Rollout":
        """Return the roll after the turn of a domain has ended."""
        others = [known for known in self.left_behind if known != domain]
        return msgspec.structs.replace(
            self,
            turns=(*(known for known in self.turns if known != domain), domain),
            left_behind=(*others, domain) if left_behind else tuple(others),
        )

    def again_in(self, domain: str) -> "Rollout":
        """Return the roll once it works in a domain: that one is not left behind any more."""
        return msgspec.structs.replace(self, left_behind=tuple(known for known in self.left_behind if known != domain))


NOT_ROLLING: Final = Rollout()


class _WireDomain(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    key: str
    value: str | None
    since: Instant | None = None
    idle_since: Instant | None = None
    idle_for: str = "0s"


class _WirePart(msgspec.Struct, frozen=True, kw_only=True):
    value: str | None
    total: _Count
    replaced: _Count = 0


class _WireRollout(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    began: Instant | None = None
    key: str = ""
    seconds_per_node: _Count = 0
    domains: tuple[_WirePart, ...] = ()
    turns: tuple[str | None, ...] = ()
    left_behind: tuple[str | None, ...] = ()


class _WireRecord(msgspec.Struct, frozen=True):
    method: Method


def read_rolling(pool: NodePool) -> RollingDomain | None:
    """Return the domain in which drift was begun; None if there is none or it can't be read."""
    value = pool.metadata.annotations.get(ROLLING_DOMAIN)
    return None if value is None else decode_rolling(value)


def decode_rolling(value: str) -> RollingDomain | None:
    """Read the annotation's value; None if it can't be read."""
    try:
        wire = msgspec.json.decode(value, type=_WireDomain)
        idle_for = parse_go_duration(wire.idle_for)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return RollingDomain(
        key=wire.key,
        domain=_domain(wire.value),
        since=wire.since or _EPOCH,
        idle_since=wire.idle_since,
        idle_for=max(0, idle_for),
    )


def write_rolling(rolling: RollingDomain) -> str:
    """Return the annotation that names the domain in which drift was begun."""
    tree: dict[str, str | None] = {
        "key": rolling.key,
        "value": named_domain(rolling.domain),
        "since": _instant(rolling.since),
    }
    if rolling.idle_since is not None:
        tree["idleSince"] = _instant(rolling.idle_since)
    if rolling.idle_for:
        tree["idleFor"] = format_duration(rolling.idle_for)
    return msgspec.json.encode(tree).decode()


def read_rollout(pool: NodePool) -> Rollout:
    """Return what is kept of a pool's roll; nothing if that can't be read."""
    return decode_rollout(pool.metadata.annotations.get(ROLLOUT))


def decode_rollout(value: str | None) -> Rollout:
    """Read the annotation's value."""
    if value is None:
        return NOT_ROLLING
    try:
        wire = msgspec.json.decode(value, type=_WireRollout)
    except (msgspec.DecodeError, RecursionError):
        return NOT_ROLLING
    parts = [
        RollPart(domain=_domain(part.value), total=part.total, replaced=min(part.replaced, part.total))
        for part in wire.domains[:_TURNS_MAX]
    ]
    return Rollout(
        began=wire.began,
        key=wire.key,
        seconds=wire.seconds_per_node,
        parts=tuple(parts),
        turns=_domains(wire.turns),
        left_behind=_domains(wire.left_behind),
    )


def _domain(named: str | None) -> str:
    return NO_DOMAIN if named is None else named


def _domains(named: tuple[str | None, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_domain, named[:_TURNS_MAX])))


def write_rollout(rollout: Rollout) -> str | None:
    """Return the annotation that holds what is kept of a roll; None if that is nothing."""
    if rollout == NOT_ROLLING:
        return None
    tree: dict[str, Any] = {}
    if rollout.began is not None:
        tree["began"] = _instant(rollout.began)
    if rollout.key:
        tree["key"] = rollout.key
    if rollout.seconds:
        tree["secondsPerNode"] = rollout.seconds
    if rollout.parts:
        tree["domains"] = [
            {"value": named_domain(part.domain), "total": part.total, "replaced": part.replaced}
            for part in rollout.parts
        ]
    if rollout.turns:
        tree["turns"] = list(map(named_domain, rollout.turns))
    if rollout.left_behind:
        tree["leftBehind"] = list(map(named_domain, rollout.left_behind))
    return msgspec.json.encode(tree).decode()


MARKS: Final = (ROLLING_DOMAIN, ROLLOUT, ROLL)
"""The annotations of a NodePool about its roll."""


def written_on(pool: NodePool) -> tuple[str | None, ...]:
    """Return the values of a NodePool's annotations about its roll, in the order of `MARKS`."""
    return tuple(pool.metadata.annotations.get(name) for name in MARKS)


def annotations_of(domain: RollingDomain | None, rollout: Rollout) -> dict[str, str | None]:
    """Return what a NodePool's annotations say about its roll; None: the annotation is removed."""
    return {ROLLING_DOMAIN: None if domain is None else write_rolling(domain), ROLLOUT: write_rollout(rollout)}


def begin_domain(annotations: Mapping[str, str], key: str, domain: str, now: datetime) -> dict[str, str | None]:
    """Return the changes of a NodePool's annotations before the first node of a domain is tainted; none: it is begun.

    A domain that was begun before and still is on the NodePool had its turn.
    """
    before = None if ROLLING_DOMAIN not in annotations else decode_rolling(annotations[ROLLING_DOMAIN])
    if before is not None and before.key == key and before.domain == domain:
        return {}
    rollout = decode_rollout(annotations.get(ROLLOUT))
    if before is not None and before.key == key and before.domain not in rollout.turns:
        rollout = rollout.after(before.domain, left_behind=True)
    return annotations_of(RollingDomain(key=key, domain=domain, since=now), rollout.again_in(domain))


def recorded_method(record: str | None) -> Method | None:
    """Return the method that a command's record on a leaving node names; None if there is none or it can't be read."""
    if record is None:
        return None
    try:
        return msgspec.json.decode(record, type=_WireRecord).method
    except (msgspec.DecodeError, RecursionError):
        return None


def named_domain(domain: str) -> str | None:
    """Return a domain as JSON has it: null for nodes without the label."""
    return None if domain == NO_DOMAIN else domain


def _instant(when: datetime) -> str:
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
