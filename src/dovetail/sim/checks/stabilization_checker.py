"""The promise of docs/rules.md#stabilization: no cost action starts in a pool while the last action there settles.

Counts independently from the engines' reports of ended commands and from the starts of cost commands. The half hour
that empty, expired and drifted actions may hold a pool for is respected: where their windows could have used it up, a
start is no violation. An engine that has restarted since then is excused: it keeps windows in memory only. Sits in sim,
beside the other checkers.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.messages import Instruction
from dovetail.lifecycle.reports import CommandAdvanced, Report
from dovetail.model.command import Method
from dovetail.model.policies.policy import Reason
from dovetail.model.settings import Settings, StabilizationEnds, StabilizationScope
from dovetail.sim.checks.control_checkers import ControlChecker
from dovetail.sim.checks.promises import COST
from dovetail.sim.checks.timer_checkers import gained
from dovetail.sim.world.clock import HOUR, SECOND
from dovetail.sim.world.host import Host

if TYPE_CHECKING:
    from dovetail.sim.checks.watch import Watch

_LANDED_AFTER: Final = 30 * SECOND


class _Ended(NamedTuple):
    """An action that has ended: when, which, where, and by which life of which engine."""

    at: int
    method: Method
    pools: tuple[str, ...]
    life: tuple[str, int]


class StabilizationChecker(ControlChecker):
    """No cost action starts in a pool before the window of the last action there has passed."""

    rule = "stabilization"

    def __init__(self, watch: "Watch") -> None:
        super().__init__(watch)
        self._ended: list[_Ended] = []
        self._launched: dict[str, tuple[str, ...]] = {}
        self._validated: dict[str, int] = {}
        self._decided = 0

    def asked(self, host: Host, instruction: Instruction) -> None:
        """Judge a cost command by its first instruction, as of the moment at which it passed validation.

        A write may reach the API server seconds later, when another action has ended meanwhile.
        """
        ident = getattr(instruction, "command_id", "")
        self._decided = self._validated.get(ident, self.world.now)
        super().asked(host, instruction)

    def reported(self, host: Host, report: Report) -> None:
        """Remember the ends of actions, and when commands passed validation."""
        if not isinstance(report, CommandAdvanced):
            return
        if report.phase is Phase.TAINTING and report.source is Phase.VALIDATING:
            self._validated[report.command_id] = self.world.now
        if report.launched_in:
            self._launched[report.command_id] = report.launched_in
        if report.phase is Phase.DONE and report.method is not Method.UNHEALTHY:
            pools = (*report.pools, *self._launched.pop(report.command_id, ()))
            self._ended.append(_Ended(self.world.now, report.method, pools, (host.name, host.starts)))

    def began(self, host: Host, pool: str, reason: Reason) -> None:
        """Look whether the last action in the pool has settled."""
        settings = host.engine.settings
        if reason is not Reason.UNDERUTILIZED or settings.rules.plays_karpenter:
            return
        everywhere = settings.stabilization_scope is StabilizationScope.CLUSTER
        life = (host.name, host.starts)
        own = [entry for entry in self._ended if entry.life == life and entry.at <= self._decided]
        here = [entry for entry in own if everywhere or pool in entry.pools]
        last = here[-1] if here else None
        if last is None or (last.method not in COST and not everywhere and self._may_be_used_up(own, settings)):
            return
        # Pods of a later action elsewhere may have come to this pool: then that one decides.
        later = [last] if everywhere else own[own.index(last) :]
        if all(self._passed(host, entry) < _window(entry.method, settings) for entry in later):
            seconds = self._passed(host, last) // SECOND
            self.broken(f"{pool}: a cost command starts {seconds} s after an action of {last.method.value}")

    def _passed(self, host: Host, entry: _Ended) -> int:
        return self.world.now - entry.at + gained(host, entry.at)

    def _may_be_used_up(self, ended: list[_Ended], settings: Settings) -> bool:
        """Return whether the windows of empty, expired and drifted actions may have held a pool for half an hour."""
        paced = [(entry.at, _window(entry.method, settings)) for entry in ended if entry.method not in COST]
        return sum(window for at, window in paced if at + window > self.world.now - HOUR) > HOUR // 2


def _window(method: Method, settings: Settings) -> int:
    windows = settings.stabilization
    length = {Method.EMPTY: windows.empty, Method.EXPIRED: windows.expired, Method.DRIFTED: windows.drifted}.get(
        method, windows.cost
    )
    if method in COST and settings.stabilization_ends is StabilizationEnds.LANDED:
        return min(length, _LANDED_AFTER)
    return length
