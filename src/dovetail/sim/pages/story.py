"""A run in three sentences: what the yardstick did, what the other policy did, and what the difference cost.

Computed from the results, and about what the run was about: zones for a roll, nodes at once for expiry, money and moves
for consolidation. Says nothing that the figures don't.
"""

from collections import Counter
from collections.abc import Sequence

from dovetail.report.words import count, dollars, listing, span
from dovetail.sim.ledger import Result
from dovetail.sim.pages.comparison import PolicyPage
from dovetail.sim.recorded_timeline import RECORDED
from dovetail.sim.timeline import STAYS, MachineLife

_DOLLAR = 10**18


def headline(comparison: PolicyPage) -> str:
    """Return what happened, as a title: `Same cluster, 70 % fewer restarts, 7.5 % higher bill`."""
    pair = featured(comparison)
    if len(pair) == 1:
        return f"{comparison.scenario} under {pair[0].policy}"
    before, after = pair
    about = theme(comparison.results)
    parts = []
    if about in ("drifted", "expired"):
        zones = zones_at_once(before, about), zones_at_once(after, about)
        if zones[0] != zones[1]:
            parts.append(f"{count(zones[1], 'zone')} at once instead of {zones[0]}")
    parts.append(change_in_words(before.pods_disrupted, after.pods_disrupted, before.cost, after.cost))
    return f"Same cluster, {', '.join(parts)}"


def change_in_words(restarts: float, restarts_after: float, bill: float, bill_after: float) -> str:
    """Return how restarts and bill changed: `70 % fewer restarts, 7.5 % higher bill`."""
    fewer = _more_or_less(restarts, restarts_after, ("fewer", "more"), "restarts")
    return f"{fewer}, {_more_or_less(bill, bill_after, ('lower', 'higher'), 'bill')}"


def _more_or_less(before: float, after: float, words: tuple[str, str], what: str) -> str:
    percent = 100 * (after - before) / before if before else 0.0
    if before == after or (before and abs(percent) < 0.05):
        return f"the same {what}"
    word = words[after > before]
    if not before:
        return f"{word} {what}"
    shown = f"{abs(percent):.1f}" if abs(percent) < 9.95 else f"{abs(percent):.0f}"
    return f"{shown.removesuffix('.0')} % {word} {what}"


def theme(results: Sequence[Result]) -> str:
    """Return what the run is about: the reason that took most nodes, `cost`, `drifted`, `expired`, `empty` or none."""
    taken: Counter[str] = Counter()
    for entry in results:
        for machine in entry.timeline.machines:
            taken[machine.fate] += machine.fate != "kept"
    rolled = {fate: taken[fate] for fate in ("drifted", "expired") if taken[fate]}
    if rolled and sum(rolled.values()) * 3 >= sum(taken.values()):
        return max(rolled, key=lambda fate: (rolled[fate], fate))
    return "cost" if taken["cost"] or taken["empty"] else "none"


def featured(comparison: PolicyPage) -> tuple[Result, ...]:
    """Return the policies to put side by side: the yardstick, and the best of the others for what the run is about."""
    if comparison.pair:
        return comparison.pair
    before = comparison.yardstick
    if len(comparison.results) == 1:
        return (before,)
    if theme(comparison.results) in ("drifted", "expired"):
        others = [entry for entry in comparison.results if entry is not before]
        fate = theme(comparison.results)
        calm = min(
            others,
            key=lambda entry: (
                not leaving(entry, fate),
                zones_at_once(entry, fate),
                _turns(leaving(entry, fate)),
                nodes_at_once(entry, fate),
                entry.cost,
                entry.policy,
            ),
        )
        return (before, calm)
    return (before, comparison.best)


def leaving(result: Result, fate: str) -> list[MachineLife]:
    """Return the machines that left for that reason, in the order in which they were marked."""
    found = [entry for entry in result.timeline.machines if entry.fate == fate]
    return sorted(found, key=lambda entry: (entry.leaving, entry.name))


def zones_at_once(result: Result, fate: str) -> int:
    """Return how many zones had a node on its way out at the same time, at most."""
    return max((len({entry.zone for entry in group}) for group in _together(result, fate)), default=0)


def nodes_at_once(result: Result, fate: str) -> int:
    """Return how many nodes were on their way out at the same time, at most."""
    return max((len(group) for group in _together(result, fate)), default=0)


def _together(result: Result, fate: str) -> list[list[MachineLife]]:
    machines = leaving(result, fate)
    return [[other for other in machines if other.leaving <= entry.leaving < _end(other, result)] for entry in machines]


def _end(machine: MachineLife, result: Result) -> float:
    return result.seconds + 1 if machine.ended == STAYS else machine.ended


def story(comparison: PolicyPage) -> tuple[str, ...]:
    """Return three sentences; two where there is only one policy."""
    about = theme(comparison.results)
    pair = featured(comparison)
    if about in ("drifted", "expired"):
        told = [_roll(entry, about, comparison.seconds) for entry in pair]
    elif about == "cost":
        told = [_saving(entry, comparison.seconds) for entry in pair]
    else:
        told = [_calm(entry, comparison.seconds) for entry in pair]
    if len(pair) == 1:
        return (*told, _alone(pair[0]))
    before, after = pair
    return (*told, _roll_difference(before, after, about) if about in ("drifted", "expired") else _bill(before, after))


def _roll(result: Result, fate: str, seconds: float) -> str:
    machines = leaving(result, fate)
    word = "drifted" if fate == "drifted" else "expired"
    if not machines:
        return f"Under {result.policy} no {word} node was replaced in {span(seconds)}."
    took = max(_end(entry, result) for entry in machines) - machines[0].leaving
    zones = zones_at_once(result, fate)
    order = list(dict.fromkeys(entry.zone for entry in machines))
    turns = _turns(machines)
    if len(order) == 1:
        where = "all of them in one zone"
    elif zones == 1 and turns == len(order):
        where = f"one zone after the other ({', then '.join(order)})"
    elif zones == 1:
        where = f"one zone at a time, going back and forth between {len(order)} zones {turns - 1} times"
    else:
        where = f"with up to {zones} of {len(order)} zones touched at the same time"
    forced = sum(entry.command < 0 for entry in machines)
    force = f", {forced} of them by force, whatever the budgets say" if forced else ""
    return (
        f"Under {result.policy} {count(len(machines), f'{word} node')} left within {span(took)}, {where}, "
        f"at most {nodes_at_once(result, fate)} at once{force}."
    )


def _turns(machines: Sequence[MachineLife]) -> int:
    """Return how many stretches of one zone the order of leaving has."""
    zones = [entry.zone for entry in machines]
    return sum(place == 0 or zones[place - 1] != zone for place, zone in enumerate(zones))


def _roll_difference(before: Result, after: Result, fate: str) -> str:
    zones = (zones_at_once(before, fate), zones_at_once(after, fate))
    if zones[0] == zones[1]:
        calm = f"Both had nodes leaving in {count(zones[1], 'zone')} at once at most"
    else:
        calm = f"Nodes were leaving in {count(zones[1], 'zone')} at once instead of {zones[0]}"
    restarts = (
        f"{count(after.pods_disrupted, 'pod restart')} either way"
        if after.pods_disrupted == before.pods_disrupted
        else f"{count(after.pods_disrupted, 'pod restart')} instead of {before.pods_disrupted:,}"
    )
    return f"{calm}; {restarts}, and the bill was {_against(before, after)}."


def _saving(result: Result, seconds: float) -> str:
    commands = [entry for entry in result.timeline.commands if entry.reason in ("Underutilized", "Empty")]
    saved = sum(entry.savings for entry in commands if entry.outcome != "undone")
    pods = sum(entry.pods for entry in commands)
    if not commands:
        restarts = count(result.pods_disrupted, "pod restart")
        return f"In {span(seconds)}, {result.policy} drained no node for cost; {restarts}."
    each = f" ({100 * saved / pods / _DOLLAR:.2g} cents per restarted pod)" if pods else ""
    what = f"{count(len(commands), 'cost command')} of {result.policy}"
    if commands[0].by == RECORDED:
        times = count(len(commands), "time")
        return f"In {span(seconds)}, nodes were taken for cost {times}; {count(pods, 'pod')} restarted."
    if not saved:
        return f"In {span(seconds)}, {what} saved nothing."
    return f"In {span(seconds)}, {what} {'saves' if len(commands) == 1 else 'save'} {dollars(saved, 2)}/h{each}."


def _calm(result: Result, seconds: float) -> str:
    fates = Counter(entry.fate for entry in result.timeline.machines if entry.fate != "kept")
    lost = listing(f"{amount} {fate}" for fate, amount in sorted(fates.items()))
    gone = f"; nodes that ended: {lost}" if lost else ""
    return (
        f"In {span(seconds)}, {result.policy} took no node away on its own account; "
        f"{count(result.pods_disrupted, 'pod restart')}{gone}."
    )


def _alone(result: Result) -> str:
    return f"The bill was {dollars(result.cost, 2)} for {result.node_hours:,.0f} node hours."


def _bill(before: Result, after: Result) -> str:
    spared = before.pods_disrupted - after.pods_disrupted
    more = after.cost - before.cost
    if spared > 0 and more > 0:
        tail = f"{count(spared, 'fewer restart')}, for {100 * more / spared / _DOLLAR:.2g} cents each"
    elif spared > 0:
        tail = f"{count(spared, 'fewer restart')}, and not a cent more"
    elif spared < 0:
        tail = f"{count(-spared, 'more restart')}"
    else:
        tail = "with as many restarts"
    return f"The bill was {_against(before, after)}: {tail}."


def _against(before: Result, after: Result) -> str:
    if not before.cost:
        return dollars(after.cost, 2)
    percent = 100 * (after.cost - before.cost) / before.cost
    if abs(percent) < 0.05:
        return f"{dollars(after.cost, 2)}, the same"
    return f"{dollars(after.cost, 2)} instead of {dollars(before.cost, 2)} ({percent:+.1f} %)"
