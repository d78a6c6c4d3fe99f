"""What would open a closed gate? Changes one thing in the input and asks the round again; nothing is guessed.

For the gate that refused a node, there are a few obvious changes: another annotation, another setting, a later time.
Each is tried on a copy of the input: the verdict and the command are those of the round on that copy, and the money is
the difference between that round and the one on the input as it is. Sits in plan; `plan.explanation` formats it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from dovetail.decide.decider import Decider
from dovetail.decide.document import Json, action
from dovetail.decide.held_back import Baseline
from dovetail.decide.question import Question
from dovetail.decide.words import clock, dollars, seconds
from dovetail.model.command import Command
from dovetail.model.money import Money, format_money
from dovetail.model.waste import wasted_by
from dovetail.plan.explaining.node_answer import NodeAnswer, ask
from dovetail.plan.explaining.suggested_changes import next_time, suggested_changes

TIMES_MAX: Final = 6
"""At how many times a node is asked about before giving up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A change, and what differs between the round with it and the round without it.

    `if_` starts with "if ..." or "at ...", e.g. "if pod web-7 had no ...". `command`: that of the other round that
    takes the node. `saves_more`: dollars per hour, and `nodes_more`: nodes, that the other round takes beyond this one.
    `savings`: the figure of `blockers`, which does not depend on which method acts first (`decide.held_back`).
    `question`: the changed input.
    """

    if_: str
    opens: bool
    then: str
    gate: str
    command: Command | None
    saves_more: Money
    nodes_more: int
    savings: Money
    question: Question

    def to_dict(self) -> Json:
        """Return it in the contract's form."""
        return {
            "if": self.if_,
            "opens": self.opens,
            "then": self.then,
            "gate": self.gate,
            "command": None if self.command is None else action(self.command),
            "savesMorePerHour": format_money(self.saves_more),
            "nodesMore": self.nodes_more,
            "savingsPerHour": format_money(self.savings),
        }


def counterfactuals(question: Question, node: str) -> tuple[NodeAnswer | None, tuple[Counterfactual, ...]]:
    """Return the node's answer now and, if it stays, what each obvious change would make of the round."""
    decider = Decider()
    now = ask(question, node, decider)
    if now is None or now.eligible:
        return now, ()
    found = []
    baseline = Baseline(question)
    for if_, changed in suggested_changes(question, now):
        then = ask(changed, node, decider)
        if then is not None:
            found.append(_described(if_, now, then, changed, baseline.held_back(changed)))
    for if_, changed, then in _by_time_alone(question, now, decider):
        found.append(_described(if_, now, then, changed, baseline.held_back(changed)))
    return now, tuple(found)


def _by_time_alone(question: Question, now: NodeAnswer, decider: Decider) -> Iterator[tuple[str, Question, NodeAnswer]]:
    """Follow the node from each time at which its answer may change to the next, until it could go.

    What nodes waste until then counts, as it does in a controller. A time at which it stops at the same gate as before
    says nothing new and is left out.
    """
    answer, waste = now, question.waste
    for _ in range(TIMES_MAX):
        when = next_time(answer)
        if when is None:
            return
        waste = wasted_by(waste, answer.result.could_save, answer.work.scene.now)
        changed = replace(question, now=when, waste=waste)
        then = ask(changed, answer.facts.name, decider)
        if then is None:
            return
        if then.eligible or then.last.gate is not answer.last.gate:
            yield f"at {clock(when)} (in {seconds(when - question.now)})", changed, then
        if then.eligible:
            return
        answer = then


def _described(if_: str, before: NodeAnswer, after: NodeAnswer, question: Question, savings: Money) -> Counterfactual:
    saves_more = after.result.saves - before.result.saves
    nodes_more = len(after.result.taken) - len(before.result.taken)
    if after.eligible:
        gate, then = "eligible", _fate(after, saves_more, savings)
    else:
        gate, still = after.last.gate.value, after.last.gate is before.last.gate
        stop = f"it would still stop at {gate}" if still else f"it would stop at {gate} instead"
        then = f"{stop}: {after.last.why}"
    return Counterfactual(
        if_=if_,
        opens=after.eligible,
        then=then,
        gate=gate,
        command=after.command,
        saves_more=saves_more,
        nodes_more=nodes_more,
        savings=savings,
        question=question,
    )


def _fate(answer: NodeAnswer, saves_more: Money, savings: Money) -> str:
    """Return what the other round does with the node, and what it saves beyond this one."""
    command = answer.command
    if command is None:
        return f"it could go in a later round ({answer.deciding.method.value}); {_difference(saves_more, savings)}"
    verb = "replaced" if command.replacements else "deleted"
    count = len(command.nodes) - 1
    others = f" together with {count} other{'' if count == 1 else 's'}" if count else ""
    return f"it would be {verb}{others} ({command.action.value}); {_difference(saves_more, savings)}"


def _difference(saves_more: Money, savings: Money) -> str:
    """Return what this round would save more and, if another method goes first, what that comes to in its turn."""
    if saves_more:
        said = f"this round would save {dollars(abs(saves_more))}/h {'more' if saves_more > 0 else 'less'}"
    else:
        said = "this round would save no more than now"
    if savings == saves_more or savings <= 0:
        return said
    return f"{said}; every method in its turn, {dollars(savings)}/h more"
