"""Text that came from a cluster, made safe to show: in a log line, a terminal, a page, a notification.

Names, labels and annotations are untrusted. What could break a line, move the cursor or turn the reading direction is
shown as a visible escape; nothing is dropped silently. Knows nothing of where the text goes: pages escape markup on
top of this (`report.page`).
"""

import re
from collections.abc import Iterable

from dovetail.model.money import Money, format_money
from dovetail.model.text import safe

__all__ = ["action_words", "check_named", "count", "dollars", "exact", "listing", "safe", "span"]


def dollars(amount: Money, places: int = 4) -> str:
    """Format money for people: `$0.0060/h` style figures without the unit of time."""
    sign = "-" if amount < 0 else ""
    scaled = (abs(amount) * 10**places * 2 + 10**18) // (2 * 10**18)
    whole, part = divmod(scaled, 10**places)
    return f"{sign}${whole:,}.{part:0{places}d}" if places else f"{sign}${whole:,}"


def exact(amount: Money) -> str:
    """Format money for machines: every digit, no exponent."""
    return format_money(amount)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: `1 node`, `3 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def action_words(action: str) -> str:
    """Return an action's name for people: `delete empty`, `replace for cost`, `drain`."""
    verb, *what = re.findall("[A-Z]?[a-z]+", action)
    return f"{verb} for cost" if what == ["Cost"] else " ".join([verb, *what]).lower()


_QUESTIONS = {"not-empty": "empty", "not-expired": "expired", "not-drifted": "drifted", "not-unhealthy": "unhealthy"}


def check_named(gate: str, why: str, *, passed: bool) -> tuple[str, str]:
    """Return how a check went and its name; some read better as a question: `yes  empty`, not `pass  not-empty`.

    The check `not-empty` is asked both ways: one method wants empty nodes, the others those that are not.
    """
    question = _QUESTIONS.get(gate)
    if question is None:
        return "pass" if passed else "STOP", gate
    yes = why.startswith("It is empty") if gate == "not-empty" else passed
    return "yes" if yes else "no", question


def listing(items: Iterable[str], shown_max: int = 3) -> str:
    """Format a list: `a, b, c and 7 more`."""
    names = [safe(item) for item in items]
    if len(names) <= shown_max:
        return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + (names[-1] if names else "")
    return ", ".join(names[:shown_max]) + f" and {len(names) - shown_max:,} more"


def span(seconds: float) -> str:
    """Return a length of time in its two largest units: `14m`, `2h5m`, `3d4h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    for size, unit, small, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            big, rest = divmod(whole, size)
            part = rest // small
            return f"{big}{unit}{part}{small_unit}" if part else f"{big}{unit}"
    raise AssertionError(whole)
