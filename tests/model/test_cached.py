"""Properties that are computed once."""

from dovetail.model.cached import cached


class Counted:
    """Count how often the property is computed."""

    def __init__(self) -> None:
        self.asked = 0

    @cached
    def answer(self) -> int:
        """The answer."""
        self.asked += 1
        return 42


def test_it_is_worked_out_when_first_asked_for_and_kept() -> None:
    """A value is computed at the first access and kept, separately for each object."""
    one, other = Counted(), Counted()
    assert one.asked == 0
    assert (one.answer, one.answer, one.asked) == (42, 42, 1)
    assert other.asked == 0


def test_the_class_gives_the_property_itself() -> None:
    """The class returns the property, so tools find its documentation."""
    assert isinstance(Counted.answer, cached)
    assert Counted.answer.__doc__ == "The answer."


def test_what_was_kept_may_be_put_there_beforehand() -> None:
    """An instance attribute takes precedence over the property."""
    one = Counted()
    vars(one)["answer"] = 7
    assert (one.answer, one.asked) == (7, 0)
