"""Text from a cluster can't break a line, a page or the direction of reading."""

import pytest

from dovetail.model.command import Action
from dovetail.model.money import parse_money
from dovetail.report.page import name, page, table, text
from dovetail.report.scripts import script
from dovetail.report.svg import Dot, Series, histogram, line_chart, nice_step, scatter
from dovetail.report.words import action_words, count, dollars, listing, safe, span

HOSTILE = [
    "a\nb",
    "\x1b[31mred\x1b[0m",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe",
    "\u2066isolate\u2069",
    "\u2028line",
    "x" * 253,
    "a\x00b",
    "\ud800",
]


@pytest.mark.parametrize("evil", HOSTILE)
def test_safe_text_stays_on_one_line(evil: str) -> None:
    """No control, format or separator character survives; what was there can still be seen."""
    shown = safe(evil)
    assert shown.isprintable()
    assert len(shown.splitlines()) == 1
    assert len(shown) <= 300


def test_what_is_hidden_becomes_visible() -> None:
    """A right-to-left mark is shown by its number, not dropped."""
    assert safe("a\u202eb") == "a\\u{202e}b"


@pytest.mark.parametrize("evil", HOSTILE)
def test_pages_and_plots_carry_no_foreign_markup(evil: str) -> None:
    """Names from a cluster add no element and no attribute to a page or a plot."""
    parts = [
        page(evil, text(evil), table([evil], [[name(evil)]]), evil),
        line_chart(evil, [Series(name=evil, points=[(0, 1), (1, 2)])], y_label=evil),
        histogram(evil, [(evil, [1.0])], edges=[0, 1], labels=[evil, evil]),
        scatter(evil, [Dot(name=evil, x=1, y=1, front=True)], x_label=evil, y_label=evil),
    ]
    own = (script(), "<script>", '<script type="application/json"')
    for whole in parts:
        markup = whole
        for part in own:
            markup = markup.replace(part, "")
        assert "<script" not in markup
        assert "<img" not in markup
        assert "\u202e" not in markup
        assert "\x1b" not in markup
        markup.encode()


def test_a_page_fetches_nothing() -> None:
    """A page names no address outside itself and forbids fetching altogether."""
    made = page("t", "l", "b", "f")
    made = made.replace('"http://www.w3.org/2000/svg"', "")  # the name of a language, not an address
    assert "http://" not in made
    assert "https://" not in made
    assert "default-src 'none'" in made


@pytest.mark.parametrize(
    ("amount", "places", "shown"),
    [
        ("0.006", 4, "$0.0060"),
        ("1234.5", 2, "$1,234.50"),
        ("-0.25", 2, "-$0.25"),
        ("0.99999", 2, "$1.00"),
        ("7", 0, "$7"),
    ],
)
def test_dollars_are_rounded_once_and_grouped(amount: str, places: int, shown: str) -> None:
    """Money for people is rounded half up from the exact amount."""
    assert dollars(parse_money(amount), places) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (59, "59s"), (60, "1m"), (840, "14m"), (7500, "2h5m"), (273600, "3d4h")]
)
def test_spans_have_two_units(seconds: int, shown: str) -> None:
    """A length of time is shown in its two largest units."""
    assert span(seconds) == shown


def test_counts_and_listings() -> None:
    """One node, two nodes; long lists end in how many more there are."""
    assert count(1, "node") == "1 node"
    assert count(2000, "node") == "2,000 nodes"
    assert listing(["a", "b", "c"]) == "a, b and c"
    assert listing(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert listing([]) == ""


@pytest.mark.parametrize("extent", [0.0, 0.003, 0.7, 1, 3, 9.99, 10, 17, 99, 100, 12345])
def test_grid_steps_are_round(extent: float) -> None:
    """Grid steps are 1, 2 or 5 times a power of ten and give at most six of them."""
    step = nice_step(extent)
    assert extent / step <= 5.01
    digits = f"{step:e}".split("e")[0].rstrip("0").rstrip(".")
    assert digits in ("1", "2", "5")


def test_every_action_has_words() -> None:
    """Headings name an action without its key."""
    shown = {action.value: action_words(action.value) for action in Action}
    assert shown["deleteEmpty"] == "delete empty"
    assert shown["replaceCost"] == "replace for cost"
    assert all(words.islower() for words in shown.values())
