"""From nodes to a command, step by step, with a scripted context (docs/rules.md#methods and #price)."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as change

from dovetail.decide.facts.node_facts import NodeFacts
from dovetail.decide.gates.balanced import PoolTotals
from dovetail.decide.gates.budgets import Allowance, DomainAllowance
from dovetail.decide.gates.price import Approved
from dovetail.decide.in_flight import InFlight
from dovetail.decide.methods import moves, multi_node, single_node
from dovetail.decide.methods.method import (
    OutOfBudget,
    blocked_move,
    budget_result,
    domain_result,
    out_of_budget,
    take_within,
)
from dovetail.decide.methods.moves import (
    Move,
    Possible,
    bare_command,
    command_of,
    cost_move,
    plain_move,
    refuse_unplaced,
    score,
)
from dovetail.decide.refusal import Refusal, below_threshold
from dovetail.decide.refusals.starting import STARTING
from dovetail.decide.scene import Scene
from dovetail.model.command import Action, Method
from dovetail.model.objects import ObjectMeta, Pod
from dovetail.model.policies.policy import Budget, ConsolidationPolicy, DisruptionPolicy, Reason
from dovetail.model.settings import DOVETAIL, KARPENTER_1_15, Settings
from dovetail.model.verdicts import Gate, GateResult
from dovetail.scheduling.entries import ALL_TYPES
from dovetail.scheduling.result import LaunchPrice, NewNode, NodePlacement, SimulationResult, Unplaced
from tests.support.launches import DOLLAR, kind_at, new_node, source
from tests.support.nodes import NOW, facts_of, minutes
from tests.support.scenes import scene_of
from tests.support.towns import Town

HOUR = 3600 * 10**9
CHEAP, DEAR, GONE = kind_at("cheap", 2), kind_at("dear", 4), kind_at("gone")


def _node(name: str = "n", price: int = 5, **facts: Any) -> NodeFacts:
    return facts_of(name=name, price=price * DOLLAR, price_float=float(price), offering_price=float(price), **facts)


def _launch(amount: int) -> LaunchPrice:
    return LaunchPrice(amount=amount * DOLLAR, as_float=float(amount), capacity_type="", zone="")


class _Context:
    """Replace a round's context: return scripted answers and record the calls."""

    def __init__(self, *new_nodes: NewNode, settings: Settings = DOVETAIL, most: int = 1, **parts: Any) -> None:
        self.settings, self.now, self.new_nodes_max = settings, NOW, most
        self.simulation = SimulationResult(candidates=(), new_nodes=new_nodes, **parts.pop("simulation", {}))
        self.in_flight = InFlight(back_off=parts.pop("back_off", {}))
        self.required: Fraction = parts.pop("required", Fraction(0))
        self.least: Any = parts.pop("least", [(0, None)])
        self.simulated: list[tuple[Sequence[NodeFacts], bool, Any]] = []
        lands = parts.get("unready")
        self.scene, self.hasty = self, False
        self.starting = SimpleNamespace(
            destination=lambda _: lands, lands=lambda nodes, _: [lands is not None for _ in nodes]
        )
        self.bounds = SimpleNamespace(
            together=lambda _: self.least[0],
            needs_alone=lambda nodes: [()] * len(nodes),
            least_for_each=lambda _: iter(self.least),
        )
        self.needs = None
        self.certain: dict[str, Any] = {}
        self.scores: dict[tuple[str, ...], Any] = {}
        self.totals = {
            "default": PoolTotals(
                cost=Fraction(10 * DOLLAR), disruption=Fraction(10), cost_float=10.0, disruption_float=10.0
            )
        }
        self.snapshot = SimpleNamespace(frame=SimpleNamespace(machines=SimpleNamespace(named=lambda names: names)))

    def priced(self, nodes: Sequence[NodeFacts], new_nodes: Sequence[NewNode]) -> tuple[NewNode, ...]:
        """Return new nodes at their list prices, as without commitments."""
        return tuple(new_nodes)

    def really_saved(self, nodes: Sequence[NodeFacts], new_nodes: Sequence[NewNode], savings: int) -> int:
        """Return the savings by list prices, as without commitments."""
        return savings

    def index_of(self, _: NodeFacts) -> int:
        return 0

    def sources(self, nodes: Sequence[NodeFacts]) -> Any:
        made = [source(facts.name, facts.price // DOLLAR) for facts in nodes]
        return [change(entry, required=self.required / len(made)) for entry in made]

    def required_savings(self, _: NodeFacts) -> tuple[int, int]:
        return self.required.numerator, self.required.denominator

    def simulate(
        self, nodes: Sequence[NodeFacts], *, for_cost: bool, launchable: Any = ALL_TYPES, in_full: bool = True
    ) -> SimulationResult:
        self.simulated.append((nodes, for_cost, launchable))
        return self.simulation

    def disruption_cost(self, nodes: Sequence[NodeFacts]) -> float:
        return float(len(nodes))


def _cost(context: _Context, *nodes: NodeFacts, **how: Any) -> Move | Refusal:
    return cost_move(context, nodes or (_node(),), **how)  # type: ignore[arg-type]


def _told(outcome: Move | Refusal) -> Any:
    if isinstance(outcome, Refusal):
        return outcome.gate.value, outcome.figures, outcome.simulated
    return [node.instance_types[0].name for node in outcome.new_nodes], outcome.approved.savings // DOLLAR


# ---------------------------------------------------------------- to save money


def test_a_move_that_saves() -> None:
    """A cost move is simulated once, with all types or with the named ones."""
    context = _Context(new_node(CHEAP))
    outcome = _cost(context)
    assert _told(outcome) == (["cheap"], 3)
    assert [(cost, types) for _, cost, types in context.simulated] == [(True, ALL_TYPES)]
    outcome = _cost(context, launchable=("cheap",))
    assert isinstance(outcome, Move)
    assert (outcome.launchable, context.simulated[-1][2]) == (("cheap",), ("cheap",))
    assert _told(_cost(_Context())) == ([], 5)


@pytest.mark.parametrize(
    ("most", "early", "count", "said"),
    [
        (1, False, 2, "would need 2 new nodes; a cost action may open one."),
        (1, True, 2, "would need at least 2 new nodes; a cost action may open one."),
        (2, False, 3, "would need 3 new nodes; a cost action may open 2."),
    ],
)
def test_too_many_new_nodes(most: int, early: bool, count: int, said: str) -> None:
    """A cost move that needs more new nodes than allowed is refused."""
    nodes = [new_node(CHEAP)] * count
    outcome = _cost(_Context(*nodes, most=most, simulation={"stopped_early": early}), _node(price=20))
    assert _told(outcome) == ("new-nodes", {"newNodes": count, "newNodesMax": most}, True)
    assert isinstance(outcome, Refusal)
    assert outcome.why.endswith(said)
    assert _told(_cost(_Context(*nodes[1:], most=most), _node(price=20)))[1] == 20 - 2 * (count - 1)


def test_a_pool_that_fits_nothing() -> None:
    """A move is refused if no type fits a new node."""
    outcome = _cost(_Context(new_node(CHEAP), new_node(), most=2))
    assert _told(outcome) == ("price", {"types": 0}, True)


@pytest.mark.parametrize(("until", "held"), [(1, True), (0, False), (-1, False)])
def test_a_pool_that_backs_off(until: int, held: bool) -> None:
    """A pool in backoff launches nothing until its deadline."""
    for back_off, stops in (({"default": NOW + minutes(until)}, held), ({"other": NOW + minutes(9)}, False)):
        context = _Context(new_node(CHEAP), back_off=back_off)
        for outcome in (_cost(context), plain_move(context, (_node(),))):  # type: ignore[arg-type]
            assert isinstance(outcome, Refusal) is stops
            if isinstance(outcome, Refusal):
                assert outcome.gate is Gate.BACK_OFF


POD = Pod(metadata=ObjectMeta(name="p", namespace="d"))


def _unplaced(name: str, *, claims: bool = False) -> Unplaced:
    tree: dict[str, Any] = {"metadata": {"name": name, "namespace": "d"}}
    if claims:
        tree["spec"] = {"resourceClaims": [{"name": "x", "resourceClaimName": "y"}]}
    return Unplaced(pod=msgspec.convert(tree, Pod, strict=False), forgiven=False, explain=lambda: "so")


@pytest.mark.parametrize(
    ("homeless", "waiting", "told"),
    [
        ([], [], None),
        ([_unplaced("a")], [], ("simulation", {"pod": "d/a", "pods": 1})),
        ([_unplaced("a"), _unplaced("b")], [_unplaced("c")], ("simulation", {"pod": "d/a", "pods": 2})),
        ([_unplaced("a"), _unplaced("b", claims=True)], [], ("dynamic-resources", {"pod": "d/b", "pods": 2})),
        ([], [_unplaced("c"), _unplaced("d")], ("uninitialized-destination", {"pod": "d/c", "pods": 2})),
    ],
)
def test_pods_without_a_place(homeless: list[Unplaced], waiting: list[Unplaced], told: Any) -> None:
    """Pods without any place are reported first, and pods with resource claims before all others."""
    result = SimulationResult(candidates=(), unplaced=tuple(homeless), list_uninitialized=lambda: tuple(waiting))
    refusal = refuse_unplaced(result, DOVETAIL)
    assert (None if refusal is None else (refusal.gate.value, refusal.figures)) == told
    if told and told[0] == "simulation":
        assert refusal is not None
        more = " (and 1 more)" if len(homeless) == 2 else ""
        assert refusal.why == f"Pod d/a{more} finds no place: so."
    context = _Context(simulation={"unplaced": tuple(homeless), "list_uninitialized": lambda: tuple(waiting)})
    for outcome in (_cost(context), plain_move(context, (_node(),))):  # type: ignore[arg-type]
        assert isinstance(outcome, Refusal) is (told is not None)


# ---------------------------------------------------------------- refusals without a simulation


def test_the_words_about_a_starting_node_are_found_on_request() -> None:
    """A refusal for a starting node names the pod and the node only where it is read."""
    nodes = (_node("a", 2),)
    context: Any = _Context(unready=(POD, "x"))
    assert _cost(context, *nodes) is STARTING
    words = moves.starting_in_words(context, nodes)
    assert _told(words) == ("uninitialized-destination", {"pod": "d/p", "pods": 1}, False)
    assert "d/p" in words.why
    assert "x" in words.why
    assert single_node.in_words(context, nodes[0], STARTING) == words


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"least": [(2, None)]}, ("new-nodes", {"newNodes": 2, "newNodesMax": 1}, False)),
        ({"least": [(1, None)]}, None),
        ({"least": [(1, 2)]}, "price"),
        ({"least": [(1, 1)]}, None),
        ({"unready": (POD, "x")}, ("uninitialized-destination", {}, False)),
        ({"required": Fraction(3 * DOLLAR)}, "savings-threshold"),
        ({"required": Fraction(2 * DOLLAR)}, None),
    ],
)
def test_what_needs_no_simulation(count: int, parts: dict[str, Any], told: Any) -> None:
    """A bound refuses a move: too many nodes, none cheaper, a starting node, or too little savings."""
    least = [
        (number, None if launch is None else _launch(launch)) for number, launch in parts.get("least", [(0, None)])
    ]
    nodes = [_node(str(each), 2 if count == 1 else 1) for each in range(count)]
    context = _Context(**{**parts, "least": least})
    outcome = _cost(context, *nodes)
    assert bool(context.simulated) is (told is None)
    if told is None:
        assert isinstance(outcome, Move)
    else:
        assert isinstance(outcome, Refusal)
        assert not outcome.simulated
        assert outcome.gate.value == told if isinstance(told, str) else _told(outcome) == told
        assert outcome.gate is not Gate.NEW_NODES or "need at least 2 new nodes" in outcome.why
        context = _Context(**{**parts, "least": least})
        _cost(context, *nodes, in_full=True)
        assert context.simulated


def test_several_new_nodes_may_be_dearer_each() -> None:
    """The price of one machine refuses nothing if several may be launched."""
    for most, refused in ((1, True), (2, False)):
        context = _Context(least=[(1, _launch(9))], most=most)
        assert isinstance(_cost(context, _node("a"), _node("b", 4)), Refusal) is refused


def test_what_is_certain_is_found_once() -> None:
    """A refusal that a round has found is returned again; if only the savings may refuse a node, they are compared."""
    context = _Context(least=[(2, None)])
    assert _cost(context) is _cost(context)
    assert context.certain.keys() == {"n"}
    context = _Context(least=[(2, None)], required=Fraction(3 * DOLLAR))
    context.certain["n"] = Possible(_launch(1))
    assert _told(_cost(context, _node(price=3)))[0] == "savings-threshold"
    assert isinstance(_cost(context, _node(price=4)), Move)


def test_the_last_launch_counts_for_the_threshold() -> None:
    """The cheapest launch lowers the best possible savings; Karpenter has no threshold."""
    least, required = [(1, _launch(1))], Fraction(3 * DOLLAR)
    assert _told(_cost(_Context(least=least, required=required), _node(price=3)))[0] == "savings-threshold"
    assert isinstance(_cost(_Context(least=least, required=required), _node(price=4)), Move)
    context = _Context(least=least, required=required, settings=KARPENTER_1_15)
    assert isinstance(_cost(context, _node(price=3)), Move)
    unready = _Context(unready=(POD, "x"), required=Fraction(9 * DOLLAR))
    assert _told(_cost(unready))[0] == "uninitialized-destination"


# ---------------------------------------------------------------- Balanced


@pytest.mark.parametrize(("policies", "scored"), [((True, True), True), ((False, True), True), ((False, False), False)])
def test_scores(policies: tuple[bool, bool], scored: bool) -> None:
    """A move is scored if one of its pools has the Balanced policy, and the score is recorded."""
    kinds = {True: ConsolidationPolicy.BALANCED, False: ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED}
    nodes = tuple(
        _node(str(at), policy=DisruptionPolicy(consolidation_policy=kinds[each])) for at, each in enumerate(policies)
    )
    nodes = tuple(sorted(nodes, key=lambda facts: not facts.policy or facts.policy.consolidation_policy != kinds[True]))
    approved = Approved(savings=DOLLAR // 2, savings_float=0.5)
    move = Move(nodes=nodes, simulation=SimulationResult(candidates=()), new_nodes=(), approved=approved)
    context = _Context()
    refusal = score(context, move)  # type: ignore[arg-type]
    assert (refusal is not None) is scored
    assert list(context.scores.values()) == ([{"default": pytest.approx(0.25)}] if scored else [])


# ---------------------------------------------------------------- nodes that have to go


@pytest.mark.parametrize(
    ("settings", "nodes", "savings"),
    [
        (DOVETAIL, [], 5),
        (DOVETAIL, [new_node(GONE, CHEAP, DEAR)], 3),
        (DOVETAIL, [new_node(CHEAP), new_node(DEAR)], -1),
        (DOVETAIL, [new_node(CHEAP), new_node(GONE)], None),
        (KARPENTER_1_15, [new_node(CHEAP), new_node(GONE)], 3),
    ],
)
def test_nodes_that_have_to_go(settings: Settings, nodes: list[NewNode], savings: int | None) -> None:
    """A forced move may launch several nodes; Dovetail waits if a launch is impossible, Karpenter does not."""
    context = _Context(*nodes, settings=settings)
    outcome = plain_move(context, (_node(),))  # type: ignore[arg-type]
    if savings is None:
        assert _told(outcome) == ("new-nodes", {"nodePool": "default"}, True)
    else:
        assert isinstance(outcome, Move)
        assert (outcome.approved.savings, outcome.new_nodes) == (savings * DOLLAR, tuple(nodes))
    assert [cost for _, cost, _ in context.simulated] == [False]


# ---------------------------------------------------------------- commands


def test_a_command_of_a_move() -> None:
    """A command has an action, placements of real pods, its savings and the required savings."""
    real = Pod(metadata=ObjectMeta(name="p", namespace="d"))
    places = (NodePlacement(index=0, node="x", pods=(real,)), NodePlacement(index=1, node="y", pods=()))
    simulation = SimulationResult(candidates=(), list_placements=lambda: places)
    approved = Approved(savings=7, savings_float=0.0, required=Fraction(5, 2))
    nodes = (_node("a", pods=2), _node("b", pods=1))
    for new_nodes, action in (((), Action.DELETE_COST), ((new_node(CHEAP),), Action.REPLACE_COST)):
        move = Move(nodes=nodes, simulation=simulation, new_nodes=new_nodes, approved=approved, launchable=("t",))
        command = command_of(_Context(), Method.SINGLE_NODE, move)  # type: ignore[arg-type]
        assert (command.action, command.nodes, command.pods) == (action, ("a", "b"), 3)
        assert [(entry.node, entry.pods) for entry in command.placements] == [("x", ("d/p",))]
        assert (command.savings, command.required_savings, command.disruption_cost) == (7, 2, 2.0)
        assert command.launchable == ("t",)


def test_a_bare_command() -> None:
    """A command without replacements saves the node's whole price."""
    nodes = (_node("a"), _node("b", 4))
    made = moves.replacement_of(new_node(CHEAP))
    scene = Scene.of(Town().question())
    assert bare_command(scene, Method.EMPTY, nodes).savings == 9 * DOLLAR
    assert bare_command(scene, Method.EMPTY, nodes, saves=False).savings == 0
    command = bare_command(scene, Method.DRIFTED, nodes, (made,))
    assert (command.savings, command.action, command.required_savings) == (0, Action.REPLACE_DRIFTED, 0)
    assert bare_command(scene, Method.DRIFTED, nodes).action is Action.DELETE_DRIFTED


# ---------------------------------------------------------------- what budgets hold


def _with_allowance(allowance: Allowance) -> Scene:
    """Return a scene whose pools have this left for every reason."""
    pools = ("a", "blue", "c")
    scene = scene_of(policies=dict.fromkeys(pools, DisruptionPolicy()))
    scene.ledger._flat.update({(pool, reason): allowance for pool in pools for reason in Reason})
    return scene


FLAT = Budget(index=1, nodes="10%", amount=10, is_percent=True)
RATE = Budget(index=0, nodes="2", amount=2, per=HOUR)


@pytest.mark.parametrize(
    ("allowance", "said", "figures"),
    [
        (
            Allowance(allowed=1, used=2, budget=FLAT),
            "NodePool blue has no budget left for Drifted: budget 2 (nodes: 10%) allows 1, 2 used.",
            {"allowed": 1, "used": 2, "left": 0},
        ),
        (Allowance(allowed=0, used=0), "for Drifted: allows 0, 0 used.", {"allowed": 0, "used": 0, "left": 0}),
        (
            Allowance(allowed=0, used=0, budget=replace(FLAT, problem="odd")),
            "Budget 2 of NodePool blue can't be read (odd): it allows nothing.",
            {"allowed": 0, "used": 0, "left": 0},
        ),
        (
            Allowance(allowed=0, used=0, budget=replace(RATE, problem="odd")),
            "Budget 1 of NodePool blue can't be read (odd): it allows nothing.",
            {"allowed": 0, "used": 0, "left": 0},
        ),
        (
            Allowance(allowed=2, used=2, budget=RATE, free_at=NOW + minutes(5)),
            "budget 1 allows 2 per 1h, 2 began to leave. The next may go at 2026-05-13T15:35:00Z, in 5m.",
            {"allowed": 2, "used": 2, "left": 0, "per": "1h", "nextAt": "2026-05-13T15:35:00Z"},
        ),
        (
            Allowance(allowed=2, used=2, budget=RATE),
            "budget 1 allows 2 per 1h, 2 began to leave.",
            {"allowed": 2, "used": 2, "left": 0, "per": "1h", "nextAt": None},
        ),
    ],
)
def test_why_a_budget_holds(allowance: Allowance, said: str, figures: dict[str, Any]) -> None:
    """The sentence names the budget, its allowance and when the next node may go."""
    result = budget_result(_with_allowance(allowance), Method.DRIFTED, "blue")
    assert result.why.endswith(said)
    assert result.figures == {"nodePool": "blue", "reason": "Drifted", **figures}
    assert not result.passed


def test_a_hold_is_told_as_it_is() -> None:
    """The reason of a held node is the hold of its pool."""
    held = GateResult(gate=Gate.HEALTH, passed=False, why="x")
    assert budget_result(_with_allowance(Allowance(allowed=0, used=0, held=held)), Method.DRIFTED, "blue") is held


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"active": False, "active_domain": "b"}, "goes one zone at a time and is in b now; this node is in a."),
        (
            {"active": False, "domain": "(no label)", "active_domain": "b"},
            "goes one zone at a time and is in b now; this node is in (no label).",
        ),
        (
            {"in_line": True},
            "Others in zone a of NodePool blue drifted earlier and go first: nodes 1 of 3, 2 in flight.",
        ),
        ({}, "zone a of NodePool blue has no drift budget left: nodes 1 of 3, 2 in flight."),
    ],
)
def test_why_a_domain_holds(entry: dict[str, Any], said: str) -> None:
    """A domain holds a node because it is not active, because others go first, or because nothing is left."""
    budget = Budget(index=0, nodes="1", amount=1, topology_key="zone")
    parts = {"budget": budget, "domain": "a", "nodes": 3, "in_flight": 2, "left": 0, "active": True, **entry}
    assert domain_result("blue", DomainAllowance(**parts)).why.endswith(said)


@pytest.mark.parametrize(
    ("left", "taken", "after"),
    [
        ({"a": 1, "b": 2, "c": 0}, "a1 b1", {"a": 0, "b": 1, "c": 0}),
        ({"a": 1, "b": 0, "c": 0}, "a1", {"a": 0, "b": 0, "c": 0}),
        ({"a": 0, "b": 0, "c": 1}, "c1", {"a": 0, "b": 0, "c": 0}),
        ({"a": 0, "b": 0, "c": 0}, "", {"a": 0, "b": 0, "c": 0}),
        ({"a": 9, "b": 9, "c": 9}, "a1 a2 b1 c1", {"a": 7, "b": 8, "c": 8}),
    ],
)
def test_taking_within_budgets(left: dict[str, int], taken: str, after: dict[str, int]) -> None:
    """Nodes are taken in order while the budget of their pool lasts; the others wait, in order."""
    nodes = [facts_of(name=name, pool_name=name[0]) for name in ("a1", "a2", "b1", "c1")]
    found, waiting = take_within(nodes, left)
    assert " ".join(facts.name for facts in found) == taken
    assert waiting == [facts for facts in nodes if facts.name not in taken.split()]
    assert left == after


def test_those_who_wait_carry_the_reason() -> None:
    """The reasons are there when they are asked for."""
    context = _with_allowance(Allowance(allowed=1, used=0))
    nodes = [facts_of(name=name, pool_name=name[0]) for name in ("a2", "c1")]
    held = OutOfBudget(context, Method.EMPTY, nodes, [facts.pool_name for facts in nodes])
    assert len(held) == 2
    assert dict(held) == out_of_budget(context, Method.EMPTY, nodes)
    assert "a2" in held
    assert "b1" not in held
    assert out_of_budget(context, Method.EMPTY, []) == {}


def test_a_blocked_batch() -> None:
    """One refused node has its own reason; several nodes are reported as a batch with their pools."""
    refusal = below_threshold(DOLLAR, DOLLAR, Fraction(5 * DOLLAR, 2), replaced=False)
    one = blocked_move([facts_of(pool_name="a")], refusal)
    assert (one.why, one.refusal.required) == (refusal.why, 5 * DOLLAR // 2)
    two = blocked_move([facts_of(pool_name="a"), facts_of(pool_name="a")], refusal)
    assert two.why.startswith("As one batch, 2 nodes of NodePool a would save $1.00/h")
    assert "NodePools a, b would" in blocked_move([facts_of(pool_name="b"), facts_of(pool_name="a")], refusal).why


# ---------------------------------------------------------------- sizes of batches


class _Sizes:
    """Accept batches of these sizes and record every attempt."""

    def __init__(self, *good: int) -> None:
        self.good = good
        self.asked: dict[int, Any] = {}
        self.tried: list[int] = []

    def __call__(self, size: int) -> Any:
        self.tried.append(size)
        passes = size in self.good
        move = Move(
            nodes=(),
            simulation=SimulationResult(candidates=()),
            new_nodes=(),
            approved=Approved(savings=0, savings_float=0.0),
        )
        self.asked[size] = move if passes else Refusal(gate=Gate.PRICE, why="")
        return self.asked[size]


@pytest.mark.parametrize(
    ("good", "largest", "best", "tried"),
    [
        (range(9), 8, 8, [5, 7, 8]),
        (range(6), 8, 5, [5, 7, 6]),
        ((), 8, 0, [5, 3, 2]),
        ((2,), 8, 2, [5, 3, 2]),
        ((2,), 2, 2, [2]),
        ((), 1, 0, []),
    ],
)
def test_bisection(good: Sequence[int], largest: int, best: int, tried: list[int]) -> None:
    """Bisection starts in the middle, and moves up after a pass and down after a failure."""
    attempt = _Sizes(*good)
    assert multi_node.bisect(attempt, largest) == best
    assert attempt.tried == tried


def _search(attempt: _Sizes, largest: int, pods: int = 1) -> int:
    return multi_node.search(attempt, largest, attempt.asked, [pods] * largest)


def test_the_whole_batch_comes_first() -> None:
    """The whole batch is tried first, and nothing else if it passes; a batch has at least two nodes."""
    attempt = _Sizes(2, 8)
    assert (_search(attempt, 8), attempt.tried) == (8, [8])
    for largest in (0, 1):
        attempt = _Sizes(0, 1)
        assert (_search(attempt, largest), attempt.tried) == (0, [])
    attempt = _Sizes(2)
    assert (_search(attempt, 2), attempt.tried) == (2, [2])


def test_sizes_that_bisection_passed_over() -> None:
    """The larger sizes that bisection skipped are tried once each, largest first."""
    attempt = _Sizes(4, 6)
    assert _search(attempt, 8) == 6
    assert attempt.tried == [8, 5, 3, 2, 7, 6]
    attempt = _Sizes(2)
    assert _search(attempt, 8) == 2
    assert sorted(attempt.tried) == [2, 3, 4, 5, 6, 7, 8]
    attempt = _Sizes()
    assert _search(attempt, 3) == 0
    assert sorted(attempt.tried) == [2, 3]


@pytest.mark.parametrize(("largest", "expected"), [(12, 11), (40, None)])
def test_only_so_many_more_are_tried(monkeypatch: pytest.MonkeyPatch, largest: int, expected: int | None) -> None:
    """The extra sizes are spread over all remaining ones and include the largest and the smallest."""
    monkeypatch.setattr(multi_node, "FURTHER_MAX", 4)
    attempt = _Sizes()
    multi_node.look_further(attempt, 0, 8, {8: 1, 5: 1, 3: 1}, [1] * 8)  # type: ignore[dict-item]
    assert attempt.tried == [7, 6, 4, 2]
    attempt = _Sizes()
    multi_node.look_further(attempt, 0, largest, {}, [1] * largest)
    step = (largest - 2) / 3
    assert attempt.tried == [largest - round(index * step) for index in range(4)]
    assert len(attempt.tried) == 4
    attempt = _Sizes()
    multi_node.look_further(attempt, 5, 9, {}, [1] * 9)
    assert attempt.tried == [9, 8, 7, 6]


def test_only_so_many_pods_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch above the pod limit is skipped, a smaller one may follow; the exact limit is allowed."""
    monkeypatch.setattr(multi_node, "FURTHER_PODS_MAX", 10)
    attempt = _Sizes()
    assert multi_node.look_further(attempt, 0, 6, {}, [2] * 6) == 0
    assert attempt.tried == [5]
    attempt = _Sizes()
    multi_node.look_further(attempt, 0, 4, {}, [2, 2, 1, 4])
    assert attempt.tried == [4]
    attempt = _Sizes(2)
    assert multi_node.look_further(attempt, 0, 3, {}, [1, 2, 4]) == 2
    assert attempt.tried == [3, 2]
