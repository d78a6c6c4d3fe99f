"""The plan in words: what would be done now, what it saves, what it disrupts, what blocks the rest.

Grouped by the gate that refused the nodes, so that 500 nodes become ten lines, with the first thing to change. Formats
only, decides nothing. Sits in plan; `cli.planning.plan` prints it.
"""

import math
from collections.abc import Sequence

from dovetail.decide.document import unpriced_nodes
from dovetail.decide.optimal import Optimal, optimal_of
from dovetail.decide.outcome import RoundResult
from dovetail.decide.words import clock, dollars, seconds
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command, Replacement
from dovetail.model.verdicts import ELIGIBLE, Gate, NodeVerdict
from dovetail.report.table import WIDTH, paragraph, text_table
from dovetail.report.words import count, listing, safe

WARNINGS_MAX = 5
CANDIDATES_MAX = 20
LINE_MAX = 2000

FIRST_STEP = {
    Gate.POD_DO_NOT_DISRUPT: "take do-not-disrupt off pods that can bear a restart",
    Gate.PDB: "give the PodDisruptionBudgets room: more replicas, or maxUnavailable instead of minAvailable",
    Gate.NODE_DO_NOT_DISRUPT: "take do-not-disrupt off the nodes",
    Gate.POOL_POLICY: "let the pool consolidate: consolidationPolicy WhenEmptyOrUnderutilized",
    Gate.PAUSED: "resume the pool: dovetail resume",
    Gate.POD_WINDOW: "wait for the pods' windows, or widen them",
    Gate.MIN_NODE_AGE: "wait, or lower minNodeAge",
    Gate.HEALTH: "look at what is not healthy; after a halt, dovetail resume",
    Gate.WINDOW: "wait for the next window, or add one",
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
    Gate.CAPACITY_BUFFER: "make the CapacityBuffers smaller if so much spare capacity is not needed",
    Gate.DYNAMIC_RESOURCES: "restart the pods with resource claims elsewhere yourself: Karpenter moves none of them",
    Gate.INSTANCE_TYPE_KNOWN: "give a catalogue that has these instance types",
}


def prices_text(catalogue: Catalogue | None) -> str:
    """Return the source and the date of the prices; empty if the catalogue has no date."""
    return safe(f"Prices: {catalogue.source}, of {catalogue.as_of}.") if catalogue and catalogue.as_of else ""


def plan_text(
    result: RoundResult, *, wide: bool = False, every_method: bool = False, every_candidate: bool = False
) -> str:
    """Return the plan in words; `wide` lists every node and cuts nothing.

    `every_method` and `every_candidate` add what the round was asked for beside its own answer.
    """
    verdicts = result.verdicts
    pools = len({entry.node_pool for entry in verdicts if entry.node_pool})
    size = f"{count(len(verdicts), 'node')} in {count(pools, 'pool')}, {total_price(result)}"
    lines = [
        *paragraph(f"{clock(result.now)}, profile {result.profile.value}: {size}"),
        "",
        *_actions(result, wide=wide),
        *paragraph(optimal_text(optimal_of(result.commands, result.value_at_most))),
        *remaining_lines(result, wide=wide),
    ]
    if every_method:
        lines += methods_lines(result, wide=wide)
    if every_candidate:
        lines += candidates_lines(result, wide=wide)
    if result.next_change is not None:
        wait = seconds(result.next_change - result.now)
        lines += paragraph(f"By time alone this could change at {clock(result.next_change)} (in {wait}).")
    lines += _of_karpenter(result, wide=wide)
    if result.warnings:
        lines += ["", f"{count(len(result.warnings), 'warning')}:"]
        shown = result.warnings if wide else result.warnings[:WARNINGS_MAX]
        for text in shown:
            lines += paragraph(text, indent="  ")
        if len(result.warnings) > len(shown):
            lines.append(f"  and {len(result.warnings) - len(shown)} more (-o wide lists all)")
    return "\n".join(safe(line, LINE_MAX) for line in lines)  # names come from outside


def optimal_text(found: Optimal | None, *, to_end: bool = False) -> str:
    """Return how much of the possible savings a round, or all rounds to the end, reach, compared with a bound."""
    if found is None:
        return ""
    if found.reached is None:
        return "No set of the nodes that may go now could be worth its restarts."
    most = f"{dollars(found.at_most)}/h at most, after what restarts have to save"
    if not found.value:
        return f"What could be saved by the nodes that may go now: {most} (a bound). This round saves none of it."
    what = "This plan" if to_end else "This round"
    share = math.floor(found.reached * 100)
    return (
        f"{what} reaches at least {share} % of what could be saved by the nodes that may go now: "
        f"{dollars(found.value)}/h of {most} (a bound: no packing of their pods is worth more)."
    )


def total_price(result: RoundResult) -> str:
    """Return the price of all nodes, and how many have no known price."""
    unknown = len(unpriced_nodes(result))
    if unknown and not result.prices:
        return "price unknown"
    known = f"{dollars(sum(result.prices.values()), places=2)}/h"
    return f"{known} and {count(unknown, 'node')} of unknown price" if unknown else known


def savings_text(result: RoundResult, command: Command) -> str:
    """Return what a command saves, as far as the prices of its nodes are known."""
    unknown = sum(name not in result.prices for name in command.nodes)
    if unknown and unknown == len(command.nodes):
        return "saves an unknown amount (the catalogue has no price for what goes)"
    required = f" ({dollars(command.required_savings)}/h asked for)" if command.required_savings else ""
    more = f" and what {count(unknown, 'node')} of unknown price cost" if unknown else ""
    return f"saves {dollars(command.savings)}/h{more}{required}"


def _actions(result: RoundResult, *, wide: bool) -> list[str]:
    if not result.commands:
        return ["Nothing would be done now."]
    lines = []
    for command in result.commands:
        nodes = ", ".join(command.nodes) if wide else _some(command.nodes)
        lines += paragraph(f"Now: {command.action.value} {nodes}")
        for entry in command.replacements:
            lines += paragraph(f"and launch {_replacement(entry)} first", indent="  ")
        lines += paragraph(f"{savings_text(result, command)}, {_disturbs(command)}", indent="  ")
    return lines


def _disturbs(command: Command) -> str:
    if not command.pods:
        return "disturbs no pod"
    moving = [pod for placement in command.placements for pod in placement.pods]
    moving.extend(pod for replacement in command.replacements for pod in replacement.pods)
    # Placements also say where pending pods and those of leaving nodes would land: these are not restarted by it.
    which = f": {_some(moving)}" if len(moving) == command.pods else ""
    return f"restarts {count(command.pods, 'pod')} (disruption cost {command.disruption_cost:.4g}){which}"


def _replacement(entry: Replacement) -> str:
    kinds = entry.instance_types
    if not kinds:
        return f"a node of NodePool {entry.node_pool}, from its template"
    more = f" or one of {len(kinds) - 1} more types" if len(kinds) > 1 else ""
    return f"a {kinds[0]}{more} ({'/'.join(entry.capacity_types)}) of NodePool {entry.node_pool}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def remaining_lines(result: RoundResult, *, wide: bool = False) -> list[str]:
    """Return what blocks the nodes that no command removes now, gate by gate, and the first thing to change."""
    taken = frozenset(name for command in result.commands for name in command.nodes)
    groups: dict[str, list[NodeVerdict]] = {}
    for entry in result.verdicts:
        if entry.node not in taken:
            groups.setdefault(entry.verdict, []).append(entry)
    waiting = groups.pop(ELIGIBLE, [])
    lines = []
    if waiting:
        names = [verdict.node for verdict in waiting]
        some = ", ".join(names) if wide else _some(names)
        lines += paragraph(f"Next: {count(len(waiting), 'more node')} could go in later rounds: {some}")
    if not groups:
        return lines
    ordered = sorted(groups.items(), key=lambda group: (-_price(result, group[1]), group[0]))
    rows = [
        (
            f"  {len(members):>5}",
            name,
            price_text(result, members),
            f"{members[0].node}: {members[0].why}",
        )
        for name, members in ordered
    ]
    lines += ["", "What holds the rest back (nodes, gate, price of the nodes, an example):"]
    lines += text_table(rows[0], rows[1:], right=(2,), width=None if wide else WIDTH)
    lines += _first_step(result, ordered)
    return lines


def _price(result: RoundResult, members: Sequence[NodeVerdict]) -> int:
    return sum(result.prices.get(entry.node, 0) for entry in members)


def price_text(result: RoundResult, members: Sequence[NodeVerdict]) -> str:
    """Return what nodes cost together; unknown if no price is known."""
    known = any(entry.node in result.prices for entry in members)
    return f"{dollars(_price(result, members), places=2)}/h" if known else "unknown"


def _first_step(result: RoundResult, groups: Sequence[tuple[str, list[NodeVerdict]]]) -> list[str]:
    """Return what to change for the most expensive group that a change could help; the catalogue if it lacks prices."""
    unpriced = unpriced_nodes(result)
    if unpriced:
        lacking = f"It has no price for {count(len(unpriced), 'node')}, such as {unpriced[0]}"
        remedy = "give --catalog CLOUD:REGION or a file ('dovetail catalog show' lists what is built in)"
        return paragraph(f"First thing to change: the catalogue. {lacking}; {remedy}.")
    for name, members in groups:
        step = FIRST_STEP.get(Gate(name))
        if step is not None:
            text = f"First thing to change: {step}. `dovetail explain {members[0].node}` says what would come of it."
            return paragraph(text)
    return []


def methods_lines(result: RoundResult, *, wide: bool = False) -> list[str]:
    """Return what every method would do on the untouched cluster; only the first that acts counts."""
    rows = []
    for entry in result.methods:
        nodes = [name for command in entry.commands for name in command.nodes]
        actions = ", ".join(sorted({command.action.value for command in entry.commands})) or "nothing"
        rows.append(
            (
                f"  {entry.method.value}",
                f"{len(entry.candidates):,}",
                actions,
                f"{len(nodes):,}",
                f"{dollars(sum(command.savings for command in entry.commands), places=2)}",
                f"{sum(command.pods for command in entry.commands):,}",
                (", ".join(nodes) if wide else listing(nodes, 2)) or "-",
            )
        )
    head = ("  METHOD", "CANDIDATES", "WOULD DO", "NODES", "SAVES/H", "PODS", "WHICH")
    table = text_table(head, rows, right=(1, 3, 4, 5), width=None if wide else WIDTH)
    return ["", "Every method, each on the cluster as it is now:", *table]


def candidates_lines(result: RoundResult, *, wide: bool = False) -> list[str]:
    """Return what drift and one-node cost would do with each candidate alone, ignoring budgets."""
    lines: list[str] = []
    for entry in result.methods:
        if entry.alone is None:
            continue
        lines += ["", f"Every candidate of {entry.method.value}, alone, budgets left aside:"]
        if not entry.alone:
            lines.append("  none")
            continue
        shown = entry.alone if wide else entry.alone[:CANDIDATES_MAX]
        rows = [
            (
                f"  {each.node}",
                "-" if each.command is None else each.command.action.value,
                "-" if each.command is None else dollars(each.command.savings, places=2),
                "-" if each.command is None else f"{each.command.pods:,}",
                each.why,
            )
            for each in shown
        ]
        head = ("  NODE", "WOULD", "SAVES/H", "PODS", "WHY")
        lines += text_table(head, rows, right=(2, 3), width=None if wide else WIDTH)
        if len(shown) < len(entry.alone):
            lines.append(f"  and {len(entry.alone) - len(shown):,} more (-o wide or -o json lists all)")
    return lines


def _of_karpenter(result: RoundResult, *, wide: bool) -> list[str]:
    """Return what is assumed about Karpenter, and its buffers: all on request, else what differs from its defaults."""
    lines: list[str] = []
    for row in result.buffers:
        where = ", ".join(f"{count} on {node}" for node, count in row.nodes) or "on no node"
        lines += paragraph(f"CapacityBuffer {row.name}: {count(row.replicas, 'virtual pod')}, {where}", indent="  ")
    said = [text for text in result.assumed if wide or "default" not in text]
    for text in said:
        lines += paragraph(f"assumed of Karpenter: {text}", indent="  ")
    return ["", *lines] if lines else []
