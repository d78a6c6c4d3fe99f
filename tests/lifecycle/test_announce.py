"""What the engine reports about commands: numbers first, a few node names, all names in the figures."""

from fractions import Fraction
from random import Random

import pytest

from dovetail.decide.outcome import BlockedMove, BudgetRow
from dovetail.decide.refusal import Refusal
from dovetail.lifecycle.announce import BLOCKED_MEMORY, Announcer, command_event, command_report
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase, Signal
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.messages import Instruction, ObjectObserved, PublishEvent
from dovetail.lifecycle.reports import BudgetChanged, RecordIgnored, Report, some_of
from dovetail.model.command import Action, Method
from dovetail.model.objects import Node, ObjectMeta
from dovetail.model.policies.reasons import Reason
from dovetail.model.verdicts import Gate, NodeVerdict
from tests.support.lifecycle_world import T0, Found


def run_of(nodes: int, replacements: int) -> Run:
    """Return a command on that many nodes."""
    candidates = tuple(
        Candidate(node=f"n{index}", claim=f"c{index}", uid=f"u{index}", pool="web") for index in range(nodes)
    )
    return Run(
        id="abc",
        action=Action.REPLACE_DRIFTED,
        method=Method.DRIFTED,
        candidates=candidates,
        replacements=tuple(f"r{index}" for index in range(replacements)),
        phase=Phase.TAINTING,
        began=T0,
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "n0"),
        (4, "n0, n1, n2, n3"),
        (5, "5 nodes (n0, n1, n2 and 2 more)"),
        (32, "32 nodes (n0, n1, n2 and 29 more)"),
    ],
)
def test_many_nodes_are_counted_and_few_are_named(count: int, said: str) -> None:
    """The message about 32 nodes stays short."""
    assert some_of([f"n{index}" for index in range(count)]) == said


@pytest.mark.parametrize(
    ("nodes", "replacements", "said"),
    [
        (1, 0, "replaceDrifted of n0 is tainting"),
        (1, 1, "replaceDrifted of n0 is tainting (1 replacement)"),
        (2, 3, "replaceDrifted of n0, n1 is tainting (3 replacements)"),
        (32, 1, "replaceDrifted of 32 nodes (n0, n1, n2 and 29 more) is tainting (1 replacement)"),
    ],
)
def test_report_says_how_many_nodes_a_command_removes_and_launches(nodes: int, replacements: int, said: str) -> None:
    """The numbers are figures of their own; every node is named once, in the figures."""
    report = command_report(run_of(nodes, replacements), Phase.VALIDATING, Signal.VALIDATED, Phase.TAINTING, 0)
    figures = dict(report.figures)
    assert (figures["removes"], figures["launches"]) == (nodes, replacements)
    assert report.message == said
    assert figures["nodes"] == ",".join(f"n{index}" for index in range(nodes))


def test_event_of_a_node_names_few_replacements() -> None:
    """The event on each node of a command with many replacements stays short."""
    event = next(command_event(run_of(1, 8), Phase.TAINTING))
    assert event.message == "replaceDrifted (abc): leaves once 8 nodes (r0, r1, r2 and 5 more) are ready."


def blocked(nodes: str, *pools: str, why: str = "It saves too little.") -> BlockedMove:
    """Return a move of these nodes that the savings threshold refused."""
    refusal = Refusal(gate=Gate.SAVINGS_THRESHOLD, why=why, savings=1, required=Fraction(2))
    return BlockedMove(nodes=tuple(nodes.split()), node_pools=pools, refusal=refusal)


def counted(said: list[Instruction]) -> dict[str, int]:
    """Return the number of reported blocked moves by pool."""
    figures = [dict(item.figures) for item in said if isinstance(item, Report) and item.topic == "threshold-blocked"]
    return {str(entry["pool"]): int(entry["moves"]) for entry in figures}


def test_blocked_move_is_counted_once_for_as_long_as_it_is_blocked() -> None:
    """A blocked node counts once, and again after an hour without a block."""
    announcer = Announcer()
    one, two = blocked("n1", "web"), blocked("n2", "web")
    assert counted(announcer.announce(Found(blocked=(one,)), 0, publishes=True)) == {"web": 1}
    for turn in range(1, 100):
        assert counted(announcer.announce(Found(blocked=(one,)), turn * 10 * SECOND, publishes=True)) == {}
    last = 1000 * SECOND
    assert counted(announcer.announce(Found(blocked=(one, two)), last, publishes=True)) == {"web": 1}
    assert counted(announcer.announce(Found(), last + 1, publishes=True)) == {}, "others act: nobody asked"
    again = Found(blocked=(one, two))
    assert counted(announcer.announce(again, last + BLOCKED_MEMORY - 1, publishes=True)) == {}
    assert counted(announcer.announce(Found(), last + 2 * BLOCKED_MEMORY, publishes=True)) == {}
    assert counted(announcer.announce(again, last + 2 * BLOCKED_MEMORY, publishes=True)) == {"web": 2}


def test_blocked_move_stays_known_while_nothing_changes() -> None:
    """Skipped rounds do not make a blocked move new."""
    announcer = Announcer()
    result = Found(blocked=(blocked("n1", "web"),))
    announcer.announce(result, 0, publishes=True)
    for hour in range(1, 5):
        announcer.verdicts_due(result, hour * BLOCKED_MEMORY - SECOND, publishes=True)
    assert counted(announcer.announce(result, 4 * BLOCKED_MEMORY, publishes=True)) == {}


def test_batch_counts_once_whatever_prefix_of_it_was_tried() -> None:
    """Bisection tries 64, 32 and 48 nodes; this is one blocked batch for each pool."""
    announcer = Announcer()
    sizes = [" ".join(f"n{index}" for index in range(size)) for size in (64, 32, 48)]
    moves = tuple(blocked(nodes, "batch", "web", why=f"As one batch, {len(nodes.split())}.") for nodes in sizes)
    said = announcer.announce(Found(blocked=moves), 0, publishes=True)
    assert counted(said) == {"batch": 1, "web": 1}
    messages = {item.message for item in said if isinstance(item, Report)}
    assert messages == {"64 nodes (n0, n1, n2 and 61 more): As one batch, 64."}
    assert counted(announcer.announce(Found(blocked=moves[1:]), SECOND, publishes=True)) == {}


def verdict(node: str, pool: str = "web", gate: str = "budget") -> NodeVerdict:
    """Return the verdict of a node that stays."""
    return NodeVerdict(node=node, node_pool=pool, verdict=gate, why="No budget.")


def test_events_only_for_nodes_of_managed_pools() -> None:
    """Nodes of unmanaged pools get no DisruptionBlocked event; their verdicts are still counted."""
    announcer = Announcer(manages=lambda pool: pool == "web")
    found = Found(verdicts=(verdict("n1", gate="pdb"), verdict("n2", "other", "pdb"), verdict("n3", "", "pdb")))
    said = announcer.announce(found, 0, publishes=True)
    assert [item.name for item in said if isinstance(item, PublishEvent)] == ["n1"]
    pools = [dict(item.figures)["pool"] for item in said if isinstance(item, Report)]
    assert pools == ["", "other", "web"]


@pytest.mark.parametrize("gate", ["budget", "window", "health"])
def test_what_holds_a_whole_pool_is_one_event_on_the_pool(gate: str) -> None:
    """Nodes held by something of their pool get no event; the pool gets one, and another when it is held anew."""
    announcer = Announcer(0, manages=lambda pool: pool in ("web", "batch"))
    held = [
        verdict(name, pool, gate) for name, pool in [("n1", "web"), ("n2", "web"), ("n3", "batch"), ("n4", "other")]
    ]
    free = tuple(verdict(item.node, item.node_pool, "eligible") for item in held)
    said = []
    for at, verdicts in enumerate([tuple(held), tuple(reversed(held)), free, tuple(held[:1])]):
        said += [(at, item) for item in announcer.announce(Found(verdicts=verdicts), at * SECOND, publishes=True)]
    events = [(at, item.kind, item.name, item.message) for at, item in said if isinstance(item, PublishEvent)]
    message = f"{gate}: No budget."
    assert events == [
        (0, "NodePool", "batch", message),
        (0, "NodePool", "web", message),
        (3, "NodePool", "web", message),
    ]


@pytest.mark.parametrize(
    ("gates", "told"),
    [
        (("price", "stabilization", "price"), ["price"]),
        (("price", "uninitialized-destination", "pdb"), ["price", "pdb"]),
        (("back-off", "back-off", "price"), ["price"]),
        (("stabilization", "eligible", "price"), ["price"]),
        (("price", "consolidate-after", "price", "grace-period", "price"), ["price"]),
        (("nominated", "consolidate-after", "eligible", "nominated"), []),
        (("price", "eligible", "marked-for-deletion"), ["price"]),
        (("price", "eligible", "price"), ["price", "price"]),
        (("pdb", "price", "pdb"), ["pdb", "price", "pdb"]),
    ],
)
def test_waits_that_end_by_themselves_are_no_event(gates: tuple[str, ...], told: list[str]) -> None:
    """A node that waits or leaves gets no event, and none either if it is then refused as before."""
    announcer, said = Announcer(0), []
    for at, gate in enumerate(gates):
        said += announcer.announce(Found(verdicts=(verdict("n1", gate=gate),)), at * SECOND, publishes=True)
    assert [item.message.partition(":")[0] for item in said if isinstance(item, PublishEvent)] == told


@pytest.mark.parametrize("seed", range(20))
def test_events_follow_the_verdicts_that_changed(seed: int) -> None:
    """After any changes of nodes and verdicts, each node's event is about a verdict other than its last lasting one."""
    dice, announcer = Random(seed), Announcer(0, manages=lambda pool: pool == "web")
    last: dict[str, str] = {}
    for at in range(30):
        nodes = [f"n{number}" for number in range(5) if dice.random() < 0.8]
        gates = {node: dice.choice(["price", "pdb", "stabilization", "eligible"]) for node in nodes}
        pools = {node: "web" if dice.random() < 0.8 else "other" for node in nodes}
        found = tuple(verdict(node, pool=pools[node], gate=gate) for node, gate in gates.items())
        said = announcer.announce(Found(verdicts=found), at * SECOND, publishes=True)
        lasting = {node: gate for node, gate in gates.items() if gate != "stabilization"}
        told = [
            node for node, gate in lasting.items() if gate not in ("eligible", last.get(node)) and pools[node] == "web"
        ]
        assert [item.name for item in said if isinstance(item, PublishEvent)] == told
        last = {node: lasting.get(node, last.get(node, "")) for node in nodes}
        assert announcer._counted == {node: (node, pools[node], gates[node]) for node in nodes}


def test_verdicts_of_nodes_that_are_gone_are_not_counted() -> None:
    """Verdicts of removed nodes are not counted, even while no new verdicts are computed."""
    there = {"n1": None, "n2": None}
    announcer = Announcer(exists=there.__contains__)
    announcer.announce(Found(verdicts=(verdict("n1"), verdict("n2"))), 0, publishes=True)
    del there["n2"]
    announcer.forget("Node", "n1")
    announcer.forget("Node", "n2")
    said = announcer.announce(Found(), SECOND, publishes=True)
    assert [dict(item.figures) for item in said if isinstance(item, Report)] == [{"pool": "web", "budget": 1}]
    assert announcer.announce(Found(), 2 * SECOND, publishes=True) == []
    there.clear()
    announcer.forget("NodeClaim", "n1")
    said = announcer.announce(Found(), 3 * SECOND, publishes=True)
    assert [dict(item.figures) for item in said if isinstance(item, Report)] == [{"pool": "web"}]


def test_verdicts_are_told_once_a_minute_at_most() -> None:
    """Verdicts are reported after exactly a minute; a repeated round or a round with a command reports none."""
    announcer = Announcer(60 * SECOND)
    told = []
    for at, gate in ((100, "budget"), (159, "pdb"), (160, "pdb"), (161, "budget"), (219, "budget"), (220, "budget")):
        said = announcer.announce(Found(verdicts=(verdict("n1", gate=gate),)), at * SECOND, publishes=True)
        told += [(at, item.message) for item in said if isinstance(item, PublishEvent)]
    assert told == [(100, "budget: No budget."), (160, "pdb: No budget."), (220, "budget: No budget.")]


def test_a_move_that_is_blocked_again_after_its_time_is_told_again() -> None:
    """A move counts again exactly an hour after it was last blocked."""
    for after, moves in ((BLOCKED_MEMORY - 1, {}), (BLOCKED_MEMORY, {"web": 1})):
        announcer = Announcer()
        found = Found(blocked=(blocked("n1", "web"),))
        announcer.announce(found, 7 * SECOND, publishes=True)
        announcer.announce(Found(), 7 * SECOND + after, publishes=True)
        assert counted(announcer.announce(found, 7 * SECOND + after, publishes=True)) == moves


def test_of_batches_of_one_size_the_first_is_told() -> None:
    """The first of several batches of one size is reported."""
    moves = (blocked("n1 n2", "web", why="First."), blocked("n3 n4", "web", why="Second."))
    said = Announcer().announce(Found(blocked=moves), 0, publishes=True)
    assert [item.message for item in said if isinstance(item, Report)] == ["n1, n2: First."]


def observed(distrusted: str, name: str = "n1") -> ObjectObserved:
    """Return a Node whose record is not trusted, or that has none."""
    return ObjectObserved(object=Node(metadata=ObjectMeta(name=name)), distrusted=distrusted)


def test_an_ignored_record_is_told_once_and_its_event_when_it_may_be() -> None:
    """An ignored record is reported at once; its warning event follows when events may be published."""
    announcer = Announcer()
    [report, event] = announcer.distrusted(observed("it is not sealed"), publishes=True)
    assert report == RecordIgnored(kind="Node", name="n1", why="it is not sealed")
    assert isinstance(event, PublishEvent)
    assert event.warning
    assert announcer.distrusted(observed("it is not sealed"), publishes=True) == []
    assert announcer.distrusted(observed(""), publishes=True) == []
    assert len(announcer.distrusted(observed("it is not sealed"), publishes=True)) == 2
    late = Announcer()
    for name in ("n1", "n2"):
        [report] = late.distrusted(observed("it has no id", name), publishes=False)
        assert isinstance(report, RecordIgnored)
    late.forget("Node", "n2")
    assert late.announce(Found(), 0, publishes=False) == []
    assert [item.name for item in late.announce(Found(), 0, publishes=True) if isinstance(item, PublishEvent)] == ["n1"]
    assert late.announce(Found(), 0, publishes=True) == []


@pytest.mark.parametrize(("replacements", "said"), [(0, ""), (1, " once r0 is ready"), (2, " once r0, r1 are ready")])
def test_words_of_an_event(replacements: int, said: str) -> None:
    """Events use singular and plural; a rolled-back command is a warning."""
    run = run_of(1, replacements)
    [event] = command_event(run, Phase.TAINTING)
    assert (event.message, event.warning) == (f"replaceDrifted (abc): leaves{said}.", False)
    run.why = "not carried out in time"
    [event] = command_event(run, Phase.ROLLING_BACK)
    assert (event.message, event.warning) == ("replaceDrifted (abc) is undone: not carried out in time.", True)
    assert event.id.startswith("event/Node/n0/")
    assert len(event.id.rpartition("/")[2]) == 10
    assert list(command_event(run, Phase.WAITING)) == []


@pytest.mark.parametrize(
    ("busy", "allowed", "told"), [(True, 2, False), (True, 0, True), (False, 2, True), (False, 0, True)]
)
def test_a_budget_that_commands_in_progress_use_blocks_nothing(busy: bool, allowed: int, told: bool) -> None:
    """The pool gets a DisruptionBlocked event only if its budget is closed, or something else uses it."""
    row = BudgetRow(
        node_pool="web",
        reason=Reason.DRIFTED,
        allowed=allowed,
        used=2,
        left=0,
        allowed_with_domains=allowed,
        left_with_domains=0,
    )
    announcer = Announcer(0, is_busy=lambda pool: busy)
    found = Found(verdicts=(verdict("n1", gate="budget"),), budgets=(row,))
    events = [item for item in announcer.announce(found, 0, publishes=True) if isinstance(item, PublishEvent)]
    assert bool(events) is told
    later = announcer.announce(found, SECOND, publishes=True)
    assert [item for item in later if isinstance(item, PublishEvent)] == []


def test_budget_metrics_are_within_topology_budgets() -> None:
    """What is reported as allowed and left is what drift may take now, domain by domain."""
    row = BudgetRow(
        node_pool="web",
        reason=Reason.DRIFTED,
        allowed=12,
        used=1,
        left=11,
        allowed_with_domains=1,
        left_with_domains=0,
    )
    said = Announcer(0).announce(Found(budgets=(row,)), 0, publishes=True)
    [report] = [item for item in said if isinstance(item, BudgetChanged)]
    assert (report.allowed, report.used, report.left) == (1, 1, 0)


def test_a_command_without_nodes_is_named_by_its_id() -> None:
    """The nodes of a command that was found may all be another's; its steps are still told apart."""
    report = command_report(run_of(0, 0), None, None, Phase.DONE, 0)
    assert report.message == "replaceDrifted (abc, whose nodes another command has) is done"
