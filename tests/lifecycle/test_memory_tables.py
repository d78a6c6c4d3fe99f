"""The engine's memory at its limits: backoff, pauses, landings, regrowth, aftercare, waste, outcomes."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.api.pool_marks import Halt, write_halt
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.commands.command_run import Run
from dovetail.lifecycle.commands.machine import Phase
from dovetail.lifecycle.commands.records import Candidate
from dovetail.lifecycle.memory.aftercare import Aftercare
from dovetail.lifecycle.memory.landing import LEAST, Landing
from dovetail.lifecycle.memory.outcomes import HOUR, KEPT_MAX, Mover, Outcomes
from dovetail.lifecycle.memory.owners import Before, missing, owners_of, ready_of, ready_on
from dovetail.lifecycle.memory.pacing import BackOff
from dovetail.lifecycle.memory.pod_events import PodEvents
from dovetail.lifecycle.memory.regrowth import FIRST_WAIT, LEAST_WAIT, LOOK_AFTER, Regrowth, is_ours
from dovetail.lifecycle.memory.waste import WasteBook
from dovetail.lifecycle.messages import DeleteNodeClaim, Failure, Instruction
from dovetail.lifecycle.store import Store
from dovetail.model import names
from dovetail.model.command import Action, Command, Method
from dovetail.model.money import Money
from dovetail.model.objects import AnyObject, Node, NodeClaim, ObjectMeta
from dovetail.model.settings import Stabilization, StabilizationEnds
from tests.support.conversation import Talk, pod, pool, replica_set, stateful_set
from tests.support.lifecycle_world import CALM

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def store_of(*items: AnyObject) -> Store:
    """Return a store that holds these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    return store


def run(*nodes: str, ident: str = "c1", saves: int | None = None) -> Run:
    """Return a cost command for these nodes, each `pool/node` or a `node` of the pool web."""
    pairs = [node.rpartition("/")[::2] for node in nodes]
    candidates = tuple(Candidate(node=name, claim=name, uid=name, pool=of or "web") for of, name in pairs)
    made = Run(
        id=ident,
        action=Action.DELETE_COST,
        method=Method.SINGLE_NODE,
        candidates=candidates,
        phase=Phase.DELETING,
        began=NOW,
    )
    if saves is not None:
        names_of = tuple(name for _, name in pairs)
        made.command = Command(
            action=Action.DELETE_COST, method=Method.SINGLE_NODE, nodes=names_of, savings=saves
        )  # fmt: skip
    return made


# ---------------------------------------------------------------- back-off and pauses


def test_back_off_doubles_up_to_its_longest() -> None:
    """Each failure after the wait doubles the backoff; a failure during the wait does not."""
    memory = BackOff(first=10, longest=75)
    assert memory.failures("web") == 0
    at, pauses = 0, []
    for _ in range(5):
        pause = memory.failed("web", at)
        assert pause is not None
        pauses.append(pause)
        assert memory.failed("web", at + pause - 1) is None
        assert memory.active(at + pause - 1) == {"web": at + pause}
        assert memory.active(at + pause) == {}
        at += pause
    assert pauses == [10, 20, 40, 75, 75]
    assert memory.failures("web") == 5
    memory.succeeded("web")
    assert (memory.failures("web"), memory.until) == (0, {})
    assert memory.failed("web", 0, 7) == 7
    assert memory.failed("web", 7, 7) == 14
    assert memory.failed("other", 0) == 10


def test_back_off_of_a_pool_that_keeps_failing_stays_at_its_longest() -> None:
    """The backoff never exceeds its maximum."""
    memory = BackOff(first=1, longest=1 << 30)
    at = 0
    for _ in range(40):
        at += memory.failed("web", at) or 0
    assert memory.failed("web", at) == 1 << 16


def test_waits_that_are_over_are_dropped() -> None:
    """A wait is dropped exactly at its end; the number of failures is kept."""
    memory = BackOff(first=10, longest=75)
    memory.failed("web", 0)
    assert not memory.expire(9)
    assert memory.until == {"web": 10}
    assert memory.expire(10)
    assert memory.until == {}
    assert not memory.expire(10)
    assert memory.failed("web", 10) == 20


# ---------------------------------------------------------------- owners


def test_owners_of_a_pod() -> None:
    """DaemonSets and nodes are not owners of a pod here."""
    assert owners_of(pod("a", "n", "rs")) == ["rs"]
    assert owners_of(pod("a", "n", "ds", kind="DaemonSet")) == []
    assert owners_of(pod("a", "n", "n", kind="Node")) == []
    assert owners_of(pod("a", "n", "")) == []


def test_what_there_was_before() -> None:
    """The owners of the nodes' pods are recorded with all their ready pods; pods without an owner are ignored."""
    store = store_of(
        pod("a", "n1", "rs"), pod("b", "n2", "rs"), pod("c", "n2", "rs", ready=False), pod("d", "n1", "db"),
        pod("e", "n1", ""), pod("f", "n1", "late", ready=False), pod("g", "n2", "other"),
    )  # fmt: skip
    before = ready_on(["n1"], store)
    assert before == Before(ready={"db": 1, "late": 0, "rs": 2}, leaving=frozenset({"a", "d", "f"}))
    assert [ready_of(owner, store) for owner in ("rs", "other", "none")] == [2, 1, 0]
    assert ready_of("rs", store, frozenset({"a"})) == 1


@pytest.mark.parametrize(
    ("replicas", "ready", "lacks"),
    [
        (2, 2, 0),
        (2, 1, 1),
        (2, 0, 2),
        (3, 1, 1),
        (1, 1, 0),
        (1, 0, 1),
        (0, 0, 0),
        (3, 3, 0),
        (None, 1, 0),
        (None, 0, 0),
    ],
)
def test_who_lacks_pods(replicas: int | None, ready: int, lacks: int) -> None:
    """An owner lacks pods if it has fewer than before and fewer than it wants; a deleted owner wants none."""
    store = store_of(*(pod(f"p{index}", "n", "rs") for index in range(ready)), pod("old", "n", "rs", uid="left"))
    if replicas is not None:
        store.observe(replica_set("rs", replicas))
    gaps = missing(Before(ready={"rs": 2}, leaving=frozenset({"left"})), store)
    assert gaps == ({"rs": lacks} if lacks else {})


def test_a_stateful_set_without_a_number_wants_one() -> None:
    """A StatefulSet without replicas wants one pod, as the API server defaults it."""
    store = store_of(stateful_set("db", None))
    assert missing(Before(ready={"db": 3}), store) == {"db": 1}


# ---------------------------------------------------------------- landing


def landing_of(store: Store, *idents: str) -> Landing:
    """Return the landings of commands on node n1 that ended at 100 s."""
    landing = Landing()
    for ident in idents:
        landing.begin(run("n1", ident=ident), store)
        landing.end(ident, 100 * SECOND, 300 * SECOND, ("web",))
    return landing


def test_landing_is_looked_for_after_half_a_minute_every_five_seconds() -> None:
    """Landing is checked after half a minute, every five seconds, and at the window's end."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"))
    landing = landing_of(store, "c1")
    store.vanish("Pod", "d", "a")
    assert landing.next_at() == 100 * SECOND + LEAST
    assert not landing.look(store, 130 * SECOND - 1)
    assert not landing.look(store, 130 * SECOND)
    assert landing.next_at() == 135 * SECOND
    store.observe(pod("b", "n2", "rs"))
    assert not landing.look(store, 135 * SECOND - 1)
    assert landing.look(store, 135 * SECOND)
    assert landing.next_at() is None
    assert not landing.look(store, 500 * SECOND)


@pytest.mark.parametrize(("at", "over"), [(399, False), (400, True), (401, True)])
def test_landing_ends_with_the_window(at: int, over: bool) -> None:
    """A landing ends exactly with the window."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"))
    landing = landing_of(store, "c1")
    store.vanish("Pod", "d", "a")
    assert bool(landing.look(store, at * SECOND)) == over


def test_landing_is_over_when_all_have_landed() -> None:
    """Commands in progress delay no landing; aftercare and pending pods do."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"), replica_set("db", 1), pod("b", "n2", "db"))
    landing = landing_of(store, "c1")
    landing.begin(run("n2", ident="c2"), store)
    store.vanish("Pod", "d", "a")
    store.observe(pod("a2", "n3", "rs"))
    assert landing.next_at() == 130 * SECOND, "c2 has not ended"
    store.observe(pod("w", "", "rs"))
    assert not landing.look(store, 130 * SECOND), "one of its owner's pods waits"
    store.vanish("Pod", "d", "w")
    store.observe(pod("w", "", "other", uid="w2"))
    assert landing.look(store, 135 * SECOND), "somebody else's pod does not count"
    landing.end("c2", 140 * SECOND, 300 * SECOND, ("web",))
    store.vanish("Pod", "d", "b")
    assert not landing.look(store, 170 * SECOND)
    landing.drop("c2")
    assert landing.next_at() is None
    landing.end("c2", 0, 0)
    landing.begin(run("n1"), store)
    landing.forget()
    landing.end("c1", 0, 0)
    assert landing.next_at() is None


def test_landing_of_two_commands_is_over_with_the_later() -> None:
    """The landing of two commands ends with the later one."""
    store = store_of(replica_set("rs", 1), pod("a", "n1", "rs"), replica_set("db", 1), pod("b", "n2", "db"))
    landing = landing_of(store, "c1")
    landing.begin(run("n2", ident="c2"), store)
    landing.end("c2", 104 * SECOND, 300 * SECOND, ("web", "two"))
    for name, owner in (("a", "rs"), ("b", "db")):
        store.vanish("Pod", "d", name)
        store.observe(pod(f"{name}2", "n3", owner))
    assert not landing.look(store, 130 * SECOND)
    assert landing.next_at() == 135 * SECOND
    assert not landing.is_over
    assert landing.look(store, 135 * SECOND) == ("web", "two")
    assert landing.is_over


# ---------------------------------------------------------------- regrowth


def claim(name: str, node: str = "", **annotations: str) -> NodeClaim:
    """Return a NodeClaim."""
    tree = {"metadata": {"name": name, "uid": name, "annotations": annotations}, "status": {"nodeName": node}}
    return msgspec.convert(tree, NodeClaim, strict=False)


def regrown(*came: AnyObject, saves: int | None = None) -> tuple[Regrowth, Store]:
    """Return the regrowth state after a command that moved a pod of rs off n1 and ended at 100 s."""
    store = store_of(claim("n1", "n1"), claim("n2", "n2"), pod("a", "n1", "rs"), pod("o", "n2", "other"))
    regrowth = Regrowth()
    regrowth.begin(run("n1", saves=saves), store)
    store.vanish("Pod", "d", "a")
    for item in came:
        store.observe(item)
    regrowth.end(run("n1"), 100 * SECOND, well=True)
    return regrowth, store


@pytest.mark.parametrize(
    ("came", "back"),
    [
        ((), False),
        ((claim("new", "n3"), pod("b", "n3", "rs")), True),
        ((claim("new", "n3"), pod("b", "n3", "other")), False),
        ((claim("new", "n3"), pod("b", "n3", "other"), pod("c", "n3", "rs")), True),
        ((claim("new", "n3"), pod("b", "n2", "rs")), False),
        ((claim("new"), pod("b", "", "rs")), True),
        ((claim("new"), pod("b", "", "other")), False),
        ((claim("new"), pod("b", "", "other"), pod("c", "", "rs")), True),
        ((claim("new", "n3"), pod("b", "", "rs")), False),
        ((claim("new", **{names.HOLD: "true"}), pod("b", "", "rs")), False),
        ((claim("new", **{names.COMMAND: "x"}), pod("b", "", "rs")), False),
    ],
)
def test_signs_of_regrowth(came: tuple[AnyObject, ...], back: bool) -> None:
    """A new claim of another creator that carries a moved owner's pod, or launches while one waits, is regrowth."""
    regrowth, store = regrown(*came)
    assert regrowth.next_at() == 100 * SECOND + LOOK_AFTER
    assert regrowth.held(store, 120 * SECOND) == ({"web": 160 * SECOND} if back else {})
    assert regrowth.judge(store, 160 * SECOND - 1) == []
    assert regrowth.judge(store, 160 * SECOND) == ([("web", FIRST_WAIT)] if back else [])
    assert regrowth.next_at() is None
    until = 160 * SECOND + FIRST_WAIT
    assert regrowth.held(store, until - 1) == ({"web": until} if back else {})
    assert regrowth.held(store, until) == {}


def test_suspicion_before_the_end_holds_for_a_minute() -> None:
    """While a command is in progress, each check extends the suspicion by a minute."""
    store = store_of(claim("n1", "n1"), pod("a", "n1", "rs"))
    regrowth = Regrowth()
    regrowth.begin(run("n1", "other/n2"), store)
    store.observe(claim("new", "n3"))
    store.observe(pod("b", "n3", "rs"))
    assert regrowth.held(store, 5 * SECOND) == {"web": 65 * SECOND, "other": 65 * SECOND}
    assert regrowth.judge(store, 10**15) == []
    assert regrowth.next_at() is None
    regrowth.end(run("n1"), 0, well=False)
    assert regrowth.held(store, 5 * SECOND) == {}
    regrowth.end(run("n1"), 0, well=True)
    assert regrowth.next_at() is None


def test_what_came_before_a_second_action_still_counts_against_the_first() -> None:
    """A NodeClaim that is old for the second command is new for the first."""
    store = store_of(claim("n1", "n1"), claim("n2", "n2"), pod("a", "n1", "rs"), pod("o", "n2", "other"))
    regrowth = Regrowth()
    regrowth.begin(run("n1"), store)
    store.vanish("Pod", "d", "a")
    for item in (claim("new", "n3"), pod("b", "n3", "rs"), pod("p", "n3", "other")):
        store.observe(item)
    regrowth.begin(run("two/n2", ident="c2"), store)
    assert regrowth.held(store, 5 * SECOND) == {"web": 65 * SECOND}


def test_regrowth_looks_at_the_earliest_first() -> None:
    """The earliest command is checked first; forgotten commands are not checked."""
    store = store_of(claim("n1", "n1"), pod("a", "n1", "rs"))
    regrowth = Regrowth()
    for number, at in enumerate((7, 3, 5)):
        regrowth.begin(run("n1", ident=f"c{number}"), store)
        regrowth.end(run("n1", ident=f"c{number}"), at * SECOND, well=True)
    assert regrowth.next_at() == 3 * SECOND + LOOK_AFTER
    regrowth.forget()
    assert regrowth.next_at() is None


def test_an_action_that_held_ends_the_row() -> None:
    """An action that holds resets the wait, unless the pool is still waiting."""
    regrowth, store = regrown(claim("new", "n3"), pod("b", "n3", "rs"))
    assert regrowth.judge(store, 160 * SECOND) == [("web", FIRST_WAIT)]
    store.vanish("NodeClaim", "", "new")
    for at, failures in ((161, 1), (160 + FIRST_WAIT // SECOND, 0)):
        regrowth.waits.expire(at * SECOND)
        regrowth.begin(run("n1"), store)
        regrowth.end(run("n1"), at * SECOND - LOOK_AFTER, well=True)
        assert regrowth.judge(store, at * SECOND) == []
        assert regrowth.waits.failures("web") == failures


@pytest.mark.parametrize(
    ("saves", "prices", "wait"),
    [
        (1000, (500,), FIRST_WAIT // 2),
        (1000, (250, 250), FIRST_WAIT // 2),
        (1000, (999,), FIRST_WAIT * 999 // 1000),
        (1000, (1000,), FIRST_WAIT),
        (1000, (2000,), FIRST_WAIT),
        (1000, (100,), LEAST_WAIT),
        (1000, (99,), LEAST_WAIT),
        (1000, (101,), FIRST_WAIT * 101 // 1000),
        (1000, (None,), FIRST_WAIT),
        (1000, (None, 10), FIRST_WAIT),
        (None, (10,), FIRST_WAIT),
        (None, (0,), FIRST_WAIT),
        (0, (0,), FIRST_WAIT),
    ],
)
def test_first_wait_by_what_was_lost(saves: int | None, prices: tuple[int | None, ...], wait: int) -> None:
    """The first wait depends on the lost share of the savings: at least a minute, all of it if unknown."""
    came = [(claim(f"new{i}", f"m{i}"), pod(f"b{i}", f"m{i}", "rs")) for i in range(len(prices))]
    regrowth, store = regrown(*(item for pair in came for item in pair), saves=saves)

    def price_of(item: NodeClaim) -> Money | None:
        return prices[int(item.metadata.name.removeprefix("new"))]

    assert regrowth.judge(store, 160 * SECOND, price_of) == [("web", wait)]


@pytest.mark.parametrize(("key", "ours"), [(names.HOLD, True), (names.COMMAND, True), (names.DO_NOT_DISRUPT, False)])
def test_which_claims_are_ours(key: str, ours: bool) -> None:
    """Either mark identifies a NodeClaim of Dovetail."""
    assert is_ours(claim("c", **{key: "x"})) == ours


# ---------------------------------------------------------------- aftercare


def every(pool: str) -> bool:
    """Return True for every pool."""
    return True


def cared(limit_of: Callable[[str], int | None] = lambda of: 60 * SECOND) -> tuple[Aftercare, Store]:
    """Return the aftercare state after a command on two pools whose pod of rs left at 100 s."""
    store = store_of(pool("web"), pool("two"), replica_set("rs", 1), pod("a", "n1", "rs"))
    care = Aftercare()
    care.begin(run("n1", "two/n2"), store, limit_of)
    store.vanish("Pod", "d", "a")
    care.left("c1", 100 * SECOND)
    return care, store


def test_aftercare_counts_once_for_a_version_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aftercare counts again only after a change, and at most every two seconds."""
    counted = []
    monkeypatch.setattr(
        "dovetail.lifecycle.memory.aftercare.missing",
        lambda before, store: counted.append(store.version) or missing(before, store),  # type: ignore[func-returns-value]
    )
    care, store = cared()
    assert care.next_at() == 0
    assert sorted(care.unsettled(store)) == ["two", "web"]
    assert care.look(store, 110 * SECOND, every) == ([], False)
    assert len(counted) == 1
    assert care.next_at() == 112 * SECOND
    store.observe(pod("b", "n3", "rs"))
    assert care.unsettled(store) == {}
    assert care.look(store, 112 * SECOND, every) == ([], True)
    assert care.next_at() is None
    assert care.look(store, 114 * SECOND, every) == ([], False)


def test_aftercare_of_pools_with_different_limits() -> None:
    """Each pool halts at its own limit; a pool without a limit never halts."""
    care, store = cared({"web": 60 * SECOND, "two": 90 * SECOND}.get)
    assert care.look(store, 160 * SECOND - 1, every)[0] == []
    [order] = care.look(store, 160 * SECOND, every)[0]
    assert (order.node_pool, order.id) == ("web", "halt/web/on/c1")
    assert care.look(store, 162 * SECOND, every)[0] == [], "it is asked for already"
    halted = pool("web", annotations={names.HALTED: order.value or ""})
    store.observe(msgspec.structs.replace(halted, metadata=msgspec.structs.replace(halted.metadata)))
    assert care.look(store, 164 * SECOND, every)[0] == []
    assert list(care.unsettled(store)) == ["two"]
    store.vanish("NodePool", "", "two")
    assert care.look(store, 190 * SECOND, every)[0] == [], "a pool that is gone can't be halted"
    assert care.next_at() is None


def test_aftercare_begins_once() -> None:
    """Aftercare compares with the pods before the first one left."""
    store = store_of(pool("web"), replica_set("rs", 1), pod("a", "n1", "rs"))
    care = Aftercare()
    care.begin(run("n1"), store, lambda of: SECOND)
    store.vanish("Pod", "d", "a")
    care.begin(run("n1"), store, lambda of: SECOND)
    assert care.next_at() is None, "its nodes are still there"
    assert care.unsettled(store) == {}
    assert care.look(store, 10 * SECOND, every) == ([], False)
    care.left("c1", 0)
    care.left("unknown", 0)
    assert list(care.unsettled(store)) == ["web"]
    care.forget()
    assert care.unsettled(store) == {}


@pytest.mark.parametrize(
    ("ready", "manages", "back", "ends"),
    [
        ((("rs", 1),), True, 1, True),
        ((("rs", 2),), True, 1, False),
        ((("rs", 1),), False, 1, False),
        ((), True, 1, False),
    ],
)
def test_halts_of_a_predecessor_end(ready: tuple[tuple[str, int], ...], manages: bool, back: int, ends: bool) -> None:
    """A found halt ends when its owners have enough ready pods; one without owners stays until resumed."""
    value = write_halt(Halt(why="w", command="old", ready=ready))
    items = [pod(f"p{index}", "n", "rs") for index in range(back)]
    store = store_of(pool("web", annotations={names.HALTED: value}), pool("two"), replica_set("rs", 2), *items)
    orders, settled = Aftercare().look(store, 0, lambda of: manages)
    assert [(order.id, order.node_pool, order.value) for order in orders] == (
        [("halt/web/off/old", "web", None)] if ends else []
    )
    assert not settled


def test_few_owners_are_named() -> None:
    """The halt names five owners, by namespace, kind and name."""
    store = store_of(pool("web"), *(replica_set(f"r{i}", 1) for i in range(6)), stateful_set("db", 1))
    for index in range(6):
        store.observe(pod(f"p{index}", "n1", f"r{index}"))
    store.observe(pod("q", "n1", "db", kind="StatefulSet"))
    care = Aftercare()
    care.begin(run("n1"), store, lambda of: SECOND)
    care.left("c1", 0)
    named = ", ".join(f"d/ReplicaSet/r{index}" for index in range(5))
    assert care.unsettled(store) == {
        "web": f"Pods that command c1 moved are not ready yet ({named}): NodePool web waits."
    }


# ---------------------------------------------------------------- waste


def test_waste_grows_at_the_lesser_rate_and_not_unseen() -> None:
    """Waste grows at the lower of two rates for at most a quarter hour; a node that cannot go loses it."""
    store = store_of(Node(metadata=ObjectMeta(name="a")), Node(metadata=ObjectMeta(name="b")))
    book = WasteBook()

    def told(minutes: int, **rates: int | None) -> dict[str, tuple[int, int]]:
        book.update(rates, store, NOW + timedelta(minutes=minutes))
        return {name: (entry.amount, entry.rate) for name, entry in book.known().items()}

    assert told(0, a=600, b=1200) == {"a": (0, 600), "b": (0, 1200)}
    assert told(6, a=300) == {"a": (30, 300), "b": (0, 1200)}
    assert told(12, a=600, b=600) == {"a": (60, 600), "b": (120, 600)}
    assert told(12 + 60, a=600) == {"a": (60 + 150, 600), "b": (120, 600)}
    assert told(73, b=None) == {"a": (210, 600)}
    assert told(74, b=60, gone=5) == {"a": (210, 600), "b": (0, 60)}
    store.vanish("Node", "", "a")
    assert told(75) == {"b": (0, 60)}
    book.forget()
    assert book.known() == {}


# ---------------------------------------------------------------- outcomes


def begun(**parts: object) -> Outcomes:
    """Return a book with a command c of pool web that promises a dollar."""
    book = Outcomes()
    movers = parts.get("movers", ())
    book.begin("c", Action.DELETE_COST, ("web",), 1.0, movers, NOW)  # type: ignore[arg-type]
    return book


def test_promise_that_is_known_at_the_end() -> None:
    """Earlier losses count against a promise that is known at the end."""
    book = begun()
    book.opened("n", "web", 0.25, 0)
    book.end("c", 0, well=True, promised=0.5)
    book.opened("m", "web", 1.0, 0)
    [found] = book.due(HOUR)
    assert (found.promised, found.saved, found.reopened) == (0.5, 0.0, 2)
    assert book.due(HOUR) == []
    book.end("c", 0, well=True)
    assert book.due(HOUR) == []


def test_figures_are_rounded() -> None:
    """The figures are rounded to a millionth of a dollar."""
    book = Outcomes()
    book.begin("c", Action.DELETE_EMPTY, ("web",), 0.123456789, (), NOW)
    book.end("c", 0, well=True)
    [found] = book.due(HOUR)
    assert (found.promised, found.saved) == (0.123457, 0.123457)


def test_claims_that_come_are_known_until_their_price_is() -> None:
    """New claims are kept until their price is known, while a command is watched."""
    book = Outcomes()
    book.came("n")
    assert not book.is_coming("n")
    book = begun()
    for name in ("n", "m"):
        book.came(name)
        assert book.is_coming(name)
    book.opened("n", "web", 0.5, 0)
    book.gone("m")
    assert not book.is_coming("n")
    assert not book.is_coming("m")


def test_pods_moved_again_are_counted_for_the_last_command_once() -> None:
    """A pod that moves again counts once for the last command, up to the number that it moved."""
    movers = [Mover(owner="rs", created=None), Mover(owner="db", created=NOW)]
    book = begun(movers=movers)
    again = [Mover(owner="rs", created=NOW), Mover(owner="rs", created=NOW), Mover(owner="db", created=None)]
    older = Mover(owner="db", created=NOW - timedelta(microseconds=1))
    book.begin("d", Action.REPLACE_COST, ("web",), 1.0, [*again, older], NOW + timedelta(hours=1))
    book.begin("d", Action.REPLACE_COST, ("web",), 9.0, [Mover(owner="db", created=NOW)], NOW)
    for ident in ("c", "d"):
        book.end(ident, 0, well=True)
    first, second = book.due(HOUR)
    assert (first.pods, first.moved_again, second.pods, second.moved_again) == (2, 1, 4, 0)
    assert second.promised == 1.0


def test_a_full_book_keeps_as_many_as_it_may() -> None:
    """A full book drops the oldest command."""
    book = Outcomes()
    for number in range(KEPT_MAX + 1):
        book.begin(f"c{number}", Action.DELETE_COST, ("web",), 1.0, (), NOW)
        book.end(f"c{number}", 0, well=True)
    found = book.due(HOUR)
    assert (len(found), found[0].command_id) == (KEPT_MAX, "c1")


def test_what_has_nothing_left_to_lose_is_not_charged() -> None:
    """A loss is charged to the latest command of the pool that has savings left."""
    book = begun()
    book.begin("other", Action.DELETE_COST, ("two",), 1.0, (), NOW)
    book.begin("nothing", Action.DELETE_COST, ("web",), 0.0, (), NOW)
    book.opened("n", "web", 0.25, 0)
    for ident in ("c", "other", "nothing"):
        book.end(ident, 0, well=True)
    assert [(found.command_id, found.reopened) for found in book.due(HOUR)] == [("c", 1), ("other", 0), ("nothing", 0)]


# ---------------------------------------------------------------- pod events


def test_events_are_times_of_the_wall() -> None:
    """Event times are wall times to the microsecond; removed nodes are forgotten."""
    events = PodEvents()
    events.note(None, pod("a", "n1"), 1_999_000)
    first = events.times(NOW, 5_000_000)
    assert first == {"n1": NOW - timedelta(microseconds=5000 - 1999)}
    assert events.times(NOW, 5_000_999) is first
    events.forget("unknown")
    assert events.times(NOW, 5_000_000) is first
    later = events.times(NOW + timedelta(seconds=1), 5_000_000)
    assert later == {"n1": NOW + timedelta(seconds=1) - timedelta(microseconds=3001)}
    events.forget("n1")
    assert events.times(NOW, 5_000_000) == {}


# ---------------------------------------------------------------- in the engine


def test_nothing_is_remembered_of_a_command_that_was_undone() -> None:
    """A command whose deletion is refused leaves nothing in the memory."""
    settings = replace(
        CALM, stabilization=Stabilization(), stabilization_ends=StabilizationEnds.LANDED, validation_delay=0
    )
    talk = Talk(settings)
    limits = json.dumps({"health": {"movedPodsReadyWithin": "60s"}})
    for item in (pool(annotations={names.POLICY_ANNOTATION: limits}), replica_set("rs", 1), pod("a", "n1", "rs")):
        talk.world.put(item)
    talk.world.add_node("n1", want="cost-delete")
    state = talk.engine._state
    noted = []

    def fail(asked: Instruction) -> Failure | None:
        if not isinstance(asked, DeleteNodeClaim):
            return None
        books = (state.aftercare._moved, state.landing._moved, state.regrowth._watched, state.outcomes._watched)
        noted.append(tuple(len(book) for book in books))
        return Failure.REFUSED

    talk.world.fail = fail
    talk.begin().run(5)
    assert talk.ends() == ["failed"]
    assert noted == [(1, 1, 1, 1)]
    assert (state.aftercare._moved, state.landing._moved) == ({}, {})
    assert (state.regrowth._watched, state.outcomes._watched) == ({}, {})
