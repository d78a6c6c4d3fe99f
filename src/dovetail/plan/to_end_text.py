"""`plan --to-end` in words: every round in order, with the running totals of money and restarts.

Words only, decides nothing. Sits in plan; `cli.planning.plan` prints it.
"""

from collections.abc import Sequence

from dovetail.decide.words import clock
from dovetail.model.command import Command
from dovetail.plan.apply import Launched
from dovetail.plan.summary import optimal_text, remaining_lines
from dovetail.plan.to_end import ToEnd
from dovetail.report.table import WIDTH, paragraph, text_table
from dovetail.report.words import count, dollars

_HEAD = ("ROUND", "ACTION", "NODES", "SAVES/H", "PODS", "TOTAL/H", "PODS")


def to_end_text(plan: ToEnd, *, wide: bool = False) -> str:
    """Return everything in words; `wide` lists every node and cuts nothing."""
    first = plan.first
    start = sum(first.prices.values())
    head = f"{clock(first.now)}, profile {first.profile.value}: {count(len(first.prices), 'node')}, {_hourly(start)}"
    if not plan.steps:
        return "\n".join([head, "", "Nothing would be done.", *remaining_lines(plan.last)])
    lines = [
        head,
        "",
        *text_table(_HEAD, list(_rows(plan, wide=wide)), right=(0, 3, 4, 5, 6), flexible=(2,), width=_width(wide)),
    ]
    share = f" ({plan.saved / start:.0%})" if start else ""
    lines += ["", *_summary(plan, share)]
    if plan.complete:
        lines += ["", "Then nothing is left to do now.", *remaining_lines(plan.last)]
    else:
        lines += ["", f"Stopped after {count(len(plan.steps), 'round')}; more are left. --rounds N plans on."]
    return "\n".join(lines)


def _width(wide: bool) -> int | None:
    return None if wide else WIDTH


def _hourly(amount: int) -> str:
    return f"{dollars(amount, 2)}/h"


def _summary(plan: ToEnd, share: str) -> list[str]:
    before = len(plan.first.prices)
    opened = sum(len(entry) for step in plan.steps for entry in step.launched)
    new = f", {opened} of them new" if opened else ""
    text = (
        f"Plan: {count(plan.commands, 'command')} in {count(len(plan.steps), 'round')}; {before:,} -> {plan.nodes:,} "
        f"nodes{new}; {_hourly(plan.cost + plan.saved)} -> {_hourly(plan.cost)}, {_hourly(plan.saved)}{share} saved; "
        f"{count(plan.pods_moved, 'pod restart')}."
    )
    return [*paragraph(text), *paragraph(optimal_text(plan.optimal, to_end=True))]


def _rows(plan: ToEnd, *, wide: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    saved = moved = 0
    for step in plan.steps:
        for place, (command, opened) in enumerate(zip(step.commands, step.launched, strict=True)):
            last = place == len(step.commands) - 1
            alone = step.saved - saved if len(step.commands) == 1 else command.savings
            moved += command.pods
            rows.append(
                (
                    str(step.round) if place == 0 else "",
                    command.action.value,
                    _what(command, opened, wide=wide),
                    dollars(alone, 2),
                    f"{command.pods:,}",
                    dollars(step.saved, 2) if last else "",
                    f"{moved:,}" if last else "",
                )
            )
        saved = step.saved
    return rows


def _what(command: Command, opened: Sequence[Launched], *, wide: bool) -> str:
    shown = command.nodes if wide else command.nodes[:1]
    more = len(command.nodes) - len(shown)
    text = ", ".join(shown) + (f" +{more}" if more else "")
    new = [entry.machine.kind.name if entry.machine else f"a node of {entry.node_pool}" for entry in opened]
    return f"{text} -> {', '.join(new)}" if new else text
