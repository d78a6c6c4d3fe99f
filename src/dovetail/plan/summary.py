"""The plan in words: what would be done now, what it saves, what it disrupts, what blocks the rest.

Grouped by the gate that refused the nodes, so that 500 nodes become ten lines, with the first thing to change. Formats
only, decides nothing. Sits in plan; `cli.planning.plan` prints it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from dovetail.decide.billing_words import bill_text, monthly
from dovetail.decide.document import price_age_days, unpriced_nodes
from dovetail.decide.optimal import optimal_of
from dovetail.decide.round import RoundResult
from dovetail.decide.words import cents, clock, dollars, seconds
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Command, Replacement
from dovetail.model.settings import Settings
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
    Gate.PAUSED: "run dovetail resume",
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
    Gate.PRICE: "nothing: no cheaper instance type fits their pods",
    Gate.SAVINGS_THRESHOLD: "lower consolidationSavingsThreshold if these savings are worth the restarts",
    Gate.SPOT_TO_SPOT: "switch spotToSpotConsolidation on",
    Gate.SPOT_FLEXIBILITY: "allow more instance types in the spot pool",
    Gate.MIN_VALUES: "lower minValues in the pool",
    Gate.BALANCED: "use WhenEmptyOrUnderutilized where Balanced is too careful",
    Gate.CAPACITY_BUFFER: "make the CapacityBuffers smaller if so much spare capacity is not needed",
    Gate.DYNAMIC_RESOURCES: "restart the pods with resource claims elsewhere yourself: Karpenter moves none of them",
    Gate.INSTANCE_TYPE_KNOWN: "give a catalogue that has these instance types",
}

OUT_OF_NEVER = "set consolidateAfter to a duration, such as 5m"
MEND = "mend the policy; dovetail validate says what is wrong with it"
UNPAUSED = "switch the setting paused off"


def first_step(entry: NodeVerdict) -> str:
    """Return the first thing to change so that a node may go; empty if no setting helps."""
    gate = Gate(entry.verdict)
    figures = next((check.figures for check in entry.gates if check.gate is gate and not check.passed), {})
    if gate is Gate.PAUSED:
        return resume_step(entry.node_pool, str(figures.get("until", ""))) if "reason" in figures else UNPAUSED
    if gate is Gate.CONSOLIDATE_AFTER and figures.get("consolidateAfter") == "Never":
        return OUT_OF_NEVER  # nobody can wait for Never
    if gate is Gate.CONSOLIDATE_AFTER and "problem" in figures:
        return MEND
    return FIRST_STEP.get(gate, "")


def resume_step(node_pool: str, until: str) -> str:
    """Return what to do about a pool that is paused; `until`: empty if until it is resumed."""
    resume = f"run dovetail resume {node_pool}"
    return f"wait until {until}, or {resume}" if until else resume


def rules_named(rules: RoundResult | Settings) -> str:
    """Return whose rules decided, in two words: `profile dovetail`, `policy recommended`."""
    return f"policy {rules.policy}" if rules.policy else f"profile {rules.profile.value}"


def prices_text(catalogue: Catalogue | None, now: datetime) -> str:
    """Return the source, the date and the age of the prices; empty if the catalogue has no date."""
    if catalogue is None or not catalogue.as_of:
        return ""
    days = price_age_days(catalogue.as_of, now)
    age = f" They are {count(days, 'day')} old." if days else ""
    return safe(f"Prices: {catalogue.source}, of {catalogue.as_of}.{age}")


def plan_text(
    result: RoundResult,
    *,
    wide: bool = False,
    every_method: bool = False,
    every_candidate: bool = False,
    notes: Sequence[str] = (),
    whole: str = "",
    remedy: str = "",
) -> str:
    """Return the plan in words; `wide` lists every node and cuts nothing; `notes`: warnings that were said before it.

    `whole`: the sentence about all rounds together; `remedy`: the one about what to change first.
    `every_method` and `every_candidate` add what the round was asked for beside its own answer.
    """
    verdicts = result.verdicts
    pools = len({entry.node_pool for entry in verdicts if entry.node_pool})
    size = f"{count(len(verdicts), 'node')} in {count(pools, 'pool')}, {total_price(result)}"
    lines = [
        *paragraph(f"{clock(result.now)}, {rules_named(result)}: {size}"),
        *paragraph(whole),
        *paragraph(bill_text(result.bill)),
        "",
        *_actions(result, wide=wide),
        *(paragraph(optimal_text(result)) if wide else ()),
        *remaining_lines(result, wide=wide, remedy=remedy),
    ]
    if every_method:
        lines += methods_lines(result, wide=wide)
    if every_candidate:
        lines += candidates_lines(result, wide=wide)
    if result.next_change is not None:
        wait = seconds(result.next_change - result.now)
        lines += paragraph(f"By time alone this could change at {clock(result.next_change)} (in {wait}).")
    lines += _of_karpenter(result, wide=wide)
    warnings = [text for text in result.warnings if text not in notes]
    if warnings:
        lines += ["", f"{count(len(warnings), 'warning')}:"]
        shown = warnings if wide else warnings[:WARNINGS_MAX]
        for text in shown:
            lines += paragraph(text, indent="  ")
        if len(warnings) > len(shown):
            lines.append(f"  and {len(warnings) - len(shown)} more (-o wide lists all)")
    return "\n".join(safe(line, LINE_MAX) for line in lines)  # names come from outside


def optimal_text(result: RoundResult) -> str:
    """Return how much could be saved at most, and how much of it this round takes; empty if no bound is known."""
    found = optimal_of(result.commands, result.value_at_most)
    if found is None or unpriced_nodes(result):
        return ""
    if not found.at_most:
        return "At most $0.00/h could be saved: no set of the nodes that may go now is worth its restarts."
    takes = f"this round takes {dollars(found.value)}" if found.value else "this round takes nothing of it"
    rest = ", later rounds the rest" if found.value < found.at_most else ""
    return f"At most {dollars(found.at_most)}/h could be saved; {takes}{rest}.{net_words(result.commands)}"


def net_words(commands: Iterable[Command]) -> str:
    """Return what a bound counts if commands had to save something; empty if they had not."""
    asked = any(entry.required_savings for entry in commands)
    return " (Only what is saved beyond what the restarts must earn counts here.)" if asked else ""


def total_price(result: RoundResult) -> str:
    """Return the price of all nodes, and how many have no known price."""
    unknown = len(unpriced_nodes(result))
    if unknown and not result.prices:
        return "price unknown"
    known = f"{dollars(result.cost_per_hour)}/h"
    return f"{known} and {count(unknown, 'node')} of unknown price" if unknown else known


def savings_text(result: RoundResult, command: Command) -> str:
    """Return what a command saves, as far as the prices of its nodes are known."""
    unknown = sum(name not in result.prices for name in command.nodes)
    if unknown and unknown == len(command.nodes):
        return "saves an unknown amount (the catalogue has no price for what goes)"
    required = f" ({dollars(command.required_savings)}/h asked for)" if command.required_savings else ""
    more = f" and what {count(unknown, 'node')} of unknown price cost" if unknown else ""
    return f"saves {dollars(command.savings)}/h ({monthly(command.savings)}){more}{required}"


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
        return "restarts no pod"
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


def remaining_lines(result: RoundResult, *, wide: bool = False, remedy: str = "", when: str = "now") -> list[str]:
    """Return what blocks the nodes that no command removes, gate by gate, and what to change first.

    `when`: the moment that the result is about, "now" or "then".
    """
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
        one = len(waiting) == 1
        more = f"{count(len(waiting), 'more node')} {'passes' if one else 'pass'} every check now"
        lines += paragraph(f"Next: {more}; later rounds judge {'it' if one else 'them'} again: {some}")
    if not groups:
        return lines
    ordered = sorted(groups.items(), key=lambda group: (-_price(result, group[1]), group[0]))
    rows = [
        (
            f"{len(members):,}",
            name,
            price_text(result, members).removesuffix("/h"),
            f"{members[0].node}: {members[0].why}",
        )
        for name, members in ordered
    ]
    lines += ["", f"What holds the rest back (COST/H: what these nodes cost {when}):"]
    lines += text_table(("NODES", "CHECK", "COST/H", "FOR EXAMPLE"), rows, right=(0, 2), width=None if wide else WIDTH)
    return lines + paragraph(remedy)


def _price(result: RoundResult, members: Sequence[NodeVerdict]) -> int:
    return sum(result.prices.get(entry.node, 0) for entry in members)


def price_text(result: RoundResult, members: Sequence[NodeVerdict]) -> str:
    """Return what nodes cost together; unknown if no price is known."""
    known = any(entry.node in result.prices for entry in members)
    return f"{cents(_price(result, members))}/h" if known else "unknown"


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
                cents(sum(command.savings for command in entry.commands)),
                f"{sum(command.pods for command in entry.commands):,}",
                (", ".join(nodes) if wide else listing(nodes, 2)) or "-",
            )
        )
    head = ("  METHOD", "CANDIDATES", "WOULD DO", "NODES", "SAVES/H", "RESTARTS", "WHICH")
    table = text_table(head, rows, right=(1, 3, 4, 5), width=None if wide else WIDTH)
    legend = "CANDIDATES: nodes that pass its checks; NODES, SAVES/H, RESTARTS: of what it would do."
    return ["", "Every method, each on the cluster as it is now:", *table, *paragraph(legend, indent="  ")]


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
                "-" if each.command is None else cents(each.command.savings),
                "-" if each.command is None else f"{each.command.pods:,}",
                each.why,
            )
            for each in shown
        ]
        head = ("  NODE", "WOULD", "SAVES/H", "RESTARTS", "WHY")
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
