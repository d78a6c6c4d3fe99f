"""Keeps an outage of the API server from filling the log: one line per kind when it begins, one when all is over.

An outage begins with the first request that gets no usable answer and ends when every kind that failed works again.
Repeated failures are only counted. Decides nothing. Sits in live, beside `logs`.
"""

from dataclasses import dataclass, field

from dovetail.live import clocks
from dovetail.live.observability.logs import Log


@dataclass(slots=True)
class Outages:
    """The kinds that fail now; a kind is a Kubernetes kind, or `Lease`."""

    log: Log
    _failing: dict[str, None] = field(default_factory=dict)
    _kinds: dict[str, None] = field(default_factory=dict)
    _attempts: int = 0
    _since: float = 0.0

    def failed(self, kind: str, why: str) -> None:
        """Count a failed attempt; log it if it is the kind's first in this outage."""
        if not self._failing:
            self._since, self._attempts, self._kinds = clocks.steady(), 0, {}
        self._attempts += 1
        self._failing[kind] = None
        if kind not in self._kinds:
            self._kinds[kind] = None
            self.log.warning(why, kind=kind)

    def works(self, kind: str) -> None:
        """Record that a kind is answered again; log the summary once no kind fails."""
        if self._failing.pop(kind, ...) is not None or self._failing:
            return
        seconds = round(clocks.steady() - self._since, 1)
        affected = "1 kind was" if len(self._kinds) == 1 else f"{len(self._kinds)} kinds were"
        message = f"the API server answers again: {affected} affected for up to {seconds:g} s"
        self.log.info(message, kinds=",".join(sorted(self._kinds)), attempts=self._attempts, seconds=seconds)
