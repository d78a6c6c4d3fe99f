"""The promise of commands and the result an hour later: the bookkeeping, and the engine that keeps it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.decide.question import Question
from dovetail.lifecycle.commands.attempts import SECOND
from dovetail.lifecycle.engine import Engine
from dovetail.lifecycle.memory.outcomes import HOUR, KEPT_MAX, Mover, Outcomes
from dovetail.lifecycle.reports import CommandOutcome
from dovetail.model import names
from dovetail.model.catalogue import Catalogue
from dovetail.model.command import Action, Command
from dovetail.model.money import UNIT
from dovetail.model.objects import Node, NodeClaim, ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from tests.support.design_world import kind
from tests.support.lifecycle_world import CALM, Driver, ScriptedPlanner, World

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = 60 * SECOND


def _book(promised: float = 0.5, *, pods: int = 2, ident: str = "one", pool: str = "web") -> Outcomes:
    """Return a book with a command that ended at minute ten."""
    book = Outcomes()
    _command(book, ident, promised, pods=pods, pool=pool)
    return book


def _command(
    book: Outcomes, ident: str, promised: float = 0.5, *, pods: int = 0, pool: str = "web", created: float = -1.0
) -> None:
    movers = [Mover(owner="app", created=NOW + timedelta(minutes=created))] * pods
    book.begin(ident, Action.DELETE_COST, (pool,), promised, movers, NOW)
    book.end(ident, 10 * MINUTE, well=True)


def _only(book: Outcomes, minutes: float = 70) -> CommandOutcome:
    (found,) = book.due(int(minutes * MINUTE))
    return found


def test_a_promise_that_is_kept() -> None:
    """Without new nodes the whole promise was saved; it is reported once, after the hour."""
    book = _book()
    assert book.due(70 * MINUTE - 1) == []
    found = _only(book)
    assert (found.promised, found.saved, found.reopened, found.pods, found.moved_again) == (0.5, 0.5, 0, 2, 0)
    assert found.held
    assert book.due(2 * HOUR) == []


@pytest.mark.parametrize(
    ("opened", "saved", "reopened"),
    [
        ([(10, "web", 0.5)], 0.0, 1),
        ([(40, "web", 0.5)], 0.25, 1),
        ([(40, "web", 0.2)], 0.4, 1),
        ([(5, "web", 0.2)], 0.3, 1),
        ([(40, "web", 0.9)], 0.25, 1),
        ([(40, "web", 0.3), (55, "web", 0.3)], 0.3, 2),
        ([(40, "web", 0.5), (55, "web", 0.5)], 0.25, 1),
        ([(40, "other", 0.5)], 0.5, 0),
    ],
    ids=[
        "at once: nothing was saved", "half an hour later", "a cheaper one", "before the end: from the end on",
        "a dearer one takes no more than was promised", "two", "what has lost all loses no more", "in another pool",
    ],
)  # fmt: skip
def test_nodes_that_were_opened_again(opened: list[tuple[int, str, float]], saved: float, reopened: int) -> None:
    """The cost of new nodes until the end of the hour reduces the savings."""
    book = _book()
    for number, (minute, pool, price) in enumerate(opened):
        book.came(f"c{number}")
        book.opened(f"c{number}", pool, price, minute * MINUTE)
    found = _only(book)
    assert found.saved == pytest.approx(saved)
    assert found.reopened == reopened
    assert found.held == (saved >= 0.45)


def test_the_last_command_loses_first() -> None:
    """The later of two commands of a pool is charged first, until it has nothing left."""
    book = _book(ident="early")
    _command(book, "late", 0.2)
    book.opened("c", "web", 0.5, 10 * MINUTE)
    book.opened("d", "web", 0.5, 10 * MINUTE)
    early, late = book.due(70 * MINUTE)
    assert (early.command_id, early.saved, late.command_id, late.saved) == ("early", 0.0, "late", 0.0)


@pytest.mark.parametrize(
    ("pods", "created", "again"),
    [(1, 5, 1), (2, 5, 2), (3, 5, 2), (2, -1, 0)],
    ids=["one", "all", "no more than it moved", "pods that were there before"],
)
def test_pods_that_are_moved_again(pods: int, created: float, again: int) -> None:
    """A new pod of a moved pod's owner that another command moves counts as moved again."""
    book = _book()
    _command(book, "two", pods=pods, created=created)
    first, second = book.due(70 * MINUTE)
    assert (first.moved_again, second.moved_again) == (again, 0)
    assert first.held == (again == 0)


def test_what_is_not_watched() -> None:
    """Drift and rolled-back commands are not watched; a full book drops the oldest."""
    book = Outcomes()
    book.begin("drift", Action.REPLACE_DRIFTED, ("web",), 1.0, (), NOW)
    book.end("drift", 0, well=True)
    book.begin("undone", Action.DELETE_COST, ("web",), 1.0, (), NOW)
    book.end("undone", 0, well=False)
    assert book.due(2 * HOUR) == []
    for number in range(KEPT_MAX + 5):
        _command(book, f"c{number}")
    assert [found.command_id for found in book.due(2 * HOUR)][:1] == ["c5"]
    book.came("x")
    assert not book.is_coming("x"), "nobody is watched: nobody could lose by it"


def _pod(name: str, node: str) -> Pod:
    owner = OwnerReference(kind="ReplicaSet", name="app", uid="rs-1", api_version="apps/v1")
    meta = ObjectMeta(name=name, namespace="", owner_references=(owner,))
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(phase="Running"))


class Promising(ScriptedPlanner):
    """Promise savings of half a dollar per hour for every command."""

    def _wish(self, node: Node, question: Question) -> Command | None:
        command = super()._wish(node, question)
        return command and replace(command, savings=UNIT // 2)


def _send(driver: Driver, world: World) -> None:
    changes, world.changes = world.changes, []
    for event in changes:
        driver.send(event)


@pytest.mark.parametrize("opens", [False, True], ids=["it held", "a node was opened"])
def test_the_engine_reports_an_hour_after_the_end(opens: bool) -> None:
    """The report comes once, an hour after `done`, with the money and the nodes."""
    world = World()
    world.add_pool()
    world.add_node("z")
    world.add_node("a", want="cost-delete")
    world.put(_pod("p", "a"))
    catalogue = Catalogue(instance_types=(kind("m", "0.20"),))
    driver = Driver(world, Engine(CALM, catalogue, decider=Promising())).begin()
    while driver.ends() != ["done"]:
        driver.run(1)
    if opens:
        labels = {names.NODEPOOL: "web"}
        world.put(NodeClaim(metadata=ObjectMeta(name="fresh", labels=labels)))
        _send(driver, world)
        offer = catalogue.instance_types[0].offerings[0]
        bought = {names.INSTANCE_TYPE: "m", names.ZONE: offer.zone, names.CAPACITY_TYPE: offer.capacity_type}
        fresh = world.get(NodeClaim, "fresh")
        assert fresh is not None
        meta = msgspec.structs.replace(fresh.metadata, labels={**labels, **bought})
        world.put(msgspec.structs.replace(fresh, metadata=meta))
        _send(driver, world)
    driver.run(3590)
    assert driver.reports("outcome") == []
    driver.run(120)
    (report,) = driver.reports("outcome")
    assert isinstance(report, CommandOutcome)
    assert report.pools == ("web",)
    assert report.pods == 1
    assert report.reopened == int(opens)
    assert report.promised == 0.5
    assert report.saved == pytest.approx(0.3 if opens else 0.5, abs=0.001)


def test_a_successor_knows_nothing_of_it() -> None:
    """An engine that loses the lease forgets its promises."""
    book = _book()
    book.forget()
    assert book.due(2 * HOUR) == []


@pytest.mark.parametrize(
    ("promised", "saved", "moved_again", "held"),
    [(1.0, 0.9, 0, True), (1.0, 0.89, 0, False), (1.0, 1.0, 1, False), (0.0, 0.0, 0, True)],
    ids=["nine tenths", "less", "a pod moved again", "nothing was promised"],
)
def test_when_a_promise_counts_as_kept(promised: float, saved: float, moved_again: int, held: bool) -> None:
    """A promise is kept if nine tenths were saved and no pod moved again."""
    told = CommandOutcome(
        command_id="c",
        action=Action.DELETE_COST,
        pools=("web",),
        promised=promised,
        saved=saved,
        reopened=0,
        pods=2,
        moved_again=moved_again,
    )
    assert told.held == held
