"""The state of rolls for people: a line for each, its domains, and the nodes that are blocked.

Sits in plan; `cli.planning.rollout` prints it.
"""

from collections.abc import Sequence
from typing import Final

from dovetail.decide.rollouts.status import DomainState, RollStatus
from dovetail.report.table import paragraph, text_table
from dovetail.report.words import safe

_BLOCKERS_MAX: Final = 20
_STATES: Final = {
    DomainState.DONE: "done",
    DomainState.ACTIVE: "active",
    DomainState.WAITING: "waiting",
    DomainState.LEFT_BEHIND: "left behind",
}


def rollout_line(status: RollStatus) -> str:
    """Return a roll in one line."""
    where = f", in {safe(status.active_domain)}" if status.active_domain is not None else ""
    more = [
        f"{count} {word}"
        for count, word in (
            (status.in_flight, "in flight"),
            (status.waiting, "waiting"),
            (status.blocked, "blocked"),
        )
        if count
    ]
    return (
        f"{safe(status.node_pool)}: {status.replaced} of {status.total} nodes replaced ({status.cause}{where}); "
        f"{', '.join(more) or 'nothing left'}"
    )


def rollouts_text(found: Sequence[RollStatus]) -> list[str]:
    """Return all rolls, each with its domains and its blockers."""
    if not found:
        return ["Nothing is being rolled."]
    lines: list[str] = []
    for status in found:
        lines += [*([""] if lines else []), rollout_line(status), *paragraph(status.why, indent="  ")]
        if status.domains:
            rows = [
                (safe(entry.domain), f"{entry.replaced} of {entry.total}", _STATES[entry.state])
                for entry in status.domains
            ]
            lines += [f"  {line}" for line in text_table(("DOMAIN", "REPLACED", "STATE"), rows, right=(1,), width=78)]
        lines += [
            f"  blocked: {safe(one.node)} ({one.gate.value}): {safe(one.why)}"
            for one in status.blockers[:_BLOCKERS_MAX]
        ]
        more = len(status.blockers) - _BLOCKERS_MAX
        if more > 0:
            lines.append(f"  and {more} more; -o json lists all")
    return lines
