"""Its business-hours budgets around their edges, its defaults and its rules.

Design: disruption-controls, disruption controls.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from dovetail.model.policies.policy import ConsolidationPolicy
from tests.support.design_world import Town, kind, moved

SEED = [{"schedule": "0 9 * * mon-fri", "duration": "8h", "nodes": "0"}, {"nodes": "10"}]


def _town(budgets: list[dict[str, Any]] | None, when: datetime, nodes: int = 30) -> Town:
    town = Town(kind("m", "0.20"), now=when)
    disruption: dict[str, Any] = {"consolidateAfter": "0s"}
    if budgets is not None:
        disruption["budgets"] = budgets
    town.pool(disruption=disruption)
    if budgets is None:
        pool = town.pools["default"]
        import msgspec

        spec = msgspec.structs.replace(pool.spec.disruption, budgets=None)
        town.pools["default"] = msgspec.structs.replace(pool, spec=msgspec.structs.replace(pool.spec, disruption=spec))
    for number in range(nodes):
        town.node(f"n{number:02d}", "m")
    return town


def _time(day: int, hour: int, minute: int = 0, second: int = 0) -> datetime:
    """Return a moment of the week of Monday, 11 May 2026."""
    return datetime(2026, 5, 10 + day, hour, minute, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("when", "count"),
    [
        pytest.param(_time(1, 8, 59, 59), 10, id="Monday, a second before nine"),
        pytest.param(_time(1, 9), 0, id="nine sharp: the hit itself is inside"),
        pytest.param(_time(3, 12), 0, id="Wednesday noon"),
        pytest.param(_time(5, 16, 59, 59), 0, id="Friday, a second before five"),
        pytest.param(_time(5, 17), 10, id="five sharp: hit + duration is outside"),
        pytest.param(_time(6, 12), 10, id="Saturday noon"),
        pytest.param(_time(7, 12), 10, id="Sunday noon"),
    ],
)
def test_business_hours(when: datetime, count: int) -> None:
    """Nothing on weekdays from nine to five, at most ten nodes at any other time.

    Design: disruption-controls, Proposed Spec.
    """
    command = _town(SEED, when).act()
    assert (0 if command is None else len(command.nodes)) == count


@pytest.mark.parametrize(
    ("when", "open_"),
    [
        pytest.param(datetime(2026, 1, 14, 13, 59, tzinfo=UTC), True, id="winter: 8:59 in New York"),
        pytest.param(datetime(2026, 1, 14, 14, 0, tzinfo=UTC), False, id="winter: nine in New York"),
        pytest.param(datetime(2026, 7, 15, 12, 59, tzinfo=UTC), True, id="summer: 8:59 in New York"),
        pytest.param(datetime(2026, 7, 15, 13, 0, tzinfo=UTC), False, id="summer: nine in New York"),
        pytest.param(datetime(2026, 7, 15, 20, 59, tzinfo=UTC), False, id="summer: 16:59 in New York"),
        pytest.param(datetime(2026, 7, 15, 21, 0, tzinfo=UTC), True, id="summer: five in New York"),
    ],
)
def test_a_time_zone(when: datetime, open_: bool) -> None:
    """Disruption-controls, Code Definition: a schedule can support a TZ."""
    budgets = [{"schedule": "TZ=America/New_York 0 9 * * mon-fri", "duration": "8h", "nodes": "0"}, {"nodes": "10"}]
    assert (_town(budgets, when).act() is not None) is open_


def test_the_most_restrictive_wins() -> None:
    """Disruption-controls, Code Definition: of several active budgets the most restrictive is respected."""
    command = _town([{"nodes": "10"}, {"nodes": "3"}, {"nodes": "50%"}], _time(6, 12)).act()
    assert command is not None
    assert len(command.nodes) == 3


def test_omitted_budgets_are_ten_percent() -> None:
    """No budgets field is one budget of 10 %, of 30 nodes three, rounded up.

    Design: disruption-controls, Validation/Defaults.
    """
    for nodes, count in ((30, 3), (31, 4), (1, 1)):
        command = _town(None, _time(6, 12), nodes=nodes).act()
        assert command is not None
        assert len(command.nodes) == count


def test_zero_disables() -> None:
    """Disruption-controls, Validation/Defaults: a budget of 0 disables scale-down for a NodePool."""
    assert _town([{"nodes": "0"}], _time(6, 12)).act() is None


def test_defaults_of_the_policy() -> None:
    """Disruption-controls, Validation/Defaults: WhenUnderutilized (read as WhenEmptyOrUnderutilized) after 15 s."""
    from dovetail.api.policy import effective_policy
    from dovetail.model.objects import NodePool
    from dovetail.model.settings import DOVETAIL

    policy = effective_policy(NodePool(), DOVETAIL)
    assert policy.consolidation_policy is ConsolidationPolicy.WHEN_EMPTY_OR_UNDERUTILIZED
    assert policy.consolidate_after == 15 * 10**9
    assert [budget.nodes for budget in policy.budgets] == ["10%"]


@pytest.mark.parametrize(
    ("seconds", "goes"), [(0, False), (14, False), (15, True), (60, True)], ids=lambda value: str(value)
)
def test_consolidate_after_fifteen_seconds(seconds: int, goes: bool) -> None:
    """Disruption-controls, Validation/Defaults: an empty node goes 15 s after its last pod event, not before."""
    from datetime import timedelta

    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidateAfter": "15s"})
    town.node("n", "m", idle=timedelta(seconds=seconds))
    assert (town.act() is not None) is goes


def test_never_means_not_even_empty_nodes() -> None:
    """Disruption-controls, Code Definition: consolidateAfter Never disables consolidation."""
    town = Town(kind("m", "0.20"))
    town.pool(disruption={"consolidateAfter": "Never"})
    town.node("n", "m")
    assert town.act() is None
    assert town.verdicts() == {"n": "consolidate-after"}


def test_a_budget_for_one_reason_leaves_the_others() -> None:
    """docs/rules.md#policy: reasons limit a budget to what they name."""
    town = _town([{"nodes": "0", "reasons": ["Drifted", "Underutilized"]}], _time(6, 12), nodes=3)
    assert moved(town.act()) == ("deleteEmpty", ("n00", "n01", "n02"))


def test_a_broken_budget_closes_what_it_names_only() -> None:
    """docs/rules.md#policy: an unreadable budget allows 0 for the reasons it names, and other reasons go on."""
    broken = {"nodes": "5", "schedule": "0 25 * * *", "duration": "1h", "reasons": ["Empty"]}
    town = _town([broken], _time(6, 12), nodes=2)
    assert town.act() is None
    left = {row.reason.value: row.left for row in town.round().budgets}
    assert left["Empty"] == 0
    assert left["Drifted"] > 0
    assert any("budgets[0]" in text for text in town.round().warnings)


def test_not_ready_and_leaving_nodes_use_it_up() -> None:
    """docs/rules.md#budgets and docs/deviations.md: nodes marked for deletion and NotReady nodes use up a budget."""
    town = _town([{"nodes": "3"}], _time(6, 12), nodes=6)
    town.node("n90", "m", ready=False)
    town.pod("busy", "n90")
    command = town.act()
    assert command is not None
    assert len(command.nodes) == 2
    town.mark(command)
    assert town.act() is None
    row = next(row for row in town.round().budgets if row.reason.value == "Empty")
    assert (row.allowed, row.used, row.left) == (3, 3, 0)
