"""How long savings last in a pool (docs/rules.md#one-price), as `lifecycle.memory.durations` learned it."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail.model.timing.duration import MINUTE

PRIOR: Final = 16 * MINUTE
"""How long a saving lasts in a pool that has shown nothing yet."""
PRIOR_MAX: Final = 54 * MINUTE
"""The same, at most, where its objects say that it was calm for long."""
CALM: Final = (1, 3)
"""For which share of the time that its load was level a pool is expected to stay so."""
_MICROSECOND: Final = timedelta(microseconds=1)


class Persistence(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool has shown.

    `learned`: how long earlier removals held, in nanoseconds; `removals`: how many of them that rests on. `calm_since`:
    from when on the pool's load has stayed at today's level and nobody opened a node; None: not known.
    """

    learned: int = PRIOR
    removals: int = 0
    calm_since: datetime | None = None

    def expected(self, now: datetime) -> int:
        """Return how long a saving is expected to last from now on, in nanoseconds."""
        if self.calm_since is None:
            return self.learned
        return max(self.learned, stays_calm((now - self.calm_since) // _MICROSECOND * 1000))


def stays_calm(calm: int) -> int:
    """Return for how long a load that was level for so long is expected to stay so; nanoseconds."""
    return calm * CALM[0] // CALM[1]


def was_calm(asked: int) -> int:
    """Return for how long a load must have been level to be expected to stay so for the asked time; nanoseconds."""
    return -(-asked * CALM[1] // CALM[0])


def prior_of(calm: int) -> int:
    """Return how long a saving lasts in a pool of which only its objects are known: they say how long it was calm."""
    return max(PRIOR, min(PRIOR_MAX, stays_calm(calm)))


UNKNOWN: Final = Persistence()


class PoolLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of a pool request in all (without those of DaemonSets), and what one of its nodes has on average.

    Each: CPU in millicores, memory in bytes. `prior`: how long a saving lasts here by what the objects say.
    """

    total: tuple[int, int]
    node: tuple[int, int]
    prior: int = PRIOR
