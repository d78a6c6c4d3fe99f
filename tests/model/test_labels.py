import pytest

from dovetail.model.labels.requirements import INT_MAX, Requirement, Requirements
from dovetail.model.labels.selectors import MATCHES_EVERYTHING, MATCHES_NOTHING, LabelSelector
from dovetail.model.labels.syntax import WELL_KNOWN, is_label_value, is_qualified_name, well_known
from dovetail.model.objects import LabelSelectorSpec, SelectorRequirement

of = Requirement.of


def selector(labels: dict[str, str], *expressions: tuple[str, str, tuple[str, ...]]) -> LabelSelector:
    """Compile a selector from plain values."""
    entries = tuple(SelectorRequirement(key=key, operator=op, values=values) for key, op, values in expressions)
    return LabelSelector.compile(LabelSelectorSpec(match_labels=labels, match_expressions=entries))


def test_bounds_become_inclusive() -> None:
    """Gt 4 is Gte 5 and Lt 9 is Lte 8; together they are written as two entries."""
    both = of("cpu", "Gt", ["4"]).intersection(of("cpu", "Lt", ["9"]))
    assert (both.gte, both.lte, both.operator()) == (5, 8, "Exists")
    assert [(spec.operator, spec.values) for spec in both.to_spec()] == [("Gte", ("5",)), ("Lte", ("8",))]
    assert both.has("5")
    assert both.has("8")
    assert not both.has("9")
    assert not both.has("many")


def test_nothing_is_greater_than_the_greatest_integer() -> None:
    """Gt of the largest integer admits nothing rather than wrap around."""
    assert of("cpu", "Gt", [str(INT_MAX)]).operator() == "DoesNotExist"


def test_bounds_that_exclude_each_other_admit_nothing() -> None:
    """Gte 9 with Lte 3 is DoesNotExist and keeps minValues."""
    none = of("cpu", "Gte", ["9"], 2).intersection(of("cpu", "Lte", ["3"]))
    assert (none.operator(), none.min_values) == ("DoesNotExist", 2)


def test_an_unknown_operator_is_refused_with_a_remedy() -> None:
    """The refusal names the unknown operator and the valid ones."""
    with pytest.raises(ValueError, match="'Like' is not an operator on labels; write In, NotIn"):
        of("a", "Like", ["b"])


def test_minimum_numbers_of_values_add_up_to_the_larger() -> None:
    """An intersection keeps the larger minValues, in its text too."""
    both = of("a", "In", ["x", "y"], 1).intersection(of("a", "Exists", (), 2))
    assert str(both) == "a In [x y] minValues 2"
    assert Requirements([both]).has_min_values()
    assert not Requirements([of("a", "Exists")]).has_min_values()


def test_long_lists_are_cut_in_words() -> None:
    """Of seven values five are shown, sorted."""
    assert str(of("a", "In", list("gfedcba"))) == "a In [a b c d e and 2 others]"


def test_old_label_names_are_read_as_the_new_ones() -> None:
    """A node or pod that still says beta.kubernetes.io/arch means kubernetes.io/arch."""
    wanted = Requirements([of("beta.kubernetes.io/arch", "In", ["arm64"])])
    assert "kubernetes.io/arch" in wanted
    assert wanted.admits({"kubernetes.io/arch": "arm64"})
    assert wanted.admits({"beta.kubernetes.io/arch": "arm64"})
    assert not wanted.admits({"kubernetes.io/arch": "amd64"})


def test_undefined_labels_need_leave() -> None:
    """A custom label that is not defined is refused with a hint; a well-known or provided one passes."""
    pool = Requirements([of("example.com/team", "In", ["a"])])
    typo = Requirements([of("exmple.com/team", "In", ["a"])])
    assert pool.compatible(typo, WELL_KNOWN) == (
        'no value of label "exmple.com/team" is defined here (did you mean "example.com/team"?)'
    )
    zone = Requirements([of("topology.kubernetes.io/zone", "In", ["z1"])])
    assert pool.compatible(zone, WELL_KNOWN) is None
    assert pool.compatible(zone) is not None
    cpu = Requirements([of("karpenter.k8s.aws/instance-cpu", "Gt", ["4"])])
    assert pool.compatible(cpu, WELL_KNOWN) is not None
    assert pool.compatible(cpu, well_known(["karpenter.k8s.aws/instance-cpu"])) is None


def test_every_clash_is_named_in_the_order_of_keys() -> None:
    """The refusal names all keys without a common value, sorted."""
    pool = Requirements([of("b", "In", ["1"]), of("a", "In", ["1"])])
    pod = Requirements([of("b", "In", ["2"]), of("a", "NotIn", ["1"])])
    assert pool.compatible(pod) == "a NotIn [1] asked for, a In [1] given; b In [2] asked for, b In [1] given"


def test_requirements_are_values() -> None:
    """Adding returns a new value; equal values have equal hashes and iterate by key."""
    one = Requirements([of("b", "Exists"), of("a", "In", ["x", "y"])])
    more = one.add(of("a", "In", ["y"]))
    assert one["a"].values == {"x", "y"}
    assert more["a"].values == {"y"}
    other = Requirements([of("a", "In", ["y", "x"]), of("b", "Exists")])
    assert one == other
    assert hash(one) == hash(other)
    assert [requirement.key for requirement in one] == ["a", "b"]
    assert one.add() is one


@pytest.mark.parametrize(
    ("compiled", "labels", "matched"),
    [
        (selector({}), {}, True),
        (LabelSelector.compile(None), {"a": "1"}, False),
        (selector({"a": "1"}), {"a": "1", "b": "2"}, True),
        (selector({"a": "1"}), {"a": "2"}, False),
        (selector({}, ("a", "In", ("1", "2"))), {"a": "2"}, True),
        (selector({}, ("a", "In", ("1", "2"))), {}, False),
        (selector({}, ("a", "NotIn", ("1",))), {}, True),
        (selector({}, ("a", "NotIn", ("1",))), {"a": "1"}, False),
        (selector({}, ("a", "NotIn", ("1",))), {"a": "2"}, True),
        (selector({}, ("a", "Exists", ())), {"a": ""}, True),
        (selector({}, ("a", "Exists", ())), {}, False),
        (selector({}, ("a", "DoesNotExist", ())), {}, True),
        (selector({}, ("a", "DoesNotExist", ())), {"a": "1"}, False),
        (selector({"b": "1"}, ("a", "Exists", ())), {"a": "1"}, False),
    ],
)
def test_selectors_match_as_in_kubernetes(compiled: LabelSelector, labels: dict[str, str], matched: bool) -> None:
    """Null matches nothing, an empty selector everything, and NotIn and DoesNotExist an absent label."""
    assert compiled.matches(labels) is matched


@pytest.mark.parametrize(
    ("operator", "values", "words"),
    [("In", (), "needs values"), ("Exists", ("1",), "takes no values"), ("Gt", ("1",), "is not an operator")],
)
def test_a_selector_that_kubernetes_refuses_matches_nothing_and_says_why(
    operator: str, values: tuple[str, ...], words: str
) -> None:
    """An invalid selector matches nothing and gives a reason."""
    broken = selector({}, ("a", operator, values))
    assert words in (broken.problem or "")
    assert not broken.matches({"a": "1"})
    assert not broken.matches({})


def test_equal_selectors_are_equal_values() -> None:
    """Selectors are equal regardless of the order in which they are written."""
    one = selector({"a": "1", "b": "2"}, ("c", "In", ("x", "y")), ("d", "Exists", ()))
    other = selector({"b": "2", "a": "1"}, ("d", "Exists", ()), ("c", "In", ("y", "x")))
    assert one == other
    assert len({one, other, MATCHES_EVERYTHING, MATCHES_NOTHING}) == 3
    assert selector({"a": "1"}).with_equal([("b", "2")]) == selector({"a": "1", "b": "2"})


@pytest.mark.parametrize("text", ["a", "A.b_c-d", "example.com/a", "a.b.c/Name", "x" * 63, "0"])
def test_qualified_names_are_recognised(text: str) -> None:
    """A qualified name has an optional domain and a name."""
    assert is_qualified_name(text)


@pytest.mark.parametrize(
    "text",
    ["", "/a", "a/", "a/b/c", "-a", "a-", "Example.com/a", "x" * 64, "a b", "ex_ample/a", f"{'d' * 254}/a", "a\n"],
)
def test_other_keys_are_refused(text: str) -> None:
    """Keys with empty parts, two slashes, a capital domain, bad edges or too many characters are refused."""
    assert not is_qualified_name(text)


def test_label_values_may_be_empty() -> None:
    """A value is empty or a name of at most 63 characters."""
    assert is_label_value("")
    assert is_label_value("a_b.c-1")
    assert not is_label_value("a/b")
    assert not is_label_value("x" * 64)
