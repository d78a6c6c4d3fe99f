"""The cost command of greatest value that a round can find in bounded time (docs/rules.md#value).

Value = savings per hour - what its disruption has to save. Proposals come from `growth`; each is judged as a command of
its own, by the exact simulation and all gates. The command that `search: prefix` would find is always compared too, so
the result is never worse. Ties go to fewer pods, then to names. Bounded by pods placed, never by time. Sits in decide,
above the two methods for cost, which it replaces.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Final

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.price import has_wasted_enough
from dovetail.decide.methods import multi_node, single_node
from dovetail.decide.methods.method import MethodRun, SetAside, with_budget
from dovetail.decide.methods.moves import Found, Move, Tried, command_of, cost_move, score
from dovetail.decide.refusal import Refusal
from dovetail.decide.search.dual import SLACK, ValueBound
from dovetail.decide.search.growth import Chosen, Growth, Value
from dovetail.decide.search.sums import Sums
from dovetail.decide.waste import set_aside
from dovetail.decide.work import Work
from dovetail.model.command import Method
from dovetail.model.verdicts import Gate

JUDGED_MAX: Final = 160
"""How many proposals are simulated in a round, at most."""
WORK_MAX: Final = 16_000
"""How many plain pods they may place together."""
HOPELESS_MAX: Final = 12
"""How many proposals in a row may fail from the start before the cluster counts as packed."""
MISSES_MAX: Final = 200
"""How many nodes of an order that budgets don't allow are ignored."""
SPLIT_ALONE_MAX: Final = 3
"""For how many nodes alone smaller machines are tried."""

_SEVERAL: Final = Refusal(gate=Gate.NEW_NODES, why="It opens several new nodes.")
_ASIDE: Final = Refusal(gate=Gate.WASTE, why="It goes by waste.")


def run_several(work: Work) -> MethodRun:
    """Return the best command if it removes several nodes."""
    return _run(work, Method.MULTI_NODE)


def run_one(work: Work) -> MethodRun:
    """Return the best command if it removes one node."""
    return _run(work, Method.SINGLE_NODE)


def _run(work: Work, method: Method) -> MethodRun:
    found = best_of(work)
    move = found.move
    mine = move is not None and (len(move.nodes) == 1) == (method is Method.SINGLE_NODE)
    return MethodRun(
        method=method,
        commands=(command_of(work.scene, method, move),) if move is not None and mine else (),
        held=found.held,
        refused=found.refused if method is Method.SINGLE_NODE or mine else (),
        aside=found.aside if method is Method.SINGLE_NODE or mine else (),
    )


def best_of(work: Work) -> Found:
    """Return the best move of a round; searched once."""
    known = work.searched
    if known is None:
        known = work.searched = _search(work)
    return known


def _search(work: Work) -> Found:
    scene = work.scene
    open_ones, held = with_budget(scene, Method.MULTI_NODE, scene.cost_sources)
    judges = _Judges(work, open_ones)
    judges.judge_prefixes()
    if open_ones and judges.could_be_beaten():
        sums = Sums(scene, open_ones)
        orders = sums.orders()

        def growth(judge: Callable[[Chosen], Value]) -> Growth:
            return Growth(sums, judge, judges, spent=lambda: judges.is_spent(sums.work))

        best = growth(judges.value).run(orders, judges.passed)
        if scene.new_nodes_max > 1:
            _split(judges, sums, best, orders[0], growth)
    move = judges.best
    if move is None or move.approved.by_waste:
        move = _of_wasteful(work, open_ones) or move
    return Found(move=move, held=held, refused=tuple(judges.refused), aside=tuple(judges.aside))


def _of_wasteful(work: Work, candidates: Sequence[NodeFacts]) -> Move | None:
    """Return the best move of nodes that have each wasted enough (docs/rules.md#waste): any of them may go together."""
    scene = work.scene
    known = scene.question.waste
    wasteful = [facts for facts in candidates if facts.name in known and has_wasted_enough(scene.sources((facts,)))]
    if not wasteful:
        return None
    judges = _Judges(work, wasteful)
    sums = Sums(scene, wasteful, free=True)
    growth = Growth(sums, judges.value, judges, spent=lambda: judges.is_spent(sums.work))
    growth.run(sums.orders(), [])
    return judges.best


def _split(
    judges: "_Judges",
    sums: Sums,
    best: Chosen,
    order: Sequence[int],
    growth: Callable[[Callable[[Chosen], Value]], Growth],
) -> None:
    """Try smaller machines for moves that open new nodes, or might: several small ones may cost less than a big one."""
    limits = sums.each_at_most((), order)
    likely = sorted(range(len(order)), key=lambda at: (-limits[at], at))[:SPLIT_ALONE_MAX]
    sets = [best, *((order[at],) for at in likely if limits[at] > 0)]
    for chosen in dict.fromkeys(entry for entry in sets if entry):
        if judges.opens_none(chosen):
            continue
        values = {}
        for types in sums.smaller():
            if judges.is_spent(sums.work):
                return
            values[types] = judges.value(chosen, types) or 0.0
        types = max(values, key=lambda key: values[key], default=())
        if types and judges.best is not None and judges.best.launchable == types:
            search = growth(partial(judges.value, launchable=types))
            search.best, search.best_value = chosen, values[types]
            search.improve(order)


class _Judges:
    """Judges sets of candidates, each once, and keeps the best."""

    def __init__(self, work: Work, candidates: Sequence[NodeFacts]) -> None:
        self._work, self._scene, self._candidates = work, work.scene, candidates
        self._left = work.scene.left(Method.MULTI_NODE)
        self._places = {facts.name: place for place, facts in enumerate(candidates)}
        self._known: dict[tuple[Chosen, tuple[str, ...]], Move | Refusal] = {}
        self._searching = False
        self._judged = 0
        self._pods_asked = 0
        self._asked: list[Chosen] = []
        self.refused: list[Tried] = []
        self.aside: list[SetAside] = []
        self.best: Move | None = None

    @property
    def passed(self) -> list[Chosen]:
        """Return the sets that passed so far."""
        return [chosen for (chosen, _), outcome in self._known.items() if isinstance(outcome, Move)]

    def could_be_beaten(self) -> bool:
        """Return whether some set could be worth more than the best so far; in a packed cluster none can."""
        best = 0.0 if self.best is None else max(0.0, float(self.best.approved.value / self._scene.price_scale))
        return ValueBound(self._scene, self._candidates).at_most(best) > best + SLACK

    def opens_none(self, chosen: Chosen) -> bool:
        """Return whether a set is known to need no new node."""
        known = self._known.get((chosen, ()))
        return isinstance(known, Move) and not known.new_nodes

    def allows(self, chosen: Sequence[int]) -> bool:
        """Return whether budgets and the batch maximum allow a set."""
        if len(chosen) > self._scene.settings.batch_maximum:
            return False
        if len(chosen) > 1 and any(self._candidates[place].surges for place in chosen):
            return False  # a node that needs a rolling update is handled alone (docs/rules.md#surge)
        used: dict[str, int] = {}
        for place in chosen:
            pool = self._candidates[place].pool_name
            used[pool] = used.get(pool, 0) + 1
        return all(count <= self._left.get(pool, 0) for pool, count in used.items())

    def along(self, order: Sequence[int], misses_max: int = MISSES_MAX) -> list[int]:
        """Return the nodes of an order that budgets and the batch maximum allow as one set, taken greedily.

        `misses_max`: how many nodes that are not allowed are ignored before the rest is.
        """
        kept: list[int] = []
        left, misses = dict(self._left), 0
        for place in order:
            facts = self._candidates[place]
            alone = bool(kept) and bool(facts.surges or self._candidates[kept[0]].surges)
            if not alone and left.get(facts.pool_name, 0) > 0:
                left[facts.pool_name] -= 1
                kept.append(place)
            else:
                misses += 1
            if misses > misses_max or len(kept) >= self._scene.settings.batch_maximum:
                break
        return kept

    def is_spent(self, work: Sequence[int]) -> bool:
        """Return whether the search has used up its effort, or has found nothing for a while."""
        self._searching = True
        if self.best is None and self._judged >= HOPELESS_MAX:
            return True
        self._pods_asked += sum(work[place] for chosen in self._asked for place in chosen)
        self._asked.clear()
        return self._judged >= JUDGED_MAX or self._pods_asked >= WORK_MAX

    def value(self, chosen: Chosen, launchable: tuple[str, ...] = ()) -> Value:
        """Return the value of a set as one command, as a share of `price_scale`; None if a gate refuses it."""
        outcome = self.judge(chosen, launchable)
        return float(outcome.approved.value / self._scene.price_scale) if isinstance(outcome, Move) else None

    def judge(self, chosen: Chosen, launchable: tuple[str, ...] = ()) -> Move | Refusal:
        """Judge a set by every gate; `launchable`: types that new nodes are limited to."""
        known = self._known.get((chosen, launchable))
        if known is not None:
            return known
        nodes = tuple(self._candidates[place] for place in chosen)
        if self._searching:
            self._judged += 1
            self._asked.append(chosen)
        outcome = self._judge(nodes, launchable)
        self._known[(chosen, launchable)] = outcome
        if isinstance(outcome, Move):
            self._keep(outcome)
        elif not self._searching:
            self.refused.append((nodes, outcome))
        return outcome

    def _judge(self, nodes: tuple[NodeFacts, ...], launchable: tuple[str, ...]) -> Move | Refusal:
        if len(nodes) == 1 and not launchable:
            return single_node.judge(self._work, nodes[0])
        outcome = cost_move(self._work, nodes, launchable=launchable)
        return (score(self._work, outcome) if isinstance(outcome, Move) else None) or outcome

    def _keep(self, move: Move) -> None:
        if self.best is None or _rank(move) < _rank(self.best):
            self.best = move

    def judge_prefixes(self) -> None:
        """Judge what `search: prefix` would: the largest prefix that opens at most one node, else each node alone."""
        order = range(len(self._candidates))
        taken = self.along(order, len(order))
        asked: dict[int, Move | Refusal] = {}

        def attempt(size: int) -> Move | Refusal:
            nodes = [self._candidates[place] for place in taken[:size]]
            least, launch = self._scene.bounds.together(nodes)
            paid = sum(facts.price for facts in nodes)
            if least > 1 or (launch is not None and launch.amount >= paid):
                outcome: Move | Refusal = _SEVERAL
            else:
                outcome = self.judge(tuple(taken[:size]))
            if isinstance(outcome, Move) and len(outcome.new_nodes) > 1:
                outcome = _SEVERAL
            asked[size] = outcome
            return outcome

        pods = [len(self._candidates[place].reschedulable) for place in taken]
        multi_node.search(attempt, len(taken), asked, pods)
        if not any(isinstance(outcome, Move) for outcome in asked.values()):
            self._each_alone()

    def _each_alone(self) -> None:
        """Judge one node after the other until one passes; those that go by waste for certain are set aside."""
        place = 0
        for nodes, certain in single_node.in_groups(self._work, self._candidates):
            for facts, wait in zip(nodes, set_aside(self._work, nodes, certain), strict=True):
                chosen = ((place,), ())
                if wait is not None and chosen not in self._known:
                    self._known[chosen], self._work.judged[facts.name] = _ASIDE, None
                    self.aside.append(SetAside(facts=facts, wait=wait))
                elif isinstance(self.judge((place,)), Move):
                    return
                place += 1


def _rank(move: Move) -> tuple[Fraction, int, tuple[str, ...]]:
    pods = sum(len(facts.reschedulable) for facts in move.nodes)
    return -move.approved.value, pods, tuple(sorted(facts.name for facts in move.nodes))
