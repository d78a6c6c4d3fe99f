"""All checkers of one run: passes events to them, and collects violations.

Each checker knows one promise (`sim.checks.checkers` and its neighbours); this module knows all of them.
"""

from functools import partial
from typing import Any, Final

from dovetail.lifecycle.messages import Instruction, TaintNode
from dovetail.lifecycle.reports import Report
from dovetail.lifecycle.store import Store as View
from dovetail.model.cluster import Cluster
from dovetail.model.objects import KINDS, NodePool, Pod
from dovetail.sim.checks.budget_checker import BudgetChecker
from dovetail.sim.checks.checkers import (
    CycleChecker,
    DoubleLaunchChecker,
    EmptyReplacementChecker,
    LostPodChecker,
    PdbChecker,
    StuckTaintChecker,
    TwiceChecker,
)
from dovetail.sim.checks.command_checkers import ReplacementsFirstChecker, SavingsChecker
from dovetail.sim.checks.control_checkers import (
    ExpiryChecker,
    MinAgeChecker,
    PauseChecker,
    RateChecker,
    SurgeChecker,
    WindowChecker,
)
from dovetail.sim.checks.domain_checker import DomainChecker
from dovetail.sim.checks.haste_checker import HasteChecker
from dovetail.sim.checks.health_checkers import HealthChecker, RepairChecker
from dovetail.sim.checks.irreversible_checkers import LastLookChecker, UndoChecker
from dovetail.sim.checks.launch_checker import LaunchChecker
from dovetail.sim.checks.promises import Checker, Violation
from dovetail.sim.checks.stabilization_checker import StabilizationChecker
from dovetail.sim.checks.steering_checker import SteeringChecker
from dovetail.sim.checks.timer_checkers import (
    ConsolidateAfterChecker,
    DestinationChecker,
    GraceChecker,
    PodEventBook,
)
from dovetail.sim.world.clock import SECOND
from dovetail.sim.world.host import Host
from dovetail.sim.world.store import Change
from dovetail.sim.world.world import World

Memory = dict[str, list[tuple[int, Any]]]


ALL: Final[tuple[type[Checker], ...]] = (
    BudgetChecker,
    DomainChecker,
    PdbChecker,
    LostPodChecker,
    DoubleLaunchChecker,
    StuckTaintChecker,
    TwiceChecker,
    EmptyReplacementChecker,
    GraceChecker,
    ConsolidateAfterChecker,
    DestinationChecker,
    CycleChecker,
    LaunchChecker,
    ReplacementsFirstChecker,
    SavingsChecker,
    HasteChecker,
    SteeringChecker,
    RateChecker,
    WindowChecker,
    MinAgeChecker,
    ExpiryChecker,
    PauseChecker,
    SurgeChecker,
    HealthChecker,
    RepairChecker,
    StabilizationChecker,
    UndoChecker,
    LastLookChecker,
)


class Watch:
    """All checkers of a run. `lag`: how old an engine's knowledge may be; `patience`: what faults may add to a wait."""

    def __init__(self, world: World, *, lag: int = 3 * SECOND, patience: int = 0, most: int = 50) -> None:
        self.world = world
        self.lag = lag
        self.patience = patience
        self.most = most
        self.violations: list[Violation] = []
        self._karpenters: set[str] = set()
        self._pools: dict[str, list[tuple[int, NodePool]]] = {}
        self._view = View()
        self._stale: dict[tuple[str, str], None] = {}
        self.pod_events = PodEventBook(self)
        self.checkers = [kind(self) for kind in ALL]
        self._hear_changes = {
            kind: [checker.changed for checker in self.checkers if kind in checker.follows] for kind in KINDS
        }
        self._hear_orders = [checker.asked for checker in self.checkers if _minds(checker, "asked")]
        self._hear_reports = [checker.reported for checker in self.checkers if _minds(checker, "reported")]
        self.has_begun = False
        """False while the checkers hear what is there at the beginning, in any order: no promise of this run."""
        for change in world.store.history():
            self._changed(change)
        self.has_begun = True
        self.pod_events.begin()
        world.store.listen(self._changed)
        world.on_outside(self._outside)
        world.on_evicted(self.evicted)

    def note(self, rule: str, what: str) -> None:
        """Keep a violation; the first fifty are enough."""
        if len(self.violations) < self.most:
            at = round(self.world.now / SECOND, 3)
            self.violations.append(Violation(rule=rule, at=at, what=what))

    def is_karpenters(self, command_id: str) -> bool:
        """Return whether a command belongs to the simulated Karpenter."""
        return command_id in self._karpenters

    def follow(self, host: Host) -> None:
        """Watch what this engine does."""
        host.on_instruction.append(self.instruction)
        host.on_report.append(partial(self.report, host))

    def instruction(self, host: Host, asked: Instruction) -> None:
        """Pass an instruction to every checker before it is executed."""
        if isinstance(asked, TaintNode) and host.engine.settings.rules.plays_karpenter:
            self._karpenters.add(asked.command_id)
        for hear in self._hear_orders:
            hear(host, asked)

    def report(self, host: Host, report: Report) -> None:
        """Pass a report to every checker."""
        for hear in self._hear_reports:
            hear(host, report)

    def evicted(self, key: str, pod: Pod) -> None:
        """Pass an eviction to every checker before it is executed."""
        for checker in self.checkers:
            checker.evicted(key, pod)

    def ended(self) -> None:
        """Check all promises about the end of the run."""
        for checker in self.checkers:
            checker.ended()

    def remember(self, memory: Memory, key: str, value: Any) -> None:
        """Keep what was true within the last `lag`, and what was true at its beginning."""
        entries = memory.setdefault(key, [])
        entries.append((self.world.now, value))
        edge = self.world.now - self.lag
        while len(entries) > 1 and entries[1][0] <= edge:
            del entries[0]

    def lately(self, memory: Memory, key: str) -> list[Any]:
        """Return all that was true within the last `lag`."""
        edge = self.world.now - self.lag
        entries = memory.get(key, [])
        first = max((i for i, (at, _) in enumerate(entries) if at <= edge), default=0)
        return [value for _, value in entries[first:]]

    def pools_lately(self, name: str) -> list[NodePool]:
        """Return a pool as it is, and as it was within the last `lag`."""
        return self.lately(self._pools, name)

    def cluster(self) -> Cluster:
        """Return everything as decisions take it; only what has changed since the last time is looked at."""
        for kind, key in sorted(self._stale):  # in order, so that new objects are appended
            item = self.world.store.by_kind[kind].get(key)
            if item is None:
                namespace, _, name = key.rpartition("/")
                self._view.vanish(kind, namespace, name)
            else:
                self._view.observe(item)
        self._stale.clear()
        return self._view.cluster()

    def _changed(self, change: Change) -> None:
        self._stale[change.kind, change.key] = None
        if change.kind == "NodePool" and change.new is not None:
            self.remember(self._pools, change.key, change.new)
        self.pod_events.changed(change)
        for hear in self._hear_changes[change.kind]:
            hear(change)

    def _outside(self, what: str) -> None:
        for checker in self.checkers:
            checker.outside()


def _minds(checker: Checker, method: str) -> bool:
    """Return whether a checker does anything when it hears of this: most hear of few things only."""
    return getattr(type(checker), method) is not getattr(Checker, method)
