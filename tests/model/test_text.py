"""Text that came from a cluster or from a person."""

import pytest

from dovetail.model.text import nearest


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("node-0006", "node-00006"), ("node-0096", "node-00096"), ("nodee-00016", "node-00016"), ("zzz", None)],
)
def test_the_nearest_name_has_the_same_number(typed: str, meant: str | None) -> None:
    """Of names that are spelled equally alike, the one with the same number is meant."""
    assert nearest(typed, [f"node-{number:05d}" for number in range(100)]) == meant
