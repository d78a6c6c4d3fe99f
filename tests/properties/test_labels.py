from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.labels.requirements import Requirement, Requirements
from dovetail.model.labels.syntax import WELL_KNOWN

VALUES = st.sampled_from(["a", "b", "c", "3", "5", "8", "+5", "x-1"])
KEYS = st.sampled_from(["example.com/a", "b", "topology.kubernetes.io/zone"])
BOUNDS = st.integers(2, 9).map(lambda number: (str(number),))


@st.composite
def requirement(draw: st.DrawFn, key: str | None = None) -> Requirement:
    """Build any requirement on one of a few keys."""
    operator = draw(st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]))
    values: tuple[str, ...] = ()
    if operator in {"In", "NotIn"}:
        values = tuple(draw(st.lists(VALUES, min_size=1, max_size=4)))
    elif operator not in {"Exists", "DoesNotExist"}:
        values = draw(BOUNDS)
    return Requirement.of(key or draw(KEYS), operator, values, draw(st.none() | st.integers(1, 3)))


SAME_KEY = requirement("k")
MANY = st.lists(requirement(), max_size=5).map(Requirements)


@given(SAME_KEY, SAME_KEY, VALUES)
def test_an_intersection_admits_what_both_admit(one: Requirement, other: Requirement, value: str) -> None:
    """An intersection admits a value exactly if both requirements do."""
    assert one.intersection(other).has(value) is (one.has(value) and other.has(value))


@given(SAME_KEY, SAME_KEY)
def test_the_quick_question_agrees_with_the_intersection(one: Requirement, other: Requirement) -> None:
    """has_intersection is symmetric, and false exactly where the intersection is DoesNotExist."""
    assert one.has_intersection(other) is other.has_intersection(one)
    assert one.has_intersection(other) is (one.intersection(other).operator() != "DoesNotExist")


@given(SAME_KEY, SAME_KEY, SAME_KEY)
def test_intersections_form_a_semilattice(a: Requirement, b: Requirement, c: Requirement) -> None:
    """Intersection is commutative, associative and idempotent."""
    assert a.intersection(b) == b.intersection(a)
    assert a.intersection(b).intersection(c) == a.intersection(b.intersection(c))
    assert a.intersection(a) == a


@given(MANY)
def test_written_requirements_read_back(requirements: Requirements) -> None:
    """Writing and reading again gives the same, but for values left out between bounds, which Karpenter drops."""
    again = Requirements.from_spec(requirements.to_spec())
    assert again.to_spec() == requirements.to_spec()
    for key, read in again.items():
        kept = requirements[key]
        if kept.gte is None and kept.lte is None:
            assert read == kept


@given(MANY, MANY, st.sampled_from([frozenset[str](), WELL_KNOWN]))
def test_words_and_quick_answers_agree(one: Requirements, other: Requirements, allowed: frozenset[str]) -> None:
    """A refusal sentence exists exactly if the quick check fails."""
    assert (one.compatible(other, allowed) is None) is one.is_compatible(other, allowed)
    assert (one.intersects(other) is None) is one.is_intersecting(other)


@given(MANY, st.dictionaries(KEYS, VALUES))
def test_existing_labels_are_judged_like_requirements(wanted: Requirements, labels: dict[str, str]) -> None:
    """The shortcut for a node's labels agrees with the requirement algebra."""
    assert wanted.admits(labels) is Requirements.from_labels(labels).is_compatible(wanted)
