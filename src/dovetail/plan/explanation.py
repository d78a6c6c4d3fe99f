"""`dovetail explain`: one node's gates with numbers, its pool's policy with origins, and what would change the verdict.

Words and JSON of what `plan.counterfactual` found; decides nothing. Sits in plan; `cli.planning.explain` prints it.
"""

import difflib
from dataclasses import dataclass
from typing import Any

from dovetail.api.findings import InputError
from dovetail.decide.document import Json, action, gate, prices
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.question import Question
from dovetail.decide.words import clock, dollars
from dovetail.model import names
from dovetail.model.command import Method
from dovetail.model.money import format_money
from dovetail.model.policies.policy import Budget, DisruptionPolicy
from dovetail.model.timing.duration import format_duration
from dovetail.model.verdicts import ELIGIBLE, Gate
from dovetail.plan.counterfactual import Counterfactual, NodeAnswer, counterfactuals
from dovetail.plan.node_detail import NodeDetail, detail_of
from dovetail.plan.summary import LINE_MAX, prices_text
from dovetail.report.table import paragraph, text_table
from dovetail.report.words import safe, span

_BLOCKERS_MAX = 15
_LANDINGS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one node stays or goes: its answer, and the result of each obvious change."""

    question: Question
    answer: NodeAnswer
    opened: tuple[Counterfactual, ...]

    @property
    def text(self) -> str:
        """Return the explanation in words, as `dovetail explain` prints it."""
        return explanation_text(self.question, self.answer, self.opened)

    def to_dict(self) -> Json:
        """Return the JSON of `dovetail explain`."""
        return explanation_document(self.question, self.answer, self.opened)


def explain(question: Question, node: str) -> Explanation:
    """Explain one node; raise InputError, with the nearest name, if there is no such node."""
    answer, opened = counterfactuals(question, node)
    if answer is None:
        known = sorted(entry.metadata.name for entry in question.cluster.nodes)
        near = difflib.get_close_matches(node, known, n=1)
        some = f"name one of the {len(known)} that are there, such as {known[0]}" if known else "the input has no node"
        raise InputError(f'there is no node "{node}"; {f"did you mean {near[0]}?" if near else some}')
    return Explanation(question=question, answer=answer, opened=opened)


def explanation_document(question: Question, answer: NodeAnswer, opened: tuple[Counterfactual, ...]) -> Json:
    """Return everything as JSON."""
    facts = answer.facts
    return {
        "now": clock(question.now),
        "profile": question.settings.profile.value,
        "node": facts.name,
        "nodePool": facts.pool_name,
        "instanceType": facts.instance_type,
        "zone": facts.zone,
        "capacityType": facts.capacity_type,
        "price": None if facts.offering_price is None else facts.price_float,
        "prices": prices(question.catalogue.source, question.catalogue.as_of),
        "disruptionCost": float(facts.disruption_cost(question.now)),
        "lifetimeRemaining": float(facts.remaining(question.now)),
        "pods": len(facts.reschedulable),
        "closing": facts.closing,
        "verdict": ELIGIBLE if answer.eligible else answer.last.gate.value,
        "why": answer.last.why,
        "action": None if answer.command is None else action(answer.command),
        "gates": [gate(result) for result in answer.deciding.results],
        "methods": [
            {"method": method.value, "gates": [gate(result) for result in chain.results]}
            for method, chain in answer.chains.items()
        ],
        "policy": None if facts.policy is None else policy_document(facts.policy),
        "preferences": list(answer.preferences),
        "opens": [{"if": entry.if_, "opens": entry.opens, "then": entry.then, "gate": entry.gate} for entry in opened],
        **detail_of(answer.context, facts).to_dict(),
    }


def policy_document(policy: DisruptionPolicy) -> Json:
    """Return the effective policy: each field's value and where it comes from."""
    values = {
        "consolidationPolicy": policy.consolidation_policy.value,
        "consolidateAfter": format_duration(policy.consolidate_after),
        "expireAfter": format_duration(policy.expire_after),
        "consolidationGracePeriod": format_duration(policy.grace_period),
        "consolidationSavingsThreshold": format_money(policy.savings_threshold),
        "budgets": [budget_text(budget) for budget in policy.budgets],
    }
    if policy.disruption_price is not None:
        values["disruptionPrice"] = format_money(policy.disruption_price)
    shown: dict[str, Any] = {
        key: {"value": value, "from": policy.origins.get(key, "default")} for key, value in values.items()
    }
    return {**shown, "static": policy.static, "problems": list(policy.problems), "warnings": list(policy.warnings)}


def budget_text(budget: Budget) -> str:
    """Write a budget in one line."""
    parts = [f"nodes {budget.nodes}"]
    if budget.reasons:
        parts.append(f"for {', '.join(reason.value for reason in budget.reasons)}")
    if budget.schedule:
        parts.append(f"from {budget.schedule!r} for {budget.duration}")
    if budget.topology_key:
        parts.append(f"per {budget.topology_key}{', one at a time' if budget.sequential else ''}")
    if budget.problem:
        parts.append(f"(broken: {budget.problem})")
    return " ".join(parts)


def _price(facts: NodeFacts) -> str:
    return "price unknown" if facts.offering_price is None else f"{dollars(facts.price)}/h"


def explanation_text(question: Question, answer: NodeAnswer, opened: tuple[Counterfactual, ...]) -> str:
    """Return everything in words."""
    facts = answer.facts
    detail = detail_of(answer.context, facts)
    head = (
        f"{facts.name} (NodePool {facts.pool_name or '-'}, {facts.instance_type or 'unknown type'}, "
        f"{facts.zone or '-'}, "
        f"{facts.capacity_type or '-'}): {_price(facts)}, {_pods(len(facts.reschedulable))}, disruption cost "
        f"{float(facts.disruption_cost(question.now)):.4g} "
        f"({float(facts.remaining(question.now)):.0%} of its life left)"
    )
    if answer.eligible:
        verdict = f"It would go ({answer.deciding.method.value})."
        if answer.command is not None:
            turn = "" if answer.now else ", when its turn comes"
            others = len(answer.command.nodes) - 1
            company = f" together with {others} other{'s' if others > 1 else ''}" if others else ""
            what = f"{answer.command.action.value}, saving {dollars(answer.command.savings)}/h"
            verdict = f"It would go{company}{turn}: {what}{' in all' if others else ''}."
    else:
        verdict = f"It stays, at gate {answer.last.gate.value}: {answer.last.why}"
    lines = [
        *paragraph(head),
        *_figure_lines(detail),
        *_closing_lines(facts),
        "",
        *paragraph(verdict),
        *_blocker_lines(answer, detail),
        "",
        f"Gates ({answer.deciding.method.value}):",
        *_chain_lines(answer.deciding),
        *_other_lines(answer),
        *_landing_lines(detail),
        *_preference_lines(answer),
        *_policy_lines(facts.policy),
        *_opening_lines(answer, opened),
        "",
        prices_text(question.catalogue),
    ]
    return "\n".join(safe(line, LINE_MAX) for line in lines).rstrip()  # names come from outside


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _figure_lines(detail: NodeDetail) -> list[str]:
    used = [f"{name} {share:.0%}" for name, share in detail.utilisation.items()]
    age = "age unknown" if detail.age is None else f"{span(max(0.0, detail.age.total_seconds()))} old"
    parts = [age, f"requested: {', '.join(used)}" if used else "", f"{detail.daemons} pods of DaemonSets and the like"]
    return paragraph("; ".join(filter(None, parts)))


def _closing_lines(facts: NodeFacts) -> list[str]:
    """Return that the node is closing, why, and which of its pods a scale-down would remove next (spec section 23)."""
    marked = [pod.metadata.name for pod in facts.reschedulable if names.STEERING_MARK in pod.metadata.annotations]
    victims = f" Next victims of scale-downs: {', '.join(marked[:_BLOCKERS_MAX])}." if marked else ""
    if not facts.closing:
        return paragraph(victims.strip())
    worth = f"its price is ${facts.savings_ratio:.4g}/h for each pod's restart"
    return paragraph(
        f"It is closing, so that it empties by itself: new pods prefer other nodes, {worth}, and the room of the "
        f"others could take its pods in.{victims}"
    )


def _blocker_lines(answer: NodeAnswer, detail: NodeDetail) -> list[str]:
    """Return all blockers, if there are more than the gate that decided."""
    if answer.eligible or len(detail.blockers) <= 1:
        return []
    lines = ["", f"All that is in the way now ({len(detail.blockers)}):"]
    for entry in detail.blockers[:_BLOCKERS_MAX]:
        lines += paragraph(f"{entry.gate.value}: {entry.why}", indent="  ")
    if len(detail.blockers) > _BLOCKERS_MAX:
        lines.append(f"  and {len(detail.blockers) - _BLOCKERS_MAX} more (-o json lists all)")
    return lines


def _landing_lines(detail: NodeDetail) -> list[str]:
    if not detail.landings:
        return []
    needed = f"; a new node is needed: {', '.join(detail.new_nodes)}" if detail.new_nodes else "; no new node is needed"
    lines = ["", f"Where its pods would land{needed}:"]
    rows = [
        (f"  {entry.pod}", entry.node or (f"new: {entry.new}" if entry.new else "nowhere"), entry.why)
        for entry in detail.landings[:_LANDINGS_MAX]
    ]
    lines += [line.rstrip() for line in text_table(("  POD", "TO", "WHY"), rows, flexible=(0, 1, 2))]
    if len(detail.landings) > _LANDINGS_MAX:
        lines.append(f"  and {len(detail.landings) - _LANDINGS_MAX} more (-o json lists all)")
    return lines


_QUESTIONS = {Gate.NOT_EMPTY: "empty", Gate.NOT_EXPIRED: "expired", Gate.NOT_DRIFTED: "drifted"}
"""Gates that read better as a question: `expired  yes`, and not `pass  not-expired`."""


def _chain_lines(chain: Chain) -> list[str]:
    lines = []
    for result in chain.results:
        mark, name = "pass" if result.passed else "STOP", result.gate.value
        if result.gate in _QUESTIONS and not (result.gate is Gate.NOT_EMPTY and chain.method is not Method.EMPTY):
            mark, name = "yes" if result.passed else "no", _QUESTIONS[result.gate]
        lines += paragraph(f"{mark:<4}  {name:<26} {result.why}", indent="  ")
    return lines


def _other_lines(answer: NodeAnswer) -> list[str]:
    lines = ["", "Other methods:"]
    for method, chain in answer.chains.items():
        if chain is not answer.deciding:
            last = chain.results[-1]
            name = _QUESTIONS.get(last.gate, last.gate.value)
            said = "would take it" if chain.open else f"{name}: {last.why}"
            lines += paragraph(f"{method.value:<10} {said}", indent="  ")
    return lines if len(lines) > 2 else []


def _preference_lines(answer: NodeAnswer) -> list[str]:
    held = answer.preferences
    if not held:
        return []
    more = [f"  and {len(held) - 5} more"] if len(held) > 5 else []
    head = "Preferences that ask for a new node rather than room that is there (preferencePolicy: Ignore drops them):"
    return ["", head, *(f"  {text}" for text in held[:5]), *more]


def _policy_lines(policy: DisruptionPolicy | None) -> list[str]:
    if policy is None:
        return []
    shown = policy_document(policy)
    lines = ["", "Policy of its pool:"]
    for key, entry in shown.items():
        if isinstance(entry, dict):
            value = "; ".join(entry["value"]) if isinstance(entry["value"], list) else entry["value"]
            lines += paragraph(f"{key:<30} {value or 'none'}  ({entry['from']})", indent="  ")
    lines.extend(f"  problem: {text}" for text in policy.problems)
    lines.extend(f"  warning: {text}" for text in policy.warnings)
    return lines


def _opening_lines(answer: NodeAnswer, opened: tuple[Counterfactual, ...]) -> list[str]:
    if answer.eligible:
        return []
    if not opened:
        return ["", "No setting changes this. It changes when pods or prices change."]
    lines = ["", "What would open it (asked again, not guessed):"]
    for entry in opened:
        lines += paragraph(f"{entry.if_}: {entry.then}", indent="  ")
    return lines
