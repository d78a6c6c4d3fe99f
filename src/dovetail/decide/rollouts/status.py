"""The state of a roll: replaced n of m by domain, what is in flight, what waits, what is blocked by what, when it ends.

`dovetail rollout status`, the live view and the controller say the same. Asks the same questions as the method
`drifted`, so its answers are those of the round. Sits in decide, above the methods.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from dovetail.api.rolling import named_domain, read_rollout
from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.facts.pdb_sums import pdb_sum
from dovetail.decide.methods.leaving import alone
from dovetail.decide.methods.method import MethodRun
from dovetail.decide.methods.turns import OF_POOLS, PASSING, PoolTurn, turns_of
from dovetail.decide.rollouts.forecast import RollBudget, RollPlan, expected_end, pace_of
from dovetail.decide.rollouts.keep import nodes_by_pool
from dovetail.decide.rollouts.progress import RollProgress, by_domain, progress_of
from dovetail.decide.words import clock, seconds
from dovetail.decide.work import Work
from dovetail.model.command import Command, Method
from dovetail.model.objects import NodePool
from dovetail.model.policies.policy import Reason
from dovetail.model.verdicts import Gate, GateResult


class DomainState(StrEnum):
    """How a domain of a roll stands."""

    DONE = "done"
    ACTIVE = "active"
    WAITING = "waiting"
    LEFT_BEHIND = "leftBehind"


class RollDomain(msgspec.Struct, frozen=True, kw_only=True):
    """One domain of a roll."""

    domain: str
    total: int
    replaced: int
    state: DomainState


class RollBlocker(msgspec.Struct, frozen=True, kw_only=True):
    """A node that can't go, and the gate of its own that holds it."""

    node: str
    gate: Gate
    why: str


class RollStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one NodePool's roll: total = replaced + in_flight + waiting + blocked."""

    node_pool: str
    cause: str
    began: datetime
    total: int
    replaced: int
    in_flight: int
    waiting: int
    blocked: int
    active_domain: str | None
    domains: tuple[RollDomain, ...]
    blockers: tuple[RollBlocker, ...]
    expected_end: datetime | None
    pace: timedelta | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON of `dovetail rollout status`."""
        return {
            "nodePool": self.node_pool,
            "cause": self.cause,
            "began": clock(self.began),
            "total": self.total,
            "replaced": self.replaced,
            "inFlight": self.in_flight,
            "waiting": self.waiting,
            "blocked": self.blocked,
            "activeDomain": None if self.active_domain is None else named_domain(self.active_domain),
            "domains": [
                {
                    "value": named_domain(entry.domain),
                    "total": entry.total,
                    "replaced": entry.replaced,
                    "state": entry.state.value,
                }
                for entry in self.domains
            ],
            "blockers": [{"node": one.node, "gate": one.gate.value, "why": one.why} for one in self.blockers],
            "expectedEnd": None if self.expected_end is None else clock(self.expected_end),
            "secondsPerNode": None if self.pace is None else round(self.pace.total_seconds()),
            "why": self.why,
        }


def rollouts(work: Work, run: MethodRun) -> tuple[RollStatus, ...]:
    """Return the state of every roll, by pool; `run`: what the method `drifted` came to."""
    scene = work.scene
    turns, nodes = turns_of(work, scene.passing(Method.DRIFTED)), nodes_by_pool(scene)
    found = []
    for pool in scene.snapshot.cluster.node_pools:
        name = pool.metadata.name
        progress = progress_of(scene, pool, nodes.get(name, ()))
        if progress is not None:
            found.append(_Rolling(work, run, pool, progress, turns.get(name)).status())
    return tuple(sorted(found, key=lambda status: status.node_pool))


class _Rolling:
    """One roll that is looked at."""

    def __init__(
        self,
        work: Work,
        run: MethodRun,
        pool: NodePool,
        progress: RollProgress,
        turn: PoolTurn | None,
    ) -> None:
        self._work, self._scene, self._run = work, work.scene, run
        self._progress, self._turn = progress, turn
        change = next((change for change in run.rolling if change.node_pool == progress.node_pool), None)
        self._kept = read_rollout(pool) if change is None else change.rollout
        self._going = [facts for facts in progress.to_go if facts.marked]
        self._held: dict[str, GateResult] = {}
        self._waiting: list[NodeFacts] = []
        for facts in progress.to_go:
            stop = None if facts.marked else self._stop(facts)
            if stop is not None:
                self._held[facts.name] = stop
            elif not facts.marked:
                self._waiting.append(facts)

    def _stop(self, facts: NodeFacts) -> GateResult | None:
        """Return the gate of its own that holds a node; None: it waits for its turn, or for its pool."""
        if not facts.drifted:
            return None  # Karpenter has not found it yet
        last = self._scene.chains.of(facts.name, Method.DRIFTED).results[-1]
        if not last.passed:
            return None if last.gate in (*OF_POOLS, *PASSING, Gate.NOT_DRIFTED) else last
        if facts.name in self._run.held or any(facts.name in command.nodes for command in self._run.commands):
            return None
        outcome = alone(self._work, Method.DRIFTED, facts)
        if isinstance(outcome, Command) or outcome.gate in (*OF_POOLS, *PASSING):
            return None
        return outcome.as_result()

    def status(self) -> RollStatus:
        """Return the state of the roll."""
        progress = self._progress
        end, pace, why = self._outlook()
        return RollStatus(
            node_pool=progress.node_pool,
            cause=progress.cause.value,
            began=progress.began,
            total=progress.total,
            replaced=progress.replaced,
            in_flight=len(self._going),
            waiting=len(self._waiting),
            blocked=len(self._held),
            active_domain=None if self._turn is None else self._turn.active,
            domains=tuple(self._domains()),
            blockers=tuple(
                RollBlocker(node=node, gate=stop.gate, why=stop.why) for node, stop in sorted(self._held.items())
            ),
            expected_end=end,
            pace=pace,
            why=why,
        )

    def _domains(self) -> Iterator[RollDomain]:
        if not self._progress.key:
            return
        behind = self._kept.left_behind
        active = None if self._turn is None else self._turn.active
        for part in self._progress.parts:
            if part.replaced >= part.total:
                state = DomainState.DONE
            elif self._turn is None or part.domain == active:
                state = DomainState.ACTIVE
            else:
                state = DomainState.LEFT_BEHIND if part.domain in behind else DomainState.WAITING
            yield RollDomain(domain=part.domain, total=part.total, replaced=part.replaced, state=state)

    # ------------------------------------------------------------ when it ends

    def _outlook(self) -> tuple[datetime | None, timedelta | None, str]:
        """Return when the roll ends, how long a node takes, and both in words."""
        never = next(self._never(), "")
        if never:
            return None, None, f"never, while {never}"
        scene, progress = self._scene, self._progress
        by_domain = self._by_domain(scene.nodes)
        budget = RollBudget(scene, progress.node_pool, progress.key, by_domain)
        begins = max((at for at in self._opens() if at is not None), default=scene.now)
        plan = RollPlan(
            waiting=self._in_order(self._by_domain([*self._waiting, *self._blocked_for_now()])),
            in_flight=[facts.marked_since or scene.now for facts in self._going],
            begins=begins,
            one_by_one=self._turn is not None,
        )
        done = (progress.replaced, self._kept.seconds)
        pace = pace_of(budget, plan, progress.began, scene.now, done)
        end, per_node = expected_end(budget, plan, pace, scene.now), pace.per_node
        if end is None:
            return None, per_node, f"never, while {self._closed()}"
        unjudged = len(progress.unjudged)
        judged = f"; Karpenter has not looked at {unjudged} of them yet" if unjudged else ""
        return end, per_node, f"ends about {clock(end)}, at {seconds(per_node)} per node{judged}"

    def _by_domain(self, nodes: Sequence[NodeFacts]) -> dict[str, int]:
        pool = self._progress.node_pool
        own = [facts for facts in nodes if facts.pool_name == pool and (facts.counted or facts.drifted)]
        return by_domain(own, self._progress.key)

    def _in_order(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the domains in the order of their turns: the active one, the others, those left behind."""
        active = None if self._turn is None else self._turn.active
        behind = self._kept.left_behind
        ordered = sorted(counts, key=lambda domain: (domain != active, domain in behind, domain))
        return {domain: counts[domain] for domain in ordered}

    def _blocked_for_now(self) -> list[NodeFacts]:
        return [facts for facts in self._progress.to_go if facts.name in self._held]

    def _opens(self) -> Iterator[datetime | None]:
        """Yield when a hold ends by itself: a pause, or a request that begins later."""
        for facts in self._progress.to_go:
            if facts.pause is not None and facts.pause.holds(self._scene.now):
                yield facts.pause.until
            if facts.drifted_since is not None and facts.drifted_since > self._scene.now:
                yield facts.drifted_since

    def _never(self) -> Iterator[str]:
        """Yield what keeps the roll from ever ending, unless somebody changes it; the first few words of a sentence."""
        scene, name = self._scene, self._progress.node_pool
        question = scene.question
        if question.managed_pools is not None and name not in question.managed_pools:
            yield f"Dovetail does not manage NodePool {name}"
        if scene.settings.paused:
            yield "the setting paused is on"
        first = self._progress.to_go[0]
        if first.pause is not None and first.pause.until is None:
            yield f"NodePool {name} is paused"
        held = scene.ledger.allowance(name, Reason.DRIFTED).held
        if held is not None and held.gate is Gate.HEALTH:
            yield held.why.rstrip(".")
        for node, stop in sorted(self._held.items()):
            yield from self._never_by(node, stop)

    def _never_by(self, node: str, stop: GateResult) -> Iterator[str]:
        figures = stop.figures
        if figures.get("until") is not None or figures.get("opensAt") is not None:
            return  # it ends by itself
        match stop.gate:
            case Gate.PDB:
                names = str(figures.get("pdb", ""))
                if "," in names:
                    yield f"pod {figures.get('pod')} has several PDBs ({names})"
                elif not self._gives_way(names):
                    yield f"PDB {names} allows nothing"
            case Gate.POD_DO_NOT_DISRUPT:
                yield f"pod {figures.get('pod')} says do-not-disrupt"
            case Gate.NODE_DO_NOT_DISRUPT:
                yield f"node {node} says do-not-disrupt"
            case _:
                yield f"{node} stays: {stop.why.rstrip('.')}"

    def _gives_way(self, name: str) -> bool:
        """Return whether a PDB that is full allows an eviction once all its pods are healthy again."""
        found = next((pdb for pdb in self._scene.snapshot.cluster.pdbs if pdb.metadata.key == name), None)
        if found is None:
            return True
        status = found.status
        return status.current_healthy < status.expected_pods and not pdb_sum(found, status.expected_pods).impossible

    def _closed(self) -> str:
        """Return what of the pool keeps every node, in words: no window opens, a budget allows nothing."""
        allowance = self._scene.ledger.allowance(self._progress.node_pool, Reason.DRIFTED)
        if allowance.held is not None:
            return allowance.held.why.rstrip(".")
        name, budget = self._progress.node_pool, allowance.budget
        which = "its budgets allow" if budget is None else f"budget {budget.index + 1} allows"
        return f"{which} no node of NodePool {name} to go within 60 days"
