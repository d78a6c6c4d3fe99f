"""What commands promised, what came of it, and how that is counted and rounded."""

from datetime import UTC, datetime, timedelta

from dovetail.lifecycle.memory.outcomes import HOUR, KEPT_MAX, Mover, Outcomes
from dovetail.model.command import Action

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


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
