"""Which NodePools are Dovetail's: one rule for the controller, the planner and `release`."""

from dataclasses import replace

import pytest

from dovetail.model import names
from dovetail.model.objects import NodePool, ObjectMeta
from dovetail.model.policies.managed import is_labelled, is_managed, managed_pools
from dovetail.model.settings import DOVETAIL


@pytest.mark.parametrize(
    ("labels", "named", "managed"),
    [
        ({}, (), False),
        ({names.MANAGE: "true"}, (), True),
        ({names.MANAGE: "True"}, (), False),
        ({names.MANAGE: "false"}, ("web",), True),
        ({}, ("web", "gone"), True),
        ({}, ("other",), False),
    ],
)
def test_labelled_or_named(labels: dict[str, str], named: tuple[str, ...], managed: bool) -> None:
    """A pool is managed if it is labelled or named; an unknown name has no effect."""
    pool = NodePool(metadata=ObjectMeta(name="web", labels=labels))
    settings = replace(DOVETAIL, pools=named)
    assert is_managed(pool, settings) is managed
    assert managed_pools([pool], settings) == (("web",) if managed else ())
    assert is_labelled(labels) is (labels.get(names.MANAGE) == "true")
