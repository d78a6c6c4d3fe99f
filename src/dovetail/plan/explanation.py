"""`dovetail explain`: one node's gates with numbers, its pool's policy with origins, and what would change the verdict.

Words and JSON of what `plan.counterfactual` found; decides nothing. Sits in plan; `cli.planning.explain` prints it.
"""

from dataclasses import dataclass
from typing import Any

from dovetail.api.findings import InputError
from dovetail.decide.billing_words import price_document, price_reason
from dovetail.decide.document import Json, action, gate, prices
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.candidates import Chain
from dovetail.decide.question import Question
from dovetail.decide.words import clock, dollars
from dovetail.model import names
from dovetail.model.command import Command, Method
from dovetail.model.money import format_money
from dovetail.model.policies.controls import AllowWindow, Health, RepairRule
from dovetail.model.policies.policy import Budget, DisruptionPolicy
from dovetail.model.text import nearest
from dovetail.model.timing.duration import format_duration
from dovetail.model.verdicts import Gate, GateResult
from dovetail.plan.explaining.counterfactual import Counterfactual, counterfactuals
from dovetail.plan.explaining.node_answer import NodeAnswer
from dovetail.plan.node_detail import NodeDetail, detail_of
from dovetail.plan.summary import LINE_MAX, prices_text
from dovetail.plan.to_end import plan_to_end
from dovetail.report.table import note_lines, paragraph, text_table
from dovetail.report.words import safe, span

_BLOCKERS_MAX = 15
_LANDINGS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """The command of a later round that takes the node (`--to-end`)."""

    round: int
    command: Command


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why one node stays or goes: its answer, the result of each obvious change, and whether it goes later.

    `to_end`: whether the later rounds were asked.
    """

    question: Question
    answer: NodeAnswer
    opened: tuple[Counterfactual, ...]
    later: Later | None = None
    to_end: bool = False

    @property
    def text(self) -> str:
        """Return the explanation in words, as `dovetail explain` prints it."""
        return explanation_text(self)

    @property
    def wide_text(self) -> str:
        """Return the explanation in words with every check, as `dovetail explain -o wide` prints it."""
        return explanation_text(self, wide=True)

    def to_dict(self) -> Json:
        """Return the JSON of `dovetail explain`."""
        return explanation_document(self)


def explain(question: Question, node: str, *, to_end: bool = False) -> Explanation:
    """Explain one node; raise InputError, with the nearest name, if there is no such node.

    `to_end`: ask the later rounds too, as `plan --to-end` does.
    """
    answer, opened = counterfactuals(question, node)
    if answer is None:
        known = sorted(entry.metadata.name for entry in question.cluster.nodes)
        near = nearest(node, known)
        some = f"name one of the {len(known)} that are there, such as {known[0]}" if known else "the input has no node"
        raise InputError(f'there is no node "{node}"; {f"did you mean {near}?" if near else some}')
    later = _later(question, node) if to_end and answer.command is None else None
    return Explanation(question=question, answer=answer, opened=opened, later=later, to_end=to_end)


def _later(question: Question, node: str) -> Later | None:
    for step in plan_to_end(question).steps:
        for command in step.commands:
            if node in command.nodes:
                return Later(round=step.round, command=command)
    return None


def explanation_document(found: Explanation) -> Json:
    """Return everything as JSON."""
    question, answer, opened, later = found.question, found.answer, found.opened, found.later
    facts = answer.facts
    return {
        "now": clock(question.now),
        "profile": question.settings.profile.value,
        **({"policy": question.settings.policy} if question.settings.policy else {}),
        "node": facts.name,
        "nodePool": facts.pool_name,
        "instanceType": facts.instance_type,
        "zone": facts.zone,
        "capacityType": facts.capacity_type,
        "price": None if facts.offering_price is None else facts.price_float,
        "paid": price_document(answer.work.scene.billing, facts.name),
        "prices": prices(question.catalogue.source, question.catalogue.as_of, question.now),
        "disruptionCost": float(facts.disruption_cost(question.now)),
        "lifetimeRemaining": float(facts.remaining(question.now)),
        "pods": len(facts.reschedulable),
        "closing": facts.closing,
        "verdict": answer.verdict.verdict,
        "why": answer.verdict.why,
        "action": None if answer.command is None else action(answer.command),
        "command": None if answer.command is None else action(answer.command),
        "later": None if later is None else {"round": later.round, "action": action(later.command)},
        "gates": [gate(result) for result in answer.deciding.results],
        "methods": [
            {"method": method.value, "gates": [gate(result) for result in chain.results]}
            for method, chain in answer.chains.items()
        ],
        "policy": None if facts.policy is None else policy_document(facts.policy),
        "preferences": list(answer.preferences),
        "opens": [entry.to_dict() for entry in opened],
        "warnings": list(question.cluster.notes),
        **detail_of(answer.work, facts).to_dict(),
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
    if policy.restart_price is not None:
        values["restartPrice"] = policy.restart_price.text
    if policy.windows:
        values["windows"] = [_window_text(entry) for entry in policy.windows]
    if policy.min_node_age is not None:
        values["minNodeAge"] = format_duration(policy.min_node_age)
    if policy.health is not None:
        values["health"] = _health_text(policy.health)
    if policy.repair:
        values["repair"] = [_repair_text(entry) for entry in policy.repair]
    unread = {*policy.unreadable, *(["consolidateAfter"] if policy.closed else [])}
    shown: dict[str, Any] = {
        key: {"value": value, "from": "unreadable" if key in unread else policy.origins.get(key, "default")}
        for key, value in values.items()
    }
    return {**shown, "static": policy.static, "problems": list(policy.problems), "warnings": list(policy.warnings)}


def budget_text(budget: Budget) -> str:
    """Write a budget in one line."""
    parts = [f"nodes {budget.nodes}"]
    if budget.per is not None:
        parts.append(f"per {format_duration(budget.per)}")
    if budget.reasons:
        parts.append(f"for {', '.join(reason.value for reason in budget.reasons)}")
    if budget.schedule:
        parts.append(f"from {budget.schedule!r} for {budget.duration}")
    if budget.topology_key:
        parts.append(f"per {budget.topology_key}{', one at a time' if budget.sequential else ''}")
    if budget.problem:
        parts.append(f"(broken: {budget.problem})")
    return " ".join(parts)


def _window_text(entry: AllowWindow) -> str:
    reasons = f", for {', '.join(reason.value for reason in entry.reasons)}" if entry.reasons else ""
    broken = f" (broken: {entry.problem})" if entry.problem else ""
    return f"{entry.schedule!r} for {entry.duration}{reasons}{broken}"


def _health_text(health: Health) -> str:
    parts = []
    if health.not_ready_nodes is not None:
        parts.append(f"at most {health.not_ready_nodes} nodes not ready")
    if health.pending_pods is not None:
        limit = health.pending_pods
        parts.append(f"fewer than {limit.count} pods unschedulable for {format_duration(limit.lasting)}")
    if health.moved_pods_ready_within is not None:
        parts.append(f"moved pods ready within {format_duration(health.moved_pods_ready_within)}")
    if health.problem:
        parts.append(f"(broken: {health.problem})")
    return "; ".join(parts)


def _repair_text(rule: RepairRule) -> str:
    drained = "" if rule.drain_for is None else f", drained for at most {format_duration(rule.drain_for)}"
    return f"{rule.condition} {rule.status} for {format_duration(rule.lasting)}{drained}"


def _price(facts: NodeFacts) -> str:
    return "price unknown" if facts.offering_price is None else f"{dollars(facts.price)}/h"


def _price_lines(answer: NodeAnswer, facts: NodeFacts) -> list[str]:
    why = price_reason(answer.work.scene.billing, facts.name)
    return paragraph(f"Price: {why}.") if why else []


def verdict_text(found: Explanation) -> str:
    """Return whether it goes in this round, may go in a later one, or stays, and where."""
    answer, command = found.answer, found.answer.command
    if command is not None:
        others = len(command.nodes) - 1
        company = f" together with {others} other{'s' if others > 1 else ''}" if others else ""
        what = f"{command.action.value}, saving {dollars(command.savings)}/h"
        return f"It would go{company}: {what}{' in all' if others else ''}."
    later, turn = found.later, ""
    if later is not None:
        turn = f" It goes in round {later.round} of `plan --to-end` ({later.command.action.value})."
    if not answer.eligible:
        return f"It stays, at gate {answer.last.gate.value}: {answer.last.why}{turn}"
    first = answer.result.commands
    acting = f"this round takes others first ({first[0].action.value})" if first else "no command takes it yet"
    if later is None:
        turn = " No later round of `plan --to-end` takes it." if found.to_end else " `--to-end` says when it goes."
    return f"It may go ({answer.deciding.method.value}), but not in this round: {acting}.{turn}"


def explanation_text(found: Explanation, *, wide: bool = False) -> str:
    """Return everything in words, the answer and the remedy first; `wide` lists the checks that it passed, too."""
    question, answer, opened = found.question, found.answer, found.opened
    detail = detail_of(answer.work, answer.facts)
    lines = [
        *note_lines(question.cluster.notes),
        *paragraph(f"{answer.facts.name}: {verdict_text(found)}"),
        *_opening_lines(answer, opened),
        *_blocker_lines(answer, detail),
        "",
        *_fact_lines(found, detail),
        "",
        f"Gates ({answer.deciding.method.value}):",
        *_chain_lines(answer.deciding, wide=wide),
        *_other_lines(answer),
        *_landing_lines(detail),
        *_preference_lines(answer),
        *_policy_lines(answer.facts.policy),
        "",
        prices_text(question.catalogue, question.now),
    ]
    return "\n".join(safe(line, LINE_MAX) for line in lines).rstrip()  # names come from outside


def more_text(found: Explanation, detail: NodeDetail) -> str:
    """Return what the page has no table for: the node in figures, the other methods, preferences and the policy."""
    answer = found.answer
    parts = (_other_lines(answer), _preference_lines(answer), _policy_lines(answer.facts.policy))
    lines = [*_fact_lines(found, detail), *(line for part in parts for line in part)]
    return "\n".join(safe(line, LINE_MAX) for line in lines)


def _fact_lines(found: Explanation, detail: NodeDetail) -> list[str]:
    """Return the node in figures: its kind, price, pods, age and fill."""
    answer, now = found.answer, found.question.now
    facts = answer.facts
    head = (
        f"{facts.name} (NodePool {facts.pool_name or '-'}, {facts.instance_type or 'unknown type'}, "
        f"{facts.zone or '-'}, "
        f"{facts.capacity_type or '-'}): {_price(facts)}, {_pods(len(facts.reschedulable))}, disruption cost "
        f"{float(facts.disruption_cost(now)):.4g} ({float(facts.remaining(now)):.0%} of its life left)"
    )
    return [*paragraph(head), *_price_lines(answer, facts), *_figure_lines(detail), *_closing_lines(facts)]


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _figure_lines(detail: NodeDetail) -> list[str]:
    used = [f"{name} {share:.0%}" for name, share in detail.utilisation.items()]
    age = "age unknown" if detail.age is None else f"{span(max(0.0, detail.age.total_seconds()))} old"
    parts = [age, f"requested: {', '.join(used)}" if used else "", f"{detail.daemons} pods of DaemonSets and the like"]
    return paragraph("; ".join(filter(None, parts)))


def _closing_lines(facts: NodeFacts) -> list[str]:
    """Return that the node is closing, why, and which pods a scale-down removes next (docs/rules.md#steering)."""
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
    lost = sum(1 for entry in detail.landings if entry.node is None and entry.new is None)
    needed = f"; {lost} of {len(detail.landings)} land nowhere" if lost else "; no new node is needed"
    if detail.new_nodes:
        needed = f"; a new node is needed: {', '.join(detail.new_nodes)}"
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


def _is_question(chain: Chain, result: GateResult) -> bool:
    """Return whether a check asks what its method is about; only the method `empty` asks whether a node is empty."""
    return result.gate in _QUESTIONS and (result.gate is not Gate.NOT_EMPTY or chain.method is Method.EMPTY)


def _chain_lines(chain: Chain, *, wide: bool) -> list[str]:
    """Return the checks of a method; without `wide`, those that it passed are only counted."""
    passed = [result for result in chain.results if result.passed and not _is_question(chain, result)]
    folded = [] if wide or len(passed) < 2 else passed
    lines = [f"  {len(folded)} checks passed (-o wide lists them)"] if folded else []
    for result in chain.results:
        if result in folded:
            continue
        mark, name = "pass" if result.passed else "STOP", result.gate.value
        if _is_question(chain, result):
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
    lines = ["", "What would change this (each asked in a round of its own):"]
    for entry in opened:
        lines += paragraph(f"{entry.if_}: {entry.then}", indent="  ")
    return lines
