import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.findings import InputError
from dovetail.api.reading.yaml_tree import parse_yaml


def only(text: str) -> object:
    """Read the one document of a text."""
    (document,) = parse_yaml(text)
    return document.tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0x1f", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12:30", "12:30"),
        ("1h30m", "1h30m"),
        ("10%", "10%"),
        ("2026-03-14", "2026-03-14"),
        ("2026-03-14T15:30:00Z", "2026-03-14T15:30:00Z"),
        ("yes", True),
        ("off", False),
        ("n", False),
        ("~", None),
        ("null", None),
        ("''", ""),
        ('"5"', "5"),
        ("!!str 5", "5"),
        ("!!float 5", 5.0),
        ("@daily is text", None),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(text: str, value: object) -> None:
    """Dates and sexagesimals stay text, 1e3 is a number, y/n are booleans; what YAML forbids is refused."""
    if text.startswith("@"):
        with pytest.raises(InputError, match="not YAML"):
            only(text)
        return
    read = only(text)
    assert read == value
    assert type(read) is type(value)


def test_keys_are_text() -> None:
    """A map's keys become the JSON keys that Kubernetes makes of them."""
    assert only("1: a\ntrue: b\nnull: c\n") == {"1": "a", "true": "b", "null": "c"}


def test_the_last_of_two_keys_stands_and_both_are_reported() -> None:
    """A key given twice is what Kubernetes lets pass: the last one counts; the line is told."""
    (document,) = parse_yaml("a: 1\nb: 2\na: 3\n")
    assert document.tree == {"a": 3, "b": 2}
    assert document.duplicates == (("a", 3),)


def test_anchors_and_merges() -> None:
    """Anchors, aliases and merge keys work; a key of the map itself wins over a merged one."""
    assert only("base: &x {a: 1, b: 2}\nmore: {<<: *x, b: 3}\nlist: {<<: [*x, {c: 4}]}\nsame: *x\n") == {
        "base": {"a": 1, "b": 2},
        "more": {"a": 1, "b": 3},
        "list": {"a": 1, "b": 2, "c": 4},
        "same": {"a": 1, "b": 2},
    }


def bomb(levels: int) -> str:
    """Write nine to the power of `levels` values in a few lines."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (bomb(12), "YAML bomb"),
        ("a: &a [*a]", "no complete &anchor"),
        ("- " * 5000 + "x", "200 levels"),
        ("a: " + "[" * 5000, "200 levels"),
        ("a: *nowhere", r"\*nowhere"),
        ("{a: 1}: b", "keys must be text"),
        ("<<: 5", "not a map"),
        ("a: [1", "not YAML"),
        ("\ta: 1", "not YAML"),
    ],
)
def test_what_would_hurt_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    """Bombs, cycles, endless nesting and broken syntax end in one sentence."""
    with pytest.raises(InputError, match=sentence) as refusal:
        list(parse_yaml(text))
    assert "\n" not in str(refusal.value)


def test_a_small_web_of_aliases_is_no_bomb() -> None:
    """Honest use of aliases passes."""
    assert len(only(bomb(4))) == 4  # type: ignore[arg-type]


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_json_reads_as_itself(tree: object) -> None:
    """Every JSON text is YAML with the same meaning."""
    text = json.dumps(tree)
    assert only(text) == json.loads(text)


NO_FLOATS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcdef", min_size=2), inner, max_size=4),
    max_leaves=12,
)


@given(NO_FLOATS)
def test_what_is_written_as_yaml_reads_back(tree: object) -> None:
    """Write, read: the same tree."""
    assert only(yaml.safe_dump(tree)) == tree
