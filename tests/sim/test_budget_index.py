"""An index finds PDBs by a label of the pod; the result equals a comparison with all PDBs."""

import msgspec
import pytest

from dovetail.model.objects import PodDisruptionBudget
from dovetail.sim.world.placement.matching import BudgetIndex, selects

_BUDGETS = {
    "shop/all": {},
    "shop/web": {"matchLabels": {"app": "web"}},
    "shop/web-two": {"matchLabels": {"app": "web", "tier": "2"}},
    "shop/tier": {"matchLabels": {"tier": "2"}},
    "shop/any": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    "shop/not": {"matchLabels": {"tier": "2"}, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
    "shop/none": None,
    "other/web": {"matchLabels": {"app": "web"}},
}


def _budgets() -> dict[str, PodDisruptionBudget]:
    found = {}
    for key, selector in _BUDGETS.items():
        namespace, _, name = key.partition("/")
        spec = {} if selector is None else {"selector": selector}
        tree = {"metadata": {"namespace": namespace, "name": name}, "spec": spec}
        found[key] = msgspec.convert(tree, PodDisruptionBudget)
    return found


@pytest.mark.parametrize("namespace", ["shop", "other", "empty"])
@pytest.mark.parametrize(
    "labels", [{}, {"app": "web"}, {"app": "db"}, {"tier": "2"}, {"tier": "2", "app": "web"}, {"x": "y", "app": "web"}]
)
def test_the_same_budgets_are_found(namespace: str, labels: dict[str, str]) -> None:
    """The index finds the same budgets for any selector, in the order of their keys."""
    budgets = _budgets()
    expected = tuple(
        key
        for key, budget in sorted(budgets.items())
        if budget.metadata.namespace == namespace and selects(budget.spec.selector, labels)
    )
    assert BudgetIndex(budgets).over(namespace, labels) == expected
    assert expected or namespace != "shop"
