"""Reads and checks the controls of a pool other than budgets: allow windows, health limits, repair rules.

One set of rules for `validate`, which shows the findings, and for `policy`, which fails closed on what can't be read.
See docs/rules.md#controls. Sits in api, below policy and validate.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dovetail.api.findings import Finding, Severity, has_errors
from dovetail.api.manifests.budget_rules import duration_findings, is_too_long, reason_findings, schedule_findings
from dovetail.api.manifests.manifest_shapes import ALLOW_WINDOW, HEALTH, PARTS, REPAIR_RULE
from dovetail.api.manifests.shape import check, error
from dovetail.model.policies.controls import AllowWindow, Health, PendingLimit, RepairRule
from dovetail.model.policies.reasons import Reason
from dovetail.model.timing.duration import parse_simple
from dovetail.model.timing.windows import window

LISTED_MAX: Final = 50


def window_findings(written: Any, path: str) -> Iterator[Finding]:
    """Yield everything that is wrong or doubtful with one allow window."""
    found = list(check(ALLOW_WINDOW, written, path))
    yield from found
    if not isinstance(written, dict):
        return
    broken = {finding.path for finding in found}
    yield from schedule_findings(written, path, broken)
    yield from duration_findings(written.get("duration"), f"{path}.duration", "the window never opens")
    yield from reason_findings(written, path)


def health_findings(written: Any, path: str) -> Iterator[Finding]:
    """Yield everything that is wrong with the health limits."""
    yield from check(HEALTH, written, path)
    if isinstance(written, dict):
        yield from _lengths(written, ("movedPodsReadyWithin",), path)
        pending = written.get("pendingPods")
        if isinstance(pending, dict):
            yield from _lengths(pending, ("for",), f"{path}.pendingPods")


def repair_findings(written: Any, path: str) -> Iterator[Finding]:
    """Yield everything that is wrong with one repair rule."""
    yield from check(REPAIR_RULE, written, path)
    if isinstance(written, dict):
        yield from _lengths(written, ("for", "drainFor"), path)


def _lengths(written: Mapping[str, Any], keys: tuple[str, ...], path: str) -> Iterator[Finding]:
    """Yield durations of the right form that don't fit a 64-bit integer of nanoseconds."""
    for key in keys:
        text = written.get(key)
        if isinstance(text, str) and re.fullmatch(PARTS, text) and is_too_long(text):
            yield error(f"{path}.{key}", text, "is longer than anything can last", "write a shorter one, such as 10m")


def read_window(written: Any, index: int, path: str) -> tuple[AllowWindow, list[Finding]]:
    """Read an allow window; one that can't be read forbids the reasons it names, or all."""
    findings = list(window_findings(written, path))
    errors = [finding.sentence() for finding in findings if finding.severity is Severity.ERROR]
    fields: Mapping[str, Any] = written if isinstance(written, dict) else {}
    reasons = readable_reasons(fields.get("reasons"))
    if errors:
        return AllowWindow(index=index, reasons=reasons, problem="; ".join(errors)), findings
    schedule, duration = fields["schedule"], fields["duration"]
    return (
        AllowWindow(
            index=index,
            schedule=schedule,
            duration=duration,
            reasons=reasons,
            window=window(schedule, parse_simple(duration, "smh")),
        ),
        findings,
    )


def read_health(written: Any, path: str) -> tuple[Health, list[Finding]]:
    """Read the health limits; limits that can't be read count as violated."""
    findings = list(health_findings(written, path))
    errors = [finding.sentence() for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        return Health(problem="; ".join(errors)), findings
    pending = written.get("pendingPods")
    within = written.get("movedPodsReadyWithin")
    return (
        Health(
            not_ready_nodes=written.get("notReadyNodes"),
            pending_pods=None
            if pending is None
            else PendingLimit(count=int(pending["count"]), lasting=parse_simple(pending["for"], "smh")),
            moved_pods_ready_within=None if within is None else parse_simple(within, "smh"),
        ),
        findings,
    )


def read_repair(written: Any, index: int, path: str) -> tuple[RepairRule | None, list[Finding]]:
    """Read a repair rule; None if it can't be read: it then repairs nothing."""
    findings = list(repair_findings(written, path))
    if has_errors(findings):
        return None, findings
    drain = written.get("drainFor")
    return (
        RepairRule(
            index=index,
            condition=written["condition"],
            status=written["status"],
            lasting=parse_simple(written["for"], "smh"),
            drain_for=None if drain is None else parse_simple(drain, "smh"),
        ),
        findings,
    )


def readable_reasons(written: Any) -> tuple[Reason, ...] | None:
    """Return the reasons that a list names; None, which is all, if it names none or can't be read."""
    known = {reason.value for reason in Reason}
    if not isinstance(written, (list, tuple)) or not all(isinstance(word, str) and word in known for word in written):
        return None
    return tuple(dict.fromkeys(Reason(word) for word in written)) or None
