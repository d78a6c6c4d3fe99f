"""The window of a workload: annotation `dovetail.dev/disruption-window` on pods, "<schedule>; <duration>".

See docs/rules.md#pod-windows. An unreadable value is a window that never opens; its `problem` says why. Sits in api;
pure.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from dovetail.model.timing.cron import ScheduleError
from dovetail.model.timing.duration import parse_simple
from dovetail.model.timing.schedule import parse_schedule
from dovetail.model.timing.windows import Window, window

_LENGTH: Final = re.compile(r"(?:[0-9]+[hm]|[0-9]+h[0-9]+m)(?:0s)?")
EXAMPLE: Final = '"TZ=Europe/Berlin 0 22 * * *; 6h"'


class PodWindow(msgspec.Struct, frozen=True, kw_only=True):
    """When a pod may be disrupted: the text, and its window or what is wrong with it."""

    text: str
    window: Window | None = None
    problem: str = ""


@lru_cache(maxsize=4096)
def read_pod_window(text: str) -> PodWindow:
    """Read the annotation's value."""
    schedule, separator, duration = (part.strip() for part in text.partition(";"))
    if not separator:
        return PodWindow(text=text, problem=f"it has no semicolon; write a schedule and a duration such as {EXAMPLE}")
    if _LENGTH.fullmatch(duration) is None:
        return PodWindow(text=text, problem=f"{duration[:40]!r} is not a duration of hours and minutes such as 6h")
    try:
        parse_schedule(schedule)
        length = parse_simple(duration, "smh")
    except ScheduleError as problem:
        return PodWindow(text=text, problem=f"{problem.reason}; {problem.remedy}")
    except ValueError:
        return PodWindow(text=text, problem=f"{duration[:40]!r} is longer than anything can last")
    return PodWindow(text=text, window=window(schedule, length))
