"""`plan --to-end` in words: the end first, then the rounds, those of one kind folded, with running totals.

Words only, decides nothing. Sits in plan; `cli.planning.plan` prints it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from dovetail.decide.words import cents, clock, dollars
from dovetail.model.command import Action, Command
from dovetail.plan.apply import Launched
from dovetail.plan.summary import net_words, remaining_lines, rules_named, total_price
from dovetail.plan.to_end import RoundStep, ToEnd
from dovetail.plan.whole import whole_text
from dovetail.report.table import WIDTH, paragraph, text_table
from dovetail.report.words import count, safe

_HEAD = ("ROUNDS", "ACTION", "NODES", "SAVES/H", "RESTARTS", "TOTAL/H", "TOTAL")
_LEGEND = (
    "NODES: which go → what is launched first. SAVES/H, RESTARTS: dollars per hour and pods of these rounds; TOTAL/H, "
    "TOTAL: of all rounds so far."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRounds:
    """Consecutive rounds that do the same kind of thing, and the running totals after them."""

    first: int
    last: int
    actions: tuple[Action, ...]
    commands: tuple[Command, ...]
    launched: tuple[Launched, ...]
    saves: int
    saved: int
    restarts: int
    restarted: int

    @property
    def rounds(self) -> str:
        """Return their numbers."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that go."""
        return tuple(node for command in self.commands for node in command.nodes)


def folded(plan: ToEnd, *, fold: bool = True) -> Iterator[FoldedRounds]:
    """Yield the rounds in order, consecutive ones of the same kind as one."""
    saved = moved = 0
    for _, group in groupby(plan.steps, key=_kind if fold else _number):
        steps = list(group)
        last = steps[-1]
        yield FoldedRounds(
            first=steps[0].round,
            last=last.round,
            actions=_kind(last),
            commands=tuple(command for step in steps for command in step.commands),
            launched=tuple(entry for step in steps for opened in step.launched for entry in opened),
            saves=last.saved - saved,
            saved=last.saved,
            restarts=last.pods_moved - moved,
            restarted=last.pods_moved,
        )
        saved, moved = last.saved, last.pods_moved


def _number(step: RoundStep) -> int:
    return step.round


def _kind(step: RoundStep) -> tuple[Action, ...]:
    return tuple(dict.fromkeys(command.action for command in step.commands))


def to_end_text(plan: ToEnd, *, wide: bool = False, remedy: str = "") -> str:
    """Return everything in words; `wide` lists every round and node and cuts nothing.

    `remedy`: what to change first, if something holds nodes back.
    """
    first = plan.first
    nodes = count(plan.nodes_before, "node")
    lines = paragraph(f"{clock(first.now)}, {rules_named(first)}: {nodes}, {total_price(first)}")
    if not plan.steps:
        return "\n".join([*lines, "", "Nothing would be done.", *remaining_lines(plan.last, remedy=remedy)])
    lines += [*paragraph(whole_text(plan)), ""]
    rows = [_row(entry, wide=wide) for entry in folded(plan, fold=not wide)]
    lines += text_table(_HEAD, rows, right=(3, 4, 5, 6), flexible=(2,), width=None if wide else WIDTH)
    lines += [*paragraph(_LEGEND), "", *_end(plan, wide=wide)]
    if plan.complete:
        lines += [*remaining_lines(plan.last, wide=wide, remedy=remedy, when="then")]
    else:
        lines += ["", f"Stopped after {count(len(plan.steps), 'round')}; more are left. --rounds N plans on."]
    return "\n".join(safe(line, 2000) for line in lines)


def end_text(plan: ToEnd) -> str:
    """Return what is left at the end: nodes and their price."""
    opened = sum(len(entry) for step in plan.steps for entry in step.launched)
    new = f", {opened:,} of them new" if opened else ""
    cost = f"{dollars(plan.cost + plan.saved)}/h → {dollars(plan.cost)}/h"
    return f"At the end: {plan.nodes_before:,} → {plan.nodes:,} nodes{new}; {cost}."


def _end(plan: ToEnd, *, wide: bool) -> list[str]:
    text = end_text(plan)
    if wide and plan.optimal is not None:
        net = net_words(command for step in plan.steps for command in step.commands)
        text += f" No packing of the nodes that may go now saves more than {dollars(plan.optimal.at_most)}/h.{net}"
    return paragraph(text)


def _row(entry: FoldedRounds, *, wide: bool) -> tuple[str, ...]:
    return (
        entry.rounds,
        ", ".join(action.value for action in entry.actions),
        _what(entry, wide=wide),
        cents(entry.saves),
        f"{entry.restarts:,}",
        cents(entry.saved),
        f"{entry.restarted:,}",
    )


def _what(entry: FoldedRounds, *, wide: bool) -> str:
    nodes, opened = entry.nodes, entry.launched
    kinds = [each.machine.kind.name if each.machine else f"a node of {each.node_pool}" for each in opened]
    if wide:
        return f"{len(nodes):,}: {', '.join(nodes)}" + (f" → {', '.join(kinds)}" if kinds else "")
    text = nodes[0] if len(nodes) == 1 else f"{len(nodes):,} nodes"
    if not kinds:
        return text
    return f"{text} → {kinds[0] if len(kinds) == 1 else f'{len(kinds):,} new'}"
