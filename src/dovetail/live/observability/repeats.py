"""Thins out log lines that say the same again and again: the first one, then one a minute with the number left out."""

from dataclasses import dataclass, field
from typing import Final

from dovetail.live import clocks

_EVERY_SECONDS: Final = 60.0
_KEYS_MAX: Final = 1000


@dataclass(slots=True)
class Repeats:
    """When each key was last let through, and how often it came since."""

    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def let_through(self, key: str) -> int | None:
        """Return how many lines of this key were left out before this one; None: leave this one out too."""
        now = clocks.steady()
        at, left_out = self._seen.get(key, (None, 0))
        if at is not None and now - at < _EVERY_SECONDS:
            self._seen[key] = (at, left_out + 1)
            return None
        if len(self._seen) >= _KEYS_MAX:
            self._seen.clear()
        self._seen[key] = (now, 0)
        return left_out
