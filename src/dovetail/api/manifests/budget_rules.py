"""Checks one disruption budget, from a spec, from the annotation or from a file.

One set of rules for `validate`, which shows the findings, and for `policy`, under which a broken budget allows nothing.
See docs/rules.md#policy; topology-budgets Validation, disruption-controls Validation/Defaults. Sits in api.
"""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

from dovetail.api.findings import Finding
from dovetail.api.manifests.manifest_shapes import BUDGET, WINDOW_LENGTH
from dovetail.api.manifests.shape import check, error, warning
from dovetail.api.policy_fields import BUDGET_FIELDS
from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import parse_simple
from dovetail.model.timing.schedule import parse_schedule


def budget_findings(budget: Any, path: str) -> Iterator[Finding]:
    """Return everything that is wrong or doubtful with one budget. An empty `topologyKey` is the same as none."""
    if isinstance(budget, dict) and budget.get("topologyKey") == "":
        budget = {key: value for key, value in budget.items() if key != "topologyKey"}
    shape_findings = list(check(BUDGET, budget, path))
    yield from shape_findings
    if not isinstance(budget, dict):
        return
    broken = {finding.path for finding in shape_findings}
    yield from _pairs(budget, path)
    yield from schedule_findings(budget, path, broken)
    yield from duration_findings(budget.get("duration"), f"{path}.duration", "the budget is never active")
    yield from reason_findings(budget, path)
    yield from _topology(budget, path)
    yield from _bounds(budget, path)


def schedule_findings(written: dict[str, Any], path: str, broken: AbstractSet[str]) -> Iterator[Finding]:
    """Check the schedule of a budget or a window, unless its form is broken already."""
    schedule = written.get("schedule")
    if isinstance(schedule, str) and f"{path}.schedule" not in broken:
        try:
            parse_schedule(schedule)
        except ScheduleError as problem:
            yield error(f"{path}.schedule", schedule, problem.reason, problem.remedy)


def _pairs(budget: dict[str, Any], path: str) -> Iterator[Finding]:
    has_schedule, has_duration = budget.get("schedule") is not None, budget.get("duration") is not None
    if has_schedule != has_duration:
        missing, there = ("duration", "schedule") if has_schedule else ("schedule", "duration")
        yield error(
            path, budget, f"has {there} without {missing}", "set both, or neither for a budget that is always active"
        )
    if budget.get("sequential") is True and budget.get("topologyKey") is None:
        problem = "breaks a rule: 'sequential' requires 'topologyKey'"
        yield error(path, budget, problem, "set topologyKey: topology.kubernetes.io/zone")
    if budget.get("per") is not None and budget.get("topologyKey") is not None:
        yield error(path, budget, "has per together with topologyKey", "make two budgets of it")


def duration_findings(duration: Any, path: str, consequence: str) -> Iterator[Finding]:
    """Check the length of a window: hours and minutes, more than zero, within 64 bits."""
    if not isinstance(duration, str) or re.fullmatch(WINDOW_LENGTH, duration) is None:
        return
    if is_too_long(duration):
        yield error(path, duration, "is longer than anything can last", "write hours and minutes such as 8h")
    elif parse_simple(duration, "smh") == 0:
        yield warning(path, duration, f"is no time, so {consequence}", "write a longer one, such as 8h")


def is_too_long(text: str) -> bool:
    """Return whether a duration of the right form does not fit a 64-bit integer of nanoseconds."""
    try:
        parse_simple(text, "smhd")
    except ValueError:
        return True
    return False


def _bounds(budget: dict[str, Any], path: str) -> Iterator[Finding]:
    """Check the durations that have a shortest and a longest, unless their form is broken already."""
    for part in BUDGET_FIELDS:
        form, written = part.form, budget.get(part.name)
        if (
            form is None
            or form.bounds is None
            or not isinstance(written, str)
            or not re.fullmatch(form.pattern, written)
        ):
            continue
        least, most = (parse_simple(bound, "smh") for bound in form.bounds)
        if is_too_long(written) or not least <= parse_simple(written, "smh") <= most:
            remedy = "write {} to {}".format(*form.bounds)
            yield error(f"{path}.{part.name}", written, "is out of bounds", remedy)


def reason_findings(written: dict[str, Any], path: str) -> Iterator[Finding]:
    """Check that no reason is listed twice."""
    reasons = written.get("reasons")
    if not isinstance(reasons, list):
        return
    texts = [reason for reason in reasons if isinstance(reason, str)]
    for reason in sorted({reason for reason in texts if texts.count(reason) > 1}):
        yield error(f"{path}.reasons", reason, "is listed more than once", "list each reason once")


def _topology(budget: dict[str, Any], path: str) -> Iterator[Finding]:
    reasons = budget.get("reasons")
    if isinstance(reasons, list) and budget.get("topologyKey") is not None and reasons and "Drifted" not in reasons:
        yield warning(
            f"{path}.reasons",
            reasons,
            "leaves out Drifted, but a budget with topologyKey holds for drift only, so it does nothing",
            "add Drifted, or take topologyKey out",
        )


def with_text_nodes(budget: Any, path: str) -> tuple[Any, Finding | None]:
    """Turn an integer for `nodes` into text and warn: the API server would refuse it (docs/rules.md#policy)."""
    nodes = budget.get("nodes") if isinstance(budget, dict) else None
    if isinstance(nodes, bool) or not isinstance(nodes, int):
        return budget, None
    remark = None
    if not path.startswith("metadata."):  # the API server checks the spec only, not the annotation
        problem = f'was read as "{nodes}"; the API server refuses a number here'
        remark = warning(f"{path}.nodes", nodes, problem, f'write "{nodes}"')
    return budget | {"nodes": str(nodes)}, remark
