"""`dovetail top` as values: what is on the screen, and what a key changes. Draws nothing itself.

`render` turns the live document (`ui.document`) and a `Screen` into lines of styled text that fit the terminal; `press`
turns a key into the next `Screen`. `cli.cluster.top` owns the terminal. Text from a cluster is made safe, then cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from dovetail.report.words import check_named, count, safe, span

Json = dict[str, Any]
Segment = tuple[str, str]
"""A text and its style: `plain`, `bold`, `dim`, `good`, `bad`, `accent` or `chosen`."""
Line = list[Segment]
TABS: Final = ("nodes", "commands", "next", "checks", "events")
SORTS: Final = ("verdict", "name", "price", "fill", "age", "pods")
_NAME_MAX: Final = 120
_WHY_MIN: Final = 12
"""Where less is left of a line, the reason of a node's verdict is left out; enter opens the node."""
_STEPS: Final = ("taint", "launch", "ready", "drain", "gone")
WIDTH_MIN, HEIGHT_MIN = 40, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What the person at the terminal has chosen."""

    tab: str = TABS[0]
    row: int = 0
    sort: str = SORTS[0]
    filter: str = ""
    editing: bool = False
    node: str = ""
    help: bool = False
    leaving: bool = False
    speed: int | None = None
    """A speed that was asked for and is not set yet."""


# ---------------------------------------------------------------- keys


def press(screen: Screen, key: str, document: Json | None, height: int = 24) -> Screen:
    """Return the screen after a key; keys are characters, or names such as `up`, `enter` and `escape`."""
    screen = replace(screen, speed=None)
    if screen.editing:
        return _type(screen, key)
    if screen.help:
        return replace(screen, help=False)
    if key in ("q", "interrupt"):
        return replace(screen, leaving=True)
    if key in ("escape", "backspace", "left"):
        return replace(screen, node="") if screen.node else replace(screen, filter="", row=0)
    moved = _moves(screen, key, document, height)
    return moved if moved is not None else _choices(screen, key, document)


def _type(screen: Screen, key: str) -> Screen:
    if key in ("enter", "escape"):
        return replace(screen, editing=False, filter=screen.filter if key == "enter" else "", row=0)
    if key == "backspace":
        return replace(screen, filter=screen.filter[:-1], row=0)
    if len(key) == 1 and key.isprintable():
        return replace(screen, filter=screen.filter + key, row=0)
    return screen


def _moves(screen: Screen, key: str, document: Json | None, height: int) -> Screen | None:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -(height - 8), "pagedown": height - 8}
    last = max(0, _rows(screen, document) - 1)
    if key in steps:
        return replace(screen, row=min(last, max(0, screen.row + steps[key])))
    if key in ("home", "g"):
        return replace(screen, row=0)
    if key in ("end", "G"):
        return replace(screen, row=last)
    return None


def _choices(screen: Screen, key: str, document: Json | None) -> Screen:
    if key == "tab" or (key.isdigit() and 1 <= int(key) <= len(TABS)):
        place = (TABS.index(screen.tab) + 1) % len(TABS) if key == "tab" else int(key) - 1
        return replace(screen, tab=TABS[place], row=0, node="")
    if key == "/":
        return replace(screen, editing=True, filter="", tab="nodes", node="", row=0)
    if key == "s":
        return replace(screen, sort=SORTS[(SORTS.index(screen.sort) + 1) % len(SORTS)], row=0)
    if key in ("?", "h"):
        return replace(screen, help=True)
    if key == "enter" and screen.tab == "nodes" and document is not None:
        rows = chosen(document, screen)
        if rows and not screen.node:
            return replace(screen, node=document["plan"]["nodes"]["name"][rows[min(screen.row, len(rows) - 1)]], row=0)
    if key in ("+", "-", " ") and document is not None and document["source"]["speeds"]:
        return replace(screen, speed=_speed(key, document["source"]))
    return screen


def _speed(key: str, source: Json) -> int:
    speeds, now = source["speeds"], source["speed"]
    if key == " ":
        return int(speeds[0] if now else speeds[min(3, len(speeds) - 1)])
    place = speeds.index(now) + (1 if key == "+" else -1)
    return int(speeds[min(len(speeds) - 1, max(0, place))])


def _rows(screen: Screen, document: Json | None) -> int:
    if document is None:
        return 0
    if screen.node:
        return len(_details(document, screen, 200))
    match screen.tab:
        case "nodes":
            return len(chosen(document, screen))
        case "commands":
            return len(document["commands"])
        case "next":
            return len(document["next"])
        case "checks":
            money = document["money"]
            return len(money["held"]) + (len(money["commitments"]) + 1 if money["commitments"] else 0)
        case _:
            return len(document["history"]["events"])


def chosen(document: Json, screen: Screen) -> list[int]:
    """Return the nodes that pass the filter, in the chosen order."""
    nodes, words = document["plan"]["nodes"], screen.filter.lower().split()
    found = []
    for place, name in enumerate(nodes["name"]):
        keys = ("pool", "zone", "type", "capacityType", "verdict")
        text = "\n".join((name, *(nodes[key][place] for key in keys))).lower()
        if all(word in text for word in words):
            found.append(place)
    pods = _pods(document) if screen.sort == "pods" else []
    keys_of: dict[str, Callable[[int], Any]] = {
        "verdict": lambda place: (
            nodes["action"][place] < 0,
            nodes["verdict"][place] != "eligible",
            nodes["verdict"][place],
        ),
        "name": lambda _: 0,
        "price": lambda place: -nodes["price"][place],
        "fill": lambda place: fill(nodes, place),
        "age": lambda place: -nodes["age"][place],
        "pods": lambda place: pods[place],
    }
    key = keys_of[screen.sort]
    return sorted(found, key=lambda place: (key(place), nodes["name"][place]))


def fill(nodes: Json, place: int) -> float:
    """Return how full a node is, by what it has least of."""
    return float(
        max(
            nodes["cpuUsed"][place] / max(1, nodes["cpu"][place]),
            nodes["memoryUsed"][place] / max(1, nodes["memory"][place]),
        )
    )


def _pods(document: Json) -> list[int]:
    counted = [0] * len(document["plan"]["nodes"]["name"])
    for node in document["plan"]["pods"]["node"]:
        counted[node] += 1
    return counted


# ---------------------------------------------------------------- the screen


def render(document: Json | None, problem: str, screen: Screen, width: int, height: int) -> list[Line]:
    """Return exactly `height` lines, none wider than `width`."""
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        lines: list[Line] = [[(f"at least {WIDTH_MIN}x{HEIGHT_MIN}, please", "bold")]]
        return _fit(lines, width, height)
    if document is None:
        return _fit([[("dovetail top", "bold")], [(problem or "looking ...", "dim")]], width, height)
    head = _head(document, problem, screen, width)
    foot: Line = [(_keys(screen, document), "dim")]
    room = height - len(head) - 1
    body = _help() if screen.help else _body(document, screen, width, room)
    return _fit([*head, *_fit(body, width, room), foot], width, height)


def _head(document: Json, problem: str, screen: Screen, width: int) -> list[Line]:
    source = document["source"]
    state = ""
    if source["speed"] >= 0:
        state = "  ended" if source["ended"] else "  paused" if source["speed"] == 0 else f"  {span(source['speed'])}/s"
    said = problem or source["problem"]
    tabs: Line = []
    for place, tab in enumerate(TABS, start=1):
        tabs.append((f" {place} {tab} ", "chosen" if tab == screen.tab else "plain"))
    searching = f"   /{screen.filter}{'_' if screen.editing else ''}" if screen.filter or screen.editing else ""
    if screen.tab == "nodes":
        tabs.append((f"   by {screen.sort}{searching}", "accent" if searching else "dim"))
    when = document["now"].replace("T", " ").replace("Z", "")
    return [
        [("dovetail top  ", "bold"), (safe(source["name"], 60), "accent"), (f"  {when} UTC{state}", "plain")],
        _figures(document, width),
        [(safe(said, 200), "bad")] if said else [(_idle(document), "dim")],
        tabs,
    ]


def _figures(document: Json, width: int) -> Line:
    """Return the figures of the moment in the longest form that fits: a figure that is cut would be another one."""
    money, nodes = document["money"], len(document["plan"]["nodes"]["name"])
    pending = document["history"]["pending"][-1] if document["history"]["pending"] else 0
    cost = (f"{count(nodes, 'node')}  ${money['costPerHour']:,.2f}/h", "bold")
    saved = f"saved ${money['savedSoFar']:,.2f}"
    per_hour = f"{saved} (${money['savedPerHour']:,.2f}/h)"
    commands = count(len(document["commands"]), "command")
    waiting = (f"{count(pending, 'pod')} waiting", "bad" if pending else "plain")
    forms: list[Line] = []
    if money["commands"]:  # in a roll nothing is saved: drift and expiry cost what they must
        forms += [
            [cost, (per_hour, "good"), (f"{commands} under way", "plain"), waiting],
            [cost, (per_hour, "good"), (commands, "plain"), waiting],
            [cost, (saved, "good"), (commands, "plain"), waiting],
        ]
    forms += [
        [cost, (f"{commands} under way", "plain"), waiting],
        [cost, (commands, "plain"), waiting],
        [cost, waiting],
        [cost, (f"{pending:,} waiting", waiting[1])],
    ]
    form = next((each for each in forms if sum(len(text) + 2 for text, _ in each) <= width + 2), forms[-1])
    return [(text if place == 0 else f"  {text}", style) for place, (text, style) in enumerate(form)]


def _idle(document: Json) -> str:
    actions = document["plan"]["actions"]
    if document["rolls"]:
        roll = document["rolls"][0]
        more = f" and {len(document['rolls']) - 1} more" if len(document["rolls"]) > 1 else ""
        pool = safe(roll["nodePool"], 40)
        return f"Rolling {pool}: {roll['replaced']} of {roll['total']}, {safe(roll['why'], 120)}{more}."
    if not actions:
        return "Nothing would be done now."
    first = actions[0]
    more = f" and {len(actions) - 1} more" if len(actions) > 1 else ""
    nodes = count(len(first["nodes"]), "node")
    return f"Next: {first['action']} of {nodes}{more}, saves ${sum(a['savings'] for a in actions):,.4f}/h."


def _keys(screen: Screen, document: Json) -> str:
    if screen.editing:
        return "type to search   enter keep   esc clear"
    if screen.node:
        return "up/down scroll   esc back   q quit"
    speed = "   space pause  +/- speed" if document["source"]["speeds"] else ""
    return f"tab view  up/down move  enter open  / search  s sort{speed}  ? help  q quit"


def _help() -> list[Line]:
    rows = (
        ("tab, 1-5", "next view, or that view"),
        ("up, down, j, k", "move; also page up, page down, home, end"),
        ("enter", "open a node: every check, its pods"),
        ("esc", "back; else clear the search"),
        ("/", "search nodes by name, pool, zone, type, verdict"),
        ("s", f"sort by {', '.join(SORTS)}"),
        ("space, +, -", "pause a simulation, faster, slower"),
        ("q", "quit"),
    )
    return [[("Keys", "bold")], *([(f"  {keys:<16}", "accent"), (what, "plain")] for keys, what in rows)]


def _body(document: Json, screen: Screen, width: int, room: int) -> list[Line]:
    if screen.node:
        lines = _details(document, screen, width)
        return lines[min(screen.row, max(0, len(lines) - room)) :]
    match screen.tab:
        case "nodes":
            return _nodes(document, screen, width, room)
        case "commands":
            return _commands(document)
        case "next":
            return _next(document)
        case "checks":
            return _checks(document, width)
        case _:
            events = document["history"]["events"]
            lines = [[(f"{e['at'][11:19]}  ", "dim"), (safe(e["text"], 200), _EVENT[e["kind"]])] for e in events]
            return lines[screen.row :] or [[("Nothing has happened yet.", "dim")]]


_EVENT: Final = {"began": "accent", "ended": "good", "came": "plain", "went": "dim"}


def _nodes(document: Json, screen: Screen, width: int, room: int) -> list[Line]:
    nodes, pods = document["plan"]["nodes"], _pods(document)
    rows = chosen(document, screen)
    row = min(screen.row, max(0, len(rows) - 1))
    shown = max(1, room - 1)
    first = max(0, min(row - shown // 2, len(rows) - shown))
    name = max(16, min(34, width // 3))
    head = f"{'NODE':<{name}} {'VERDICT':<20} {'FILL':>5} {'PODS':>4} {'$/H':>8} {'AGE':>7}"
    with_why = width - len(head) >= _WHY_MIN
    head += "  WHY" if with_why else ""
    lines: list[Line] = [[(head, "dim")]]
    for place in rows[first : first + shown]:
        taken = nodes["action"][place] >= 0
        verdict = document["plan"]["actions"][nodes["action"][place]]["action"] if taken else nodes["verdict"][place]
        price = "?" if nodes["price"][place] < 0 else f"{nodes['price'][place]:.4f}"
        age = "-" if nodes["age"][place] < 0 else span(nodes["age"][place])
        why = ("closing; " if nodes["closing"][place] else "") + safe(nodes["why"][place], 300)
        style = "chosen" if place == rows[row] else "accent" if taken else "good" if verdict == "eligible" else "plain"
        text = (
            f"{set_cell_size(safe(nodes['name'][place], _NAME_MAX), name)} {set_cell_size(verdict, 20)} "
            f"{fill(nodes, place):>5.0%} {pods[place]:>4} {price:>8} {age:>7}"
        )
        text += f"  {why}" if with_why else ""
        lines.append([(text, style)])
    if not rows:
        lines.append([("No node matches.", "dim")])
    return lines


def _rolls(document: Json) -> list[Line]:
    """Return every roll: how far it is, by domain, what is blocked, and when it ends."""
    lines: list[Line] = []
    for roll in document["rolls"]:
        parts = ((roll["inFlight"], "in flight"), (roll["waiting"], "waiting"), (roll["blocked"], "blocked"))
        more = "".join(f", {number} {word}" for number, word in parts if number)
        head = f"{roll['replaced']} of {roll['total']} nodes replaced ({roll['cause']}){more}"
        lines.append([(f"roll of {safe(roll['nodePool'], 60)}  ", "bold"), (head, "plain")])
        lines.append([(safe(f"    {roll['why']}", 300), "plain" if roll["expectedEnd"] else "bad")])
        for entry in roll["domains"]:
            done = round(_BAR * entry["replaced"] / max(1, entry["total"]))
            bar = f"    {'#' * done}{'.' * (_BAR - done)}  {entry['replaced']:>3} of {entry['total']:<3} "
            word, style = _ROLL_STATES[entry["state"]]
            lines.append([(bar, style), (safe(entry["value"], 60), "plain"), (f"  {word}", style)])
        held = (f"    blocked: {entry['node']} ({entry['gate']}): {entry['why']}" for entry in roll["blockers"])
        lines += [[(safe(text, 400), "bad")] for text in held]
        unnamed = roll["blocked"] - len(roll["blockers"])
        lines += [[(f"    and {count(unnamed, 'more node')}", "bad")]] if unnamed > 0 else []
        lines.append([])
    return lines


_BAR: Final = 20
_ROLL_STATES: Final = {
    "done": ("done", "good"),
    "active": ("active", "accent"),
    "waiting": ("waiting", "dim"),
    "leftBehind": ("left behind", "bad"),
}


def _commands(document: Json) -> list[Line]:
    rolls = _rolls(document)
    lines: list[Line] = []
    for command in document["commands"]:
        steps: Line = []
        for name, state in zip(_STEPS, command["steps"], strict=True):
            if state != "none":
                mark = {"done": "+", "now": ">", "later": " "}[state]
                steps.append((f"  {mark}{name}", {"done": "good", "now": "accent", "later": "dim"}[state]))
        left = f", {count(command['podsLeft'], 'pod')} left" if command["podsLeft"] else ""
        left += f", draining for {span(command['draining'])}" if command["draining"] else ""
        lines.append([(f"{command['action']}", "bold"), (f"  {span(command['seconds'])}{left}", "plain"), *steps])
        coming = f"  <- {', '.join(command['replacements'])}" if command["replacements"] else ""
        lines.append([(safe(f"    {', '.join(command['nodes'])}{coming}", 400), "dim")])
        if command["heldBy"]:
            lines.append([(safe(f"    held by {command['heldBy']}", 400), "bad")])
    return [*rolls, *(lines or [[("No command is under way.", "dim")]])]


def _next(document: Json) -> list[Line]:
    lines: list[Line] = []
    for entry in document["next"]:
        pool = f", pool {entry['pool']}" if entry["pool"] else ""
        lines.append([(f"in {span(entry['seconds']):<9}", "bold"), (safe(f"{entry['what']}{pool}", 300), "plain")])
    lines.append([])
    for row in document["plan"]["budgets"]:
        left = "no limit" if row["left"] > 2_000_000_000 else str(row["left"])
        text = f"{safe(row['nodePool'], 40)} {row['reason']}: {left} left, {row['used']} used"
        lines.append([(text, "dim" if row["left"] else "bad")])
    return lines


def _checks(document: Json, width: int) -> list[Line]:
    held = document["money"]["held"]
    most = max((row["costPerHour"] for row in held), default=0) or 1
    room = max(5, width - 52)
    paid: list[Line] = [
        [(safe(f"{row['name']}: {row['usedShare']:.0%} used, {row['free']}", 300), "plain")]
        for row in document["money"]["commitments"]
    ]
    return [*_held(document, most, room), *([[], *paid] if paid else [])]


def _held(document: Json, most: float, room: int) -> list[Line]:
    return [
        [
            (f"{row['gate']:<26}{row['nodes']:>6} nodes ${row['costPerHour']:>9,.2f}/h ", "plain"),
            ("#" * max(1, round(row["costPerHour"] / most * room)), "accent"),
        ]
        for row in document["money"]["held"]
    ] or [[("Nothing is held back.", "dim")]]


def _details(document: Json, screen: Screen, width: int) -> list[Line]:
    plan = document["plan"]
    nodes = plan["nodes"]
    if screen.node not in nodes["name"]:
        return [[(f"{safe(screen.node)} is gone.", "dim")]]
    place = nodes["name"].index(screen.node)
    price = "price unknown" if nodes["price"][place] < 0 else f"${nodes['price'][place]:.4f}/h"
    facts = (nodes["pool"][place], nodes["zone"][place], nodes["type"][place], nodes["capacityType"][place], price)
    lines: list[Line] = [
        [(safe(screen.node), "bold")],
        [(safe(", ".join(filter(None, facts))), "plain")],
        [(f"{nodes['verdict'][place]}: ", "accent"), (safe(nodes["why"][place], 400), "plain")],
        [],
    ]
    for check in (plan["checks"][index] for index in plan["chains"][place]):
        mark, name = check_named(check["gate"], check["why"], passed=check["passed"])
        style = "good" if check["passed"] else "bad"
        lines.append([(f"{mark:<4}  ", style), (f"{name:<26} ", "bold"), (safe(check["why"], 400), "plain")])
    remedy = plan["remedies"].get(nodes["verdict"][place])
    if remedy and nodes["action"][place] < 0:
        lines += [[], [("First thing to change: ", "bold"), (f"{remedy}.", "plain")]]
    pods = [pod for pod, node in enumerate(plan["pods"]["node"]) if node == place]
    lines += [[], [(count(len(pods), "pod"), "bold")]]
    for pod in pods:
        stays = "" if plan["pods"]["moves"][pod] else "  stays with its node"
        lines.append(
            [(safe(f"  {plan['pods']['name'][pod]}", 200), "plain"), (f"  {plan['pods']['cpu'][pod]}m{stays}", "dim")]
        )
    return lines


def _fit(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Cut lines to the width and the list to the height; fill up with empty ones."""
    fitted: list[Line] = []
    for line in list(lines)[:height]:
        room, kept = width, []
        for text, style in line:
            if room <= 0:
                break
            shown = text if cell_len(text) <= room else set_cell_size(text, room)
            kept.append((shown, style))
            room -= cell_len(shown)
        fitted.append(kept)
    return fitted + [[] for _ in range(height - len(fitted))]


def plain(lines: Sequence[Line]) -> str:
    """Return the lines without styles, for a pipe."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines).rstrip() + "\n"
