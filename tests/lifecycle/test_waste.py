"""What the engine keeps of what nodes waste (docs/rules.md#waste)."""

from datetime import UTC, datetime, timedelta

from dovetail.lifecycle.memory.waste import WasteBook
from dovetail.lifecycle.store import Store
from dovetail.model.objects import AnyObject, Node, ObjectMeta

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)


def store_of(*items: AnyObject) -> Store:
    """Return a store that holds these objects."""
    store = Store()
    for item in items:
        store.observe(item)
    return store


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
