"""The plan in words: what would be done now, what it saves, whom it disturbs, what holds the rest back.

Grouped by the gate that nodes stop at, so that 500 nodes read as ten lines, with the first thing to change. Words
only, decides nothing. Sits in plan; `cli.plan` prints it.
"""

from collections.abc import Sequence

from dovetail.decide.outcome import RoundResult
from dovetail.decide.words import clock, dollars, seconds
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command, Replacement
from dovetail.model.verdicts import ELIGIBLE, Gate, NodeVerdict
from dovetail.plan.document import unpriced_nodes
from dovetail.report.words import safe

WARNINGS_MAX = 5
LINE_MAX = 2000

FIRST_STEP = {
    Gate.POD_DO_NOT_DISRUPT: "take do-not-disrupt off pods that can bear a restart",
    Gate.PDB: "give the PodDisruptionBudgets room: more replicas, or maxUnavailable instead of minAvailable",
    Gate.NODE_DO_NOT_DISRUPT: "take do-not-disrupt off the nodes",
    Gate.POOL_POLICY: "let the pool consolidate: consolidationPolicy WhenEmptyOrUnderutilized",
    Gate.CONSOLIDATE_AFTER: "wait, or shorten consolidateAfter",
    Gate.GRACE_PERIOD: "wait, or shorten consolidationGracePeriod",
    Gate.BUDGET: "raise the pool's budget for this reason, or wait for its window",
    Gate.TOPOLOGY_BUDGET: "wait for the domain's turn, or raise the topology budget",
    Gate.SIMULATION: "look at what keeps their pods: spread, affinity, or room",
    Gate.NEW_NODES: "look at what keeps their pods from one node together",
    Gate.PRICE: "allow cheaper instance types in the pool; as it is, these nodes are the cheapest that do",
    Gate.SAVINGS_THRESHOLD: "lower consolidationSavingsThreshold if these savings are worth the restarts",
    Gate.SPOT_TO_SPOT: "switch spotToSpotConsolidation on",
    Gate.SPOT_FLEXIBILITY: "allow more instance types in the spot pool",
    Gate.MIN_VALUES: "lower minValues in the pool",
    Gate.BALANCED: "use WhenEmptyOrUnderutilized where Balanced is too careful",
    Gate.INSTANCE_TYPE_KNOWN: "give a catalogue that has these instance types",
}


def prices_text(catalogue: Catalogue | None) -> str:
    """Say where the prices are from and of which day; nothing where the catalogue has no date."""
    return safe(f"Prices: {catalogue.source}, of {catalogue.as_of}.") if catalogue and catalogue.as_of else ""


def plan_text(result: RoundResult) -> str:
    """Return the plan in words."""
    verdicts = result.verdicts
    pools = len({entry.node_pool for entry in verdicts if entry.node_pool})
    size = f"{_count(len(verdicts), 'node')} in {_count(pools, 'pool')}, {total_price(result)}"
    lines = [
        f"{clock(result.now)}, profile {result.profile.value}: {size}",
        "",
        *_actions(result),
        *_rest(result, verdicts),
    ]
    if result.next_change is not None:
        wait = seconds(result.next_change - result.now)
        lines.append(f"By time alone this could change at {clock(result.next_change)} (in {wait}).")
    if result.warnings:
        lines.extend(["", f"{_count(len(result.warnings), 'warning')}:"])
        lines.extend(f"  {text}" for text in result.warnings[:WARNINGS_MAX])
        if len(result.warnings) > WARNINGS_MAX:
            lines.append(f"  and {len(result.warnings) - WARNINGS_MAX} more (-o json lists all)")
    return "\n".join(safe(line, LINE_MAX) for line in lines)  # names come from outside


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def total_price(result: RoundResult) -> str:
    """Say what all nodes cost, and of how many the price is not known."""
    unknown = len(unpriced_nodes(result))
    if unknown and not result.prices:
        return "price unknown"
    known = f"{dollars(sum(result.prices.values()), places=2)}/h"
    return f"{known} and {_count(unknown, 'node')} of unknown price" if unknown else known


def savings_text(result: RoundResult, command: Command) -> str:
    """Say what a command saves, as far as the prices of its nodes are known."""
    unknown = sum(name not in result.prices for name in command.nodes)
    if unknown == len(command.nodes):
        return "saves an unknown amount (the catalogue has no price for what goes)"
    required = f" ({dollars(command.required_savings)}/h asked for)" if command.required_savings else ""
    more = f" and what {_count(unknown, 'node')} of unknown price cost" if unknown else ""
    return f"saves {dollars(command.savings)}/h{more}{required}"


def _actions(result: RoundResult) -> list[str]:
    if not result.commands:
        return ["Nothing would be done now."]
    lines = []
    for command in result.commands:
        lines.append(f"Now: {command.action.value} {_some(command.nodes)}")
        lines.extend(f"  and launch {_replacement(entry)} first" for entry in command.replacements)
        lines.append(f"  {savings_text(result, command)}, {_disturbs(command)}")
    return lines


def _disturbs(command: Command) -> str:
    if not command.pods:
        return "disturbs no pod"
    moving = [pod for placement in command.placements for pod in placement.pods]
    moving.extend(pod for replacement in command.replacements for pod in replacement.pods)
    # Placements also say where pending pods and those of leaving nodes would land: these are not restarted by it.
    which = f": {_some(moving)}" if len(moving) == command.pods else ""
    return f"restarts {_count(command.pods, 'pod')} (disruption cost {command.disruption_cost:.4g}){which}"


def _replacement(entry: Replacement) -> str:
    kinds = entry.instance_types
    if not kinds:
        return f"a node of NodePool {entry.node_pool}, from its template"
    more = f" or one of {len(kinds) - 1} more types" if len(kinds) > 1 else ""
    return f"a {kinds[0]}{more} ({'/'.join(entry.capacity_types)}) of NodePool {entry.node_pool}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _rest(result: RoundResult, verdicts: Sequence[NodeVerdict]) -> list[str]:
    taken = frozenset(name for command in result.commands for name in command.nodes)
    groups: dict[str, list[NodeVerdict]] = {}
    for entry in verdicts:
        if entry.node not in taken:
            groups.setdefault(entry.verdict, []).append(entry)
    waiting = groups.pop(ELIGIBLE, [])
    lines = []
    if waiting:
        lines.append(
            f"Next: {_count(len(waiting), 'more node')} could go in later rounds: {_some([v.node for v in waiting])}"
        )
    if not groups:
        return lines
    ordered = sorted(groups.items(), key=lambda group: (-_worth(result, group[1]), group[0]))
    lines.extend(["", "What holds the rest back:"])
    for name, members in ordered:
        worth, example = price_text(result, members), members[0]
        lines.append(f"  {len(members):>5} {name:<24} {worth:>12}  e.g. {example.node}: {example.why}")
    lines.extend(_first_step(result, ordered))
    return lines


def _worth(result: RoundResult, members: Sequence[NodeVerdict]) -> int:
    return sum(result.prices.get(entry.node, 0) for entry in members)


def price_text(result: RoundResult, members: Sequence[NodeVerdict]) -> str:
    """Say what nodes cost together; unknown if no price is known."""
    known = any(entry.node in result.prices for entry in members)
    return f"{dollars(_worth(result, members), places=2)}/h" if known else "unknown"


def _first_step(result: RoundResult, groups: Sequence[tuple[str, list[NodeVerdict]]]) -> list[str]:
    """Name what to change for the dearest group that a change could help; the catalogue if it lacks prices."""
    unpriced = unpriced_nodes(result)
    if unpriced:
        lacking = f"It has no price for {_count(len(unpriced), 'node')}, such as {unpriced[0]}"
        remedy = "give --catalog CLOUD:REGION or a file ('dovetail catalog show' lists what is built in)"
        return ["", f"First thing to change: the catalogue. {lacking}; {remedy}."]
    for name, members in groups:
        step = FIRST_STEP.get(Gate(name))
        if step is not None:
            return [
                "",
                f"First thing to change: {step}. `dovetail explain {members[0].node}` says what would come of it.",
            ]
    return []
