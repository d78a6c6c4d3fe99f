"""Under `karpenter-*` profiles commitments, discounts and surcharges change the money that is printed, no decision."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dovetail.decide.decider import Decider
from dovetail.decide.document import plan_document
from dovetail.decide.question import Question
from dovetail.model import names
from dovetail.model.commitments import family_of
from dovetail.model.settings import PROFILES, Profile
from tests.support.commitments import paying
from tests.support.golden_cases import GoldenCase, golden_cases
from tests.support.sizes import size

MONEY = {
    "savingsPerHour",
    "savingsPerMonth",
    "costPerHour",
    "costPerMonth",
    "bill",
    "optimal",
    "figures",
    "why",
    "price",
}
"""What may differ: amounts, the sentences that name them, and the warning that nothing says which cloud it is."""
EXAMPLES = size(test=6, ci=12, long=116)


def a_tariff(dice: Random, types: list[str]) -> dict[str, Any]:
    """Return commitments for types that there are, discounts and surcharges, at random."""
    some = [dice.choice(types) for _ in range(3)]
    return {
        "commitments": [
            {"name": "ri", "kind": "ReservedInstances", "instanceTypes": some[:1], "count": 1 + dice.randrange(6)},
            {
                "name": "flex",
                "kind": "ReservedInstances",
                "families": [family_of(some[1])],
                "count": dice.randrange(90),
            },
            {"name": "own", "kind": "SavingsPlan", "families": [family_of(some[2])], "hourly": "3", "rates": "40%"},
            {"name": "all", "kind": "SavingsPlan", "hourly": str(dice.randrange(20) / 10), "rates": "28%"},
        ],
        "discount": {"aws": f"{dice.randrange(60)}%"},
        "surcharge": [{"nodeClassKind": "EC2NodeClass", "percent": dice.randrange(30)}],
    }


def _without_money(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without_money(value) for key, value in tree.items() if key not in MONEY}
    if isinstance(tree, list):
        return [_without_money(entry) for entry in tree if not str(entry).startswith("discount.")]
    return tree


def types_of(case: GoldenCase) -> list[str]:
    """Return the types of its nodes that can be bought: a commitment for another covers nothing, with a warning."""
    known = {kind.name for kind in case.catalogue.instance_types}
    used = {node.metadata.labels.get(names.INSTANCE_TYPE, "") for node in case.cluster.nodes}
    return sorted(used & known or known)


def _cases() -> list[GoldenCase]:
    cases = golden_cases()
    return list(cases[:: max(1, len(cases) // EXAMPLES)])


@pytest.mark.parametrize("profile", [profile for profile in PROFILES if profile is not Profile.DOVETAIL])
def test_no_decision_changes(profile: Profile) -> None:
    """Commands, verdicts and budgets are the same with any tariff; with commitments the bill is another."""
    dice, cheaper = Random(profile.value), 0
    for case in _cases():
        types = types_of(case)
        plain = PROFILES[profile]
        question = Question(cluster=case.cluster, catalogue=case.catalogue, settings=plain, now=case.now)
        paid = replace(question, settings=paying(plain, **a_tariff(dice, types)))
        decider = Decider()
        before, after = decider.round(question, every_method=True), decider.round(paid, every_method=True)
        assert _without_money(plan_document(before)) == _without_money(plan_document(after)), case.name
        again = Decider(memory=False).round(paid, every_method=True)
        assert plan_document(again) == plan_document(after), case.name
        cheaper += before.cost_per_hour != after.cost_per_hour
    assert cheaper


def test_the_comparison_would_see_a_decision() -> None:
    """Under Dovetail's own profile the same tariffs do change decisions."""
    dice, changed = Random(1), 0
    for case in _cases():
        types = types_of(case)
        settings = PROFILES[Profile.DOVETAIL]
        question = Question(cluster=case.cluster, catalogue=case.catalogue, settings=settings, now=case.now)
        paid = replace(question, settings=paying(settings, **a_tariff(dice, types)))
        rounds = [Decider().round(one, every_method=True) for one in (question, paid)]
        optimal = plan_document(rounds[1])["optimal"]
        assert optimal is None or optimal["reached"] is None or optimal["reached"] <= 1, case.name
        before, after = (_without_money(plan_document(one)) for one in rounds)
        changed += before != after
    assert changed
